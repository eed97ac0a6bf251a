"""Tensors, devices and handles of ttnn are described without touching the device."""

import json

import numpy
import pytest

from optrove.frameworks.ttnn.convert import table as values
from optrove.model.case import Case
from optrove.model.values import (
    DeviceRef,
    Handle,
    MeshPlacement,
    Struct,
    Symbol,
    TensorSpec,
    Tile,
)
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import Describer, describe
from optrove.serializer.hashes import placement_hash
from optrove.serializer.tables import Tables

pytestmark = pytest.mark.ttnn

ALL_CHIPS = tuple((row, column) for row in range(4) for column in range(8))


@pytest.fixture(scope="module")
def mesh(all_chips):
    return all_chips


@pytest.fixture(scope="module")
def tables(ttnn):
    return Tables([values.table(), plain.table()])


@pytest.fixture
def allocate(ttnn, mesh):
    """Allocate a tensor on the mesh: by default a padded, tiled bfloat16 one."""

    def make(shape=(1, 1, 50, 64), dtype="BFLOAT16", layout="TILE", memory=None):
        return ttnn.allocate_tensor_on_device(
            ttnn.Shape(shape),
            ttnn.DataType[dtype],
            ttnn.Layout[layout],
            mesh,
            memory or ttnn.DRAM_MEMORY_CONFIG,
        )

    return make


@pytest.fixture
def cores(ttnn):
    """Eight cores in a row."""
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 0))])


def test_a_device_tensor_tells_shape_padding_layout_and_tile(allocate, tables):
    spec = describe(allocate(), tables)
    assert (spec.shape, spec.dtype) == ((1, 1, 50, 64), "ttnn.bfloat16")
    assert spec.placement.padded_shape == (1, 1, 64, 64)
    assert spec.placement.layout == "TILE"
    assert spec.placement.tile == Tile((32, 32), (16, 16))
    assert spec.placement.storage == "device"
    assert spec.placement.mesh_shape == (4, 8)
    assert spec.placement.mesh == MeshPlacement((4, 8), (None, None), ALL_CHIPS)


def test_a_row_major_tensor_has_no_tile(allocate, tables):
    spec = describe(allocate((3, 5), "INT32", "ROW_MAJOR"), tables)
    assert spec.placement.tile is None
    assert spec.placement.padded_shape == (3, 5)


def test_a_sharded_tensor_keeps_its_exact_shards(ttnn, allocate, cores, tables):
    shards = ttnn.ShardSpec(cores, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
    memory = ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shards)
    live = allocate((1, 8, 32, 64), memory=memory)
    spec = describe(live, tables)
    assert spec.placement.memory == describe(memory, tables)
    assert build(spec.placement.memory, tables) == live.memory_config()


def test_a_new_topology_is_seen_at_once_in_its_order_of_chips(ttnn, allocate, tables):
    live = allocate()
    before = describe(live, tables).placement.mesh
    chips = [ttnn.MeshCoordinate(chip) for chip in reversed(ALL_CHIPS)]
    placements = [ttnn.PlacementShard(-1), ttnn.PlacementReplicate()]
    live.update_tensor_topology(ttnn.TensorTopology(ttnn.MeshShape(4, 8), placements, chips))
    after = describe(live, tables).placement.mesh
    assert before == MeshPlacement((4, 8), (None, None), ALL_CHIPS)
    assert after == MeshPlacement((4, 8), (-1, None), ALL_CHIPS[::-1])


def test_a_host_tensor_has_no_device(ttnn, tables):
    spec = describe(ttnn.Tensor(numpy.zeros((2, 3), numpy.float32), ttnn.float32), tables)
    assert spec.shape == (2, 3)
    assert spec.dtype == "ttnn.float32"
    assert spec.placement.storage == "host"
    assert spec.placement.mesh_shape is None


@pytest.mark.parametrize("side", ["device", "host"])
def test_a_deallocated_tensor_is_still_described(ttnn, allocate, tables, side):
    live = allocate() if side == "device" else allocate().cpu()
    before = describe(live, tables)
    ttnn.deallocate(live, force=True)
    after = describe(live, tables)
    assert isinstance(after, TensorSpec)
    assert (after.shape, after.dtype) == (before.shape, before.dtype)
    assert after.placement.memory == before.placement.memory


def test_a_tensor_that_appears_twice_keeps_its_number(ttnn, allocate, tables):
    one, other = allocate((1, 1, 64, 64)), allocate((1, 1, 64, 64))
    session = Describer(tables)
    assert [session.describe(live).identity for live in (one, other, one)] == [0, 1, 0]
    updated = ttnn.add(one, other, output_tensor=one)
    assert updated is not one
    assert session.describe(updated).identity == 0


def test_describing_dispatches_no_operation(ttnn, allocate, tables, monkeypatch):
    live = allocate()
    called = []
    monkeypatch.setattr(
        ttnn.decorators.FastOperation, "__call__", lambda op, *_, **__: called.append(op)
    )
    for method in ("cpu", "to_list", "to_torch", "to_numpy", "item", "__repr__", "__str__"):
        if hasattr(ttnn.Tensor, method):
            monkeypatch.setattr(ttnn.Tensor, method, lambda *_: pytest.fail("read the tensor"))
    assert isinstance(describe([live, live], tables).items[0], TensorSpec)
    assert called == []


def test_a_tensor_stays_a_reference_on_the_way_back(allocate):
    recorded = to_jsonable({"x": allocate()})
    assert isinstance(from_jsonable(recorded)["x"], TensorSpec)


def test_a_device_is_recorded_by_its_mesh_and_replaced_by_the_given_one(mesh, tables):
    assert describe(mesh, tables) == DeviceRef("ttnn.MeshDevice", (4, 8))
    assert from_jsonable(to_jsonable([mesh]), mesh_device=mesh) == [mesh]
    assert from_jsonable(to_jsonable(mesh)) == DeviceRef("ttnn.MeshDevice", (4, 8))


def test_a_semaphore_without_a_witness_has_no_recipe(ttnn, mesh, cores, tables):
    semaphore = ttnn.create_global_semaphore(mesh, cores, 3)
    assert describe(semaphore, tables) == Handle("ttnn.GlobalSemaphore", None)


@pytest.mark.parametrize("kind", ["GlobalSemaphore", "GlobalCircularBuffer", "SubDevice"])
def test_a_handle_is_recreated_from_its_recipe(ttnn, mesh, cores, tables, kind):
    senders = ttnn.CoreRange(ttnn.CoreCoord(1, 1), ttnn.CoreCoord(2, 1))
    l1 = ttnn.BufferType.L1
    recipes = {
        "GlobalSemaphore": {"cores": cores, "initial_value": 3, "buffer_type": l1},
        "GlobalCircularBuffer": {
            "sender_receiver_core_mapping": [(ttnn.CoreCoord(0, 0), ttnn.CoreRangeSet([senders]))],
            "size": 3200,
            "buffer_type": l1,
        },
        "SubDevice": {"cores": [cores]},
    }
    fields = {name: describe(item, tables) for name, item in recipes[kind].items()}
    recorded = Handle(f"ttnn.{kind}", Struct(f"ttnn.{kind}", tuple(fields.items())))
    made = build(recorded, tables, mesh)
    witnessed = Describer(tables, recipes=lambda live: recipes[kind] if live is made else None)
    assert witnessed.describe(made) == recorded


def test_the_commonest_mapper_is_recreated(ttnn, mesh, tables):
    mapper = ttnn.ReplicateTensorToMesh(mesh)
    recorded = describe(mapper, tables)
    replicate = "ttnn.ReplicateTensorToMesh"
    assert recorded == Handle(replicate, Struct(replicate, ()))
    made = from_jsonable(json.loads(json.dumps(to_jsonable(mapper))), mesh_device=mesh)
    assert type(made) is type(mapper)
    assert describe(made, tables) == recorded
    host = ttnn.Tensor(numpy.zeros((32, 32), numpy.float32), ttnn.float32)
    spread = [ttnn.distribute_tensor(host, m.unwrap(), mesh) for m in (mapper, made)]
    assert describe(spread[0], tables) == describe(spread[1], tables)


def test_a_wrapper_around_another_mapper_has_no_recipe(ttnn, mesh, tables):
    sharding = ttnn.ShardTensorToMesh(mesh, dim=0)
    wrapper = type(ttnn.ReplicateTensorToMesh(mesh))(sharding)
    assert describe(wrapper, tables) == Handle("ttnn.ReplicateTensorToMesh", None)


def test_the_parts_of_a_tensor_lie_on_their_own_chips(ttnn, allocate, tables):
    whole = allocate()
    first, second = ttnn.get_device_tensors(whole)[:2]
    assert describe(first, tables).placement.mesh.coordinates == ((0, 0),)
    assert describe(second, tables).placement.mesh.coordinates == ((0, 1),)
    forms = [describe(live, tables) for live in (whole, first, second)]
    assert len(set(forms)) == 3
    hashes = {placement_hash(Case("ttnn.relu", (("input", form),))) for form in forms}
    assert len(hashes) == 3


def test_what_is_read_from_some_chips_is_theirs_on_the_host_too(ttnn, allocate, tables):
    whole = allocate()
    parts = ttnn.get_device_tensors(whole)
    several = ttnn.combine_device_tensors(tensors=[parts[1], parts[9]])
    for live in (whole, parts[0], parts[9], several):
        on_device, on_host = describe([live, ttnn.from_device(live)], tables).items
        assert on_host.placement.storage == "host"
        assert on_host.placement.mesh == on_device.placement.mesh


@pytest.fixture(scope="module")
def rows(ttnn, mesh):
    """The four rows of the mesh as devices of their own."""
    rows = mesh.create_submeshes(ttnn.MeshShape(1, 8))
    yield rows
    for row in rows:
        ttnn.close_mesh_device(row)


def test_two_parts_of_a_mesh_are_two_devices(rows, tables):
    one, other = rows[:2]
    same, different = describe([one, one], tables), describe([one, other], tables)
    assert [device.identity for device in same.items] == [0, 0]
    assert [device.identity for device in different.items] == [0, 1]


def test_tensors_on_two_parts_of_a_mesh_lie_apart(ttnn, mesh, rows, tables):
    def on(device):
        spec = (ttnn.Shape([1, 1, 32, 32]), ttnn.bfloat16, ttnn.TILE_LAYOUT)
        return ttnn.allocate_tensor_on_device(*spec, device, ttnn.DRAM_MEMORY_CONFIG)

    here, beside, there = on(rows[0]), on(rows[0]), on(rows[1])
    together, apart = describe([here, beside], tables), describe([here, there], tables)
    assert [spec.placement.device for spec in together.items] == [0, 0]
    assert [spec.placement.device for spec in apart.items] == [0, 1]
    assert [spec.storage for spec in apart.items] == [0, 1]
    named = describe([mesh, rows[1], there], tables)
    assert named.items[1].identity == named.items[2].placement.device == 1


def test_a_view_shares_the_buffer_of_what_it_views(ttnn, allocate, tables):
    live = allocate((1, 1, 32, 32))
    view = ttnn.reshape(live, (32, 32))
    viewed, cloned = describe([live, view], tables), describe([live, ttnn.clone(view)], tables)
    assert [spec.storage for spec in viewed.items] == [0, 0]
    assert [spec.storage for spec in cloned.items] == [0, 1]
    assert [spec.identity for spec in viewed.items] == [0, 1]
    part = ttnn.get_device_tensors(live)[3]
    assert [spec.storage for spec in describe([live, part], tables).items] == [0, 0]


def test_a_deallocated_tensor_shares_no_buffer(ttnn, allocate, tables):
    gone, new = allocate(), allocate()
    address = gone.buffer_address()
    ttnn.deallocate(gone, force=True)
    in_its_place = allocate()
    assert in_its_place.buffer_address() == address
    found = describe([gone, in_its_place, new], tables)
    assert [spec.storage for spec in found.items] == [0, 1, 2]
    assert found.items[0].placement.device is None


def test_host_tensors_have_buffers_of_their_own(allocate, tables):
    host = allocate().cpu()
    assert [s.storage for s in describe([host, allocate().cpu(), host], tables).items] == [0, 1, 0]


def test_arguments_of_a_call_are_described_together(ttnn, mesh, allocate, tables):
    live = allocate((1, 1, 64, 64))
    call = {"input": live, "dtype": ttnn.bfloat8_b, "device": mesh}
    recorded = to_jsonable(call)
    assert recorded["dtype"] == {"$symbol": "ttnn.DataType", "name": "BFLOAT8_B"}
    assert describe(ttnn.bfloat8_b, tables) == Symbol("ttnn.DataType", "BFLOAT8_B")

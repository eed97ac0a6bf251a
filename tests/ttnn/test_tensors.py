"""Tensors, devices and handles of ttnn are described without touching the device."""

import numpy
import pytest

from optrove.backends import plain
from optrove.backends.base import Tables
from optrove.backends.build import build
from optrove.backends.describe import Describer, describe
from optrove.backends.ttnn import values
from optrove.flows.serialize import from_jsonable, to_jsonable
from optrove.model.values import (
    DeviceRef,
    Handle,
    List,
    MeshPlacement,
    Struct,
    Symbol,
    TensorSpec,
    Tile,
)

pytestmark = pytest.mark.ttnn

ALL_CHIPS = tuple((row, column) for row in range(4) for column in range(8))


@pytest.fixture(scope="module")
def tables(ttnn):
    return Tables([values.table(), plain.table()])


@pytest.fixture
def allocate(ttnn, mesh):
    """Allocate a tensor on the mesh: a padded, tiled bfloat16 one unless told otherwise."""

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


def test_a_new_topology_is_seen_at_once(ttnn, allocate, tables):
    live = allocate()
    before = describe(live, tables).placement.mesh
    chips = [ttnn.MeshCoordinate(chip) for chip in ALL_CHIPS]
    placements = [ttnn.PlacementShard(-1), ttnn.PlacementReplicate()]
    live.update_tensor_topology(ttnn.TensorTopology(ttnn.MeshShape(4, 8), placements, chips))
    after = describe(live, tables).placement.mesh
    assert before.placements == (None, None)
    assert after.placements == (-1, None)


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
def test_a_handle_is_made_anew_from_its_recipe(ttnn, mesh, cores, tables, kind):
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


def test_a_mapper_is_made_anew_from_its_recipe(ttnn, mesh, tables):
    shard = Struct("ttnn.PlacementShard", (("dim", describe(2, tables)),))
    recipe = {
        "placements": List((shard, Struct("ttnn.PlacementReplicate", ()))),
        "mesh_shape_override": describe(None, tables),
        "mesh_offset_override": describe(ttnn.MeshCoordinate([0, 0]), tables),
    }
    recorded = Handle("ttnn.TensorToMesh", Struct("ttnn.TensorToMesh", tuple(recipe.items())))
    mapper = build(recorded, tables, mesh)
    assert [type(p) for p in mapper.config().placements] == [
        ttnn.PlacementShard,
        ttnn.PlacementReplicate,
    ]


def test_arguments_of_a_call_are_described_together(ttnn, mesh, allocate, tables):
    live = allocate((1, 1, 64, 64))
    call = {"input": live, "dtype": ttnn.bfloat8_b, "device": mesh}
    recorded = to_jsonable(call)
    assert recorded["dtype"] == {"$symbol": "ttnn.DataType", "name": "BFLOAT8_B"}
    assert describe(ttnn.bfloat8_b, tables) == Symbol("ttnn.DataType", "BFLOAT8_B")

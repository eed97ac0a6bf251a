"""What ttnn's runtime objects and devices were made with is seen, and nobody notices."""

import gc
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest

from optrove.frameworks.ttnn.convert import table as values
from optrove.frameworks.ttnn.probe import creation
from optrove.frameworks.ttnn.probe.creation import Creations
from optrove.model.values import Handle, Opaque, walk
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import Describer
from optrove.serializer.tables import Tables
from optrove.serializer.wire import decode, encode

pytestmark = pytest.mark.ttnn


class ObservedCreations:
    """Creations, and the handles and faults that they reported."""

    def __init__(self, ttnn):
        self.opened = []
        self.faults = []
        self.creations = Creations(ttnn, self.opened.append, self.faults.append)

    def describe(self, live, tables):
        return Describer(tables, recipes=self.creations.recipe).describe(live)


@contextmanager
def patched(observed):
    with ExitStack() as undo:
        for owner, name, replacement in observed.creations.patches():
            undo.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield observed


@pytest.fixture
def observed(ttnn):
    with patched(ObservedCreations(ttnn)) as observed:
        yield observed
    assert observed.faults == []


@pytest.fixture
def tables(observed):
    """Converters that make handles by the patched functions."""
    return Tables([values.table(), plain.table()])


@pytest.fixture
def cores(ttnn):
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 1))])


@pytest.fixture
def receivers(ttnn):
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(1, 0), ttnn.CoreCoord(2, 0))])
    return [(ttnn.CoreCoord(0, 0), cores)]


SEMAPHORES = {
    "by position": lambda ttnn, mesh, cores: ttnn.create_global_semaphore(mesh, cores, 7),
    "by name": lambda ttnn, mesh, cores: ttnn.create_global_semaphore(
        initial_value=7, cores=cores, mesh_device=mesh, buffer_type=ttnn.BufferType.L1
    ),
    "of the extension": lambda ttnn, mesh, cores: (
        ttnn._ttnn.global_semaphore.create_global_semaphore(mesh, cores, initial_value=7)
    ),
}

BUFFERS = {
    "by position": lambda ttnn, mesh, pairs: ttnn.create_global_circular_buffer(mesh, pairs, 2048),
    "by name": lambda ttnn, mesh, pairs: ttnn.create_global_circular_buffer(
        mesh_device=mesh, size=2048, sender_receiver_core_mapping=pairs
    ),
    "of the extension": lambda ttnn, mesh, pairs: (
        ttnn._ttnn.global_circular_buffer.create_global_circular_buffer(
            mesh, pairs, 2048, ttnn.BufferType.L1
        )
    ),
}

EVENTS = {
    "by default": lambda ttnn, mesh: ttnn.record_event(mesh),
    "of a number": lambda ttnn, mesh: ttnn.record_event(mesh, 0),
    "of a queue": lambda ttnn, mesh: ttnn.record_event(cq_id=ttnn.QueueId(0), mesh_device=mesh),
    "of sub-devices": lambda ttnn, mesh: ttnn.record_event(mesh, 0, [ttnn.SubDeviceId(0)]),
    "of a part": lambda ttnn, mesh: ttnn._ttnn.events.record_event(
        mesh,
        device_range=ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(1, 3)),
    ),
}


def mapper_config(ttnn, *arguments, **keywords):
    return ttnn.MeshMapperConfig(
        [ttnn.PlacementReplicate(), ttnn.PlacementShard(-1)], *arguments, **keywords
    )


MAPPERS = {
    "ShardTensorToMesh": lambda ttnn, mesh: ttnn.ShardTensorToMesh(mesh, dim=1),
    "ShardTensor2dMesh": lambda ttnn, mesh: ttnn.ShardTensor2dMesh(
        mesh, dims=(None, 1), mesh_shape=(4, 8)
    ),
    "distributed.ShardTensor2dMesh": lambda ttnn, mesh: ttnn.distributed.ShardTensor2dMesh(
        mesh, (2, 8), (0, 2)
    ),
    "shard_tensor_to_mesh_mapper": lambda ttnn, mesh: ttnn.shard_tensor_to_mesh_mapper(
        mesh_device=mesh, dim=-2
    ),
    "replicate_tensor_to_mesh_mapper": lambda ttnn, mesh: ttnn.replicate_tensor_to_mesh_mapper(
        mesh
    ),
    "ReplicateTensorToMesh": lambda ttnn, mesh: ttnn.ReplicateTensorToMesh(mesh),
    "create_mesh_mapper": lambda ttnn, mesh: ttnn.create_mesh_mapper(mesh, mapper_config(ttnn)),
    "of the extension": lambda ttnn, mesh: ttnn._ttnn.multi_device.create_mesh_mapper(
        config=mapper_config(ttnn), mesh_device=mesh
    ),
    "with a shape": lambda ttnn, mesh: ttnn.create_mesh_mapper(
        mesh, mapper_config(ttnn, ttnn.MeshShape(2, 4))
    ),
    "with an offset": lambda ttnn, mesh: ttnn.create_mesh_mapper(
        mesh, mapper_config(ttnn, ttnn.MeshShape(2, 4), ttnn.MeshCoordinate(1, 0))
    ),
    "by rows and columns": lambda ttnn, mesh: ttnn.create_mesh_mapper(
        mesh, ttnn.MeshMapperConfig(row_dim=2)
    ),
}

COMPOSERS = {
    "ConcatMeshToTensor": lambda ttnn, mesh: ttnn.ConcatMeshToTensor(mesh, dim=0),
    "concat_mesh_to_tensor_composer": lambda ttnn, mesh: ttnn.concat_mesh_to_tensor_composer(
        dim=-1, mesh_device=mesh
    ),
    "ConcatMesh2dToTensor": lambda ttnn, mesh: ttnn.ConcatMesh2dToTensor(
        mesh, dims=(0, 3), mesh_shape=(4, 8)
    ),
    "create_mesh_composer": lambda ttnn, mesh: ttnn.create_mesh_composer(
        mesh, ttnn.MeshComposerConfig([1, 2])
    ),
    "with overrides": lambda ttnn, mesh: ttnn.create_mesh_composer(
        mesh_device=mesh,
        config=ttnn.MeshComposerConfig(
            dims=[0, 1],
            mesh_shape_override=ttnn.MeshShape(2, 2),
            mesh_offset_override=ttnn.MeshCoordinate(1, 1),
        ),
    ),
    "by rows and columns": lambda ttnn, mesh: ttnn.create_mesh_composer(
        mesh, ttnn.MeshComposerConfig(row_dim=0, col_dim=-1)
    ),
}


def assert_comes_back(live, observed, tables, mesh):
    """Assert that the handle is described, encoded, decoded and built, and is then the same."""
    value = observed.describe(live, tables)
    assert isinstance(value, Handle)
    assert value.recipe is not None
    assert not any(isinstance(part, Opaque) for _, part in walk(value))
    made = build(decode(encode(value)), tables, mesh_device=mesh)
    assert type(made) is type(live)
    assert observed.describe(made, tables) == value
    return made


@pytest.mark.parametrize("make", SEMAPHORES.values(), ids=SEMAPHORES)
def test_a_semaphore_comes_back_however_it_was_made(ttnn, mesh, cores, observed, tables, make):
    semaphore = make(ttnn, mesh, cores)
    assert observed.creations.recipe(semaphore) == {
        "cores": cores,
        "initial_value": 7,
        "buffer_type": ttnn.BufferType.L1,
    }
    assert_comes_back(semaphore, observed, tables, mesh)


@pytest.mark.parametrize("make", BUFFERS.values(), ids=BUFFERS)
def test_a_circular_buffer_comes_back(ttnn, mesh, receivers, observed, tables, make):
    buffer = make(ttnn, mesh, receivers)
    made = assert_comes_back(buffer, observed, tables, mesh)
    assert made.size() == buffer.size()
    assert made.receiver_cores() == buffer.receiver_cores()


@pytest.mark.parametrize("make", EVENTS.values(), ids=EVENTS)
def test_an_event_comes_back(ttnn, mesh, observed, tables, make):
    assert_comes_back(make(ttnn, mesh), observed, tables, mesh)


@pytest.mark.parametrize("make", MAPPERS.values(), ids=MAPPERS)
def test_a_mapper_comes_back(ttnn, mesh, observed, tables, make):
    mapper = make(ttnn, mesh)
    made = assert_comes_back(mapper, observed, tables, mesh)
    if not isinstance(mapper, ttnn.CppTensorToMesh):
        mapper, made = mapper.unwrap(), made.unwrap()
    assert repr(made.config()) == repr(mapper.config())


@pytest.mark.parametrize("make", COMPOSERS.values(), ids=COMPOSERS)
def test_a_composer_comes_back(ttnn, mesh, observed, tables, make):
    assert_comes_back(make(ttnn, mesh), observed, tables, mesh)


@pytest.mark.parametrize(
    "make", [COMPOSERS["ConcatMeshToTensor"], COMPOSERS["concat_mesh_to_tensor_composer"]]
)
def test_a_composer_that_came_back_gathers_the_same_numbers(ttnn, mesh, observed, tables, make):
    numbers = ttnn.Tensor(list(range(32 * 64)), [4, 8, 8, 8], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
    shards = ttnn.distribute_tensor(numbers, ttnn.ShardTensor2dMesh(mesh, (4, 8), (0, 1)))
    composer = make(ttnn, mesh)
    made = assert_comes_back(composer, observed, tables, mesh)
    gathered, again = (ttnn.aggregate_tensor(shards, by) for by in (composer, made))
    assert tuple(gathered.shape) == tuple(again.shape)
    assert gathered.to_list() == again.to_list()


def test_what_cannot_be_watched_has_no_recipe(ttnn, mesh, cores, observed, tables):
    part = ttnn.SubDevice([cores])
    manager = mesh.create_sub_device_manager([part], 0)
    without_device = ttnn.create_mesh_mapper(ttnn.MeshShape(4, 8), mapper_config(ttnn))
    for live in (part, manager, without_device):
        assert observed.creations.recipe(live) is None
        assert observed.creations.number(live) is None
        assert observed.describe(live, tables).recipe is None
    mesh.remove_sub_device_manager(manager)


def test_what_was_made_before_has_no_recipe_and_what_was_seen_keeps_it(ttnn, mesh, cores):
    before = ttnn.create_global_semaphore(mesh, cores, 0)
    with patched(ObservedCreations(ttnn)) as observed:
        assert observed.creations.recipe(before) is None
        seen = ttnn.create_global_semaphore(mesh, cores, 1)
    after = ttnn.create_global_semaphore(mesh, cores, 2)
    assert observed.creations.recipe(after) is None
    assert observed.creations.recipe(seen)["initial_value"] == 1


def test_an_object_at_the_place_of_a_dead_one_has_its_own_recipe(ttnn, mesh, cores, observed):
    first = ttnn.create_global_semaphore(mesh, cores, 0)
    place = id(first)
    del first
    second = ttnn.create_global_semaphore(mesh, cores, 9)
    assert id(second) == place
    assert observed.creations.recipe(second)["initial_value"] == 9


def test_an_object_without_recipe_at_the_place_of_a_dead_one_has_none(ttnn, mesh, observed):
    first = ttnn.create_mesh_mapper(mesh, mapper_config(ttnn))
    place = id(first)
    assert observed.creations.recipe(first) is not None
    del first
    second = ttnn.create_mesh_mapper(ttnn.MeshShape(4, 8), mapper_config(ttnn))
    assert id(second) == place
    assert observed.creations.recipe(second) is None


def test_other_functions_that_return_handles_are_watched_too(ttnn):
    operations = ttnn._ttnn.operations.experimental
    patches = [(owner, name) for owner, name, _ in ObservedCreations(ttnn).creations.patches()]
    for name in ("matmul_1d", "tensor_prefetcher"):
        operation = getattr(operations, f"create_global_circular_buffer_for_{name}")
        assert (type(operation), "__call__") in patches


def test_a_list_that_changes_afterwards_changes_no_recipe(ttnn, mesh, receivers, observed):
    buffer = ttnn.create_global_circular_buffer(mesh, receivers, 2048)
    receivers.clear()
    assert len(observed.creations.recipe(buffer)["sender_receiver_core_mapping"]) == 1
    observed.creations.recipe(buffer).clear()
    assert observed.creations.recipe(buffer)["size"] == 2048


def test_equal_recipes_have_one_number_and_others_another(ttnn, mesh, cores, observed):
    made = [
        *(ttnn.create_global_semaphore(mesh, cores, value) for value in (0, 0, 1)),
        *(ttnn.ShardTensorToMesh(mesh, dim) for dim in (1, 1, 2)),
        *(ttnn.ConcatMeshToTensor(mesh, dim) for dim in (1, 1, 2)),
        *(ttnn.ReplicateTensorToMesh(mesh) for _ in range(2)),
    ]
    numbers = [observed.creations.number(live) for live in made]
    assert None not in numbers
    groups = [[0, 1], [2], [3, 4], [5], [6, 7], [8], [9, 10]]
    assert [len({numbers[at] for at in group}) for group in groups] == [1] * len(groups)
    assert len(set(numbers)) == len(groups)


def test_handles_die_when_their_owner_lets_go(ttnn, mesh, cores, receivers, observed, tables):
    def allocated():
        view = ttnn.get_memory_view(mesh, ttnn.BufferType.L1)
        return view.total_bytes_allocated_per_bank

    gc.collect()  # what tests before this one have left must not go meanwhile
    before = allocated()
    made = [
        ttnn.create_global_semaphore(mesh, cores, 0),
        ttnn.create_global_circular_buffer(mesh, receivers, 2048),
        ttnn.create_mesh_mapper(mesh, mapper_config(ttnn)),
        ttnn.ConcatMeshToTensor(mesh, 0),
        ttnn.record_event(mesh, 0),
    ]
    values = [observed.describe(live, tables) for live in made]
    assert all(value.recipe for value in values)
    assert allocated() > before
    made.append(object())  # held by this list alone, as the others should be
    gc.collect()
    *counts, alone = [sys.getrefcount(live) for live in made]
    assert counts == [alone] * len(counts)
    del made
    assert allocated() == before


def test_recipes_hold_no_devices_tensors_or_handles(ttnn, mesh, cores, receivers, observed):
    kinds = (ttnn.MeshDevice, ttnn.Tensor, ttnn.CppTensorToMesh, ttnn.CppMeshToTensor)
    made = [make(ttnn, mesh) for make in (*MAPPERS.values(), *COMPOSERS.values())]
    made += [make(ttnn, mesh) for make in EVENTS.values()]
    made += [ttnn.create_global_semaphore(mesh, cores, 0)]
    reached, to_visit = set(), [observed.creations.recipe(live) for live in made]
    while to_visit:
        held = to_visit.pop()
        if id(held) not in reached and not isinstance(held, type):
            reached.add(id(held))
            assert not isinstance(held, kinds)
            to_visit += gc.get_referents(held)


def test_what_is_remembered_is_bounded(ttnn, mesh, cores, observed, monkeypatch):
    monkeypatch.setattr(creation, "LIMIT", 3)
    made = [ttnn.create_global_semaphore(mesh, cores, value) for value in range(8)]
    assert [observed.creations.recipe(live) is None for live in made] == [True] * 5 + [False] * 3
    numbers = [observed.creations.number(live) for live in made[5:]]
    assert len(set(numbers)) == 3


def test_threads_that_create_at_once_find_their_own_recipes(ttnn, mesh, observed):
    found = {}

    def create(dim):
        mappers = [ttnn.ShardTensorToMesh(mesh, dim) for _ in range(200)]
        found[dim] = {observed.creations.recipe(each)["placements"][0].dim for each in mappers}

    threads = [threading.Thread(target=create, args=(dim,)) for dim in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {dim: {dim} for dim in range(4)}


def test_every_name_of_a_function_is_watched_and_restored(ttnn):
    place = sys.modules[__name__]
    place.borrowed = ttnn.create_global_semaphore
    observed = ObservedCreations(ttnn)
    patches = list(observed.creations.patches())
    before = [getattr(owner, name) for owner, name, _ in patches]
    originals = {id(function) for function in before}
    names = {(owner.__name__, name) for owner, name, _ in patches}
    assert {
        ("ttnn", "open_device"),
        ("ttnn.device", "open_device"),
        ("ttnn._ttnn.device", "open_device"),
        ("ttnn._ttnn.multi_device", "open_mesh_device"),
        ("MeshDevice", "create_submesh"),
        (__name__, "borrowed"),
    } <= names
    with patched(observed):
        assert place.borrowed is ttnn.create_global_semaphore
        assert ttnn.open_device is ttnn.device.open_device is ttnn._ttnn.device.open_device
        left = [
            f"{module.__name__}.{name}"
            for module in list(sys.modules.values())
            if getattr(module, "__name__", "").startswith("ttnn")
            for name, member in list(vars(module).items())
            if id(member) in originals
        ]
        assert left == []
    after = [getattr(owner, name) for owner, name, _ in patches]
    assert all(one is other for one, other in zip(before, after, strict=True))
    del place.borrowed


def test_a_replacement_looks_like_the_function(ttnn, mesh):
    original = ttnn.create_global_semaphore
    with patched(ObservedCreations(ttnn)):
        replacement = ttnn.create_global_semaphore
        assert replacement is not original
        assert replacement.__name__ == original.__name__
        assert replacement.__doc__ == original.__doc__
        assert replacement.__nb_signature__[0][0] == original.__nb_signature__[0][0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ttnn, mesh, cores: ttnn.create_global_semaphore(mesh, cores),
        lambda ttnn, mesh, cores: ttnn.create_global_semaphore(mesh, cores, 0, nonsense=1),
        lambda ttnn, mesh, cores: ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig([])),
        lambda ttnn, mesh, cores: ttnn.open_device(0),
        lambda ttnn, mesh, cores: mesh.create_submesh(ttnn.MeshShape(64, 64)),
    ],
)
def test_the_exceptions_of_ttnn_are_its_own(ttnn, mesh, cores, wrong):
    def refusal():
        with pytest.raises((TypeError, RuntimeError)) as caught:
            wrong(ttnn, mesh, cores)
        # Below its first lines a fatal error of ttnn lists the addresses of the C++ stack.
        return type(caught.value), str(caught.value).partition("backtrace")[0][:120]

    unwatched = refusal()
    with patched(ObservedCreations(ttnn)) as observed:
        assert refusal() == unwatched
    assert observed.opened == observed.faults == []


def test_a_fault_of_the_watcher_is_reported_and_goes_no_further(ttnn, mesh, monkeypatch):
    faults = []

    def fail(parameters):
        raise LookupError("nobody is there")

    observed = ObservedCreations(ttnn)
    observed.creations = Creations(ttnn, fail, faults.append)
    monkeypatch.setattr(creation, "_PRINTED", creation.re.compile("something else"))
    with patched(observed):
        part = mesh.create_submesh(ttnn.MeshShape(1, 1))
        mapper = ttnn.create_mesh_mapper(mesh, mapper_config(ttnn))
        assert observed.creations.recipe(mapper) is None
    ttnn.close_mesh_device(part)
    assert "create_submesh" in faults[0]
    assert "nobody is there" in faults[0]
    assert "MeshMapperConfig(placements" in faults[1]
    assert len(faults) == 2


def test_parts_of_a_mesh_are_devices_of_their_own_shape(ttnn, mesh, observed):
    part = mesh.create_submesh(ttnn.MeshShape(2, 4))
    parts = mesh.create_submeshes(ttnn.MeshShape(4, 4))
    shapes = [parameters.mesh_shape for parameters in observed.opened]
    assert shapes == [(2, 4), (4, 4), (4, 4)]
    assert {parameters.fabric_config for parameters in observed.opened} == {"FABRIC_1D"}
    assert observed.creations.device_parameters(part) == observed.opened[0]
    for each in (part, *parts):
        ttnn.close_mesh_device(each)
    # The mesh itself is still open, although its opening was not seen.
    assert None not in observed.opened
    assert observed.creations.device_parameters(part) is None
    assert observed.creations.device_parameters(mesh).mesh_shape == (4, 8)


def test_a_trace_capture_is_known_while_it_lasts(ttnn, mesh, observed):
    assert not observed.creations.trace_capture_active
    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    assert observed.creations.trace_capture_active
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    assert not observed.creations.trace_capture_active
    ttnn.release_trace(mesh, trace)


OPENINGS = """
from dataclasses import replace
from math import prod

import optrove
from optrove.frameworks.ttnn.probe.creation import Creations
from optrove.model.records import DeviceParameters

with optrove.mock_board("t3k"):
    import ttnn

    seen, faults = [], []
    creations = Creations(ttnn, seen.append, faults.append)
    undo = []
    for owner, name, replacement in creations.patches():
        undo.append((owner, name, getattr(owner, name)))
        setattr(owner, name, replacement)

    def expect(*parameters):
        # Chips have the numbers of the machine.
        assert all(len(each.device_ids) == prod(each.mesh_shape) for each in seen if each), seen
        found = [each and replace(each, device_ids=None) for each in seen]
        assert found == list(parameters), seen
        seen.clear()

    def parameters(*shape, fabric="DISABLED", axis="ROW", small=0, trace=0, worker=0, queues=1):
        return DeviceParameters(shape, fabric, axis, small, trace, worker, queues)

    device = ttnn.open_device(device_id=0)
    expect(parameters(1, 1))
    ttnn.close_device(device)
    expect(None)

    device = ttnn.open_device(
        device_id=0, l1_small_size=24576, trace_region_size=65536, num_command_queues=2
    )
    expect(parameters(1, 1, small=24576, trace=65536, queues=2))
    assert creations.device_parameters(device).command_queues == 2
    ttnn.close_device(device=device)
    expect(None)

    with ttnn.manage_device(device_id=1):
        expect(parameters(1, 1))
    expect(None)

    device = ttnn.CreateDevice(0, 1, 8192, dispatch_core_config=ttnn.DispatchCoreConfig())
    expect(parameters(1, 1, small=8192))
    ttnn.CloseDevice(device)
    expect(None)

    devices = ttnn.CreateDevices([0, 1], worker_l1_size=1000000)
    expect(parameters(1, 1, worker=1000000), parameters(1, 1, worker=1000000))
    ttnn.CloseDevices(devices)
    expect(None)

    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4), trace_region_size=4096)
    expect(parameters(2, 4, fabric="FABRIC_1D", trace=4096))
    part = mesh.create_submesh(submesh_shape=ttnn.MeshShape(1, 4))
    expect(parameters(1, 4, fabric="FABRIC_1D", trace=4096))
    ttnn.close_mesh_device(mesh_device=mesh)
    expect(None)
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    with ttnn.create_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        expect(parameters(2, 4))
        mesh.reshape(ttnn.MeshShape(1, 8))
        expect(parameters(1, 8))
    expect(None)

    first = ttnn.open_device(device_id=0)
    second = ttnn.open_device(device_id=1)
    expect(parameters(1, 1), parameters(1, 1))
    ttnn.close_device(first)
    expect()
    ttnn.close_device(second)
    expect(None)

    for owner, name, original in undo:
        setattr(owner, name, original)
    device = ttnn.open_device(device_id=0)
    ttnn.close_device(device)
    expect()
    assert faults == [], faults
"""


def test_devices_are_seen_opening_and_closing_in_every_way(run_python):
    run_python(OPENINGS)

"""Whole programs with the shadow have the numbers that hardware would have.

Each program runs twice: by ttnn on a mock board, and by torch as a simulation of what hardware
does, which knows memory and time: capturing a metal trace computes nothing, and executing it reads
and writes the memory that its tensors had.
"""

import pytest
import torch

from optrove.errors import NoNumbers

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

TILES = (64, 64)


@pytest.fixture
def full(put):
    """Put one number in all places of a tensor in tiles."""
    return lambda value, **keywords: put(torch.full(TILES, float(value)), **keywords)


@pytest.fixture
def capture(ttnn, device):
    """Capture the calls of a function as a metal trace; give its id and the function's result."""
    traces = []

    def capture(function, **queue):
        trace = ttnn.begin_trace_capture(device, **({"cq_id": 0} | queue))
        try:
            result = function()
        finally:
            ttnn.end_trace_capture(device, trace, cq_id=0)
        traces.append(trace)
        return trace, result

    yield capture
    for trace in traces:
        ttnn.release_trace(device, trace)


@pytest.fixture
def number(ttnn):
    """Read the one number that is in all places of a tensor."""

    def number(tensor):
        values = ttnn.to_torch(tensor).float().unique()
        assert len(values) == 1
        return values.item()

    return number


@pytest.fixture
def execute(ttnn, device):
    def execute(trace, **keywords):
        ttnn.execute_trace(device, trace, **({"cq_id": 0, "blocking": False} | keywords))

    return execute


def test_capturing_leaves_all_numbers_as_they_were(ttnn, report, full, capture, number):
    state, given, target = full(1), full(5), full(7)

    def step():
        ttnn.add_(state, given)
        ttnn.multiply(state, 2.0, output_tensor=target)
        ttnn.copy(target, given)
        return ttnn.add(target, 1.0)

    _, output = capture(step)
    assert [number(each) for each in (state, given, target)] == [1, 5, 7]
    with pytest.raises(NoNumbers, match="captured and not executed since"):
        ttnn.to_torch(output)
    with pytest.raises(NoNumbers, match="captured and not executed since"):
        ttnn.to_torch(ttnn.add(output, 1.0))


def test_a_decode_loop_counts_as_on_hardware(ttnn, report, device, capture, execute):
    """A position that the trace itself advances, and a cache that it writes at this position."""
    position = ttnn.from_torch(torch.zeros(1, dtype=torch.int32), dtype=ttnn.int32, device=device)
    cache = ttnn.from_torch(
        torch.zeros(1, 1, 64, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
    )
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(0, 0))})
    shards = ttnn.create_sharded_memory_config(
        (32, 32), cores, ttnn.ShardStrategy.HEIGHT, use_height_and_width_as_shard_shape=True
    )
    host = torch.arange(1, 33).reshape(1, 1, 1, 32).float()
    token = ttnn.from_torch(host, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)

    def decode():
        row = ttnn.to_memory_config(token, shards)
        ttnn.experimental.paged_update_cache(cache, row, update_idxs_tensor=position)
        ttnn.plus_one(position)
        return ttnn.sum(cache, dim=2)

    simulated, at = torch.zeros(64, 32), 0

    def simulate(row):
        nonlocal at
        simulated[at], at = row, at + 1
        return simulated.sum(0)

    decode()  # as models do, so that programs are compiled
    simulate(host.flatten())
    trace, output = capture(decode)
    assert ttnn.to_torch(position).tolist() == [at] == [1]
    for factor in (2.0, 3.0, 4.0):
        new = ttnn.from_torch(host * factor, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
        ttnn.copy_host_to_device_tensor(new, token)
        execute(trace)
        expected = simulate(host.flatten() * factor)
        assert torch.equal(ttnn.to_torch(output).flatten(), expected.bfloat16())
        assert ttnn.to_torch(position).tolist() == [at]
    assert torch.equal(ttnn.to_torch(cache)[0, 0], simulated.bfloat16())
    assert not report.missing


def test_traces_are_executed_in_any_order(ttnn, report, full, capture, execute, number):
    state = full(1)
    double, _ = capture(lambda: ttnn.multiply(state, 2.0, output_tensor=state))
    advance, seen = capture(lambda: [ttnn.add_(state, 1.0), ttnn.add(state, 0.0)][1])
    assert number(state) == 1
    value = 1
    for trace in (advance, double, double, advance, double):
        execute(trace, blocking=trace is double)
        value = value * 2 if trace is double else value + 1
        assert number(state) == value
    assert number(seen) == 9


def test_an_input_that_the_trace_frees_is_read_from_its_address(
    ttnn, report, full, capture, execute, number
):
    """As traced executors do: free the input in the trace, and allocate it again at its address."""
    device = full(0).device()
    memory = {"memory_config": ttnn.L1_MEMORY_CONFIG}
    source, box = full(3), [full(2, **memory)]
    address, spec = box[0].buffer_address(), box[0].spec

    def model():
        given = box.pop()
        middle = ttnn.add(given, 1.0, **memory)
        ttnn.deallocate(given)
        output = ttnn.multiply(middle, 10.0, memory_config=ttnn.DRAM_MEMORY_CONFIG)
        ttnn.deallocate(middle)
        again = ttnn.allocate_tensor_on_device(spec, device)
        assert again.buffer_address() == address
        return output, again

    trace, (output, again) = capture(model)
    with pytest.raises(NoNumbers, match="it allocates memory and nothing has written"):
        ttnn.to_torch(again)
    execute(trace)
    assert number(output) == 30  # what is at the address is still there
    for value in (4.0, 5.0):
        ttnn.multiply(source, value, output_tensor=again)
        execute(trace)
        assert number(output) == (3 * value + 1) * 10


def test_dropped_tensors_are_freed_before_the_next_call(ttnn, report, device, full, capture):
    given = full(2, memory_config=ttnn.L1_MEMORY_CONFIG)
    spec, address = given.spec, given.buffer_address()
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    output = ttnn.to_memory_config(ttnn.relu(given), ttnn.DRAM_MEMORY_CONFIG)
    del given
    again = ttnn.allocate_tensor_on_device(spec, device)
    assert again.buffer_address() == address
    ttnn.end_trace_capture(device, trace, cq_id=0)
    ttnn.execute_trace(device, trace, cq_id=0)
    assert (ttnn.to_torch(output) == 2).all()
    ttnn.release_trace(device, trace)


def test_a_trace_writes_over_what_was_allocated_after_its_capture(
    ttnn, report, full, capture, execute, number
):
    memory = {"memory_config": ttnn.L1_MEMORY_CONFIG}
    given = full(2, **memory)

    def model():
        middle = ttnn.add(given, 1.0, **memory)
        address = middle.buffer_address()
        output = ttnn.multiply(middle, 10.0, memory_config=ttnn.DRAM_MEMORY_CONFIG)
        ttnn.deallocate(middle)
        return output, address

    trace, (output, address) = capture(model)
    later = full(7, **memory)
    assert later.buffer_address() == address
    assert number(later) == 7
    execute(trace)
    assert number(output) == 30
    assert number(later) == 3  # the trace's own memory
    ttnn.deallocate(later)
    rows = ttnn.to_layout(full(8), ttnn.ROW_MAJOR_LAYOUT)
    wide = ttnn.reshape(rows, (32, 128), **memory)
    if wide.buffer_address() == address:  # in another form, whose numbers are anything
        execute(trace)
        with pytest.raises(NoNumbers, match="a metal trace wrote over it"):
            ttnn.to_torch(wide)


def test_memory_is_free_once_nothing_but_a_trace_knows_it(ttnn, report, device, full, capture):
    given = full(2, memory_config=ttnn.L1_MEMORY_CONFIG)
    _, output = capture(lambda: ttnn.relu(given))
    address = output.buffer_address()
    del output
    assert ttnn.relu(given).buffer_address() == address


def test_only_calls_in_the_captured_queue_and_device_are_captured(
    ttnn, report, mesh, device, full, number
):
    other = mesh.create_submesh(ttnn.MeshShape(1, 1), ttnn.MeshCoordinate(3, 7))
    there = full(1, device=other)
    here = full(1)
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    ttnn.add_(here, 1.0)
    ttnn.add_(there, 1.0)
    elsewhere = ttnn.begin_trace_capture(other, cq_id=0)
    ttnn.add_(there, 5.0)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    ttnn.end_trace_capture(other, elsewhere, cq_id=0)
    assert (number(here), number(there)) == (1, 2)
    ttnn.execute_trace(other, elsewhere, cq_id=0)
    assert (number(here), number(there)) == (1, 7)
    ttnn.execute_trace(device, trace, cq_id=0)
    assert (number(here), number(there)) == (2, 7)
    with pytest.raises(RuntimeError, match="no captured trace"):
        ttnn.execute_trace(device, elsewhere, cq_id=0)
    ttnn.release_trace(device, trace)
    ttnn.release_trace(other, elsewhere)
    ttnn.close_mesh_device(other)


def test_views_of_a_state_follow_executions(ttnn, report, full, capture, execute, number):
    state = full(1)

    def step():
        ttnn.add_(state, 1.0)
        return ttnn.reshape(state, (1, 1, *TILES)).reshape(TILES)

    trace, view = capture(step)
    for value in (2, 3):
        execute(trace)
        assert (number(state), number(view)) == (value, value)


def test_a_trace_of_all_chips_frees_and_gathers(ttnn, report, mesh, row):
    split = ttnn.ShardTensorToMesh(row, dim=3)
    whole = torch.arange(8.0 * 32 * 32).reshape(1, 1, 32, 8 * 32)
    tiles = {"dtype": ttnn.float32, "layout": ttnn.TILE_LAYOUT}
    given = ttnn.from_torch(whole, device=row, mesh_mapper=split, **tiles)
    trace = ttnn.begin_trace_capture(row, cq_id=0)
    part = ttnn.add(given, 1.0)
    ttnn.deallocate(given)
    output = ttnn.all_gather(part, dim=3)
    ttnn.deallocate(part)
    parts = ttnn.get_device_tensors(output)
    ttnn.end_trace_capture(row, trace, cq_id=0)
    ttnn.execute_trace(row, trace, cq_id=0)
    assert all(torch.equal(ttnn.to_torch(each), whole + 1) for each in parts)
    ttnn.release_trace(row, trace)


def test_closing_a_device_forgets_its_traces(ttnn, report, mesh, full):
    other = mesh.create_submesh(ttnn.MeshShape(1, 1), ttnn.MeshCoordinate(3, 6))
    state = full(1, device=other)
    trace = ttnn.begin_trace_capture(other, cq_id=0)
    ttnn.add_(state, 1.0)
    ttnn.close_mesh_device(other)
    with pytest.raises(RuntimeError, match="no captured trace"):
        ttnn.execute_trace(other, trace, cq_id=0)


FORMS = [
    ("bfloat16", "TILE_LAYOUT"),
    ("bfloat8_b", "TILE_LAYOUT"),
    ("bfloat4_b", "TILE_LAYOUT"),
    ("float32", "ROW_MAJOR_LAYOUT"),
]


@pytest.mark.parametrize("form", FORMS)
def test_cached_weights_are_those_of_the_file(ttnn, report, device, tmp_path, form):
    dtype, layout = (getattr(ttnn, name) for name in form)
    first, second = torch.randn(2, 1, 1, 64, 64)

    def load(numbers, **keywords):
        options = {"device": device, "memory_config": ttnn.DRAM_MEMORY_CONFIG} | keywords
        return ttnn.as_tensor(
            numbers, dtype, layout=layout, cache_file_name=tmp_path / "weights", **options
        )

    expected = ttnn.to_torch(ttnn.from_torch(first, dtype, layout=layout))
    made = load(first)
    (path,) = tmp_path.iterdir()
    assert path.name == f"weights_dtype_{dtype.name}_layout_{layout.name}.tensorbin"
    loaded = [
        made,
        load(second),
        load(None),
        load(second, preprocess=lambda numbers: numbers * 2),
        load(second, mesh_mapper=ttnn.ReplicateTensorToMesh(device)),
        ttnn.load_tensor(path, device=device),
        ttnn.load_tensor(path).to(device),
        ttnn.to_device(load(second, device=None, memory_config=None), device),
        ttnn._ttnn.tensor.load_tensor_flatbuffer(str(path), device=device),
    ]
    assert load(second, device=None, memory_config=None).to_torch().equal(expected)
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))  # what is on the device stays
    for tensor in loaded:
        assert torch.equal(ttnn.to_torch(tensor), expected)


def test_cached_weights_of_a_mesh_are_those_of_the_file(ttnn, report, row, tmp_path):
    first, second = torch.randn(2, 1, 1, 32, 8 * 32).bfloat16()
    for numbers in (first, second, None):
        weights = ttnn.as_tensor(
            numbers,
            ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=row,
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            mesh_mapper=ttnn.ShardTensorToMesh(row, dim=3),
            cache_file_name=tmp_path / "weights",
        )
        joined = ttnn.ConcatMeshToTensor(row, dim=3)
        assert torch.equal(ttnn.to_torch(weights, mesh_composer=joined), first)


def test_a_damaged_cache_is_made_anew_from_the_argument(ttnn, report, device, tmp_path):
    path = tmp_path / "weights_dtype_BFLOAT16_layout_TILE.tensorbin"
    path.write_bytes(b"no tensor" * 100)
    numbers = torch.randn(32, 32).bfloat16()
    options = {"layout": ttnn.TILE_LAYOUT, "memory_config": ttnn.DRAM_MEMORY_CONFIG}
    for given in (numbers, None):
        weights = ttnn.as_tensor(
            given, ttnn.bfloat16, device=device, cache_file_name=tmp_path / "weights", **options
        )
        assert torch.equal(ttnn.to_torch(weights), numbers)


def test_an_output_that_is_passed_by_place_is_not_read(ttnn, report, device, full, number):
    cores = ttnn.CoreGrid(y=1, x=2)
    wide, narrow = (
        ttnn.create_sharded_memory_config((64, 64), cores, strategy)
        for strategy in (ttnn.ShardStrategy.HEIGHT, ttnn.ShardStrategy.WIDTH)
    )
    source = ttnn.to_memory_config(full(3), wide)
    target = ttnn.to_memory_config(full(0), narrow)
    empty = ttnn.allocate_tensor_on_device(target.spec, device)
    for output in (target, empty):
        ttnn.reshard(source, narrow, output)
        assert number(output) == 3

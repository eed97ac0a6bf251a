"""Which output of ttnn became which input, and when tensors were freed."""

import pytest

import optrove
from optrove.frameworks.ttnn.probe import fast_path
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader

pytestmark = pytest.mark.ttnn


def recorded(path):
    """Return the ops and tensors of the outermost calls of the only run, and its whole flow."""
    with open_reader(place_of(str(path))) as reader:
        (row,) = reader.runs()
        calls = [call for call in reader.calls(row.run.id) if call.depth == 0]
        ops = reader.ops_of({call.case_id for call in calls})
        (flow,) = reader.flows(row.run.id).values()
    return [(ops[call.case_id], flow.call(call.op_index)) for call in calls], flow


def model(ttnn, device):
    """Call ops that return new tensors, views, several tensors, and their own argument."""
    x = ttnn.allocate_tensor_on_device(
        ttnn.Shape([1, 1, 32, 64]),
        ttnn.bfloat16,
        ttnn.TILE_LAYOUT,
        device,
        ttnn.DRAM_MEMORY_CONFIG,
    )
    for _ in range(3):
        y = ttnn.relu(x)
        y = ttnn.add(x, y)
        view = ttnn.experimental.view(y, [1, 32, 64])
        ttnn.multiply(view, view, output_tensor=view)
        parts = ttnn.split(y, 32, dim=-1)
        ttnn.concat(parts, dim=-1)
        ttnn.deallocate(parts[0])
        del view, parts


@pytest.mark.parametrize("way", ["in C", "in Python"])
def test_outputs_become_inputs(ttnn, device, tmp_path, monkeypatch, way):
    if way == "in Python":
        monkeypatch.setattr(fast_path, "_extension", None)
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="ttnn", flow=True):
        model(ttnn, device)
    calls, flow = recorded(path)
    ops = [op.removeprefix("ttnn.") for op, _ in calls]
    one = ["relu", "add", "experimental.view", "multiply", "split", "concat", "deallocate"]
    assert ops == ["allocate_tensor_on_device", *one * 3]
    (x,) = calls[0][1].outputs.values()
    for start in range(1, len(calls), len(one)):
        relu, add, view, multiply, split, concat, deallocate = [
            call for _, call in calls[start : start + len(one)]
        ]
        assert list(relu.inputs.values()) == [x]
        assert add.inputs == {0: x, 1: relu.outputs[0]}
        assert flow.buffers[view.outputs[0]] == flow.buffers[add.outputs[0]]
        assert set(multiply.inputs.values()) == {view.outputs[0]}
        assert multiply.outputs == {0: view.outputs[0]}
        assert split.inputs == {0: add.outputs[0]}
        assert len(split.outputs) == 2
        assert concat.inputs == split.outputs
        assert list(deallocate.inputs.values()) == [split.outputs[0]]
        freed = {number for numbers in flow.freed.values() for number in numbers}
        if way == "in C":
            assert {relu.outputs[0], view.outputs[0], *split.outputs.values()} <= freed


def test_tensors_are_plain_again_after_a_trace(ttnn, device, tmp_path):
    for number in range(2):
        with optrove.trace(tmp_path / f"{number}.db", backend="ttnn", flow=True):
            model(ttnn, device)
    model(ttnn, device)

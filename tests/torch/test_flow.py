"""Which output of torch became which input, and when tensors were freed."""

import signal
import subprocess
import sys

import pytest
import torch

import optrove
from commands import ask
from optrove.frameworks.torch import fast_path
from optrove.model.flow import FlowCall
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader

pytestmark = pytest.mark.torch


def recorded(path):
    """Return the ops and tensors of the calls of the only run, and its whole flow."""
    with open_reader(place_of(str(path))) as reader:
        (row,) = reader.runs()
        calls = list(reader.calls(row.run.id))
        ops = reader.ops_of({call.case_id for call in calls})
        (flow,) = reader.flows(row.run.id).values()
    return [(ops[call.case_id].split(".")[-2], flow.call(call.op_index)) for call in calls], flow


@pytest.fixture(params=["in C", "in Python"])
def either_way(request, monkeypatch):
    if request.param == "in Python":
        monkeypatch.setattr(fast_path, "_extension", None)


@pytest.mark.usefixtures("either_way")
def test_outputs_become_inputs_views_share_memory_and_writes_are_in_place(tmp_path):
    path = tmp_path / "trove.db"
    weight = torch.ones(4, 4)
    with optrove.trace(path, backend="torch", flow=True):
        for _ in range(3):
            x = torch.mm(weight, weight)
            view = x[1:]
            view.add_(1)
            y = torch.cat([view, x])
            del view
    calls, flow = recorded(path)
    assert [op for op, _ in calls] == ["mm", "slice", "add_", "cat"] * 3
    for round_ in (calls[:4], calls[4:8], calls[8:]):
        mm, cut, add, cat = [call for _, call in round_]
        (result,) = mm.outputs.values()
        assert set(mm.inputs.values()) == set(calls[0][1].inputs.values())
        (part,) = cut.outputs.values()
        assert cut.inputs[0] == result
        assert flow.buffers[part] == flow.buffers[result]
        assert part in add.inputs.values()
        assert list(add.outputs.values()) == [part]
        assert cat.inputs == {0: part, 1: result}
        assert part in [each for freed in flow.freed.values() for each in freed]
    assert y.shape == (7, 4)


@pytest.mark.usefixtures("either_way")
def test_arguments_by_name_have_the_identities_of_their_case(tmp_path):
    path = tmp_path / "trove.db"
    one, two = torch.ones(2, 2), torch.zeros(2, 2)
    with optrove.trace(path, backend="torch", flow=True):
        for _ in range(2):
            torch.mm(one, mat2=two)
            torch.sub(two, one)
    (first, second, *again), _ = recorded(path)
    assert first[1].inputs.keys() == second[1].inputs.keys() == {0, 1}
    assert [call.inputs for _, call in again] == [first[1].inputs, second[1].inputs]


def test_a_trace_without_flow_has_none_and_the_same_journal(tmp_path):
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="torch") as trace:
        torch.ones(2) + 1
        names = {each.suffix for each in trace.directory.iterdir()}
    assert ".flow" not in names
    with open_reader(place_of(str(path))) as reader:
        (row,) = reader.runs()
        assert reader.flows(row.run.id) == {}


def test_the_inputs_of_the_call_in_flight_survive_a_kill(tmp_path):
    path = tmp_path / "trove.db"
    program = f"""
import os, signal, torch, optrove

x = torch.ones(3)
with optrove.trace({str(path)!r}, backend="torch", flow=True):
    y = torch.relu(x)
    y = torch.relu(y)

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    torch.library.define("deadly::op", "(Tensor x) -> Tensor")
    torch.library.impl("deadly::op", "default", die)
    torch.ops.deadly.op(y)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -signal.SIGKILL
    ask("runs", "--store", path)
    calls, _ = recorded(path)
    assert [op for op, _ in calls] == ["relu", "relu", "op"]
    assert list(calls[2][1].inputs.values()) == list(calls[1][1].outputs.values())
    assert calls[2][1].outputs == {}


def test_flow_travels_when_troves_are_merged_and_goes_with_its_run(tmp_path):
    one, two, both = tmp_path / "one.db", tmp_path / "two.db", tmp_path / "both.db"
    for path in (one, two):
        with optrove.trace(path, backend="torch", flow=True):
            torch.relu(torch.ones(2))
    ask("merge", one, two, "-o", both)
    with open_reader(place_of(str(both))) as reader:
        ids = [row.run.id for row in reader.runs()]
        flows = [reader.flows(run_id) for run_id in ids]
    assert [flow[0].calls for flow in flows] == [
        {0: FlowCall({}, {0: (1 << 48) + 1}), 1: FlowCall({0: (1 << 48) + 1}, {0: (1 << 48) + 2})}
    ] * 2
    ask("rm", ids[0], "--store", both)
    with open_reader(place_of(str(both))) as reader:
        assert reader.flows(ids[0]) == {}
        assert reader.flows(ids[1])


def test_the_command_and_the_plugin_record_the_flow(tmp_path):
    program = tmp_path / "test_program.py"
    program.write_text("import torch\ndef test_it():\n    torch.relu(torch.ones(2))\n")
    for number, target in enumerate((f"{program}::test_it", program)):
        path = tmp_path / f"trove{number}.db"
        ask("trace", target, "--backend", "torch", "--flow", "--store", path)
        calls, _ = recorded(path)
        assert calls[-1][1].inputs.keys() == {0}

"""Which output of torch became which input, and when tensors were freed."""

import os
import signal
import subprocess
import sys
from zipfile import ZipFile

import pytest
import torch

import optrove
from commands import ask
from forked_python import python
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


def run_of(path):
    return ask("runs", "--store", path, "--json")[0]["run_id"]


MODEL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
x = torch.randn(2, 8)
for _ in range(2):
    model(x).sum().backward()
with torch.no_grad():
    view = x[1:].t()
    view.add_(1)
    torch.cat([view, view * 2]).softmax(0)
with torch.inference_mode():
    model(x).reshape(4, 4).mul_(2)
"""


@pytest.fixture(scope="module")
def model_trove(tmp_path_factory):
    """A trove with a run of a model: training, views, writes in place, inference mode."""
    directory = tmp_path_factory.mktemp("model")
    (directory / "model.py").write_text(MODEL)
    path = directory / "trove.db"
    words = ("--backend", "torch", "--flow", "--capsule", "all", "--store", path)
    ask("trace", directory / "model.py", *words)
    return path


def test_a_whole_run_is_executed_as_one_program_with_the_same_cases(model_trove):
    words = ("replay", run_of(model_trove), "--calls", ":", "--store", model_trove, "--json")
    answer = ask(*words)
    assert answer["counts"] == {"passed": len(answer["calls"])}
    assert answer["same_cases"] is answer["passed"] is True
    assert answer["first_failure"] is None
    assert all(call["case_id"] == call["replayed_case_id"] for call in answer["calls"])
    assert {call["values"] for call in answer["calls"]} == {"capsule", "seed"}


SENSITIVE = """
import torch
torch.manual_seed(0)
conv, norm = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
images = torch.randn(6, 3, 16, 16)
norm(conv(images)).square().mean().backward()
rnn = torch.nn.LSTM(4, 4)
with torch.no_grad():
    rnn(torch.randn(3, 2, 4))
torch.tensor([1.0, float("nan"), float("inf")]).nan_to_num()
tiny = torch.full((4, 4), 1e-23)
tiny @ tiny
half = torch.full((8,), 3e-4).half()
half * half
total = torch.full((3,), 2.0, dtype=torch.float64)
total.mul_(2)
"""


def test_rounding_is_no_failure_where_numbers_cancel_out_or_are_tiny(tmp_path):
    (tmp_path / "model.py").write_text(SENSITIVE)
    path = tmp_path / "trove.db"
    words = ("--backend", "torch", "--flow", "--capsule", "all", "--store", path)
    ask("trace", tmp_path / "model.py", *words)
    answer = ask("replay", run_of(path), "--calls", ":", "--store", path, "--json")
    assert answer["counts"] == {"passed": len(answer["calls"])}
    assert answer["passed"] is True


APPROXIMATION = """
import torch
library = torch.library.Library("aten", "IMPL")

def gelu(x, approximate="none"):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))

library.impl("gelu", gelu, "CPU")
"""


def test_an_imported_kernel_that_is_wrong_in_every_dtype_is_found_in_a_sequence(
    tmp_path, monkeypatch
):
    (tmp_path / "my_gelu.py").write_text(APPROXIMATION)
    (tmp_path / "model.py").write_text(
        "import torch\nx = torch.linspace(-3, 3, 64).reshape(8, 8)\n"
        "y = torch.nn.functional.gelu(x.mm(x) / 8)\ny.add_(1).tanh()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = tmp_path / "trove.db"
    words = ("--backend", "torch", "--flow", "--capsule", "all", "--store", path)
    ask("trace", tmp_path / "model.py", *words)
    common = ("replay", run_of(path), "--calls", ":", "--import", "my_gelu")
    answer = ask(*common, "--store", path, "--json", exit_code=1)
    failed = [call["op"] for call in answer["calls"] if call["outcome"] != "passed"]
    assert failed == ["torch.ops.aten.gelu.default"]


@pytest.mark.parametrize("words", [("--calls", "20:30"), ("--last", "10"), ("--calls", "70:")])
def test_a_stretch_gets_its_inputs_from_outside(model_trove, words):
    run = run_of(model_trove)
    for values in ("capsule", "seed"):
        answer = ask(*("replay", run, *words, "--values", values, "--store", model_trove, "--json"))
        assert answer["passed"] is True
        assert len(answer["calls"]) <= 10


def test_the_calls_of_a_test_are_executed(tmp_path):
    program = tmp_path / "test_program.py"
    program.write_text(
        "import torch\n"
        "def test_one():\n    torch.relu(torch.ones(2))\n"
        "def test_two():\n    torch.exp(torch.ones(2))\n"
    )
    path = tmp_path / "trove.db"
    ask("trace", program, "--backend", "torch", "--flow", "--store", path)
    with open_reader(place_of(str(path))) as reader:
        (row,) = reader.runs()
        tests = {call.test_id for call in reader.calls(row.run.id)}
    second = next(each for each in tests if each.endswith("test_two"))
    answer = ask("replay", run_of(path), "--test", second, "--store", path, "--json")
    assert [call["op"] for call in answer["calls"]] == [
        "torch.ops.aten.ones.default",
        "torch.ops.aten.exp.default",
    ]
    assert {call["test"] for call in answer["calls"]} == {second}
    words = ("replay", run_of(path), "--test", "no", "--store", path)
    assert "test_two" in ask(*words, exit_code=2)


@pytest.fixture
def raising_trove(tmp_path):
    """A trove with a run whose second call raised an error."""
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="torch", flow=True):
        x = torch.ones(2, 3)
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        torch.relu(x)
    return path


def test_a_call_that_raises_as_it_did_is_no_failure(raising_trove):
    path = raising_trove
    answer = ask("replay", run_of(path), "--calls", ":", "--store", path, "--json")
    assert [call["outcome"] for call in answer["calls"]] == ["passed", "raised", "passed"]
    assert answer["passed"] is True


def test_a_program_expects_the_errors_of_the_recording(tmp_path, raising_trove):
    path = raising_trove
    program = tmp_path / "program.py"
    ask("testgen", "--sequence", run_of(path), "-o", program, "--store", path)
    assert "1 passed" in run_alone(tmp_path, *PYTEST, "program.py").stdout
    text = program.read_text()
    assert "with raises(RuntimeError):\n        torch.ops.aten.mm.default(" in text
    program.write_text(text.replace("size=[2, 3]", "size=[3, 3]"))
    assert "when it was recorded, it raised" in run_alone(tmp_path, *PYTEST, "program.py").stdout


def test_a_call_that_python_cannot_write_is_left_out_unless_it_changes_its_inputs(tmp_path):
    path, program = tmp_path / "trove.db", tmp_path / "program.py"
    with optrove.trace(path, backend="torch", flow=True):
        generator = torch.Generator()
        drawn = torch.rand(2, 3, generator=generator)
        total = drawn.exp().sum()
        drawn.normal_(generator=generator)
        drawn.add(total)
    words = ("testgen", "--sequence", run_of(path), "-o", program, "--store", path)
    assert "choose calls without it" in ask(*words, exit_code=2)
    answer = ask(*words, "--calls", ":3", "--json")
    assert answer["calls"] == 2
    (left_out,) = answer["left_out"]
    assert "a torch.Generator is made by the program" in left_out
    assert "Left out: call 0 of torch.ops.aten.rand.generator" in program.read_text()
    assert run_alone(tmp_path, "program.py").returncode == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--calls", "5"), "write A:B"),
        (("--calls", "7:7"), "has no call"),
        (("--calls", "1:2", "--last", "3"), "give one of"),
        (("--calls", "1:2", "--all"), "leave out"),
        (("--calls", "900:"), "its calls are 0 to"),
    ],
)
def test_bad_choices_are_refused(model_trove, words, problem):
    refused = ask("replay", run_of(model_trove), *words, "--store", model_trove, exit_code=2)
    assert problem in refused


def test_a_run_without_flow_says_how_to_record_it(tmp_path):
    path = tmp_path / "trove.db"
    with optrove.trace(path, backend="torch"):
        torch.ones(2)
    refused = ask("replay", run_of(path), "--last", "3", "--store", path, exit_code=2)
    assert "trace it again with --flow" in refused


def test_the_summary_of_a_killed_program_has_the_command_that_replays_its_last_calls(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        """
import os, signal, torch

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

torch.library.define("deadly::op", "(Tensor x) -> Tensor")
torch.library.impl("deadly::op", "default", die)
torch.ops.deadly.op(torch.relu(torch.ones(2)))
"""
    )
    path = tmp_path / "trove.db"
    words = ("trace", script, "--backend", "torch", "--store", path)
    answer = ask(*words, "--flow", "--json", exit_code=128 + signal.SIGKILL)
    command = answer["replay"].split()
    assert command[:2] == ["optrove", "replay"]
    assert command[3:5] == ["--last", "20"]
    replayed = ask(*command[1:], "--json", exit_code=1)
    assert [call["op"] for call in replayed["calls"]][-2:] == [
        "torch.ops.aten.relu.default",
        "torch.ops.deadly.op.default",
    ]
    assert ask(*words, "--json", exit_code=128 + signal.SIGKILL)["replay"] is None


def run_alone(directory, *words):
    """Run Python without optrove and safetensors in another directory."""
    (directory / "conftest.py").write_text(BARE)
    return python(*words, cwd=directory)


BARE = """
import sys
hidden = ("optrove", "safetensors")
for name in (*hidden, *(name for name in sys.modules if name.partition(".")[0] in hidden)):
    sys.modules[name] = None
"""
PYTEST = ("-m", "pytest", "-q", "-p", "no:optrove", "-p", "no:cacheprovider")


def test_the_program_of_a_run_runs_with_torch_alone_and_prints_no_none(model_trove, tmp_path):
    program = tmp_path / "program.py"
    ask("testgen", "--sequence", run_of(model_trove), "-o", program, "--store", model_trove)
    assert (tmp_path / "program.safetensors").exists()
    done = run_alone(tmp_path, "program.py")
    assert done.returncode == 0, done.stderr
    assert "None" not in done.stdout
    assert "1 passed" in run_alone(tmp_path, *PYTEST, "program.py").stdout


CHAIN = """
import torch
torch.manual_seed(0)
x = torch.randn(4, 8)
for _ in range(3):
    x = torch.tanh(torch.mm(x, x.T)).mm(x)
    x = torch.relu(x * 300)
"""
WRONG = """
import torch
library = torch.library.Library("aten", "IMPL")

def relu(x):
    right = x.dtype is torch.float64 or x.abs().max() < 900
    return torch.clamp_min(x, 0) if right else x.clone()

library.impl("relu", relu, "CPU")
"""


def test_the_reproducer_of_calls_checks_their_numbers(tmp_path, monkeypatch):
    (tmp_path / "wrong_kernel.py").write_text(WRONG)
    (tmp_path / "chain.py").write_text(CHAIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path = tmp_path / "trove.db"
    words = ("--backend", "torch", "--flow", "--capsule", "all", "--store", path)
    ask("trace", tmp_path / "chain.py", *words)
    made = tmp_path / "chain.zip"
    common = ("shrink", run_of(path), "--calls", ":", "--import", "wrong_kernel")
    answer = ask(*common, "--store", path, "-o", made, "--json")
    assert answer["outcome"] == "numerics"
    assert [call["op"] for call in answer["calls"]] == ["torch.ops.aten.relu.default"]
    there = tmp_path / "there"
    with ZipFile(made) as archive:
        archive.extractall(there)
    done = run_alone(there, *PYTEST, "chain.py")
    assert "1 failed" in done.stdout
    assert "aten.relu.default: output 0" in done.stdout
    assert "elements wrong" in done.stdout
    (tmp_path / "wrong_kernel.py").write_text("")
    assert "1 passed" in run_alone(there, *PYTEST, "chain.py").stdout


KERNEL = """
import torch
library = torch.library.Library("aten", "IMPL")

def relu(x):
    {refuse}
    return torch.clamp_min(x, 0).contiguous()

library.impl("relu", relu, "CPU")
"""


@pytest.mark.parametrize(
    ("refuse", "outcome", "message"),
    [
        ("assert x.is_contiguous(), 'no views'", "raised", "no views"),
        ("", "wrong_spec", "recorded: [((8, 4), torch.float32, (1, 8))]"),
    ],
)
def test_the_reproducer_of_an_error_or_of_another_output_fails_with_the_fault_only(
    tmp_path, monkeypatch, refuse, outcome, message
):
    (tmp_path / "kernel.py").write_text(KERNEL.format(refuse=refuse))
    (tmp_path / "chain.py").write_text(CHAIN + "torch.relu(x.T)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    path, made = tmp_path / "trove.db", tmp_path / "there" / "view.py"
    ask("trace", tmp_path / "chain.py", "--backend", "torch", "--flow", "--store", path)
    words = ("shrink", run_of(path), "--calls", ":", "--import", "kernel", "--store", path)
    assert ask(*words, "-o", made, "--json")["outcome"] == outcome
    done = run_alone(made.parent, *PYTEST, "view.py")
    assert "1 failed" in done.stdout
    assert message in done.stdout
    (tmp_path / "kernel.py").write_text("")
    assert "1 passed" in run_alone(made.parent, *PYTEST, "view.py").stdout

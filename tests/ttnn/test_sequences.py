"""Stretches of ttnn calls as one program: replayed, shrunk, written as code, and their memory."""

import re
from dataclasses import replace

import pytest

from asking import ask as ask_page
from commands import ask
from corrupting import corrupt, mend
from forked_python import python
from optrove.replay.sequence import CallChoice, plan_sequence
from optrove.testgen.sequence_files import sequence_program
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.web.answering import TroveSite
from optrove.web.app import make_app
from recorded_calls import cases_of, results_of

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

MODEL = """
import torch
import ttnn

device = ttnn.open_device(device_id=0)
L1 = ttnn.L1_MEMORY_CONFIG
torch.manual_seed(0)


def put(*shape, dtype=ttnn.bfloat16):
    return ttnn.from_torch(torch.randn(shape), dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)


def layer(x, weight, bias):
    hidden = ttnn.linear(x, weight, bias=bias, memory_config=L1)
    hidden = ttnn.gelu(hidden, memory_config=L1)
    one, two = ttnn.split(hidden, 32, dim=-1)
    joined = ttnn.concat([two, one], dim=-1, memory_config=L1)
    ttnn.deallocate(one)
    view = ttnn.reshape(joined, (1, 1, 64, 64))
    ttnn.multiply(view, 0.5, output_tensor=view)
    return ttnn.add(x, ttnn.reshape(view, (64, 64)), memory_config=L1)


weights = [(put(64, 64, dtype=ttnn.bfloat8_b), put(1, 64)) for _ in range(2)]
x = put(64, 64)
for weight, bias in weights:
    x = layer(x, weight, bias)
ttnn.to_torch(x)
ttnn.close_device(device)
"""


def run_pytest(directory, *words):
    """Run pytest in another directory."""
    return python("-m", "pytest", "-q", "-p", "no:cacheprovider", *words, cwd=directory)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A trove with a run of two layers with their flow and capsules."""
    directory = tmp_path_factory.mktemp("sequences")
    (directory / "model.py").write_text(MODEL)
    path = directory / "trove.db"
    words = ("--board", "n150", "--shadow", "--flow", "--capsule", "all", "--store", path)
    ask("trace", directory / "model.py", *words)
    return path


def run_of(path):
    runs = ask("runs", "--store", path, "--json")
    return next(run["run_id"] for run in runs if run["kind"] == "trace")


def test_a_whole_run_is_executed_as_one_program(store):
    for device in ("mock", "shadow"):
        answer = ask(
            *("replay", run_of(store), "--calls", ":", "--device", device, "--board", "n150"),
            *("--store", store, "--json"),
        )
        assert answer["passed"] is answer["same_cases"] is True
        assert [call["replayed_case_id"] for call in answer["calls"]] == cases_of(store)
        compared = [call["pcc"] for call in answer["calls"] if call["pcc"] is not None]
        assert len(compared) > (10 if device == "shadow" else -1)
        assert all(pcc > 0.999 for pcc in compared)


@pytest.mark.parametrize("values", ["capsule", "seed"])
def test_a_stretch_gets_its_inputs_from_outside(store, values):
    answer = ask(
        *("replay", run_of(store), "--last", "7", "--device", "shadow", "--values", values),
        *("--store", store, "--json"),
    )
    assert answer["passed"] is True
    assert len(answer["calls"]) == 7


def test_the_program_of_a_run_runs_alone_and_makes_the_same_calls(store, tmp_path):
    program = tmp_path / "program.py"
    answer = ask("testgen", "--sequence", run_of(store), "-o", program, "--store", store, "--json")
    assert answer["calls"] == len(cases_of(store))
    assert (tmp_path / "program.safetensors").exists()
    assert program.read_text().splitlines()[0].endswith("of model.py.")
    again = tmp_path / "again.db"
    ask("trace", program, "--board", "n150", "--shadow", "--store", again)
    assert cases_of(again) == cases_of(store)


@pytest.mark.slow
def test_equal_layers_are_a_loop_that_makes_the_same_calls(tmp_path):
    script, path, again = tmp_path / "model.py", tmp_path / "trove.db", tmp_path / "again.db"
    script.write_text(MODEL.replace("range(2)", "range(6)"))
    ask("trace", script, "--board", "n150", "--flow", "--store", path)
    program = tmp_path / "program.py"
    ask("testgen", "--sequence", run_of(path), "-o", program, "--store", path)
    text = program.read_text()
    assert text.count("ttnn.gelu(") == 1
    assert "    for " in text
    ask("trace", program, "--board", "n150", "--flow", "--store", again)
    assert cases_of(again) == cases_of(path)
    both = ((run_of(each), each) for each in (path, again))
    answers = [ask("show", run, "--memory", "--store", each, "--json") for run, each in both]
    # The last call of the program is followed by its end.
    sizes = [[call["bytes"]["L1"] for call in each["calls"][:-1]] for each in answers]
    assert sizes[0] == sizes[1]


def test_the_program_of_a_stretch_runs_on_a_mock_board(store, tmp_path):
    program = tmp_path / "program.py"
    words = ("--last", "9", "--values", "seed", "-o", program, "--store", store)
    ask("testgen", "--sequence", run_of(store), *words)
    assert "del " in program.read_text()
    assert not (tmp_path / "program.safetensors").exists()
    again = tmp_path / "again.db"
    ask("trace", program, "--board", "n150", "--store", again)
    assert cases_of(again)[-9:] == cases_of(store)[-9:]
    ask("testgen", "--sequence", run_of(store), "-o", tmp_path, "--store", store, exit_code=2)


def test_a_call_whose_buffer_another_one_corrupts_is_where_a_replay_first_fails(
    store, tmp_path, monkeypatch
):
    corrupt(tmp_path / "patch", "ttnn.gelu", monkeypatch)
    words = ("--device", "shadow", "--board", "n150", "--store", store, "--json")
    whole = ask("replay", run_of(store), "--calls", ":", *words, exit_code=1)
    outcomes = {call["call"]: call["outcome"] for call in whole["calls"]}
    assert outcomes[whole["first_failure"]] == "numerics"
    assert {outcomes[call] for call in outcomes if call < whole["first_failure"]} == {"passed"}


def test_a_program_compares_the_specs_of_an_output_with_those_of_the_recording(store, tmp_path):
    with open_reader(place_of(str(store))) as reader:
        sequence = plan_sequence(reader, run_of(store), CallChoice(last=3))
    last = next(each for each in reversed(sequence.calls) if each.op == "ttnn.add")
    output = replace(last.call.outputs[0], dtype="ttnn.float32")
    other = replace(last, call=replace(last.call, outputs=(output,)))
    changed = replace(
        sequence, calls=tuple(other if each is last else each for each in sequence.calls)
    )
    for name, calls in (("same", sequence), ("changed", changed)):
        program = sequence_program(calls, "Some calls.", specs_of=last.call.op_index)
        (tmp_path / f"{name}.py").write_text(program.text)
    board = ("--optrove-board", "n150")
    assert "1 passed" in run_pytest(tmp_path, *board, "same.py").stdout
    done = run_pytest(tmp_path, *board, "changed.py").stdout
    assert "1 failed" in done
    assert "AssertionError: the output is [(64, 64)" in done


MESH = """
import torch
import ttnn

mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
torch.manual_seed(0)
split = ttnn.ShardTensorToMesh(mesh, dim=-1)


def put():
    host = ttnn.Tensor(torch.randn(64, 128), ttnn.bfloat16).to(ttnn.TILE_LAYOUT)
    return ttnn.to_device(ttnn.distribute_tensor(host, split), mesh, ttnn.L1_MEMORY_CONFIG)


x, y = put(), put()
z = ttnn.add(y, ttnn.gelu(x, memory_config=ttnn.L1_MEMORY_CONFIG))
for part in ttnn.get_device_tensors(z):
    ttnn.to_torch(part)
ttnn.to_torch(z, mesh_composer=ttnn.ConcatMeshToTensor(mesh, dim=-1))
ttnn.close_mesh_device(mesh)
"""


@pytest.fixture(scope="module")
def mesh_store(tmp_path_factory):
    """A trove with a run on two chips, with its flow and capsules."""
    directory = tmp_path_factory.mktemp("mesh")
    (directory / "mesh.py").write_text(MESH)
    path = directory / "trove.db"
    words = ("--board", "n300", "--shadow", "--flow", "--capsule", "all", "--store", path)
    ask("trace", directory / "mesh.py", *words)
    return path


def test_the_program_of_a_mesh_makes_the_same_calls_and_computes_the_same(mesh_store, tmp_path):
    program, again = tmp_path / "program.py", tmp_path / "again.db"
    ask("testgen", "--sequence", run_of(mesh_store), "-o", program, "--store", mesh_store)
    words = ("--board", "n300", "--shadow", "--capsule", "to_torch", "--store", again)
    ask("trace", program, *words)
    expected = cases_of(mesh_store)
    assert cases_of(again)[-len(expected) :] == expected
    assert len(results_of(again)) == 3
    assert results_of(again) == results_of(mesh_store)


def test_the_reproducer_of_a_corrupted_buffer_on_a_mesh_fails_with_the_fault_only(
    mesh_store, tmp_path, monkeypatch
):
    corrupt(tmp_path / "patch", "ttnn.gelu", monkeypatch)
    made = tmp_path / "together.py"
    words = ("--calls", ":", "--device", "shadow", "--store", mesh_store, "--json")
    answer = ask("shrink", run_of(mesh_store), "-o", made, *words)
    assert [call["op"] for call in answer["calls"]] == ["ttnn.gelu", "ttnn.add"]
    board = ("--optrove-board", "n300", "--optrove-shadow")
    assert "1 failed" in run_pytest(tmp_path, *board, "together.py").stdout
    mend(tmp_path / "patch")
    assert "1 passed" in run_pytest(tmp_path, *board, "together.py").stdout


RAISING = """
import ttnn

device = ttnn.open_device(device_id=0)
x = ttnn.ones((32, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT, device)
try:
    ttnn.matmul(x, x)
except RuntimeError:
    ttnn.relu(x)
ttnn.close_device(device)
"""


def test_calls_that_raised_are_expected_to_raise_again(tmp_path):
    script, path, program = (tmp_path / name for name in ("raising.py", "trove.db", "program.py"))
    script.write_text(RAISING)
    ask("trace", script, "--board", "n150", "--flow", "--store", path)
    answer = ask("replay", run_of(path), "--calls", ":", "--store", path, "--json")
    assert answer["counts"] == {"passed": 2, "rejected": 1}
    assert answer["passed"] is True
    ask("testgen", "--sequence", run_of(path), "-o", program, "--store", path)
    assert "with raises(RuntimeError):\n        ttnn.matmul(ones_1, ones_1)" in program.read_text()
    again = tmp_path / "again.db"
    ask("trace", program, "--board", "n150", "--store", again)
    assert cases_of(again) == cases_of(path)


def test_calls_that_pass_cannot_be_shrunk(store):
    words = ("shrink", run_of(store), "--last", "3", "--device", "shadow", "--store", store)
    assert "there is no failure to shrink" in ask(*words, exit_code=2)


def test_memory_over_the_calls_of_a_run(store):
    answer = ask("show", run_of(store), "--memory", "--store", store, "--json")
    assert set(answer["peaks"]) == {"L1", "DRAM"}
    peak = answer["peaks"]["L1"]
    assert peak["bytes"] == max(call["bytes"]["L1"] for call in answer["calls"])
    assert peak["bytes"] == sum(tensor["bytes"] for tensor in peak["tensors"])
    assert all(tensor["file"].endswith("model.py") for tensor in peak["tensors"])
    weights = [t for t in answer["peaks"]["DRAM"]["tensors"] if t["dtype"] == "ttnn.bfloat8_b"]
    assert [tensor["bytes"] for tensor in weights] == [64 * 64 * 1088 // 1024] * 2
    text = ask("show", run_of(store), "--memory", "--store", store)
    assert "L1 at its peak" in text
    refused = ask("show", run_of(store), "--families", "--memory", "--store", store, exit_code=2)
    assert "leave out the rest" in refused


def test_the_memory_of_a_run_is_a_page_and_a_part_of_the_report(store, tmp_path):
    made = tmp_path / "report.html"
    ask("report", run_of(store), "-o", made, "--store", store)
    data = ask("show", run_of(store), "--memory", "--store", store, "--json")
    site = TroveSite(place_of(str(store)))
    try:
        app = make_app(site)
        answer = ask_page(app, "/memory", id=run_of(store))
        found = ask_page(app, "/memory", id=run_of(store), format="json").data
        linked = ask_page(app, "/run", id=run_of(store)).links
    finally:
        site.close()
    assert any(link.startswith("/memory?id=") for link in linked)
    assert found["peaks"] == data["peaks"]
    assert found["calls"] == data["calls"]
    for page in (made.read_text(), answer.text):
        pictures = re.findall(r'<svg[^>]* class="memory".*?</svg>', page, re.DOTALL)
        assert len(pictures) == 2
        assert all(each.count("<rect ") == len(data["calls"]) for each in pictures)
        assert "model.py:16" in page


FULL = """
import ttnn

device = ttnn.open_device(device_id=0)


def put(memory):
    shape = ttnn.Shape([1, 1, 4096, 6144])
    return ttnn.allocate_tensor_on_device(
        shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory
    )


x = put(ttnn.DRAM_MEMORY_CONFIG)
other = put(ttnn.L1_MEMORY_CONFIG)
ttnn.neg(x)
y = ttnn.relu(x, memory_config=ttnn.L1_MEMORY_CONFIG)
ttnn.close_device(device)
"""


@pytest.fixture(scope="module")
def full_store(tmp_path_factory):
    """A trove with a run whose tensors fit into the L1 of a p150 together, and of an n150 not."""
    directory = tmp_path_factory.mktemp("full")
    (directory / "full.py").write_text(FULL)
    path = directory / "trove.db"
    ask("trace", directory / "full.py", "--board", "p150", "--flow", "--store", path)
    return path


def test_residency_shows_what_fits_alone_and_not_in_the_model(full_store):
    words = ("check-board", "n150", "--store", full_store, "--json")
    alone = ask(*words)
    assert set(alone["counts"]) == {"passed"}
    beside = ask(*words, "--residency", exit_code=1)
    outcomes = {case["op"]: case["outcome"] for case in beside["cases"]}
    assert outcomes["ttnn.relu"] == "out_of_memory"
    assert {outcomes[op] for op in outcomes if op != "ttnn.relu"} == {"passed"}
    (relu,) = [case for case in beside["cases"] if case["op"] == "ttnn.relu"]
    assert any("50,331,648 bytes of L1" in note for note in relu["notes"])
    assert beside["runs"] == []
    (cause,) = beside["causes"]
    assert "--residency" in cause["command"]
    shown = ask(*words[:-1], "--residency", exit_code=1)
    assert "4x beside the other tensors of a run" in shown
    case = relu["case_id"]
    store = ("--store", full_store, "--json")
    ask("replay", case, "--board", "n150", "--residency", *store, exit_code=1)
    ask("replay", case, "--board", "n150", *store)


def test_residency_of_a_stretch_has_what_was_alive_before_it(full_store):
    words = ("replay", run_of(full_store), "--last", "1", "--store", full_store, "--json")
    assert ask(*words, "--board", "n150")["counts"] == {"passed": 1}
    answer = ask(*words, "--board", "n150", "--residency", exit_code=1)
    assert answer["counts"] == {"out_of_memory": 1}


def test_residency_needs_a_run_with_flow(tmp_path):
    script, path = tmp_path / "plain.py", tmp_path / "trove.db"
    script.write_text(FULL)
    ask("trace", script, "--board", "p150", "--store", path)
    words = ("check-board", "p150", "--residency", "--store", path)
    assert "traced with --flow" in ask(*words, exit_code=2)

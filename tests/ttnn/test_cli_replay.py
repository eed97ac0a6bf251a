"""Cases of a program that was traced on a mock board are replayed from its trove."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from optrove.cli.main import main

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

PROGRAM = """
import ttnn

device = ttnn.open_device(device_id=0)
a = ttnn.ones([1, 1, 64, 384], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
w = ttnn.ones([384, 64], dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=device)
for _ in range(3):
    b = ttnn.matmul(a, w)
ttnn.softmax(b, dim=-1)
ttnn.matmul(b, b, transpose_b=True)
banks = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(11, 0))])
shards = ttnn.ShardSpec(banks, [64, 32], ttnn.ShardOrientation.ROW_MAJOR)
layout = ttnn.TensorMemoryLayout.WIDTH_SHARDED
spread = ttnn.to_memory_config(a, ttnn.MemoryConfig(layout, ttnn.BufferType.DRAM, shards))
ttnn.relu(spread, memory_config=ttnn.DRAM_MEMORY_CONFIG)
try:
    ttnn.matmul(w, w)
except RuntimeError:
    pass
ttnn.close_device(device)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A directory with the trove and the op lines of a program."""
    directory = tmp_path_factory.mktemp("project")
    (directory / "demo.py").write_text(PROGRAM)
    words = ["trace", "demo.py", "--board", "n150", "--jsonl", "calls.jsonl", "--store", "trove.db"]
    done = subprocess.run(
        [sys.executable, "-m", "optrove", *words],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture
def ask(project, monkeypatch):
    monkeypatch.chdir(project)
    monkeypatch.setenv("OPTROVE_STORE", "trove.db")
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)

    def asked(*words, exit_code=0):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == exit_code, result.output + str(result.exception)
        return json.loads(result.stdout) if "--json" in words else result.stdout

    return asked


def test_the_most_called_case_is_replayed_on_a_mock_of_the_recorded_board(ask):
    data = ask("replay", "matmul", "--json")
    (case,) = data["cases"]
    assert case["calls"] == 3
    assert (case["device"], case["board"], case["recorded_on"]) == ("mock", "n150", "n150")
    assert (case["outcome"], case["as_recorded"]) == ("passed", True)
    assert case["replayed_case_id"] == case["case_id"]
    assert case["outputs"][0]["$tensor"]["shape"] == [1, 1, 64, 64]
    assert case["detail"] is None


@pytest.mark.torch
def test_the_shadow_measures(ask):
    shown = ask("replay", "softmax", "--device", "shadow", "--seed", "3")
    assert "verdict: passed" in shown
    assert "seed 3" in shown
    assert "pcc: " in shown
    assert "the traced replay is the recorded case: equal hash" in shown


def test_every_case_replays_as_it_was_recorded_or_raises_again(ask):
    data = ask("replay", "*", "--all", "--all-ops", "--json", exit_code=1)
    assert sum(data["counts"].values()) == data["planned"] > 6
    failed = [each for each in data["cases"] if each["outcome"] != "passed"]
    assert [each["op"] for each in failed] == ["ttnn.matmul"]
    assert failed[0]["outcome"] == "rejected"
    assert failed[0]["recorded_error"].startswith("RuntimeError")
    assert all(each["as_recorded"] for each in data["cases"])


@pytest.mark.torch
def test_cases_replay_in_the_slow_mode_in_which_tt_metal_traces(ask, monkeypatch):
    """Its variable may be set in the whole shell; each call then reads ttnn.tracer."""
    monkeypatch.setenv("TTNN_CONFIG_OVERRIDES", '{"enable_fast_runtime_mode": false}')
    data = ask("replay", "softmax", "--json")
    assert [case["outcome"] for case in data["cases"]] == ["passed"]
    assert all(case["as_recorded"] for case in data["cases"])


def test_a_line_of_the_file_is_replayed(ask):
    shown = ask("replay", "--jsonl", "calls.jsonl", "--index", "2")
    assert "ttnn.matmul: case" in shown
    assert "verdict: passed" in shown


def test_another_board_refuses_what_needs_more_banks_than_it_has(ask):
    data = ask("check-board", "p150", "--op", "relu", "--adapt", "--json", exit_code=1)
    assert data["counts"] == {"rejected": 1}
    (cause,) = data["causes"]
    assert cause["op"] == "ttnn.relu"
    assert "no DRAM bank" in cause["cause"]
    assert cause["command"].startswith(f"optrove replay {cause['example'][:12]} ")
    adapted = data["adapted"]
    assert adapted["counts"] == {"passed": 1}
    assert adapted["cases"][0]["adaptations"] == ["DRAM shards on 8 banks instead of 12"]
    assert adapted["cases"][0]["recorded_case_ids"] == [cause["example"]]


@pytest.mark.torch
def test_a_call_that_raised_is_shown_as_such_and_tested_only_on_request(ask, tmp_path):
    (raised,) = [each for each in ask("show", "matmul", "--json") if each["recorded_error"]]
    name = raised["case_id"][:12]
    assert "raised when recorded: RuntimeError: " in ask("show", name)
    data = ask("testgen", "matmul", "-o", str(tmp_path / "all"), "--json")
    assert data["cases"] == 2
    (left,) = data["left_out"]
    assert left["case_id"] == raised["case_id"]
    assert left["reason"].startswith("raised when it was recorded: RuntimeError")
    text = ask("testgen", "matmul", "-o", str(tmp_path / "all"))
    assert "left out, since they raised when they were recorded: 1 case" in text
    for words in ((), ("--standalone",)):
        data = ask("testgen", "matmul", name, "-o", str(tmp_path / "one"), *words, "--json")
        assert (data["cases"], data["left_out"]) == (3, [])
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--optrove-board", "n150"]
            + [each["file"] for each in data["files"]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "3 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.usefixtures("ask")
def test_a_memory_config_that_is_passed_is_adapted_and_the_second_attempt_says_so():
    words = ["check-board", "p150", "--op", "to_memory_config", "--adapt", "--json"]
    result = CliRunner().invoke(main, words)
    adapted = json.loads(result.stdout)["adapted"]
    assert adapted["counts"] == {"passed": 1}
    assert adapted["cases"][0]["adaptations"] == ["DRAM shards on 8 banks instead of 12"]
    on = [line for line in result.stderr.splitlines() if "on a mock p150" in line]
    assert on == ["optrove: on a mock p150", "optrove: again, adapted: on a mock p150"]


def test_the_results_of_two_boards_are_compared_like_those_of_two_releases(ask):
    runs = []
    for board, code in (("n150", 0), ("p150", 1)):
        data = ask("check-board", board, "--op", "relu", "--json", exit_code=code)
        runs += data["runs"]
    data = ask("check-release", *runs, "--json", exit_code=1)
    assert data["counts"]["broken"] == 1
    assert data["a"]["ttnn_version"] == data["b"]["ttnn_version"] is not None


@pytest.mark.torch
def test_golden_checks_of_real_cases_can_fail(ask):
    data = ask("audit-goldens", "matmul", "softmax", "--cases", "1", "--json")
    assert data["counts"] == {"sound": 2, "wrong": 0, "cannot_fail": 0, "unchecked": 0}
    for case in data["cases"]:
        wrong = {each["name"]: each["passed"] for each in case["perturbed"]}
        assert wrong["zeroed"]
        assert wrong["spoiled"]
        assert not wrong["doubled"]


RECORDS = """
import json, sys
import optrove
from optrove.errors import AlreadyTracing

with optrove.mock_board("n150", shadow=True):
    import ttnn

    device = ttnn.open_device(device_id=0)
    with open(sys.argv[1]) as stream:
        records = [json.loads(line) for line in stream]
    for record in records:
        replayed = optrove.replay_op_record(record, device, rng_seed=1)
        shape = None if replayed.output is None else list(replayed.output.shape)
        pcc = [each.value for each in replayed.attempt.measurements if each.name == "pcc"]
        print(json.dumps([record["op_name"], replayed.attempt.outcome.value, shape, pcc]))
    # The device is the caller's, and still open; so is a trace.
    ttnn.ones([32, 32], device=device, layout=ttnn.TILE_LAYOUT, dtype=ttnn.bfloat16)
    with optrove.trace(sys.argv[2]):
        try:
            optrove.replay_op_record(records[0], device)
        except AlreadyTracing as error:
            print(json.dumps(str(error)))
        ttnn.ones([32, 32], device=device, layout=ttnn.TILE_LAYOUT, dtype=ttnn.bfloat16)
    ttnn.close_device(device)
"""


@pytest.mark.torch
def test_records_are_replayed_on_an_open_device(project, run_python, tmp_path):
    printed = run_python(RECORDS, str(project / "calls.jsonl"), str(tmp_path / "trove.db"))
    *rows, refused = map(json.loads, printed.splitlines())
    matmuls = [row[1:] for row in rows if row[0] == "ttnn.matmul"]
    assert [outcome for outcome, _, _ in matmuls] == ["passed"] * 4 + ["rejected"]
    _, shape, (pcc,) = matmuls[0]
    assert shape == [1, 1, 64, 64]
    assert pcc > 0.99
    assert matmuls[-1][1] is None
    assert "this process is being traced" in refused


MESH = """
import json, sys
import optrove

with optrove.mock_board("n300"):
    import ttnn

    device = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    with open(sys.argv[1]) as stream:
        record = json.loads(stream.readlines()[2])
    replayed = optrove.replay_op_record(record, device)
    print(replayed.attempt.outcome.value, replayed.attempt.detail)
    ttnn.close_mesh_device(device)
"""


def test_a_device_of_another_shape_says_what_it_takes(project, run_python):
    printed = run_python(MESH, str(project / "calls.jsonl"))
    assert printed.startswith("not_run the call was recorded on a mesh of 1x1 chips")


@pytest.mark.torch  # ttnn takes account of memory with its help
def test_a_sweep_measures_what_it_is_asked_for_and_a_debugger_gets_the_same(ask, project):
    data = ask("sweep", "matmul", "softmax", "--perf", "--measure-memory", "--json", exit_code=1)
    assert data["counts"] == {"passed": 3, "rejected": 1}
    assert data["planned"] == 4
    ran = [each for each in data["cases"] if each["outcome"] == "passed"]
    for each in ran:
        found = {one["name"]: one["value"] for one in each["measurements"]}
        assert found["e2e_ns"] > 0
        # An op takes some L1, of the megabyte and a half that a core has.
        assert 0 < found["peak_l1_bytes"] < 1_500_000
        assert each["as_recorded"], each["differences"]
    words = ["sweep", "softmax", "--vector-id", softmax_id(ran), "--store", "trove.db", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "optrove", *words],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["counts"] == {"passed": 1}


def softmax_id(cases):
    return next(each["case_id"] for each in cases if each["op"] == "ttnn.softmax")

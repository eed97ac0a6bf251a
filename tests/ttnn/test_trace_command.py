import json
import subprocess
import sys
from pathlib import Path

import pytest

from tracing import assert_adds_up

pytestmark = pytest.mark.ttnn
LIMIT_SECONDS = 180

MODEL = """
import ttnn


def run(device, size=32):
    grid = ttnn.CoreGrid(y=1, x=2)
    shape = [1, 1, 2 * size, 32]
    sharded = ttnn.create_sharded_memory_config(shape, grid, ttnn.ShardStrategy.HEIGHT)
    ones = ttnn.ones(shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    a = ttnn.to_memory_config(ones, sharded)
    for _ in range(3):
        b = ttnn.relu(a) + a
    ttnn.from_device(b)
    return a
"""
SCRIPT = """
import sys, ttnn, model
device = ttnn.open_device(device_id=0)
a = model.run(device)
if "crash" in sys.argv:
    ttnn.deallocate(a)
    ttnn.relu(a)
ttnn.close_device(device)
"""
TESTS = """
import pytest, ttnn, model

@pytest.fixture(scope="module")
def device():
    device = ttnn.open_device(device_id=0)
    yield device
    ttnn.close_device(device)

@pytest.mark.parametrize("size", [32, 64])
def test_model(device, size):
    model.run(device, size)
"""
SHARDED = (
    "Tensor(shape=[1, 1, 64, 32], dtype=BFLOAT16, memory=L1_HEIGHT_SHARDED, "
    "shard(shard_shape=[32, 32], grid=[(0,0)->(1,0)], orientation=ROW_MAJOR))"
)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (("model", MODEL), ("demo", SCRIPT), ("test_model", TESTS)):
        (tmp_path / f"{name}.py").write_text(content)
    return tmp_path


def traced(*words):
    command = [sys.executable, "-m", "optrove", "trace", "--json", "--board", "n150", *words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.stdout, done.stderr
    data = json.loads(done.stdout)
    assert_adds_up(data)
    assert data["faults"] == {}
    return done.returncode, data


def executed(data):
    return {count["op"]: count["executed"] for count in data["ops"]}


@pytest.mark.torch
def test_a_script_on_a_mock_board_gives_files_and_sketches():
    code, data = traced("demo.py", "--shadow", "--sketch", "--params-dir", "files", "--with-values")
    assert code == 0
    assert (data["board"], data["device"]) == ("n150", "shadow")
    calls = {"ttnn.relu": 3, "ttnn.add": 3, "ttnn.ones": 1, "ttnn.to_memory_config": 1}
    assert executed(data) == {**calls, "ttnn.from_device": 1}
    hidden = {count["op"] for count in data["ops"] if count["hidden"]}
    assert hidden == {"ttnn.from_device"}
    assert data["sketches"]["calls"] == data["accounting"]["observed"]
    assert data["sketches"]["omitted"] == {}
    contents = [json.loads(path.read_text()) for path in Path("files").glob("*_ttnn_add_*.json")]
    assert len(contents) == 3
    assert contents[0]["return_value"]["values"][0][0][0][0] == 2.0


def test_numbers_that_mean_nothing_are_not_sketched():
    _, data = traced("demo.py", "--sketch")
    assert data["sketches"]["tensors"] == 1  # what from_device gave stored_in on the host
    (reason,) = data["sketches"]["omitted"]
    assert "a mock board computes no numbers" in reason


def test_the_call_that_crashed_is_named_with_its_arguments():
    code, data = traced("demo.py", "--", "crash")
    assert code > 128
    assert data["board"] == "n150"
    (call,) = data["in_flight"]
    assert call["op"] == "ttnn.relu"
    assert call["arguments"] == {"input_tensor": SHARDED}
    assert call["call_site"].endswith("demo.py:7")


FAILING = """
import ttnn, model

def test_fails():
    device = ttnn.open_device(device_id=0)
    model.run(device)
    ttnn.matmul(ttnn.zeros([32, 32], layout=ttnn.TILE_LAYOUT, device=device), model.run(device, 64))

def test_compares():
    assert sum([1, 1]) == 3, "as numbers do that mean nothing"
"""


def test_failures_show_the_frames_of_the_program_and_a_hint(project):
    (project / "test_failing.py").write_text(FAILING)
    (project / "failing.py").write_text("import test_failing\ntest_failing.test_fails()")
    command = [sys.executable, "-m", "optrove", "trace", "--json", "--board", "n150"]
    done = subprocess.run(
        [*command, "test_failing.py", "failing.py"],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    tests, script = json.loads(done.stdout)
    assert (tests["tests"], tests["exit_code"], script["exit_code"]) == ({"failed": 2}, 1, 1)
    (hint,) = tests["hints"]
    assert "assertions failed in 1 test" in hint
    assert f"Hint: {hint}" in done.stderr
    assert script["hints"] == []
    frames = [line for line in done.stderr.splitlines() if ".py" in line and "---" not in line]
    assert any("failing.py" in line for line in frames)
    assert not any("optrove/backends" in line for line in frames)


def test_tests_on_a_mock_board_are_traced_and_filtered():
    code, data = traced("test_model.py", "--exclude", "add", "--jsonl", "calls.jsonl")
    assert code == 0
    assert data["tests"] == {"passed": 2}
    assert executed(data)["ttnn.relu"] == 6
    assert data["accounting"]["filtered"] == {"in --exclude add": 6}
    lines = [json.loads(line) for line in Path("calls.jsonl").read_text().splitlines()]
    assert len(lines) == data["accounting"]["observed"] - 6
    assert {line["test_nodeid"] for line in lines} == {
        "test_model.py::test_model[32]",
        "test_model.py::test_model[64]",
    }

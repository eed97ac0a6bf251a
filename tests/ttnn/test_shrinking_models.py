"""A failure of many calls together is shrunk from a whole example to the guilty calls."""

import json
import os
import signal
import subprocess
import sys
import time
from zipfile import ZipFile

import pytest

from commands import ask
from commands import run as run_command
from corrupting import corrupt, mend
from example_runs import EXAMPLES
from forked_python import python

pytestmark = [pytest.mark.ttnn, pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A trove with a run of all tests of the encoder example, and the id of the run."""
    path = tmp_path_factory.mktemp("encoder") / "trove.db"
    words = ("--board", "n300", "--shadow", "--flow", "--store", path)
    ask("trace", EXAMPLES / "encoder", *words)
    (run,) = ask("runs", "--store", path, "--json")
    return path, run["run_id"]


def run_pytest(directory, *words):
    """Run pytest in another directory on a mock board with numbers."""
    board = ("--optrove-board", "n300", "--optrove-shadow")
    return python("-m", "pytest", "-q", "-p", "no:cacheprovider", *board, *words, cwd=directory)


def test_an_op_that_corrupts_its_neighbour_is_found_in_the_whole_encoder(
    encoder, tmp_path, monkeypatch
):
    path, run = encoder
    corrupt(tmp_path / "patch", "ttnn.matmul", monkeypatch)
    made = tmp_path / "together.zip"
    words = ("--device", "shadow", "--board", "n300", "--store", path, "--json")
    answer = ask("shrink", run, "--calls", ":", "-o", made, *words)
    assert answer["of"] > 400
    assert answer["outcome"] == "numerics"
    assert answer["finished"] is True
    assert len(answer["calls"]) in (2, 3)
    assert answer["calls"][0]["op"] == "ttnn.matmul"
    assert answer["calls"][-1]["call"] == answer["failing"]
    assert not (tmp_path / "together.trials.jsonl").exists()
    there = tmp_path / "there"
    with ZipFile(made) as archive:
        archive.extractall(there)
    done = run_pytest(there, "together.py")
    assert "1 failed" in done.stdout, done.stdout
    mend(tmp_path / "patch")
    assert "1 passed" in run_pytest(there, "together.py").stdout


def killed_after(trials, file, command):
    """Run a command, and kill it when a file has that many lines."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        if file.exists() and len(file.read_text().splitlines()) >= trials:
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


FULL = """
import sys

sys.path.insert(0, {encoder!r})
import encoder
import ttnn
import weights

device = ttnn.open_device(device_id=0)


def put(memory):
    shape = ttnn.Shape([1, 1, 4096, 6144])
    return ttnn.allocate_tensor_on_device(
        shape, ttnn.bfloat16, ttnn.TILE_LAYOUT, device, memory
    )


kept = put(ttnn.L1_MEMORY_CONFIG)
parameters = encoder.load(weights.make_weights(), device)
hidden = encoder.to_device(weights.make_input(), device)
for _ in range(4):
    hidden = encoder.encoder(hidden, parameters)
y = ttnn.relu(put(ttnn.DRAM_MEMORY_CONFIG), memory_config=ttnn.L1_MEMORY_CONFIG)
ttnn.close_device(device)
"""


def test_an_overflow_of_memory_is_found_in_a_model_also_by_a_search_that_was_killed(tmp_path):
    script, path = tmp_path / "full.py", tmp_path / "trove.db"
    script.write_text(FULL.format(encoder=str(EXAMPLES / "encoder")))
    ask("trace", script, "--board", "p150", "--flow", "--store", path)
    (run,) = ask("runs", "--store", path, "--json")
    made = tmp_path / "full.py.zip"
    words = ["shrink", run["run_id"], "--calls", ":", "--board", "n150", "--store", str(path)]
    words += ["-o", str(made), "--json"]
    trials = made.with_suffix(".trials.jsonl")
    killed_after(3, trials, [sys.executable, "-m", "optrove", *words])
    known = [json.loads(line) for line in trials.read_text().splitlines()]
    assert len(known) >= 3
    done = run_command(*words)
    assert done.exit_code == 0, done.output
    assert "an interrupted search goes on" in done.stderr
    assert "on a mock" not in done.stderr, "the whole sequence was executed again"
    answer = json.loads(done.stdout)
    assert answer["outcome"] == "out_of_memory"
    assert answer["of"] > 50
    assert [call["op"] for call in answer["calls"]] == [
        "ttnn.allocate_tensor_on_device",
        "ttnn.relu",
    ]
    assert answer["finished"] is True
    assert not trials.exists()

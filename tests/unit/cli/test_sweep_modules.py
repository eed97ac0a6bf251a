"""``optrove sweep`` over a module of tt-metal's form that needs no framework."""

import json
import subprocess
import sys

import pytest

from commands import run

MODULE = """
parameters = {
    "nightly": {"size": [1, 2, 3], "wide": [False, True]},
    "xfail_odd": {"size": [5, 6], "wide": [False]},
}
TIMEOUT = 30


def invalidate_vector(vector):
    return vector["size"] == 3 and vector["wide"], "too wide"


def mesh_device_fixture():
    yield "the device", "a device"


def run(size, wide, *, device):
    assert device == "the device"
    if size == 2:
        raise ValueError("no twos")
    return [(size != 5, f"PCC {1 / size}"), 1000]
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Return a function that runs a command and returns its output."""
    (tmp_path / "sized.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)

    def ask(*words, exit_code=0, command="sweep"):
        done = run(command, *words, "--store", "trove.db")
        assert done.exit_code == exit_code, done.output
        return json.loads(done.stdout) if "--json" in words else done.output

    return ask


@pytest.mark.slow
def test_vectors_are_executed_resumed_and_read_from_files(sweep, tmp_path):
    sweep("sized.py", "--suite-name", "xfail_odd", "-o", "odd.json", command="vectors")
    data = sweep("sized.py", "--file-path", "odd.json", "--json")
    assert (data["planned"], data["views"]) == (2, {"xfailed": 1, "xpassed": 1})
    chosen = data["cases"][0]["case_id"]
    # Executed in the process of the command, which then has a board.
    words = ["sized.py", "--file-path", "odd.json", "--vector-id", chosen[:12]]
    words += ["--store", "trove.db", "--json"]
    command = [sys.executable, "-m", "optrove", "sweep", *words]
    one = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert [each["case_id"] for each in one["cases"]] == [chosen]

    assert "were not attempted" in sweep("sized.py", "--budget", "0.000001s", exit_code=2)
    kept = (tmp_path / "sized.py").read_text()
    (tmp_path / "sized.py").write_text(kept + "# changed\n")
    assert "has changed since the sweep began" in sweep("--resume", exit_code=2)
    (tmp_path / "sized.py").write_text(kept)
    data = sweep("--resume", "--json", exit_code=1)
    assert data["resumed"]
    assert data["counts"] == {"passed": 4, "numerics": 1, "raised": 2}
    assert (data["planned"], data["left_out"]) == (7, {"invalid: too wide": 1})
    assert data["views"] == {"xfailed": 1, "xpassed": 1}
    assert data["measurements"]["e2e_ns"]["max"] == 1000.0
    assert {each["suite"] for each in data["cases"]} == {"nightly", "xfail_odd"}
    assert chosen in {each["case_id"] for each in data["cases"]}


MANY = """
import time
from enum import Enum

class Kind(Enum):
    QUICK = 1
    SLOW = 2

parameters = {
    "xfail": {"size": range(200), "step": range(200), "kind": [Kind.QUICK]},
    "nightly": {"size": [1], "step": [1], "kind": [Kind.QUICK, Kind.SLOW]},
}


def run(size, step, kind, *, device):
    if kind is Kind.SLOW:
        return True, "Skipping: too slow for this machine"
    return size % 2 == 0, "0.25"
"""


@pytest.mark.slow
def test_a_sample_of_many_vectors_is_executed_and_the_rest_counted(sweep, tmp_path):
    (tmp_path / "many.py").write_text(MANY)
    listed = sweep("many.py", "--limit", "5", "--json", command="vectors")
    assert (listed["planned"], len(listed["vectors"])) == (5, 5)
    assert listed["left_out"] == [{"reason": "not in the sample", "count": 40_002 - 5}]
    again = sweep("many.py", "--limit", "5", "--json", command="vectors")
    other = sweep("many.py", "--limit", "5", "--randomize", "3", "--json", command="vectors")
    assert again == listed != other
    sweep("many.py", "--limit", "5", "--json", "-o", "many.json", command="vectors")
    data = sweep("many.py", "--limit", "5", "--json", exit_code=1)
    assert {each["case_id"] for each in data["cases"]} == {each["id"] for each in listed["vectors"]}
    assert data["left_out"] == {"not in the sample": 40_002 - 5}
    assert sum(data["views"].values()) == 3
    assert data["counts"]["not_run"] == 1
    skipped = [each for each in data["cases"] if each["outcome"] == "not_run"]
    assert skipped[0]["detail"] == "the module skips it: Skipping: too slow for this machine"
    wrong = [each["cause"] for each in data["causes"] if each["outcome"] == "numerics"]
    assert wrong == ["PCC is below the threshold of the module"]
    fewer = sweep("many.py", "--file-path", "many.json", "--limit", "2", "--dry-run", "--json")
    assert (fewer["planned"], fewer["left_out"]) == (2, {"beyond --limit": 3})


@pytest.mark.slow
def test_a_budget_interrupts_a_vector_that_outlasts_it_and_resume_repeats_it(sweep, tmp_path):
    (tmp_path / "slow.py").write_text(
        "import os, time\n"
        "parameters = {'nightly': {'size': [1]}}\n"
        "def run(size, *, device):\n"
        "    if not os.path.exists('quick'):\n"
        "        time.sleep(600)\n"
        "    return True, ''\n"
    )
    for seconds in (4, 20, 100):  # until the worker is quick enough to begin
        data = sweep("slow.py", "--budget", f"{seconds}s", "--json", exit_code=2)
        if data["cases"]:
            break
    (interrupted,) = data["cases"]
    assert interrupted["outcome"] == "not_run"
    assert interrupted["detail"].startswith("budget: its time was over")
    assert data["finished_at"] is None
    (tmp_path / "quick").touch()
    data = sweep("--resume", "--json")
    assert (data["resumed"], data["counts"]) == (True, {"passed": 1})

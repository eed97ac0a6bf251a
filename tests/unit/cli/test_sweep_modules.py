"""``optrove sweep`` over a module of tt-metal's form that needs no framework."""

import json
import subprocess
import sys

import pytest

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
def sweep(tmp_path):
    """Return what runs a command in a process of its own, and what it says."""
    (tmp_path / "sized.py").write_text(MODULE)

    def ask(*words, exit_code=0, command="sweep"):
        arguments = [sys.executable, "-m", "optrove", command, *words, "--store", "trove.db"]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

    return ask


@pytest.mark.slow
def test_vectors_are_executed_resumed_and_read_from_files(sweep, tmp_path):
    sweep("sized.py", "--suite-name", "xfail_odd", "-o", "odd.json", command="vectors")
    data = sweep("--file-path", "odd.json", "--json")
    assert (data["planned"], data["views"]) == (2, {"xfailed": 1, "xpassed": 1})
    chosen = data["cases"][0]["case_id"]
    one = sweep("--file-path", "odd.json", "--vector-id", chosen[:12], "--json")
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

"""Run an example model as its user would: by itself, traced into a trove, and replayed from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

# What tells pytest's processes of the session around them; the options of our own are no such word.
AROUND = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST")

# Many small ops on few numbers: threads of torch would only wait for each other.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run(directory, *command):
    """Run a module of Python in a directory, without a word of the tests around it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(AROUND)}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=directory,
        env=environment | ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def traced(directory, test_file, *options):
    """Return what is told of the trace of an example's test, which must have passed."""
    target = str(EXAMPLES / test_file)
    done = run(directory, "optrove", "trace", target, "--store", "trove.db", "--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["accounting"]["untraceable"] == {}
    assert told["faults"] == {}
    return told


def replayed(directory, *options):
    """Return every case of the trove as it was replayed, which must have gone as recorded."""
    words = ("optrove", "replay", "*", "--all", "--store", "trove.db", "--json", *options)
    done = run(directory, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["counts"] == {"passed": told["planned"]}
    for each in told["cases"]:
        assert each["replayed_case_id"] == each["case_id"], each["op"]
    return told["cases"]

"""Run an example model as its user would: by itself, traced into a trove, and replayed from it."""

import json
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"

# What would tell a process of the session of pytest around it; the options that make the sessions
# of tests quick are left.
AROUND = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST")


def users_environment():
    """Return an environment as a user has it, without a word of the tests around it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(AROUND)}


def run(directory, *command):
    """Run a module of Python in a directory, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=directory,
        env=users_environment(),
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
    assert len(told["cases"]) == told["planned"]
    for each in told["cases"]:
        assert each["replayed_case_id"] == each["case_id"], each["op"]
    return told["cases"]

"""Run an example model as its user would: by itself, traced into a trove, and replayed from it."""

import os
from pathlib import Path

import pytest

from commands import ask
from forked_python import python

EXAMPLES = Path(__file__).parents[2] / "examples"

RETURNING_NOTHING = ("ttnn.deallocate",)

# What would tell a process of the session of pytest around it; the options that make the sessions
# of tests quick are left.
AROUND = ("PYTEST_CURRENT_TEST", "PYTEST_VERSION", "PYTEST_XDIST")


def users_environment():
    """Return an environment as a user has it, without a word of the tests around it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(AROUND)}


def run(directory, *command):
    """Run a module of Python in a directory, as a user would."""
    return python("-m", *command, cwd=directory, env=users_environment())


def ask_as_user(directory, *words, exit_code=0):
    """Ask for something in a directory and with an environment as a user has it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ.keys() - users_environment().keys():
            patch.delenv(name)
        patch.chdir(directory)
        return ask(*words, exit_code=exit_code)


def traced(directory, test_file, *options):
    """Return the JSON summary of the trace of an example's test, which must have passed."""
    words = ("--store", directory / "trove.db", "--json", *options)
    answer = ask_as_user(directory, "trace", EXAMPLES / test_file, *words)
    assert answer["accounting"]["untraceable"] == {}
    assert answer["faults"] == {}
    return answer


def replayed(directory, *options):
    """Return every case of the trove as it was replayed, which must have gone as recorded."""
    words = ("replay", "*", "--all", "--all-ops", "--nested", *options, "--jobs", "1")
    answer = ask(*words, "--json", "--store", directory / "trove.db")
    assert answer["counts"] == {"passed": answer["planned"]}
    assert len(answer["cases"]) == answer["planned"]
    for each in answer["cases"]:
        assert each["replayed_case_id"] == each["case_id"], each["op"]
    return answer["cases"]


def replayed_well(directory, board):
    """Return every case as it was replayed with numbers, which must all be right."""
    cases = replayed(directory, "--board", board, "--device", "shadow")
    for each in cases:
        pccs = [one["value"] for one in each["measurements"] if one["name"] == "pcc"]
        assert pccs or each["op"] in RETURNING_NOTHING, each["op"]
        assert min(pccs, default=1) >= 0.999, each["op"]
    return cases

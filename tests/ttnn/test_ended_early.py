"""A run of cases that ended early says so everywhere, whatever ended it, and can be completed."""

import re
import shutil

import pytest

import commands
from ended_early import (
    CASES,
    EXITS,
    LIMIT_SECONDS,
    MODEL,
    SUPPORT,
    TRACE,
    ended,
    last_run,
    start,
    states,
)
from held_command import DONE

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

WORDS = {
    "replay": ("replay", "relu", "--all", "--board", "n150", "--jobs", "1"),
    "check-board": ("check-board", "n150", "--op", "relu", "--jobs", "1"),
    "sweep": ("sweep", "relu", "--board", "n150", "--jobs", "1"),
}
ENDINGS = ("interrupted", "disk_full", "killed")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A directory with a program and the trove of its cases."""
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "model.py").write_text(MODEL)
    target = ("--", directory / "marker", "go", CASES)
    process = start(directory, "-m", "optrove", *TRACE, "--store", "trove.db", *target)
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, output
    return directory


@pytest.fixture
def project(recorded, tmp_path, monkeypatch):
    """A copy of the directory, which is the current one."""
    for name in ("model.py", "trove.db"):
        shutil.copy(recorded / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTROVE_STORE", "trove.db")
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        *((kind, ending) for kind in ("replay", "check-board", "sweep") for ending in ENDINGS),
        ("sweep", "out_of_budget"),
    ],
)
def test_a_run_of_cases_that_ended_early(project, kind, ending):
    how = {"out_of_budget": "budget", "disk_full": "full"}.get(ending, "wait")
    budget = ("--budget", "3s") if how == "budget" else ()
    marker = project / "marker"
    words = (SUPPORT / "held_command.py", marker, how, *WORDS[kind], *budget)
    process = start(project, *words)
    output = ended(process, marker, ending)
    assert process.returncode == EXITS[ending], output
    run_id = last_run(kind)
    found, texts = states(run_id, kind)
    assert found == {ending}
    # What was done in the last second may be lost; the case that is held may find room.
    done = f"[0-{DONE + 1}]" if ending in ("killed", "disk_full") else str(DONE)
    text = f"incomplete, {done} of {CASES}, {ending.replace('_', ' ')}"
    for each in texts:
        assert re.search(text, each), each
    completed = commands.ask(*WORDS[kind], "--resume", "--json")
    assert completed["state"] == "complete"
    assert completed["counts"] == {"passed": CASES}
    (row,) = [row for row in commands.ask("runs", "--json") if row["run_id"] == run_id]
    assert (row["state"], row["good"], row["ran"]) == ("complete", CASES, CASES)

"""A case that the budget interrupted counts as not attempted, in every place."""

import pytest

import commands
from asking import ask
from executed_runs import ADDS, attempt, id_of, run
from optrove.model.records import DeviceKind, Outcome, RunKind, Sweep
from optrove.model.trove import PlannedCase, RunState, Session
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from optrove.web.answering import TroveSite
from optrove.web.app import make_app
from small_trove import imported, make_trove, run_of

RUN = "e5" * 16
TEXT = "incomplete, 2 of 4, out of budget"


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    """A trove with a sweep of four cases: passed, not run, interrupted, and not begun."""
    path = tmp_path_factory.mktemp("budget") / "trove.db"
    make_trove(path, imported(run_of("d4" * 16, "demo.py"), [(one, 1) for one in ADDS]))
    begun = run(RUN, RunKind.SWEEP, source="sweep add")
    ended = Session(begun.started_at, "boot:1 2 3", begun.started_at, RunState.OUT_OF_BUDGET)
    plan = [PlannedCase(id_of(one), DeviceKind.SHADOW, "n150") for one in ADDS[:4]]
    attempts = [
        attempt(ADDS[0], RUN, pcc=0.9999),
        attempt(ADDS[1], RUN, Outcome.NOT_RUN, "no chips detected"),
        attempt(ADDS[2], RUN, Outcome.NOT_RUN, "budget: its time was over while it was called"),
    ]
    with open_trove(place_of(str(path)), create=False) as opened:
        opened.add_sweep(begun, Sweep(), plan)
        opened.add_attempts(begun, attempts, ended)
    return path


def test_commands_count_it_as_not_attempted(trove, tmp_path):
    words = ("results", RUN, "--store", trove)
    data = commands.ask(*words, "--json", exit_code=1)
    assert data["counts"] == {"passed": 1, "not_run": 1, "not_attempted": 2}
    assert data["reasons"] == {"not-run": 1, "incomplete": 2}
    junit = tmp_path / "junit.xml"
    shown = commands.ask(*words, "--junit", junit, exit_code=1)
    assert "4 cases: 1 passed, 1 not run, 2 not attempted" in shown
    assert TEXT in shown
    assert shown.endswith("exit code 1: 1 not run, 2 not attempted\n")
    assert 'tests="4" failures="0" errors="1" skipped="2"' in junit.read_text()
    (row,) = [
        row for row in commands.ask("runs", "--store", trove, "--json") if row["run_id"] == RUN
    ]
    assert row["attempts"] == {"passed": 1, "not_run": 1, "not_attempted": 1}
    assert (row["good"], row["ran"], row["planned"]) == (1, 1, 4)


def test_pages_show_it_and_count_it_so(trove):
    site = TroveSite(place_of(str(trove)), "trove.db")
    try:
        app = make_app(site)
        data = ask(app, "/run", id=RUN, format="json").data
        page = ask(app, "/run", id=RUN).text
    finally:
        site.close()
    assert (data["tried"], data["passed"], data["ran"], data["planned"]) == (2, 1, 1, 4)
    assert data["state_text"] == TEXT
    assert TEXT in page
    assert len(data["attempts_listed"]) == 3
    assert "budget: its time was over" in page

from dataclasses import replace
from pathlib import Path

import pytest

from optrove.errors import BadData, NoSpace, UnusableTrove
from optrove.model.records import Attempt, DeviceKind, Environment, Outcome, Run, RunKind, Sweep
from optrove.model.trove import PlannedCase, RunState
from optrove.replay import replay
from optrove.replay.replay import attempt_writer
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.sessions import new_session
from optrove.trove.trove import Trove, open_trove
from small_trove import ADD, LLAMA_IMPORT, RESNET_IMPORT, SHARDED, make_trove

RUN = Run("run", RunKind.REPLAY, "replay add", Environment("1", "3.12", "linux"), "2026-01-01")
IDS = [describe_case(case).case_id for case in (ADD, SHARDED)]


def attempt(case_id, **facts):
    return Attempt("run", case_id, Outcome.PASSED, DeviceKind.MOCK, **facts)


@pytest.fixture
def trove(tmp_path):
    """A trove with a run of two cases that has begun."""
    path = make_trove(tmp_path / "trove.db", LLAMA_IMPORT, RESNET_IMPORT)
    with open_trove(place_of(str(path)), create=False) as opened:
        plan = [PlannedCase(each, DeviceKind.MOCK) for each in IDS]
        opened.add_sweep(RUN, Sweep(), plan, session=SESSION)
        yield opened


SESSION = new_session()


def state(trove):
    """Return the state of the run, and how many of its cases were attempted."""
    with trove.reader() as reader:
        (row,) = reader.runs("run")
        assert len(list(reader.attempts("run"))) == row.progress.done
        return row.progress.state, row.progress.done


def write(trove, ids, error=None):
    with attempt_writer(trove, RUN, SESSION, len(IDS)) as store:
        for each in ids:
            store(attempt(each))
        if error is not None:
            raise error


def test_a_run_goes_on_until_all_its_cases_were_attempted(trove):
    assert state(trove) == (RunState.RUNNING, 0)
    write(trove, IDS)
    assert state(trove) == (RunState.COMPLETE, 2)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, RunState.OUT_OF_BUDGET),
        (KeyboardInterrupt(), RunState.INTERRUPTED),
        (GeneratorExit(), RunState.INTERRUPTED),
        (NoSpace("full"), RunState.DISK_FULL),
        (UnusableTrove("refused"), RunState.FAILED),
        (BadData("odd"), RunState.FAILED),
    ],
)
def test_whatever_ends_a_run_what_was_done_is_stored_and_why_the_rest_was_not(
    trove, error, expected
):
    if error is None:
        write(trove, IDS[:1])
    else:
        with pytest.raises(type(error)):
            write(trove, IDS[:1], error)
    assert state(trove) == (expected, 1)


def test_a_case_that_the_budget_interrupted_is_not_done(trove):
    with attempt_writer(trove, RUN, SESSION, len(IDS)) as store:
        store(attempt(IDS[0]))
        store(replace(attempt(IDS[1], detail="budget: over"), outcome=Outcome.NOT_RUN))
    with trove.reader() as reader:
        (row,) = reader.runs("run")
    assert (row.progress.state, row.progress.done) == (RunState.OUT_OF_BUDGET, 1)


def test_results_are_in_the_trove_before_the_end(trove, monkeypatch):
    monkeypatch.setattr(replay, "_SECONDS", 0.0)
    with attempt_writer(trove, RUN, SESSION, len(IDS)) as store:
        store(attempt(IDS[0]))
        assert state(trove) == (RunState.RUNNING, 1)


def reserved(directory):
    """Return the bytes of files of this process in a directory that have no name there."""
    files = Path("/proc/self/fd").iterdir()
    held = [each for each in files if str(each.resolve()).endswith(" (deleted)")]
    return sum(
        each.stat().st_blocks * 512 for each in held if str(directory) in str(each.readlink())
    )


def test_the_ending_has_room_where_attempts_found_none(trove, tmp_path, monkeypatch):
    """A full disk has no room for a single row, unless some is given up."""
    add, before = Trove.add_attempts, reserved(tmp_path)

    def full(self, run, attempts, session=None):
        if attempts or reserved(tmp_path) - before >= 2**18:
            raise NoSpace("full")
        return add(self, run, attempts, session)

    monkeypatch.setattr(Trove, "add_attempts", full)
    with pytest.raises(NoSpace):
        write(trove, IDS)
    assert state(trove) == (RunState.DISK_FULL, 0)


def test_nothing_is_left_of_the_room_for_the_ending(trove, tmp_path):
    files = set(tmp_path.iterdir())
    with attempt_writer(trove, RUN, SESSION, len(IDS)):
        assert reserved(tmp_path) >= 2**18
        assert set(tmp_path.iterdir()) == files
    assert reserved(tmp_path) == 0


def test_a_case_that_is_not_in_the_trove_is_a_fault_and_not_muted(trove):
    with pytest.raises(BadData, match="not in the trove"):
        write(trove, ["0" * 64])

"""The state of a Run follows from its plan, its end, and the life of its process."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from optrove.errors import BadTarget
from optrove.model.records import RunKind
from optrove.model.trove import RunProgress, RunState, Session
from optrove.report.wording import progress_text
from optrove.trove.sessions import is_alive, new_session, progress_of
from optrove.trove.trove import open_trove
from troves import FINISHED, STARTED, content_of, run_of

SWEEP = run_of("sweep", kind=RunKind.SWEEP)
DEAD = Session(STARTED, "", STARTED)


def state_of(run, *sessions, done=1, planned=3, ended=True):
    return progress_of(run, sessions, ended=ended, done=done, planned=planned).state


class TestProcess:
    def test_this_process_is_alive(self):
        assert is_alive(new_session())

    def test_a_process_that_was_killed_is_not(self):
        script = "from optrove.trove.sessions import *; print(new_session().process, flush=True)"
        script += "; import time; time.sleep(60)"
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        session = replace(DEAD, process=child.stdout.readline().strip())
        assert is_alive(session)
        child.kill()
        while (found := os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)) is None:
            continue
        assert found.si_status == 9
        # It is a zombie until its parent asks for it.
        assert is_alive(session) is False
        child.wait()
        child.stdout.close()
        assert is_alive(session) is False

    def test_a_later_process_with_the_same_number_is_another(self):
        own = new_session()
        machine, pid, start = own.process.split(" ")
        assert is_alive(replace(own, process=f"{machine} {pid} {int(start) - 1}")) is False

    @pytest.mark.parametrize("process", ["", "other:4026531836 1 5"])
    def test_a_process_elsewhere_cannot_be_seen(self, process):
        assert is_alive(replace(DEAD, process=process)) is None


class TestState:
    def test_the_last_session_decides(self):
        first = replace(DEAD, ending=RunState.INTERRUPTED)
        second = new_session()
        assert state_of(SWEEP, first) is RunState.INTERRUPTED
        assert state_of(SWEEP, second, first) is RunState.RUNNING
        over = replace(second, ending=RunState.OUT_OF_BUDGET)
        assert state_of(SWEEP, first, over) is RunState.OUT_OF_BUDGET

    def test_a_process_that_is_gone_was_killed(self):
        own = new_session()
        gone = replace(own, process=own.process + "0")
        assert state_of(SWEEP, gone) is RunState.KILLED

    def test_a_process_elsewhere_has_a_last_sign_of_life(self):
        progress = progress_of(SWEEP, [DEAD], ended=True, done=1, planned=3)
        assert progress == RunProgress(RunState.UNKNOWN, 1, 3, STARTED)
        text = "incomplete, 1 of 3, unknown, last sign of life 2026-01-02 03:04 UTC"
        assert progress_text(progress) == text

    def test_when_all_was_done_it_does_not_matter_what_became_of_the_process(self):
        assert state_of(SWEEP, replace(DEAD, ending=RunState.INTERRUPTED), done=3) is (
            RunState.COMPLETE
        )

    def test_an_end_without_the_whole_plan_is_none(self):
        finished = replace(SWEEP, finished_at=FINISHED)
        assert state_of(finished, DEAD, done=3) is RunState.COMPLETE
        assert state_of(finished, DEAD, done=2) is RunState.INCOMPLETE

    def test_runs_of_older_versions_have_no_session(self):
        assert state_of(SWEEP, planned=None) is RunState.UNKNOWN
        assert state_of(replace(SWEEP, finished_at=FINISHED), planned=None) is RunState.COMPLETE

    @pytest.mark.parametrize(
        ("facts", "ended", "expected"),
        [
            ({}, False, RunState.KILLED),
            ({"finished_at": FINISHED, "exit_code": 1}, True, RunState.COMPLETE),
            ({"finished_at": FINISHED, "exit_code": 1}, False, RunState.INCOMPLETE),
            ({"finished_at": FINISHED, "exit_code": 130}, True, RunState.INTERRUPTED),
        ],
    )
    def test_a_trace_tells_it_by_its_journals(self, facts, ended, expected):
        assert state_of(run_of(**facts), ended=ended, planned=None) is expected

    def test_it_is_told_in_words(self):
        def text(state):
            return progress_text(RunProgress(state, 14, 355))

        assert text(RunState.COMPLETE) == "complete"
        assert text(RunState.RUNNING) == "running, 14 of 355"
        assert text(RunState.INTERRUPTED) == "incomplete, 14 of 355, interrupted"
        assert text(RunState.OUT_OF_BUDGET) == "incomplete, 14 of 355, out of budget"
        assert text(RunState.INCOMPLETE) == "incomplete, 14 of 355"


def test_of_two_processes_one_goes_on_with_a_run(place):
    script = "from optrove.trove.sessions import *; print(new_session().process, flush=True)"
    script += "; import time; time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    first = replace(DEAD, process=other.stdout.readline().strip())
    own = new_session()
    with open_trove(place, create=True) as trove:
        trove.begin_session(SWEEP, first)
        with pytest.raises(BadTarget, match="goes on in another process; wait for it"):
            trove.begin_session(SWEEP, own)
        with trove.reader() as reader:
            assert [each.key for each in reader.unended()] == [first.key]
        other.kill()
        other.wait()
        other.stdout.close()
        trove.begin_session(SWEEP, own)
        trove.begin_session(SWEEP, own)


@pytest.fixture
def accounts(new_place):
    """Two troves that know the same Session: one while it went on, the other its end."""
    places = []
    for ending in (None, RunState.DISK_FULL):
        place = new_place()
        with open_trove(place, create=True) as trove:
            alive_at = STARTED if ending is None else FINISHED
            session = Session(STARTED, "boot:1 2 3", alive_at, ending)
            trove.add_attempts(SWEEP, (), session)
            trove.add_attempts(SWEEP, (), replace(session, begun_at="2025", ending=None))
        places.append(place)
    return places


def test_the_order_of_merges_does_not_matter(accounts, new_place):
    merged = []
    for order in (accounts, accounts[::-1], (*accounts, *accounts)):
        merged.append(new_place())
        with open_trove(merged[-1], create=True) as trove:
            for each in order:
                with open_trove(each, create=False) as other, other.reader() as reader:
                    trove.merge(reader)
    first, *others = map(content_of, merged)
    assert all(each == first for each in others)
    assert [row[-1] for row in first["sessions"]].count("disk_full") == 1
    assert len(first["sessions"]) == 2

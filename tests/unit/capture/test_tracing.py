import errno
import os
import subprocess
import sys

import pytest

import optrove
from optrove.capture.runs import new_run
from optrove.capture.tracing import Tracing, active_tracing
from optrove.errors import AlreadyTracing, UnusableJournal
from optrove.tracing.recorded import summarize_directory
from tracing import assert_adds_up, fake_op, perform, readers_in, seen_in


@pytest.fixture
def run():
    return new_run("a script", ["python", "script.py"])


@pytest.fixture
def tracing(tmp_path, run):
    tracing = Tracing(tmp_path / "journals", run)
    yield tracing
    tracing.stop()


def test_a_trace_is_active_from_its_start_to_its_end(tracing):
    assert active_tracing() is None
    assert not optrove.is_tracing_enabled()
    tracing.start()
    assert active_tracing() is tracing
    assert optrove.is_tracing_enabled()
    tracing.stop()
    tracing.stop()
    assert active_tracing() is None


def test_a_second_trace_is_refused_and_begins_nothing(tracing, tmp_path, run):
    tracing.start()
    other = Tracing(tmp_path / "other", run)
    with pytest.raises(AlreadyTracing, match="end that trace first"):
        other.start()
    other.stop()
    assert active_tracing() is tracing
    assert not (tmp_path / "other").exists()


def test_the_run_is_in_the_journal_as_it_began_and_as_it_ended(tracing, run):
    tracing.start()
    (reader,) = readers_in(tracing.directory)
    assert reader.run == run
    assert reader.ending is None
    tracing.stop(3)
    (reader,) = readers_in(tracing.directory)
    assert (reader.run.id, reader.run.exit_code) == (run.id, 3)
    assert reader.run.finished_at == reader.ending.finished_at
    assert reader.ending.exit_code == 3


def refuse(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("function", ["write", "open", "posix_fallocate"])
def test_a_trace_that_cannot_begin_leaves_nothing_behind(
    tracing, tmp_path, run, monkeypatch, function
):
    with monkeypatch.context() as patch:
        patch.setattr(os, function, refuse)
        with pytest.raises(UnusableJournal, match="No space left on device; choose another"):
            tracing.start()
    assert active_tracing() is None
    assert readers_in(tmp_path) == []
    later = Tracing(tmp_path / "later", run)
    later.start()
    later.stop()


def test_a_full_disk_at_the_end_keeps_the_trace_from_nothing(tracing, monkeypatch):
    ended = []
    tracing.start()
    tracing.on_stop(lambda: ended.append(1))
    perform(tracing.recorder, fake_op(), abs, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        perform(tracing.recorder, fake_op(), abs, 2)
        tracing.stop()
    assert ended == [1]
    assert active_tracing() is None
    summary = summarize_directory(tracing.directory)
    assert_adds_up(summary)
    assert (summary.accounting.observed, summary.lost, summary.unclosed) == (2, 1, 1)


def test_two_traces_one_after_the_other_have_journals_of_their_own(tmp_path, run):
    for turn in range(2):
        tracing = Tracing(tmp_path / str(turn), run)
        tracing.start()
        for _ in range(turn + 1):
            perform(tracing.recorder, fake_op(), abs, turn)
        tracing.stop()
    counts = [len(seen_in(reader)) for reader in readers_in(tmp_path)]
    assert counts == [1, 2]


FORKING = """
import os, sys
from pathlib import Path
from optrove.capture.tracing import Tracing, active_tracing
from optrove.capture.runs import new_run
from tracing import fake_op, perform

tracing = Tracing(Path(sys.argv[1]), new_run("a script", []))
tracing.start()
form = fake_op()
recorder = tracing.recorder
for number in range(5):
    perform(recorder, form, abs, number)
if sys.argv[2] == "full":
    blocked = Path(sys.argv[1])
    blocked.rename(blocked.with_name("moved"))
    blocked.write_text("")
children = []
for who in (1, 2):
    child = os.fork()
    if child == 0:
        for number in range(10 * who):
            assert perform(recorder, form, abs, number) == number
        tracing.stop()
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
for number in range(3):
    perform(recorder, form, abs, number)
tracing.stop()
print(os.getpid(), *children)
"""


def fork_in(place, how):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING, str(place), how],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_calls_of_a_forked_process_are_in_a_journal_of_their_own(tmp_path):
    done = fork_in(tmp_path / "journals", "well")
    assert (done.returncode, done.stderr) == (0, "")
    readers = {reader.pid: reader for reader in readers_in(tmp_path)}
    parent, first, second = map(int, done.stdout.split())
    assert [len(seen_in(readers[pid])) for pid in (parent, first, second)] == [8, 10, 20]
    assert readers[parent].process == 0
    assert [readers[pid].process for pid in (first, second)] == [first, second]
    assert {reader.run.id for reader in readers.values()} == {readers[parent].run.id}
    assert {reader.ending is not None for reader in readers.values()} == {True}


def test_a_forked_process_without_a_journal_leaves_its_parents_alone(tmp_path):
    done = fork_in(tmp_path / "journals", "full")
    assert done.returncode == 0, done.stderr
    assert "UnusableJournal" in done.stderr
    (reader,) = readers_in(tmp_path)
    assert [call.call.op_index for call in seen_in(reader)] == [*range(8)]

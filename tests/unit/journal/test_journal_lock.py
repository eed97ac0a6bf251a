import os
import signal
import subprocess
import sys
import time

import pytest

from optrove.capture.tracing import Tracing
from optrove.errors import UnusableJournal
from optrove.journal.format import LINES, find_journals, is_being_written
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal
from optrove.model.records import Environment, Run, RunKind

RUN = Run("r", RunKind.TRACE, "s", Environment("1", "3", "Linux"), "2026-01-15T10:46:16.345678Z")
PATIENCE_SECONDS = 30


@pytest.fixture
def finishing():
    """End what a test has started, however it ends."""
    processes = []
    yield processes.append
    for process in processes:
        process.kill()
        process.wait()


def start(program, directory, finishing):
    """Start a Python program, and wait until it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(directory)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    finishing(process)
    words = process.stdout.readline()
    process.stdout.close()
    return process, words.split()


WAITING = "import time; print('ready', flush=True); time.sleep(60)"

WRITING = """
import signal, sys
from pathlib import Path
from tracing import fake_op, perform, start_recorder

recorder, journal = start_recorder(Path(sys.argv[1]))
perform(recorder, fake_op(), abs, 1)
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_journal_is_being_written_until_its_process_ends(tmp_path, finishing, number):
    process, _ = start(WRITING, tmp_path, finishing)
    (lines,) = find_journals(tmp_path)
    assert is_being_written(lines)
    # To look at it, or to read it, does not take the lock away.
    assert JournalReader(lines).calls == 1
    assert is_being_written(lines)
    process.send_signal(number)
    process.wait()
    assert not is_being_written(lines)
    assert JournalReader(lines).calls == 1


def test_a_journal_that_was_closed_is_not_being_written(tmp_path):
    journal = Journal(tmp_path, 0)
    (lines,) = find_journals(tmp_path)
    assert is_being_written(lines)
    journal.write({"site": 1, "file": "a", "line": 2})
    assert is_being_written(lines)
    journal.close()
    assert not is_being_written(lines)


def test_a_journal_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(UnusableJournal, match="cannot be read"):
        is_being_written(tmp_path / f"none{LINES}")


FORKING = """
import os, signal, sys
from pathlib import Path
from optrove.capture.tracing import Tracing
from optrove.model.records import Environment, Run, RunKind

run = Run("r", RunKind.TRACE, "s", Environment("1", "3", "Linux"), "2026-01-15T10:46:16.345678Z")
tracing = Tracing(Path(sys.argv[1]), run)
tracing.start()
child = os.fork()
if child == 0:
    print(os.getppid(), os.getpid(), flush=True)
signal.pause()
"""


def by_pid(directory):
    """Return the journals by the process that began them."""
    return {int(path.stem.rpartition("-")[2]): path for path in find_journals(directory)}


def test_a_child_that_lives_on_does_not_keep_the_journal_of_its_dead_parent(tmp_path, finishing):
    process, words = start(FORKING, tmp_path, finishing)
    parent, child = map(int, words)
    try:
        journals = by_pid(tmp_path)
        assert [*map(is_being_written, (journals[parent], journals[child]))] == [True, True]
        process.kill()
        process.wait()
        assert not is_being_written(journals[parent])
        assert is_being_written(journals[child])
    finally:
        os.kill(child, signal.SIGKILL)
    assert released(journals[child])


def released(lines):
    """Wait until a process that is not ours is gone."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while is_being_written(lines) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_being_written(lines)


def test_programs_that_are_started_do_not_keep_the_lock(tmp_path, finishing):
    tracing = Tracing(tmp_path, RUN)
    tracing.start()
    (lines,) = find_journals(tmp_path)
    process, _ = start(WAITING, tmp_path, finishing)
    assert is_being_written(lines)
    tracing.stop()
    assert process.poll() is None
    assert not is_being_written(lines)


def test_a_child_closes_what_it_has_inherited_and_nothing_else(tmp_path):
    tracing = Tracing(tmp_path, RUN)
    tracing.start()
    journal = tracing.journal
    (lines,) = find_journals(tmp_path)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            fine = tracing.journal is not journal and not _can_write(journal)
            status = 0 if fine and _can_write(tracing.journal) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert is_being_written(lines)
    assert _can_write(journal)
    tracing.stop()


def _can_write(journal):
    try:
        journal.write({"site": 1, "file": "a", "line": 2})
    except OSError:
        return False
    return True

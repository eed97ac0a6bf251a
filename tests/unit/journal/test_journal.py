import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.errors import UnusableJournal
from optrove.journal import writer as module
from optrove.journal.calls import Dictionary
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal
from tracing import fake_op, perform, readers_in, seen_in, start_recorder, summary_of


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path, 3)
    yield journal
    journal.close()


@pytest.fixture
def small_windows(monkeypatch):
    """Windows of as few records as can be."""
    page = module.mmap.ALLOCATIONGRANULARITY
    monkeypatch.setattr(module, "WINDOW_RECORDS", page)
    monkeypatch.setattr(module, "WINDOW_SIZE", page * module.RECORD_SIZE)
    return page


def test_a_new_journal_can_be_read_at_once(journal, tmp_path):
    (path,) = find_journals(tmp_path)
    reader = JournalReader(path)
    assert (reader.process, reader.pid) == (3, os.getpid())
    assert (reader.calls, reader.blocks) == (0, ())
    assert (reader.lost, reader.torn, reader.ending) == (0, False, None)


def test_a_journal_has_its_name_only_when_its_header_is_complete(tmp_path, monkeypatch):
    def refuse(number, text):
        assert find_journals(tmp_path) == ()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = os.write
    monkeypatch.setattr(os, "write", lambda *a: refuse(*a) if a[1][:1] == b"{" else write(*a))
    open_before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(UnusableJournal, match="No space left"):
        Journal(tmp_path, 0)
    assert find_journals(tmp_path) == ()
    assert len([*Path("/proc/self/fd").iterdir()]) == open_before


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableJournal, match="choose another directory or make room"):
        Journal(tmp_path / "file" / "runs", 0)


def test_a_line_that_fits_in_part_only_leaves_nothing_behind(journal, tmp_path, monkeypatch):
    (path,) = find_journals(tmp_path)
    before = path.read_bytes()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda number, text: write(number, text[:7]))
        with pytest.raises(OSError, match="only 7 of 31 bytes") as raised:
            journal.write({"site": 1, "file": "a", "line": 2})
    assert raised.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    journal.write({"site": 1, "file": "a", "line": 3})
    known = Dictionary(JournalReader(path).dictionary())
    assert known.entry("sites", 1) == ["a", 3]


def test_after_its_end_nothing_is_written_into_whatever_file_comes_next(tmp_path):
    journal = Journal(tmp_path, 0)
    journal.close()
    journal.close()
    with (tmp_path / "another").open("wb") as first, (tmp_path / "more").open("wb") as second:
        with pytest.raises(OSError, match="Bad file descriptor"):
            journal.write({"site": 1, "file": "a", "line": 2})
        journal.store_lost(7)
        assert (first.tell(), second.tell()) == (0, 0)
    assert (tmp_path / "another").read_bytes() == (tmp_path / "more").read_bytes() == b""


def refuse(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_with_a_full_disk_the_program_goes_on_and_losses_are_counted(tmp_path, monkeypatch):
    recorder, journal = start_recorder(tmp_path)
    form = fake_op()
    assert perform(recorder, form, abs, -1) == 1
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        # A known case needs no new line, a new one does, and so does a new result.
        results = [perform(recorder, form, abs, number) for number in (-2, -3)]
        for number in (-1, -4):
            perform(recorder, form, lambda a: 5, number)
    assert os.write is write
    assert results == [2, 3]
    perform(recorder, form, abs, -2)
    journal.close()
    summary = summary_of(tmp_path)
    assert (summary.accounting.observed, summary.lost) == (6, 4)
    assert ("the journal could not be written", 4) in summary.accounting.untraceable
    assert any("No space left" in fault for fault in recorder.faults)


def test_a_full_disk_costs_a_call_its_result_but_not_its_record(tmp_path, monkeypatch):
    recorder, journal = start_recorder(tmp_path)
    form = fake_op()

    def once(result):
        return perform(recorder, form, lambda a: result, 1)

    def failing(text):
        return perform(recorder, form, lambda a: int(text), 1)

    once(1)
    with pytest.raises(ValueError, match="one"):
        failing("one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        once(2)
        with pytest.raises(ValueError, match="two"):
            failing("two")
    journal.close()
    (reader,) = readers_in(tmp_path)
    calls = seen_in(reader)
    assert [call.outcome for call in calls] == ["returned", "raised", "returned", "raised"]
    assert [call.call.outputs != () for call in calls] == [True, False, False, False]
    assert summary_of(tmp_path).lost == 0
    assert sum(recorder.faults.values()) == 2


def test_a_window_that_cannot_be_had_costs_calls_until_it_can(tmp_path, monkeypatch, small_windows):
    recorder, journal = start_recorder(tmp_path)
    form = fake_op()
    for _ in range(small_windows):
        perform(recorder, form, abs, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        for _ in range(10):
            perform(recorder, form, abs, 1)
    perform(recorder, form, abs, 1)
    journal.close()
    summary = summary_of(tmp_path)
    assert (summary.accounting.observed, summary.lost, summary.cases) == (small_windows + 11, 10, 1)


CHILD_WITH_A_SMALL_DISK = """
import resource, sys
from pathlib import Path
from tracing import fake_op, perform, start_recorder

recorder, journal = start_recorder(Path(sys.argv[1]))
form = fake_op()
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
for number in range(40_000):
    assert perform(recorder, form, abs, -(number % 20_000)) == number % 20_000
print(recorder.lost)
"""


@pytest.mark.slow
def test_beyond_the_largest_allowed_file_the_program_goes_on(tmp_path):
    size = 2 * module.WINDOW_SIZE + module.HEADER_SIZE
    done = subprocess.run(
        [sys.executable, "-c", CHILD_WITH_A_SMALL_DISK, str(tmp_path), str(size)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    summary = summary_of(tmp_path)
    assert summary.lost == int(done.stdout) > 0
    assert summary.accounting.observed == 40_000
    assert summary.unclosed == 1


def test_the_signal_for_too_large_a_file_does_not_end_python():
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0

"""Write the journal of one process, so that it survives the process's sudden death.

Lines go to the file by one system call each. Call records are stored into a window of a file that
is mapped into memory: what was stored is the kernel's to keep, whatever becomes of the process.
Windows are allocated on disk before they are mapped, since a store to a mapped hole on a full
disk would end the process.
"""

from __future__ import annotations

import mmap
import os
import time
from dataclasses import dataclass
from errno import ENOSPC
from operator import length_hint
from threading import Lock
from typing import TYPE_CHECKING, Final

from optrove.codec.journal import (
    CALLS,
    CONFIGS,
    CONFIGS_MAGIC,
    FORMAT,
    HEADER_SIZE,
    LINES,
    LOST,
    LOST_OFFSET,
    MAGIC,
    MARK,
    RECORD_SIZE,
    VERSION,
)
from optrove.codec.journal_lock import hold_lock
from optrove.codec.text import write as json_text
from optrove.errors import UnusableJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from optrove.codec.text import Json

WINDOW_RECORDS: Final = 16_384
"""How many records are mapped at a time: a multiple of pages, and under a megabyte."""

WINDOW_SIZE: Final = WINDOW_RECORDS * RECORD_SIZE

_BEGUN: Final = ".begun"
_CLOSED: Final = -1


@dataclass(frozen=True, slots=True)
class Window:
    """A mapped part of the calls file, which begins with the record ``first``.

    ``places`` are those of the free records, from which ``take`` takes the next; StopIteration
    when there is none.
    """

    first: int
    memory: mmap.mmap
    places: Iterator[int]
    take: Callable[[], int]

    @property
    def taken(self) -> int | None:
        """How many of its records are taken; None if that is all of them."""
        free = length_hint(self.places)
        return WINDOW_RECORDS - free if free else None

    def op_index(self, offset: int) -> int:
        """Return the index of the record at a place in this window."""
        return self.first + offset // RECORD_SIZE


class Journal:
    """The files of one process; ``write`` and ``window`` may be used by many threads."""

    def __init__(self, directory: Path, process: int, *first: Json) -> None:
        """Begin new files in ``directory``; UnusableJournal if that is not possible.

        ``first`` are the first lines after the header.
        """
        self.started_ns = time.time_ns()
        self.clock_ns = time.perf_counter_ns()
        self.process = process
        self.path = directory / f"{self.started_ns:020}-{os.getpid()}"
        self._lock = Lock()
        self._lines = self._calls = self._configs = _CLOSED
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._calls = self._create(CALLS, os.O_RDWR)
            os.write(self._calls, MAGIC.ljust(HEADER_SIZE, b"\0"))
            self.window = self._map(0)
            # Under its name only when it can be read, whenever the process may end.
            self._lines = self._create(_BEGUN, os.O_APPEND)
            hold_lock(self._lines)
            for data in (self._header(), *first):
                self.write(data)
            self._named(_BEGUN).rename(self._named(LINES))
        except OSError as error:
            self.close()
            raise UnusableJournal(
                f"the journal in {directory} cannot be written: {error}; "
                f"choose another directory or make room"
            ) from error

    def write(self, data: Json) -> None:
        """Append one line, or nothing and raise OSError when the disk does not take all of it."""
        self.write_text(json_text(data))

    def write_text(self, spelled: str) -> None:
        """Append one line of JSON that is spelled already."""
        text = spelled.encode("ascii") + b"\n"
        with self._lock:
            written = os.write(self._lines, text)
            if written != len(text):
                os.ftruncate(self._lines, os.fstat(self._lines).st_size - written)
                raise OSError(ENOSPC, f"only {written} of {len(text)} bytes could be written")

    def tell_lost(self, count: int) -> None:
        """Store how many calls could not be recorded, where there is room on a full disk too."""
        with self._lock:
            if self._calls != _CLOSED:
                os.pwrite(self._calls, LOST.pack(count), LOST_OFFSET)

    def window_after(self, full: Window) -> Window:
        """Return the window that follows a full one; OSError when the disk is full."""
        with self._lock:
            if self.window is full:
                self.window = self._map(full.first + WINDOW_RECORDS)
            return self.window

    def map_configs(self, window: Window) -> mmap.mmap:
        """Return the part of the third file that belongs to a window; OSError on a full disk."""
        with self._lock:
            if self._configs == _CLOSED:
                self._configs = self._create(CONFIGS, os.O_RDWR)
                os.write(self._configs, CONFIGS_MAGIC.ljust(HEADER_SIZE, b"\0"))
            offset = HEADER_SIZE + window.first * MARK.size
            size = WINDOW_RECORDS * MARK.size
            os.posix_fallocate(self._configs, offset, size)
            return mmap.mmap(self._configs, size, offset=offset)

    def close(self) -> None:
        """Close the files; records of calls that are still going on are kept as unfinished."""
        with self._lock:
            self._close_files()

    def leave_to_parent(self) -> None:
        """Close the files in a process that was forked off, so that it does not keep their lock.

        Whatever thread held the lock of this object at the fork is not here to release it.
        """
        self._close_files()

    def _close_files(self) -> None:
        files = (self._lines, self._calls, self._configs)
        # Other files may get these numbers, and another thread may still be writing.
        self._lines = self._calls = self._configs = _CLOSED
        for number in files:
            if number != _CLOSED:
                os.close(number)

    def _header(self) -> Json:
        return {
            "format": FORMAT,
            "version": VERSION,
            "process": self.process,
            "pid": os.getpid(),
            "started_ns": self.started_ns,
            "clock_ns": self.clock_ns,
        }

    def _named(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _create(self, suffix: str, flags: int) -> int:
        access = flags if flags & os.O_RDWR else flags | os.O_WRONLY
        return os.open(self._named(suffix), access | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def _map(self, first: int) -> Window:
        offset = HEADER_SIZE + first * RECORD_SIZE
        os.posix_fallocate(self._calls, offset, WINDOW_SIZE)
        memory = mmap.mmap(self._calls, WINDOW_SIZE, offset=offset)
        places = iter(range(0, WINDOW_SIZE, RECORD_SIZE))
        return Window(first, memory, places, places.__next__)

"""Note from which entries of run configurations the arguments of calls come.

An entry tells that it is being unpacked just before the call that gets its arguments. So the
place of the record that will be taken next is marked with the entry's number. Recording the call
itself costs nothing more for it.

Limit: where several threads call operations at once, another thread's call may take that record.
Readers take a mark only if the call is one of the operations that the entry is for, and two
threads that mark the same record leave it without a mark.
"""

from __future__ import annotations

from threading import Lock, get_ident
from typing import TYPE_CHECKING

from optrove.backends.watching import CURRENT
from optrove.codec.journal import MARK

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from optrove.capture.journal import Journal, Window
    from optrove.capture.numbering import Numbering


class ConfigMarks:
    """The marks of one process; its files are begun when something is unpacked."""

    def __init__(
        self, journal: Journal, numbering: Numbering, fault: Callable[[str, Exception], None]
    ) -> None:
        """Write into ``journal``; what goes wrong is told to ``fault``."""
        self._numbering = numbering
        self._fault = fault
        self.continue_in(journal)

    def continue_in(self, journal: Journal) -> None:
        """Mark in another journal from now on."""
        self._journal = journal
        self._lock = Lock()
        self._window: Window | None = None
        self._memory: mmap.mmap | None = None
        self._last = (-1, 0)
        self._closed = False

    def close(self) -> None:
        """Mark nothing any more."""
        self._closed = True

    def unpacked(self, path: str, ops: tuple[str, ...]) -> None:
        """Mark the record that this thread will probably take next; never raises."""
        # What is called within another call, or by ourselves, is not the program's own.
        if self._closed or CURRENT.get() is not None:
            return
        try:
            number = self._numbering.config(path, ops)
            with self._lock:
                self._mark(number)
        except Exception as error:  # noqa: BLE001 - the recorder's border: counted, told at the end, and the call goes on
            self._fault("the entries of run configurations", error)

    def _mark(self, number: int) -> None:
        window, memory = self._current()
        place = window.taken
        if place is None:
            window, memory = self._follow(self._journal.window_after(window))
            place = 0
        index, thread = window.first + place, get_ident()
        if self._last[0] == index and self._last[1] != thread:
            number, thread = 0, 0
        self._last = (index, thread)
        MARK.pack_into(memory, place * MARK.size, number)

    def _current(self) -> tuple[Window, mmap.mmap]:
        window = self._journal.window
        if window is self._window and self._memory is not None:
            return window, self._memory
        return self._follow(window)

    def _follow(self, window: Window) -> tuple[Window, mmap.mmap]:
        memory = self._journal.map_configs(window)
        self._window, self._memory = window, memory
        return window, memory

"""The flow of tensors between the calls of a process: the file and its entries.

A process that records the flow writes a file ``NAME.flow`` beside its calls. It begins with a page
that names the format; entries of 16 bytes follow, in the order in which things happened:

    0   kind (8 bits), place (16), op_index of the call (40)        8 bytes
    8   number; zero: the entry is not complete                     8

    INPUT    the call gets tensor ``number``, which has identity ``place`` in its case
    OUTPUT   the call returned tensor ``number``, the one at ``place`` among its outputs
    BUFFER   at place 0: tensor ``number``; the next entry, at place 1, has the number of its buffer
    FREED    the program has dropped tensor ``number``, after the call had begun

The inputs are written before the call is made. Tensors with one buffer share their memory. Numbers
of tensors are never reused; that of a buffer may be, when all its tensors were freed.
"""

from __future__ import annotations

import mmap
import struct
import weakref
from array import array
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.journal.format import HEADER_SIZE, LINES
from optrove.model.flow import BUFFER, FREED, INPUT, OUTPUT, FlowEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLOW: Final = ".flow"
FLOW_MAGIC: Final = b"optrove flow 1\n"

ENTRY: Final = struct.Struct("@QQ")
PLACE_SHIFT: Final = 8
CALL_SHIFT: Final = 24
UNKNOWN_PLACE: Final = 0xFFFF
"""The place of an input of a call whose arguments were not described."""

WINDOW_SIZE: Final = 16 * mmap.ALLOCATIONGRANULARITY

TTNN_NUMBERS: Final = 0
TORCH_NUMBERS: Final = 1 << 48
"""The number after which tensors of a framework are counted."""


def flow_beside(lines: Path) -> Path:
    """Return the flow file of the journal with this lines file."""
    return lines.with_name(lines.name.removesuffix(LINES) + FLOW)


class PythonStream:
    """Writes entries; the C extensions have the same as ``Stream``.

    ``next_window`` returns a buffer for more entries. ``number_of`` and ``buffer_of`` return the
    numbers of a tensor and of its buffer; without the former, tensors are counted after ``first``.
    With ``weak``, their class takes weak references, so that it is noticed when they are freed.
    """

    def __init__(
        self,
        *,
        next_window: Callable[[], Any],
        number_of: Callable[[Any], int] | None,
        buffer_of: Callable[[Any], int | None] | None,
        first: int,
        weak: bool,
    ) -> None:
        self.lost = 0
        self._number_of = number_of
        self._buffer_of = buffer_of
        self._weak = weak
        self._last_number = first
        self.restart(next_window)

    def restart(self, next_window: Callable[[], Any] | None) -> None:
        """Write into other windows from now on, as a forked process has to."""
        self._next_window = next_window
        self._window: Any = b""
        self._offset = 0
        self._last_call = 0
        self._numbers: dict[int, tuple[int, Any]] = {}
        self._known: set[int] = set()

    def close(self) -> None:
        """Write nothing more."""
        self.restart(None)

    def watch(self, kind: type) -> None:
        """Do nothing: only the C extensions notice when tensors of ttnn are freed."""

    def enter(self, op_index: int, order: bytes, tensors: tuple[Any, ...]) -> None:
        """Write that a call begins with these tensors."""
        self._last_call = op_index
        identities = array("H", order)
        for place, live in enumerate(tensors):
            identity = identities[place] if place < len(identities) else UNKNOWN_PLACE
            self._put(INPUT, identity, op_index, self._number(live))

    def leave(self, op_index: int, tensors: tuple[Any, ...]) -> None:
        """Write that a call has returned these tensors."""
        self._last_call = op_index
        for place, live in enumerate(tensors):
            self._put(OUTPUT, place, op_index, self._number(live))

    def _number(self, live: Any) -> int:
        if self._number_of is not None:
            number = self._number_of(live) + 1
            if number in self._known:
                return number
            self._known.add(number)
        elif id(live) in self._numbers:
            return self._numbers[id(live)][0]
        else:
            number = self._last_number = self._last_number + 1
            reference = weakref.ref(live, self._ended(id(live))) if self._weak else None
            self._numbers[id(live)] = number, reference
        buffer = None if self._buffer_of is None else self._buffer_of(live)
        if buffer is not None:
            self._put(BUFFER, 0, self._last_call, number)
            self._put(BUFFER, 1, self._last_call, buffer + 1)
        return number

    def _ended(self, address: int) -> Callable[[Any], None]:
        def ended(_: Any) -> None:
            number, _reference = self._numbers.pop(address, (0, None))
            if number:
                self._put(FREED, 0, self._last_call, number)

        return ended

    def _put(self, kind: int, place: int, op_index: int, number: int) -> None:
        if self._offset + ENTRY.size > len(self._window):
            try:
                self._window = b"" if self._next_window is None else self._next_window()
                self._offset = 0
            except OSError:
                self._window = b""
        if not self._window:
            self.lost += 1
            return
        words = words_of(FlowEntry(kind, place, op_index, number))
        ENTRY.pack_into(self._window, self._offset, *words)
        self._offset += ENTRY.size


def read_entries(lines: Path) -> Iterator[FlowEntry]:
    """Yield the complete entries of a journal's flow; none if it was not recorded.

    BadData when the file is of another format.
    """
    path = flow_beside(lines)
    if not path.exists():
        return
    content = path.read_bytes()
    if not content.startswith(FLOW_MAGIC):
        raise BadData.at("$", f"{path} has no header; was it overwritten?")
    words = array("Q", content[HEADER_SIZE : len(content) - len(content) % ENTRY.size])
    for word, number in zip(words[::2], words[1::2], strict=True):
        if word and number:
            yield entry_of(word, number)


def entry_of(word: int, number: int) -> FlowEntry:
    """Return the entry of two words; BadData if they are not one."""
    kind, place = word & 0xFF, word >> PLACE_SHIFT & 0xFFFF
    if kind not in (INPUT, OUTPUT, BUFFER, FREED):
        raise BadData.at("flow", f"an entry of the unknown kind {kind}")
    return FlowEntry(kind, place, word >> CALL_SHIFT, number)


def words_of(entry: FlowEntry) -> tuple[int, int]:
    """Return the two words of an entry."""
    word = entry.kind | entry.place << PLACE_SHIFT | entry.op_index << CALL_SHIFT
    return word, entry.number

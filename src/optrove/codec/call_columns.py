"""The calls of a journal as columns of numbers: from its records, packed, and unpacked again.

A block holds at most BLOCK_CALLS calls, one after another without a gap. It is packed column by
column, each split into its first, second ... bytes, since those of like weight resemble each
other; then zlib makes it small. In this order, all little-endian:

    number, kind and depth      8 bytes, as in the journal
    entered                     8       since the call before; the first as it is
    took                        8       nanoseconds; zero for a call that did not end
    parent                      8       how many calls above it in the list; zero: none
    site, scope                 4 + 4
    ending, outcome             4 + 4
"""

from __future__ import annotations

import sys
import zlib
from array import array
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import TYPE_CHECKING, Final

from optrove.codec import journal as layout
from optrove.errors import BadData, Fault
from optrove.model.trove import CallBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_CALLS: Final = 65_536
"""How many calls a block holds at most."""

MAX_CLOCK: Final = 2**63
"""What readings of the clock and durations stay below, so that every database takes them."""

_WORDS: Final = layout.RECORD_SIZE // 8
_HALVES: Final = layout.RECORD_SIZE // 4
_CODES: Final = "QqQQIIII"
_STEPS: Final = 1
"""Which of the columns is that of the clock."""
_LEVEL: Final = 1
"""Of zlib: others take several times as long for a tenth less."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Calls that follow one another; ``first`` is the op_index of the first.

    ``words`` hold number, kind and depth; ``parents`` an op_index plus one, or zero.
    """

    first: int
    words: Sequence[int]
    entered: Sequence[int]
    took: Sequence[int]
    parents: Sequence[int]
    sites: Sequence[int]
    scopes: Sequence[int]
    endings: Sequence[int]
    outcomes: Sequence[int]

    def __len__(self) -> int:
        return len(self.words)


def columns_of(records: bytes, first: int) -> Columns:
    """Return the columns of whole records that have all begun; BadData if times are none."""
    words, halves = array("Q", records), array("I", records)
    entered, ended = words[2::_WORDS].tolist(), words[4::_WORDS].tolist()
    endings, outcomes = halves[10::_HALVES], halves[11::_HALVES]
    if 0 in outcomes:
        # The exit of a call may be written in part when its process dies.
        for place, outcome in enumerate(outcomes):
            if not outcome:
                ended[place], endings[place] = entered[place], 0
    took = list(map(sub, ended, entered))
    _check_times(first, entered, took)
    return Columns(
        first,
        words=words[0::_WORDS],
        entered=entered,
        took=took,
        parents=words[3::_WORDS],
        sites=halves[2::_HALVES],
        scopes=halves[3::_HALVES],
        endings=endings,
        outcomes=outcomes,
    )


def pack(columns: Columns) -> CallBlock:
    """Return calls as a block; BadData for a parent that came later."""
    entered = columns.entered
    steps = [entered[0], *map(sub, entered[1:], entered)]
    packed: tuple[Sequence[int], ...] = (
        columns.words,
        steps,
        columns.took,
        _distances(columns),
        columns.sites,
        columns.scopes,
        columns.endings,
        columns.outcomes,
    )
    planes = b"".join(map(_planes, _CODES, packed))
    return CallBlock(columns.first, len(columns), zlib.compress(planes, _LEVEL))


def unpack(block: CallBlock) -> Columns:
    """Return the calls of a block; BadData when it is none."""
    return unpack_some(block, 0, block.count)


def unpack_some(block: CallBlock, begin: int, most: int) -> Columns:
    """Return at most so many calls of a block, from one on; BadData when it is none."""
    if not 0 < block.count <= BLOCK_CALLS:
        raise _bad(block.first, f"a block of {block.count} calls")
    size = block.count * layout.RECORD_SIZE
    stream = zlib.decompressobj()
    try:
        planes = memoryview(stream.decompress(block.content, size))
    except zlib.error as error:
        raise _bad(block.first, f"a block that cannot be unpacked: {error}") from error
    if len(planes) != size:
        raise _bad(block.first, f"a block of {len(planes)} bytes instead of {size}")
    end = min(begin + most, block.count)
    columns, offset = [], 0
    for place, code in enumerate(_CODES):
        # Of the clock there are steps, which have to be added up from the first on.
        wanted = range(0 if place == _STEPS else begin, end)
        columns.append(_column(planes[offset:], block.count, code, wanted))
        offset += block.count * columns[-1].itemsize
    words, steps, took, distances, sites, scopes, endings, outcomes = columns
    above = enumerate(distances, start=block.first + begin + 1)
    return Columns(
        block.first + begin,
        words=words,
        entered=list(accumulate(steps))[begin:],
        took=took,
        parents=[place - distance if distance else 0 for place, distance in above],
        sites=sites,
        scopes=scopes,
        endings=endings,
        outcomes=outcomes,
    )


def _distances(columns: Columns) -> Sequence[int]:
    parents = columns.parents
    if not any(parents):
        return parents
    above = enumerate(parents, start=columns.first + 1)
    distances = [place - parent if parent else 0 for place, parent in above]
    if min(distances) < 0 or distances.count(0) != parents.count(0):
        raise _bad(columns.first, "a call within itself, or within one that came later")
    return distances


def _planes(code: str, numbers: Sequence[int]) -> bytes:
    column = array(code, numbers)
    content = _little(column).tobytes()
    width = column.itemsize
    return b"".join([content[place::width] for place in range(width)])


def _column(planes: memoryview, count: int, code: str, wanted: range) -> array[int]:
    """Return a part of a column that begins here and holds so many numbers."""
    column = array(code)
    width = column.itemsize
    content = bytearray(len(wanted) * width)
    for place in range(width):
        at = place * count
        content[place::width] = planes[at + wanted.start : at + wanted.stop]
    column.frombytes(content)
    return _little(column)


def _little(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _check_times(first: int, entered: list[int], took: list[int]) -> None:
    if max(entered) >= MAX_CLOCK or max(took) >= MAX_CLOCK:
        raise _bad(first, "a reading of the clock that cannot be")
    if min(took) < 0:
        raise _bad(first, "a call that ended before it began")


def _bad(first: int, problem: str) -> BadData:
    return BadData((Fault(f"calls from {first} on", problem),))

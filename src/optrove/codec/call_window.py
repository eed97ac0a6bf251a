"""Read a few calls of a Recording without unpacking all that its calls refer to.

A dictionary begins with its numbers and the table of cases; what comes after can be many times as
large, and is not looked at.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from optrove.codec import journal as layout
from optrove.codec.call_columns import unpack_some
from optrove.errors import BadData, Fault

if TYPE_CHECKING:
    from optrove.codec.call_columns import Columns
    from optrove.model.trove import CallBlock

_CASES: Final = b',"cases":{'
_ENTRY: Final = re.compile(rb'"([0-9]+)":"([0-9a-f]+)"')
_PIECE: Final = 1 << 20
_MOST: Final = 256 << 20
_LEFT_OUT: Final = 8
"""Among how many calls one that has a case is looked for at first; most have one."""
_WORDS: Final = {layout.RETURNED: "returned", layout.RAISED: "raised"}


@dataclass(frozen=True, slots=True)
class SeenCall:
    """One call as a timeline shows it; ``entered_ns`` counts from an arbitrary moment."""

    op_index: int
    case_id: str
    depth: int
    entered_ns: int
    took_ns: int
    outcome: str


def calls_within(
    dictionary: bytes, block: CallBlock, first: int, most: int
) -> tuple[SeenCall, ...]:
    """Return the calls of a block that have a case, from one op_index on, at most so many."""
    begin = min(max(first - block.first, 0), block.count)
    columns = unpack_some(block, begin, most * _LEFT_OUT)
    places = _with_case(columns, most)
    if len(places) < most:
        columns = unpack_some(block, begin, block.count)
        places = _with_case(columns, most)
    cases = _cases(dictionary, {layout.number_of(columns.words[place]) for place in places})
    return tuple(
        SeenCall(
            op_index=columns.first + place,
            case_id=cases[layout.number_of(columns.words[place])],
            depth=layout.depth_of(columns.words[place]),
            entered_ns=columns.entered[place],
            took_ns=columns.took[place],
            outcome=_WORDS.get(columns.outcomes[place], "unfinished"),
        )
        for place in places
    )


def _with_case(columns: Columns, most: int) -> tuple[int, ...]:
    kinds = (layout.CASE, layout.OPAQUE)
    found = (n for n, word in enumerate(columns.words) if layout.kind_of(word) in kinds)
    return tuple(islice(found, most))


def _cases(packed: bytes, numbers: set[int]) -> dict[int, str]:
    """Return the ids of some cases by their numbers; BadData when one is not there."""
    table = _table(packed)
    found: dict[int, str] = {}
    for entry in _ENTRY.finditer(table):
        number = int(entry[1])
        if number in numbers:
            found[number] = entry[2].decode("ascii")
            if len(found) == len(numbers):
                return found
    missing = sorted(numbers - found.keys())
    if missing:
        raise _bad(f"it has no {missing[0]} among its cases")
    return found


def _table(packed: bytes) -> bytes:
    """Return the text of the table of cases; no id of a case has a brace in it."""
    stream = zlib.decompressobj()
    content = bytearray()
    rest = packed
    begin = end = -1
    try:
        while end < 0 and len(content) < _MOST and (rest or not content):
            piece = stream.decompress(rest, _PIECE)
            rest = stream.unconsumed_tail
            looked = max(len(content) - len(_CASES), begin)
            content += piece
            if begin < 0:
                begin = content.find(_CASES, max(looked, 0))
                looked = begin
            if begin >= 0:
                end = content.find(b"}", max(looked, begin))
            if not piece:
                break
    except zlib.error as error:
        raise _bad(f"it cannot be unpacked: {error}") from error
    if end < 0:
        raise _bad("it has no table of cases")
    return bytes(content[begin + len(_CASES) - 1 : end + 1])


def _bad(problem: str) -> BadData:
    return BadData((Fault("dictionary of calls", problem),))

"""The calls of a journal as packed columns and blocks.

A block holds at most BLOCK_CALLS calls, one after another without a gap. It is packed column by
column, each split into its first, second ... bytes, since those of like weight resemble each
other; then zlib makes it small. In this order, all little-endian:

    number, kind and depth      8 bytes, as in the journal
    entered                     8       since the call before; the first as it is
    took                        8       nanoseconds; zero for a call that did not end
    parent                      8       how many calls above it in the list; zero: none
    site, scope                 4 + 4
    ending, outcome             4 + 4

The dictionary is zlib-compressed JSON with all that the lines file says about calls:

    {"version": 1, "process": ..., "started_ns": ..., "clock_ns": ...,
     "cases": {number: case_id}, "outputs": {number: [value, ...]}, "errors": {number: text},
     "sites": {number: [file, line]}, "reasons": {number: [why, text]},
     "scopes": {number: {"test_id", "phase", "module", "mode", "device"}},
     "sketches": {op_index: [...]}}

So a trove needs a row for each block of calls, not for each call.

A dictionary begins with its numbers and the table of cases; what comes after can be many times as
large, and is not looked at.
"""

from __future__ import annotations

import re
import sys
import zlib
from array import array
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import sub
from typing import TYPE_CHECKING, Final, TypeVar

from optrove.errors import BadData, Fault
from optrove.journal import format as layout
from optrove.model.records import Call, CallOutcome, CallSite, Scope
from optrove.model.trove import CallBlock
from optrove.serializer.text import Json, found, read, write
from optrove.serializer.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from optrove.model.values import Value


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
        raise _bad_columns(block.first, f"a block of {block.count} calls")
    size = block.count * layout.RECORD_SIZE
    stream = zlib.decompressobj()
    try:
        planes = memoryview(stream.decompress(block.content, size))
    except zlib.error as error:
        raise _bad_columns(block.first, f"a block that cannot be unpacked: {error}") from error
    if len(planes) != size:
        raise _bad_columns(block.first, f"a block of {len(planes)} bytes instead of {size}")
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
        raise _bad_columns(columns.first, "a call within itself, or within one that came later")
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
        raise _bad_columns(first, "a reading of the clock that cannot be")
    if min(took) < 0:
        raise _bad_columns(first, "a call that ended before it began")


def _bad_columns(first: int, problem: str) -> BadData:
    return BadData((Fault(f"calls from {first} on", problem),))


T = TypeVar("T")

VERSION: Final = 1
TABLES: Final = ("cases", "outputs", "errors", "sites", "reasons", "scopes", "sketches")

_NUMBERS: Final = ("version", "process", "started_ns", "clock_ns")

_OUTCOMES: Final = {
    0: CallOutcome.UNFINISHED,
    layout.RETURNED: CallOutcome.RETURNED,
    layout.RAISED: CallOutcome.RAISED,
}


def pack_dictionary(numbers: Mapping[str, int], tables: Mapping[str, Mapping[int, str]]) -> bytes:
    """Return a dictionary; the entries of ``tables`` are spelled as canonical JSON already."""
    parts = [f"{write(name)}:{number}" for name, number in sorted(numbers.items())]
    for name in TABLES:
        entries = ",".join([f'"{number}":{text}' for number, text in tables[name].items()])
        parts.append(f'"{name}":{{{entries}}}')
    return zlib.compress(f"{{{','.join(parts)}}}".encode("ascii"), _LEVEL)


def calls_of(dictionary: bytes, blocks: Iterable[CallBlock], run_id: str) -> Iterator[Call]:
    """Yield every call that has a case, in the order of beginning; BadData if it cannot be read.

    Calls that were filtered or could not be described have no case, and are left out.
    """
    known = Dictionary(dictionary)
    for block in blocks:
        yield from known.calls(unpack(block), run_id)


def reasons_of(dictionary: bytes, blocks: Iterable[CallBlock]) -> Iterator[tuple[int, str, str]]:
    """Yield the calls without a case: op_index, ``filtered`` or ``untraceable``, and why."""
    known = Dictionary(dictionary)
    for block in blocks:
        for op_index, word in enumerate(unpack(block).words, start=block.first):
            if layout.kind_of(word) not in (layout.CASE, layout.OPAQUE):
                why, text = known.reason(layout.number_of(word))
                yield op_index, why, text


def sketches_of(dictionary: bytes) -> dict[int, Json]:
    """Return the sketches of tensors by the op_index of their call."""
    return {int(index): sketch for index, sketch in Dictionary(dictionary).table("sketches")}


class Dictionary:
    """What the calls of one journal refer to; each thing is made once."""

    def __init__(self, packed: bytes) -> None:
        """Unpack a dictionary; BadData when it is none."""
        try:
            data = read(zlib.decompress(packed))
        except zlib.error as error:
            raise _bad(f"it cannot be unpacked: {error}") from error
        _check(data)
        self._data = data
        self._process: int = data["process"]
        self._wall_ns: int = data["started_ns"] - data["clock_ns"]
        self._sites: dict[int, CallSite | None] = {0: None}
        self._scopes: dict[int, Scope] = {0: Scope()}
        self._outputs: dict[int, tuple[Value, ...]] = {0: ()}
        self._errors: dict[int, str | None] = {0: None}
        self._cases: dict[int, str] = {}

    @property
    def numbers(self) -> dict[str, int]:
        """The version, the process, and its clocks."""
        return {name: self._data[name] for name in _NUMBERS}

    def table(self, name: str) -> Iterable[tuple[str, Json]]:
        """Return the numbers and entries of one of the tables."""
        table: dict[str, Json] = self._data[name]
        return table.items()

    def entry(self, name: str, number: int) -> Json:
        """Return one entry; BadData when there is no such number."""
        table = self._data[name]
        if str(number) not in table:
            raise _bad(f"it has no {number} among its {name}")
        return table[str(number)]

    def reason(self, number: int) -> tuple[str, str]:
        """Return why calls have no case: ``filtered`` or ``untraceable``, and the words."""
        why, text = _pair(self.entry("reasons", number))
        return _typed(why, str), _typed(text, str)

    def calls(self, columns: Columns, run_id: str) -> Iterator[Call]:
        """Yield the calls of a block that have a case."""
        rows = zip(
            columns.words,
            columns.entered,
            columns.took,
            columns.parents,
            columns.sites,
            columns.scopes,
            columns.endings,
            columns.outcomes,
            strict=True,
        )
        for op_index, row in enumerate(rows, start=columns.first):
            if layout.kind_of(row[0]) in (layout.CASE, layout.OPAQUE):
                yield self._call(op_index, row, run_id)

    def _call(self, op_index: int, row: tuple[int, ...], run_id: str) -> Call:
        word, entered, took, parent, site, scope_number, ending, outcome_number = row
        outcome = _OUTCOMES.get(outcome_number)
        if outcome is None:
            raise _bad(f"call {op_index} has no known outcome")
        scope = _once(self._scopes, scope_number, self._scope)
        raised, returned = outcome is CallOutcome.RAISED, outcome is CallOutcome.RETURNED
        return Call(
            run_id=run_id,
            case_id=_once(self._cases, layout.number_of(word), self._case),
            op_index=op_index,
            process=self._process,
            parent=parent - 1 if parent else None,
            depth=layout.depth_of(word),
            test_id=scope.test_id,
            phase=scope.phase,
            module=scope.module,
            mode=scope.mode,
            call_site=_once(self._sites, site, self._site),
            started_at=layout.moment_of(self._wall_ns + entered),
            duration_ns=took if raised or returned else None,
            outputs=_once(self._outputs, ending, self._output) if returned else (),
            outcome=outcome,
            error=_once(self._errors, ending, self._error) if raised else None,
            device=scope.device,
        )

    def _case(self, number: int) -> str:
        return _typed(self.entry("cases", number), str)

    def _error(self, number: int) -> str:
        return _typed(self.entry("errors", number), str)

    def _output(self, number: int) -> tuple[Value, ...]:
        return tuple(map(decode, _typed(self.entry("outputs", number), list)))

    def _site(self, number: int) -> CallSite:
        file, line = _pair(self.entry("sites", number))
        return CallSite(_typed(file, str), _typed(line, int))

    def _scope(self, number: int) -> Scope:
        return layout.scope_from(self.entry("scopes", number))


def _once(known: dict[int, T], number: int, make: Callable[[int], T]) -> T:
    """Return what a number stands for, made when it is first asked for."""
    if number not in known:
        known[number] = make(number)
    return known[number]


def _typed(data: Json, kind: type[T]) -> T:
    if type(data) is not kind:
        raise _bad(f"expected {kind.__name__}, found {found(data)}")
    return data


def _pair(data: Json) -> tuple[Json, Json]:
    match data:
        case [first, second]:
            return first, second
        case _:
            raise _bad(f"expected a list of two, found {found(data)}")


def _check(data: Json) -> None:
    if type(data) is not dict or type(data.get("version")) is not int:
        raise _bad("it does not begin as one")
    if data["version"] != VERSION:
        raise _bad(
            f"it has version {data['version']}, this optrove reads {VERSION}; "
            f"upgrade it with: pip install --upgrade optrove"
        )
    for name in _NUMBERS:
        _typed(data.get(name), int)
    for name in TABLES:
        _typed(data.get(name), dict)


def _bad(problem: str) -> BadData:
    return BadData((Fault("dictionary of calls", problem),))


_CASES: Final = b',"cases":{'
_ENTRY: Final = re.compile(rb'"([0-9]+)":"([0-9a-f]+)"')
_PIECE: Final = 1 << 20
_MOST: Final = 256 << 20
_LEFT_OUT: Final = 8
"""Among how many calls one that has a case is looked for at first; most have one."""
_OUTCOME_WORDS: Final = {layout.RETURNED: "returned", layout.RAISED: "raised"}


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
            outcome=_OUTCOME_WORDS.get(columns.outcomes[place], "unfinished"),
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


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of the texts, files, test ids, Values and Cases that calls refer to."""

    text: Callable[[str], str]
    file: Callable[[str], str]
    test: Callable[[str], str]
    value: Callable[[Value], Value]
    cases: Mapping[str, str]


def rewritten(packed: bytes, changes: Changes) -> bytes:
    """Return a dictionary of calls with the changes; BadData when it is none."""
    dictionary = Dictionary(packed)
    make: dict[str, Callable[[Json], Json]] = {
        "cases": lambda case_id: changes.cases.get(case_id, case_id),
        "outputs": lambda values: [encode(changes.value(decode(value))) for value in values],
        "errors": changes.text,
        "sites": lambda site: [changes.file(site[0]), *site[1:]],
        "reasons": lambda reason: [reason[0], *map(changes.text, reason[1:])],
        "scopes": lambda scope: _scope(scope, changes),
        "sketches": lambda sketch: sketch,
    }
    tables = {
        name: {int(number): write(make[name](entry)) for number, entry in dictionary.table(name)}
        for name in TABLES
    }
    return pack_dictionary(dictionary.numbers, tables)


def _scope(scope: Json, changes: Changes) -> Json:
    test = {"test_id": changes.test(scope["test_id"])} if "test_id" in scope else {}
    module = {"module": changes.text(scope["module"])} if "module" in scope else {}
    return {**scope, **test, **module}

"""The stored form of a journal's calls: packed blocks, and the dictionary that they refer to.

A trove stores one row per block of calls instead of one row per call. A block holds at most
BLOCK_CALLS consecutive calls. It is a zlib-compressed sequence of columns, all little-endian:

    number, kind and depth      8 bytes, as in the journal
    entered                     8       nanoseconds since the previous call; the first is absolute
    took                        8       nanoseconds; zero for a call that did not end
    parent                      8       distance in calls to the parent; zero for no parent
    site, scope                 4 + 4
    ending, outcome             4 + 4

Each column is stored as byte planes: the first bytes of all its numbers, then the second bytes,
and so on. That makes a compressed block 28 % smaller (6.9 instead of 9.7 bytes per call).

The dictionary is zlib-compressed JSON with everything that the calls refer to by number:

    {"version": 1, "process": ..., "started_ns": ..., "clock_ns": ...,
     "cases": {number: case_id}, "outputs": {number: [value, ...]}, "errors": {number: text},
     "sites": {number: [file, line]},
     "scopes": {number: {"test_id", "phase", "module", "mode", "device"}}}

Other tables, which the first troves have, are ignored.

and, where they are known, the arguments of each case that were passed by place:

     "places": {number of the case: [name, ...]}

and, if cases count as another one that differs in numbers only (``families.py``), the numbers in
their arguments; and by the case that they count as, how many cases and calls these are, and which
numbers vary:

     "numbers": {number of the case: [value, ...]},
     "families": {number of the case: [cases, calls, [[path, values, lowest, highest], ...]]}

and, where the flow of tensors was recorded, its entries (see ``flow.py``): the differences of
their first words and of their second ones, as byte planes, compressed, in base 64:

     "flow": {"1": text}

The dictionary of an import, which has no blocks, also has the configurations of the file as they
were written, each as a JSON text:

     "configurations": {number: [case_id, count, text]}
"""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, chain, islice, starmap
from operator import sub
from typing import TYPE_CHECKING, Final, TypeVar

from optrove.errors import BadData
from optrove.journal import format as layout
from optrove.journal.flow import entry_of, words_of
from optrove.model.flow import flow_of
from optrove.model.records import Call, CallOutcome, CallSite, Scope
from optrove.model.trove import CallBlock, CaseFamily, VariedNumber
from optrove.serializer.text import Json, found, read, write
from optrove.serializer.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from optrove.model.flow import Flow, FlowEntry
    from optrove.model.values import Value

T = TypeVar("T")

BLOCK_CALLS: Final = 65_536
"""The largest number of calls in a block."""

MAX_CLOCK: Final = 2**63
"""An upper bound of clock readings and durations, so that every database can store them."""

VERSION: Final = 1
TABLES: Final = ("cases", "outputs", "errors", "sites", "scopes")

_HASH: Final = re.compile(r"[0-9a-f]{8,128}")
CONFIGURATIONS: Final = "configurations"
"""The table that only imports have."""
PLACES: Final = "places"
NUMBERS: Final = "numbers"
FAMILIES: Final = "families"
FLOW: Final = "flow"
_OPTIONAL: Final = (PLACES, NUMBERS, FAMILIES, CONFIGURATIONS, FLOW)

_CODES: Final = "QqQQIIII"
_LEVEL: Final = 1
"""The zlib level; higher ones take several times as long and save a tenth."""
_WORDS: Final = layout.RECORD_SIZE // 8
_HALVES: Final = layout.RECORD_SIZE // 4
_NUMBERS: Final = ("version", "process", "started_ns", "clock_ns")


@dataclass(frozen=True, slots=True)
class Columns:
    """Consecutive calls by column; ``first`` is the op_index of the first call.

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

    def rows(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each call's op_index with its numbers, in the order of the columns."""
        columns = (
            *(self.words, self.entered, self.took, self.parents),
            *(self.sites, self.scopes, self.endings, self.outcomes),
        )
        return enumerate(zip(*columns, strict=True), start=self.first)


def columns_of(records: bytes, first: int) -> Columns:
    """Return the columns of journal records that have all begun; BadData for impossible times."""
    words, halves = array("Q", records), array("I", records)
    entered, ended = words[2::_WORDS].tolist(), words[4::_WORDS].tolist()
    endings, outcomes = halves[10::_HALVES], halves[11::_HALVES]
    if 0 in outcomes:
        # A process that dies may have written the exit of a call in part.
        for place, outcome in enumerate(outcomes):
            if not outcome:
                ended[place], endings[place] = entered[place], 0
    took = list(map(sub, ended, entered))
    if max(entered) >= MAX_CLOCK or max(took) >= MAX_CLOCK:
        raise _bad_block(first, "a clock reading is out of range")
    if min(took) < 0:
        raise _bad_block(first, "a call ended before it began")
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
    """Return calls as a block; BadData for a call whose parent came later."""
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
    """Return the calls of a block; BadData when it cannot be unpacked."""
    count = block.count
    if not 0 < count <= BLOCK_CALLS:
        raise _bad_block(block.first, f"a block of {count} calls")
    size = count * layout.RECORD_SIZE
    try:
        planes = memoryview(zlib.decompressobj().decompress(block.content, size))
    except zlib.error as error:
        raise _bad_block(block.first, f"a block that cannot be unpacked: {error}") from error
    if len(planes) != size:
        raise _bad_block(block.first, f"a block of {len(planes)} bytes instead of {size}")
    columns, offset = [], 0
    for code in _CODES:
        columns.append(_column(planes[offset:], count, code))
        offset += count * columns[-1].itemsize
    words, steps, took, distances, sites, scopes, endings, outcomes = columns
    parents: Sequence[int] = distances
    if any(distances):
        above = enumerate(distances, start=block.first + 1)
        parents = [place - distance if distance else 0 for place, distance in above]
    return Columns(
        block.first,
        words=words,
        entered=list(accumulate(steps)),
        took=took,
        parents=parents,
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
        raise _bad_block(columns.first, "the parent of a call is the call itself or a later one")
    return distances


def _planes(code: str, numbers: Sequence[int]) -> bytes:
    column = array(code, numbers)
    content = _little_endian(column).tobytes()
    width = column.itemsize
    return b"".join([content[place::width] for place in range(width)])


def _column(planes: memoryview, count: int, code: str) -> array[int]:
    column = array(code)
    width = column.itemsize
    content = bytearray(count * width)
    for place in range(width):
        content[place::width] = planes[place * count : (place + 1) * count]
    column.frombytes(content)
    return _little_endian(column)


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _bad_block(first: int, problem: str) -> BadData:
    return BadData.at(f"calls from {first} on", problem)


def pack_dictionary(numbers: Mapping[str, int], tables: Mapping[str, Mapping[int, str]]) -> bytes:
    """Return a dictionary; the entries of ``tables`` are canonical JSON texts."""
    parts = [f"{write(name)}:{number}" for name, number in sorted(numbers.items())]
    for name in (*TABLES, *(name for name in _OPTIONAL if name in tables)):
        entries = ",".join([f'"{number}":{text}' for number, text in tables[name].items()])
        parts.append(f'"{name}":{{{entries}}}')
    return zlib.compress(f"{{{','.join(parts)}}}".encode("ascii"), _LEVEL)


def pack_configurations(configurations: Iterable[tuple[str, int, str]]) -> bytes:
    """Return the dictionary of an import: case id, count and text of each configuration."""
    numbers = {**dict.fromkeys(_NUMBERS, 0), "version": VERSION}
    listed = enumerate(sorted(configurations), start=1)
    tables: dict[str, dict[int, str]] = {name: {} for name in TABLES}
    return pack_dictionary(
        numbers, {**tables, CONFIGURATIONS: {number: write(list(each)) for number, each in listed}}
    )


def configurations_of(dictionary: bytes) -> Iterator[tuple[str, int, str]]:
    """Yield the configurations of an import; none of a journal."""
    for _, (case_id, count, text) in Dictionary(dictionary).table(CONFIGURATIONS):
        yield case_id, count, text


def calls_of(dictionary: bytes, blocks: Iterable[CallBlock], run_id: str) -> Iterator[Call]:
    """Yield every call that has a case, in the order in which they began.

    Calls that were filtered or could not be described have no case, and are left out. BadData
    when a block or the dictionary cannot be read.
    """
    known = Dictionary(dictionary)
    for block in blocks:
        for op_index, row in unpack(block).rows():
            if layout.has_case(row[0]):
                yield known.call(op_index, row, run_id)


def places_of(dictionary: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the cases of a journal with the arguments that were passed by place."""
    known = Dictionary(dictionary)
    cases = dict(known.table("cases"))
    for number, names in known.table(PLACES):
        if number in cases:
            yield cases[number], tuple(names)


def families_of(dictionary: bytes) -> Iterator[tuple[str, CaseFamily]]:
    """Yield the cases of a journal that others count as, with these."""
    known = Dictionary(dictionary)
    cases = dict(known.table("cases"))
    for number, (others, calls, varied) in known.table(FAMILIES):
        numbers = tuple(VariedNumber(*each) for each in varied)
        yield cases[number], CaseFamily(others, calls, numbers)


def flow_in(dictionary: bytes) -> Flow | None:
    """Return the flow of a journal's tensors; None if it was not recorded."""
    found = dict(Dictionary(dictionary).table(FLOW))
    return flow_of(unpack_flow(_typed(found["1"], str))) if found else None


def pack_flow(entries: Iterable[FlowEntry]) -> str:
    """Return the entries of a flow in packed form."""
    pairs = [words_of(each) for each in entries]
    columns = ([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    steps = [[*each[:1], *map(sub, each[1:], each)] for each in columns]
    planes = b"".join(_planes("q", each) for each in steps)
    return base64.b64encode(zlib.compress(planes, _LEVEL)).decode("ascii")


def unpack_flow(packed: str) -> Iterator[FlowEntry]:
    """Yield the entries that ``pack_flow`` has packed; BadData for anything else."""
    try:
        content = base64.b64decode(packed, validate=True)
    except ValueError as error:
        raise _bad(f"its flow cannot be unpacked: {error}") from error
    planes = memoryview(decompressed(content, "its flow"))
    count, rest = divmod(len(planes), 16)
    if rest:
        raise _bad(f"{len(planes)} bytes of flow are not a number of entries")
    halves = (planes[: 8 * count], planes[8 * count :])
    words, numbers = (accumulate(_column(half, count, "q")) for half in halves)
    return starmap(entry_of, zip(words, numbers, strict=True))


class Dictionary:
    """The objects that the calls of one journal refer to by number, each created once."""

    def __init__(self, packed: bytes) -> None:
        """Unpack a dictionary; BadData when that is not possible."""
        data = read(decompressed(packed))
        _check(data)
        self._data = data
        self._process: int = data["process"]
        self._wall_ns: int = data["started_ns"] - data["clock_ns"]
        self._sites: dict[int, CallSite | None] = {0: None}
        self._scopes: dict[int, Scope] = {0: Scope()}
        self._outputs: dict[int, tuple[Value, ...]] = {0: ()}
        self._errors: dict[int, str | None] = {0: None}
        self._cases: dict[int, str] = {}
        self._numbers: dict[int, tuple[Value, ...]] = {}

    @property
    def numbers(self) -> dict[str, int]:
        """The version, the process, and its clocks."""
        return {name: self._data[name] for name in _NUMBERS}

    def table(self, name: str) -> Iterable[tuple[str, Json]]:
        """Return the numbers and entries of one table."""
        table: dict[str, Json] = self._data.get(name, {})
        return table.items()

    def entry(self, name: str, number: int) -> Json:
        """Return one entry of a table; BadData when the number is not defined."""
        table = self._data[name]
        if str(number) not in table:
            raise _bad(f"it has no {number} among its {name}")
        return table[str(number)]

    def call(self, op_index: int, row: tuple[int, ...], run_id: str) -> Call:
        """Return a call that has a case; ``row`` is one of ``Columns.rows``."""
        word, entered, took, parent, site, scope_number, ending, outcome_number = row
        outcome = layout.OUTCOMES.get(outcome_number)
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
            numbers=_once(self._numbers, layout.number_of(word), self._numbers_of),
        )

    def _case(self, number: int) -> str:
        return _typed(self.entry("cases", number), str)

    def _numbers_of(self, number: int) -> tuple[Value, ...]:
        values = self._data.get(NUMBERS, {}).get(str(number), [])
        return tuple(map(decode, _typed(values, list)))

    def _error(self, number: int) -> str:
        return _typed(self.entry("errors", number), str)

    def _output(self, number: int) -> tuple[Value, ...]:
        return tuple(map(decode, _typed(self.entry("outputs", number), list)))

    def _site(self, number: int) -> CallSite:
        match self.entry("sites", number):
            case [str(file), int(line)]:
                return CallSite(file, line)
            case other:
                raise _bad(f"expected a file and a line, found {found(other)}")

    def _scope(self, number: int) -> Scope:
        return layout.scope_from(self.entry("scopes", number))


def _once(known: dict[int, T], number: int, make: Callable[[int], T]) -> T:
    """Return the object with this number, made when it is first asked for."""
    if number not in known:
        known[number] = make(number)
    return known[number]


def _typed(data: Json, kind: type[T]) -> T:
    if type(data) is not kind:
        raise _bad(f"expected {kind.__name__}, found {found(data)}")
    return data


_PIECE_BYTES: Final = 2**20
_MAX_BYTES: Final = 2**30
"""The size that unpacked data may have: a small file of somebody else must not fill the memory."""


def decompressed(packed: bytes, what: str = "it") -> bytes:
    """Return the bytes that were compressed; BadData if they are damaged or too many."""
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(packed, _MAX_BYTES)
    except zlib.error as error:
        raise _bad(f"{what} cannot be unpacked: {error}") from error
    if unpacker.unconsumed_tail:
        raise _bad(f"{what} is larger than {_MAX_BYTES:,} bytes when it is unpacked")
    if not unpacker.eof:
        raise _bad(f"{what} cannot be unpacked: it is cut off")
    return unpacked


def _check(data: Json) -> None:
    if type(data) is not dict or type(data.get("version")) is not int:
        raise _bad("it has no version")
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
    return BadData.at("dictionary of calls", problem)


@dataclass(frozen=True, slots=True)
class TimelineCall:
    """One call as a timeline shows it; ``entered_ns`` counts from an arbitrary moment."""

    op_index: int
    case_id: str
    depth: int
    entered_ns: int
    took_ns: int
    outcome: CallOutcome


def calls_within(
    dictionary: bytes, block: CallBlock, first: int, most: int
) -> tuple[TimelineCall, ...]:
    """Return up to ``most`` calls of a block that have a case, from op_index ``first`` on."""
    rows = islice(unpack(block).rows(), max(first - block.first, 0), None)
    chosen = tuple(islice((each for each in rows if layout.has_case(each[1][0])), most))
    cases = _case_ids(dictionary, {layout.number_of(row[0]) for _, row in chosen})
    return tuple(_timeline_call(op_index, row, cases) for op_index, row in chosen)


def _timeline_call(op_index: int, row: tuple[int, ...], cases: Mapping[int, str]) -> TimelineCall:
    word, entered, took, *_, outcome = row
    return TimelineCall(
        op_index=op_index,
        case_id=cases[layout.number_of(word)],
        depth=layout.depth_of(word),
        entered_ns=entered,
        took_ns=took,
        outcome=layout.OUTCOMES.get(outcome, CallOutcome.UNFINISHED),
    )


def _case_ids(packed: bytes, numbers: Collection[int]) -> dict[int, str]:
    """Return the ids of some cases; reading all of them would take most of the time of a page."""
    entries = _case_table(packed).strip(b"{}").split(b",") if numbers else []
    found = {}
    for number in numbers:
        key = b'"%d":' % number
        # A recording numbers its cases in their order; a table in another order is searched.
        at = bisect_left(entries, number, key=_number_of)
        near = (entry for entry in chain(entries[at : at + 1], entries) if entry.startswith(key))
        entry = next(near, None)
        if entry is None:
            raise _bad(f"it has no {number} among its cases")
        found[number] = _typed(read(entry.removeprefix(key)), str)
    return found


def _number_of(entry: bytes) -> int:
    key = entry.partition(b":")[0].strip(b'"')
    if not key.isdigit():
        raise _bad(f"its table of cases has no number at {key[:20]!r}")
    return int(key)


def _case_table(packed: bytes) -> bytes:
    """Return the table of cases as text, unpacking no more than that: others are much larger."""
    name, begin, end = b',"cases":', -1, -1
    content, unpacker = bytearray(), zlib.decompressobj()
    while end < 0:
        unpacked = _unpacked(unpacker, packed)
        if not unpacked:
            raise _bad("it has no table of cases")
        packed = unpacker.unconsumed_tail
        seen = len(content)
        content += unpacked
        if seen > _MAX_BYTES:
            raise _bad(f"its table of cases does not end within {_MAX_BYTES:,} bytes")
        if begin < 0:
            begin = content.find(name, max(seen - len(name), 0))
        if begin >= 0:
            # The case ids in the table are hexadecimal, so that its first brace ends it.
            end = content.find(b"}", max(seen, begin))
    return bytes(content[begin + len(name) : end + 1])


def _unpacked(unpacker: zlib._Decompress, packed: bytes) -> bytes:
    try:
        return unpacker.decompress(packed, _PIECE_BYTES)
    except zlib.error as error:
        raise _bad(f"it cannot be unpacked: {error}") from error


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes to the texts, files, test ids, Values and Cases that calls refer to."""

    text: Callable[[str], str]
    file: Callable[[str], str]
    test: Callable[[str], str]
    value: Callable[[Value], Value]
    cases: Mapping[str, str]


def rewritten(packed: bytes, changes: TableChanges) -> bytes:
    """Return a dictionary with the changes applied; BadData when it cannot be read."""
    dictionary = Dictionary(packed)
    make: dict[str, Callable[[Json], Json]] = {
        "cases": lambda case_id: changes.cases.get(case_id, case_id),
        "outputs": lambda values: [encode(changes.value(decode(value))) for value in values],
        "errors": changes.text,
        "sites": lambda site: [changes.file(site[0]), *site[1:]],
        "scopes": lambda scope: _changed_scope(scope, changes),
    }
    tables = {
        name: {int(number): write(make[name](entry)) for number, entry in dictionary.table(name)}
        for name in TABLES
    }
    hashes = {
        int(number): write([make["cases"](case_id), count, _hashes_alone(text)])
        for number, (case_id, count, text) in dictionary.table(CONFIGURATIONS)
    }
    others = {
        name: {int(number): write(entry) for number, entry in dictionary.table(name)}
        for name in (PLACES, NUMBERS, FAMILIES, FLOW)
    }
    others[CONFIGURATIONS] = hashes
    return pack_dictionary(
        dictionary.numbers, tables | {name: table for name, table in others.items() if table}
    )


def _hashes_alone(text: str) -> str:
    """Return the hashes of a configuration; its arguments are those of the Case."""
    data = json.loads(text)
    names = ("config_hash", "sweep_source_hash")
    return write({name: data[name] for name in names if _HASH.fullmatch(str(data.get(name)))})


def _changed_scope(scope: Json, changes: TableChanges) -> Json:
    test = {"test_id": changes.test(scope["test_id"])} if "test_id" in scope else {}
    module = {"module": changes.text(scope["module"])} if "module" in scope else {}
    return {**scope, **test, **module}

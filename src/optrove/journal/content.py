"""A journal as a recording: described cases, groups of calls, packed blocks.

Lines are checked as they are read, since each defines a number before others use it; their JSON is
not kept. Cases are kept by the numbers of their arguments, and joined from their Parts when they
are asked for: a hundred thousand of them would not fit into memory otherwise.

The journal may be one that is being written. Its calls are read once, up to the last that had
begun when this object was made, and what they refer to is read after them. So all that is told
here fits together, and stays the same.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from optrove.errors import BadData, Fault, UnusableJournal
from optrove.journal import format as layout
from optrove.journal.calls import (
    BLOCK_CALLS,
    MAX_CLOCK,
    VERSION,
    Columns,
    columns_of,
    pack,
    pack_dictionary,
)
from optrove.journal.format import is_being_written
from optrove.journal.reader import FIELDS, JournalLines, undefined
from optrove.model.records import Accounting, CallOutcome, Counts
from optrove.model.trove import CallGroup
from optrove.serializer.described import Part, TensorParts, WrittenParts, describe_parts
from optrove.serializer.text import Json, found, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.model.records import Run, Scope, TestResult
    from optrove.model.trove import CallBlock, DescribedCase


OUTCOMES: Final = {
    0: CallOutcome.UNFINISHED,
    layout.RETURNED: CallOutcome.RETURNED,
    layout.RAISED: CallOutcome.RAISED,
}
KINDS: Final = frozenset((layout.CASE, layout.OPAQUE, layout.FILTERED, layout.UNTRACEABLE))

_Key: TypeAlias = tuple[int, int, int, int]
_ENTERED: Final = 2
_WORDS: Final = layout.RECORD_SIZE // 8
_TAIL: Final = 16_384


class Tally(NamedTuple):
    """How many calls agree in something, and how long they took."""

    calls: int
    total_ns: int
    shortest_ns: int
    longest_ns: int

    def and_also(self, other: Tally | None) -> Tally:
        """Return the tally of these calls and others."""
        if other is None:
            return self
        return Tally(
            self.calls + other.calls,
            self.total_ns + other.total_ns,
            min(self.shortest_ns, other.shortest_ns),
            max(self.longest_ns, other.longest_ns),
        )


@dataclass(slots=True)
class CallScan:
    """What one pass over a calls file has found, once ``blocks`` is exhausted."""

    path: Path
    records: int
    """How many records there are up to the last that had begun."""
    lost: int
    calls: int = 0
    digest: str = ""
    sites: set[int] = field(default_factory=set)
    tallies: dict[_Key, Tally] = field(default_factory=dict)

    def blocks(self) -> Iterator[CallBlock]:
        """Yield all calls in packed form; BadData for records that are none."""
        hashed = sha256(layout.LOST.pack(self.lost))
        try:
            with self.path.open("rb") as stream:
                stream.seek(layout.HEADER_SIZE)
                for first in range(0, self.records, BLOCK_CALLS):
                    count = min(BLOCK_CALLS, self.records - first)
                    records = _whole(stream.read(count * layout.RECORD_SIZE))
                    hashed.update(records)
                    for columns in _stretches(records, first):
                        self._count(columns)
                        yield pack(columns)
        except OSError as error:
            raise _unusable(self.path, error) from error
        self.digest = hashed.hexdigest()

    def _count(self, columns: Columns) -> None:
        self.calls += len(columns)
        self.sites.update(columns.sites)
        alike: defaultdict[_Key, list[int]] = defaultdict(list)
        keys = zip(columns.words, columns.scopes, columns.endings, columns.outcomes, strict=True)
        for key, took in zip(keys, columns.took, strict=True):
            alike[key].append(took)
        for key, times in alike.items():
            before = self.tallies.get(key)
            if before is None:
                _check(key)
            tally = Tally(len(times), sum(times), min(times), max(times))
            self.tallies[key] = tally.and_also(before)


def begin_scan(path: Path) -> CallScan:
    """Look how many calls a calls file holds by now; UnusableJournal when it cannot be read."""
    try:
        with path.open("rb") as stream:
            header = stream.read(layout.HEADER_SIZE)
            lost = layout.lost_in(header)
            return CallScan(path, _begun(stream), lost)
    except OSError as error:
        raise _unusable(path, error) from error


def _begun(stream: Any) -> int:
    """Return the number of records up to the last that has begun; files are longer than that."""
    end = (stream.seek(0, 2) - layout.HEADER_SIZE) // layout.RECORD_SIZE
    while end > 0:
        begin = max(0, end - _TAIL)
        stream.seek(layout.HEADER_SIZE + begin * layout.RECORD_SIZE)
        entered = _entered(_whole(stream.read((end - begin) * layout.RECORD_SIZE)))
        for place in range(len(entered) - 1, -1, -1):
            if entered[place]:
                return int(begin + place + 1)
        end = begin
    return 0


def _whole(records: bytes) -> bytes:
    """Return what there is of whole records, should the file be cut off meanwhile."""
    return records[: len(records) - len(records) % layout.RECORD_SIZE]


def _entered(records: bytes) -> array[int]:
    return array("Q", records)[_ENTERED::_WORDS]


def _stretches(records: bytes, first: int) -> Iterator[Columns]:
    """Yield the records that have begun; a place that was taken and never used parts them."""
    entered = _entered(records).tolist()
    begin = 0
    while begin < len(entered):
        end = _next_unused(entered, begin)
        if end > begin:
            size = layout.RECORD_SIZE
            yield columns_of(records[begin * size : end * size], first + begin)
        begin = end + 1


def _next_unused(entered: list[int], begin: int) -> int:
    try:
        return entered.index(0, begin)
    except ValueError:
        return len(entered)


def _check(key: _Key) -> None:
    word, _, _, outcome = key
    if outcome not in OUTCOMES or layout.kind_of(word) not in KINDS:
        fault = Fault("calls", "a record of no known kind or outcome; was the file overwritten?")
        raise BadData((fault,))


def _unusable(path: Path, error: OSError) -> UnusableJournal:
    return UnusableJournal(f"the calls {path} cannot be read: {error}")


_STRETCH: Final = 16_384


def marked_calls(lines: Path, records: int) -> Counter[tuple[int, int]]:
    """Return how many calls have each pair of an entry's number and the first word of a record.

    Only the first ``records`` are read. A journal without such calls has none of these.
    """
    path = layout.configs_beside(lines)
    found: Counter[tuple[int, int]] = Counter()
    try:
        with path.open("rb") as marks, layout.calls_beside(lines).open("rb") as calls:
            if not marks.read(layout.HEADER_SIZE).startswith(layout.CONFIGS_MAGIC):
                fault = Fault("$", f"{path} does not begin as it should; was it overwritten?")
                raise BadData((fault,))
            calls.seek(layout.HEADER_SIZE)
            for each in _mark_stretches(marks, calls, records):
                found.update(each)
    except FileNotFoundError:
        return found
    except OSError as error:
        raise UnusableJournal(f"the configurations {path} cannot be read: {error}") from error
    return found


def _mark_stretches(marks: Any, calls: Any, records: int) -> Iterator[list[tuple[int, int]]]:
    for first in range(0, records, _STRETCH):
        count = min(_STRETCH, records - first)
        numbers = array("I", _whole_marks(marks.read(count * layout.MARK.size), layout.MARK.size))
        content = _whole_marks(calls.read(count * layout.RECORD_SIZE), layout.RECORD_SIZE)
        words = array("Q", content)
        entered = words[_ENTERED::_WORDS]
        yield [
            (number, word)
            for number, word, begun in zip(numbers, words[::_WORDS], entered, strict=False)
            if number and begun
        ]


def _whole_marks(content: bytes, size: int) -> bytes:
    return content[: len(content) - len(content) % size]


_MAX_NUMBER: Final = 2**31
_MOST_TENSORS: Final = 30_000
"""How many Parts of tensors are kept, for the cases that are described next."""

TensorKey: TypeAlias = tuple[int, int, int, int | None]
Reference: TypeAlias = int | TensorKey | Part
"""A value by its number; a tensor by that, its identity, storage and device; or what is written."""


@dataclass(frozen=True, slots=True)
class NumberedCase:
    """A case by its references, in the order of names; ``opaque`` are the types of unknowns."""

    op: str
    arguments: tuple[tuple[str, Reference], ...]
    opaque: tuple[str, ...]


class JournalParts(JournalLines):
    """What the lines of one journal define, by their numbers."""

    def __init__(self, lines: Path) -> None:
        """Read the lines; BadData when they are none, UnusableJournal when they are not there."""
        self.cases: dict[int, NumberedCase] = {}
        self.outputs: dict[int, tuple[Reference, ...]] = {}
        self.plain: dict[str, dict[int, dict[str, Json]]] = {kind: {} for kind in FIELDS}
        """Sites, scopes, errors and reasons, as they are written."""
        self._written = WrittenParts()
        self._values: dict[int, Part | TensorParts] = {}
        self._tensors: dict[TensorKey, Part] = {}
        super().__init__(lines)

    def keep(self, kind: str, data: dict[str, Json]) -> None:
        """Describe what a line defines."""
        number = data[kind]
        if kind == "value":
            self._values[number] = self._value(data.get("is"))
        elif kind == "case":
            given = sorted(data["arguments"].items())
            arguments = tuple([(sys.intern(name), self._checked(each)) for name, each in given])
            op = sys.intern(data["op"])
            self.cases[number] = NumberedCase(op, arguments, _read_texts(data.get("opaque")))
        elif kind == "outputs":
            self.outputs[number] = tuple([self._checked(reference) for reference in data["are"]])
        else:
            self.plain[kind][number] = data

    def defines(self, kind: str, number: int) -> bool:
        """Tell whether there is such a number."""
        if kind == "case":
            return number in self.cases
        return number in (self.outputs if kind == "outputs" else self.plain[kind])

    def _value(self, data: Json) -> Part | TensorParts:
        if type(data) is dict and "$tensor" in data:
            return self._written.tensor(data)
        return self._written.part(data)

    def described(self, number: int) -> DescribedCase:
        """Return a case as a trove keeps it."""
        case = self.cases[number]
        return describe_parts(case.op, [(name, self._part(each)) for name, each in case.arguments])

    def output_text(self, number: int) -> str:
        """Return what a call gave as a list in canonical JSON."""
        return f"[{','.join([self._part(each).content for each in self.outputs[number]])}]"

    def _checked(self, given: Json) -> Reference:
        """Return what a reference means; BadData when that is nothing."""
        if type(given) is int:
            self._defined(given)
            return given
        if type(given) is dict and "is" in given:
            return self._written.part(given["is"])
        key = _tensor_key(given)
        if isinstance(self._defined(key[0]), Part):
            raise BadData((Fault("$", f"value {key[0]} is no tensor"),))
        return key

    def _part(self, reference: Reference) -> Part:
        if isinstance(reference, Part):
            return reference
        if isinstance(reference, int):
            value = self._values[reference]
            return value if isinstance(value, Part) else value.own()
        part = self._tensors.get(reference)
        if part is None:
            number, identity, storage, device = reference
            tensor = self._values[number]
            part = tensor if isinstance(tensor, Part) else tensor.part(identity, storage, device)
            if len(self._tensors) >= _MOST_TENSORS:
                self._tensors.clear()
            self._tensors[reference] = part
        return part

    def _defined(self, number: int) -> Part | TensorParts:
        value = self._values.get(number)
        if value is None:
            raise undefined("value", number)
        return value


def _tensor_key(given: Json) -> TensorKey:
    if type(given) is not dict:
        raise BadData((Fault("$", f"expected a reference, found {found(given)}"),))
    device = given.get("d")
    numbers = (given.get("t"), given.get("i"), given.get("s"), 0 if device is None else device)
    for number in numbers:
        if type(number) is not int or not 0 <= number < _MAX_NUMBER:
            raise BadData((Fault("$", f"a reference with {found(number)} for a number"),))
    return given["t"], given["i"], given["s"], device


def _read_texts(data: Json) -> tuple[str, ...]:
    return () if data is None else tuple(map(str, data))


__all__ = ["LOST", "JournalContent", "is_being_written"]

LOST: Final = "the journal could not be written"
"""The reason why calls are untraceable that were counted but not recorded."""

_MOST_KEPT: Final = 20_000
"""How many described cases are kept in memory: some kilobytes each."""

_WITH_CASE: Final = (layout.CASE, layout.OPAQUE)


class JournalContent:
    """The journal of one process; in memory are its lines, and about ten bytes for each call."""

    def __init__(self, lines: Path) -> None:
        """Read the lines; BadData when they are none, UnusableJournal when a file is not there."""
        self.path = lines
        # Before the lines, so that all that the calls refer to is there.
        self._scan = begin_scan(layout.calls_beside(lines))
        self._lines = JournalParts(lines)
        self._ids: dict[int, str] = {}
        self._described: dict[int, DescribedCase] = {}

    @property
    def run(self) -> Run:
        """The run that the journal is a part of; BadData when it does not say."""
        if self._lines.run is None:
            problem = f"the journal {self.path} does not tell of which run it is; was it cut off?"
            raise BadData((Fault("$", problem),))
        return self._lines.run

    @property
    def process(self) -> int:
        """The number of the process among those of its run."""
        return self._lines.process

    @property
    def pid(self) -> int:
        """The process id of the writer."""
        return self._lines.pid

    @property
    def tests(self) -> tuple[TestResult, ...]:
        """How tests ended, in the order in which they did."""
        return tuple(self._settled.tests)

    @property
    def size(self) -> int:
        """How many bytes of the lines file were read, a torn last line included."""
        return self._settled.size

    @property
    def calls(self) -> int:
        """How many calls had begun."""
        return self._scanned[0].calls

    @property
    def lost(self) -> int:
        """How many calls were made that could not be recorded."""
        return self._scan.lost

    @property
    def faults(self) -> Counts:
        """What went wrong in the tracing itself; none when the process did not end in order."""
        ending = self._settled.ending
        return () if ending is None else ending.faults

    @property
    def complete(self) -> bool:
        """Whether the process ended in order, and every one of its calls."""
        lines = self._settled
        if lines.ending is None or lines.torn:
            return False
        return all(group.outcome is not CallOutcome.UNFINISHED for group in self.groups())

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all lines and calls; equal for equal journals only."""
        scan, _ = self._scanned
        both = f"{scan.digest} {self._lines.digest} {self._lines.torn}"
        return sha256(both.encode("ascii")).hexdigest()

    @cached_property
    def accounting(self) -> Accounting:
        """What became of every call, for a trove that knows none of the cases; it adds up."""
        kinds: dict[int, Counter[str]] = {layout.FILTERED: Counter(), layout.UNTRACEABLE: Counter()}
        scan, _ = self._scanned
        lines, ids = self._lines, dict(self.case_ids())
        stored: set[str] = set()
        repeated = 0
        for (word, *_), tally in scan.tallies.items():
            number, kind = layout.number_of(word), layout.kind_of(word)
            if kind == layout.CASE:
                stored.add(ids[number])
                repeated += tally.calls
            elif kind == layout.OPAQUE:
                case = lines.cases[number]
                held = ", ".join(sorted(set(case.opaque)))
                kinds[layout.UNTRACEABLE][f"{case.op} holds {held}"] += tally.calls
            else:
                kinds[kind][lines.plain["reason"][number]["text"]] += tally.calls
        kinds[layout.UNTRACEABLE][LOST] += scan.lost
        return Accounting(
            observed=scan.calls + scan.lost,
            stored=len(stored),
            deduplicated=repeated - len(stored),
            filtered=_counts(kinds[layout.FILTERED]),
            untraceable=_counts(kinds[layout.UNTRACEABLE]),
        )

    def cases(self) -> Iterator[tuple[int, DescribedCase]]:
        """Yield all cases with their numbers, also those that no call refers to.

        The same case may come twice with different numbers.
        """
        for number in sorted(self._settled.cases):
            case = self.case(number)
            self._ids[number] = case.case_id
            yield number, case

    def case(self, number: int) -> DescribedCase:
        """Return a case by its number; the first of many are kept, others are made anew."""
        case = self._described.get(number)
        if case is None:
            case = self._lines.described(number)
            if len(self._described) < _MOST_KEPT:
                self._described[number] = case
        return case

    def case_ids(self) -> Iterator[tuple[int, str]]:
        """Yield the numbers and ids of all cases, in the order of the numbers."""
        if len(self._ids) != len(self._settled.cases):
            for number, case in self.cases():
                self._ids[number] = case.case_id
        yield from sorted(self._ids.items())

    def scopes(self) -> Iterator[tuple[int, Scope]]:
        """Yield the scopes of calls with their numbers."""
        for number, data in sorted(self._settled.plain["scope"].items()):
            yield number, layout.scope_from(data)

    def endings(self) -> Iterator[tuple[int, bool, str]]:
        """Yield how calls ended: number, whether by an error, and its text or the outputs.

        Outputs are a list as canonical JSON. Errors and outputs are numbered apart.
        """
        lines = self._settled
        for number in sorted(lines.outputs):
            yield number, False, lines.output_text(number)
        for number, data in sorted(lines.plain["error"].items()):
            yield number, True, data["text"]

    def groups(self) -> Iterator[CallGroup]:
        """Yield all calls by what they have in common; those without a case have the number 0."""
        yield from self._groups

    def config_calls(self) -> Iterator[tuple[str, int, int]]:
        """Yield calls by where their arguments came from: path of a config, case, how many.

        Only calls of the operations that the entry is for; any where it does not say.
        """
        scan, _ = self._scanned
        entries, cases = self._lines.plain["config"], self._lines.cases
        counted: Counter[tuple[str, int]] = Counter()
        for (number, word), count in marked_calls(self.path, scan.records).items():
            case = layout.number_of(word) if layout.kind_of(word) in _WITH_CASE else 0
            if not case or layout.depth_of(word) or number not in entries:
                continue
            ops = entries[number]["ops"]
            if not ops or cases[case].op in ops:
                counted[entries[number]["path"], case] += count
        for (path, case), count in sorted(counted.items()):
            yield path, case, count

    def blocks(self) -> Iterator[CallBlock]:
        """Yield all calls in packed form, in the order in which they began."""
        yield from self._scanned[1]

    def dictionary(self) -> bytes:
        """Return what ``calls_of`` needs, together with the blocks, to give all calls back."""
        lines = self._settled
        tables = {
            "cases": {number: write(case_id) for number, case_id in self.case_ids()},
            "outputs": {number: text for number, is_error, text in self.endings() if not is_error},
            "errors": _texts(lines, "error", "text"),
            "sites": _texts(lines, "site", "file", "line"),
            "reasons": _texts(lines, "reason", "why", "text"),
            "scopes": {number: write(layout.scope_data(scope)) for number, scope in self.scopes()},
            "sketches": {index: write(of) for index, of in sorted(lines.sketches.items())},
        }
        numbers = {
            "version": VERSION,
            "process": lines.process,
            "started_ns": lines.started_ns,
            "clock_ns": lines.clock_ns,
        }
        return pack_dictionary(numbers, tables)

    @property
    def _settled(self) -> JournalParts:
        """The lines; of a journal that may still grow, all calls are read before anything else."""
        if self._lines.ending is None:
            self._scanned  # noqa: B018 - read now, and kept
        return self._lines

    @cached_property
    def _scanned(self) -> tuple[CallScan, tuple[CallBlock, ...]]:
        blocks = tuple(self._scan.blocks())
        # Calls that ended meanwhile refer to what was written meanwhile.
        self._lines.refresh()
        _check_references(self._scan, self._lines)
        return self._scan, blocks

    @cached_property
    def _groups(self) -> tuple[CallGroup, ...]:
        scan, _ = self._scanned
        alike: dict[tuple[int, int, int, int, bool], Tally] = {}
        for (word, scope, ending, outcome), tally in scan.tallies.items():
            case = layout.number_of(word) if layout.kind_of(word) in _WITH_CASE else 0
            key = (case, scope, ending, outcome, layout.depth_of(word) == 0)
            alike[key] = tally.and_also(alike.get(key))
        return tuple(_group(key, alike[key]) for key in sorted(alike))


def _check_references(scan: CallScan, lines: JournalParts) -> None:
    """Refuse calls that refer to what the lines do not define."""
    used: dict[str, set[int]] = {"site": scan.sites - {0}}
    for word, scope, ending, outcome in scan.tallies:
        defined = "case" if layout.kind_of(word) in _WITH_CASE else "reason"
        used.setdefault(defined, set()).add(layout.number_of(word))
        if scope:
            used.setdefault("scope", set()).add(scope)
        if ending:
            ended = "error" if outcome == layout.RAISED else "outputs"
            used.setdefault(ended, set()).add(ending)
    for kind, numbers in used.items():
        for number in numbers:
            if not lines.defines(kind, number):
                raise undefined(kind, number)


def _group(key: tuple[int, int, int, int, bool], tally: Tally) -> CallGroup:
    case, scope, ending, outcome, outermost = key
    finished = outcome != 0
    if tally.total_ns >= MAX_CLOCK:
        raise BadData((Fault("calls", f"calls that took {tally.total_ns} ns, which cannot be"),))
    return CallGroup(
        case=case,
        scope=scope,
        ending=ending,
        outcome=OUTCOMES[outcome],
        outermost=outermost,
        count=tally.calls,
        total_ns=tally.total_ns,
        shortest_ns=tally.shortest_ns if finished else None,
        longest_ns=tally.longest_ns if finished else None,
    )


def _texts(lines: JournalParts, kind: str, *names: str) -> dict[int, str]:
    """Return parts of the lines of one kind as JSON: a list of them, or the one that there is."""
    entries = sorted(lines.plain[kind].items())
    parts = {number: [data[name] for name in names] for number, data in entries}
    return {number: write(each if len(each) > 1 else each[0]) for number, each in parts.items()}


def _counts(counter: Counter[str]) -> Counts:
    return tuple((name, count) for name, count in counter.most_common() if count)

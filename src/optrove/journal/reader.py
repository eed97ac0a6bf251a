"""Read a journal in one pass, no matter how the process that wrote it ended.

The reader trusts nothing. The last line may be torn, and the last calls unfinished, when the
writer was killed; anything else that does not fit the format is BadData.

Lines are checked as they are read, because each defines a number before others use it; their JSON
is not kept. A case is kept as the numbers of its arguments and joined from their Parts on demand:
a hundred thousand whole cases would not fit into memory. Calls are read in blocks, counted, and
kept in packed form, about ten bytes each.

The journal may still be written. The reader takes the calls that had begun when it was made, and
reads the lines again after the calls. So everything in it fits together, and stays the same.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from optrove.errors import BadData, UnusableJournal
from optrove.journal import format as layout
from optrove.journal.calls import (
    BLOCK_CALLS,
    FAMILIES,
    FLOW,
    MAX_CLOCK,
    NUMBERS,
    PLACES,
    VERSION,
    Columns,
    Dictionary,
    calls_of,
    columns_of,
    pack,
    pack_dictionary,
    pack_flow,
)
from optrove.journal.families import Family, exact_call, find_families
from optrove.journal.flow import read_entries
from optrove.model.records import Run, TestResult
from optrove.serializer.described import (
    Part,
    TensorParts,
    WrittenParts,
    case_of,
    describe_parts,
)
from optrove.serializer.records import record_from_builtins
from optrove.serializer.text import Json, found, read, write
from optrove.serializer.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.model.records import Call, Counts, Scope
    from optrove.model.trove import CallBlock, DescribedCase
    from optrove.model.values import Value

_TEXT: Final = (str, type(None))
_FIELDS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "value": {},
    "case": {
        "op": (str,),
        "arguments": (dict,),
        "opaque": (list, type(None)),
        "places": (list, type(None)),
    },
    "outputs": {"are": (list,)},
    "site": {"file": (str,), "line": (int,)},
    "scope": {"test_id": _TEXT, "phase": _TEXT, "module": _TEXT, "mode": _TEXT},
    "error": {"text": (str,)},
    "config": {"path": (str,), "ops": (list,)},
    "reason": {"why": (str,), "text": (str,)},
}
"""The kinds of numbered lines, and the types of their fields."""

_HEADER: Final = dict.fromkeys(("process", "pid", "started_ns", "clock_ns"), (int,))
_ENDING: Final = {"finished_at": (str,), "exit_code": (int, type(None)), "faults": (dict,)}
_KINDS: Final = frozenset((layout.CASE, layout.OPAQUE, layout.FILTERED, layout.UNTRACEABLE))

_MAX_NUMBER: Final = 2**31
_MAX_TENSORS: Final = 30_000
"""How many Parts of tensors are kept for the cases that are described next."""
_MAX_DESCRIBED: Final = 20_000
"""How many described cases are kept in memory: some kilobytes each."""

_ENTERED: Final = 2
_WORDS: Final = layout.RECORD_SIZE // 8
_TAIL: Final = 16_384

CallKey: TypeAlias = tuple[int, int, int, int]
"""First word, scope, ending and outcome of a record."""
TensorKey: TypeAlias = tuple[int, int, int, int | None]
Reference: TypeAlias = int | TensorKey | Part
"""A value's number; a tensor's number with its identity, storage and device; or a value itself."""


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """The last line of a journal whose process ended in order."""

    finished_at: str
    exit_code: int | None
    faults: Counts


class Tally(NamedTuple):
    """The number of calls with the same key, and how long they took."""

    calls: int
    total_ns: int
    shortest_ns: int
    longest_ns: int


class JournalReader:
    """The journal of one process, as it was when the reader was made.

    ``blocks`` are all calls in packed form, in the order in which they began; ``calls`` is their
    number, and ``lost`` the number of those that could not be recorded. ``tallies`` count calls by
    what they have in common, in the order of their first calls. By the op_index of their call,
    ``sketches`` are the statistics of tensors and ``capsules`` the hashes of kept ones;
    ``capsule_counts`` says how many were kept, and why others were not. ``process`` numbers the
    process among those of its run, which is None if the journal was cut off. ``ending`` is None if
    the process did not end in order; ``torn`` says whether the last line is incomplete; ``size``
    counts the bytes of the lines file that were read.
    """

    def __init__(self, lines: Path) -> None:
        """Read the journal; BadData when it is damaged, UnusableJournal when a file is missing."""
        self.path = lines
        # Before the lines are read, so that they define everything that these calls refer to.
        self._calls = _Calls(lines)
        self._lines = _Lines(lines)
        self.blocks: Sequence[CallBlock] = tuple(self._calls.blocks())
        # Calls that ended meanwhile refer to lines that were written meanwhile.
        self._lines.refresh()
        self.calls = self._calls.count
        self.lost = self._calls.lost
        self.tallies: Mapping[CallKey, Tally] = self._calls.tallies
        self.run = self._lines.run
        self.process: int = self._lines.header["process"]
        self.pid: int = self._lines.header["pid"]
        self.ending = self._lines.ending
        self.torn = self._lines.torn
        self.tests = tuple(self._lines.tests)
        self.sketches: Mapping[int, Json] = self._lines.sketches
        self.capsules: Mapping[int, dict[str, Json]] = self._lines.capsules
        self.capsule_counts: dict[str, Json] = self._lines.capsule_counts
        self.size = self._lines.size
        self._entries = tuple(read_entries(lines))
        self._check_references()
        self._ids: dict[int, str] = {}
        self._families: tuple[Family, ...] = ()
        self._numbers: dict[str, int] = {}
        self._described: dict[int, DescribedCase] = {}
        self._dictionary: bytes | None = None

    @property
    def complete(self) -> bool:
        """Whether the process and all of its calls ended in order."""
        ended = self.ending is not None and not self.torn
        return ended and all(outcome for *_, outcome in self.tallies)

    @property
    def digest(self) -> str:
        """The SHA-256 of all lines and calls."""
        both = f"{self._calls.digest} {self._lines.digest} {self.torn}"
        return sha256(both.encode("ascii")).hexdigest()

    def op(self, number: int) -> str:
        """Return the op of a case."""
        return self._lines.cases[number].op

    def opaque(self, number: int) -> tuple[str, ...]:
        """Return the types of those arguments of a case that are of unknown types."""
        return self._lines.cases[number].opaque

    def reason(self, number: int) -> str:
        """Return the reason why calls have no case."""
        return str(self._lines.plain["reason"][number]["text"])

    def error(self, number: int) -> str:
        """Return the text of an exception; empty for zero, which stands for an unknown one."""
        return str(self._lines.plain["error"][number]["text"]) if number else ""

    def case(self, number: int) -> DescribedCase:
        """Return a case by its number."""
        case = self._described.get(number)
        if case is None:
            case = self._lines.described(number)
            if len(self._described) < _MAX_DESCRIBED:
                self._described[number] = case
        return case

    def case_ids(self) -> Mapping[int, str]:
        """Return the ids of all cases by their numbers, also of cases without calls.

        Two numbers may stand for the same case: the first one is that of the case itself, others
        may be those of cases that count as this one.
        """
        if not self._ids:
            ids = {number: self.case(number).case_id for number in sorted(self._lines.cases)}
            endings = self._endings_by_case()

            def outputs(number: int) -> Iterator[tuple[Value, ...]]:
                for each in endings.get(number, ()):
                    yield tuple(map(decode, read(self._lines.output_text(each))))

            # A stretch of calls is executed with the numbers that each had.
            families = () if self._entries else find_families(ids, self.case, outputs)
            self._families = tuple(families)
            for family in self._families:
                ids.update(dict.fromkeys(family.others, ids[family.first]))
            self._ids = ids
        return self._ids

    def families(self) -> tuple[Family, ...]:
        """Return the cases that count as another one, which differs in numbers only."""
        self.case_ids()
        return self._families

    def case_named(self, case_id: str) -> DescribedCase:
        """Return a case by its id."""
        if not self._numbers:
            for number, each in self.case_ids().items():
                self._numbers.setdefault(each, number)
        return self.case(self._numbers[case_id])

    def _endings_by_case(self) -> dict[int, set[int]]:
        """Return the numbers of the outputs of each case."""
        found: defaultdict[int, set[int]] = defaultdict(set)
        for word, _, ending, outcome in self.tallies:
            if outcome == layout.RETURNED and ending and layout.has_case(word):
                found[layout.number_of(word)].add(ending)
        return found

    def scopes(self) -> Iterator[tuple[int, Scope]]:
        """Yield the scopes of calls with their numbers."""
        for number, data in sorted(self._lines.plain["scope"].items()):
            yield number, layout.scope_from(data)

    def endings(self) -> Iterator[tuple[int, bool, str]]:
        """Yield how calls ended: number, whether by an error, and its text or the outputs.

        Outputs are a list as canonical JSON. Errors and outputs are numbered separately.
        """
        for number in sorted(self._lines.outputs):
            yield number, False, self._lines.output_text(number)
        for number, data in sorted(self._lines.plain["error"].items()):
            yield number, True, data["text"]

    def config_calls(self) -> Iterator[tuple[str, int, int]]:
        """Yield calls by the entry that their arguments came from: path, case, how many.

        An entry that names its ops counts for calls of these only.
        """
        entries = self._lines.plain["config"]
        counted: Counter[tuple[str, int]] = Counter()
        for (entry, word), count in self._calls.marked.items():
            if not layout.has_case(word) or layout.depth_of(word) or entry not in entries:
                continue
            case, ops = layout.number_of(word), entries[entry]["ops"]
            if not ops or self.op(case) in ops:
                counted[entries[entry]["path"], case] += count
        for (path, case), count in sorted(counted.items()):
            yield path, case, count

    def dictionary(self) -> bytes:
        """Return the dictionary that the blocks refer to."""
        if self._dictionary is None:
            lines = self._lines
            tables = {
                "cases": {number: write(case_id) for number, case_id in self.case_ids().items()},
                "outputs": {number: lines.output_text(number) for number in sorted(lines.outputs)},
                "errors": lines.texts("error", "text"),
                "sites": lines.texts("site", "file", "line"),
                "scopes": {each: write(layout.scope_data(scope)) for each, scope in self.scopes()},
            }
            numbers = {name: lines.header[name] for name in ("process", "started_ns", "clock_ns")}
            if lines.places:
                tables[PLACES] = lines.places
            tables |= self._family_tables()
            if self._entries:
                tables[FLOW] = {1: write(pack_flow(self._entries))}
            self._dictionary = pack_dictionary({"version": VERSION, **numbers}, tables)
        return self._dictionary

    def _family_tables(self) -> dict[str, dict[int, str]]:
        """Return the tables of the dictionary about families; none if there is no family."""
        calls: Counter[int] = Counter()
        for word, tally in ((key[0], each) for key, each in self.tallies.items()):
            if layout.has_case(word):
                calls[layout.number_of(word)] += tally.calls
        families, numbers = {}, {}
        for family in self.families():
            counted = sum(calls[number] for number in family.others)
            varied = [[each.path, each.values, each.lowest, each.highest] for each in family.varied]
            families[family.first] = write([len(family.others), counted, varied])
            for number, values in family.others.items():
                numbers[number] = write([encode(each) for each in values])
        return {FAMILIES: families, NUMBERS: numbers} if families else {}

    def calls_with_case(self) -> Iterator[Call]:
        """Yield every call that has a case, in the order in which they began."""
        return calls_of(self.dictionary(), self.blocks, self._run_id)

    def exact_calls(self) -> Iterator[tuple[Call, Case]]:
        """Yield the calls of ``calls_with_case``, each with its own case."""
        cases: dict[str, Case] = {}
        for call in self.calls_with_case():
            if call.case_id not in cases:
                cases[call.case_id] = case_of(self.case_named(call.case_id).content)
            yield exact_call(call, cases[call.case_id])

    def in_flight(self) -> Iterator[tuple[Call, Case]]:
        """Yield the calls with a case that had begun and not ended, each with its own case."""
        if self._calls.in_flight:
            known = Dictionary(self.dictionary())
            for op_index, row in self._calls.in_flight:
                call = known.call(op_index, row, self._run_id)
                yield exact_call(call, case_of(self.case_named(call.case_id).content))

    @property
    def has_flow(self) -> bool:
        """Whether the flow of tensors was recorded."""
        return bool(self._entries)

    @property
    def _run_id(self) -> str:
        return "unknown" if self.run is None else self.run.id

    def _check_references(self) -> None:
        """Refuse calls that refer to numbers that no line defines."""
        used: defaultdict[str, set[int]] = defaultdict(set)
        used["site"] = self._calls.sites
        for word, scope, ending, outcome in self.tallies:
            used["case" if layout.has_case(word) else "reason"].add(layout.number_of(word))
            used["scope"].add(scope)
            used["error" if outcome == layout.RAISED else "outputs"].add(ending)
        for kind, numbers in used.items():
            defined = self._lines.defined(kind)
            for number in numbers:
                # Every call has a case or a reason; zero stands for nothing elsewhere.
                if number not in defined and (number or kind in ("case", "reason")):
                    raise _undefined(kind, number)


@dataclass(frozen=True, slots=True)
class _CaseLine:
    """A case by its references, in the order of names; ``opaque`` are unknown types."""

    op: str
    arguments: tuple[tuple[str, Reference], ...]
    opaque: tuple[str, ...]


class _Lines:
    """The definitions in the lines file, by number; ``refresh`` reads appended lines."""

    def __init__(self, path: Path) -> None:
        self.torn = False
        self.size = 0
        self.run: Run | None = None
        self.tests: list[TestResult] = []
        self.sketches: dict[int, Json] = {}
        self.capsules: dict[int, dict[str, Json]] = {}
        self.capsule_counts: dict[str, Json] = {}
        self.ending: JournalEnd | None = None
        self.cases: dict[int, _CaseLine] = {}
        self.places: dict[int, str] = {}
        self.outputs: dict[int, tuple[Reference, ...]] = {}
        self.plain: dict[str, dict[int, dict[str, Json]]] = {kind: {} for kind in _FIELDS}
        """Sites, scopes, errors, configs and reasons as JSON."""
        self._written = WrittenParts()
        self._values: dict[int, Part | TensorParts] = {}
        self._tensors: dict[TensorKey, Part] = {}
        self._path = path
        self._hash = sha256()
        self._read = 0
        self._number = 1
        first, *others = self._new_lines() or [b""]
        self.header = _header(first)
        self._take_all(others)

    @property
    def digest(self) -> str:
        """The SHA-256 of all complete lines."""
        return self._hash.hexdigest()

    def refresh(self) -> None:
        """Read the lines that were appended since the last time."""
        self._take_all(self._new_lines())

    def defined(self, kind: str) -> Mapping[int, object]:
        """Return the definitions of a kind, by number."""
        if kind == "case":
            return self.cases
        return self.outputs if kind == "outputs" else self.plain[kind]

    def texts(self, kind: str, *names: str) -> dict[int, str]:
        """Return fields of the lines of one kind as JSON: a list of them, or the only one."""
        entries = sorted(self.plain[kind].items())
        parts = {number: [data[name] for name in names] for number, data in entries}
        return {number: write(each if len(each) > 1 else each[0]) for number, each in parts.items()}

    def described(self, number: int) -> DescribedCase:
        """Return a case as a trove stores it."""
        case = self.cases[number]
        return describe_parts(case.op, [(name, self._part(each)) for name, each in case.arguments])

    def output_text(self, number: int) -> str:
        """Return the outputs of a call as a list in canonical JSON."""
        return f"[{','.join([self._part(each).content for each in self.outputs[number]])}]"

    def _new_lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._read)
                text = stream.read()
        except OSError as error:
            raise UnusableJournal(f"the journal {self._path} cannot be read: {error}") from error
        *complete, rest = text.split(b"\n")
        self.torn = bool(rest)
        self.size = self._read + len(text)
        self._read = self.size - len(rest)
        self._hash.update(text[: len(text) - len(rest)])
        return complete

    def _take_all(self, lines: list[bytes]) -> None:
        for text in lines:
            self._number += 1
            self._take(read(text), f"line {self._number}")

    def _take(self, data: Json, place: str) -> None:
        if type(data) is not dict:
            raise BadData.at(place, f"expected an object, found {found(data)}")
        for kind, fields in _FIELDS.items():
            if type(data.get(kind)) is int:
                _check(data, fields, place)
                self._define(kind, data)
                return
        if "run" in data:
            self.run = record_from_builtins(data["run"], Run)
        elif "test" in data:
            self.tests.append(record_from_builtins(data["test"], TestResult))
        elif "sketch" in data:
            _check(data, {"sketch": (int,)}, place)
            self.sketches[data["sketch"]] = data.get("of")
        elif "capsule" in data or "capsules" in data:
            self._take_capsule(data, place)
        elif "end" in data:
            end = data["end"]
            _check(end, _ENDING, place)
            _check(end["faults"], dict.fromkeys(end["faults"], (int,)), place)
            faults = tuple(sorted(end["faults"].items()))
            self.ending = JournalEnd(end["finished_at"], end.get("exit_code"), faults)
        else:
            problem = f"a line of unknown kind: {', '.join(map(str, data))}"
            raise BadData.at(place, problem)

    def _take_capsule(self, data: dict[str, Json], place: str) -> None:
        if "capsules" in data:
            self.capsule_counts = data["capsules"]
            return
        _check(data, {"capsule": (int,)}, place)
        kept = self.capsules.setdefault(data["capsule"], {})
        for part in {"inputs", "outputs"} & data.keys():
            _check(data[part], dict.fromkeys(data[part], (list,)), place)
            kept[part] = data[part]

    def _define(self, kind: str, data: dict[str, Json]) -> None:
        number = data[kind]
        if kind == "value":
            value = data.get("is")
            tensor = type(value) is dict and "$tensor" in value
            self._values[number] = (self._written.tensor if tensor else self._written.part)(value)
        elif kind == "case":
            given = sorted(data["arguments"].items())
            arguments = tuple([(sys.intern(name), self._reference(each)) for name, each in given])
            opaque = tuple(map(str, data.get("opaque") or ()))
            self.cases[number] = _CaseLine(sys.intern(data["op"]), arguments, opaque)
            if data.get("places"):
                self.places[number] = write(list(map(str, data["places"])))
        elif kind == "outputs":
            self.outputs[number] = tuple([self._reference(each) for each in data["are"]])
        else:
            self.plain[kind][number] = data

    def _reference(self, given: Json) -> Reference:
        """Return a reference; BadData when it refers to nothing."""
        if type(given) is int:
            self._value(given)
            return given
        if type(given) is dict and "is" in given:
            return self._written.part(given["is"])
        key = _tensor_key(given)
        if isinstance(self._value(key[0]), Part):
            raise BadData.at("$", f"value {key[0]} is not a tensor")
        return key

    def _value(self, number: int) -> Part | TensorParts:
        value = self._values.get(number)
        if value is None:
            raise _undefined("value", number)
        return value

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
            if len(self._tensors) >= _MAX_TENSORS:
                self._tensors.clear()
            self._tensors[reference] = part
        return part


class _Calls:
    """The calls file, up to the last call that has begun; counted while ``blocks`` reads it."""

    def __init__(self, lines: Path) -> None:
        self.count = 0
        self.digest = ""
        self.sites: set[int] = set()
        self.tallies: dict[CallKey, Tally] = {}
        self.in_flight: list[tuple[int, tuple[int, ...]]] = []
        """The op_index and the row of each call with a case that has not ended."""
        self.marked: Counter[tuple[int, int]] = Counter()
        """How many calls have each config entry and first word."""
        self._lines = lines
        self._path = layout.calls_beside(lines)
        try:
            with self._path.open("rb") as stream:
                self.lost = layout.lost_in(stream.read(layout.HEADER_SIZE))
                self._records = _begun(stream)
        except OSError as error:
            raise self._unusable(error) from error

    def blocks(self) -> Iterator[CallBlock]:
        """Yield all calls in packed form; BadData for records of unknown kind."""
        hashed = sha256(layout.LOST.pack(self.lost))
        try:
            with ExitStack() as stack:
                calls = stack.enter_context(self._path.open("rb"))
                calls.seek(layout.HEADER_SIZE)
                marks = self._open_marks(stack)
                for first in range(0, self._records, BLOCK_CALLS):
                    count = min(BLOCK_CALLS, self._records - first)
                    records = _read_whole(calls, count, layout.RECORD_SIZE)
                    hashed.update(records)
                    if marks is not None:
                        self._count_marks(records, _read_whole(marks, count, layout.MARK.size))
                    for columns in _stretches(records, first):
                        self._count(columns)
                        yield pack(columns)
        except OSError as error:
            raise self._unusable(error) from error
        self.digest = hashed.hexdigest()

    def _open_marks(self, stack: ExitStack) -> IO[bytes] | None:
        """Open the configs file; None when no arguments came from a run configuration."""
        path = layout.configs_beside(self._lines)
        if not path.exists():
            return None
        marks = stack.enter_context(path.open("rb"))
        if not marks.read(layout.HEADER_SIZE).startswith(layout.CONFIGS_MAGIC):
            raise BadData.at("$", f"{path} has no header; was it overwritten?")
        return marks

    def _count_marks(self, records: bytes, marks: bytes) -> None:
        words = array("Q", records)
        rows = zip(array("I", marks), words[::_WORDS], words[_ENTERED::_WORDS], strict=False)
        self.marked.update((mark, word) for mark, word, entered in rows if mark and entered)

    def _count(self, columns: Columns) -> None:
        self.count += len(columns)
        self.sites.update(columns.sites)
        if 0 in columns.outcomes:
            rows = columns.rows()
            self.in_flight += (each for each in rows if not each[1][-1] and _has_case(each))
        times: defaultdict[CallKey, list[int]] = defaultdict(list)
        keys = zip(columns.words, columns.scopes, columns.endings, columns.outcomes, strict=True)
        for key, took in zip(keys, columns.took, strict=True):
            times[key].append(took)
        for key, each in times.items():
            before = self.tallies.get(key)
            if before is None:
                _check_key(key)
                before = Tally(0, 0, MAX_CLOCK, 0)
            total_ns = before.total_ns + sum(each)
            if total_ns >= MAX_CLOCK:
                raise BadData.at("calls", f"a total of {total_ns} ns is out of range")
            self.tallies[key] = Tally(
                before.calls + len(each),
                total_ns,
                min(before.shortest_ns, *each),
                max(before.longest_ns, *each),
            )

    def _unusable(self, error: OSError) -> UnusableJournal:
        return UnusableJournal(f"the calls {self._path} cannot be read: {error}")


def _begun(stream: IO[bytes]) -> int:
    """Return the number of records up to the last that has begun; files are longer than that."""
    end = (stream.seek(0, 2) - layout.HEADER_SIZE) // layout.RECORD_SIZE
    while end > 0:
        begin = max(0, end - _TAIL)
        stream.seek(layout.HEADER_SIZE + begin * layout.RECORD_SIZE)
        entered = _entered(_read_whole(stream, end - begin, layout.RECORD_SIZE))
        for place in range(len(entered) - 1, -1, -1):
            if entered[place]:
                return begin + place + 1
        end = begin
    return 0


def _read_whole(stream: IO[bytes], count: int, size: int) -> bytes:
    """Return up to ``count`` whole records; the file may be cut off meanwhile."""
    content = stream.read(count * size)
    return content[: len(content) - len(content) % size]


def _entered(records: bytes) -> list[int]:
    return array("Q", records)[_ENTERED::_WORDS].tolist()


def _stretches(records: bytes, first: int) -> Iterator[Columns]:
    """Yield the records that have begun; records that were taken and never used separate them."""
    entered = _entered(records)
    size = layout.RECORD_SIZE
    unused = [place for place, each in enumerate(entered) if not each] if 0 in entered else []
    begin = 0
    for end in (*unused, len(entered)):
        if end > begin:
            yield columns_of(records[begin * size : end * size], first + begin)
        begin = end + 1


def _has_case(call: tuple[int, tuple[int, ...]]) -> bool:
    return layout.has_case(call[1][0])


def _check_key(key: CallKey) -> None:
    word, _, _, outcome = key
    if outcome not in layout.OUTCOMES or layout.kind_of(word) not in _KINDS:
        raise BadData.at("calls", "a record of unknown kind or outcome; was the file overwritten?")


def _header(text: bytes) -> dict[str, Any]:
    header = read(text) if text else None
    if type(header) is not dict or header.get("format") != layout.FORMAT:
        problem = f'expected the header {{"format": "{layout.FORMAT}", ...}}'
        raise BadData.at("line 1", problem)
    if header.get("version") != layout.VERSION:
        problem = (
            f"the journal has version {found(header.get('version'))}, this optrove reads "
            f"{layout.VERSION}; read it with the optrove that wrote it"
        )
        raise BadData.at("line 1", problem)
    _check(header, _HEADER, "line 1")
    return header


def _check(data: Json, fields: Mapping[str, tuple[type, ...]], place: str) -> None:
    """Refuse an object whose fields are not of these types."""
    if type(data) is not dict:
        raise BadData.at(place, f"expected an object, found {found(data)}")
    for name, kinds in fields.items():
        if type(data.get(name)) not in kinds:
            problem = f"{name} is {found(data.get(name))}, which is of the wrong type"
            raise BadData.at(place, problem)


def _tensor_key(given: Json) -> TensorKey:
    if type(given) is not dict:
        raise BadData.at("$", f"expected a reference, found {found(given)}")
    device = given.get("d")
    numbers = (given.get("t"), given.get("i"), given.get("s"), 0 if device is None else device)
    for number in numbers:
        if type(number) is not int or not 0 <= number < _MAX_NUMBER:
            raise BadData.at("$", f"a reference with {found(number)} for a number")
    return given["t"], given["i"], given["s"], device


def _undefined(kind: str, number: int) -> BadData:
    return BadData.at("$", f"the journal refers to {kind} {number}, which it does not define")

"""Read a journal, no matter how the process that wrote it ended.

A reader takes nothing on trust. The last line may be torn when the writer was killed; anything
else that does not fit the format is BadData. What becomes of the numbered lines is for the
subclasses to say.

A reader takes nothing on trust. The last line may be torn, and the last calls unfinished, when
the writer was killed; anything else that does not fit the format is BadData.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault, UnusableJournal
from optrove.journal import format as layout
from optrove.model.case import Case
from optrove.model.records import (
    Call,
    CallOutcome,
    CallSite,
    Counts,
    DeviceParameters,
    Phase,
    Run,
    TestResult,
)
from optrove.model.values import TensorSpec, TtnnPlacement, Value
from optrove.serializer.records import record_from_builtins
from optrove.serializer.text import Json, found, read
from optrove.serializer.wire import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


_TEXT: Final = (str, type(None))

FIELDS: Final[dict[str, dict[str, tuple[type, ...]]]] = {
    "value": {},
    "case": {"op": (str,), "arguments": (dict,), "opaque": (list, type(None))},
    "outputs": {"are": (list,)},
    "site": {"file": (str,), "line": (int,)},
    "scope": {"test_id": _TEXT, "phase": _TEXT, "module": _TEXT, "mode": _TEXT},
    "error": {"text": (str,)},
    "config": {"path": (str,), "ops": (list,)},
    "reason": {"why": (str,), "text": (str,)},
}
"""The kinds of numbered lines, and of which types their parts are."""

_HEADER: Final = dict.fromkeys(("process", "pid", "started_ns", "clock_ns"), (int,))
_ENDING: Final = {"finished_at": (str,), "exit_code": (int, type(None)), "faults": (dict,)}


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process that ended in order has closed its journal."""

    finished_at: str
    exit_code: int | None
    faults: Counts


class JournalLines(ABC):
    """The lines of one journal; ``refresh`` reads what has been added."""

    def __init__(self, lines: Path) -> None:
        """Read the lines file; BadData when it is none, UnusableJournal when it is not there."""
        self.torn = False
        self.size = 0
        self.run: Run | None = None
        self.tests: list[TestResult] = []
        self.sketches: dict[int, Json] = {}
        self.ending: Ending | None = None
        self._lines = lines
        self._hash = sha256()
        self._read = 0
        self._number = 1
        first, *others = self._new_lines() or [b""]
        self._header = _header(first)
        self._take_all(others)

    @abstractmethod
    def keep(self, kind: str, data: dict[str, Json]) -> None:
        """Take a numbered line, which has all of the FIELDS of its kind."""

    @property
    def process(self) -> int:
        """The number of the process among those of its run."""
        return int(self._header["process"])

    @property
    def pid(self) -> int:
        """The process id of the writer."""
        return int(self._header["pid"])

    @property
    def started_ns(self) -> int:
        """The time of day when the journal was begun."""
        return int(self._header["started_ns"])

    @property
    def clock_ns(self) -> int:
        """What the clock of the calls showed at that time."""
        return int(self._header["clock_ns"])

    @property
    def digest(self) -> str:
        """The SHA-256 of all complete lines that have been read."""
        return self._hash.hexdigest()

    def refresh(self) -> None:
        """Read what has been written since the last time."""
        self._take_all(self._new_lines())

    def _new_lines(self) -> list[bytes]:
        """Return the complete lines that have been written since the last time."""
        try:
            with self._lines.open("rb") as stream:
                stream.seek(self._read)
                text = stream.read()
        except OSError as error:
            raise UnusableJournal(f"the journal {self._lines} cannot be read: {error}") from error
        *complete, rest = text.split(b"\n")
        self.torn = bool(rest)
        self.size = self._read + len(text)
        self._read = self.size - len(rest)
        self._hash.update(text[: len(text) - len(rest)])
        return complete

    def _take_all(self, lines: list[bytes]) -> None:
        for text in lines:
            self._number += 1
            self._take(read(text), self._number)

    def _take(self, data: Json, number: int) -> None:
        if type(data) is not dict:
            raise _bad(number, f"expected an object, found {found(data)}")
        for kind, fields in FIELDS.items():
            if type(data.get(kind)) is int:
                check(data, fields, f"line {number}")
                self.keep(kind, data)
                return
        self._take_other(data, number)

    def _take_other(self, data: dict[str, Json], number: int) -> None:
        if "run" in data:
            self.run = record_from_builtins(data["run"], Run)
        elif "test" in data:
            self.tests.append(record_from_builtins(data["test"], TestResult))
        elif "sketch" in data:
            check(data, {"sketch": (int,)}, f"line {number}")
            self.sketches[data["sketch"]] = data.get("of")
        elif "end" in data:
            check(data["end"], _ENDING, f"line {number}")
            self.ending = _ending(data["end"])
        else:
            raise _bad(number, f"a line of no known kind: {', '.join(map(str, data))}")


def check(data: Json, fields: Mapping[str, tuple[type, ...]], place: str) -> None:
    """Refuse an object whose parts are not of these types."""
    if type(data) is not dict:
        raise BadData((Fault(place, f"expected an object, found {found(data)}"),))
    for name, kinds in fields.items():
        if type(data.get(name)) not in kinds:
            break
    else:
        return
    faults = [
        Fault(place, f"{name} is {found(data.get(name))}, which it cannot be")
        for name, kinds in fields.items()
        if type(data.get(name)) not in kinds
    ]
    raise BadData(tuple(faults))


def undefined(kind: str, number: int) -> BadData:
    """Return the error for a reference to what no line defines."""
    fault = Fault("$", f"the journal refers to {kind} {number}, which it does not define")
    return BadData((fault,))


def _header(text: bytes) -> dict[str, Any]:
    header = read(text) if text else None
    if type(header) is not dict or header.get("format") != layout.FORMAT:
        raise _bad(1, f'expected the header {{"format": "{layout.FORMAT}", ...}}')
    if header.get("version") != layout.VERSION:
        raise _bad(
            1,
            f"the journal has version {found(header.get('version'))}, this optrove reads "
            f"{layout.VERSION}; read it with the optrove that wrote it",
        )
    check(header, _HEADER, "line 1")
    return header


def _ending(data: Json) -> Ending:
    faults = data.get("faults", {})
    return Ending(data["finished_at"], data.get("exit_code"), tuple(sorted(faults.items())))


def _bad(number: int, problem: str) -> BadData:
    return BadData((Fault(f"line {number}", problem),))


__all__ = ["Ending", "JournalReader", "RawCall", "find_journals"]

_REFERENCE: Final = {"t": (int,), "i": (int,), "s": (int,), "d": (int, type(None))}
_CALL_KINDS: Final = (layout.CASE, layout.OPAQUE, layout.FILTERED, layout.UNTRACEABLE)
_OUTCOMES: Final = {
    0: CallOutcome.UNFINISHED,
    layout.RETURNED: CallOutcome.RETURNED,
    layout.RAISED: CallOutcome.RAISED,
}


@dataclass(frozen=True, slots=True)
class RawCall:
    """One record of the calls file, by its numbers; ``number`` is what ``kind`` says."""

    op_index: int
    number: int
    kind: int
    depth: int
    site: int
    scope: int
    entered: int
    parent: int | None
    ended: int
    ending: int
    outcome: CallOutcome


def find_journals(directory: Path) -> tuple[Path, ...]:
    """Return the lines files of the journals in a directory, the oldest first."""
    return tuple(sorted(directory.glob(f"*{layout.LINES}")))


class JournalReader(JournalLines):
    """The journal of one process, read as it is now; values and cases are made when asked for."""

    def __init__(self, lines: Path) -> None:
        """Read the lines file; BadData when it is none, UnusableJournal when it is not there."""
        self._calls = layout.calls_beside(lines)
        self._tables: dict[str, dict[int, dict[str, Json]]] = {kind: {} for kind in FIELDS}
        self._values: dict[int, Value] = {}
        self._cases: dict[int, Case] = {}
        super().__init__(lines)

    def keep(self, kind: str, data: dict[str, Json]) -> None:
        """Keep a line until something of it is asked for."""
        self._tables[kind][data[kind]] = data

    def raw_calls(self) -> Iterator[RawCall]:
        """Yield every call that had begun, in the order of beginning."""
        try:
            with self._calls.open("rb") as stream:
                _calls_header(stream)
                yield from _records(stream)
        except OSError as error:
            raise UnusableJournal(f"the calls {self._calls} cannot be read: {error}") from error

    def lost(self) -> int:
        """Return how many calls were made that could not be recorded."""
        try:
            with self._calls.open("rb") as stream:
                return _calls_header(stream)
        except OSError as error:
            raise UnusableJournal(f"the calls {self._calls} cannot be read: {error}") from error

    def case(self, number: int) -> Case:
        """Return a case by its number."""
        case = self._cases.get(number)
        if case is None:
            data = self._entry("case", number)
            arguments = data["arguments"].items()
            case = Case(
                data["op"], tuple((name, self._reference(given)) for name, given in arguments)
            )
            self._cases[number] = case
        return case

    def case_numbers(self) -> Iterator[int]:
        """Yield the numbers of all cases, also of those whose call had not begun."""
        yield from self._tables["case"]

    def op(self, number: int) -> str:
        """Return the op of a case, without making the case."""
        return str(self._entry("case", number)["op"])

    def opaque(self, number: int) -> tuple[str, ...]:
        """Return the types of what a case holds that nothing is known about."""
        return tuple(self._entry("case", number).get("opaque", ()))

    def outputs(self, number: int) -> tuple[Value, ...]:
        """Return what a call gave; none for the number zero."""
        if number == 0:
            return ()
        return tuple(map(self._reference, self._entry("outputs", number)["are"]))

    def reason(self, number: int) -> str:
        """Return why calls are recorded without a case."""
        return str(self._entry("reason", number)["text"])

    def error(self, number: int) -> str | None:
        """Return the text of an exception; None for the number zero."""
        return None if number == 0 else str(self._entry("error", number)["text"])

    def site(self, number: int) -> CallSite | None:
        """Return a line of code; None for the number zero."""
        if number == 0:
            return None
        data = self._entry("site", number)
        return CallSite(data["file"], data["line"])

    def call(self, raw: RawCall, run_id: str, case_id: str) -> Call:
        """Return the record of one call, whose case has this hash."""
        scope = self._entry("scope", raw.scope) if raw.scope else {}
        phase, device = scope.get("phase"), scope.get("device")
        raised = raw.outcome is CallOutcome.RAISED
        returned = raw.outcome is CallOutcome.RETURNED
        return Call(
            run_id=run_id,
            case_id=case_id,
            op_index=raw.op_index,
            process=self.process,
            parent=raw.parent,
            depth=raw.depth,
            test_id=scope.get("test_id"),
            phase=None if phase is None else _phase(phase),
            module=scope.get("module"),
            mode=scope.get("mode"),
            call_site=self.site(raw.site),
            started_at=self.moment(raw.entered),
            duration_ns=raw.ended - raw.entered if raised or returned else None,
            outputs=self.outputs(raw.ending) if returned else (),
            outcome=raw.outcome,
            error=self.error(raw.ending) if raised else None,
            device=None if device is None else record_from_builtins(device, DeviceParameters),
        )

    def moment(self, clock_ns: int) -> str:
        """Return the time of day of a reading of the clock."""
        return layout.moment_of(self.started_ns + clock_ns - self.clock_ns)

    def _entry(self, kind: str, number: int) -> dict[str, Json]:
        if number not in self._tables[kind]:
            # The writer may be at work: what a record refers to was written before it.
            self.refresh()
        try:
            return self._tables[kind][number]
        except KeyError as error:
            raise undefined(kind, number) from error

    def _reference(self, given: Json) -> Value:
        if type(given) is int:
            return self._value(given)
        if type(given) is dict and "is" in given:
            return decode(given["is"])
        check(given, _REFERENCE, "$")
        spec = self._value(given["t"])
        if not isinstance(spec, TensorSpec):
            raise BadData((Fault("$", f"value {given['t']} is no tensor"),))
        placement = spec.placement
        if isinstance(placement, TtnnPlacement) and given["d"] is not None:
            placement = replace(placement, device=given["d"])
        return replace(spec, identity=given["i"], storage=given["s"], placement=placement)

    def _value(self, number: int) -> Value:
        value = self._values.get(number)
        if value is None:
            value = self._values[number] = decode(self._entry("value", number).get("is"))
        return value


def _calls_header(stream: Any) -> int:
    """Read the first page of a calls file, and return how many calls were lost."""
    return layout.lost_in(stream.read(layout.HEADER_SIZE))


def _records(stream: Any) -> Iterator[RawCall]:
    op_index = 0
    size = layout.RECORD_SIZE * 4096
    while block := stream.read(size):
        whole = len(block) - len(block) % layout.RECORD_SIZE
        for fields in layout.RECORD.iter_unpack(block[:whole]):
            word, site, scope, entered, parent, ended, ending, outcome = fields
            if entered:
                if outcome not in _OUTCOMES or word >> 32 & 0xFF not in _CALL_KINDS:
                    fault = Fault(f"call {op_index}", "a record of no known kind or outcome")
                    raise BadData((fault,))
                yield RawCall(
                    op_index=op_index,
                    number=word & 0xFFFFFFFF,
                    kind=word >> 32 & 0xFF,
                    depth=word >> 40,
                    site=site,
                    scope=scope,
                    entered=entered,
                    parent=parent - 1 if parent else None,
                    ended=ended,
                    ending=ending,
                    outcome=_OUTCOMES[outcome],
                )
            op_index += 1


def _phase(text: str) -> Phase:
    try:
        return Phase(text)
    except ValueError as error:
        raise BadData((Fault("$", f"a test has no phase {found(text)}"),)) from error

"""Give the calls of a journal back, from packed blocks and a dictionary of what they refer to.

The dictionary is zlib-compressed JSON with all that the lines file says about calls:

    {"version": 1, "process": ..., "started_ns": ..., "clock_ns": ...,
     "cases": {number: case_id}, "outputs": {number: [value, ...]}, "errors": {number: text},
     "sites": {number: [file, line]}, "reasons": {number: [why, text]},
     "scopes": {number: {"test_id", "phase", "module", "mode", "device"}},
     "sketches": {op_index: [...]}}

So a trove needs a row for each block of calls, not for each call.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from optrove.codec import journal as layout
from optrove.codec.call_columns import Columns, unpack
from optrove.codec.decode import decode
from optrove.codec.reading import found
from optrove.codec.text import Json, read, write
from optrove.errors import BadData, Fault
from optrove.model.records import Call, CallOutcome, CallSite, DeviceParameters, Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from optrove.model.trove import CallBlock
    from optrove.model.values import Value

T = TypeVar("T")

VERSION: Final = 1
TABLES: Final = ("cases", "outputs", "errors", "sites", "reasons", "scopes", "sketches")

_NUMBERS: Final = ("version", "process", "started_ns", "clock_ns")
_LEVEL: Final = 1
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


@dataclass(frozen=True, slots=True)
class _Scope:
    """What calls belong to, in the words of Call."""

    test_id: str | None = None
    phase: Phase | None = None
    module: str | None = None
    mode: str | None = None
    device: DeviceParameters | None = None


_NO_SCOPE: Final = _Scope()


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
        self._scopes: dict[int, _Scope] = {0: _NO_SCOPE}
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

    def _scope(self, number: int) -> _Scope:
        data = _typed(self.entry("scopes", number), dict)
        told = {name: data.get(name) for name in ("test_id", "module", "mode")}
        if any(type(text) not in (str, type(None)) for text in told.values()):
            raise _bad(f"scope {number} names something by what is no text")
        phase, device = data.get("phase"), data.get("device")
        return _Scope(
            **told,
            phase=None if phase is None else _phase(phase),
            device=None if device is None else _device(device),
        )


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


def _phase(data: Json) -> Phase:
    phases = {phase.value: phase for phase in Phase}
    if type(data) is not str or data not in phases:
        raise _bad(f"a test has no phase {found(data)}")
    return phases[data]


def _device(data: Json) -> DeviceParameters:
    # Here, since it takes time to import and few journals need it.
    from optrove.codec.records import record_from_builtins

    return record_from_builtins(data, DeviceParameters)


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

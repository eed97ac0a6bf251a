"""The lines of ``--ops-jsonl`` files: one JSON object per op call, written and read.

    run_id, process, test_nodeid, module, phase, mode       the context of the call
    op_index, parent, depth     its number among the calls of its test, that of its parent call or
                                null, and the number of calls above it
    op_name, case_id            "ttnn.add", and the placement hash of the call or null
    start_ts, duration_ms       "2026-01-15T10:46:16.345678Z", and a number of milliseconds
    call_site                   "file:line" of the user's code, or null
    inputs, kwargs, output      a list, an object and a value, all in the form of ``wire``; output
                                is null when the call raised
    error                       {"type": ..., "message": ...}; only if the call raised

Calls outside of any test have a null ``test_nodeid`` and are numbered separately in each
process. A reader needs run_id, test_nodeid, module, op_index, op_name, inputs, kwargs and output;
the others may be missing, and no other key is allowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
from optrove.model.case import NamedValues, by_name
from optrove.model.records import CallSite, Phase
from optrove.model.values import Null, Value
from optrove.serializer.hashes import CanonicalTexts
from optrove.serializer.text import (
    Faults,
    Json,
    Reader,
    found,
    optional,
    read,
    read_count,
    read_items,
    read_name,
    read_object,
    read_text,
    write,
)
from optrove.serializer.wire import bad_data, read_named_values, read_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

MOMENT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"
"""The form of ``start_ts``, in UTC."""


@dataclass(frozen=True, slots=True)
class OpError:
    """The exception of a call: the qualified name of its class, and its message."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be read; lines count from one."""

    number: int
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class OpLine:
    """One op call as recorded in its line.

    ``output`` is None when the call raised. ``number`` is the line in the file, from one on; it is
    ignored when two are compared.
    """

    run_id: str
    test_id: str | None
    module: str | None
    op_index: int
    op: str
    inputs: tuple[Value, ...]
    keywords: NamedValues
    output: Value | None
    error: OpError | None = None
    parent: int | None = None
    depth: int = 0
    process: int = 0
    started_at: str | None = None
    duration_ms: float | None = None
    case_id: str | None = None
    phase: Phase | None = None
    mode: str | None = None
    call_site: CallSite | None = None
    number: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keywords", by_name(self.keywords, self.op))


def op_line(line: OpLine, texts: CanonicalTexts | None = None) -> bytes:
    """Return the line of one call, with its newline: ASCII, and no other newline in it."""
    text = (texts or CanonicalTexts()).of
    inputs = ",".join([text(value) for value in line.inputs])
    keywords = ",".join([f"{write(name)}:{text(value)}" for name, value in line.keywords])
    output = "null" if line.output is None else text(line.output)
    values = f'"inputs":[{inputs}],"kwargs":{{{keywords}}},"output":{output}'
    return f"{write(_facts(line))[:-1]},{values}}}\n".encode("ascii")


def _facts(line: OpLine) -> dict[str, Json]:
    """Return the facts of a call except its Values."""
    site = line.call_site
    facts: dict[str, Json] = {
        "run_id": line.run_id,
        "process": line.process,
        "test_nodeid": line.test_id,
        "module": line.module,
        "phase": None if line.phase is None else line.phase.value,
        "mode": line.mode,
        "op_index": line.op_index,
        "parent": line.parent,
        "depth": line.depth,
        "op_name": line.op,
        "case_id": line.case_id,
        "start_ts": line.started_at,
        "duration_ms": line.duration_ms,
        "call_site": None if site is None else f"{site.file}:{site.line}",
    }
    if line.error is not None:
        facts["error"] = {"type": line.error.type, "message": line.error.message}
    return facts


def read_op_lines(stream: BinaryIO) -> Iterator[OpLine | BadLine]:
    """Yield every call of a file, and a BadLine for every line that cannot be read.

    A killed writer leaves a last line without an end: a BadLine, unless only its newline is
    missing.
    """
    for number, raw in enumerate(stream, start=1):
        if not raw.strip():
            continue
        try:
            yield op_line_from_builtins(_json(raw), number=number)
        except BadData as error:
            yield BadLine(number, error.faults)


def op_line_from_builtins(data: Json, *, number: int = 0) -> OpLine:
    """Return the call that ``data`` spells; BadData lists every fault with its path."""
    faults: Faults = []
    readers = _READERS
    if type(data) is dict:
        readers = {key: reader for key, reader in _READERS.items() if key in data or key in _NEEDED}
    parts = read_object(data, "$", faults, readers)
    if faults or parts is None:
        raise bad_data(faults)
    named = {_FIELDS.get(key, key): part for key, part in parts.items()}
    # A call that returned None and one that raised both have null there.
    if named["output"] == Null() and named.get("error") is not None:
        named["output"] = None
    return OpLine(**named, number=number)


def _json(raw: bytes) -> Json:
    try:
        return read(raw)
    except BadData as error:
        if raw.endswith(b"\n"):
            raise
        problem = "the line does not end; its writer was cut off or is still writing"
        raise BadData.at("$", problem) from error


def _read_inputs(data: Json, path: str, faults: Faults) -> tuple[Value, ...]:
    return read_items(data, path, faults, read_value)


def _read_moment(data: Json, path: str, faults: Faults) -> str:
    text = data if type(data) is str else ""
    try:
        datetime.strptime(text, MOMENT)  # noqa: DTZ007 - the Z is part of the form; only the form is checked
    except ValueError:
        expected = "a moment such as 2026-01-15T10:46:16.345678Z"
        faults.append(Fault(path, f"expected {expected}, found {found(data)}"))
    return text


def _read_duration(data: Json, path: str, faults: Faults) -> float:
    if type(data) in (int, float) and math.isfinite(data) and data >= 0:
        return float(data)
    faults.append(Fault(path, f"expected a non-negative integer, found {found(data)}"))
    return 0.0


def _read_phase(data: Json, path: str, faults: Faults) -> Phase | None:
    phases = {phase.value: phase for phase in Phase}
    phase = phases.get(data) if type(data) is str else None
    if phase is None:
        faults.append(Fault(path, f"expected one of {', '.join(phases)}; found {found(data)}"))
    return phase


def _read_call_site(data: Json, path: str, faults: Faults) -> CallSite | None:
    file, colon, line = read_text(data, path, faults).rpartition(":")
    if colon and line.isascii() and line.isdigit():
        return CallSite(file, int(line))
    faults.append(Fault(path, f"expected file:line, found {found(data)}"))
    return None


def _read_error(data: Json, path: str, faults: Faults) -> OpError | None:
    parts = read_object(data, path, faults, {"type": read_name, "message": read_text})
    return None if parts is None else OpError(**parts)


_READERS: Final[dict[str, Reader[Any]]] = {
    "run_id": read_name,
    "test_nodeid": optional(read_text),
    "module": optional(read_text),
    "op_index": read_count,
    "op_name": read_name,
    "inputs": _read_inputs,
    "kwargs": read_named_values,
    "output": read_value,
    "error": optional(_read_error),
    "parent": optional(read_count),
    "depth": read_count,
    "process": read_count,
    "start_ts": optional(_read_moment),
    "duration_ms": optional(_read_duration),
    "case_id": optional(read_name),
    "phase": optional(_read_phase),
    "mode": optional(read_text),
    "call_site": optional(_read_call_site),
}

_NEEDED: Final = frozenset(
    {"run_id", "test_nodeid", "module", "op_index", "op_name", "inputs", "kwargs", "output"}
)

_FIELDS: Final = {
    "test_nodeid": "test_id",
    "op_name": "op",
    "kwargs": "keywords",
    "start_ts": "started_at",
}
"""The fields that have another name in the file."""

"""JSON Lines files of records, with a versioned header.

    {"format":"optrove","version":1}
    {"kind":"case","record":{...}}

A line that cannot be read does not hide the others: ``scan_lines`` yields every line, good or
bad, with its number. Lines are ASCII, end with a newline, and never hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import BadData, Fault
from optrove.serializer.records import (
    KIND_OF,
    KINDS,
    Record,
    record_from_builtins,
    record_to_builtins,
)
from optrove.serializer.text import Faults, Json, check_keys, found, read, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


CURRENT_VERSION: Final = 1
"""The format version that this optrove writes.

    1   the first one
"""

Step: TypeAlias = Callable[[str, Json], Json]
"""Given a record's kind and its builtins in one version, returns them in the next."""


class Upgrades:
    """The steps from every older version to the current one."""

    __slots__ = ("_steps", "current")

    def __init__(self, current: int, steps: Iterable[tuple[int, Step]]) -> None:
        self.current = current
        self._steps: dict[int, Step] = {}
        for version, step in steps:
            if version in self._steps:
                raise ValueError(f"two steps lift version {version}; keep one of them")
            self._steps[version] = step
        if set(self._steps) != set(range(1, current)):
            raise ValueError(
                f"steps lift the versions {sorted(self._steps)}, but every version from 1 to "
                f"{current - 1} needs one; add the missing steps or correct the version"
            )

    def lift(self, kind: str, raw: Json, version: int) -> Json:
        """Return ``raw``, a record of ``version``, in the form of the current version.

        BadData when a step cannot make sense of ``raw``, which nothing has checked yet.
        """
        lifted = raw
        for step_version in range(version, self.current):
            lifted = self._lift_once(kind, lifted, step_version)
        return lifted

    def _lift_once(self, kind: str, raw: Json, version: int) -> Json:
        try:
            return self._steps[version](kind, raw)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"not a {kind} of format version {version}: {type(error).__name__}: {error}"
            raise BadData((Fault("$", problem),)) from error


UPGRADES: Final = Upgrades(CURRENT_VERSION, ())


FORMAT: Final = "optrove"


@dataclass(frozen=True, slots=True)
class GoodLine:
    """A line that was read; numbers count from one, the header included."""

    number: int
    record: Record


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be read, and why."""

    number: int
    faults: tuple[Fault, ...]


Line: TypeAlias = GoodLine | BadLine


def header_line() -> bytes:
    """Return the first line of a file."""
    return _line({"format": FORMAT, "version": UPGRADES.current})


def record_line(record: Record) -> bytes:
    """Return the line of one record; equal records have equal lines."""
    return _line({"kind": KIND_OF[type(record)], "record": record_to_builtins(record)})


def write_lines(stream: BinaryIO, records: Iterable[Record]) -> int:
    """Write a whole file to ``stream`` and return how many records it holds."""
    stream.write(header_line())
    count = 0
    for record in records:
        stream.write(record_line(record))
        count += 1
    return count


def read_lines(stream: BinaryIO) -> tuple[Record, ...]:
    """Return all records of a file; BadData names every fault of every bad line."""
    records = []
    faults: Faults = []
    for line in scan_lines(stream):
        match line:
            case GoodLine(_, record):
                records.append(record)
            case BadLine(number, problems):
                faults += [Fault(f"line {number}: {each.path}", each.problem) for each in problems]
    if faults:
        raise BadData(tuple(faults))
    return tuple(records)


def scan_lines(stream: BinaryIO, upgrades: Upgrades = UPGRADES) -> Iterator[Line]:
    """Yield every record of a file, and every bad line in its place.

    When the header is bad nothing else can be understood, so it is the only line.
    """
    number = 1
    try:
        version = _version(stream.readline(), upgrades)
    except BadData as error:
        yield BadLine(number, error.faults)
        return
    for raw in stream:
        number += 1
        if not raw.strip():
            continue
        try:
            yield GoodLine(number, _record(raw, version, upgrades))
        except BadData as error:
            yield BadLine(number, error.faults)


def _line(data: Json) -> bytes:
    return write(data).encode("ascii") + b"\n"


def _bad(path: str, problem: str) -> BadData:
    return BadData((Fault(path, problem),))


def _complete(raw: bytes) -> Json:
    """Read one line, which has to end with a newline: a writer that died leaves a part."""
    if not raw.endswith(b"\n"):
        raise _bad("$", "the line does not end; the file was cut off or is still being written")
    return read(raw)


def _version(raw: bytes, upgrades: Upgrades) -> int:
    if not raw:
        raise _bad("$", "the file is empty; expected a header line")
    header = _complete(raw)
    if type(header) is not dict or header.get("format") != FORMAT:
        raise _bad("$", f'expected the header {{"format": "{FORMAT}", "version": ...}}')
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise _bad("$.version", f"expected a version from 1 on, found {found(version)}")
    if version > upgrades.current:
        raise _bad(
            "$.version",
            f"the file has format version {version}, this optrove reads up to {upgrades.current}; "
            f"upgrade it with: pip install --upgrade optrove",
        )
    return version


def _record(raw: bytes, version: int, upgrades: Upgrades) -> Record:
    data = _complete(raw)
    if type(data) is not dict:
        raise _bad("$", f"expected an object, found {found(data)}")
    faults: Faults = []
    check_keys(data, "$", faults, ("kind", "record"))
    if faults:
        raise BadData(tuple(faults))
    kind = data["kind"]
    if type(kind) is not str or kind not in KINDS:
        raise _bad("$.kind", f"expected one of {', '.join(KINDS)}; found {found(kind)}")
    lifted = upgrades.lift(kind, data["record"], version)
    try:
        record: Record = record_from_builtins(lifted, KINDS[kind])
    except BadData as error:
        moved = tuple(Fault(f"$.record{each.path[1:]}", each.problem) for each in error.faults)
        raise BadData(moved) from error
    return record

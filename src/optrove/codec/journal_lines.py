"""Read the lines file of a journal, as far as it has been written.

A reader takes nothing on trust. The last line may be torn when the writer was killed; anything
else that does not fit the format is BadData. What becomes of the numbered lines is for the
subclasses to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from optrove.codec import journal as layout
from optrove.codec.reading import found
from optrove.codec.records import record_from_builtins
from optrove.codec.text import Json, read
from optrove.errors import BadData, Fault, UnusableJournal
from optrove.model.records import Counts, Run, TestResult

if TYPE_CHECKING:
    from collections.abc import Mapping
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

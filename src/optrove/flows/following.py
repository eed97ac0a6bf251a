"""Follow a trace while it goes on, by the growth of its journals.

What was read once is not read again: of the calls file only the records behind the last one seen,
of the lines file only what was appended. The counts are for a person who waits; the summary at
the end is made from the whole journals.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.codec import journal as layout
from optrove.codec.journal_reader import find_journals

if TYPE_CHECKING:
    from pathlib import Path

# Only the line of a case begins with one of these, in whatever order its keys are written.
_CASE: Final = (b'{"case":', b'{"arguments":', b'{"op":')
_SCOPE: Final = b'"scope":'
_LONGEST_SCOPE: Final = 10_000
_BLOCK: Final = layout.RECORD_SIZE * 16_384


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trace has come."""

    calls: int
    cases: int
    calls_per_second: float
    test_id: str | None
    seconds: float


@dataclass(slots=True)
class _Growth:
    """What has been seen of one journal."""

    lines: Path
    calls: int = 0
    cases: int = 0
    offset: int = 0
    scope: int = 0
    scopes: dict[int, str | None] = field(default_factory=dict)

    def look(self) -> bool:
        """See what has been added; tell whether there are new calls."""
        before = self.calls
        self._look_at_lines()
        self._look_at_calls()
        return self.calls > before

    def _look_at_lines(self) -> None:
        with self.lines.open("rb") as stream:
            stream.seek(self.offset)
            added = stream.read()
        complete = added[: added.rfind(b"\n") + 1]
        self.offset += len(complete)
        for line in complete.splitlines():
            if line.startswith(_CASE):
                self.cases += 1
            elif _SCOPE in line and len(line) < _LONGEST_SCOPE:
                self._take_scope(line)

    def _take_scope(self, line: bytes) -> None:
        data = json.loads(line)
        if type(data.get("scope")) is int:
            self.scopes[data["scope"]] = data.get("test_id")

    def _look_at_calls(self) -> None:
        """Count the records up to the last one that has begun; files are longer than that."""
        path = self.lines.with_name(self.lines.name.removesuffix(layout.LINES) + layout.CALLS)
        if not path.exists():
            return
        with path.open("rb") as stream:
            stream.seek(layout.HEADER_SIZE + self.calls * layout.RECORD_SIZE)
            while block := stream.read(_BLOCK):
                seen = self._take_records(block)
                if seen * layout.RECORD_SIZE < len(block):
                    return

    def _take_records(self, block: bytes) -> int:
        whole = len(block) - len(block) % layout.RECORD_SIZE
        seen = 0
        for number, record in enumerate(layout.RECORD.iter_unpack(block[:whole]), start=1):
            _, _, scope, entered, *_ = record
            if entered:
                seen, self.scope = number, scope
        self.calls += seen
        return seen


class Follower:
    """The journals in one directory, which may not be there yet."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._growths: dict[Path, _Growth] = {}
        self._began = self._looked = time.monotonic()
        self._calls = 0
        self._test_id: str | None = None

    def look(self) -> Progress:
        """Return how far the trace is now; the rate is that since the last look."""
        for lines in find_journals(self._directory):
            growth = self._growths.setdefault(lines, _Growth(lines))
            if growth.look():
                self._test_id = growth.scopes.get(growth.scope)
        now = time.monotonic()
        calls = sum(growth.calls for growth in self._growths.values())
        rate = (calls - self._calls) / max(now - self._looked, 1e-3)
        self._calls, self._looked = calls, now
        cases = sum(growth.cases for growth in self._growths.values())
        return Progress(calls, cases, rate, self._test_id, now - self._began)

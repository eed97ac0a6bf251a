"""What the HTML report shows, as plain data: the parts of a page, before they are drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD: Final = "good"
BAD: Final = "bad"
ODD: Final = "odd"
IDLE: Final = "idle"
"""What kind of thing is counted: well, failed, worth a look, or not known; each has a colour."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that is shown large, with what it counts."""

    label: str
    value: str
    note: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, for a bar of several; ``start`` and ``size`` are percent of it."""

    label: str
    count: int
    kind: str
    start: float = 0.0
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of a bar chart: how many, and how many of these are bad."""

    label: str
    good: int
    bad: int = 0

    @property
    def count(self) -> int:
        """How many in all."""
        return self.good + self.bad


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart; ``most`` is what the longest bar counts."""

    title: str
    note: str
    bars: tuple[Bar, ...]

    @property
    def most(self) -> int:
        """What the longest bar counts."""
        return max((bar.count for bar in self.bars), default=1) or 1


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; ``key`` is what it is sorted by, ``shares`` are drawn as a bar."""

    text: str
    key: float | str | None = None
    code: bool = False
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """A table that can be sorted, and searched if so wanted; ``right`` are columns of numbers."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    right: frozenset[int] = frozenset()
    note: str = ""
    search: bool = False


def filled(grid: Grid) -> Grid:
    """Return a table without the columns in which nothing is shown."""
    kept = [
        place
        for place in range(len(grid.columns))
        if any(row[place].text or row[place].shares for row in grid.rows)
    ]
    return replace(
        grid,
        columns=tuple(grid.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in grid.rows),
        right=frozenset(new for new, place in enumerate(kept) if place in grid.right),
    )


@dataclass(frozen=True, slots=True)
class Failure:
    """Cases that failed for one cause, with an example."""

    count: int
    verdict: str
    kind: str
    text: str
    ops: tuple[tuple[str, int], ...]
    calls: int
    example: str
    command: str
    words: str = ""
    backtrace: str = ""
    arguments: str = ""
    cases: tuple[str, ...] = ()
    more_cases: int = 0
    pictures: tuple[tuple[str, str], ...] = ()
    """Names of arguments, and how they lie on the cores, as SVG."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Cases that changed in the same way since the compared run."""

    kind: str
    title: str
    entries: tuple[tuple[int, str, str, tuple[str, ...]], ...]
    """How many cases, of which op, what has changed, and some of their ids."""
    more: int = 0


@dataclass(frozen=True, slots=True)
class Since:
    """What has changed since the compared run."""

    before: str
    after: str
    tiles: tuple[Tile, ...]
    changes: tuple[Changes, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report."""

    title: str
    heading: str
    subtitle: str
    tiles: tuple[Tile, ...]
    shares: tuple[Share, ...] = ()
    sums: tuple[str, ...] = ()
    since: Since | None = None
    failures: tuple[Failure, ...] = ()
    more_failures: int = 0
    charts: tuple[Chart, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[tuple[str, int], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    made: str = ""


def shares(parts: Sequence[tuple[str, int, str]]) -> tuple[Share, ...]:
    """Return parts as shares of their sum, one after the other; empty ones are left out."""
    whole = sum(count for _, count, _ in parts) or 1
    found: list[Share] = []
    start = 0.0
    for label, count, kind in parts:
        if count:
            size = 100 * count / whole
            found.append(Share(label, count, kind, start, size))
            start += size
    return tuple(found)

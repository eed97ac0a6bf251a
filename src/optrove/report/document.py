"""Documents: the answers of optrove as trees of headings, paragraphs, fields, tables and pictures.

Each verb makes a document, which is an iterable of nodes, and beside it the data for ``--json``.
``draw_text``, ``draw_html`` and ``draw_markdown`` draw any document.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Counts

GOOD: Final = "good"
BAD: Final = "bad"
ODD: Final = "odd"
IDLE: Final = "idle"
"""Tones: passed, failed, unusual, without a result. Each has a color in HTML."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or two."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """A name and its text, with nested nodes below; ``code`` folds at commas, prose at words."""

    name: str
    text: str = ""
    code: bool = False
    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Fields:
    """Named values, one below the other."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A named value before and after."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Item:
    """A statement that holds ``count`` times, for some ops and cases.

    ``cases`` are all ids; drawings show the first few of them. HTML shows ``parts`` on demand.
    """

    count: int
    text: str
    label: str = ""
    tone: str = ""
    ops: Counts = ()
    cases: tuple[str, ...] = ()
    parts: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """Counted statements; ``more`` counts those that are left out."""

    items: tuple[Item, ...]
    more: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Preformatted text; ``closed`` text is opened on demand."""

    title: str
    text: str
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, which is never broken."""

    text: str


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    label: str
    count: int
    tone: str


@dataclass(frozen=True, slots=True)
class StackedBar:
    """The parts of a whole in one bar, with a legend."""

    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that is shown large, with what it counts."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    """The totals of a document."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class ChartBar:
    """A bar of a chart: the count of good and of bad results."""

    label: str
    good: int
    bad: int = 0

    @property
    def count(self) -> int:
        """The count of all results."""
        return self.good + self.bad


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart."""

    title: str
    note: str
    bars: tuple[ChartBar, ...]

    @property
    def most(self) -> int:
        """The count of the longest bar."""
        return max((bar.count for bar in self.bars), default=1) or 1


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts side by side."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG text, which must be escaped already."""

    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Where text is too wide, a ``flexible`` column is cut: names keep their end, which tells tests
    and models apart, and ``prose`` keeps its first words. The last column may be ``whole``: it
    continues on further lines, and even long words are broken. A column that is ``optional`` is
    left out where all of its cells are empty.
    """

    title: str
    right: bool = False
    flexible: bool = False
    prose: bool = False
    whole: bool = False
    optional: bool = False
    code: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, the key that it is sorted by, and a bar in place of the text."""

    text: str
    key: float | str | None = None
    shares: tuple[Share, ...] = ()


Row: TypeAlias = "Sequence[str | int | Cell]"


@dataclass(frozen=True, slots=True)
class Table:
    """A table; ``more`` counts the rows that are left out, ``search`` adds a search to HTML."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    more: str = ""
    search: bool = False

    def without_bars(self) -> Table:
        """Return the table without the columns whose cells are bars, for text."""
        shown = [
            place
            for place in range(len(self.columns))
            if not any(row[place].shares for row in self.rows)
        ]
        rows = tuple(tuple(row[place] for place in shown) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in shown), rows=rows)


@dataclass(frozen=True, slots=True)
class Section:
    """Nodes under a heading; a ``name`` makes it a target of links in HTML."""

    title: str
    parts: tuple[Node, ...]
    name: str = ""
    tone: str = ""


Node: TypeAlias = (
    Paragraph
    | Fields
    | Change
    | Items
    | Code
    | Command
    | StackedBar
    | Tiles
    | Charts
    | Picture
    | Table
    | Section
)


@dataclass(frozen=True, slots=True)
class Document:
    """A document that stands alone, such as an HTML page."""

    title: str
    heading: str
    subtitle: str
    parts: tuple[Node, ...]
    footer: str = ""


def table(
    columns: Iterable[Column], rows: Iterable[Row], *, more: str = "", search: bool = False
) -> Table:
    """Return a table of plain values, without the optional columns that are empty."""
    every = tuple(columns)
    cells = [tuple(map(_cell, row)) for row in rows]
    shown = [
        place
        for place, column in enumerate(every)
        if not column.optional or any(row[place].text or row[place].shares for row in cells)
    ]
    return Table(
        columns=tuple(every[place] for place in shown),
        rows=tuple(tuple(row[place] for place in shown) for row in cells),
        more=more,
        search=search,
    )


def first_items(items: Sequence[Item], most: int, rest: str = "kinds (--json)") -> Items:
    """Return the first items, and how many are left out: ``3 more kinds (--json)``."""
    more = len(items) - most
    return Items(tuple(items[:most]), f"{more:,} more {rest}" if more > 0 else "")


def count_cell(count: int) -> Cell:
    """Return the cell of a count; zero has no text."""
    return Cell(f"{count:,}" if count else "", count)


def paragraphs(texts: Iterable[str]) -> tuple[Paragraph, ...]:
    """Return each text as a paragraph."""
    return tuple(map(Paragraph, texts))


def _cell(value: str | int | Cell) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(value) if isinstance(value, str) else Cell(f"{value:,}", value)

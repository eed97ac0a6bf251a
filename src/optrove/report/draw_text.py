"""Draw documents as text: aligned tables, indented sections, lines that break between words."""

from __future__ import annotations

import textwrap
from itertools import chain
from typing import TYPE_CHECKING, Final

from optrove.report.document import (
    Change,
    Charts,
    Code,
    Command,
    Fields,
    Items,
    Paragraph,
    Picture,
    Section,
    StackedBar,
    Table,
    Tiles,
)
from optrove.report.wording import MORE, clipped, ops_text, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.report.document import Column, Field, Item, Node

READABLE: Final = 100
"""The width of prose where no terminal has one."""
WIDTH: Final = 80
"""The width of fields, whatever the terminal."""
WHOLE: Final = '--json shows the texts that "..." cuts short'

_INDENT: Final = "  "
_GAP: Final = "  "
_CUT: Final = "..."
_NARROWEST: Final = 12
_MAX_ITEM_CHARS: Final = 240
_MAX_CASES: Final = 4
_BAR: Final = 40
_MAX_INDENT: Final = 24
_MAX_LIST_CHARS: Final = 48
"""The longest list in brackets that is kept on one line."""


def draw_text(nodes: Iterable[Node], width: int | None = None) -> Iterator[str]:
    """Yield the lines of a document as its nodes come.

    ``width`` is that of the terminal; without one, paragraphs and tables are as wide as they are.
    """
    drawing = _Drawing(width)
    before: Node | None = None
    for node in nodes:
        lines = drawing.lines(node, "")
        apart = isinstance(node, (Table, Section)) or isinstance(before, (Table, Section))
        for place, line in enumerate(lines):
            if place == 0 and before is not None and apart:
                yield ""
            yield printable(line)
            before = node
    if drawing.cut:
        yield from ("", WHOLE)


class _Drawing:
    """Draws nodes, and remembers whether a text was cut."""

    def __init__(self, width: int | None) -> None:
        self.width = width
        self.cut = False

    def lines(self, node: Node, indent: str) -> Iterable[str]:  # noqa: C901, PLR0911 - one for each class
        match node:
            case Section():
                return chain(self._title(node.title, indent), self._all(node.parts, indent))
            case Paragraph():
                return self._paragraph(node.text, indent)
            case Fields():
                return chain.from_iterable(self._field(each, indent) for each in node.fields)
            case Change():
                return _change_lines(node, indent)
            case Items():
                more = [indent + node.more] if node.more else []
                return chain(*(self._item(each, indent) for each in node.items), more)
            case Table():
                return self._table(node, indent)
            case Code():
                body = (f"{indent}{_INDENT}{line}" for line in node.text.splitlines())
                return chain(self._title(node.title, indent), body)
            case Command():
                return [indent + node.text]
            case StackedBar():
                text = ", ".join(f"{each.count:,} {each.label}" for each in node.shares)
                return self._paragraph(text, indent)
            case Tiles():
                tiles = (
                    f"{each.value} {each.label}{f' ({each.note})' if each.note else ''}"
                    for each in node.tiles
                )
                return self._paragraph(", ".join(tiles), indent)
            case Charts():
                return _chart_lines(node, indent)
            case Picture():
                return [f"{indent}{node.title}: a picture, in HTML only"]

    def _all(self, nodes: Iterable[Node], indent: str) -> Iterator[str]:
        for node in nodes:
            yield from self.lines(node, indent + _INDENT)

    def _title(self, title: str, indent: str) -> list[str]:
        return self._paragraph(title if ":" in title else f"{title}:", indent)

    def _paragraph(self, text: str, indent: str) -> list[str]:
        return [indent + text] if self.width is None else wrapped(indent, text, self.width)

    def _field(self, field: Field, indent: str) -> Iterator[str]:
        label = f"{indent}{field.name}{': ' if field.text and field.name else ''}"
        width = min(self.width or WIDTH, WIDTH)
        yield from (folded if field.code else wrapped)(label, field.text, width)
        yield from self._all(field.parts, indent)

    def _item(self, item: Item, indent: str) -> Iterator[str]:
        label = f"{indent}{item.count:,}x "
        below = " " * len(label)
        width = self.width or READABLE
        self.cut = self.cut or len(item.text) > _MAX_ITEM_CHARS
        text = f"{item.label}: {item.text}" if item.label else item.text
        yield from wrapped(label, clipped(text, _MAX_ITEM_CHARS), width)
        ops = ops_text(item.ops) if item.ops else ""
        cases = f"case {_cases_text(item.cases)}" if item.cases else ""
        if ops or cases:
            yield from folded(below, ": ".join(filter(None, (ops, cases))), width)
        for part in item.parts:
            yield from self.lines(part, below)

    def _table(self, node: Table, indent: str) -> list[str]:
        width = None if self.width is None else self.width - len(indent)
        drawn = node.without_bars()
        rows = [[cell.text for cell in row] for row in drawn.rows]
        lines = table_lines(drawn.columns, rows, width)
        prose = any(column.prose for column in drawn.columns)
        self.cut = self.cut or (prose and any(line.endswith(MORE) for line in lines))
        return [indent + line for line in [*lines, *([node.more] if node.more else [])]]


def _cases_text(cases: Sequence[str]) -> str:
    more = len(cases) - _MAX_CASES
    return ", ".join(cases[:_MAX_CASES]) + (f" and {more:,} more" if more > 0 else "")


def _change_lines(change: Change, indent: str) -> list[str]:
    label = f"{indent}{change.name}: " if change.name else indent
    line = f"{label}{change.before} -> {change.after}"
    if len(line) <= WIDTH:
        return [line]
    first = folded(label, change.before, WIDTH)
    return [*first, *folded(f"{indent}{_INDENT}-> ", change.after, WIDTH)]


def _chart_lines(node: Charts, indent: str) -> Iterator[str]:
    for chart in node.charts:
        yield f"{indent}{chart.title}: {chart.note}"
        widest = max((len(bar.label) for bar in chart.bars), default=0)
        for bar in chart.bars:
            drawn = "#" * round(_BAR * bar.count / chart.most)
            failed = f", {bar.bad:,} failed" if bar.bad else ""
            yield f"{indent}{_INDENT}{bar.label:{widest}}  {drawn} {bar.count:,}{failed}"


def table_lines(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None
) -> list[str]:
    """Return a heading and one line per row; with ``width``, flexible columns are cut to fit."""
    cells = [[column.title for column in columns], *map(list, rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    if width is not None:
        widths = _narrowed(columns, widths, width)
    return [line for row in cells for line in _row_lines(columns, row, widths)]


def shortened(text: str, width: int) -> str:
    """Return ``text``, or as much of its end as fits into ``width``."""
    if len(text) <= width:
        return text
    return _CUT + text[len(text) - max(width - len(_CUT), 1) :]


def wrapped(label: str, text: str, width: int, *, break_words: bool = False) -> list[str]:
    """Return ``label`` and ``text`` as lines that break between words, indented by the label."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=break_words,
        break_on_hyphens=False,
    )
    return lines or [label.rstrip()]


def folded(label: str, text: str, width: int) -> list[str]:
    """Return ``label`` and ``text`` as lines of at most ``width`` columns where commas allow it.

    Further lines are indented as in Python: to the first parenthesis, or to the bracket of a list.
    """
    opening = 1 if text.startswith("[") else text.find("(") + 1
    indent = " " * (len(label) + (opening if opening <= _MAX_INDENT else 0))
    lines, line = [], label
    for part in _comma_parts(text):
        if line.strip() and line != label and len(line) + len(part.rstrip()) > width:
            lines.append(line.rstrip())
            line = indent
        line += part
    return [*lines, line.rstrip()]


def _comma_parts(text: str) -> list[str]:
    """Return ``text`` cut after the commas that are not within short brackets."""
    parts, begin = [], 0
    whole = _short_brackets(text)
    for place, letter in enumerate(text):
        if letter == " " and text[place - 1 : place] == "," and place not in whole:
            parts.append(text[begin : place + 1])
            begin = place + 1
    return [*parts, text[begin:]]


def _short_brackets(text: str) -> set[int]:
    """Return the places within brackets that fit into a line, such as those of a shape."""
    found: set[int] = set()
    opened = []
    for place, letter in enumerate(text):
        if letter == "[":
            opened.append(place)
        elif letter == "]" and opened:
            begin = opened.pop()
            if place - begin <= _MAX_LIST_CHARS:
                found.update(range(begin, place))
    return found


def _narrowed(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    narrowed = list(widths)
    # The last flexible column is cut first: the first columns of a table matter most.
    for place in reversed(range(len(columns))):
        if columns[place].flexible and excess > 0:
            spare = max(narrowed[place] - max(_NARROWEST, len(columns[place].title)), 0)
            narrowed[place] -= min(spare, excess)
            excess -= min(spare, excess)
    return narrowed


def _row_lines(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> list[str]:
    if not columns[-1].whole:
        return [_row_line(columns, row, widths)]
    first = _row_line(columns[:-1], row[:-1], widths[:-1])
    label = first.ljust(sum(widths[:-1]) + len(_GAP) * (len(widths) - 1))
    return wrapped(label, row[-1], len(label) + widths[-1], break_words=True)


def _row_line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    drawn = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = clipped(cell, width) if column.prose else shortened(cell, width)
        drawn.append(text.rjust(width) if column.right else text.ljust(width))
    return _GAP.join(drawn).rstrip()

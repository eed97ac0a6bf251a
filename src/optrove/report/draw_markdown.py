"""Draw documents as Markdown, for summaries of CI jobs."""

from __future__ import annotations

import re
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
from optrove.report.draw_text import draw_text
from optrove.report.wording import clipped, plural, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.report.document import Cell, Column, Field, Item, Node

_MAX_OPS: Final = 3
_MAX_CASES: Final = 4
_MAX_ROWS: Final = 10
"""The most rows of a table that is shown without a click."""
_MAX_CHARS: Final = 300
_FENCE: Final = 3
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~$@&-])")
_WHITE: Final = re.compile(r"\s+")


def draw_markdown(title: str, nodes: Iterable[Node]) -> str:
    """Return a document as Markdown below a title."""
    return "\n".join([f"## {plain(title)}", *_all(nodes, 3)]) + "\n"


def plain(text: str) -> str:
    """Return text that Markdown shows unchanged, on one line."""
    return _SPECIAL.sub(r"\\\1", clipped(printable(_WHITE.sub(" ", text).strip()), _MAX_CHARS))


def code(text: str) -> str:
    """Return text as code on one line, with any backquotes in it."""
    whole = printable(_WHITE.sub(" ", text).strip())
    fence = "`" * (max(map(len, re.findall("`+", whole)), default=0) + 1)
    gap = " " if len(fence) > 1 else ""
    # A bar ends a cell of a table even within code.
    return f"{fence}{gap}{whole}{gap}{fence}".replace("|", "\\|")


def _block(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as a block of code, which no line can end.

    Below a list, lines that are only indented would be a part of its last item, and no code.
    """
    listed = list(lines)
    longest = max(map(len, re.findall("`+", "\n".join(listed))), default=0)
    fence = "`" * max(_FENCE, longest + 1)
    yield from (fence, *listed, fence)


def _all(nodes: Iterable[Node], level: int) -> Iterator[str]:
    for node in nodes:
        yield ""
        yield from _lines(node, level)


def _lines(node: Node, level: int) -> Iterator[str]:  # noqa: C901, PLR0912 - one for each class
    match node:
        case Section():
            yield f"{'#' * min(level, 6)} {plain(node.title)}"
            yield from _all(node.parts, level + 1)
        case Paragraph():
            yield plain(node.text)
        case Fields():
            for field in node.fields:
                yield from _field_lines(field, "")
        case Change():
            yield f"- {plain(node.name)}: {code(node.before)} -> {code(node.after)}"
        case Items():
            for item in node.items:
                yield from _item_lines(item)
            yield from (f"- {plain(node.more)}",) if node.more else ()
        case Table():
            yield from _table_lines(node)
        case Code():
            yield from (f"{plain(node.title)}:", "")
            yield from _block(node.text.splitlines())
        case Command():
            yield code(node.text)
        case StackedBar() | Tiles():
            yield f"**{plain(' '.join(draw_text((node,))))}**"
        case Charts():
            yield from _block(draw_text((node,)))
        case Picture():
            yield f"{code(node.title)}: a picture, in HTML only"


def _field_lines(field: Field, indent: str) -> Iterator[str]:
    text = code(field.text) if field.code else plain(field.text)
    yield f"{indent}- {plain(field.name)}: {text}".rstrip()
    for part in field.parts:
        yield from (f"{indent}  {line}" for line in _lines(part, 6))


def _item_lines(item: Item) -> Iterator[str]:
    label = f"{plain(item.label)}: " if item.label else ""
    names = ", ".join(code(op) for op, _ in item.ops[:_MAX_OPS])
    more = len(item.ops) - _MAX_OPS
    ops = f" ({names}{f' and {more:,} more' if more > 0 else ''})" if names else ""
    ids = "".join(f" {code(each)}" for each in item.cases[:_MAX_CASES])
    yield f"- **{item.count:,}** {label}{plain(item.text)}{ops}{ids}"
    for part in item.parts:
        yield from (f"  {line}".rstrip() for line in ["", *_lines(part, 6)])


def _table_lines(node: Table) -> Iterator[str]:
    long = len(node.rows) > _MAX_ROWS
    if long:
        yield from (f"<details><summary>{plural(len(node.rows), 'row')}</summary>", "")
    drawn = node.without_bars()
    yield f"| {' | '.join(plain(column.title) for column in drawn.columns)} |"
    yield f"| {' | '.join('--:' if column.right else '---' for column in drawn.columns)} |"
    for row in drawn.rows:
        cells = (_cell_text(*pair) for pair in zip(drawn.columns, row, strict=True))
        yield f"| {' | '.join(cells)} |"
    if node.more:
        yield from ("", plain(node.more))
    if long:
        yield from ("", "</details>")


def _cell_text(column: Column, cell: Cell) -> str:
    return code(cell.text) if column.code and cell.text else plain(cell.text)

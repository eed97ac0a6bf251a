"""Draw text for people: tables with aligned columns, sentences that are broken between words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP: Final = "  "
_CUT: Final = "..."
MORE: Final = " ..."
"""How a text ends that was cut."""

READABLE: Final = 100
"""How wide lines are where no terminal says so."""

_NARROWEST: Final = 12
_US: Final = 1_000
_MS: Final = 1_000_000
_S: Final = 1_000_000_000
_PRECISE: Final = 100
_HOUR: Final = 60


@dataclass(frozen=True, slots=True)
class Column:
    """A column; a ``flexible`` one gives way where the table would be too wide.

    Of names, the end of a cut text is kept, which tells tests and models apart; of ``prose`` the
    first words. The last column may be ``whole``: it goes on in further lines, uncut, where even
    long words are broken.
    """

    title: str
    right: bool = False
    flexible: bool = False
    prose: bool = False
    whole: bool = False


def table_lines(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], width: int | None = None
) -> list[str]:
    """Return a heading and one line per row.

    With ``width``, cells of flexible columns are cut to keep within it, as far as that is
    possible.
    """
    cells = [[column.title for column in columns], *map(list, rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    if width is not None:
        widths = _narrowed(columns, widths, width)
    return [line for row in cells for line in _lines(columns, row, widths)]


def shortened(text: str, width: int) -> str:
    """Return ``text``, or as much of its end as fits into ``width``."""
    if len(text) <= width:
        return text
    return _CUT + text[len(text) - max(width - len(_CUT), 1) :]


def clipped(text: str, longest: int) -> str:
    """Return ``text``, or as many of its first words as fit into ``longest``, and ``...``."""
    if len(text) <= longest:
        return text
    most = max(longest - len(MORE), 1)
    begin = text[:most]
    if not text[most].isspace():
        # A long word, such as a path, is cut all the same where little would be left without it.
        words = begin.rpartition(" ")[0]
        begin = words if 2 * len(words) >= most else begin
    return begin.rstrip() + MORE


def wrapped(
    label: str, text: str, width: int | None = None, *, break_words: bool = False
) -> list[str]:
    """Return ``label`` and ``text`` as lines that are broken between words, and indented alike.

    Without ``width``, as for a file or a pipe, lines are as wide as people like to read them.
    With ``break_words``, words that are longer than a line are broken, too.
    """
    lines = textwrap.wrap(
        text,
        width or READABLE,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_long_words=break_words,
        break_on_hyphens=False,
    )
    return lines or [label.rstrip()]


def plural(count: int, noun: str) -> str:
    """Return a count and what is counted: ``1 case``, ``1,200 cases``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(ns: float) -> str:
    """Return how long something took, as people read it: ``340 us``, ``4.2 ms``, ``3:07 min``."""
    if ns < _US:
        return f"{ns:.0f} ns"
    for unit, name in ((_US, "us"), (_MS, "ms"), (_S, "s")):
        if ns < unit * (60 if unit == _S else 1000):
            return f"{ns / unit:.3g} {name}" if ns / unit < _PRECISE else f"{ns / unit:.0f} {name}"
    minutes, seconds = divmod(round(ns / _S), 60)
    if minutes < _HOUR:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // _HOUR}:{minutes % _HOUR:02} h"


def _narrowed(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    narrowed = list(widths)
    # The last flexible column gives way first: what comes first in a table matters most.
    for place in reversed(range(len(columns))):
        if columns[place].flexible and excess > 0:
            spare = max(narrowed[place] - max(_NARROWEST, len(columns[place].title)), 0)
            narrowed[place] -= min(spare, excess)
            excess -= min(spare, excess)
    return narrowed


def _lines(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> list[str]:
    if not columns[-1].whole:
        return [_line(columns, row, widths)]
    first = _line(columns[:-1], row[:-1], widths[:-1])
    label = first.ljust(sum(widths[:-1]) + len(_GAP) * (len(widths) - 1))
    return wrapped(label, row[-1], len(label) + widths[-1], break_words=True)


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    drawn = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = clipped(cell, width) if column.prose else shortened(cell, width)
        drawn.append(text.rjust(width) if column.right else text.ljust(width))
    return _GAP.join(drawn).rstrip()

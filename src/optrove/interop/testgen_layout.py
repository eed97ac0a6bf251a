"""Lay out Python expressions as the formatter of ruff would: on one line, or one item per line.

An expression is a text, or a bracket with expressions in it. What does not fit into a line is
broken at the outermost bracket, each item with a comma behind it, which the formatter keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH: Final = 100
_STEP: Final = "    "


@dataclass(frozen=True, slots=True)
class Bracket:
    """Items between two texts: a call, a list, a dictionary.

    ``single`` is a tuple of one item. ``comments`` stand above the items, and keep the
    bracket from ever being one line.
    """

    opening: str
    items: tuple[Expression, ...]
    closing: str
    single: bool = False
    comments: tuple[str | None, ...] = ()


Expression: TypeAlias = "str | Bracket"


def call(function: str, *items: Expression) -> Bracket:
    """Return the call of a function."""
    return Bracket(f"{function}(", items, ")")


def row(items: Iterable[Expression]) -> Bracket:
    """Return a list."""
    return Bracket("[", tuple(items), "]")


def tuple_of(items: Iterable[Expression]) -> Bracket:
    """Return a tuple."""
    listed = tuple(items)
    return Bracket("(", listed, ")", single=len(listed) == 1)


def named(name: str, expression: Expression) -> Expression:
    """Return an expression as the value of a keyword."""
    return prefixed(f"{name}=", expression)


def prefixed(prefix: str, expression: Expression) -> Expression:
    """Return an expression with a text before it."""
    if isinstance(expression, str):
        return prefix + expression
    return replace(expression, opening=prefix + expression.opening)


def flat(expression: Expression) -> str:
    """Return an expression as one line."""
    if isinstance(expression, str):
        return expression
    comma = "," if expression.single else ""
    return (
        f"{expression.opening}{', '.join(map(flat, expression.items))}{comma}{expression.closing}"
    )


def laid_out(expression: Expression, indent: int = 0, suffix: str = "") -> str:
    """Return an expression on as many lines as it takes; all but the first are indented.

    The first line is to be written at ``indent`` columns, ``suffix`` follows the last one.
    """
    return "\n".join(_lines(expression, indent, suffix)).removeprefix(" " * indent)


def _lines(expression: Expression, indent: int, suffix: str) -> Sequence[str]:
    margin = " " * indent
    whole = f"{margin}{flat(expression)}{suffix}"
    if isinstance(expression, str) or not expression.items:
        return [whole]
    if len(whole) <= WIDTH and not any(expression.comments):
        return [whole]
    lines = [margin + expression.opening]
    for place, item in enumerate(expression.items):
        comment = expression.comments[place] if expression.comments else None
        if comment is not None:
            lines.append(f"{margin}{_STEP}# {comment}")
        lines += _lines(item, indent + len(_STEP), ",")
    return [*lines, f"{margin}{expression.closing}{suffix}"]

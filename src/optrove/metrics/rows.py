"""A row of numbers with the arithmetic that metrics need, where neither numpy nor torch is loaded.

It answers to the part of their interfaces that ``optrove.metrics`` uses, element by element.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Row:
    """Numbers, or truth values, in a fixed order."""

    __slots__ = ("_items",)
    __hash__ = None  # type: ignore[assignment]  # two rows compare to a row, as arrays do

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = tuple(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, which: slice | Row) -> Row:
        if isinstance(which, slice):
            return Row(self._items[which])
        return Row(item for item, wanted in zip(self, which, strict=True) if wanted)

    def __add__(self, other: Any) -> Row:
        return self._with(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Row:
        return self._with(other, operator.sub)

    def __mul__(self, other: Any) -> Row:
        return self._with(other, operator.mul)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Row:
        return self._with(other, operator.truediv)

    def __rpow__(self, base: float) -> Row:
        return Row(base**item for item in self)

    def __matmul__(self, other: Row) -> float:
        return math.fsum(self * other)

    def __abs__(self) -> Row:
        return Row(map(abs, self))

    def __eq__(self, other: object) -> Row:  # type: ignore[override]  # as arrays do
        return self._with(other, operator.eq)

    def __ne__(self, other: object) -> Row:  # type: ignore[override]  # as arrays do
        return self._with(other, operator.ne)

    def __lt__(self, other: Any) -> Row:
        return self._with(other, operator.lt)

    def __le__(self, other: Any) -> Row:
        return self._with(other, operator.le)

    def __and__(self, other: Row) -> Row:
        return self._with(other, operator.and_)

    def __or__(self, other: Row) -> Row:
        return self._with(other, operator.or_)

    def __invert__(self) -> Row:
        return Row(not item for item in self)

    def all(self) -> bool:
        """Tell whether all are true."""
        return all(self)

    def any(self) -> bool:
        """Tell whether one is true."""
        return any(self)

    def max(self) -> float:
        """Return the largest."""
        largest: float = max(self)
        return largest

    def sum(self) -> float:
        """Return the sum, rounded once."""
        return math.fsum(self)

    def _with(self, other: Any, combine: Callable[[Any, Any], Any]) -> Row:
        if isinstance(other, Row):
            return Row(map(combine, self, other))
        return Row(combine(item, other) for item in self)


def isfinite(row: Row) -> Row:
    """Tell of each whether it is neither NaN nor infinite."""
    return Row(map(math.isfinite, row))


def isnan(row: Row) -> Row:
    """Tell of each whether it is NaN."""
    return Row(map(math.isnan, row))


def where(condition: Row, row: Row | float, other: Row | float) -> Row:
    """Take each from ``row`` where the condition holds, else from ``other``."""
    first = row if isinstance(row, Row) else [row] * len(condition)
    second = other if isinstance(other, Row) else [other] * len(condition)
    chosen = zip(condition, first, second, strict=True)
    return Row(one if holds else two for holds, one, two in chosen)


def hypot(row: Row, other: Row) -> Row:
    """Return the lengths of the vectors of two coordinates each."""
    return Row(map(math.hypot, row, other))


def frexp(row: Row) -> tuple[Row, Row]:
    """Return mantissas from a half to one, and the powers of two that belong to them."""
    parts = [math.frexp(item) for item in row]
    return Row(part[0] for part in parts), Row(float(part[1]) for part in parts)


def with_zeros(row: Row) -> Row:
    """Put a zero behind each number."""
    return Row(part for item in row for part in (item, 0.0))

"""Order what is to be executed, and part it so that what matters most comes first."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

FIRST_PORTION: Final = 100
_GROWTH: Final = 4


def shuffled(items: Sequence[T], seed: int) -> list[T]:
    """Return the items in the order that a seed gives, which is the same every time."""
    found = list(items)
    random.Random(seed).shuffle(found)  # noqa: S311 - an order, not a secret
    return found


def most_called_first(items: Sequence[T], calls: Callable[[T], int | None]) -> list[T]:
    """Return the items by how often they were called; what nobody counted keeps its order."""
    return sorted(items, key=lambda item: -(calls(item) or 0))


def portions(items: Sequence[T], first: int = FIRST_PORTION) -> Iterator[Sequence[T]]:
    """Yield the items in portions that grow, all of one before any of the next.

    Within a portion they may be executed in any order, so that those that share a device are
    together; opening devices and starting processes costs more than most items.
    """
    start, size = 0, max(1, first)
    while start < len(items):
        yield items[start : start + size]
        start, size = start + size, size * _GROWTH

"""Order jobs by importance, and group vectors by the hardware they need."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


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


_ODD: Final = re.compile(r"[^\w.+-]+")


@dataclass(frozen=True, slots=True)
class Needs:
    """The board on which something was recorded, and the shape of its mesh, as far as known."""

    hardware: str | None = None
    mesh: tuple[int, ...] | None = None

    @property
    def suffix(self) -> str:
        """How file names end: ``.hw_galaxy.mesh_4x8``; one chip of any board is not said."""
        hardware = "" if self.hardware is None else f".hw_{self.hardware}"
        mesh = "" if self.mesh is None else f".mesh_{self.mesh_text}"
        return _ODD.sub("_", hardware + mesh)

    @property
    def mesh_text(self) -> str | None:
        """The mesh as people write it: ``4x8``."""
        return None if self.mesh is None else "x".join(map(str, self.mesh))


@dataclass(frozen=True, slots=True)
class Group(Generic[T]):
    """What has the same needs, in its order."""

    needs: Needs
    members: tuple[T, ...]


def grouped(members: Iterable[T], needs: Callable[[T], Needs]) -> tuple[Group[T], ...]:
    """Return the groups, the largest first."""
    found: dict[Needs, list[T]] = {}
    for member in members:
        found.setdefault(needs(member), []).append(member)
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0].suffix))
    return tuple(Group(each, tuple(listed)) for each, listed in ranked)


def file_stem(name: str) -> str:
    """Return the name of a module or op as part of a file's name."""
    return _ODD.sub("_", name)

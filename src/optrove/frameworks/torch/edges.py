"""Inputs that random numbers never are: special values, equal elements, odd layouts, aliases.

A kernel that is right for normally distributed numbers may still drop NaN, round halves away from
zero, or write beyond what it owns. Each edge makes other inputs of one call from those of its seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator


class EdgeKind(Enum):
    """What is special about the inputs; the text completes "with ..."."""

    FINITE = "edge numbers"
    SPECIAL = "NaN and infinities"
    STRIDED = "tensors that are not contiguous"
    ALIASED = "one tensor for two arguments"
    ALIKE = "equal indices, and masks that choose the last element"

    @property
    def words(self) -> str:
        """The beginning of a fault that these inputs show."""
        return f"with {self.value}: "


def needs_edges(cause: str) -> bool:
    """Return whether a fault was found with edge inputs, by its words."""
    return cause.startswith(tuple(kind.words for kind in EdgeKind))


@dataclass(frozen=True, slots=True)
class Edge:
    """A set of inputs; where not all numbers fit into a tensor, each ``turn`` has others."""

    kind: EdgeKind
    turn: int = 0


MOST: Final = 2**22
"""Calls with more elements than this get no edge inputs, for they take too long."""

_TURNS: Final = 4


def edges_for(
    lengths: list[int], *, numbers: bool, special: bool, pairs: bool, alike: bool
) -> Iterator[Edge]:
    """Yield the edges for tensors of these lengths.

    ``numbers`` if some of them may hold any number, ``special`` if also NaN, ``pairs`` if two can
    be one, ``alike`` if some are masks, or indices that may repeat.
    """
    if numbers:
        least = max(1, min(lengths, default=1))
        for turn in range(min(_TURNS, -(-_COUNT // least))):
            yield Edge(EdgeKind.FINITE, turn)
    if numbers and special:
        yield Edge(EdgeKind.SPECIAL)
    yield Edge(EdgeKind.STRIDED)
    if pairs:
        yield Edge(EdgeKind.ALIASED)
    if alike:
        yield Edge(EdgeKind.ALIKE)


def floats(torch: Any, dtype: Any) -> Any:
    """Return the finite edge numbers of a dtype."""
    info = torch.finfo(dtype)
    near = (1.0, 1 + info.eps, 1 - info.eps / 2, 4 * info.eps, 1e-3, 0.5, 1.5, 2.5, 3.0, 7.0, 12.0)
    tiny = (100.0, info.smallest_normal, info.smallest_normal / 4, 0.0)
    signed = [sign * number for number in (*near, *tiny) for sign in (1.0, -1.0)]
    return torch.tensor(signed, dtype=torch.float64).to(dtype)


_COUNT: Final = 30

_INTEGERS: Final = (-1, 7, -7, 1, 2, -2, 3, -3, 100, -100, 2**30, -(2**30), 31, -128, 127)


def integers(torch: Any, dtype: Any) -> Any:
    """Return the edge numbers of a whole dtype, without zero, by which nothing can be divided."""
    info = torch.iinfo(dtype)
    fitting = [number for number in _INTEGERS if info.min < number <= info.max]
    return torch.tensor(fitting, dtype=dtype)


def edged(torch: Any, row: Any, edge: Edge, generator: Any) -> Any:
    """Return a row of numbers with edge numbers among them, and with neighbors that are equal."""
    if edge.kind not in (EdgeKind.FINITE, EdgeKind.SPECIAL) or not row.numel():
        return row
    exact = not row.dtype.is_floating_point
    values = integers(torch, row.dtype) if exact else floats(torch, row.dtype)
    length, count = row.numel(), values.numel()
    places = torch.randperm(length, generator=generator)
    taken = places[: max(length // 3, min(length, count))]
    order = torch.randperm(count, generator=generator).roll(edge.turn * length)
    found = row.clone()
    found[taken] = values[order].repeat(-(-taken.numel() // count))[: taken.numel()]
    equal = places[taken.numel() :][: length // 8]
    found[equal] = found[equal - 1]
    if edge.kind is EdgeKind.SPECIAL and not exact:
        special = torch.tensor([float("nan"), float("inf"), -float("inf")]).to(row.dtype)
        some = places[: max(3, length // 32)]
        found[some] = special.repeat(-(-some.numel() // 3))[: some.numel()]
    return found


def alike(torch: Any, row: Any) -> Any:
    """Return a mask of the last element, or equal whole numbers; other rows as they are."""
    if row.dtype is torch.bool:
        return (torch.arange(row.numel()) == row.numel() - 1).view_as(row)
    if row.dtype.is_floating_point or row.dtype.is_complex or not row.numel():
        return row
    return row.reshape(-1)[0].expand(row.shape).clone()


def spaced(live: Any) -> Any:
    """Return the same tensor with every second element of its memory unused."""
    row = live.new_zeros((*live.shape, 2))
    row.select(-1, 0).copy_(live)
    return row.select(-1, 0)

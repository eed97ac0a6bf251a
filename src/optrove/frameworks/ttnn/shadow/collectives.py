"""Compute collectives in torch, one line of chips at a time.

Golden functions of collectives expect a whole mesh at once, in forms that differ from op to op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Line = Sequence[Any]
Dimensions: TypeAlias = "int | tuple[int, int]"
Collective = Callable[[Any, Line, Any], list[Any]]


def all_gather(torch: Any, line: Line, dim: int) -> list[Any]:
    """Return for every chip of the line the parts of all, joined along ``dim``."""
    return [torch.cat(list(line), dim)] * len(line)


def all_reduce(_torch: Any, line: Line, _dim: int) -> list[Any]:
    """Return for every chip of the line the sum of all parts."""
    return [sum(line[1:], line[0])] * len(line)


def reduce_scatter(torch: Any, line: Line, dim: int) -> list[Any]:
    """Return for every chip of the line its part of the sum, split along ``dim``."""
    return list(torch.chunk(sum(line[1:], line[0]), len(line), dim))


def mesh_partition(torch: Any, line: Line, dim: int) -> list[Any]:
    """Return for every chip of the line its share of its own part, split along ``dim``."""
    return [torch.chunk(part, len(line), dim)[place] for place, part in enumerate(line)]


def all_to_all(torch: Any, line: Line, dims: tuple[int, int]) -> list[Any]:
    """Return for every chip its share of all parts, split along one dimension, joined by another.

    The op calls the dimension that its input is sharded in ``in_dim``, that of its output
    ``out_dim``.
    """
    joined, split = dims
    shares = [torch.chunk(part, len(line), split) for part in line]
    return [torch.cat([share[place] for share in shares], joined) for place in range(len(line))]

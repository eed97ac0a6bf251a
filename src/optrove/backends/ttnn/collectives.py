"""Compute with torch what ops that talk between chips would have computed.

Golden functions of such ops expect a whole mesh at once, in forms that differ from op to op.
The few collectives that models live on are small enough to state here, by lines of chips; every
other op that talks between chips leaves its output without numbers on a mesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

Line = Sequence[Any]
Collective = Callable[[Any, Line, int], list[Any]]


def all_gather(torch: Any, line: Line, dim: int) -> list[Any]:
    """Give every chip of the line the parts of all, joined along ``dim``."""
    return [torch.cat(list(line), dim)] * len(line)


def all_reduce(_torch: Any, line: Line, _dim: int) -> list[Any]:
    """Give every chip of the line the sum of all parts."""
    return [sum(line[1:], line[0])] * len(line)


def reduce_scatter(torch: Any, line: Line, dim: int) -> list[Any]:
    """Give every chip of the line its part of the sum, split along ``dim``."""
    return list(torch.chunk(sum(line[1:], line[0]), len(line), dim))


def mesh_partition(torch: Any, line: Line, dim: int) -> list[Any]:
    """Leave every chip of the line its own part of what it has, split along ``dim``."""
    return [torch.chunk(part, len(line), dim)[place] for place, part in enumerate(line)]


COLLECTIVES: Mapping[str, Collective] = {
    "ttnn.all_gather": all_gather,
    "ttnn.all_reduce": all_reduce,
    "ttnn.reduce_scatter": reduce_scatter,
    "ttnn.mesh_partition": mesh_partition,
    "ttnn.experimental.all_gather_async": all_gather,
    "ttnn.experimental.reduce_scatter_minimal_async": reduce_scatter,
}

WITHOUT_DIM = frozenset({"ttnn.all_reduce"})

# Only ops whose result depends on other chips, or on their chip's place among them, have these.
PARAMETERS = frozenset({"cluster_axis", "topology", "multi_device_global_semaphore"})


def talks_between_chips(operation: Any, parameters: Collection[str]) -> bool:
    """Tell whether an op with these parameters reads other chips than its own."""
    name = operation.python_fully_qualified_name
    home = getattr(operation.golden_function, "__module__", "")
    return (
        name in COLLECTIVES
        or home == "ttnn.operations.ccl"
        or "ring_" in name
        or not PARAMETERS.isdisjoint(parameters)
    )


def dimension(name: str, bound: Mapping[str, Any]) -> int | None:
    """Return the tensor dimension of a collective call, or None where it cannot be told."""
    if name in WITHOUT_DIM:
        return 0
    asked = bound.get("dim")
    return asked if type(asked) is int else None


def lines(shape: Sequence[int], axis: int | None) -> list[list[int]]:
    """Return the chips, numbered row by row, that talk to each other along a mesh axis."""
    count = math.prod(shape)
    if axis is None:
        return [list(range(count))]
    step = math.prod(shape[axis + 1 :])
    starts = [chip for chip in range(count) if chip // step % shape[axis] == 0]
    return [[start + step * place for place in range(shape[axis])] for start in starts]


def apply(
    torch: Any, collective: Collective, parts: Line, groups: list[list[int]], dim: int
) -> list[Any]:
    """Return what each chip holds after the collective ran on every line of chips."""
    results: list[Any] = [None] * len(parts)
    for group in groups:
        answers = collective(torch, [parts[chip] for chip in group], dim)
        for chip, answer in zip(group, answers, strict=True):
            results[chip] = answer
    return results

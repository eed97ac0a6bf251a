"""How a weight is spread over the chips of a mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS: Final = -1
_ROWS: Final = -2


@dataclass(frozen=True)
class Sharding:
    """Which dimension of a tensor is split along each axis of the mesh; None: copies.

    Axis 0 are the rows of the mesh, axis 1 its columns.
    """

    axis0: int | None = None
    axis1: int | None = None

    @property
    def dims(self) -> tuple[int | None, int | None]:
        """The dimension that is split along each axis."""
        return (self.axis0, self.axis1)


REPLICATED: Final = Sharding()


def replicated() -> Sharding:
    """Put the whole weight on every chip."""
    return REPLICATED


def column_sharded(axis: int = 1) -> Sharding:
    """Split the last dimension along an axis of the mesh, as projections usually are."""
    return _along(axis, _COLUMNS)


def row_sharded(axis: int = 1) -> Sharding:
    """Split the last but one dimension along an axis of the mesh, as down projections are."""
    return _along(axis, _ROWS)


def sharded(dim: int, axis: int = 1) -> Sharding:
    """Split any dimension along an axis of the mesh."""
    return _along(axis, dim)


def _along(axis: int, dim: int) -> Sharding:
    if axis not in (0, 1):
        raise ValueError(f"a mesh has the axes 0 and 1, not {axis!r}")
    return Sharding(axis0=dim) if axis == 0 else Sharding(axis1=dim)


def splits(
    dims: Sequence[int | None], mesh_shape: Sequence[int], rank: int
) -> dict[int, int] | str:
    """Return into how many parts each dimension is split, or what is wrong with that."""
    parts: dict[int, int] = {}
    for axis, dim in enumerate(dims):
        if dim is None:
            continue
        if not -rank <= dim < rank:
            return f"dimension {dim} is to be split, of {rank}"
        place = dim % rank
        parts[place] = parts.get(place, 1) * (mesh_shape[axis] if axis < len(mesh_shape) else 1)
    return parts


def part_shape(
    shape: Sequence[int], dims: Sequence[int | None], mesh_shape: Sequence[int]
) -> tuple[int, ...] | str:
    """Return the shape of the part that each chip holds, or what is in the way."""
    parts = splits(dims, mesh_shape, len(shape))
    if isinstance(parts, str):
        return parts
    if len(parts) < sum(dim is not None for dim in dims):
        return (
            "one dimension is to be split along both axes, which ttnn does not do; "
            "give the array a dimension for each axis"
        )
    for place, count in parts.items():
        if shape[place] % count:
            return f"dimension {place} of {shape[place]} cannot be split into {count} equal parts"
    return tuple(size // parts.get(place, 1) for place, size in enumerate(shape))


def whole_shape(
    part: Sequence[int], dims: Sequence[int | None], mesh_shape: Sequence[int]
) -> tuple[int, ...]:
    """Return the shape of a tensor of which each chip holds such a part."""
    parts = splits(dims, mesh_shape, len(part))
    if isinstance(parts, str):
        return tuple(part)
    return tuple(size * parts.get(place, 1) for place, size in enumerate(part))

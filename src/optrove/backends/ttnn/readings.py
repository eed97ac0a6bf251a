"""Tell which numbers come out of a call that computes nothing: those that went in.

Such calls have no golden function. Where a composer puts the parts of several chips together,
its recipe says along which dimensions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from optrove.model.values import (
    Handle,
    Int,
    List,
    MeshPlacement,
    Null,
    Struct,
    TensorSpec,
    TtnnPlacement,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.case import Case

SAME_NUMBERS: Final = frozenset(
    {
        "ttnn.Tensor.cpu",
        "ttnn.Tensor.to",
        "ttnn.Tensor.to_torch",
        "ttnn.to_torch",
    }
)
"""Calls that give the numbers of their first tensor in another place, layout or framework."""

COMPOSER: Final = "mesh_composer"


def joined(torch: Any, case: Case, parts: Sequence[Any]) -> Any:
    """Return what a call makes of the parts of all chips, in row-major order of the chips.

    It is None where that cannot be told.
    """
    composer = dict(case.arguments).get(COMPOSER, Null())
    if isinstance(composer, Null):
        return parts[0] if all(part is parts[0] for part in parts) else None
    recipe = composer.recipe if isinstance(composer, Handle) else None
    fields = {} if recipe is None else dict(recipe.fields)
    shape = _shape(fields.get("mesh_shape_override")) or _mesh_shape(case)
    dims = _numbers(fields.get("dims"))
    if not dims or len(dims) != len(shape) or math.prod(shape) != len(parts):
        return None
    left = list(parts)
    for dim, size in zip(reversed(dims), reversed(shape), strict=True):
        rows = range(0, len(left), size)
        left = [torch.cat(left[start : start + size], dim) for start in rows]
    return left[0]


def _mesh_shape(case: Case) -> tuple[int, ...]:
    """Return the shape of the mesh that the first tensor lies on, empty if that is unknown."""
    for _, value in case.arguments:
        match value:
            case TensorSpec(placement=TtnnPlacement(mesh_shape=tuple(shape))):
                return shape
            case TensorSpec(placement=TtnnPlacement(mesh=MeshPlacement(coordinates=chips))):
                return tuple(max(places) + 1 for places in zip(*chips, strict=True))
    return ()


def _shape(value: Value | None) -> tuple[int, ...]:
    return _numbers(dict(value.fields).get("shape")) if isinstance(value, Struct) else ()


def _numbers(value: Value | None) -> tuple[int, ...]:
    items = value.items if isinstance(value, List) else ()
    return tuple(item.value for item in items if isinstance(item, Int))

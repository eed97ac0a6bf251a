"""Every combination of the shapes, dtypes, layouts and memories that an op was traced with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget
from optrove.model.case import Case
from optrove.model.rewrite import renamed, rewrite
from optrove.model.values import TensorSpec, Tile, TtnnPlacement
from optrove.plan.permutations import MOST
from optrove.plan.traced import USUAL_TILE, Distinct, distinct, tensors_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.values import Struct, Value
    from optrove.plan.traced import TracedTensor

_FACES: Final = (16, 16)
_TILE: Final = "TILE"


@dataclass(frozen=True, slots=True)
class Combined:
    """The cases that combinations make, and the traced configurations that they are made of."""

    of: Distinct
    cases: tuple[Case, ...]


def combinations(op: str, cases: Sequence[Case]) -> Combined:
    """Return every combination; what is no tensor is as in the first case that has as many.

    The shapes of one call stay together, since most others would not fit. BadTarget if there are
    more than 10,000.
    """
    found = distinct(op, cases)
    if not found.kept:
        return Combined(found, ())
    base = next(case for case in cases if len(tensors_of(case)) == found.arity)
    shapes = dict.fromkeys(tuple(each.shape for each in one.tensors) for one in found.kept)
    aspects = [
        _aspects(tensors) for tensors in zip(*(one.tensors for one in found.kept), strict=True)
    ]
    count = len(shapes) * prod(len(values) for each in aspects for values in each)
    if count > MOST:
        raise BadTarget(
            f"{op} was traced with specs that make {count:,} combinations, and at most {MOST:,} "
            f"are allowed; choose fewer cases (--model, --dtype, --memory, --shape)"
        )
    made = dict.fromkeys(
        _with_tensors(base, list(zip(chosen, placed, strict=True)))
        for chosen in shapes
        for placed in product(*(product(*each) for each in aspects))
    )
    return Combined(found, tuple(made))


def _aspects(
    tensors: Sequence[TracedTensor],
) -> tuple[list[str], list[str], list[Struct | None]]:
    """Return the different dtypes, layouts and memories of one input."""
    return (
        list(dict.fromkeys(tensor.dtype for tensor in tensors)),
        list(dict.fromkeys(tensor.layout for tensor in tensors)),
        list(dict.fromkeys(tensor.memory for tensor in tensors)),
    )


def _with_tensors(
    base: Case, specs: Sequence[tuple[tuple[int, ...], tuple[str, str, Struct | None]]]
) -> Case:
    """Return a case with these specs in the places of its inputs, each a tensor of its own."""
    order = {id(spec): number for number, spec in enumerate(tensors_of(base))}

    def changed(part: Value) -> Value:
        number = order.get(id(part))
        if number is None or not isinstance(part, TensorSpec):
            return part
        shape, placed = specs[number]
        return replace(_placed(part, shape, placed), identity=number, storage=number)

    given = tuple((name, rewrite(value, changed)) for name, value in base.arguments)
    # Numbered as a recording has them: in the order of the names.
    return renamed(Case(base.op, given), {})


def _placed(
    spec: TensorSpec, shape: tuple[int, ...], placed: tuple[str, str, Struct | None]
) -> TensorSpec:
    dtype, layout, memory = placed
    placement = spec.placement
    if not isinstance(placement, TtnnPlacement):
        return spec
    tiled = layout == _TILE
    return replace(
        spec,
        shape=shape,
        dtype=dtype,
        placement=replace(
            placement,
            padded_shape=_padded(shape) if tiled else shape,
            layout=layout,
            tile=Tile(USUAL_TILE, _FACES) if tiled else None,
            memory=memory,
        ),
    )


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    last = [-(-size // unit) * unit for size, unit in zip(shape[-2:], USUAL_TILE, strict=False)]
    return (*shape[:-2], *last)

"""Combinations of parameters: of a suite, and of what an op was traced with.

A suite gives a list of values for each parameter. A name with commas stands for several parameters
whose values belong together: ``"input_shape,dtype": [([1, 32], a), ([1, 64], b)]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadTarget
from optrove.model.case import Case, renamed, rewrite
from optrove.model.values import TensorSpec, Tile, TtnnPlacement
from optrove.sweep.traced import USUAL_TILE, Distinct, distinct, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.values import Struct, Value
    from optrove.sweep.traced import TracedTensor


MOST: Final = 10_000
"""How many permutations a suite may have."""


def permutations(suite: str, parameters: Any) -> Iterator[dict[str, Any]]:
    """Return the keyword arguments of each vector of a suite, the last parameter fastest.

    BadTarget names the suite if it has too many, or is not of this form. None are made of a suite
    without parameters.
    """
    columns = _columns(suite, parameters)
    if not columns:
        return iter(())
    count = prod(len(values) for _, values in columns)
    if count > MOST:
        sizes = " x ".join(f"{len(values)} {','.join(names)}" for names, values in columns)
        raise BadTarget(
            f"suite {suite!r} has {count:,} permutations ({sizes}), and at most {MOST:,} are "
            f"allowed; give fewer values, or divide it into several suites"
        )
    return _each(columns)


def _each(columns: list[tuple[tuple[str, ...], list[Any]]]) -> Iterator[dict[str, Any]]:
    for chosen in product(*(values for _, values in columns)):
        vector: dict[str, Any] = {}
        for (names, _), value in zip(columns, chosen, strict=True):
            vector.update({names[0]: value} if len(names) == 1 else zip(names, value, strict=True))
        yield vector


def _columns(suite: str, parameters: Any) -> list[tuple[tuple[str, ...], list[Any]]]:
    if not isinstance(parameters, Mapping):
        raise BadTarget(
            f"suite {suite!r} is of {type(parameters).__name__}; "
            f"give a dictionary with a list of values for each parameter"
        )
    found = []
    for name, values in parameters.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise BadTarget(
                f"parameter {name!r} of suite {suite!r} is of {type(values).__name__}; "
                f"give a list of values, also for a single one"
            )
        names = tuple(part.strip() for part in str(name).split(","))
        listed = list(values)
        _check_together(suite, names, listed)
        found.append((names, listed))
    return found


def _check_together(suite: str, names: tuple[str, ...], values: list[Any]) -> None:
    """Raise BadTarget where values for several parameters are not as many as these."""
    for value in values if len(names) > 1 else ():
        if not isinstance(value, (tuple, list)) or len(value) != len(names):
            raise BadTarget(
                f"suite {suite!r} has a value for {','.join(names)} that is no tuple of "
                f"{len(names)}; give one value for each of these parameters"
            )


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

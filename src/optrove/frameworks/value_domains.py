"""Which numbers an argument may hold, by the role that its name gives it.

Random numbers break operations that take some of their inputs for places: a page that is not
there, a position beyond the end. So the names of parameters are looked up in one table; nothing
here is about single operations. Whatever has no role is drawn from a normal distribution, whole
numbers from a range in which every place exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.model.values import Int, List, TensorSpec, Tuple, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Draw: TypeAlias = "Callable[[Drawing], Any]"

MASKED: Final = -1e5
"""What a mask adds where nothing is to be seen; finite, since block formats know no infinity."""

UNTOLD: Final = 8
"""Whole numbers stay below this where nothing tells how many places there are."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """One tensor to be filled: its shape, from which generator, and among which arguments.

    ``below`` is the bound of whole numbers.
    """

    torch: Any
    generator: Any
    shape: tuple[int, ...]
    below: int


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the bound of whole numbers comes from: a size of another argument."""

    arguments: re.Pattern[str]
    axis: int


@dataclass(frozen=True, slots=True)
class Role:
    """What arguments of these names hold; ``bounds`` are tried in their order."""

    names: re.Pattern[str]
    draw: Draw
    bounds: tuple[Bound, ...] = ()


def normal(drawing: Drawing) -> Any:
    """Return numbers around zero."""
    return drawing.torch.randn(drawing.shape, generator=drawing.generator)


def whole(drawing: Drawing) -> Any:
    """Return whole numbers from zero to the bound."""
    return drawing.torch.randint(
        0, max(1, drawing.below), drawing.shape, generator=drawing.generator
    )


def distinct(drawing: Drawing) -> Any:
    """Return whole numbers below the bound, each once as long as there are any."""
    torch, size = drawing.torch, max(1, drawing.below)
    count = 1
    for length in drawing.shape:
        count *= length
    places = torch.randperm(size, generator=drawing.generator)
    return places.repeat(-(-max(count, 1) // size))[:count].reshape(drawing.shape)


def positive(drawing: Drawing) -> Any:
    """Return numbers well above zero, as variances are."""
    return drawing.torch.rand(drawing.shape, generator=drawing.generator) + 0.5


def share(drawing: Drawing) -> Any:
    """Return numbers between zero and one."""
    return drawing.torch.rand(drawing.shape, generator=drawing.generator)


def causal_mask(drawing: Drawing) -> Any:
    """Return zeros where something is to be seen: at and before each place."""
    torch = drawing.torch
    return torch.full(drawing.shape, MASKED).triu(1) if len(drawing.shape) > 1 else normal(drawing)


def _angles(drawing: Drawing) -> Any:
    """Return the angles of a rope table: by rows the position, by pairs of columns the rate.

    Where each user has a row of its own, [1, user, 1, size], the users are at different positions.
    """
    torch, shape = drawing.torch, drawing.shape
    if not shape:
        return torch.zeros(())
    width = shape[-1]
    by_user = len(shape) > 2 and shape[-2] == 1  # noqa: PLR2004 - users come before a row of numbers
    rows = shape[-3:-1] if by_user else shape[-2:-1]
    rates = 10000.0 ** (-(torch.arange(width) // 2).float() * 2 / max(width, 1))
    table = torch.arange(prod(rows)).float()[:, None] * rates[None, :]
    return table.reshape(*rows, width).expand(shape).clone()


def cosines(drawing: Drawing) -> Any:
    """Return the cosines of a rope table."""
    return _angles(drawing).cos()


def sines(drawing: Drawing) -> Any:
    """Return the sines of a rope table."""
    return _angles(drawing).sin()


def rotation(drawing: Drawing) -> Any:
    """Return the matrix that swaps the numbers of each pair, the second one negated.

    Where there are more rows than columns, one such matrix stands below the other.
    """
    torch, shape = drawing.torch, drawing.shape
    matrix = torch.zeros(shape)
    if len(shape) > 1:
        even = torch.arange(0, shape[-2] - 1, 2)
        even = even[even % shape[-1] + 1 < shape[-1]]
        columns = even % shape[-1]
        matrix[..., even, columns + 1] = 1.0
        matrix[..., even + 1, columns] = -1.0
    return matrix


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_CACHE: Final = _named(r".*cache.*|k|v|keys?|values?|input_tensor_[kv]")
_TABLE: Final = _named(r"weights?|embedding.*|table")
_INPUT: Final = _named(r"input(_tensor)?(_a)?|self")

ROLES: Final = (
    Role(_named(r".*(page|block)_table.*"), distinct, (Bound(_CACHE, 0),)),
    Role(
        _named(r"(update_)?idxs?(_tensor)?|cur(rent)?_pos.*|.*positions?(_ids|_idxs)?|.*_pos"),
        whole,
        (Bound(_CACHE, -2),),
    ),
    Role(
        _named(r"ind(ex|ices|exes)(_tensor)?|.*_ids?|.*_indices"),
        whole,
        (Bound(_TABLE, -2), Bound(_INPUT, -1)),
    ),
    Role(_named(r".*mask.*"), causal_mask),
    Role(_named(r"cos(ine)?s?(_.*)?|.*_cos"), cosines),
    Role(_named(r"sin(e)?s?(_.*)?|.*_sin"), sines),
    Role(_named(r"trans(formation)?_mat(rix)?|rot_mats?"), rotation),
    Role(_named(r".*var(iance)?|.*_rstd|rstd"), positive),
    Role(_named(r".*prob(abilitie)?s?"), share),
)
"""The roles of arguments by the names of their parameters; the first that fits."""


def draw(
    drawing_of: Callable[[int], Drawing],
    name: str,
    arguments: Mapping[str, Value],
    *,
    integers: bool,
) -> Any:
    """Return the numbers of the argument called ``name``, one of ``arguments``.

    ``drawing_of`` makes the drawing with a bound of whole numbers.
    """
    chosen, below = way_to_draw(name, arguments, integers=integers)
    return chosen(drawing_of(below))


def way_to_draw(name: str, arguments: Mapping[str, Value], *, integers: bool) -> tuple[Draw, int]:
    """Return what draws the numbers of an argument, and the bound of whole ones."""
    role = next((role for role in ROLES if role.names.fullmatch(name)), None)
    below = _below(role, name, arguments)
    if role is not None and (role.draw is not normal):
        wanted = role.draw in (whole, distinct)
        if wanted == integers or not integers:
            return role.draw, below
    return whole if integers else normal, below


def _below(role: Role | None, name: str, arguments: Mapping[str, Value]) -> int:
    """Return the bound of whole numbers for an argument."""
    if role is not None:
        for bound in role.bounds:
            size = _size(bound, name, arguments)
            if size is not None:
                return size
    others = [spec for other, spec in _tensors(arguments) if other != name]
    table = next((spec for other, spec in _tensors(arguments) if _TABLE.fullmatch(other)), None)
    if table is not None and len(table.shape) > 1:
        return table.shape[-2]
    return min([size for spec in others for size in spec.shape if size > 1] or [UNTOLD])


def _size(bound: Bound, name: str, arguments: Mapping[str, Value]) -> int | None:
    axis = arguments.get("dim")
    for other, spec in _tensors(arguments):
        if other == name or not bound.arguments.fullmatch(other):
            continue
        place = axis.value if bound.arguments is _INPUT and isinstance(axis, Int) else bound.axis
        if -len(spec.shape) <= place < len(spec.shape):
            return spec.shape[place]
    return None


def _tensors(arguments: Mapping[str, Value]) -> list[tuple[str, TensorSpec]]:
    found = []
    for name, value in arguments.items():
        items = value.items if isinstance(value, (List, Tuple)) else (value,)
        found += [(name, item) for item in items if isinstance(item, TensorSpec)]
    return found

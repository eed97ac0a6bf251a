"""Judge numbers one by one: by the last place of their dtype, and by what their inputs leave open.

An operation rounds its result, and may round on the way to it. The first costs a few units of the
last place. The second is about as large as the change of an exact result whose inputs are rounded
differently, so the exact operation runs again with inputs that are moved by half a unit. No norm
over all elements is involved: a large element never excuses a small one.
"""

from __future__ import annotations

from math import isfinite, sqrt
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

UNITS = 4.0
"""How many units of the last place a result may be off, whatever its inputs are."""

SHARE = 4.0
"""How many times further a result may be off than one whose inputs are moved by half a unit."""


def unit(numbers: Any, dtype: Any) -> Any:
    """Return the distance between neighbors of a dtype at these numbers, as float64."""
    info = torch.finfo(dtype)
    sizes = numbers.double().abs().nan_to_num().clamp(info.smallest_normal, info.max)
    return torch.ldexp(torch.full_like(sizes, info.eps), torch.frexp(sizes)[1] - 1)


def nudged(numbers: Any, dtype: Any, generator: Any) -> Any:
    """Return numbers of which each is moved by half a unit of a dtype, up or down at random.

    A zero stays, since it is often exact, and so does what is not finite.
    """
    if numbers.is_complex():
        pairs = nudged(torch.view_as_real(numbers.resolve_conj()), dtype, generator)
        return torch.view_as_complex(pairs.contiguous())
    signs = torch.randint(0, 2, numbers.shape, generator=generator) * 2 - 1
    moved = numbers + (signs * unit(numbers, dtype) / 2).to(numbers.dtype)
    return torch.where(numbers.isfinite() & (numbers != 0), moved, numbers)


def paired(numbers: Any) -> Any:
    """Return complex numbers as pairs, and others as they are."""
    return torch.view_as_real(numbers.resolve_conj()) if numbers.is_complex() else numbers


def rounding(expected: Any, dtype: Any) -> Any:
    """Return how far off each element may be if the result is rounded, and nothing before it."""
    size = expected.abs().unsqueeze(-1) if expected.is_complex() else expected
    smallest = torch.finfo(dtype).smallest_normal
    # Kernels may flush subnormal numbers, where a dtype has the range of float32.
    flushed = smallest if smallest < 1e-30 else 0.0  # noqa: PLR2004
    return (UNITS * unit(size, dtype) + flushed).expand(paired(expected).shape)


def change(moved: Any, expected: Any) -> Any:
    """Return how far each element has moved; infinite where it became finite, or ceased to be."""
    before, after = paired(expected).double(), paired(moved).double()
    alike = (before == after) | (before.isnan() & after.isnan())
    return torch.where(alike, 0.0, (after - before).abs().nan_to_num(torch.inf, torch.inf))


def misfits(actual: Any, expected: Any, bound: Any) -> Any:
    """Return which elements are further from the expected ones than the bound for each.

    NaN and infinities have to be where they are expected. An infinity may stand for a number that
    the dtype of the result cannot hold.
    """
    largest = torch.finfo(actual.dtype).max
    found, wide = paired(actual).double(), paired(expected).double()
    overflown = found.isinf() & (found.sign() == wide.sign()) & (wide.abs() + bound >= largest)
    close = (found == wide) | ((found - wide).abs() <= bound) | overflown
    return ~(close | (found.isnan() & wide.isnan()) | bound.isinf())


def share_of(terms: int, dtype: Any) -> float:
    """Return SHARE for sums of so many terms: their own rounding adds up, in float32 at best."""
    return SHARE * (1 + sqrt(terms) * min(1.0, 2.0**-23 / float(torch.finfo(dtype).eps)))


def bounded(actual: Any, expected: Any, moves: Iterable[Any], share: float) -> tuple[Any, Any]:
    """Return which elements are wrong, and the bound for each.

    ``moves`` are exact results with nudged inputs; they are taken while an element is wrong.
    """
    base = rounding(expected, actual.dtype)
    spread = torch.zeros_like(base)
    wrong = misfits(actual, expected, base)
    for moved in moves if bool(wrong.any()) else ():
        spread = torch.maximum(spread, change(moved, expected))
        wrong = misfits(actual, expected, base + share * spread)
        if not bool(wrong.any()):
            break
    return wrong, base + share * spread


def drifts(actual: Any, expected: Any, bound: Any) -> tuple[str, ...]:
    """Return how the result is off as a whole, though its elements may each be within the bound.

    The errors of elements are taken to be independent, apart from a quarter of the bound.
    """
    found, wide = paired(actual).double(), paired(expected).double()
    known = found.isfinite() & wide.isfinite() & bound.isfinite()
    off, wide, bound = (found - wide)[known], wide[known], bound[known]
    scale = wide / wide.abs().max().clamp(min=1e-300) if wide.numel() else wide
    weights = {"scale": scale, "offset": torch.ones_like(wide)}
    return tuple(
        name
        for name, weight in weights.items()
        if (weight * off).sum().abs()
        > (weight.abs() * bound).sum() / 4 + (weight * bound).square().sum().sqrt()
    )


def shown_misfit(actual: Any, expected: Any, bound: Any, wrong: Any) -> str:
    """Return the worst of the wrong elements, and how many there are, as a sentence."""
    found, wide = paired(actual).double(), paired(expected).double()
    off = ((found - wide).abs() / bound).nan_to_num(torch.inf, torch.inf)
    worst = int(torch.where(wrong, off, -1.0).argmax())
    place = tuple(int(n) for n in torch.unravel_index(torch.tensor(worst), found.shape))
    one, other, limit = (float(each.reshape(-1)[worst]) for each in (found, wide, bound))
    count = f"{int(wrong.sum()):,} of {wrong.numel():,} elements wrong"
    within = f" within {limit:.2g}" if isfinite(other) else ""
    return f"element {place} is {one:.6g}, expected {other:.6g}{within}; {count}"

"""Judge numbers one by one: by the last place of their dtype, and by what their inputs leave open.

An operation rounds its result, and may round on the way to it. The first costs a few units of the
last place. The second is about as large as the change of an exact result whose inputs are rounded
differently, so the exact operation runs again with inputs that are moved by half a unit. No norm
over all elements is involved: a large element never excuses a small one.
"""

from __future__ import annotations

from math import isfinite, prod, sqrt
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNITS = 4.0
"""How many units of the last place a result may be off, whatever its inputs are."""

SHARE = 4.0
"""How many times further a result may be off than one whose inputs are moved by half a unit."""

STEADY = 16.0
"""How many times the bound of a rounded result may grow with its inputs at edge numbers."""

OWN = 16.0
"""How many times the bound grows at most, since torch's own kernel is not exact either."""

NARROW, WIDE = 16, 1024
"""How many units, relative to its size, a result of torch's own kernel may be off as a whole.

Kernels for dtypes of 16 bits compute in float32 for the most part, others in their own dtype.
"""


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


def disturb(tensors: Iterable[Any], finest: Any, seed: int) -> None:
    """Move each number of dense tensors in place by half a unit of its dtype, or of the finest."""
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
            continue
        storage = tensor.untyped_storage()
        inexact = tensor.is_floating_point() or tensor.is_complex()
        if inexact and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            row = torch.empty(0, dtype=tensor.dtype).set_(storage)
            coarse = torch.finfo(tensor.dtype).eps > torch.finfo(finest).eps / 2
            row.copy_(nudged(row, tensor.dtype if coarse else finest, generator))


def finest_of(dtypes: Iterable[Any]) -> Any:
    """Return the floating-point dtype with the most digits; None without one."""
    floats = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    return min(floats, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def longest_sum(inputs: Iterable[Any], outputs: Iterable[Any]) -> int:
    """Return how many numbers the sums of an operation have at most, by the shapes of tensors."""
    least = max(1, min(map(prod, outputs), default=1))
    longest = (
        max(*shape, prod(shape) // max(1, shape[0]), prod(shape) // least)
        for shape in inputs
        if shape
    )
    return max(longest, default=1)


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


def common_errors(actual: Any, expected: Any, bound: Any) -> tuple[str, ...]:
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


class Results(Protocol):
    """What the operation returns in other ways, each computed when it is asked for."""

    share: float

    def moves(self) -> Iterator[Any]:
        """Yield exact results for inputs that are nudged."""

    def own(self) -> Any:
        """Return the result of torch's own kernel on the CPU for the inputs; None without one."""

    def own_moves(self) -> Iterator[Any]:
        """Yield results of torch's own kernel for inputs that are nudged."""


def float_faults(
    actual: Any, expected: Any, results: Results, *, is_steady: bool = False
) -> tuple[tuple[str, ...], bool]:
    """Return how a result is wrong, and whether torch's own kernel is no better than the bound.

    The bound is then wider. ``is_steady`` takes no step of a function for rounding where torch's
    own kernel takes none: edge numbers lie on steps, and no result is half right there.
    """
    wrong, bound = bounded(actual, expected, results.moves(), results.share)
    own = results.own()
    if own is not None and (own.shape, own.dtype) != (actual.shape, actual.dtype):
        own = None
    if own is not None and is_steady:
        base = rounding(expected, actual.dtype)
        steady = torch.minimum(bound, STEADY * base)
        bound = torch.where(misfits(own, expected, base), bound, steady)
        wrong = misfits(actual, expected, bound)
    off = common_errors(actual, expected, bound)
    wider = None
    if own is not None and (bool(wrong.any()) or off):
        wider = widened(actual, expected, own, bound, results)
    if wider is not None:
        bound, wrong = wider, misfits(actual, expected, wider)
        off = common_errors(actual, expected, wider)
    if bool(wrong.any()):
        return (shown_misfit(actual, expected, bound, wrong),), wider is not None
    return tuple(f"its {name} is off as a whole" for name in off), wider is not None


def widened(actual: Any, expected: Any, own: Any, bound: Any, results: Results) -> Any:
    """Return a bound that torch's own kernel keeps; None if it keeps the given one.

    What equals its result bit for bit has to be close as a whole only.
    """
    error = change(own, expected)
    known = (error / bound)[error.isfinite()]
    times = float(known.max()) if known.numel() else 0.0
    if times <= 1 and not bool(error.isinf().any()):
        return None
    # Where it is finite and the exact result is not, or the reverse, neither is known to be right.
    unknown = torch.where(error.isinf(), torch.inf, 0.0)
    if bool((change(actual, own) == 0).all()):
        wide = paired(expected).double()
        finite = error.isfinite() & wide.isfinite()
        noise, size = error[finite].square().sum(), wide[finite].square().sum()
        eps = torch.finfo(actual.dtype).eps
        share = (NARROW if eps > 1e-4 else WIDE) * eps  # noqa: PLR2004
        is_close = bool(noise <= share**2 * size)
        return torch.full_like(bound, torch.inf) if is_close else torch.maximum(bound, unknown)
    wider = torch.maximum(bound * min(max(1.0, 2 * times), OWN), 2 * error) + unknown
    for moved in results.own_moves():
        if not bool(misfits(actual, expected, wider).any()):
            break
        wider = torch.maximum(wider, SHARE * change(moved, own))
    return wider


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

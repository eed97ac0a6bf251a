"""Judge the numbers of a device element by element, tile by tile, and as a whole.

PCC does not change with scale and offset, and hardly with one wrong tile. So each element has a
bound: a few units of the last place of its format, and a multiple of the error that is expected of
the kernel. That error is the one of a model of the kernel, where there is one. Otherwise it is
about as large as the change of the exact result when its inputs move by half a unit.

Errors of elements that sum many products are spread over a tile, so what is expected there is
averaged over rows or columns of a tile, whichever is less: a large row never excuses another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch

from optrove.portable.judging import UNITS, change, nudged, unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

TILE: Final = 32

BLOCK: Final = 16
"""How many numbers of a row share an exponent in block floats."""

FRACTIONS: Final = {"BFLOAT8_B": 6, "BFLOAT4_B": 2}
"""How many bits the numbers of a block have after that of the largest one."""

LARGEST: Final = 3.38e38
"""About the largest number of bfloat16 and float32; a kernel may give infinity instead."""

SMALLEST: Final = 2.0**-126
"""Kernels flush smaller numbers to zero."""

MODELED: Final = 6.0
"""How many times the error of a model of the kernel is accepted in sums of compared forms."""

ROUGHLY_MODELED: Final = 16.0
"""The same where the model may have the order of sums wrong, as for other shapes, and for functions
of one value, of which errors are small and not alike: ``erfinv`` near zero needs thirteen times."""

UNMODELED: Final = {"HiFi4": 32.0, "HiFi3": 32.0}
"""How many times the change by half a unit is accepted, by math fidelity, without a model."""

UNMODELED_DEFAULT: Final = 64.0

APPROXIMATE: Final = 1 / 28
"""How far off, relative to themselves, all numbers of a kernel without a model may be: a fast
exponential gives 0.969 for 1."""

APPROXIMATING: Final = ("softmax", "attention", "norm")
"""The words in the names of ops whose kernels do that by default."""

COMMON: Final = 3.0
"""How many times the change by half a unit is accepted if all numbers have it, without a model."""

MOVES: Final = 4
"""How often the inputs are moved."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What is known of the result of a kernel: the exact numbers, and how far it may be off.

    Each element may always be off by so many ``units`` of the last place, and beside that by its
    expected error, ``spread``: ``share`` is how many times it is accepted, and ``common`` how many
    times if all elements have it. ``modeled`` are the numbers of a model of the kernel, which are
    as right as the exact ones. A kernel that ``approximates`` has a fast exponential or root, or
    drops bits of its inputs, and no model.
    """

    exact: Any
    spread: Any
    share: float
    common: float
    modeled: Any = None
    approximates: bool = False
    units: float = UNITS

    def approximation(self) -> Any:
        """Return how far off each number may be because its kernel approximates functions."""
        return self.exact.abs() * APPROXIMATE if self.approximates else 0.0


def step(numbers: Any, form: str) -> Any:
    """Return the distance between neighbors of a format at these numbers, as float64.

    It is infinite in a block with a number that is not finite, which takes the others along.
    """
    if form not in FRACTIONS:
        return unit(numbers, torch.float32 if form == "FLOAT32" else torch.bfloat16)
    sizes = numbers.double().abs().nan_to_num(torch.inf)
    width = sizes.shape[-1] if sizes.dim() else 1
    rows = torch.nn.functional.pad(sizes.reshape(-1, width), (0, -width % BLOCK))
    largest = rows.reshape(-1, BLOCK).amax(-1, keepdim=True).clamp(min=SMALLEST)
    powers = torch.ldexp(torch.ones_like(largest), torch.frexp(largest)[1] - 1 - FRACTIONS[form])
    powers = torch.where(largest.isinf(), largest, powers)
    steps = powers.expand(-1, BLOCK).reshape(rows.shape)[:, :width]
    return steps.reshape(sizes.shape)


def tiled(numbers: Any, fill: float = 0.0) -> tuple[Any, tuple[int, int]]:
    """Return numbers as tiles of 32 rows and columns, and how many tiles are below and beside.

    The last dimensions are those of the tiles; ``fill`` is what fills the last ones up.
    """
    flat = numbers if numbers.dim() > 1 else numbers.reshape(1, -1)
    height, width = flat.shape[-2:]
    rows = torch.nn.functional.pad(
        flat.reshape(-1, height, width), (0, -width % TILE, 0, -height % TILE), value=fill
    )
    grid = (rows.shape[-2] // TILE, rows.shape[-1] // TILE)
    return rows.reshape(-1, grid[0], TILE, grid[1], TILE).transpose(2, 3), grid


def pooled(spread: Any) -> Any:
    """Return the expected error of elements whose errors are alike within a tile."""
    if spread.dim() < 2 or not spread.numel():  # noqa: PLR2004 - matrices
        return spread
    tiles, grid = tiled(spread)
    squares = tiles.square()
    by_row = squares.mean(-1, keepdim=True).sqrt()
    by_column = squares.mean(-2, keepdim=True).sqrt()
    smooth = torch.maximum(tiles, torch.minimum(by_row, by_column))
    rows = smooth.transpose(2, 3).reshape(-1, grid[0] * TILE, grid[1] * TILE)
    height, width = spread.shape[-2:]
    return rows[:, :height, :width].reshape(spread.shape)


def by_model(exact: Any, modeled: Any, *, compared: bool, sums: bool) -> Expected:
    """Return what is expected of a kernel of which there is a model.

    Without ``sums``, errors of elements are not alike within a tile.
    """
    modeled = modeled.double().reshape(exact.shape)
    spread = change(modeled, exact)
    finite = torch.where(spread.isinf(), 0.0, spread)
    share = MODELED if compared and sums else ROUGHLY_MODELED
    spread = pooled(finite) if sums else finite
    return Expected(exact.double(), spread, share, 0.5 if compared else 1.5, modeled)


def moved_by(generator: Any) -> Callable[[Any], Any]:
    """Return a function that moves the numbers of a tensor by half a unit, without tiny ones."""

    def moved(numbers: Any) -> Any:
        if not numbers.is_floating_point() or not numbers.numel():
            return numbers
        flushed = torch.where(numbers.abs() < SMALLEST, torch.zeros_like(numbers), numbers)
        return nudged(flushed.float(), torch.bfloat16, generator)

    return moved


def by_moves(exact: Any, again: Callable[..., Any], op: str, fidelity: str) -> Expected:
    """Return what is expected of the kernel of an op by results of moved inputs.

    ``again`` computes the exact result with each of its tensors changed.
    """
    moved = moved_by(torch.Generator().manual_seed(0))
    spread = torch.zeros_like(exact, dtype=torch.float64)
    for _ in range(MOVES):
        spread = torch.maximum(spread, change(again(moved).reshape(exact.shape), exact))
    is_open = spread.isinf()
    known = pooled(torch.where(is_open, 0.0, spread))
    share = UNMODELED.get(fidelity, UNMODELED_DEFAULT)
    approximates = fidelity == "LoFi" or any(word in op for word in APPROXIMATING)
    spread = torch.where(is_open, torch.inf, known)
    return Expected(exact.double(), spread, share, COMMON, None, approximates)


def is_held(exact: Any) -> bool:
    """Return whether bfloat16 can hold numbers as they are."""
    numbers = exact.double().nan_to_num()
    return bool(torch.equal(numbers.bfloat16().double(), numbers))


def only_moves(exact: Any, again: Callable[..., Any], form: str) -> bool:
    """Return whether an operation only moves or selects numbers, and rounds none."""
    if not exact.is_floating_point() or form in FRACTIONS or not is_held(exact):
        return False
    # Otherwise the golden function itself rounds.
    return not is_held(again(moved_by(torch.Generator().manual_seed(0))))


def by_rounding(exact: Any, units: float) -> Expected:
    """Return what is expected of a kernel that moves or selects numbers."""
    none = torch.zeros_like(exact, dtype=torch.float64)
    return Expected(exact.double(), none, 0.0, 0.0, units=units)


def by_size(exact: Any, error: float, common: float = COMMON) -> Expected:
    """Return what is expected of a kernel whose error is a part of the size of its numbers."""
    sizes = exact.double().abs().nan_to_num(0.0, 0.0, 0.0)
    spread = pooled(sizes) * error / UNMODELED_DEFAULT
    return Expected(exact.double(), spread, UNMODELED_DEFAULT, common, approximates=True)


def without_flushed(expected: Expected, again: Callable[..., Any]) -> Expected:
    """Return what is expected, and nothing where it depends on numbers that kernels flush."""

    def flushed(numbers: Any) -> Any:
        if not numbers.is_floating_point():
            return numbers
        return torch.where(numbers.abs() < SMALLEST, torch.zeros_like(numbers), numbers)

    moves = change(again(flushed).reshape(expected.exact.shape), expected.exact) > 0
    return replace(expected, spread=torch.where(moves, torch.inf, expected.spread))


def wrong_elements(actual: Any, expected: Expected, form: str) -> tuple[Any, Any]:
    """Return which elements are wrong, and the bound for each.

    Where the exact result is no number, kernels differ, and nothing is wrong.
    """
    exact, found = expected.exact, actual.double()
    floating = actual.is_floating_point()
    bound = torch.where(expected.spread.isinf(), torch.inf, expected.share * expected.spread)
    if floating:
        bound = bound + expected.units * step(exact, form) + 2 * expected.approximation() + SMALLEST
    close = (found == exact) | ((found - exact).abs() <= bound) | exact.isnan() | bound.isinf()
    # An infinity for a number that the format cannot hold, or the largest one for an infinity.
    close |= (found.abs() >= LARGEST) & (exact.abs() >= LARGEST) & (found.sign() == exact.sign())
    if expected.modeled is not None:
        modeled = expected.modeled
        near = expected.units * step(modeled, form) + SMALLEST if floating else 0.0
        close |= (found == modeled) | ((found - modeled).abs() <= near)
        close |= found.isnan() & modeled.isnan()
    return ~close, bound


def drifting_tiles(actual: Any, expected: Expected, form: str) -> list[str]:
    """Return how the result is off as a whole, or a tile of it, though its elements may pass.

    Errors of elements have a part of what is expected in common, and are otherwise independent.
    """
    center = expected.exact if expected.modeled is None else expected.modeled
    known = actual.isfinite() & expected.exact.isfinite() & center.isfinite()
    error = expected.spread * expected.common + expected.approximation()
    error = error + step(expected.exact, form) / 2
    known &= error.isfinite()
    exact, center, error = (
        torch.where(known, each, 0.0) for each in (expected.exact, center, error)
    )
    off = torch.where(known, actual.double(), 0.0) - center
    own = center - exact
    columns = [tiled(each)[0].flatten(3) for each in (off, error, own, exact, known.double())]
    grid = tiled(off)[1]
    for where, parts in (
        ("", [each.reshape(1, 1, 1, -1) for each in columns]),
        ("tile", columns),
    ):
        found = _drift(*parts)
        if found is not None:
            index, text = found
            here = f"{tile_name(index, grid)}: " if where else ""
            return [here + text]
    return []


def _drift(off: Any, error: Any, own: Any, exact: Any, known: Any) -> tuple[int, str] | None:
    """Return the worst row of numbers that is off by a factor or an offset, and how."""
    largest = exact.abs().amax(-1, keepdim=True).clamp(min=1e-300)
    for name, weight in (("times", exact / largest), ("offset", known)):
        common = (weight * off).sum(-1).abs() - (weight * own).sum(-1).abs()
        noise = (weight * error).square().sum(-1).sqrt()
        limit = (weight.abs() * error).sum(-1) + 2 * UNITS * noise
        excess = (common / limit.clamp(min=1e-300)).flatten()
        worst = int(excess.argmax())
        if not excess.numel() or float(excess[worst]) <= 1:
            continue
        sums = [(weight * each).sum(-1).flatten()[worst] for each in (off + own, exact, weight)]
        if name == "times":
            return worst, f"its numbers are {1 + float(sums[0] / sums[1]):.4g} times the expected"
        mean = float(sums[0] / sums[2])
        return worst, f"its numbers differ by {mean:.4g} on average"
    return None


def tile_name(index: int, grid: tuple[int, int]) -> str:
    """Return the row and column of a tile; before them the number of its matrix, if not 0."""
    matrix, rest = divmod(index, grid[0] * grid[1])
    row, column = divmod(rest, grid[1])
    return f"tile ({matrix}, {row}, {column})" if matrix else f"tile ({row}, {column})"


def shown_elements(actual: Any, expected: Expected, wrong: Any, bound: Any) -> str:
    """Return the worst of the wrong elements and its tile, and how many there are."""
    found = actual.double()
    off = ((found - expected.exact).abs() / bound).nan_to_num(torch.inf, torch.inf)
    off = torch.where(wrong, off, -1.0)
    worst = int(off.argmax())
    index = tuple(int(n) for n in torch.unravel_index(torch.tensor(worst), found.shape))
    one, other, limit = (float(x.reshape(-1)[worst]) for x in (found, expected.exact, bound))
    tiles, grid = tiled(off, fill=-1.0)
    by_tile = tiles.flatten(3).amax(-1).flatten()
    tile = tile_name(int(by_tile.argmax()), grid)
    text = f"{tile}: element {index} is {one:.6g}, expected {other:.6g} within {limit:.2g}"
    count = f"{int(wrong.sum()):,} of {wrong.numel():,} elements"
    return f"{text}; wrong: {count}, {int((by_tile >= 0).sum()):,} of {len(by_tile):,} tiles"


def faults(actual: Any, expected: Expected, form: str) -> list[str]:
    """Return what is wrong with the numbers of a device; the first words say where."""
    if not actual.numel():
        return []
    actual = actual.reshape(expected.exact.shape)
    wrong, bound = wrong_elements(actual, expected, form)
    if bool(wrong.any()):
        return [shown_elements(actual, expected, wrong, bound)]
    return drifting_tiles(actual, expected, form) if actual.is_floating_point() else []


def rounded_alike(actual: Any, others: Iterable[Any]) -> bool:
    """Return whether a result is one of these, rounded once: then nothing can be wrong with it."""
    for other in others:
        rounded = other.reshape(actual.shape).to(actual.dtype)
        if torch.equal(actual, rounded):
            return True
    return False

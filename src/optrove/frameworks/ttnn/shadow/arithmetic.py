"""The arithmetic of a Tensix core on torch tensors: rounding, matrix unit, packer.

Values are float32 tensors whose numbers are exactly representable in the format at hand. The matrix
unit (FPU) multiplies 5 bits of one operand's significand by 7 bits of the other's, in up to four
passes ("fidelity phases"), sums eight products at a time on the exponent of the largest, and adds
the sum to the destination register, which is bfloat16 or float32. It rounds half away from zero,
has no subnormal numbers, and knows no infinity or NaN among its inputs: their exponent is one more
than the largest. Each function here was held against the outputs of ttnn's kernels.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from optrove.model.ttnn_classes import TILE

if TYPE_CHECKING:
    from collections.abc import Callable

torch: Any = import_module("torch")


def _load_extension() -> Any:
    try:
        return import_module("optrove.frameworks._matrix_unit")
    except ImportError:  # there was no compiler, or the processor has no AVX2
        return None


_extension: Any = _load_extension()

FACE: Final = 16
GROUP: Final = 8

# Bits of the significand behind the point: of one operand of the matrix unit in its first pass and
# in its second, and of a sum of products.
RIGHT_HIGH, RIGHT_LOW, LEFT_HIGH, SUM = 4, 9, 6, 10

SMALLEST: Final = 2.0**-126
TINIEST: Final = 2.0**-149
LARGEST_SUBNORMAL: Final = 2.0**-126 - 2.0**-149

# Products that are summed one by one, by the C extension (into a bfloat16 and into a float32
# destination) and by torch, and roundings of the destination, per multiplication: with more, sums
# are taken by torch, and rounded less often.
EXACT_PRODUCTS: Final = 1 << 33
EXACT_PRODUCTS_WIDE: Final = 1 << 28
EXACT_PRODUCTS_BY_TORCH: Final = 1 << 21
ROUNDINGS: Final = 1 << 23

# Threads of an exact multiplication, and products that are worth them.
THREADS: Final = 2
THREAD_PRODUCTS: Final = 1 << 22

# Elements of a product: with more, the passes are summed without rounding in between.
EXACT_ELEMENTS: Final = 1 << 20


def flushed(values: Any) -> Any:
    """Return the values without subnormal numbers."""
    return torch.nn.functional.hardshrink(values, LARGEST_SUBNORMAL)


def nearest_even(values: Any) -> Any:
    """Round to bfloat16, halves to the even neighbor."""
    return values.to(torch.bfloat16).to(torch.float32)


def half_away(values: Any) -> Any:
    """Round to bfloat16, halves away from zero; too large becomes infinite, subnormal zero."""
    bits = values.view(torch.int32).add(0x8000).bitwise_and_(-0x10000)
    return flushed(bits.view(torch.float32))


def truncated(values: Any) -> Any:
    """Cut to bfloat16."""
    return values.view(torch.int32).bitwise_and(-0x10000).view(torch.float32)


def nineteen_bits(values: Any) -> Any:
    """Cut float32 to what the matrix unit reads of it."""
    return values.contiguous().view(torch.int32).bitwise_and(-0x2000).view(torch.float32)


def power(values: Any) -> Any:
    """Return the power of two of each value's exponent; zero for zero."""
    if values.dtype == torch.float64:
        return values.view(torch.int64).bitwise_and(0x7FF0 << 48).view(torch.float64)
    return values.view(torch.int32).bitwise_and(0x7F80 << 16).view(torch.float32)


def whole_half_away(values: Any) -> Any:
    """Round to whole numbers, halves away from zero."""
    return values.sign().mul_(0.5).add_(values).trunc_()


def registers(*operands: Any) -> list[Any]:
    """Return operands as the matrix unit reads them.

    Infinity and NaN are numbers of the next exponent, which only float64 can hold.
    """
    operands = tuple(map(flushed, operands))
    if all(math.isfinite(values.sum()) for values in operands):
        return [*operands]
    if all(bool(torch.isfinite(values).all()) for values in operands):
        return [*operands]
    return [_numbered(values) for values in operands]


def _numbered(values: Any) -> Any:
    """Return float64 values, those without a number as numbers of exponent 128."""
    bits = values.view(torch.int32)
    significand = 1 + (bits & 0x7FFFFF).to(torch.float64) * 2.0**-23
    beyond = torch.where(bits < 0, -significand, significand) * 2.0**128
    return torch.where(torch.isfinite(values), values.to(torch.float64), beyond)


def written(values: Any, *, wide: bool) -> Any:
    """Return values as the destination register holds them: bfloat16, or float32 if ``wide``."""
    if not wide and values.dtype == torch.float32:
        return half_away(values)
    step = power(values) * 2.0 ** (-23 if wide else -7)
    rounded = whole_half_away(values / torch.where(step == 0, 1.0, step)) * step
    return flushed(rounded.to(torch.float32))


def add(left: Any, right: Any, *, wide: bool = False) -> Any:
    """Add on the matrix unit: the smaller operand loses bits before the sum is rounded."""
    left, right = registers(*torch.broadcast_tensors(left, right))
    # Of the larger operand, nothing is lost.
    step = power(torch.maximum(left.abs(), right.abs())).mul_(2.0**-SUM).clamp_(min=TINIEST)
    whole = whole_half_away(left / step).add_(whole_half_away(right / step))
    return written(whole.mul_(step), wide=wide)


def multiply(
    left: Any, right: Any, phases: int, *, wide: bool = False, total: float | Any = 0.0
) -> Any:
    """Multiply element by element on the matrix unit; ``left`` is its operand of five bits.

    The product is added to the ``total`` that the destination register has.
    """
    if left.numel() > EXACT_ELEMENTS:
        pairs = MatrixUnit(phases).passes(flushed(right), flushed(left))
        product = sum(one * other for one, other in pairs) + total
        return product if wide else half_away(product)
    left, right = registers(*torch.broadcast_tensors(left, right))
    scale = power(left) * power(right)
    total = torch.zeros_like(left) + total
    for phase in range(phases):
        product = _part(left, phase & 1, RIGHT_HIGH, RIGHT_LOW)
        product = product * _part(right, phase & 2, LEFT_HIGH, SUM)
        nominal = scale * _shrunk(phase)
        product = torch.where(nominal < SMALLEST, torch.zeros_like(product), product)
        step = torch.maximum(nominal, power(total)) * 2.0 ** -(23 if wide else SUM)
        step = torch.where(step == 0, 1.0, step)
        summed = torch.floor(product / step + 0.5) + whole_half_away(total / step)
        total = written(summed * step, wide=wide).to(left.dtype)
    return total.to(torch.float32)


def _shrunk(phase: int) -> float:
    """Return by how much the products of a phase are smaller than those of the first."""
    return 2.0 ** (-5 * (phase & 1) - 7 * (phase >> 1))


def _part(values: Any, low: int, high_bits: int, low_bits: int) -> Any:
    """Return the leading bits of each significand, or those that follow them."""
    if values.dtype == torch.float32:
        bits = values.contiguous().view(torch.int32)
        high = bits.bitwise_and(-1 << 23 - high_bits).view(torch.float32)
        if not low:
            return high
        return bits.bitwise_and(-1 << 23 - low_bits).view(torch.float32).sub_(high)
    scale = power(values)
    ratio = values / torch.where(scale == 0, 1.0, scale)
    high = torch.trunc(ratio * 2.0**high_bits) * 2.0**-high_bits
    if not low:
        return high * scale
    return (torch.trunc(ratio * 2.0**low_bits) * 2.0**-low_bits - high) * scale


@dataclass(frozen=True, slots=True)
class MatrixUnit:
    """How a kernel uses the matrix unit: passes, destination, and how blocks of K are summed.

    Without ``rounds`` the destination is not rounded: for what would take too long otherwise.
    """

    phases: int = 4
    wide: bool = False
    blocks_in_l1: bool = False
    rounds: bool = True

    def matmul(
        self,
        left: Any,
        right: Any,
        block: int,
        *,
        keeps_last: bool = False,
        spill: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Multiply matrices, whose inner dimension comes in blocks of so many elements.

        With ``blocks_in_l1`` the packer sums the blocks but the last in L1, the last as well if
        ``keeps_last`` (a bias follows); otherwise all are summed in the destination register,
        which goes through ``spill`` between two blocks.
        """
        exact = self._is_exact(left, right)
        left, right = registers(left, right) if exact and not _extension else (left, right)
        inner = left.shape[-1]
        count = -(-inner // block)
        total = None
        if not self.rounds or (self.wide and not exact):
            return sum(one @ other for one, other in self.passes(flushed(left), flushed(right)))
        step = FACE * -(-self._products(left, right) // FACE // ROUNDINGS)
        add = partial(self._block, step=0 if exact else step)
        if not exact and step > TILE:
            return add(left, right, None)
        if not self.blocks_in_l1 or count <= (1 if keeps_last else 2):
            if spill is None or self.wide:
                return add(left, right, None)
            for start in range(0, inner, block):
                part = left[..., start : start + block], right[..., start : start + block, :]
                total = add(*part, total if total is None else spill(total))
            return total
        for start in range(0, inner, block):
            part = left[..., start : start + block], right[..., start : start + block, :]
            if start + block >= inner and not keeps_last:
                return add(*part, total)
            block_sum = add(*part, None)
            total = block_sum if total is None else self._sum_in_l1(total, block_sum)
        return total

    def sum_rows(self, values: Any, scale: float = 1.0) -> Any:
        """Sum the last dimension, each value times a bfloat16: one column of a product."""
        return self.matmul(values, torch.full((values.shape[-1], 1), scale), values.shape[-1])

    def sum_columns(self, values: Any, scale: float = 1.0) -> Any:
        """Sum the last dimension but one: a row of a product."""
        rows = torch.full((1, values.shape[-2]), scale)
        return self.matmul(rows, values, values.shape[-2])

    def _sum_in_l1(self, total: Any, block_sum: Any) -> Any:
        total = total + block_sum
        return total if self.wide else nearest_even(total)

    def _products(self, left: Any, right: Any) -> int:
        """Return how many products of a part of the significands there are.

        Columns are summed eight at a time.
        """
        size = _batch(left, right)
        columns = -(-right.shape[-1] // GROUP) * GROUP
        return int(self.phases * torch.Size((*size, *left.shape[-2:], columns)).numel())

    def _is_exact(self, left: Any, right: Any) -> bool:
        limit = EXACT_PRODUCTS_WIDE if self.wide else EXACT_PRODUCTS
        return self._products(left, right) <= (limit if _extension else EXACT_PRODUCTS_BY_TORCH)

    def _block(self, left: Any, right: Any, total: Any, *, step: int) -> Any:
        """Add the product of two blocks to the destination register: exactly, or in steps."""
        if total is None:
            size = _batch(left, right)
            total = torch.zeros((*size, left.shape[-2], right.shape[-1]), dtype=torch.float32)
        if step:
            return self._stepwise(flushed(left), flushed(right), total, step)
        return (self._by_extension if _extension else self._by_torch)(left, right, total)

    def _by_extension(self, left: Any, right: Any, total: Any) -> Any:
        """Sum as the hardware does, product by product, in C; the total may change in place."""
        total = total.contiguous()
        if right.shape[:-2].numel() == 1:
            lefts = left.expand(*total.shape[:-1], -1).reshape(1, -1, left.shape[-1])
            rights = right.reshape(1, *right.shape[-2:])
        else:
            lefts = left.expand(*total.shape[:-1], -1).flatten(0, -3)
            rights = right.expand(*total.shape[:-2], -1, -1).flatten(0, -3)
        totals = total.view(len(lefts), -1, total.shape[-1])
        threads = THREADS if self._products(left, right) >= THREAD_PRODUCTS else 1
        columns = total.shape[-1]
        width = columns if threads == 1 else -(-columns // threads // GROUP) * GROUP
        jobs = [
            (*matrices, first, min(first + width, columns))
            for matrices in zip(lefts, rights, totals, strict=True)
            for first in range(0, columns, width)
        ]
        if threads == 1:
            for job in jobs:
                self._add_columns(*job)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda job: self._add_columns(*job), jobs))
        return total

    def _add_columns(self, left: Any, right: Any, total: Any, first: int, last: int) -> None:
        buffers = (left.contiguous().numpy(), right.contiguous().numpy(), total.numpy())
        sizes = (len(left), *right.shape)
        _extension.add_product(*buffers, *sizes, first, last, self.phases, self.wide)

    def _by_torch(self, left: Any, right: Any, total: Any) -> Any:
        """Sum as the hardware does, product by product, without a compiler."""
        inner = left.shape[-1]
        if inner % FACE:
            left = torch.nn.functional.pad(left, (0, FACE - inner % FACE))
            right = torch.nn.functional.pad(right, (0, 0, 0, FACE - inner % FACE))
        for start in range(0, left.shape[-1], TILE):
            for phase in range(self.phases):
                first = _part(left[..., start : start + TILE], phase & 2, LEFT_HIGH, SUM)
                second = _part(
                    right[..., start : start + TILE, :], phase & 1, RIGHT_HIGH, RIGHT_LOW
                )
                scales = (
                    power(left[..., start : start + TILE]),
                    power(right[..., start : start + TILE, :]) * _shrunk(phase),
                )
                for face in range(0, first.shape[-1], FACE):
                    groups = [
                        _sum_of_products(first, second, *scales, slice(place, place + GROUP))
                        for place in range(face, face + FACE, GROUP)
                    ]
                    total = self._accumulated(total, groups)
        return total

    def _accumulated(self, total: Any, groups: list[tuple[Any, Any]]) -> Any:
        kind = torch.float64 if self.wide else groups[0][0].dtype
        total = total.to(kind)
        (one, scale), (other, second) = groups
        largest = torch.maximum(torch.maximum(scale, second).to(kind), power(total))
        step = largest * 2.0 ** -(23 if self.wide else SUM)
        step = torch.where(step == 0, 1.0, step)
        whole = whole_half_away(total / step)
        for part in (one, other):
            whole = whole + torch.floor(part.to(kind) / step + 0.5)
        return written(whole * step, wide=self.wide)

    def passes(self, left: Any, right: Any) -> list[tuple[Any, Any]]:
        """Return the pairs of operands whose products the phases sum."""
        if self.phases > 3:  # noqa: PLR2004 - HiFi4
            return [(left, right)]
        high = _part(left, 0, LEFT_HIGH, SUM)
        if self.phases == 1:
            return [(high, _part(right, 0, RIGHT_HIGH, RIGHT_LOW))]
        if self.phases == 2:  # noqa: PLR2004 - HiFi2
            return [(high, right)]
        return [(high, right), (left - high, _part(right, 0, RIGHT_HIGH, RIGHT_LOW))]

    def _stepwise(self, left: Any, right: Any, total: Any, step: int) -> Any:
        """Sum ``step`` products by torch, and round the destination after each step."""
        if step > TILE:
            pairs = self.passes(left, right)
        else:
            pairs = [
                (
                    _part(left, phase & 2, LEFT_HIGH, SUM),
                    _part(right, phase & 1, RIGHT_HIGH, RIGHT_LOW),
                )
                for phase in range(self.phases)
            ]
        pairs = [pair for pair in pairs if all(bool(each.any()) for each in pair)]
        for start in range(0, left.shape[-1], max(TILE, step)):
            stop = min(start + max(TILE, step), left.shape[-1])
            for first, second in pairs:
                for place in range(start, stop, step):
                    part = slice(place, place + step)
                    total = _rounded_sum(total, first[..., part] @ second[..., part, :])
        return total


def _batch(left: Any, right: Any) -> Any:
    """Return the sizes before the matrices; torch.broadcast_shapes takes a second to import."""
    corners = torch.broadcast_tensors(left[..., :1, :1], right[..., :1, :1])
    return corners[0].shape[:-2]


def _rounded_sum(total: Any, sums: Any) -> Any:
    """Add sums of products to a bfloat16 destination, which holds few bits more than it keeps."""
    step = torch.maximum(power(total), power(sums)).mul_(2.0**-SUM).clamp_(min=SMALLEST)
    return half_away(sums.div_(step).round_().mul_(step).add_(total))


def _sum_of_products(
    left: Any, right: Any, left_scale: Any, right_scale: Any, part: slice
) -> tuple[Any, Any]:
    """Return the sums of eight products on their largest exponent, and that exponent's power."""
    scales = left_scale[..., part, None] * right_scale[..., None, part, :]
    largest = scales.amax(-2)
    step = torch.where(largest == 0, 1.0, (largest * 2.0**-SUM).clamp(min=TINIEST))
    products = left[..., part, None] * right[..., None, part, :] / step[..., None, :]
    return whole_half_away(products).sum(-2) * step, largest


def one_bit_less(values: Any) -> Any:
    """Round to bfloat16 without its last bit, halves away: as the packer reads for block floats."""
    return values.view(torch.int32).add(0x10000).bitwise_and_(-0x20000).view(torch.float32)


def block_float(values: Any, bits: int) -> Any:
    """Pack bfloat16 values to a format of ``bits`` bits that shares exponents, and back.

    Sixteen neighbors in a row share the exponent of the largest. Halves are rounded away from
    zero to eight bits, and further bits are cut.
    """
    width = values.shape[-1]
    rows = torch.nn.functional.pad(flushed(values), (0, -width % FACE)).unflatten(-1, (-1, FACE))
    largest = power(rows).amax(-1, keepdim=True)
    rows = torch.where((largest == torch.inf) & rows.isfinite(), torch.zeros_like(rows), rows)
    step = torch.where(largest == torch.inf, 1.0, largest * 2.0**-6)
    step = torch.where(step == 0, 1.0, step)
    whole = torch.floor(rows.abs() / step + 0.5).clamp(max=127)
    cut = 2 ** (8 - bits)
    packed = torch.copysign(torch.floor(whole / cut) * cut * step, rows)
    packed = torch.where(rows.isfinite(), packed, rows)
    return packed.flatten(-2)[..., :width]

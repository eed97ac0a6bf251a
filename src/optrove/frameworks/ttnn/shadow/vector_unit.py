"""Functions of one bfloat16 value as the vector unit (SFPU) of a Tensix core computes them.

The unit computes in float32 with fused multiply-add, flushes subnormal numbers, and hands bfloat16
results on either rounded, halves away from zero, or cut. What is no number leaves the core as
infinity. Kernels approximate most functions by polynomials; their coefficients are those of ttnn
0.78. A bfloat16 value has 16 bits, so each function is evaluated once for all values and looked up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from optrove.frameworks.ttnn.shadow.arithmetic import (
    flushed,
    half_away,
    multiply,
    power,
    torch,
    truncated,
)

Function = Callable[[Any], Any]

INFINITE: Final = 0x7F800000
"""The bits of infinity."""

# Not from any source: with it, 99.95 % of the results of ttnn.exp are equal, without it 97.5 %.
EXP_EXCESS: Final = 2e-4


def fused(one: Any, other: Any, third: Any) -> Any:
    """Return one * other + third; the product keeps three bits more than a float32."""
    one, other, third = (
        torch.as_tensor(each, dtype=torch.float32).to(torch.float64) for each in (one, other, third)
    )
    product = one * other
    step = power(one) * power(other) * 2.0**-26
    whole = torch.trunc(product / torch.where(step == 0, 1.0, step))
    sticky = torch.where(whole * step == product, 0, 1 - whole.abs() % 2)
    kept = torch.where(
        product.isfinite(), (whole + torch.copysign(sticky, product)) * step, product
    )
    return flushed((kept + third).to(torch.float32))


def polynomial(values: Any, *coefficients: float) -> Any:
    """Return c0 + c1 x + c2 x² ..., from the last coefficient on."""
    result = torch.full_like(values, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = fused(result, values, coefficient)
    return result


def exact(function: Function) -> Function:
    """Return a function that is computed in float64 and rounded to float32."""

    def compute(values: Any) -> Any:
        return function(values.to(torch.float64)).to(torch.float32)

    return compute


def _power_of_two(scaled: Any) -> Any:
    """Return 2 ** (x - 127) for x from 0 to 255, by a polynomial of second degree."""
    bits = torch.floor(scaled.clamp(0.0, 255.0).to(torch.float64) * 2.0**23).to(torch.int32)
    fraction = (bits & 0x7FFFFF).to(torch.float32)
    significand = polynomial(fraction, 1.0017248, 7.839635491371155e-08, 4.791750143340323e-15)
    mantissa = significand.view(torch.int32) & 0x7FFFFF
    exponent = bits & -0x800000
    result = (exponent | mantissa).view(torch.float32)
    return torch.where(exponent >= INFINITE, torch.inf, result)


def exp(values: Any) -> Any:
    """Return e ** x."""
    return _power_of_two(fused(values, 1.4426950216293335, 127.0))


def exp_op(values: Any) -> Any:
    """Return e ** x as the op does: its results are a little larger than those inside others."""
    return _power_of_two(fused(values, 1.4426950216293335, 127.0) + EXP_EXCESS)


def exp_fast(values: Any) -> Any:
    """Return e ** x as a straight line between powers of two (Schraudolph's way)."""
    line = fused(values.nan_to_num(0.0).clamp(-88.5, 89.0), 369.329925537109375, 32500.818359375)
    return (torch.floor(line + 0.5).to(torch.int32) << 15).view(torch.float32)


def exp2(values: Any) -> Any:
    """Return 2 ** x."""
    return _power_of_two(values + 127.0)


def sigmoid(values: Any) -> Any:
    """Return 1 / (1 + e ** -x)."""
    result = flushed(exact(torch.reciprocal)(1.0 + exp(-values)))
    return torch.where(values.isnan(), 0.0, result)


def silu(values: Any) -> Any:
    """Return x / (1 + e ** -x)."""
    return values * sigmoid(values)


def tanh(values: Any) -> Any:
    """Return the hyperbolic tangent, by a polynomial of sixth degree."""
    approximate = polynomial(
        values.abs(),
        0.0,
        0.999004364013671875,
        3.0897438526153564e-2,
        -0.4890659749507904,
        0.28191763162612915,
        -6.6649019718170166e-2,
        5.876733921468258e-3,
    )
    return torch.copysign(approximate.nan_to_num(1.0).clamp(max=1.0), values)


def erf(values: Any) -> Any:
    """Return the error function, as a ratio of polynomials."""
    values = values.clamp(-10.0, 10.0)
    squares = values * values
    above = polynomial(squares, 1.1280932447, 0.27609212279, 4.5400281738e-2, 7.4481184425e-4)
    below = polynomial(squares, 1.0, 0.57439188334, 0.1367576481, 8.2844606784e-3, 2.4813862145e-5)
    return (above * values / below).clamp(-1.0, 1.0)


def gelu(values: Any) -> Any:
    """Return x times the normal distribution, by a polynomial in the middle."""
    squares = values * values
    odd = polynomial(
        squares,
        0.39894227818,
        -6.6361041488e-2,
        9.7720050615e-3,
        -1.0717806322e-3,
        8.1812159812e-5,
        -3.8082057209e-6,
        7.9821413868e-8,
    )
    middle = values * fused(values, odd, 0.5)
    tail = _power_of_two(fused(squares, -0.72134752044, 127.0)) * polynomial(
        values, 0.30369991064, 9.5413386822e-2, 1.3809983619e-2, 7.5950479368e-4
    )
    result = torch.where(values >= -3.125, middle, values * ((tail + 0.375) - 0.375))  # noqa: PLR2004 - ttnn's
    result = torch.where(values > -5.54259443, result, torch.zeros_like(result))  # noqa: PLR2004 - bounds
    return torch.where(values >= 2.78125, values, result)  # noqa: PLR2004 - of its pieces


def gelu_fast(values: Any) -> Any:
    """Return gelu by six straight lines, in the distance from x / 2."""
    starts = torch.tensor([0.5, 1.0, 1.5, 2.0, 3.0])
    slopes = torch.tensor([0x322B, 0x37E7, 0x38F3, 0x38E1, 0x3852, 0x3800], dtype=torch.int16)
    offsets = torch.tensor([0x06D8, 0x3122, 0x3479, 0x3437, 0x2FA4, 0], dtype=torch.int16)
    slopes, offsets = slopes.view(torch.float16).float(), -offsets.view(torch.float16).float()
    places = torch.bucketize(values.abs().nan_to_num(0.0), starts, right=True)
    return fused(values, 0.5, fused(values.abs(), slopes[places], offsets[places]))


def log(values: Any, scale: float = 1.0) -> Any:
    """Return the logarithm, by a polynomial of fourth degree around one."""
    bits = values.view(torch.int32)
    exponent = (bits - 0x3F400000) & -0x800000
    rest = (bits - exponent).view(torch.float32) - 1.0
    tail = polynomial(rest, -0.50097656, 0.36352539, -0.25)
    near = fused(tail, rest * rest, rest)
    whole = fused((exponent >> 23).to(torch.float32), 0.693147182, near) * scale
    whole = torch.where(values == 0, -torch.inf, whole)
    whole = torch.where(values == torch.inf, torch.inf, whole)
    return torch.where(values.signbit() | values.isnan(), torch.nan, whole)


def softplus(values: Any) -> Any:
    """Return log(1 + e ** x)."""
    distance = values.abs()
    rest = polynomial(
        distance,
        0.69423984729,
        -0.50932420424,
        0.14279095486,
        -1.3000584069e-2,
        -1.8627923291e-3,
        5.0152968088e-4,
        -3.1273466851e-5,
    )
    rest = torch.where(distance > 5.0, torch.zeros_like(rest), rest)  # noqa: PLR2004 - ttnn's bound
    return torch.where(values < 0, rest, values + rest)


def rsqrt_fast(values: Any) -> Any:
    """Return 1 / sqrt(x) from the bits of x, with one step of refinement."""
    guess = (0x5F0B3892 - (values.view(torch.int32) >> 1)).view(torch.float32)
    return guess * (1.89099014875 - values * guess * guess)


def reciprocal_fast(values: Any) -> Any:
    """Return 1 / x by two steps of Newton's method from a constant."""
    scale = power(values) * 2
    ratio = values / torch.where(scale == 0, 1.0, scale)
    result = 1.442695 * (2 - ratio * 1.442695)
    return result * (2 - ratio * result) / scale


def hardsigmoid(values: Any) -> Any:
    """Return x / 6 + 1/2 between zero and one."""
    return fused(values, 0.1666666716337204, 0.5).clamp(0.0, 1.0)


def hardswish(values: Any) -> Any:
    """Return x times the hard sigmoid, which the matrix unit multiplies."""
    return multiply(truncated(hardsigmoid(values)), values, 4)


def root(values: Any) -> Any:
    """Return the square root; a negative zero has none."""
    return torch.where(values.signbit(), torch.nan, exact(torch.sqrt)(values))


def softsign(values: Any) -> Any:
    """Return x / (1 + |x|), whose divisor may be too large to be inverted."""
    return values * flushed(exact(torch.reciprocal)(1 + values.abs()))


NEAREST: Final[Mapping[str, Function]] = {
    "exp": exp_op,
    "exp2": exp2,
    "sigmoid": sigmoid,
    "sigmoid_accurate": sigmoid,
    "silu": silu,
    "tanh": tanh,
    "gelu": gelu,
    "log": log,
    "log2": lambda values: log(values, 1.4426950408889634),
    "log10": lambda values: log(values, 0.4342944819032518),
    "softplus": softplus,
    "sqrt": root,
    "rsqrt": exact(torch.rsqrt),
    "rsqrt_fast": rsqrt_fast,
    "reciprocal": exact(torch.reciprocal),
    "expm1": exact(torch.expm1),
    "sin": exact(torch.sin),
    "cos": exact(torch.cos),
    "tan": exact(torch.tan),
    "sinh": exact(torch.sinh),
    "cosh": exact(torch.cosh),
    "cbrt": exact(lambda values: torch.sign(values) * values.abs() ** (1 / 3)),
    "atan": exact(torch.atan),
    "log1p": exact(torch.log1p),
}
CUT: Final[Mapping[str, Function]] = {
    "abs": torch.abs,
    "neg": torch.neg,
    "relu": torch.relu,
    "relu6": lambda values: values.clamp(0.0, 6.0),
    "sign": torch.sign,
    "ceil": torch.ceil,
    "floor": torch.floor,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "hardtanh": lambda values: values.clamp(-1.0, 1.0),
    "erf": erf,
    "square": torch.square,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "softsign": softsign,
    "gelu_fast": gelu_fast,
    "exp_fast": exp_fast,
    "reciprocal_fast": reciprocal_fast,
}


def packed(values: Any) -> Any:
    """Return values as they leave the core: what is no number becomes infinite."""
    return flushed(torch.where(values.isnan(), math.inf, values))


@lru_cache(maxsize=64)
def table(name: str) -> Any:
    """Return the results of a function for all 65536 bfloat16 values, by their bits."""
    bits = torch.arange(1 << 16, dtype=torch.int32) << 16
    values = flushed(bits.view(torch.float32))
    if name in NEAREST:
        return packed(half_away_of(NEAREST[name](values)))
    return packed(truncated(CUT[name](values)))


def half_away_of(values: Any) -> Any:
    """Round to bfloat16, halves away from zero; what is no number stays so."""
    return torch.where(values.isfinite(), half_away(flushed(values)), values)


def look_up(name: str, values: Any) -> Any:
    """Return a function of bfloat16 values."""
    places = (values.contiguous().view(torch.int32) >> 16).bitwise_and_(0xFFFF)
    return table(name).index_select(0, places.view(-1)).view(values.shape)

"""Functions of one bfloat16 value as the vector unit (SFPU) of a Tensix core computes them.

The unit computes in float32 with fused multiply-add, flushes subnormal numbers, and hands bfloat16
results on either rounded, halves away from zero, or cut. What is no number leaves the core as
infinity. Kernels approximate most functions by polynomials; their coefficients are those of ttnn
0.78. A bfloat16 value has 16 bits, so each function is evaluated once for all values and looked up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final

from optrove.frameworks.ttnn.shadow.arithmetic import (
    flushed,
    half_away,
    multiply,
    nearest_even,
    power,
    torch,
    truncated,
)

Function = Callable[..., Any]
Coefficients = tuple[float, ...]

INFINITE: Final = 0x7F800000
"""The bits of infinity."""


# Values: with more, a product and a sum are rounded separately.
EXACT_VALUES: Final = 1 << 18


def fused(one: Any, other: Any, third: Any) -> Any:
    """Return one * other + third, summed with three bits more than a float32 and a sticky one."""
    if isinstance(one, torch.Tensor) and one.numel() > EXACT_VALUES:
        return flushed(one * other + third)
    one, other, third = (
        torch.as_tensor(each, dtype=torch.float32).to(torch.float64) for each in (one, other, third)
    )
    product = one * other
    scale = power(one) * power(other)
    step = torch.maximum(scale, power(third)) * 2.0**-26
    step = torch.where((step > 0) & step.isfinite(), step, 1.0)
    product = _sticky(product, torch.where(scale > 0, scale * 2.0**-26, 1.0))
    return flushed((_sticky(product, step) + _sticky(third, step)).to(torch.float32))


def _sticky(values: Any, step: Any) -> Any:
    """Cut values to multiples of a step; if something was cut, the last bit is set."""
    exact = values / step
    whole = exact.trunc()
    even = (whole * 0.5).trunc() * 2 == whole  # fmod takes long for large numbers
    lost = (whole != exact) & even & (whole != 0)
    return torch.where(values.isfinite(), (whole + exact.sign() * lost) * step, values)


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


def _power_of_two(scaled: Any, constant: float = 1.0017248) -> Any:
    """Return 2 ** (x - 127) for x from 0 to 255, by a polynomial of second degree."""
    bits = torch.floor(scaled.clamp(0.0, 255.0).to(torch.float64) * 2.0**23).to(torch.int32)
    fraction = (bits & 0x7FFFFF).to(torch.float32)
    significand = polynomial(fraction, constant, 7.839635491371155e-08, 4.791750143340323e-15)
    mantissa = significand.view(torch.int32) & 0x7FFFFF
    exponent = bits & -0x800000
    result = (exponent | mantissa).view(torch.float32)
    return torch.where(exponent >= INFINITE, torch.inf, result)


def exp(values: Any) -> Any:
    """Return e ** x."""
    return _power_of_two(fused(values, 1.4426950216293335, 127.0))


def exp_op(values: Any) -> Any:
    """Return e ** x as the op does: its constant has eleven bits."""
    return _power_of_two(fused(values, 1.4426950216293335, 127.0), 1.001953125)


def exp_fast(values: Any) -> Any:
    """Return e ** x as a straight line between powers of two (Schraudolph's way)."""
    line = fused(values.nan_to_num(0.0).clamp(-88.5, 89.0), 369.329925537109375, 32500.818359375)
    return (torch.floor(line.clamp(min=0.0) + 0.5).to(torch.int32) << 15).view(torch.float32)


def exp2(values: Any) -> Any:
    """Return 2 ** x."""
    return _power_of_two(values + 127.0)


def inverse_of_wormhole(values: Any, steps: int = 2) -> Any:
    """Return 1 / x: a parabola, then one or two steps of Newton's method."""
    scale = power(values)
    inside = (scale > 0) & scale.isfinite()
    ratio = -torch.where(inside, values / scale, torch.ones_like(values)).abs()
    result = fused(fused(ratio, 0.323232501745224, 1.4545459747314453), ratio, 2.1212124824523926)
    for _ in range(max(1, steps)):
        result = fused(result, fused(ratio, result, 1.0), result)
    return torch.copysign(flushed(result * flushed(1 / scale)), values)


def inverse_of_blackhole(values: Any, steps: int = 2) -> Any:
    """Return 1 / x: seven bits by an instruction, then none to two steps of Newton's method."""
    scale = power(values)
    middle = truncated(values / torch.where(scale > 0, scale, 1.0)).abs() + 2.0**-8
    result = torch.copysign(torch.round(256 / middle) * 2.0**-8 / scale, values)
    result = torch.where(scale >= 2.0**126, torch.copysign(torch.zeros(()), values), result)
    if steps == 0:
        return result
    rest = fused(values, result, -2.0)
    once = flushed(result * -rest)
    if steps == 1:
        return torch.where(rest < 0, once, result)
    return torch.where(rest < 0, flushed(once * -fused(values, once, -2.0)), result)


def sigmoid(values: Any, inverse: Function) -> Any:
    """Return 1 / (1 + e ** -x)."""
    result = inverse(1.0 + exp(-values), 1)
    return torch.where(values.isnan(), 0.0, result)


def silu(values: Any, inverse: Function) -> Any:
    """Return x / (1 + e ** -x)."""
    return values * sigmoid(values, inverse)


def mish(values: Any, inverse: Function) -> Any:
    """Return x tanh(softplus(x)); from 8 on, x."""
    grown = half_away_of(exp(values))
    inverted = inverse(fused(grown + 1, grown + 1, 1.0), 1)
    result = values * (grown * (grown + 2) * inverted)
    if inverse is inverse_of_blackhole:
        result = torch.where(values >= 0, values * fused(inverted, -2.0, 1.0), result)
    return torch.where(values < 8, result, values)  # noqa: PLR2004 - ttnn's bound


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


def rational(values: Any, *pieces: tuple[float, Coefficients, Coefficients]) -> tuple[Any, Any]:
    """Return two polynomials, above and below the line; each piece starts at its bound."""
    above = below = torch.zeros_like(values)
    for bound, upper, lower in pieces:
        inside = values >= bound
        above = torch.where(inside, polynomial(values, *upper), above)
        below = torch.where(inside, polynomial(values, *lower), below)
    return above, below


def erfc(values: Any, inverse: Function) -> Any:
    """Return the complementary error function, as ratios of polynomials."""
    first = (
        (1.0000233650, -1.3375675678, 0.68185544014, -0.1569198221, 1.3746744953e-2),
        (1.0, -0.20801517367, 0.43667086959, -3.4568668343e-3, 2.5104774162e-2, 2.8375532478e-2),
    )
    second = (
        (-2.565523755e-5, 2.1275576728e-5, -6.6162156145e-6, 9.1439767402e-7, -4.7387182178e-8),
        (1.0, -0.16457208991, -0.20572184026, -0.13888636231, 0.12677097321, -2.1375391632e-2),
    )
    distance = values.abs().clamp(max=5.0)
    above, below = rational(distance, (0.0, *first), (2.5, *second))
    result = above * inverse(below, 0)
    return torch.where(values.signbit(), 2 - result, result)


def leaky_relu(values: Any, slope: float) -> Any:
    """Return x, negative values times a slope."""
    return torch.where(values.signbit(), values * torch.tensor(slope, dtype=torch.float32), values)


def log_sigmoid(values: Any) -> Any:
    """Return the logarithm of the sigmoid, by a polynomial in the middle."""
    middle = polynomial(
        -values,
        0.6924354434013367,
        0.49275708198547363,
        0.12142381817102432,
        0.0031102809589356184,
        -0.00330807245336473,
        -0.00028794066747650504,
        5.3185409342404455e-05,
        7.1853546614875086e-06,
        7.4961114648886e-08,
    )
    bound = 4.0
    result = torch.where(values > bound, -truncated(exp_fast(-values)), -middle)
    return torch.where(values <= -bound, values, result)


def log1p(values: Any) -> Any:
    """Return log(1 + x): as the logarithm, with the one added to the reduced number."""
    whole = values + 1
    exponent = (whole.view(torch.int32) - 0x3F400000) & -0x800000
    scale = (0x40800000 - exponent).view(torch.float32)
    rest = (values.view(torch.int32) - exponent).view(torch.float32) + fused(0.25, scale, -1.0)
    tail = polynomial(rest, -0.50097656, 0.36352539, -0.25)
    near = fused(tail, rest * rest, rest)
    result = fused((exponent >> 23).to(torch.float32), 0.693147182, near)
    result = torch.where(values == -1, -torch.inf, result)
    result = torch.where(whole == torch.inf, torch.inf, result)
    return torch.where((whole < 0) | values.isnan(), torch.nan, result)


def _root(values: Any) -> Any:
    """Return the square root of a number that is not negative."""
    half, guess = values * 0.5, (0x5F1110A0 - (values.view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(2):
        guess = guess * (1.5 - half * guess * guess)
    result = values * guess
    result = fused(0.5 * fused(-result, result, values), guess, result)
    return torch.where(values == 0, values, result)


def _positive_inverse(values: Any, inverse: Function) -> Any:
    """Return 1 / x of positive numbers, with a step of its own on Wormhole."""
    if inverse is inverse_of_blackhole:
        guess = inverse(values, 0)
        return fused(guess, fused(-values, guess, 1.0), guess)
    guess = (-0x10C6D20 - values.view(torch.int32)).view(torch.float32)
    error = fused(values, guess, 1.0)
    return fused(-guess, fused(error, error, error), -guess)


BIG: Final = 2.0**28


def acosh(values: Any) -> Any:
    """Return the inverse of the hyperbolic cosine."""
    large = values >= BIG
    less = values - 1
    rest = truncated(torch.where(large, less, less + _root((values + 1) * less)))
    result = torch.where(large, log1p(rest) + math.log(2), log1p(rest))
    result = torch.where(values == 1, 0.0, result)
    return torch.where(values < 1, torch.nan, result)


def asinh(values: Any, inverse: Function) -> Any:
    """Return the inverse of the hyperbolic sine, near zero by a polynomial."""
    distance, squares = values.abs(), values * values
    large = distance >= BIG
    root = _root(fused(values, values, 1.0))
    rest = fused(squares, _positive_inverse(1 + root, inverse), distance)
    result = log1p(truncated(torch.where(large, distance - 1, rest)))
    result = torch.where(large, result + math.log(2), result)
    near = polynomial(
        squares,
        1.0,
        -1.666652262e-1,
        7.495806366e-2,
        -4.417778924e-2,
        2.785361186e-2,
        -1.484858524e-2,
        4.375355784e-3,
    )
    result = torch.where(distance < 0.75, distance * near, result)  # noqa: PLR2004 - ttnn's bound
    return torch.copysign(result, values)


def atanh(values: Any, inverse: Function) -> Any:
    """Return the inverse of the hyperbolic tangent."""
    distance = values.abs()
    inside = torch.where(distance >= 1, torch.zeros_like(values), distance)
    rest = truncated((inside + inside) * _positive_inverse(1 - inside, inverse))
    result = torch.copysign(0.5 * log1p(rest), values)
    result = torch.where(distance == 1, torch.copysign(torch.tensor(math.inf), values), result)
    return torch.where(distance > 1, torch.nan, result)


def erfinv(values: Any) -> Any:
    """Return the inverse of the error function (Winitzki's way)."""
    logarithm = log(fused(-values, values, 1.0))
    middle = fused(logarithm, -0.5, -4.330746750799873)
    inner = _newton_root(fused(middle, middle, -(logarithm * 6.802721088435375)))
    return torch.copysign(_newton_root(middle + inner), values)


THIRD_DEGREE: Final = (
    -1.5826655626296997,
    2.309868335723877,
    -0.8689142465591431,
    0.14171147346496582,
)
"""The logarithm between one and two."""


ROUGH: Final = (-1.4753, 2.0871, -0.7166, 0.1058)
"""The logarithm between one and two, as xlogy has it."""


def log_third(values: Any, coefficients: Coefficients = THIRD_DEGREE) -> Any:
    """Return the logarithm by a polynomial of third degree between one and two."""
    exponent, ratio = _parts(values)
    result = fused(exponent, 0.692871, polynomial(ratio, *coefficients))
    return torch.where(values == 0, -torch.inf, result)


def digamma(values: Any, inverse: Function) -> Any:
    """Return the derivative of the logarithm of the gamma function."""
    start = (-337671.90625, -602870.5, 215329.92188, 213984.54688, 19496.867188)
    upper = (*start, 248.47094727, 0.087151519954)
    lower = (1.0, 337601.5, 408922.6875, 99775.71875, 5124.6479492, 41.351390839)
    above, below = polynomial(values, *upper), polynomial(values, *lower)
    near = above * inverse(below, 2)
    inverted = inverse(values, 2)
    squares = inverted * inverted
    rest = fused(squares, -0.0083333333, 0.0833333333)
    far = fused(-squares, rest, fused(inverted, -0.5, log_third(values)))
    far = torch.where(values == torch.inf, values, far)
    return torch.where(values > 102, far, near)  # noqa: PLR2004 - ttnn's bound


def polygamma(values: Any, order: float, inverse: Function) -> Any:
    """Return a higher derivative: six terms of its series, and an estimate of the others."""
    order = int(order)
    total = torch.zeros_like(values)
    for term in range(6):
        inverted = inverse(values + term, 1)
        total = total + _to_the(inverted, order + 1)
    inverted = inverse(values + 6, 1)
    factor = 1.0
    for each in range(1, 6):
        factor *= order + each
    tail = polynomial(
        inverted * inverted,
        1 / order,
        (order + 1) / 12,
        -(order + 1) * (order + 2) * (order + 3) / 720,
        factor / 30240,
    )
    total = fused(_to_the(inverted, order), fused(inverted, 0.5, tail), total)
    return total * float(math.factorial(order) * (1 if order % 2 else -1))


def _to_the(values: Any, times: int) -> Any:
    """Return a product of so many equal factors."""
    result = values
    for _ in range(times - 1):
        result = result * values
    return result


def lgamma(values: Any, inverse: Function) -> Any:
    """Return the logarithm of the gamma function: Stirling's formula, reflected below 1/2."""
    low = values < 0.5  # noqa: PLR2004 - ttnn's bound
    above = torch.where(low, 1 - values, values)
    result = fused(above - 0.5, log_third(above), -above) + 0.9189385332046727
    inverted = inverse(above, 2)
    result = fused(inverted, fused(inverted * inverted, -0.0027777777, 0.0833333333), result)
    result = half_away_of(torch.where((values == 1) | (values == 2), 0.0, result))  # noqa: PLR2004
    angle = nearest_even(truncated(torch.frac(values)) * nearest_even(torch.tensor(math.pi)))
    sine = torch.where(values == values.floor(), 0.0, half_away_of(sin(angle)))
    reflected = (1.1447298858 - half_away_of(log(sine.abs()))) - result
    return torch.where(low, reflected, result)


def logit(values: Any, inverse: Function) -> Any:
    """Return log(x / (1 - x))."""
    return log(nearest_even(divided(values, nearest_even(1 - values), inverse)))


def divided(left: Any, right: Any, inverse: Function) -> Any:
    """Return a quotient, by the inverse."""
    quotient = flushed(left * inverse(right, 2))
    return torch.where((right == 0) & ~right.signbit() & (left == 0), torch.nan, quotient)


def power_of(values: Any, exponent: float) -> Any:
    """Return x ** y of a number y: small whole powers are products."""
    if exponent in range(4):
        return torch.ones_like(values) if exponent == 0 else _to_the(values, int(exponent))
    logarithm = log2_of_base(values)
    return half_away_of(raised(values, logarithm, torch.tensor(exponent, dtype=torch.float32)))


def log2_of_base(base: Any) -> Any:
    """Return the logarithm to base two, of infinity and NaN as of numbers of the next exponent."""
    exponent, ratio = _parts(base)
    return fused(polynomial(ratio, *THIRD_DEGREE), 1.4426950408889634, exponent)


def _parts(values: Any) -> tuple[Any, Any]:
    """Return exponents and significands, of infinity and NaN as of numbers."""
    bits = values.view(torch.int32)
    exponent = ((bits >> 23 & 0xFF) - 127).to(torch.float32)
    return exponent, (bits & 0x7FFFFF | 0x3F800000).view(torch.float32)


def raised(base: Any, logarithm: Any, exponent: Any) -> Any:
    """Return x ** y from the logarithm of x, by a parabola."""
    small = flushed(exponent)
    scaled = flushed(small * logarithm)
    scaled = torch.where(scaled < -127, -127.0, scaled)  # noqa: PLR2004 - ttnn's bound
    # The exponent grows by 23, and is cut to eight bits; infinity stays.
    grown = scaled.view(torch.int32)
    grown = ((grown + (23 << 23)) & 0x7FFFFFFF | (grown & -0x80000000)).view(torch.float32)
    scaled = torch.where(scaled.isfinite(), grown, torch.inf) + 1065353216.0
    bits = scaled.to(torch.float64).clamp(0, 2.0**31 - 1).to(torch.int32)
    rest = bits & 0x7FFFFF
    second = (rest + 0xF94EE7).to(torch.float32) * 0.40196114e-7
    mantissa = (second * (rest + 0x560E).to(torch.float32)).to(torch.int32) & 0x7FFFFF
    result = ((bits & -0x800000) | mantissa).view(torch.float32)
    nearest = small.clamp(-32767, 32767).round()
    odd = (nearest * 0.5).trunc() * 2 != nearest
    result = torch.where(odd & base.signbit(), -result, result)
    result = torch.where(base.signbit() & (nearest != small), torch.nan, result)
    zero = torch.where(exponent.signbit(), torch.nan, 0.0)
    return torch.where((base == 0) & (exponent.view(torch.int32) != 0), zero, result)


def _newton_root(values: Any) -> Any:
    """Return the square root by two steps of Newton's method from the bits."""
    guess = (0x5F370000 - (values.view(torch.int32) >> 1)).view(torch.float32)
    for _ in range(2):
        guess = fused(guess * guess, values * -0.5, 1.5) * guess
    return torch.where(values == 0, values, guess * values)


def asin(values: Any) -> Any:
    """Return the arcsine, by a polynomial of seventh degree; near one of a square root."""
    distance = values.abs()
    near = distance < 0.625  # noqa: PLR2004 - ttnn's bound
    root = torch.where(near, distance, _newton_root((1 - distance) * 0.5))
    ratio = polynomial(root * root, 0.99997860193, 0.16771225631, 0.063812628388, 0.08314884454)
    result = torch.where(near, root * ratio, fused(root * ratio, -2.0, math.pi / 2))
    return torch.where(distance <= 1, torch.copysign(result, values), torch.nan)


def acos(values: Any) -> Any:
    """Return the arccosine."""
    return math.pi / 2 - asin(values)


def atan(values: Any, inverse: Function) -> Any:
    """Return the arctangent, by a polynomial of seventh degree; from one on of the inverse."""
    distance = values.abs()
    ratio = torch.where(distance >= 1, inverse(distance, 2), distance)
    result = ratio * polynomial(
        ratio * ratio, 0.99978786707, -0.32580858469, 0.15557900071, -4.4326744974e-2
    )
    result = torch.where(distance >= 1, math.pi / 2 - result, result)
    return torch.where(values.isnan(), torch.nan, torch.copysign(result, values))


def _reduced(values: Any, turns: Any, part: float) -> Any:
    """Return x less so many turns, which are subtracted in four parts."""
    for step in (-3.140625, -9.670257568359375e-4, -6.277114152908325e-07, -1.215420125655342e-10):
        values = fused(turns, step * part, values)
    return values


def _turns(scaled: Any) -> tuple[Any, Any]:
    """Return the nearest whole number, as a sum rounds it, and whether its last bit is set."""
    return scaled - 12582912.0, scaled.view(torch.int32) & 1 == 1


def _sine(values: Any, odd: Any) -> Any:
    squares = values * values
    values = torch.where(odd, -values, values)
    tail = polynomial(squares, -0.16666534543037415, 0.008323983289301395, -0.0001883816730696708)
    return fused(tail, values * squares, values)


def sin(values: Any) -> Any:
    """Return the sine."""
    turns, odd = _turns(fused(values, 0.31830987334251404, 12582912.0))
    return _sine(_reduced(values, turns, 1.0), odd)


def cos(values: Any) -> Any:
    """Return the cosine, as the sine of odd halves of a turn."""
    turns, odd = _turns(fused(values, 0.31830987334251404, 0.5) + 12582912.0)
    return _sine(_reduced(values, fused(turns, 2.0, -1.0), 0.5), odd)


def tan(values: Any, inverse: Function) -> Any:
    """Return the tangent; in odd quarters of a turn its negative inverse."""
    turns, odd = _turns(fused(values, 0.6366197466850281, 12582912.0))
    rest = _reduced(values, turns, 0.5)
    squares = rest * rest
    tail = polynomial(squares, 0.33357691764831543, 0.12633037567138672, 0.08181696385145187)
    result = fused(tail * squares, rest, rest)
    inverted = -inverse(result, 1)
    if inverse is inverse_of_blackhole:
        inverted = torch.where(result.isfinite(), inverted, torch.nan)
    return torch.where(odd, inverted, result)


def i0(values: Any) -> Any:
    """Return the Bessel function of order zero, by its series."""
    factors = (0.25, 0.015625, 0.0004340277778, 6.781684028e-6, 6.78e-08, 4.71e-10, 2.40e-12)
    return polynomial(values * values, 1.0, *factors, 9.39e-15, 2.90e-17, 7.24e-20, 1.50e-22)


def cbrt(values: Any) -> Any:
    """Return the cube root, refined from the bits."""
    distance = values.abs()
    bits = fused(distance.view(torch.int32).to(torch.float32), -0.0013020833721384406, 13929515.0)
    guess = (bits.view(torch.int32) << 8).view(torch.float32)
    product = distance * (guess * guess)
    ratio = product * guess
    factor = fused(ratio, fused(0.5093818306922913, ratio, -1.2509524822235107), 1.7523196935653687)
    return torch.copysign(product, values) * (factor * factor)


def tanhshrink(values: Any) -> Any:
    """Return x less its hyperbolic tangent, by two polynomials."""
    squares, distance = values * values, values.abs()
    near = polynomial(squares, 0.33329936862, -0.13223160803, 4.8076551408e-2, -1.076292526e-2)
    far = polynomial(distance, 6.1829000893e-2, 1.0561303143, -0.40859283753, 5.3348409333e-2)
    far = values - torch.copysign(far.nan_to_num(1.0).clamp(max=1.0), values)
    return torch.where(distance > 1, far, values * squares * near)


NEAREST: Final[Mapping[str, Function]] = {
    "exp": exp_op,
    "exp2": exp2,
    "sigmoid": sigmoid,
    "sigmoid_accurate": sigmoid,
    "silu": silu,
    "mish": mish,
    "tanhshrink": tanhshrink,
    "tanh": tanh,
    "gelu": gelu,
    "log": log,
    "log2": lambda values: log(values, 1.4426950408889634),
    "log10": lambda values: log(values, 0.4342944819032518),
    "softplus": softplus,
    "sqrt": root,
    "rsqrt": lambda values: torch.where(values.signbit(), torch.nan, exact(torch.rsqrt)(values)),
    "rsqrt_fast": rsqrt_fast,
    "reciprocal": exact(torch.reciprocal),
    "expm1": exact(torch.expm1),
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "sinh": exact(torch.sinh),
    "cosh": exact(torch.cosh),
    "cbrt": cbrt,
    "atan": atan,
    "acosh": acosh,
    "asinh": asinh,
    "atanh": atanh,
    "lgamma": lgamma,
    "logit": logit,
    "polygamma": polygamma,
    "log1p": log1p,
}
CUT: Final[Mapping[str, Function]] = {
    "abs": torch.abs,
    "neg": torch.neg,
    "relu": torch.relu,
    "relu6": lambda values: values.clamp(0.0, 6.0),
    "leaky_relu": leaky_relu,
    "prelu": leaky_relu,
    "log_sigmoid": log_sigmoid,
    "erfc": erfc,
    "i0": i0,
    "erfinv": erfinv,
    "digamma": digamma,
    "pow": power_of,
    "sign": lambda values: torch.where(values.signbit(), -1.0, (values != 0).float()),
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

# Functions that divide, by the inverse of the architecture.
DIVIDING: Final = frozenset(
    {
        "sigmoid",
        "sigmoid_accurate",
        "silu",
        "mish",
        "erfc",
        "atan",
        "digamma",
        "lgamma",
        "polygamma",
    }
    | {"asinh", "atanh", "logit", "tan"}
)


# Where there is no number, the infinity of these has the sign of the input.
SIGNED: Final = frozenset(
    {"abs", "asinh", "ceil", "erfinv", "floor", "log_sigmoid", "round", "sinh", "trunc"}
)
SIGNED_ON_WORMHOLE: Final = SIGNED | {
    "cbrt",
    "digamma",
    "lgamma",
    "mish",
    "silu",
    "tan",
    "tanhshrink",
}
SIGNED_ON_BLACKHOLE: Final = SIGNED | {"gelu", "hardswish", "relu", "softplus"}
# What is no number stays so on Blackhole, where Wormhole compares it with a bound.
PASSED_ON_BLACKHOLE: Final = frozenset({"exp", "exp2", "gelu", "hardswish", "relu", "softplus"})
# Ops that look at the bits of subnormal numbers; arithmetic takes those for zero.
BITWISE: Final = frozenset({"ceil", "floor", "sign"})


def packed(values: Any, signs: Any = None) -> Any:
    """Return values as they leave the core: what is no number becomes infinite."""
    if not bool(values.isnan().any()):
        return flushed(values)
    infinite = (
        torch.tensor(math.inf) if signs is None else torch.copysign(torch.tensor(math.inf), signs)
    )
    return flushed(torch.where(values.isnan(), infinite, values))


def evaluate(name: str, values: Any, arch: str = "", *parameters: float) -> Any:
    """Return a function of float32 values, as the destination register holds it."""
    wormhole = arch.startswith("wormhole")
    function = NEAREST.get(name) or CUT[name]
    if name == "reciprocal" and wormhole:
        return inverse_of_wormhole(values, 1)
    if name in DIVIDING:
        inverse = inverse_of_wormhole if wormhole else inverse_of_blackhole
        return function(values, *parameters, inverse=inverse)
    return function(values, *parameters)


@lru_cache(maxsize=64)
def table(name: str, arch: str = "", *parameters: float) -> Any:
    """Return the results of a function for all 65536 bfloat16 values, by their bits."""
    bits = torch.arange(1 << 16, dtype=torch.int32) << 16
    values = bits.view(torch.float32)
    if name not in BITWISE:
        values = torch.copysign(flushed(values), values)
    wormhole = arch.startswith("wormhole")
    result = evaluate(name, values, arch, *parameters)
    rounds = half_away_of if name in NEAREST else truncated
    if arch == "blackhole" and name in PASSED_ON_BLACKHOLE:
        result = torch.where(values.isnan(), values, result)
    signed = name in (SIGNED_ON_WORMHOLE if wormhole else SIGNED_ON_BLACKHOLE)
    return packed(rounds(result), values if signed else None)


def half_away_of(values: Any) -> Any:
    """Round to bfloat16, halves away from zero; what is no number stays so."""
    return torch.where(values.isfinite(), half_away(flushed(values)), values)


def look_up(name: str, values: Any, arch: str = "", *parameters: float) -> Any:
    """Return a function of bfloat16 values; some differ by architecture."""
    places = (values.contiguous().view(torch.int32) >> 16).bitwise_and_(0xFFFF)
    found = table(name, arch, *parameters)
    return found.index_select(0, places.view(-1)).view(values.shape)


@lru_cache(maxsize=16)
def _wide_table(function: Function) -> Any:
    values = (torch.arange(1 << 16, dtype=torch.int32) << 16).view(torch.float32)
    return function(torch.copysign(flushed(values), values))


def look_up_wide(function: Function, values: Any) -> Any:
    """Return a function of bfloat16 values in float32, as the kernel goes on with it."""
    places = (values.contiguous().view(torch.int32) >> 16).bitwise_and_(0xFFFF)
    return _wide_table(function).index_select(0, places.view(-1)).view(values.shape)


def _ordered(values: Any) -> Any:
    """Return integers in the order of the bits: negative zero is less than zero."""
    bits = values.view(torch.int32)
    return torch.where(bits < 0, -1 - (bits & 0x7FFFFFFF), bits)


def larger(left: Any, right: Any, _arch: str) -> Any:
    """Return the larger of two values by their bits."""
    result = torch.where(_ordered(left) >= _ordered(right), left, right)
    return packed(result, result)


def smaller(left: Any, right: Any, _arch: str) -> Any:
    """Return the smaller of two values by their bits."""
    result = torch.where(_ordered(left) < _ordered(right), left, right)
    return packed(result, result)


def _signs(left: Any, right: Any, arch: str) -> Any:
    """Return the signs of what is no number: those of the product on Wormhole."""
    if not arch.startswith("wormhole"):
        return None
    return torch.where(left.signbit() ^ right.signbit(), -1.0, 1.0)


def product(left: Any, right: Any, arch: str) -> Any:
    """Multiply; zero times infinity is zero."""
    result = flushed(nearest_even(flushed(left) * flushed(right)))
    if not bool(result.isnan().any()):
        return result
    zero = (left.view(torch.int32) == 0) | (right.view(torch.int32) == 0)
    return torch.where(zero, 0.0, packed(result, _signs(left, right, arch)))


def quotient(left: Any, right: Any, arch: str) -> Any:
    """Divide, by the inverse; an inverse too small is zero."""
    inverse = inverse_of_wormhole if arch.startswith("wormhole") else inverse_of_blackhole
    result = divided(flushed(left), right, lambda values, _: look_up_wide(inverse, values))
    return packed(nearest_even(result), _signs(left, right, arch))


def tensor_power(left: Any, right: Any, arch: str) -> Any:
    """Return x ** y of two tensors."""
    if arch.startswith("wormhole"):
        right = torch.where(right.isnan(), torch.copysign(torch.tensor(math.inf), right), right)
    left, right = torch.broadcast_tensors(torch.copysign(flushed(left), left), right)
    result = half_away_of(raised(left, look_up_wide(log2_of_base, left), right.contiguous()))
    return packed(result, result)


_log_rough = partial(log_third, coefficients=ROUGH)


def xlogy(left: Any, right: Any, arch: str) -> Any:
    """Return x log y."""
    result = flushed(left) * truncated(look_up_wide(_log_rough, right))
    signs = _signs(left, right - 1, arch)
    return torch.where(right.signbit(), torch.inf, packed(truncated(result), signs))


def atan2(left: Any, right: Any, arch: str) -> Any:
    """Return the angle of a point, by a polynomial of the smaller distance over the larger."""
    tall, wide = left.abs(), right.abs()
    least, most = torch.minimum(tall, wide), torch.maximum(tall, wide)
    wormhole = arch.startswith("wormhole")
    ratio = flushed(least) * look_up_wide(_first_inverse if wormhole else _rough_inverse, most)
    squares = ratio * ratio
    tail = polynomial(squares, -0.33203125, 0.175048828125, -0.05841064453125) * squares
    result = fused(tail, ratio, ratio)
    result = torch.where(least >= wide, math.pi / 2 - result, result)
    equal = torch.where(most == 0, 0.0, math.pi / 4)
    result = torch.where(least >= most, equal, result)
    result = half_away_of(torch.where(right.signbit(), math.pi - result, result))
    result = torch.copysign(result, left)
    return packed(torch.where(left.isnan() | right.isnan(), torch.nan, result))


_first_inverse = partial(inverse_of_wormhole, steps=1)
_rough_inverse = partial(inverse_of_blackhole, steps=0)

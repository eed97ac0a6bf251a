"""Compare an actual result with the expected one: PCC, allclose, ULP, largest error.

Torch tensors of any dtype, ttnn tensors, numpy arrays, nested lists and numbers can be compared
with one another, in float64. Both must have the same shape, otherwise NotComparable is raised. For
every metric:

- Equal results are perfect: PCC 1.0, 0 ULP, no error; so are two empty tensors of one shape.
- NaN and infinities must be in the same places, with the same signs. If they are not, PCC is 0.0,
  the distance in ULP and the largest error are infinite, and nothing is close. If they are, the
  other numbers count.
- Whole numbers and truth values (as 0 and 1) are compared like other numbers; one ULP is 1.
- A complex number counts as two for PCC and ULP, and by the length of the difference otherwise.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optrove.errors import NotComparable
from optrove.metrics.arrays import Arithmetic, Precision, numbers_of_both

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "Comparison",
    "allclose",
    "assert_with_pcc",
    "check_with_pcc",
    "max_abs_error",
    "observing",
    "pcc",
    "ulp",
]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one comparison by a function of this module.

    The value of "allclose" is the largest error. ``threshold`` and ``passed`` are None if the
    function does not judge the value.
    """

    name: str
    value: float
    threshold: float | None = None
    passed: bool | None = None


_observers: ContextVar[tuple[Callable[[Comparison], object], ...]] = ContextVar(
    "observers", default=()
)


@contextmanager
def observing(callback: Callable[[Comparison], object]) -> Iterator[None]:
    """Pass each comparison made inside the block to ``callback``, once per call.

    A comparison that raises NotComparable is not passed; in ``check_with_pcc`` and
    ``assert_with_pcc`` it counts as failed. Other threads are not observed.
    """
    token = _observers.set((*_observers.get(), callback))
    try:
        yield
    finally:
        _observers.reset(token)


def pcc(expected: Any, actual: Any) -> float:
    """Return Pearson's correlation coefficient, from -1 to 1.

    It ignores scale and offset: a result that is twice too large has PCC 1.0. If ``expected`` is
    constant (one number, or all equal), there is no correlation; the result is then 1 minus the
    relative error, ``|expected - actual| / max(|expected|, |actual|)`` with the Euclidean norm, and
    at least 0.0: a constant that is off by a thousandth has 0.999, a wrong sign or a zero 0.0. If
    only ``actual`` is constant, the result is 0.0.
    """
    value = _pcc(_pair(expected, actual))
    _report(Comparison("pcc", value))
    return value


def allclose(
    expected: Any,
    actual: Any,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,  # noqa: FBT001, FBT002 - the signature that numpy and torch have
) -> bool:
    """Return whether ``|actual - expected| <= atol + rtol * |expected|`` holds everywhere.

    Infinities must be equal; NaN is close to NaN only with ``equal_nan``.
    """
    pair = _pair(expected, actual)
    close = _allclose(pair, rtol, atol) and (equal_nan or not pair.has_nan)
    if _observers.get():
        _report(Comparison("allclose", _max_abs_error(pair), passed=close))
    return close


def ulp(expected: Any, actual: Any) -> float:
    """Return the largest distance in ULP: steps between neighbors in the dtype of ``expected``.

    Steps are counted along the numbers of that dtype, so the distance is finite, the same in both
    directions, and 0 between 0.0 and -0.0. A number of ``actual`` between two neighbors counts as a
    fraction of a step. A replay rounds the expected values to the output's dtype before it computes
    the ULP, but not for ``max_abs_error``: a result that is off by rounding alone has 0 ULP there.
    ttnn's bfloat8_b and bfloat4_b, whose numbers share an exponent, count as floats with 7 and 3
    bits of fraction; a replay has no ULP for them.
    """
    value = _ulp(_pair(expected, actual))
    _report(Comparison("ulp", value))
    return value


def max_abs_error(expected: Any, actual: Any) -> float:
    """Return the largest ``|actual - expected|``."""
    value = _max_abs_error(_pair(expected, actual))
    _report(Comparison("max_abs_error", value))
    return value


def check_with_pcc(expected: Any, actual: Any, pcc: float = 0.9999) -> tuple[bool, str]:
    """Return whether PCC is at least ``pcc``, and a message with the numbers.

    Different shapes are a failed check, not an error.
    """
    comparison, message = _check(expected, actual, pcc)
    _report(comparison)
    return bool(comparison.passed), message


def assert_with_pcc(expected: Any, actual: Any, pcc: float = 0.9999) -> tuple[bool, str]:
    """Do as ``check_with_pcc``, but raise AssertionError if the check fails."""
    passed, message = check_with_pcc(expected, actual, pcc)
    if not passed:
        raise AssertionError(message)
    return passed, message


def _check(expected: Any, actual: Any, threshold: float) -> tuple[Comparison, str]:
    try:
        pair = _pair(expected, actual)
    except NotComparable as error:
        return Comparison("pcc", math.nan, threshold, passed=False), str(error)
    value = _pcc(pair)
    passed = value >= threshold
    verdict = "reaches" if passed else "is below"
    message = (
        f"PCC {value!r} {verdict} {threshold!r}; "
        f"max abs error {_max_abs_error(pair)!r}; {pair.title}"
    )
    return Comparison("pcc", value, threshold, passed), message


def _report(comparison: Comparison) -> None:
    for callback in _observers.get():
        callback(comparison)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The numbers of both sides.

    ``agree`` is True if NaN and infinities are the same on both sides; the rows have zeros in
    their places, where ``finite`` is false.
    """

    expected: Any
    actual: Any
    finite: Any
    agree: bool
    has_nan: bool
    is_complex: bool
    precision: Precision | None
    arithmetic: Arithmetic
    title: str


def _pair(expected: Any, actual: Any) -> _Pair:
    first, second, arithmetic = numbers_of_both(expected, actual)
    if first.shape != second.shape:
        raise NotComparable(
            f"expected has shape {list(first.shape)} and actual has {list(second.shape)}; "
            f"compare tensors of one shape"
        )
    one, two = first.row, second.row
    finite = arithmetic.isfinite(one)
    others, as_others = one[~finite], two[~finite]
    both_nan = arithmetic.isnan(others) & arithmetic.isnan(as_others)
    agree = (finite == arithmetic.isfinite(two)).all() and (both_nan | (others == as_others)).all()
    return _Pair(
        expected=arithmetic.where(finite, one, 0.0),
        actual=arithmetic.where(finite, two, 0.0),
        finite=finite,
        agree=bool(agree),
        has_nan=bool(both_nan.any()),
        is_complex=first.is_complex,
        precision=first.precision,
        arithmetic=arithmetic,
        title=f"{first.dtype} against {second.dtype}, shape {list(first.shape)}",
    )


def _pcc(pair: _Pair) -> float:
    if not pair.agree:
        return 0.0
    expected, actual = pair.expected[pair.finite], pair.actual[pair.finite]
    if bool((expected == actual).all()):
        return 1.0
    if _is_constant(expected):
        return _similarity(expected, actual)
    if _is_constant(actual):
        return 0.0
    one, two = _centered(expected), _centered(actual)
    value = float(one @ two) / (math.sqrt(float(one @ one)) * math.sqrt(float(two @ two)))
    return min(max(value, -1.0), 1.0)


def _is_constant(row: Any) -> bool:
    return bool((row == float(row[:1].sum())).all())


def _similarity(expected: Any, actual: Any) -> float:
    """Return 1 minus the relative error, for expected numbers that are all equal."""
    scale = max(_scale(expected), _scale(actual))
    one, two = expected / scale, actual / scale
    difference = one - two
    larger = max(float(one @ one), float(two @ two))
    return max(0.0, 1.0 - math.sqrt(float(difference @ difference) / larger))


def _centered(row: Any) -> Any:
    """Return a row minus its mean, scaled so that squares and sums neither overflow nor vanish."""
    row = row / _scale(row)
    # Twice: the first mean is rounded, which matters if it is large compared to the differences.
    for _ in range(2):
        row = row - float(row.sum()) / len(row)
    return row / _scale(row)


def _scale(row: Any) -> float:
    """Return the power of two below the largest number; dividing by it rounds nothing."""
    return math.ldexp(0.5, math.frexp(float(abs(row).max()))[1])


def _max_abs_error(pair: _Pair) -> float:
    if not pair.agree:
        return math.inf
    errors = _errors(pair)
    return float(errors.max()) if len(errors) else 0.0


def _allclose(pair: _Pair, rtol: float, atol: float) -> bool:
    if not pair.agree:
        return False
    allowed = _lengths(pair, pair.expected) * rtol + atol
    return bool((_errors(pair) <= allowed).all())


def _errors(pair: _Pair) -> Any:
    with pair.arithmetic.quiet():
        return _lengths(pair, pair.actual - pair.expected)


def _lengths(pair: _Pair, row: Any) -> Any:
    return pair.arithmetic.hypot(row[0::2], row[1::2]) if pair.is_complex else abs(row)


def _ulp(pair: _Pair) -> float:
    if not pair.agree:
        return math.inf
    if not len(pair.expected):
        return 0.0
    if pair.precision is None:
        return float(abs(pair.actual - pair.expected).max())
    steps = 2.0**pair.precision.fraction_bits
    exponents, fractions = _places(pair.expected, pair.precision, pair.arithmetic)
    exponents_too, fractions_too = _places(pair.actual, pair.precision, pair.arithmetic)
    # Differences before sums: for numbers that are close, all of this is exact, even in float64.
    same_side = abs((exponents - exponents_too) * steps + (fractions - fractions_too))
    across_zero = (exponents + exponents_too) * steps + (fractions + fractions_too)
    opposite = (pair.expected < 0.0) != (pair.actual < 0.0)
    return float(pair.arithmetic.where(opposite, across_zero, same_side).max())


def _places(row: Any, precision: Precision, arithmetic: Arithmetic) -> tuple[Any, Any]:
    """Return the position of numbers in their dtype: powers of two above the least, and steps.

    ``power * 2**fraction_bits + steps`` is the count of the dtype's numbers from zero to there.
    """
    mantissas, exponents = arithmetic.frexp(abs(row))
    powers = exponents - (1.0 + precision.least_exponent)
    # Zero and subnormal numbers are on the steps of the least normal number.
    below = (powers < 0.0) | (row == 0.0)
    shifts = arithmetic.where((powers < 0.0) & (row != 0.0), powers, 0.0)
    steps = mantissas * 2.0 ** (precision.fraction_bits + 1.0) * 2.0**shifts
    return arithmetic.where(below, 0.0, powers), steps

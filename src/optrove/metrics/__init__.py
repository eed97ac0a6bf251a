"""Compare what was computed with what was expected: PCC, allclose, ULP, largest error.

Torch tensors of any dtype, ttnn tensors, numpy arrays, nested lists and numbers are compared with
one another, in float64. Both must have one shape, else NotComparable is raised. In all of them:

- Equal is perfect: PCC 1.0, 0 ULP, no error; so are two empty tensors of one shape.
- NaN and infinities must stand in the same places, with the same signs. If not, PCC is 0.0, the
  distance in ULP and the largest error are infinite, and nothing is close. If so, the rest counts.
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
    """What one call of a function of this module found.

    The value of "allclose" is the largest error. ``threshold`` and ``passed`` are None where
    nothing was asked of the value.
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
    """Give each comparison made inside the block to ``callback``, once per call.

    A comparison that cannot be made is not given, except to ``check_with_pcc`` and
    ``assert_with_pcc``, which fail by it. Other threads are not observed.
    """
    token = _observers.set((*_observers.get(), callback))
    try:
        yield
    finally:
        _observers.reset(token)


def pcc(expected: Any, actual: Any) -> float:
    """Return Pearson's correlation coefficient, from -1 to 1.

    Scale and offset do not matter to it: a result that is twice too large has PCC 1.0. Where
    ``expected`` does not vary (one number, or all the same) there is no correlation; the answer
    then is 1 less the relative error, ``|expected - actual| / max(|expected|, |actual|)`` by the
    Euclidean norm, and at least 0.0: a constant that is off by a thousandth gives 0.999, a wrong
    sign or a zero 0.0. Where only ``actual`` does not vary it is 0.0.
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
    """Tell whether ``|actual - expected| <= atol + rtol * |expected|`` holds everywhere.

    Infinities must be equal; NaN is close to NaN only with ``equal_nan``.
    """
    pair = _pair(expected, actual)
    close = _allclose(pair, rtol, atol) and (equal_nan or not pair.has_nan)
    if _observers.get():
        _report(Comparison("allclose", _max_abs_error(pair), passed=close))
    return close


def ulp(expected: Any, actual: Any) -> float:
    """Return the largest distance in ULP: steps between neighbours in the dtype of ``expected``.

    Counted along the numbers of that dtype, so that it is finite, the same in both directions, and
    0 between 0.0 and -0.0. A number of ``actual`` between two of them counts by its fraction.
    A replay measures it against what is expected after rounding that to the output's dtype, and
    ``max_abs_error`` against what is expected before: a result that is off by rounding alone has
    an ULP of 0 there. ttnn's bfloat8_b and bfloat4_b, whose numbers share an exponent, count as
    floats with 7 and 3 bits of fraction; a replay has no ULP for them.
    """
    value = _ulp(_pair(expected, actual))
    _report(Comparison("ulp", value))
    return value


def max_abs_error(expected: Any, actual: Any) -> float:
    """Return the largest ``|actual - expected|``."""
    value = _max_abs_error(_pair(expected, actual))
    _report(Comparison("max_abs_error", value))
    return value


def check_with_pcc(
    expected: Any,
    actual: Any,
    pcc: float = 0.9999,
) -> tuple[bool, str]:
    """Tell whether PCC is at least ``pcc``, with a message that holds the numbers.

    Other shapes are a failed check, not an error.
    """
    comparison, message = _check(expected, actual, pcc)
    _report(comparison)
    return bool(comparison.passed), message


def assert_with_pcc(
    expected: Any,
    actual: Any,
    pcc: float = 0.9999,
) -> tuple[bool, str]:
    """Raise AssertionError unless shapes agree and PCC is at least ``pcc``; else like check."""
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
    """The numbers of both.

    ``agree`` tells whether NaN and infinities are the same; the rows hold zeros in their places,
    which are those where ``finite`` is false.
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
        return _likeness(expected, actual)
    if _is_constant(actual):
        return 0.0
    one, two = _centred(expected), _centred(actual)
    value = float(one @ two) / (math.sqrt(float(one @ one)) * math.sqrt(float(two @ two)))
    return min(max(value, -1.0), 1.0)


def _is_constant(row: Any) -> bool:
    return bool((row == float(row[:1].sum())).all())


def _likeness(expected: Any, actual: Any) -> float:
    """Return 1 less the relative error of numbers that do not vary."""
    scale = max(_scale(expected), _scale(actual))
    one, two = expected / scale, actual / scale
    difference = one - two
    larger = max(float(one @ one), float(two @ two))
    return max(0.0, 1.0 - math.sqrt(float(difference @ difference) / larger))


def _centred(row: Any) -> Any:
    """Return a row less its mean, of a size whose squares and sums neither overflow nor vanish."""
    row = row / _scale(row)
    # Twice: the first mean is rounded, which shows where it is large beside the differences.
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
    # Differences before sums: where numbers are near, all of this is exact, even for float64.
    same_side = abs((exponents - exponents_too) * steps + (fractions - fractions_too))
    across_zero = (exponents + exponents_too) * steps + (fractions + fractions_too)
    opposite = (pair.expected < 0.0) != (pair.actual < 0.0)
    return float(pair.arithmetic.where(opposite, across_zero, same_side).max())


def _places(row: Any, precision: Precision, arithmetic: Arithmetic) -> tuple[Any, Any]:
    """Return where numbers stand in their dtype, as power of two from the least, and steps in it.

    ``power * 2**fraction_bits + steps`` counts the dtype's numbers from zero to there.
    """
    mantissas, exponents = arithmetic.frexp(abs(row))
    powers = exponents - (1.0 + precision.least_exponent)
    # Zero, and what is less than the least normal number, stands on the steps of the latter.
    below = (powers < 0.0) | (row == 0.0)
    shifts = arithmetic.where((powers < 0.0) & (row != 0.0), powers, 0.0)
    steps = mantissas * 2.0 ** (precision.fraction_bits + 1.0) * 2.0**shifts
    return arithmetic.where(below, 0.0, powers), steps

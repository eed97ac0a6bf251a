"""Compare an actual result with the expected one: PCC, allclose, ULP, largest error.

Torch tensors of any dtype, ttnn tensors, numpy arrays, nested lists and numbers can be compared
with one another, in float64. Both must have the same shape, otherwise NotComparable is raised. For
every metric:

- Equal results are perfect: PCC 1.0, 0 ULP, no error; so are two empty tensors of one shape.
- NaN and infinities must be in the same places, with the same signs. If they are not, PCC is 0.0,
  the distance in ULP and the largest error are infinite, and nothing is close. If they are, the
  other numbers count.
- Integers and booleans (as 0 and 1) are compared like other numbers; one ULP is 1.
- A complex number counts as two for PCC and ULP, and by the length of the difference otherwise.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

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
    """The result of one comparison.

    The value of "allclose" is the largest error. ``threshold`` and ``passed`` are None if the
    function does not judge the value.
    """

    name: str
    value: float
    threshold: float | None = None
    passed: bool | None = None


BLOCK: Final = 2**18
"""How many numbers are compared at once; even, for complex numbers take two places."""

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
    """Return the Pearson correlation coefficient, from -1 to 1.

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
    close = _allclose(pair, rtol, atol, equal_nan=equal_nan)
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
    try:
        pair = _pair(expected, actual)
    except NotComparable as error:
        _report(Comparison("pcc", math.nan, pcc, passed=False))
        return False, str(error)
    value = _pcc(pair)
    passed = value >= pcc
    _report(Comparison("pcc", value, pcc, passed))
    verdict = "reaches" if passed else "is below"
    errors = f"max abs error {_max_abs_error(pair)!r}"
    return passed, f"PCC {value!r} {verdict} {pcc!r}; {errors}; {pair.title}"


def assert_with_pcc(expected: Any, actual: Any, pcc: float = 0.9999) -> tuple[bool, str]:
    """Return the result of ``check_with_pcc``; raise AssertionError if the check fails."""
    passed, message = check_with_pcc(expected, actual, pcc)
    if not passed:
        raise AssertionError(message)
    return passed, message


def _report(comparison: Comparison) -> None:
    for callback in _observers.get():
        callback(comparison)


@dataclass(frozen=True, slots=True)
class _Block:
    """Some numbers of both sides.

    ``agree`` is True if NaN and infinities are the same on both sides; the rows have zeros in
    their places, where ``finite`` is false.
    """

    expected: Any
    actual: Any
    finite: Any
    agree: bool
    has_nan: bool

    def finite_numbers(self) -> tuple[Any, Any]:
        """Return the finite numbers of both sides."""
        if bool(self.finite.all()):
            return self.expected, self.actual
        return self.expected[self.finite], self.actual[self.finite]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The numbers of both sides, which are compared block by block."""

    expected: Any
    actual: Any
    is_complex: bool
    precision: Precision | None
    arithmetic: Arithmetic
    title: str

    def blocks(self) -> Iterator[_Block]:
        """Yield the numbers in float64, as many at once as fit into the cache of a processor."""
        for start in range(0, len(self.expected), BLOCK):
            yield self._block(slice(start, start + BLOCK))

    def _block(self, part: slice) -> _Block:
        arithmetic = self.arithmetic
        one, two = arithmetic.widened(self.expected[part]), arithmetic.widened(self.actual[part])
        finite, finite_too = arithmetic.isfinite(one), arithmetic.isfinite(two)
        if bool(finite.all()) and bool(finite_too.all()):
            return _Block(one, two, finite, agree=True, has_nan=False)
        others, as_others = one[~finite], two[~finite]
        both_nan = arithmetic.isnan(others) & arithmetic.isnan(as_others)
        agree = (finite == finite_too).all() and (both_nan | (others == as_others)).all()
        return _Block(
            expected=arithmetic.where(finite, one, 0.0),
            actual=arithmetic.where(finite, two, 0.0),
            finite=finite,
            agree=bool(agree),
            has_nan=bool(both_nan.any()),
        )


def _pair(expected: Any, actual: Any) -> _Pair:
    first, second, arithmetic = numbers_of_both(expected, actual)
    if first.shape != second.shape:
        raise NotComparable(
            f"expected has shape {list(first.shape)} and actual has {list(second.shape)}; "
            f"compare tensors of one shape"
        )
    return _Pair(
        expected=first.row,
        actual=second.row,
        is_complex=first.is_complex,
        precision=first.precision,
        arithmetic=arithmetic,
        title=f"{first.dtype} against {second.dtype}, shape {list(first.shape)}",
    )


@dataclass(slots=True)
class _Survey:
    """What PCC depends on besides the correlation, about all finite numbers seen so far."""

    count: int = 0
    first: tuple[float, float] = (0.0, 0.0)
    agree: bool = True
    equal: bool = True
    constant: bool = True
    actual_constant: bool = True
    largest: float = 0.0
    actual_largest: float = 0.0

    def add(self, block: _Block) -> None:
        """Look at the numbers of one more block."""
        self.agree = self.agree and block.agree
        one, two = block.finite_numbers()
        if not self.agree or not len(one):
            return
        if not self.count:
            self.first = float(one[:1].sum()), float(two[:1].sum())
        self.count += len(one)
        self.equal = self.equal and bool((one == two).all())
        self.constant = self.constant and bool((one == self.first[0]).all())
        self.actual_constant = self.actual_constant and bool((two == self.first[1]).all())
        self.largest = max(self.largest, float(abs(one).max()))
        self.actual_largest = max(self.actual_largest, float(abs(two).max()))


def _pcc(pair: _Pair) -> float:
    survey = _Survey()
    for block in pair.blocks():
        survey.add(block)
        if not survey.agree:
            return 0.0
    if survey.equal:
        return 1.0
    if survey.constant:
        return _similarity(pair, max(_scale(survey.largest), _scale(survey.actual_largest)))
    return 0.0 if survey.actual_constant else _correlation(pair, survey)


def _similarity(pair: _Pair, scale: float) -> float:
    """Return 1 minus the relative error, for expected numbers that are all equal."""
    squares, actual_squares, errors = 0.0, 0.0, 0.0
    for block in pair.blocks():
        one, two = (row / scale for row in block.finite_numbers())
        difference = one - two
        squares += float(one @ one)
        actual_squares += float(two @ two)
        errors += float(difference @ difference)
    return max(0.0, 1.0 - math.sqrt(errors / max(squares, actual_squares)))


def _correlation(pair: _Pair, survey: _Survey) -> float:
    """Return the correlation of numbers that are not all equal."""
    # Scaled, so that squares and sums neither overflow nor vanish.
    scales = _scale(survey.largest), _scale(survey.actual_largest)
    sums = [0.0, 0.0]
    for block in pair.blocks():
        for place, row in enumerate(block.finite_numbers()):
            sums[place] += float((row / scales[place]).sum())
    means = [total / survey.count for total in sums]
    rest, actual_rest, squares, actual_squares, products = 0.0, 0.0, 0.0, 0.0, 0.0
    for block in pair.blocks():
        rows = zip(block.finite_numbers(), scales, means, strict=True)
        one, two = (row / scale - mean for row, scale, mean in rows)
        rest += float(one.sum())
        actual_rest += float(two.sum())
        squares += float(one @ one)
        actual_squares += float(two @ two)
        products += float(one @ two)
    # The means are rounded, which matters if they are large compared to the differences.
    squares -= rest * rest / survey.count
    actual_squares -= actual_rest * actual_rest / survey.count
    products -= rest * actual_rest / survey.count
    if squares <= 0.0 or actual_squares <= 0.0:
        return 0.0
    return min(max(products / (math.sqrt(squares) * math.sqrt(actual_squares)), -1.0), 1.0)


def _scale(largest: float) -> float:
    """Return the power of two below a number; dividing by it rounds nothing."""
    return math.ldexp(0.5, math.frexp(largest)[1])


def _max_abs_error(pair: _Pair) -> float:
    largest = 0.0
    for block in pair.blocks():
        if not block.agree:
            return math.inf
        largest = max(largest, float(_errors(pair, block).max()))
    return largest


def _allclose(pair: _Pair, rtol: float, atol: float, *, equal_nan: bool) -> bool:
    for block in pair.blocks():
        if not block.agree or (block.has_nan and not equal_nan):
            return False
        allowed = _lengths(pair, block.expected) * rtol + atol
        if not bool((_errors(pair, block) <= allowed).all()):
            return False
    return True


def _errors(pair: _Pair, block: _Block) -> Any:
    with pair.arithmetic.quiet():
        return _lengths(pair, block.actual - block.expected)


def _lengths(pair: _Pair, row: Any) -> Any:
    return pair.arithmetic.hypot(row[0::2], row[1::2]) if pair.is_complex else abs(row)


def _ulp(pair: _Pair) -> float:
    largest = 0.0
    for block in pair.blocks():
        if not block.agree:
            return math.inf
        largest = max(largest, _ulp_of_block(pair, block))
    return largest


def _ulp_of_block(pair: _Pair, block: _Block) -> float:
    if bool((block.expected == block.actual).all()):
        return 0.0
    if pair.precision is None:
        return float(abs(block.actual - block.expected).max())
    steps = 2.0**pair.precision.fraction_bits
    exponents, fractions = _places(block.expected, pair.precision, pair.arithmetic)
    exponents_too, fractions_too = _places(block.actual, pair.precision, pair.arithmetic)
    # Differences before sums: for numbers that are close, all of this is exact, even in float64.
    same_side = abs((exponents - exponents_too) * steps + (fractions - fractions_too))
    across_zero = (exponents + exponents_too) * steps + (fractions + fractions_too)
    opposite = (block.expected < 0.0) != (block.actual < 0.0)
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

import math
import re
import subprocess
import sys

import numpy as np
import pytest

from metric_cases import every_case
from optrove import metrics
from optrove.errors import NotComparable
from optrove.metrics import Comparison, observing


@pytest.fixture(params=["plain Python", "numpy"])
def kind(request, monkeypatch):
    """What holds the numbers and computes on them."""
    if request.param == "numpy":
        return np.array
    for name in ("numpy", "torch", "ttnn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return lambda numbers: numbers


@every_case
def test_every_case_has_its_answers(kind, expected, actual, pcc, error, close):
    one, two = kind(expected), kind(actual)
    assert metrics.pcc(one, two) == pytest.approx(pcc, abs=1e-7)
    assert metrics.max_abs_error(one, two) == pytest.approx(error)
    assert metrics.allclose(one, two) is close
    distance = metrics.ulp(one, two)
    assert (distance == 0.0) is (error == 0.0)
    assert math.isinf(distance) is (math.isinf(error))


def test_nan_is_close_to_nan_only_if_asked_for(kind):
    holes = kind([1.0, math.nan])
    assert not metrics.allclose(holes, holes)
    assert metrics.allclose(holes, holes, equal_nan=True)
    assert not metrics.allclose(holes, kind([math.nan, 1.0]), equal_nan=True)


def test_closeness_is_relative_to_what_was_expected(kind):
    assert metrics.allclose(kind([100.0]), kind([110.0]), rtol=0.1, atol=0.0)
    assert not metrics.allclose(kind([100.0]), kind([89.0]), rtol=0.1, atol=0.0)
    assert not metrics.allclose(kind([100.0]), kind([111.0]), rtol=0.1, atol=0.0)
    assert metrics.allclose(kind([100.0]), kind([111.0]), rtol=0.1, atol=1.0)


def test_ulp_counts_the_numbers_between_two(kind):
    one, after = 1.0, math.nextafter(1.0, 2.0)
    assert metrics.ulp(kind([one, 0.0]), kind([after, -0.0])) == 1.0
    assert metrics.ulp(kind([after]), kind([one])) == 1.0
    below_two = 2.0 - 2**-52
    assert metrics.ulp(kind([below_two]), kind([2.0 + 2**-51])) == 2.0
    least = 5e-324
    assert metrics.ulp(kind([least]), kind([-least])) == 2.0
    least_normal = 2.0**-1022
    assert metrics.ulp(kind([least_normal]), kind([least_normal - least])) == 1.0
    assert metrics.ulp(kind([0.0]), kind([least_normal])) == 2.0**52
    assert metrics.ulp(kind([1.0]), kind([2.0])) == 2.0**52


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ulp_agrees_with_the_order_of_the_bits(dtype):
    rng = np.random.default_rng(0)
    width = np.dtype(dtype).itemsize
    bits = rng.integers(0, 2 ** (8 * width - 1), 500, dtype=np.uint64).astype(f"u{width}")
    values = bits.view(dtype)
    values = values[np.isfinite(values)]
    near = (values.view(f"u{width}") + np.array(3, f"u{width}")).view(dtype)
    kept = np.isfinite(near)
    for value, other in zip(values[kept], near[kept], strict=True):
        assert metrics.ulp(value, other) == 3.0
        assert metrics.ulp(-other, -value) == 3.0


def test_ulp_is_measured_in_the_dtype_of_what_was_expected():
    single, double = np.array([1.0], np.float32), np.array([1.0 + 2**-24])
    assert metrics.ulp(single, double) == 0.5
    assert metrics.ulp(double, single) == 2.0**28


def test_one_ulp_of_whole_numbers_is_one(kind):
    assert metrics.ulp(kind([1, 2]), kind([4, 2])) == 3.0


def test_numbers_between_the_whole_ones_count_by_fractions(kind):
    assert metrics.ulp(kind([2]), kind([2.25])) == 0.25


@pytest.mark.parametrize("metric", [metrics.pcc, metrics.allclose, metrics.ulp])
def test_other_shapes_cannot_be_compared(kind, metric):
    with pytest.raises(NotComparable, match=r"shape \[2, 2\] and actual has \[4\]"):
        metric(kind([[1, 2], [3, 4]]), kind([1, 2, 3, 4]))
    with pytest.raises(NotComparable, match=r"shape \[\] and actual has \[1\]"):
        metric(kind(1.0), kind([1.0]))


@pytest.mark.parametrize("thing", ["text", None, ["a"], {1: 2}, [[1], [1, 2]], [10**400]])
def test_what_holds_no_numbers_cannot_be_compared(thing):
    with pytest.raises(NotComparable):
        metrics.pcc(thing, thing)


def test_an_array_of_texts_cannot_be_compared():
    with pytest.raises(NotComparable, match="holds no numbers"):
        metrics.pcc(np.array(["a"]), np.array(["a"]))


def test_lists_and_arrays_can_be_compared_with_one_another():
    assert metrics.pcc([[1.0, 2.0]], np.array([[1.0, 2.0]])) == 1.0
    assert metrics.max_abs_error(np.float32(2.0), 3) == 1.0


def test_large_arrays_with_a_large_offset_are_correlated_as_they_are():
    rng = np.random.default_rng(1)
    signal, noise = rng.standard_normal(200_000), rng.standard_normal(200_000)
    true = float(np.corrcoef(signal, signal + noise)[0, 1])
    offset = 2.0**30
    assert metrics.pcc(signal + offset, signal + noise + offset) == pytest.approx(true, abs=1e-6)


def test_arguments_are_not_changed():
    holes = np.array([1.0, np.nan, np.inf])
    metrics.pcc(holes, holes)
    metrics.ulp(holes, holes)
    np.testing.assert_array_equal(holes, [1.0, np.nan, np.inf])


def test_a_check_says_the_numbers():
    passed, message = metrics.check_with_pcc([1.0, 2.0, 3.0], [1.0, 2.0, 4.0], 0.99)
    assert not passed
    assert re.fullmatch(
        r"PCC 0\.98198\d+ is below 0\.99; max abs error 1\.0; float against float, shape \[3\]",
        message,
    )
    assert metrics.check_with_pcc([1.0, 2.0, 3.0], [1.0, 2.0, 4.0], 0.98)[0]
    passed, message = metrics.check_with_pcc([1.0, 2.0], [1.0])
    assert not passed
    assert "shape [2] and actual has [1]" in message


def test_an_assertion_returns_like_a_check_or_fails_with_the_numbers():
    assert metrics.assert_with_pcc([1, 2], [1, 2]) == metrics.check_with_pcc([1, 2], [1, 2])
    with pytest.raises(AssertionError, match=r"PCC 0\.0 is below 0\.9999; max abs error 3\.0"):
        metrics.assert_with_pcc([1, 2], [4, 4])
    with pytest.raises(AssertionError, match="compare tensors of one shape"):
        metrics.assert_with_pcc([1, 2], [[1, 2]])


def test_each_comparison_is_observed_once():
    seen = []
    one, two = [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]
    with observing(seen.append):
        value = metrics.pcc(one, two)
        metrics.ulp(one, one)
        metrics.max_abs_error(one, two)
        metrics.allclose(one, two)
        metrics.check_with_pcc(one, two, 0.9)
        with pytest.raises(AssertionError):
            metrics.assert_with_pcc(one, two, pcc=0.99)
        with pytest.raises(NotComparable):
            metrics.pcc(one, 1)
    metrics.pcc(one, two)
    assert seen == [
        Comparison("pcc", value),
        Comparison("ulp", 0.0),
        Comparison("max_abs_error", 1.0),
        Comparison("allclose", 1.0, None, passed=False),
        Comparison("pcc", value, 0.9, passed=True),
        Comparison("pcc", value, 0.99, passed=False),
    ]


def test_a_check_of_other_shapes_is_observed_as_failed():
    seen = []
    with observing(seen.append):
        metrics.check_with_pcc([1], [1, 2])
    (comparison,) = seen
    assert math.isnan(comparison.value)
    assert comparison.passed is False


def test_observers_can_be_nested():
    outer, inner = [], []
    with observing(outer.append):
        with observing(inner.append):
            metrics.pcc([1], [1])
        metrics.pcc([2], [2])
    assert (len(outer), len(inner)) == (2, 1)


def test_no_framework_is_imported():
    script = (
        "import sys, optrove.metrics as m; m.assert_with_pcc([1, 2], [1, 2]);"
        "print({'numpy', 'torch', 'ttnn'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_numbers_of_many_blocks_are_compared_as_a_whole(monkeypatch):
    generator = np.random.default_rng(0)
    expected = generator.normal(1000.0, 1.0, 1000)
    actual = expected + generator.normal(0.0, 0.1, 1000)
    actual[900] = expected[900] + 5.0
    found = {}
    for size in (2**18, 64):
        monkeypatch.setattr(metrics, "BLOCK", size)
        found[size] = (
            metrics.pcc(expected, actual),
            metrics.max_abs_error(expected, actual),
            metrics.ulp(expected, actual),
            metrics.pcc(np.full(1000, 2.0), np.append(np.full(999, 2.0), 3.0)),
        )
    assert found[64] == pytest.approx(found[2**18], rel=1e-12)
    assert found[64][0] == pytest.approx(np.corrcoef(expected, actual)[0, 1], abs=1e-12)
    assert found[64][1] == pytest.approx(5.0)
    actual[900] = math.nan
    assert metrics.pcc(expected, actual) == 0.0
    assert metrics.max_abs_error(expected, actual) == math.inf

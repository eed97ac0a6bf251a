"""Metrics from the comparison functions of tt-metal, for which a small tree stands here."""

import csv
import json
import os

import pytest

COMMON = """
def comp_pcc(golden, calculated, pcc=0.99):
    value = 1.0 - abs(golden - calculated)
    return value >= pcc, value

def comp_allclose(golden, calculated, rtol=1e-05, atol=1e-08):
    delta = abs(golden - calculated)
    return delta <= atol, f"Max ATOL Delta: {delta}, Max RTOL Delta: 0.5"

def comp_allclose_and_pcc(golden, calculated, rtol=1e-05, atol=1e-08, pcc=0.99):
    close, about = comp_allclose(golden, calculated, rtol, atol)
    passed, value = comp_pcc(golden, calculated, pcc)
    return close and passed, f"{about}, pcc={value}"

def comp_ulp(golden, calculated, ulp_threshold, allow_nonfinite=False):
    if calculated == float("inf"):
        return False, "Calculated tensor contains non-finite values"
    return golden == calculated, f"Max ULP Delta: {abs(golden - calculated) * 1e2} @ [1] = ..."

def comp_equal(golden, calculated):
    return golden == calculated, f"Max ATOL Delta: {abs(golden - calculated)}, Max RTOL Delta: nan"

def untouched():
    return comp_pcc
"""

TESTING = """
from models.common.utility_functions import comp_pcc, comp_allclose, comp_ulp, comp_equal

def assert_with_pcc(expected_pytorch_result, actual_pytorch_result, pcc=0.9999):
    assert type(expected_pytorch_result) is type(actual_pytorch_result), "other shapes"
    passed, message = comp_pcc(expected_pytorch_result, actual_pytorch_result, pcc)
    assert passed, str(message)
    return passed, message

def check_with_pcc(expected_pytorch_result, actual_pytorch_result, pcc=0.9999):
    passed, message = comp_pcc(expected_pytorch_result, actual_pytorch_result, pcc)
    return passed, str(message)

def assert_with_ulp(expected_result, actual_result, ulp_threshold=10, allow_nonfinite=False):
    passed, message = comp_ulp(expected_result, actual_result, ulp_threshold, allow_nonfinite)
    assert passed, message
    return passed, message

def assert_equal(expected, actual):
    assert expected == actual
"""

EAGER = """
def comp_allclose_and_pcc(golden, calculated, rtol=1e-05, atol=1e-08, pcc=0.99, device=None):
    return False, "Max ATOL Delta: 1e-3, Max RTOL Delta: inf, PCC: -.25, Allclose check failed"

def comp_pcc(golden, calculated, pcc=0.99):
    return True, "PCC: 0.999"
"""


@pytest.fixture
def project(pytester, monkeypatch):
    for path, text in {
        "models/common/utility_functions.py": COMMON,
        "models/utility_functions.py": "from models.common.utility_functions import *\n",
        "tests/ttnn/utils_for_testing.py": TESTING,
        "tests/tt_eager/python_api_testing/sweep_tests/comparison_funcs.py": EAGER,
    }.items():
        file = pytester.path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=os.pathsep)
    return pytester


def metrics_of_each(project, bodies, *options, imports="", outcome="passed"):
    """Run a test for each of some bodies, in one session, and return the metrics of each."""
    source = imports
    for number, body in enumerate(bodies):
        lines = "\n".join(f"    {line}" for line in body.splitlines())
        source += f"\n\ndef test_{number}():\n{lines}\n"
    (project.path / "test_model.py").write_text(source)
    project.runpytest_subprocess("--results-csv", "results.csv", *options)
    with (project.path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows] == [outcome] * len(bodies), rows
    return [[tuple(metric.values()) for metric in json.loads(row["metrics_json"])] for row in rows]


def metrics_of(project, body, *options, **keywords):
    (found,) = metrics_of_each(project, [body], *options, **keywords)
    return found


BY_NAME = (
    "from models.common.utility_functions import *\nfrom tests.ttnn.utils_for_testing import *"
)


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_comparison_is_a_metric_once(project, processes):
    found = metrics_of(project, "assert_with_pcc(1.0, 1.0)", *processes, imports=BY_NAME)
    assert found == [("pcc", 1.0, 0.9999, True)]


def test_a_failed_assertion_is_a_metric(project):
    body = "assert_with_pcc(1.0, 1.5, pcc=0.9)"
    found = metrics_of(project, body, imports=BY_NAME, outcome="failed")
    assert found == [("pcc", 0.5, 0.9, False)]


def test_an_assertion_that_fails_before_it_measures_keeps_its_words(project):
    body = "assert_with_pcc(1.0, 1)"
    found = metrics_of(project, body, imports=BY_NAME, outcome="failed")
    ((name, value, threshold, passed),) = found
    assert (name, threshold, passed) == ("pcc", 0.9999, False)
    assert value.startswith("other shapes")


def test_an_assertion_that_returns_nothing_has_held(project):
    assert metrics_of(project, "assert_equal(1, 1)", imports=BY_NAME) == [
        ("equal", None, None, True)
    ]


def test_numbers_are_taken_from_values_and_messages(project):
    expected = {
        "comp_pcc(1.0, 0.75)": [("pcc", 0.75, 0.99, False)],
        "check_with_pcc(1.0, 0.75, 0.5)": [("pcc", 0.75, 0.5, True)],
        "comp_allclose(1.0, 0.75)": [("allclose", 0.25, None, False)],
        "comp_equal(1.0, 0.75)": [("equal", 0.25, None, False)],
        "comp_ulp(1.0, 0.75, 2)": [("ulp", 25.0, 2.0, False)],
        "comp_ulp(1.0, float('nan'), 2)": [("ulp", "nan", 2.0, False)],
        "comp_ulp(1.0, float('inf'), 2)": [
            ("ulp", "Calculated tensor contains non-finite values", 2.0, False)
        ],
        "comp_allclose_and_pcc(1.0, 0.75, pcc=0.5)": [
            ("allclose", 0.25, None, False),
            ("pcc", 0.75, 0.5, True),
        ],
    }
    found = metrics_of_each(project, expected, imports=BY_NAME)
    assert dict(zip(expected, found, strict=True)) == expected


def test_messages_with_several_numbers_give_each_metric_its_own(project):
    body = "comp_allclose_and_pcc(0, 0)\ncomp_pcc(0, 0)"
    eager = "from tests.tt_eager.python_api_testing.sweep_tests.comparison_funcs import *"
    assert metrics_of(project, body, imports=eager) == [
        ("allclose", 0.001, None, False),
        ("pcc", -0.25, 0.99, False),
        ("pcc", 0.999, 0.99, True),
    ]


def test_functions_are_watched_wherever_they_are_imported_from(project):
    body = (
        "import models.utility_functions as old, models.common.utility_functions as new\n"
        "import tests.ttnn.utils_for_testing as testing\n"
        "old.comp_pcc(1.0, 1.0), new.comp_pcc(1.0, 1.0), testing.comp_pcc(1.0, 1.0)\n"
        "new.untouched()(1.0, 1.0)"
    )
    assert metrics_of(project, body) == [("pcc", 1.0, 0.99, True)] * 4


def test_the_functions_stay_what_they_seem(project):
    body = (
        "import inspect\n"
        "assert comp_pcc.__name__ == 'comp_pcc'\n"
        "assert list(inspect.signature(comp_pcc).parameters) == ['golden', 'calculated', 'pcc']\n"
        "try: comp_pcc(1.0)\n"
        "except TypeError: pass\n"
        "else: raise AssertionError\n"
    )
    assert metrics_of(project, body, imports=BY_NAME) == []


def test_everything_is_as_before_when_the_session_has_ended(project):
    script = f"""
import sys
import pytest
open("test_model.py", "w").write({BY_NAME!r} + "\\ndef test_one(): assert_with_pcc(1.0, 1.0)")
before = list(sys.meta_path)
assert pytest.main(["--results-csv", "results.csv", "-p", "no:cacheprovider"]) == 0
assert not [finder for finder in sys.meta_path if "optrove" in type(finder).__module__]
import models.common.utility_functions as new, models.utility_functions as old
import tests.ttnn.utils_for_testing as testing
for module in (new, old, testing):
    assert not hasattr(module.comp_pcc, "__wrapped__"), module
assert not hasattr(testing.assert_with_pcc, "__wrapped__")
"""
    (project.path / "script.py").write_text(script)
    project.runpython(project.path / "script.py").assert_outcomes(passed=1)

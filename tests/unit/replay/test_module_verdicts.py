import sys
from unittest import SkipTest

import pytest

from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.replay.judge import judge_module_error, judge_module_result

SHADOW, MOCK = (
    Attempt("run", "id", Outcome.NOT_RUN, kind) for kind in (DeviceKind.SHADOW, DeviceKind.MOCK)
)


def measured(verdict):
    return {each.name: each.value for each in verdict.measurements}


@pytest.mark.parametrize(
    ("returned", "outcome", "numbers"),
    [
        ((True, "0.9998"), Outcome.PASSED, {"pcc": 0.9998}),
        ((False, "PCC: 0.25, expected 0.99"), Outcome.NUMERICS, {"pcc": 0.25}),
        (
            [(True, "Max ATOL Delta: 3.5, PCC: 1.0"), 1500],
            Outcome.PASSED,
            {"pcc": 1.0, "e2e_ns": 1500},
        ),
        ([(True, 0.75), None], Outcome.PASSED, {"pcc": 0.75}),
        ([(False, "shapes differ"), 7], Outcome.NUMERICS, {"e2e_ns": 7}),
        ((True, "17.5"), Outcome.PASSED, {}),
        ((True, ""), Outcome.PASSED, {}),
        ([False, "list of a pair"], Outcome.NUMERICS, {}),
    ],
)
def test_what_run_returns_is_the_verdict(returned, outcome, numbers):
    verdict = judge_module_result(SHADOW, returned)
    assert (verdict.outcome, measured(verdict)) == (outcome, numbers)


@pytest.mark.parametrize("returned", [None, True, (True,), [], "passed", [1, 2, 3], ("yes", "no")])
def test_another_form_is_a_fault_of_the_module(returned):
    verdict = judge_module_result(SHADOW, returned)
    assert verdict.outcome is Outcome.RAISED
    assert "it has to return (passed, message)" in verdict.detail


def test_numbers_of_a_mock_board_are_not_judged_and_that_is_said():
    verdict = judge_module_result(MOCK, [(False, "PCC 0.01 is below 0.99"), 5])
    assert (verdict.outcome, measured(verdict)) == (Outcome.PASSED, {"e2e_ns": 5})
    assert "numbers of a mock board mean nothing" in verdict.notes[0]
    assert judge_module_error(MOCK, AssertionError("PCC is 0.01")).outcome is Outcome.PASSED
    # What has nothing to do with numbers counts there, too.
    assert (
        judge_module_result(MOCK, (False, "the output has another shape")).outcome
        is Outcome.NUMERICS
    )
    assert judge_module_error(MOCK, AssertionError("wrong shape")).outcome is Outcome.RAISED


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("odd"), Outcome.RAISED),
        (RuntimeError("TT_FATAL @ x.cpp:3: a > b\ninfo:\nno such layout"), Outcome.REJECTED),
        (RuntimeError("TT_FATAL: Out of Memory: Not enough space"), Outcome.OUT_OF_MEMORY),
        (AssertionError("pcc=0.5 is too low"), Outcome.NUMERICS),
        (SystemExit(3), Outcome.RAISED),
    ],
)
def test_what_run_raises_tells_what_kind_of_failure_it_is(error, outcome):
    assert judge_module_error(SHADOW, error).outcome is outcome


@pytest.mark.parametrize("device", [SHADOW, MOCK])
@pytest.mark.parametrize(
    "returned",
    [
        (False, "Skipping: bfloat4_b is not supported"),
        (True, "skipped as ROW_MAJOR is not supported"),
        (False, "Test skipped: no such layout"),
        (False, "bfloat4_b is not supported, skipping."),
        [(True, "Skipped: requires 2+ devices"), 0.0],
    ],
)
def test_a_returned_text_about_skipping_is_a_skip_and_no_verdict(device, returned):
    verdict = judge_module_result(device, returned)
    assert verdict.outcome is Outcome.NOT_RUN
    assert verdict.detail.startswith("the module skips it: ")
    assert verdict.measurements == ()


def test_a_text_that_only_mentions_skipping_is_a_verdict():
    verdict = judge_module_result(SHADOW, (False, "3 rows were skipped, PCC 0.5"))
    assert verdict.outcome is Outcome.NUMERICS


def test_a_raised_text_about_skipping_is_a_skip():
    for error in (SkipTest("no"), RuntimeError("Skipping this shape")):
        assert judge_module_error(SHADOW, error).outcome is Outcome.NOT_RUN
    assert judge_module_error(SHADOW, ValueError("cannot skip it")).outcome is Outcome.RAISED


def test_a_pcc_alone_is_said_in_words():
    verdict = judge_module_result(SHADOW, (False, "-0.0012"))
    assert verdict.detail == "PCC -0.0012 is below the threshold of the module"


def test_a_skip_is_no_failure():
    with pytest.raises(pytest.skip.Exception) as caught:
        pytest.skip("not on this board")
    verdict = judge_module_error(SHADOW, caught.value)
    assert verdict.outcome is Outcome.NOT_RUN
    assert verdict.detail == "the module skips it: not on this board"
    assert "pytest" in sys.modules

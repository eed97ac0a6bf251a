import pytest

from optrove.model.exit_codes import FAIL_ON, Exit, Reason, reason_of
from optrove.model.records import (
    LOST,
    OUT_OF_BUDGET,
    SKIPPED,
    UNATTEMPTED,
    UNCHECKED,
    Attempt,
    AttemptedCase,
    DeviceKind,
    Outcome,
)

PASSED = (Outcome.PASSED, None, None)
FAILED = (Outcome.REJECTED, "no bank", None)
MACHINE = (Outcome.NOT_RUN, "ttnn has found no board", None)
RECORDING = (Outcome.NOT_RUN, f"{LOST}lost $.arguments.a: mine.Thing", None)
DECLINED = (Outcome.NOT_RUN, f"{SKIPPED}: only for Blackhole", None)
UNEXPECTED = (Outcome.PASSED, None, "xfail_suite")


def one(outcome, detail, suite):
    return AttemptedCase(
        "ttnn.add", Attempt("run", "a" * 64, outcome, DeviceKind.MOCK, detail=detail), suite=suite
    )


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (PASSED, None),
        (FAILED, Reason.FAILED),
        ((Outcome.CRASHED, "signal 11", "nightly"), Reason.FAILED),
        ((Outcome.CRASHED, "signal 11", "xfail_suite"), None),
        (UNEXPECTED, Reason.XPASSED),
        (MACHINE, Reason.NOT_RUN),
        ((Outcome.NOT_RUN, None, "xfail_suite"), Reason.NOT_RUN),
        (RECORDING, Reason.LOST),
        (DECLINED, Reason.SKIPPED),
        ((Outcome.NOT_RUN, f"{UNCHECKED}no golden function", None), Reason.SKIPPED),
        ((Outcome.NOT_RUN, UNATTEMPTED, None), Reason.INCOMPLETE),
        ((Outcome.NOT_RUN, f"{OUT_OF_BUDGET}its time was over", None), Reason.INCOMPLETE),
        # A failure is one, whatever its words are.
        ((Outcome.RAISED, f"{LOST}was lost", None), Reason.FAILED),
    ],
)
def test_each_case_has_one_reason(case, reason):
    assert reason_of(one(*case)) is reason


@pytest.mark.parametrize(
    ("cases", "waiting", "code", "text"),
    [
        ([PASSED], 0, 0, None),
        ([PASSED, FAILED], 0, 1, "exit code 1: 1 failed"),
        ([PASSED] * 44 + [MACHINE] * 2, 0, 1, "exit code 1: 2 not run"),
        ([PASSED] * 24, 190, 1, "exit code 1: 190 not attempted"),
        (
            [PASSED] * 44 + [RECORDING] * 2,
            0,
            0,
            "exit code 0; not counted by --fail-on: 2 not run because the recording lost a value",
        ),
        ([PASSED, FAILED, RECORDING], 1, 1, "exit code 1: 1 failed, 1 not attempted"),
        ([MACHINE], 0, 2, "exit code 2: no case ran"),
        ([RECORDING], 0, 2, "exit code 2: no case ran"),
        ([], 0, 2, "exit code 2: no case ran"),
    ],
)
def test_text_and_exit_code_say_the_same(cases, waiting, code, text):
    ending = Exit.of([one(*each) for each in cases], waiting)
    assert (ending.code, ending.text) == (code, text)


@pytest.mark.parametrize(
    ("fail_on", "code", "text"),
    [
        ({Reason.FAILED}, 0, "1 not run, 1 not attempted, 1 not run because the recording lost"),
        ({Reason.LOST}, 1, "exit code 1: 1 not run because the recording lost a value"),
        ({Reason.SKIPPED}, 1, "exit code 1: 1 skipped"),
        ({Reason.XPASSED}, 1, "exit code 1: 1 passed unexpectedly"),
        ({*Reason} - {*FAIL_ON}, 1, "1 skipped, 1 passed unexpectedly"),
    ],
)
def test_the_chosen_reasons_count(fail_on, code, text):
    cases = [one(*each) for each in (PASSED, MACHINE, RECORDING, DECLINED, UNEXPECTED)]
    ending = Exit.of(cases, 1, frozenset(fail_on))
    assert ending.code == code
    assert text in ending.text


def test_a_run_is_incomplete_even_if_nobody_knows_by_how_much():
    ending = Exit.of([one(*PASSED)], complete=False)
    assert (ending.code, ending.text) == (1, "exit code 1: incomplete")


def test_an_interrupt_has_its_own_code():
    cases = [one(*PASSED), one(Outcome.NOT_RUN, UNATTEMPTED, None)]
    ending = Exit.of(cases, complete=False, interrupted=True)
    assert (ending.code, ending.text) == (130, "exit code 130: 1 not attempted")
    nothing = Exit.of(cases[1:], complete=False, interrupted=True)
    assert (nothing.code, nothing.text) == (130, "exit code 130: 1 not attempted")

import math
import re
from dataclasses import replace

import pytest

from optrove.frameworks.executor import Compared, Executed, Raised
from optrove.model.case import Case
from optrove.model.records import Attempt, DeviceKind, Job, Outcome
from optrove.model.values import Int, NumpyPlacement, Struct, TensorSpec, TtnnPlacement
from optrove.replay import judge as judging
from optrove.replay.judge import classify, headline

CASE = Case("ttnn.add", (("a", Int(1)),))
SPEC = TensorSpec((2, 3), "ttnn.bfloat16", NumpyPlacement(()))

VALIDATION = """TT_FATAL @ /project/x.cpp:37: (a.shape() == b.shape())
info:
Shapes must agree, found 3 and 4
backtrace:
 --- somewhere"""


def job(**options):
    return Job(CASE, DeviceKind.MOCK, **options)


def judge(job, executed, notes=()):
    begun = Attempt("run", "id", Outcome.NOT_RUN, DeviceKind.MOCK)
    return judging.judge(begun, job, executed, notes)


def compared(expected, actual, output=0):
    return Compared(output, expected, actual, expected)


@pytest.mark.parametrize(
    ("kind", "text", "outcome"),
    [
        ("RuntimeError", VALIDATION, Outcome.REJECTED),
        ("TypeError", "add(): incompatible function arguments. These are", Outcome.REJECTED),
        (
            "RuntimeError",
            "TT_FATAL @ x: false\ninfo:\nOut of Memory: Not enough space to allocate 5 B",
            Outcome.OUT_OF_MEMORY,
        ),
        (
            "RuntimeError",
            "TT_THROW @ p.cpp:1\ninfo:\nBuffers grow to 16 B which is beyond max L1 size of 14 B",
            Outcome.OUT_OF_MEMORY,
        ),
        (
            "RuntimeError",
            "TT_THROW: Statically allocated circular buffers in program 1 clash with L1 buffers",
            Outcome.OUT_OF_MEMORY,
        ),
        ("RuntimeError", "TT_FATAL: No chips detected in the cluster", Outcome.NOT_RUN),
        ("ValueError", "something else", Outcome.RAISED),
        ("IndexError", "", Outcome.RAISED),
    ],
)
def test_the_text_of_an_exception_decides_the_outcome(kind, text, outcome):
    found, words = classify(Raised(kind, text))
    assert found is outcome
    assert text in words


def test_the_first_line_says_what_is_wrong_and_the_rest_is_kept():
    assert headline(Raised("RuntimeError", VALIDATION)) == "Shapes must agree, found 3 and 4"
    verdict = judge(job(), Executed(CASE, raised=Raised("RuntimeError", VALIDATION)))
    assert verdict.outcome is Outcome.REJECTED
    assert verdict.detail.splitlines()[0] == "Shapes must agree, found 3 and 4"
    assert "--- somewhere" in verdict.detail


def test_a_call_that_returned_as_recorded_has_passed_without_words():
    verdict = judge(job(outputs=(SPEC,)), Executed(CASE, outputs=(SPEC,)))
    assert (verdict.outcome, verdict.detail) == (Outcome.PASSED, None)


def test_another_output_spec_is_reported_with_its_path():
    other = TensorSpec((2, 4), "ttnn.bfloat16", NumpyPlacement(()))
    verdict = judge(job(outputs=(SPEC,)), Executed(CASE, outputs=(other,)))
    assert verdict.outcome is Outcome.WRONG_SPEC
    assert verdict.detail == "$.outputs[0].$tensor.shape[1]: recorded 3, replayed 4"


def test_other_shards_on_another_board_are_accepted_with_a_note():
    placement = TtnnPlacement((32, 32), "TILE", None, "device", None, None, None)
    shards = [Struct("ttnn.MemoryConfig", (("cores", Int(cores)),)) for cores in (64, 110)]
    one, other = (
        TensorSpec((2, 3), "ttnn.bfloat16", replace(placement, memory=memory)) for memory in shards
    )
    begun = Attempt("run", "id", Outcome.NOT_RUN, DeviceKind.MOCK, board="p150")
    for board, output, outcome in (
        ("n150", other, Outcome.PASSED),
        ("p150", other, Outcome.WRONG_SPEC),
        (None, other, Outcome.WRONG_SPEC),
        ("n150", replace(other, shape=(2, 4)), Outcome.WRONG_SPEC),
    ):
        wanted = job(outputs=(one,), recorded_on=board)
        verdict = judging.judge(begun, wanted, Executed(CASE, outputs=(output,)))
        assert verdict.outcome is outcome
        assert any("places the output otherwise" in note for note in verdict.notes) is (
            outcome is Outcome.PASSED
        )


def test_another_number_of_outputs_is_a_wrong_spec():
    verdict = judge(job(outputs=(SPEC,)), Executed(CASE, outputs=()))
    assert verdict.outcome is Outcome.WRONG_SPEC


def test_outputs_that_were_not_recorded_are_not_compared():
    assert judge(job(), Executed(CASE, outputs=(SPEC,))).outcome is Outcome.PASSED


def test_supplied_arguments_are_noted_with_every_outcome():
    note = "stride was not recorded; left at its default"
    for raised in (None, Raised("ValueError", "no")):
        verdict = judge(job(), Executed(CASE, raised=raised, notes=(note,)), ("no fabric",))
        assert verdict.notes == ("no fabric", note)
        assert verdict.detail is None or "fabric" not in verdict.detail


def test_a_refusal_that_the_recording_causes_is_no_verdict():
    excuse = "the recording lost the value of stride"
    refused = Executed(CASE, raised=Raised("RuntimeError", "TT_FATAL: no"), excuse=excuse)
    verdict = judge(job(), refused)
    assert verdict.outcome is Outcome.NOT_RUN
    assert verdict.detail.splitlines()[0] == excuse
    assert "TT_FATAL: no" in verdict.detail


def test_a_replay_that_is_not_the_recorded_call_says_where():
    replayed = Case("ttnn.add", (("a", Int(2)),))
    verdict = judge(job(), Executed(replayed))
    assert verdict.notes == ("not as recorded: $.arguments.a: recorded 1, replayed 2",)


def test_a_call_in_which_no_operation_was_seen_is_no_success():
    assert judge(job(), Executed()).outcome is Outcome.NOT_RUN


def test_every_output_is_measured():
    pairs = (compared([1.0, 2.0, 3.0], [1.0, 2.0, 3.5]), compared([1, 2], [1, 2], output=1))
    verdict = judge(job(), Executed(CASE, compared=pairs))
    assert verdict.outcome is Outcome.PASSED
    found = {(each.name, each.output): each.value for each in verdict.measurements}
    assert found["max_abs_error", 0] == 0.5
    assert found["pcc", 1] == 1.0
    assert {output for _, output in found} == {0, 1}


@pytest.mark.parametrize(
    ("actual", "detail"),
    [
        ([3.0, 3.0], r"output 0: PCC 0\.0 is below 0\.99"),
        ([1.0, math.nan], ".*"),
        ([1.0], ".*compare tensors of one shape.*"),
    ],
)
def test_wrong_numbers_are_a_numeric_failure(actual, detail):
    verdict = judge(job(), Executed(CASE, compared=(compared([1.0, 2.0], actual),)))
    assert verdict.outcome is Outcome.NUMERICS
    assert re.fullmatch(detail, verdict.detail, re.DOTALL)


def test_numbers_that_are_only_moved_must_not_change():
    numbers = [float(each) for each in range(1000)]
    changed = [*numbers[:-1], 998.0]
    for exact, outcome in ((False, Outcome.PASSED), (True, Outcome.NUMERICS)):
        one = Compared(0, numbers, changed, numbers, exact=exact)
        verdict = judge(job(), Executed(CASE, compared=(one,)))
        assert verdict.outcome is outcome
    assert "must only move, but differ by 1.0" in verdict.detail
    same = Compared(0, numbers, numbers, numbers, exact=True)
    assert judge(job(), Executed(CASE, compared=(same,))).outcome is Outcome.PASSED


def test_what_could_not_be_compared_says_why_and_measures_nothing():
    lacking = Compared(0, lacking="it has no golden function")
    verdict = judge(job(), Executed(CASE, compared=(lacking,)))
    assert verdict.outcome is Outcome.PASSED
    assert verdict.measurements == ()
    assert verdict.detail is None
    assert verdict.notes == ("output 0 was not compared: it has no golden function",)


def test_only_the_metrics_that_were_asked_for_are_measured():
    pairs = (compared([1.0, 2.0], [1.0, 2.5]),)
    verdict = judge(job(metrics=("max_abs_error", "taste")), Executed(CASE, compared=pairs))
    assert [each.name for each in verdict.measurements] == ["max_abs_error"]
    assert verdict.notes == ("no metric is called taste; known: pcc, max_abs_error, ulp",)

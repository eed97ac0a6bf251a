import math
import re
import signal
import sys
from dataclasses import replace
from unittest import SkipTest

import pytest

from optrove.errors import NoNumbers, UnsupportedOnMock
from optrove.frameworks.executor import Compared, Executed, Raised
from optrove.model.case import Case
from optrove.model.records import HARMLESS, Attempt, DeviceKind, Job, Outcome
from optrove.model.values import (
    Int,
    List,
    MeshPlacement,
    Null,
    NumpyPlacement,
    Opaque,
    Struct,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
)
from optrove.replay import judge as judging
from optrove.replay.judge import (
    MAX_DIFFERENCES,
    case_differences,
    classify,
    fatal_fault,
    headline,
    judge_module_error,
    judge_module_result,
    machine_fault,
    output_differences,
)

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
    assert verdict.detail == "output 0 shape[1]: recorded 3, replayed 4"


def test_an_output_of_another_kind_is_named_as_a_whole():
    verdict = judge(job(outputs=(SPEC,)), Executed(CASE, outputs=(Opaque("x.Y", "text"),)))
    assert verdict.detail == (
        "output 0: recorded a tensor of ttnn.bfloat16 with shape [2, 3], replayed an object of x.Y"
    )


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
        placed = [note for note in verdict.notes if "places the output otherwise" in note]
        assert bool(placed) is (outcome is Outcome.PASSED)
        assert all(note.startswith(HARMLESS) for note in placed)


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
    assert verdict.notes == ("not as recorded: argument a: recorded 1, replayed 2",)


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TT_FATAL: No chips detected in the cluster", "no board"),
        ("TT_THROW: Failed to allocate TLB window. Look at", "held by another process"),
        ("tt_tlb_alloc failed with error code -12", "held by another process"),
        ("Sysmem mapped at unexpected NOC address", "host memory of the board"),
        ("Timed out waiting for ETH heartbeat", "links between the chips"),
        ("Read 0xffffffff from PCIE: you should reset the board.", "no longer answers"),
        ("Read 0xffffffff over PCIe ID 0: the board should be reset.", "no longer answers"),
        ("OSError: [Errno 28] No space left on device", "disk of the host is full"),
    ],
)
def test_what_the_machine_says_is_not_the_operations_failure(text, reason):
    assert reason in machine_fault(text)
    outcome, words = classify(Raised("RuntimeError", text))
    assert outcome is Outcome.NOT_RUN
    assert words.startswith("the machine failed, not the operation: ")
    assert text in words


@pytest.mark.parametrize(
    "text",
    [
        "TT_FATAL @ x.cpp:1: Shapes must agree",
        "Timeout waiting for physical cores to finish",
        "Out of Memory: Not enough space to allocate 5 B",
        "the search window should be reset first",
    ],
)
def test_what_the_operation_says_is_its_own(text):
    assert machine_fault(text) is None


def test_a_process_that_was_killed_from_outside_says_nothing_about_its_operation():
    assert "killed from outside" in fatal_fault(-signal.SIGKILL, "")
    assert "ended from outside" in fatal_fault(-signal.SIGTERM, "")
    assert "no longer answers" in fatal_fault(-signal.SIGABRT, "Read 0xffffffff from PCIE")
    assert fatal_fault(-signal.SIGSEGV, "last words") is None
    assert fatal_fault(1, "") is None


def tensor(identity, shape=(2, 2)):
    return TensorSpec(shape, "ttnn.bfloat16", NumpyPlacement(()), identity, identity)


BOUND = Case("ttnn.add", (("input_b", tensor(0)), ("input_c", tensor(1)), ("input_a", Int(3))))
PLACED = Case("ttnn.add", (("arg0", Int(3)), ("arg1", tensor(0)), ("arg2", tensor(1))))
NAMES = (("arg0", "input_a"), ("arg1", "input_b"), ("arg2", "input_c"))


SWAPPED = (("arg0", "input_a"), ("arg1", "input_c"), ("arg2", "input_b"))


@pytest.mark.parametrize(
    ("recorded", "names"),
    [
        pytest.param(BOUND, (), id="equal"),
        pytest.param(PLACED, NAMES, id="arguments that got names"),
        pytest.param(PLACED, SWAPPED, id="tensors numbered by the new names"),
        pytest.param(
            Case("ttnn.add", (*PLACED.arguments, ("arg3", Null()))),
            NAMES,
            id="an absent argument of which only the place is known",
        ),
    ],
)
def test_the_same_call_does_not_differ(recorded, names):
    assert case_differences(recorded, BOUND, names) == []


def test_a_tensor_that_was_passed_twice_and_is_not_any_more_is_a_difference():
    twice = Case("ttnn.add", (("a", tensor(0)), ("b", tensor(0))))
    apart = Case("ttnn.add", (("a", tensor(0)), ("b", tensor(1))))
    assert [line.partition(":")[0] for line in case_differences(twice, apart, ())] == [
        "argument b identity",
        "argument b storage",
    ]


def test_a_named_argument_that_is_none_and_not_passed_is_a_difference():
    recorded = Case("ttnn.add", (*BOUND.arguments, ("dtype", Null())))
    (line,) = case_differences(recorded, BOUND, ())
    assert line == "argument dtype: recorded null, replayed without"


def test_another_operation_is_the_only_thing_to_say():
    (line,) = case_differences(BOUND, replace(BOUND, op="ttnn.sub"), ())
    assert line == "recorded as a call of ttnn.add, traced as one of ttnn.sub"


def test_long_lists_of_differences_are_cut_and_counted():
    one = Case("ttnn.add", (("a", List(tuple(map(Int, range(30))))),))
    other = Case("ttnn.add", (("a", List(tuple(map(Int, range(1, 31))))),))
    lines = case_differences(one, other, ())
    assert len(lines) == MAX_DIFFERENCES + 1
    assert lines[-1] == "and 10 more"


def spread(dimensions, chips=((0, 0),)):
    """An output that is replicated over these chips, in so many dimensions."""
    mesh = MeshPlacement((1,) * dimensions, (None,) * dimensions, chips)
    placement = TtnnPlacement((2, 2), "ROW_MAJOR", None, "device", None, (1, 1), mesh)
    return Tuple((TensorSpec((2, 2), "ttnn.bfloat16", placement, 0, 0), Int(2)))


def test_on_several_chips_the_dimensions_of_an_output_count():
    chips = ((0, 0), (0, 1))
    lines = output_differences((spread(1, chips),), (spread(2, chips),))
    assert [line.partition(":")[0].rpartition(".")[2] for line in lines] == [
        "distribution_shape",
        "placements",
    ]


def gradient(wanted):
    return TensorSpec(
        (2, 2), "torch.float32", TorchPlacement((2, 1), "strided", "cpu", wanted), 0, 0
    )


@pytest.mark.parametrize(
    ("recorded", "replayed"),
    [
        pytest.param(spread(1), spread(2), id="dimensions of the mesh on one chip"),
        pytest.param(gradient(wanted=False), gradient(wanted=True), id="a gradient not wanted"),
    ],
)
def test_outputs_that_mean_the_same_do_not_differ(recorded, replayed):
    assert output_differences((recorded,), (replayed,)) == []


def test_that_a_gradient_is_lost_is_a_difference():
    (line,) = output_differences((gradient(wanted=True),), (gradient(wanted=False),))
    assert line.endswith("requires_grad: recorded true, replayed false")
    wanted, unwanted = (
        Case("torch.add", (("a", gradient(wanted=each)),)) for each in (True, False)
    )
    assert len(case_differences(unwanted, wanted, ())) == 1


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
        ((False, "3 rows were skipped, PCC 0.5"), Outcome.NUMERICS, {"pcc": 0.5}),
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
        (SkipTest("no"), Outcome.NOT_RUN),
        (RuntimeError("Skipping this shape"), Outcome.NOT_RUN),
        (ValueError("cannot skip it"), Outcome.RAISED),
        (NoNumbers("shape (1, 2) has none: no golden function", "no golden"), Outcome.NOT_RUN),
        (NoNumbers("it was deallocated"), Outcome.RAISED),
        (UnsupportedOnMock("it would end the process"), Outcome.NOT_RUN),
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


def test_numbers_that_a_mock_board_lacks_are_no_failure_of_the_op_and_have_one_cause():
    errors = [NoNumbers(f"shape {size} has none: no golden", "no golden") for size in (1, 2)]
    verdicts = [judge_module_error(SHADOW, error) for error in errors]
    (detail,) = {verdict.detail for verdict in verdicts}
    assert detail == "the mock board has no numbers for the module to judge: no golden"


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

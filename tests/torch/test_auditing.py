"""Golden checks that cannot fail are found, and sound ones are not accused."""

from dataclasses import replace

import pytest
import torch

from optrove.frameworks.executor import Compared, Executed
from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.replay.audit import KERNEL, PERTURBATIONS, audited
from trove_rows import case, tensor

pytestmark = pytest.mark.torch

BEGUN = Attempt("run", "id", Outcome.NOT_RUN, DeviceKind.SHADOW)
SOFTMAX = case("ttnn.softmax", input_tensor=tensor(32, 32))


def executed(*expected, actual=None):
    results = expected if actual is None else (actual,)
    return Executed(
        compared=tuple(
            Compared(place, one, other, one)
            for place, (one, other) in enumerate(zip(expected, results, strict=True))
        )
    )


def random(seed, *shape):
    return torch.randn(*(shape or (8, 32)), generator=torch.Generator().manual_seed(seed))


def audit(one, other, of=SOFTMAX):
    return audited(BEGUN, of, one, other)


def test_a_sound_check_fails_by_every_perturbation_but_scale():
    attempt = audit(executed(random(0)), executed(random(1)))
    assert attempt.outcome is Outcome.PASSED
    assert attempt.detail is None
    failed = {each.name: each.passed for each in attempt.measurements}
    assert failed == {name: name != "doubled" for name in PERTURBATIONS}


def test_a_check_that_expects_the_same_whatever_the_inputs_cannot_fail():
    ones = torch.ones(8, 32)
    attempt = audit(executed(ones), executed(ones))
    assert attempt.outcome is Outcome.NUMERICS
    assert "output 0: the same is expected for other inputs" in attempt.detail


def test_what_gives_a_constant_should():
    ones = torch.ones(8, 32)
    like = case("ttnn.ones_like", tensor=tensor(32, 32))
    made = case("ttnn.ones", shape=[8, 32])
    for one in (like, made):
        assert audit(executed(ones), executed(ones), one).outcome is Outcome.PASSED


def test_a_golden_function_that_differs_from_the_kernel_is_wrong():
    on_simulator = replace(BEGUN, device_kind=DeviceKind.SIMULATOR)
    right, other = random(0), random(1)
    wrong = audited(on_simulator, SOFTMAX, executed(right, actual=right.flip(0)), executed(other))
    assert wrong.outcome is Outcome.WRONG_SPEC
    assert wrong.detail.startswith("output 0: PCC")
    assert [each.passed for each in wrong.measurements if each.name == KERNEL] == [False]
    close = audited(
        on_simulator, SOFTMAX, executed(right, actual=right.bfloat16()), executed(other)
    )
    assert close.outcome is Outcome.PASSED
    assert [each.passed for each in close.measurements if each.name == KERNEL] == [True]


def test_a_check_that_passes_on_anything_is_found(monkeypatch):
    from optrove import metrics

    monkeypatch.setattr(metrics, "pcc", lambda expected, actual: 1.0)
    attempt = audit(executed(random(0)), executed(random(1)))
    assert attempt.outcome is Outcome.NUMERICS
    for name in ("zeroed", "negated", "reversed", "spoiled"):
        assert f"output 0: the check passes when it is {name}" in attempt.detail
    assert "doubled" not in attempt.detail


def test_every_output_is_audited():
    one, other = executed(random(0), torch.ones(4, 4)), executed(random(1), torch.ones(4, 4))
    attempt = audit(one, other)
    assert attempt.outcome is Outcome.NUMERICS
    assert attempt.detail == "output 1: the same is expected for other inputs"
    assert {each.output for each in attempt.measurements} == {0, 1}


@pytest.mark.parametrize("numbers", [torch.arange(64), torch.arange(64) > 20])
def test_whole_numbers_and_truth_values_are_audited_too(numbers):
    attempt = audit(executed(numbers), executed(numbers.flip(0)))
    assert attempt.outcome is Outcome.PASSED, attempt.detail


def test_what_has_no_check_says_why():
    lacking = Executed(compared=(Compared(0, lacking="it has no golden function"),))
    attempt = audit(lacking, lacking)
    assert attempt.outcome is Outcome.NOT_RUN
    assert attempt.detail == "unchecked: output 0 has no check: it has no golden function"
    both = replace(executed(random(0)), compared=(*executed(random(0)).compared, *lacking.compared))
    attempt = audit(both, executed(random(1)))
    assert attempt.outcome is Outcome.PASSED
    assert "has no check" in attempt.detail


def test_an_empty_result_has_nothing_to_perturb():
    empty = executed(torch.empty(0, 4))
    assert audit(empty, empty).outcome is Outcome.PASSED

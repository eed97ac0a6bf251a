"""Wrong numbers fail wherever results are compared, however small; equal chips cost nothing."""

from dataclasses import dataclass

import pytest

from optrove import metrics
from optrove.frameworks.executor import Compared
from optrove.frameworks.ttnn.execute.comparing import different
from optrove.portable.judging import SHARE, float_faults
from optrove.replay.judge import PCC, measure
from optrove.testgen.files import template_parts
from optrove.testgen.torch_files import TORCH_IMPORTS, torch_judging

pytestmark = pytest.mark.torch


def test_only_a_chip_that_has_and_should_have_the_same_is_left_out():
    import torch

    one, other = torch.ones(2), torch.ones(2)
    twice, wrong = torch.full((2,), 2.0), torch.full((2,), 3.0)
    parts = [twice, twice.clone(), wrong, twice, wrong.clone()]
    assert different(torch, [one, one, one, other, one], parts) == [0, 2, 3]
    nothing = torch.full((2,), float("nan"))
    assert different(torch, [one, one], [nothing, nothing]) == [0, 1]


def from_template(text, name):
    """Return a function of generated files."""
    import torch

    space = {"torch": torch, "dataclass": dataclass}
    exec(f"from __future__ import annotations\n{text}", space)  # noqa: S102 - our own template
    return space[name]


def in_generated_ttnn(expected, actual):
    likeness = from_template(template_parts().comparing(), "likeness")
    return likeness(expected.double(), actual.double()) >= PCC


class Nothing:
    """No other result of the operation is known."""

    share = SHARE

    def moves(self):
        return iter(())

    own_moves = moves

    def own(self):
        return None


def in_generated_torch(expected, actual):
    judging = from_template(f"{TORCH_IMPORTS}\n{torch_judging()}", "fault_of")
    return judging(actual, expected, Nothing()) is None


def in_replays_of_ttnn(expected, actual):
    return not measure((Compared(0, expected, actual, actual),), ("pcc",))[1]


def in_replays_of_torch(expected, actual):
    return not float_faults(actual, expected, Nothing())[0]


def in_metrics(expected, actual):
    return metrics.check_with_pcc(expected, actual, PCC)[0]


EVERYWHERE = (
    in_generated_ttnn,
    in_generated_torch,
    in_replays_of_ttnn,
    in_replays_of_torch,
    in_metrics,
)


@pytest.mark.parametrize("accepts", EVERYWHERE)
@pytest.mark.parametrize(
    ("spoil", "accepted"),
    [
        (lambda right: right, True),
        (lambda right: right * 0, False),
        (lambda right: right.flip(-1), False),
        (lambda right: -right, False),
        (lambda right: right.mean().expand(right.shape), False),
    ],
    ids=("right", "zeros", "flipped", "negative", "constant"),
)
def test_a_wide_softmax_has_to_be_right_although_its_numbers_are_small(accepts, spoil, accepted):
    import torch

    generator = torch.Generator().manual_seed(0)
    expected = torch.randn(1, 1, 32, 32000, generator=generator).softmax(-1)
    assert accepts(expected, spoil(expected).bfloat16()) is accepted


@pytest.mark.parametrize("accepts", EVERYWHERE)
@pytest.mark.parametrize(
    ("expected", "actual", "accepted"),
    [
        ([], [], True),
        ([2.0, 2.0], [2.0, 2.0078125], True),
        ([2.0, 2.0], [0.0, 0.0], False),
        ([0.0, 0.0], [0.0, 0.0], True),
        ([1e-5, 1e-5], [0.0, 0.0], False),
        ([1.0, 2.0, float("inf")], [1.0, 2.0, float("inf")], True),
        ([1.0, 2.0, float("inf")], [1.0, 2.0, float("-inf")], False),
        ([1.0, 2.0, float("nan")], [1.0, 2.0, float("nan")], True),
        ([1.0, 2.0, float("nan")], [1.0, 2.0, float("inf")], False),
        ([1.0, 2.0, 3.0], [1.0, 2.0, float("nan")], False),
    ],
)
def test_constants_and_what_is_not_finite_have_to_be_the_same(accepts, expected, actual, accepted):
    import torch

    assert accepts(torch.tensor(expected), torch.tensor(actual).bfloat16()) is accepted

"""Chips that have the same as others cost no comparison; a chip that differs is always compared."""

import pytest

from optrove.frameworks.ttnn.execute.comparing import different

pytestmark = pytest.mark.torch


def test_only_a_chip_that_has_and_should_have_the_same_is_left_out():
    import torch

    one, other = torch.ones(2), torch.ones(2)
    twice, wrong = torch.full((2,), 2.0), torch.full((2,), 3.0)
    found, parts = different(
        torch,
        [one, one, one, other, one],
        [twice, twice.clone(), wrong, twice, wrong.clone()],
    )
    assert [id(each) for each in found] == [id(one), id(one), id(other)]
    assert [each[0].item() for each in parts] == [2.0, 3.0, 2.0]
    nothing = torch.full((2,), float("nan"))
    assert len(different(torch, [one, one], [nothing, nothing])[0]) == 2

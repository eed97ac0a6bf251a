"""Numbers of devices are judged element by element, by tiles, and as a whole."""

import pytest

pytestmark = pytest.mark.torch

FORM = "BFLOAT16"


@pytest.fixture
def judging():
    from optrove.portable import device_judging

    return device_judging


@pytest.fixture
def product():
    """The exact product of two matrices, that of a kernel, and a function that computes again."""
    import torch

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(96, 96, generator=generator).bfloat16().float() for _ in range(2))
    exact = left @ right
    computed = (left * (1 + 2e-4)) @ right
    return exact, computed.bfloat16().float(), lambda change: change(left) @ change(right)


@pytest.fixture(params=["model", "moves"])
def expected(request, judging, product):
    exact, computed, again = product
    if request.param == "model":
        return judging.by_model(exact, computed, compared=True, sums=True)
    return judging.by_moves(exact, again, "ttnn.matmul", "HiFi4")


def test_a_right_result_passes(judging, product, expected):
    exact, computed, _ = product
    assert judging.faults(computed, expected, FORM) == []
    assert judging.faults(exact.bfloat16(), expected, FORM) == []


def test_one_element_is_found_in_its_tile(judging, product, expected):
    _, computed, _ = product
    computed[70, 40] = 60.0
    (fault,) = judging.faults(computed, expected, FORM)
    assert fault.startswith("tile (2, 1): element (70, 40) is 60, expected ")
    assert fault.endswith("; wrong: 1 of 9,216 elements, 1 of 9 tiles")


def test_a_factor_and_an_offset_are_found(judging, product, expected):
    _, computed, _ = product
    (factor,) = judging.faults(computed * 1.05, expected, FORM)
    assert "times the expected" in factor or "wrong: " in factor
    (offset,) = judging.faults(computed + 0.4, expected, FORM)
    assert "0.4" in offset or "wrong: " in offset


def test_one_tile_that_is_off_as_a_whole_is_found(judging, product):
    exact, computed, _ = product
    expected = judging.by_model(exact, computed, compared=True, sums=True)
    computed = computed.clone()
    computed[32:64, 64:] += 0.04
    assert judging.faults(computed, expected, FORM)[0].startswith("tile (1, 2): its numbers differ")


def test_infinities_and_nan(judging):
    import torch

    exact = torch.tensor([1.0, float("inf"), 3.4e38, float("nan"), 2.0**-130])
    expected = judging.by_rounding(exact, 4)
    good = torch.tensor([1.0, float("inf"), float("inf"), 7.0, 0.0])
    assert judging.faults(good, expected, FORM) == []
    for place, value in ((0, float("inf")), (1, float("nan")), (1, -float("inf")), (2, 1.0)):
        wrong = good.clone()
        wrong[place] = value
        assert judging.faults(wrong, expected, FORM), (place, value)


def test_numbers_of_a_block_have_the_step_of_the_largest(judging):
    import torch

    row = torch.tensor([64.0] + 15 * [0.5] + 16 * [0.5])
    steps = judging.step(row, "BFLOAT8_B")
    assert steps[:16].unique().tolist() == [1.0]
    assert steps[16:].unique().tolist() == [2.0**-7]
    row[20] = float("nan")
    assert judging.step(row, "BFLOAT8_B")[16:].isinf().all()


def test_a_result_depends_on_flushed_numbers_nowhere_else(judging):
    import torch

    value = torch.tensor([2.0**-130, 1.0])
    again = lambda change: (change(value) == 0).float()  # noqa: E731 - a golden function
    expected = judging.by_rounding(again(lambda x: x), 4)
    found = torch.tensor([1.0, 1.0])
    opened = judging.without_flushed(expected, again)
    assert "tile (0, 0): element (1,) is 1" in judging.faults(found, opened, FORM)[0]
    assert judging.faults(torch.tensor([1.0, 0.0]), opened, FORM) == []


def test_tiles_of_several_matrices_have_their_number(judging):
    assert judging.tile_name(3, (2, 2)) == "tile (1, 1)"
    assert judging.tile_name(6, (2, 2)) == "tile (1, 1, 0)"


def test_scalars_and_empty_tensors_are_judged(judging):
    import torch

    one = torch.tensor(2.0)
    assert judging.faults(one, judging.by_rounding(one, 4), FORM) == []
    assert judging.faults(torch.tensor(3.0), judging.by_rounding(one, 4), FORM)
    none = torch.empty(0, 4)
    assert judging.faults(none, judging.by_rounding(none, 4), FORM) == []

import pytest
import torch

from optrove.frameworks.input_values import MASKED, TorchInputs
from optrove.model.values import Int, List, NumpyPlacement, TensorSpec, TorchPlacement

pytestmark = pytest.mark.torch


def spec(*shape, dtype="ttnn.bfloat16"):
    return TensorSpec(shape, dtype, NumpyPlacement(()))


def drawn(name, shape, seed=0, *, integers=False, **arguments):
    return TorchInputs(torch, arguments, seed).drawn(shape, name, integers=integers)


def test_numbers_are_the_same_for_the_same_seed_only():
    one, same, other = (drawn("x", (4, 4), seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_pages_exist_and_are_not_used_twice():
    pages = drawn("page_table", (4, 16), integers=True, cache=spec(64, 1, 32, 576))
    assert pages.unique().numel() == 64
    assert (pages.min(), pages.max()) == (0, 63)


def test_more_places_than_pages_use_every_page():
    pages = drawn("page_table", (4, 16), integers=True, cache_tensor=spec(8, 1, 32, 576))
    assert pages.unique().tolist() == list(range(8))


@pytest.mark.parametrize("name", ["update_idxs", "update_idxs_tensor", "cur_pos", "cur_pos_tensor"])
def test_positions_lie_within_the_cache(name):
    found = drawn(name, (1000,), integers=True, cache=spec(8, 1, 128, 64))
    assert 0 <= found.min() <= found.max() < 128
    assert found.max() > 64


def test_indices_lie_within_the_rows_of_a_table():
    found = drawn("indices", (1000,), integers=True, weight=spec(50, 64))
    assert 0 <= found.min() <= found.max() < 50


def test_whole_numbers_without_a_role_lie_within_the_rows_of_a_table_too():
    found = drawn("input_tensor", (1000,), integers=True, weight=spec(50, 64))
    assert 0 <= found.min() <= found.max() < 50


def test_indices_lie_within_the_dimension_that_is_named():
    found = drawn("index", (1000,), integers=True, input=spec(7, 64), dim=Int(0))
    assert 0 <= found.min() <= found.max() < 7


def test_whole_numbers_of_which_nothing_is_known_stay_small():
    assert drawn("whatever", (1000,), integers=True).max() < 8
    found = drawn("whatever", (1000,), integers=True, others=List((spec(3, 64), spec(5))))
    assert found.max() < 3


def test_masks_hide_what_comes_later():
    mask = drawn("attn_mask", (1, 1, 4, 4))
    assert mask.diagonal(dim1=-2, dim2=-1).abs().max() == 0
    assert (mask[0, 0, 0, 1:] == MASKED).all()
    assert (mask[0, 0, 3] == 0).all()


def test_rope_tables_are_cosines_and_sines_of_the_same_angles():
    one, other = drawn("cos_cache", (1, 1, 32, 64)), drawn("sin_cache", (1, 1, 32, 64))
    assert torch.allclose(one**2 + other**2, torch.ones(1, 1, 32, 64))


def test_the_rotation_swaps_pairs():
    matrix = drawn("trans_mat", (1, 1, 4, 4))
    row = torch.tensor([1.0, 2.0, 3.0, 4.0]) @ matrix
    assert row.flatten().tolist() == [-2.0, 1.0, -4.0, 3.0]


def test_each_user_has_angles_and_a_rotation_of_its_own():
    by_user = drawn("cos_cache", (1, 8, 1, 64))
    assert torch.equal(by_user[:, :, 0], drawn("cos_cache", (1, 1, 8, 64))[0])
    matrices = drawn("trans_mat", (1, 1, 96, 32)).reshape(3, 32, 32)
    assert torch.equal(matrices, drawn("trans_mat", (1, 1, 32, 32))[0].expand(3, 32, 32))
    assert drawn("trans_mat", (1, 1, 5, 3)).count_nonzero() == 2


def test_variances_are_positive():
    assert drawn("running_var", (1000,)).min() > 0


def test_views_of_one_storage_share_it_again():
    def torch_spec(identity, shape, strides, offset):
        placement = TorchPlacement(strides, "strided", "cpu", requires_grad=False, offset=offset)
        return TensorSpec(shape, "torch.float32", placement, identity, 0)

    whole = torch_spec(0, (4, 4), (4, 1), 0)
    part = torch_spec(1, (2, 4), (8, 1), 4)
    inputs = TorchInputs(torch, {"a": whole, "b": part}, 0)
    one, other = inputs.make(whole, "a"), inputs.make(part, "b")
    one.zero_()
    assert other.abs().max() == 0
    assert other.stride() == (8, 1)
    assert inputs.make(whole, "a") is one

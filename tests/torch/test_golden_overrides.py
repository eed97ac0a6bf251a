"""What ops without a golden function compute, stated in torch, against plain loops."""

import pytest
import torch

from optrove.frameworks.ttnn.shadow.golden import golden_override

pytestmark = pytest.mark.torch

HEADS, GROUPS, SIZE = 4, 2, 64
TABLE = torch.tensor([[5, 1, 3], [0, 4, -1]], dtype=torch.int32)


def op(name):
    return golden_override(f"ttnn.experimental.{name}")


@pytest.fixture
def random():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator)


def test_fused_columns_are_queries_then_keys_then_values(random):
    fused = random(2, 1, 32, (HEADS + 2 * GROUPS) * SIZE)
    query, key, value = op("nlp_create_qkv_heads")(fused, num_heads=HEADS, num_kv_heads=GROUPS)
    assert torch.equal(query[1, 3, 7], fused[1, 0, 7, 3 * SIZE : 4 * SIZE])
    assert torch.equal(key[1, 1, :, 7], fused[1, 0, 7, 5 * SIZE : 6 * SIZE])
    assert torch.equal(value[1, 1, 7], fused[1, 0, 7, 7 * SIZE :])
    plain = op("nlp_create_qkv_heads")(
        fused[..., : HEADS * SIZE],
        fused[..., HEADS * SIZE :],
        num_heads=HEADS,
        num_kv_heads=GROUPS,
        transpose_k_heads=False,
        memory_config="anywhere",
    )
    assert torch.equal(plain[0], query)
    assert torch.equal(plain[1], key.transpose(-2, -1))


def test_heads_of_prompts_come_together_as_they_were_parted(random):
    fused = random(2, 1, 32, 3 * HEADS * SIZE)
    query, *_ = op("nlp_create_qkv_heads")(fused, num_heads=HEADS)
    assert torch.equal(op("nlp_concat_heads")(query), fused[..., : HEADS * SIZE])


def test_heads_of_users_come_together_in_a_tile_of_users(random):
    fused = random(1, 1, 3, (HEADS + 2 * GROUPS) * SIZE)
    parts = op("nlp_create_qkv_heads_decode")(fused, num_heads=HEADS, num_kv_heads=GROUPS)
    assert [tuple(part.shape) for part in parts] == [(1, 3, 4, 64), (1, 3, 2, 64), (1, 3, 2, 64)]
    joined = op("nlp_concat_heads_decode")(parts[0], num_heads=HEADS)
    assert joined.shape == (1, 1, 32, HEADS * SIZE)
    assert torch.equal(joined[:, :, :3], fused[..., : HEADS * SIZE])
    assert not joined[:, :, 3:].any()


def swapping():
    matrix = torch.zeros(32, 32)
    even = torch.arange(0, 32, 2)
    matrix[even, even + 1], matrix[even + 1, even] = 1, -1
    return matrix


def turned(heads, angles):
    """Each pair as a complex number, turned by its angle."""
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def test_a_prompt_is_turned_by_its_places(random):
    heads, angles = random(1, HEADS, 32, SIZE), random(1, 1, 64, SIZE // 2)
    wide = angles.repeat_interleave(2, dim=-1)
    rotated = op("rotary_embedding_llama")(heads, wide.cos(), wide.sin(), swapping()[None, None])
    assert torch.allclose(rotated, turned(heads, angles[:, :, :32]), atol=1e-6)


def test_each_user_is_turned_by_its_own_place_and_matrix(random):
    heads, angles = random(1, 3, HEADS, SIZE), random(1, 3, 1, SIZE // 2)
    wide = angles.repeat_interleave(2, dim=-1)
    matrices = torch.cat([swapping(), swapping(), torch.zeros(32, 32)])[None, None]
    rotated = op("rotary_embedding_llama")(
        heads, wide.cos(), wide.sin(), matrices, is_decode_mode=True
    )
    assert torch.allclose(rotated[:, :2], turned(heads, angles)[:, :2], atol=1e-6)
    assert torch.allclose(rotated[:, 2], (heads * wide.cos())[:, 2])


def test_prompts_fill_the_pages_of_their_users(random):
    cache, prompt = random(6, GROUPS, 32, SIZE), random(1, GROUPS, 96, SIZE)
    before = cache.clone()
    filled = op("paged_fill_cache")(cache, prompt, TABLE, batch_idx=0, mesh_coords=None)
    for place, page in enumerate((5, 1, 3)):
        assert torch.equal(filled[page], prompt[0, :, place * 32 : place * 32 + 32])
    assert torch.equal(filled[[0, 2, 4]], cache[[0, 2, 4]])
    assert torch.equal(cache, before)
    other = op("paged_fill_cache")(cache, prompt, TABLE, batch_idx_tensor=torch.tensor([1]))
    assert torch.equal(other[4], prompt[0, :, 32:64])
    assert torch.equal(other[[1, 2, 3, 5]], cache[[1, 2, 3, 5]])


def test_tokens_are_written_at_the_positions_of_their_users(random):
    cache, tokens = random(6, GROUPS, 32, SIZE), random(1, 2, GROUPS, SIZE)
    where = torch.tensor([40, 31])
    updated = op("paged_update_cache")(
        cache, tokens, update_idxs_tensor=where, page_table=TABLE, share_cache=None
    )
    assert torch.equal(updated[1, :, 8], tokens[0, 0])
    assert torch.equal(updated[0, :, 31], tokens[0, 1])
    assert (updated != cache).any(dim=-1).sum() == 2 * GROUPS
    both = op("paged_fused_update_cache")(
        cache, tokens, cache, tokens, update_idxs=[40, -1], page_table=TABLE
    )
    for one in both:
        assert (one != cache).any(dim=-1).sum() == GROUPS


def test_without_pages_each_user_has_a_row_of_the_cache(random):
    cache, tokens = random(2, GROUPS, 64, SIZE), random(1, 2, GROUPS, SIZE)
    updated = op("paged_update_cache")(cache, tokens, update_idxs=[3, 63])
    assert torch.equal(updated[0, :, 3], tokens[0, 0])
    assert torch.equal(updated[1, :, 63], tokens[0, 1])


def test_a_reshape_with_a_padded_shape_keeps_the_rows_inside(random):
    rows, reshape = random(1, 1, 32, 64), golden_override("ttnn.reshape")
    assert torch.equal(reshape(rows, (1, 1, 4, 64), (1, 1, 32, 64)), rows[:, :, :4])
    assert torch.equal(
        reshape(rows, logical_shape=(1, 1, 4, 64), padded_shape=(1, 1, 32, 64)), rows[:, :, :4]
    )
    few = rows[:, :, :4]
    assert torch.equal(reshape(few, (1, 1, 4, 64), (1, 1, 32, 64)), few)
    assert torch.equal(reshape(rows, [32, -1], memory_config="anywhere"), rows[0, 0])
    with pytest.raises(RuntimeError, match="invalid for input"):
        reshape(few, (1, 1, 8, 32), (1, 1, 32, 32))


def test_an_option_that_is_not_known_is_not_guessed(random):
    fused = random(1, 1, 3, (HEADS + 2 * GROUPS) * SIZE)
    with pytest.raises(TypeError, match="slice_size"):
        op("nlp_create_qkv_heads_decode")(fused, num_heads=HEADS, slice_size=8)
    with pytest.raises(ValueError, match="not 5 heads"):
        op("nlp_create_qkv_heads_decode")(fused, num_heads=3, num_kv_heads=1)
    with pytest.raises(ValueError, match="none at 2"):
        op("paged_fill_cache")(random(6, 2, 32, 64), random(1, 2, 32, 64), TABLE, batch_idx=2)
    with pytest.raises(ValueError, match="no position -2"):
        op("paged_update_cache")(random(2, 2, 64, 64), random(1, 2, 2, 64), update_idxs=[-2, 0])
    assert golden_override("ttnn.add") is None

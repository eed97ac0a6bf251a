"""Ops that depend on a chip's place in a line, against what they should do to the whole."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention, silu

from optrove.frameworks.ttnn.ops import OPS
from optrove.frameworks.ttnn.shadow.golden_overrides import after_product, multiplied, norm_of_sums

pytestmark = pytest.mark.torch

PREFILL = "ttnn.experimental.deepseek_prefill"


def attention(q, k, v, *joint, is_causal=False, logical_n=None, **_):
    keys, values = (whole[:, :, :logical_n] for whole in (k, v))
    count = q.shape[2]
    if joint[0] is not None:
        q, keys, values = (
            torch.cat([a, b], 2) for a, b in zip((q, keys, values), joint, strict=True)
        )
    output = scaled_dot_product_attention(q, keys, values, is_causal=is_causal)
    return output[:, :, :count], output[:, :, count:], None


@pytest.mark.parametrize("balanced", [False, True])
def test_ring_attention_attends_to_the_keys_of_all_chips(balanced):
    q, k, v = torch.randn(3, 1, 2, 64, 32)
    expected = scaled_dot_product_attention(q, k, v, is_causal=True)
    order = [0, 7, 1, 6, 2, 5, 3, 4] if balanced else list(range(8))

    def shard(whole, chip):
        halves = whole.chunk(8, 2)
        return torch.cat([halves[i] for i in order[2 * chip : 2 * chip + 2]], 2)

    names = ("input_tensor_q", "input_tensor_k", "input_tensor_v")
    line = [
        {
            **{name: shard(whole, chip) for name, whole in zip(names, (q, k, v), strict=True)},
            "is_causal": True,
            "is_balanced": balanced,
        }
        for chip in range(4)
    ]
    op = "ttnn.transformer.ring_joint_scaled_dot_product_attention"
    for chip, (output, _, _) in enumerate(OPS[op].line_golden(line, attention)):
        assert torch.allclose(output, shard(expected, chip), atol=1e-5)
    with pytest.raises(ValueError, match="kv_actual_isl"):
        OPS[op].line_golden([{**chip, "kv_actual_isl": 32} for chip in line], attention)


def written(tokens, chunk, chips=2, room=256):
    """Return the caches of chips after chunks of so many real tokens, and where each should be."""
    cache = [torch.zeros(4, 1, room, 1) for _ in range(chips)]
    before = 0
    for count in tokens:
        numbers = torch.arange(before, before + chunk * chips) + 1.0
        numbers[count:] = -1
        # A chip's rows hold the tokens that belong to it, counted by whole chunks.
        shards = [[] for _ in range(chips)]
        for token, number in enumerate(numbers, before):
            shards[token // chunk % chips].append(number)
        line = [
            {
                "cache": cache[chip],
                "input": torch.tensor(shards[chip])[None, None, :, None],
                "slot_idx": torch.tensor([1]),
                "layer_idx": 1,
                "num_layers": 2,
                "kv_actual_global": before,
            }
            for chip in range(chips)
        ]
        cache = OPS[f"{PREFILL}.update_padded_kv_cache"].line_golden(line, None)
        before += count
    return cache, before


def test_chunks_are_written_behind_the_tokens_before_and_padding_is_overwritten():
    chunk = 64
    cache, total = written([96, 64, 128], chunk)
    for token in range(total):
        chip, row = token // chunk % 2, token // (2 * chunk) * chunk + token % chunk
        assert cache[chip][3, 0, row, 0] == token + 1
    assert not any(part[:3].any() for part in cache)


def test_padding_is_cleared_up_to_a_whole_block():
    line = [
        {
            "cache": torch.ones(2, 1, 128, 1),
            "slot_idx": 0,
            "layer_idx": 1,
            "num_layers": 2,
            "valid_global": 150,
            "chunk_size_global": 128,
            "pad_align": 64,
        }
        for _ in range(2)
    ]
    first, second = OPS[f"{PREFILL}.zero_padded_kv_cache"].line_golden(line, None)
    assert second.all()
    assert (first[1, 0, 64 + 22 :] == 0).all()
    assert first[1, 0, : 64 + 22].all()
    assert first[0].all()


def test_norms_of_rows_on_several_chips():
    rows, weight = torch.randn(1, 1, 32, 256), torch.randn(256)
    line = [
        {"input_tensor": part, "weight": factors, "epsilon": 1e-6, "num_heads_per_device": 2}
        for part, factors in zip(rows.chunk(2, -1), weight.chunk(2), strict=True)
    ]
    norm = torch.nn.functional.rms_norm(rows, (256,), weight, 1e-6)
    answers = OPS["ttnn.experimental.dit_fused_distributed_rmsnorm"].line_golden(line, None)
    heads = torch.cat(answers, 1).transpose(1, 2).flatten(2)
    assert torch.allclose(heads[0], norm[0, 0], atol=1e-5)


def test_products_with_what_is_fused_with_them():
    numbers, weight, bias = torch.randn(32, 64), torch.randn(64, 128), torch.randn(1, 128)
    product = numbers @ weight + bias
    assert torch.equal(multiplied(numbers, weight, bias), product)
    assert torch.allclose(
        multiplied([numbers[:, :32], numbers[:, 32:]], weight, bias), product, atol=1e-4
    )
    gates, up = product.unflatten(-1, (2, 2, 32)).unbind(-2)
    expected = (silu(gates) * up).flatten(-2)
    assert torch.equal(after_product(product, {"fuse_swiglu": True}), expected)
    assert [part.shape[-1] for part in after_product(product, {"chunks": 4})] == [32] * 4
    line = [{"input_tensor": part, "weight_tensor": weight} for part in numbers.chunk(2, -1)]
    op = "ttnn.experimental.all_gather_minimal_matmul_async"
    for answer in OPS[op].line_golden(line, None):
        assert torch.allclose(answer, numbers @ weight, atol=1e-4)


def test_layer_norm_from_sums():
    rows = torch.randn(1, 1, 32, 64)
    stats = torch.zeros(1, 1, 32, 64)
    stats[..., 0], stats[..., 32] = rows.sum(-1), (rows**2).sum(-1)
    expected = torch.nn.functional.layer_norm(rows, (64,), eps=1e-5)
    assert torch.allclose(norm_of_sums(rows, stats), expected, atol=1e-4)

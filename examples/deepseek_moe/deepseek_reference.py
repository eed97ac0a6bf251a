"""The small DeepSeek in torch, float32, to compare with: whole sequences, no cache, no latents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from deepseek_weights import DeepSeekConfig, StateDict, part, rope_tables
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np


def logits(tokens: np.ndarray, config: DeepSeekConfig, weights: StateDict) -> Any:
    """Return the logits after each token of one sequence: [token, vocabulary]."""
    hidden = torch.from_numpy(weights["model.embed_tokens.weight"])[torch.from_numpy(tokens)]
    for number in range(config.num_hidden_layers):
        layer = part(weights, f"model.layers.{number}")
        normed = _norm(hidden, config, layer["input_layernorm.weight"])
        hidden = hidden + _attention(normed, config, part(layer, "self_attn"))
        normed = _norm(hidden, config, layer["post_attention_layernorm.weight"])
        is_dense = number < config.first_k_dense_replace
        mlp = part(layer, "mlp")
        hidden = hidden + (_mlp(normed, mlp) if is_dense else _mixture(normed, config, mlp))
    return _linear(_norm(hidden, config, weights["model.norm.weight"]), weights["lm_head.weight"])


def pcc(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the Pearson correlation of two tensors of one shape."""
    if expected.shape != actual.shape:
        raise ValueError(f"shapes differ: {tuple(expected.shape)} and {tuple(actual.shape)}")
    pair = torch.stack([expected.flatten().double(), actual.flatten().double()])
    return float(torch.corrcoef(pair)[0, 1])


def _attention(hidden: torch.Tensor, config: DeepSeekConfig, weights: StateDict) -> Any:
    heads, nope, rope = (
        config.num_attention_heads,
        config.qk_nope_head_dim,
        config.qk_rope_head_dim,
    )

    def by_head(rows: torch.Tensor) -> torch.Tensor:
        return rows.unflatten(-1, (heads, -1)).transpose(0, 1)

    low = _linear(hidden, weights["q_a_proj.weight"])
    low = _norm(low, config, weights["q_a_layernorm.weight"])
    query = by_head(_linear(low, weights["q_b_proj.weight"]))
    both = _linear(hidden, weights["kv_a_proj_with_mqa.weight"])
    latent, key_rope = both.split([config.kv_lora_rank, rope], dim=-1)
    latent = _norm(latent, config, weights["kv_a_layernorm.weight"])
    expanded = by_head(_linear(latent, weights["kv_b_proj.weight"]))
    key_nope, value = expanded.split([nope, config.v_head_dim], dim=-1)
    query = torch.cat([query[..., :nope], _turned(query[..., nope:], config)], dim=-1)
    turned = _turned(key_rope[None], config).expand(heads, -1, -1)
    context = functional.scaled_dot_product_attention(
        query, torch.cat([key_nope, turned], dim=-1), value, is_causal=True
    )
    return _linear(context.transpose(0, 1).flatten(1), weights["o_proj.weight"])


def _turned(heads: torch.Tensor, config: DeepSeekConfig) -> torch.Tensor:
    """Turn each pair of numbers by the angle of its position, as a complex number."""
    cosines, sines = (
        torch.from_numpy(table[: heads.shape[1], ::2].copy()) for table in rope_tables(config)
    )
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.complex(cosines, sines)).flatten(-2)


def _mixture(hidden: torch.Tensor, config: DeepSeekConfig, weights: StateDict) -> Any:
    chosen, shares = _chosen(hidden, config, part(weights, "gate"))
    total = _mlp(hidden, weights, "shared_experts.")
    for expert in range(config.n_routed_experts):
        share = torch.where(chosen == expert, shares, 0.0).sum(-1, keepdim=True)
        total = total + share * _mlp(hidden, weights, f"experts.{expert}.")
    return total


def _chosen(
    hidden: torch.Tensor, config: DeepSeekConfig, weights: StateDict
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts of each token and their shares."""
    scores = _linear(hidden, weights["weight"]).sigmoid()
    corrected = scores + torch.from_numpy(weights["e_score_correction_bias"])
    grouped = corrected.unflatten(-1, (config.n_group, -1))
    groups = grouped.topk(2).values.sum(-1).topk(config.topk_group).indices
    is_open = torch.zeros(grouped.shape[:2]).scatter(1, groups, 1.0)
    experts = (grouped * is_open[..., None]).flatten(1).topk(config.num_experts_per_tok).indices
    shares = scores.gather(1, experts)
    return experts, shares / shares.sum(-1, keepdim=True) * config.routed_scaling_factor


def _mlp(hidden: torch.Tensor, weights: StateDict, name: str = "") -> Any:
    gate, up = (_linear(hidden, weights[f"{name}{each}_proj.weight"]) for each in ("gate", "up"))
    return _linear(functional.silu(gate) * up, weights[f"{name}down_proj.weight"])


def _linear(hidden: torch.Tensor, matrix: np.ndarray) -> Any:
    return functional.linear(hidden, torch.from_numpy(matrix))


def _norm(hidden: torch.Tensor, config: DeepSeekConfig, scale: np.ndarray) -> Any:
    weight = torch.from_numpy(scale)
    return functional.rms_norm(hidden, hidden.shape[-1:], weight, config.rms_norm_eps)

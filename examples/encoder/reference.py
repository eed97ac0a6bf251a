"""The encoder block in torch, float32, to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from weights import EPSILON, HEADS, HIDDEN, Dense, Weights

if TYPE_CHECKING:
    import numpy as np


def encoder(array: np.ndarray, weights: Weights) -> torch.Tensor:
    """Run the block on a batch of token embeddings."""
    hidden = torch.from_numpy(array)
    batch, sequence, _ = hidden.shape
    fused = _linear(_norm(hidden, weights.attention_norm), weights.qkv)
    query, key, value = (
        part.reshape(batch, sequence, HEADS, HIDDEN // HEADS).transpose(1, 2)
        for part in fused.split(HIDDEN, dim=-1)
    )
    context = functional.scaled_dot_product_attention(query, key, value)
    context = context.transpose(1, 2).reshape(batch, sequence, HIDDEN)
    hidden = hidden + _linear(context, weights.output)
    wide = functional.gelu(_linear(_norm(hidden, weights.mlp_norm), weights.up))
    return hidden + _linear(wide, weights.down)


def pcc(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the Pearson correlation of two tensors of one shape."""
    if expected.shape != actual.shape:
        raise ValueError(f"shapes differ: {tuple(expected.shape)} and {tuple(actual.shape)}")
    pair = torch.stack([expected.flatten().double(), actual.flatten().double()])
    return float(torch.corrcoef(pair)[0, 1])


def _norm(hidden: torch.Tensor, norm: Dense) -> Any:
    scale, shift = (torch.from_numpy(part).squeeze(0) for part in (norm.weight, norm.bias))
    return functional.layer_norm(hidden, (HIDDEN,), scale, shift, EPSILON)


def _linear(hidden: torch.Tensor, dense: Dense) -> Any:
    return hidden @ torch.from_numpy(dense.weight) + torch.from_numpy(dense.bias)

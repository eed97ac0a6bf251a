"""The small Llama in torch, float32, to compare with: whole sequences, no cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from llama_weights import EPSILON, HEAD_SIZE, HEADS, KEY_HEADS, Layer, Weights, rope_tables
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np


def logits(tokens: np.ndarray, weights: Weights) -> torch.Tensor:
    """Return the logits after each token of one sequence: [token, vocabulary]."""
    hidden = torch.from_numpy(weights.embedding)[torch.from_numpy(tokens)]
    for layer in weights.layers:
        hidden = hidden + _attention(_norm(hidden, layer.attention_norm), layer)
        hidden = hidden + _mlp(_norm(hidden, layer.mlp_norm), layer)
    return _norm(hidden, weights.norm) @ torch.from_numpy(weights.head)


def pcc(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the Pearson correlation of two tensors of one shape."""
    if expected.shape != actual.shape:
        raise ValueError(f"shapes differ: {tuple(expected.shape)} and {tuple(actual.shape)}")
    pair = torch.stack([expected.flatten().double(), actual.flatten().double()])
    return float(torch.corrcoef(pair)[0, 1])


def _attention(hidden: torch.Tensor, layer: Layer) -> Any:
    query, key, value = (
        (hidden @ torch.from_numpy(matrix)).unflatten(-1, (-1, HEAD_SIZE)).transpose(0, 1)
        for matrix in (layer.query, layer.key, layer.value)
    )
    key, value = (part.repeat_interleave(HEADS // KEY_HEADS, dim=0) for part in (key, value))
    context = functional.scaled_dot_product_attention(
        _turned(query), _turned(key), value, is_causal=True
    )
    return context.transpose(0, 1).flatten(1) @ torch.from_numpy(layer.output)


def _turned(heads: torch.Tensor) -> torch.Tensor:
    """Turn each pair of numbers by the angle of its position, as a complex number."""
    cosines, sines = (torch.from_numpy(table[: heads.shape[1], ::2]) for table in rope_tables())
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.complex(cosines, sines)).flatten(-2)


def _mlp(hidden: torch.Tensor, layer: Layer) -> Any:
    gate, up, down = (torch.from_numpy(part) for part in (layer.gate, layer.up, layer.down))
    return (functional.silu(hidden @ gate) * (hidden @ up)) @ down


def _norm(hidden: torch.Tensor, scale: np.ndarray) -> Any:
    return functional.rms_norm(hidden, hidden.shape[-1:], torch.from_numpy(scale), EPSILON)

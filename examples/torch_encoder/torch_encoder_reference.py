"""The classifier in numpy, float64, to compare with; torch's part in it is the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]

EPSILON = 1e-5


def classify(weights: Arrays, tokens: np.ndarray, mask: np.ndarray, heads: int) -> np.ndarray:
    """Return the logits of each text, from the weights by their names in the model."""
    hidden = weights["tokens.weight"][tokens] + weights["places.weight"][: tokens.shape[1]]
    for name in sorted({key.split(".")[1] for key in weights if key.startswith("blocks.")}):
        block = _part(weights, f"blocks.{name}.")
        normed = _norm(hidden, _part(block, "attention_norm."))
        hidden = hidden + _attention(normed, mask, _part(block, "attention."), heads)
        normed = _norm(hidden, _part(block, "mlp_norm."))
        hidden = hidden + _linear(_gelu(_linear(normed, block, "up")), block, "down")
    seen = mask[..., None].astype(hidden.dtype)
    mean = (_norm(hidden, _part(weights, "norm.")) * seen).sum(axis=1) / seen.sum(axis=1)
    return _linear(mean, weights, "head")


def pcc(expected: np.ndarray, actual: np.ndarray) -> float:
    """Return the Pearson correlation of two arrays of one shape."""
    if expected.shape != actual.shape:
        raise ValueError(f"shapes differ: {expected.shape} and {actual.shape}")
    return float(np.corrcoef(expected.ravel(), actual.ravel())[0, 1])


def _part(weights: Arrays, prefix: str) -> dict[str, np.ndarray]:
    return {
        name.removeprefix(prefix): array
        for name, array in weights.items()
        if name.startswith(prefix)
    }


def _attention(hidden: np.ndarray, mask: np.ndarray, weights: Arrays, heads: int) -> np.ndarray:
    batch, sequence, width = hidden.shape
    fused = _linear(hidden, weights, "qkv").reshape(batch, sequence, 3, heads, width // heads)
    query, key, value = fused.transpose(2, 0, 3, 1, 4)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(width // heads)
    scores = np.where(mask[:, None, None, :], scores, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    context = powers / powers.sum(axis=-1, keepdims=True) @ value
    return _linear(context.swapaxes(1, 2).reshape(batch, sequence, width), weights, "output")


def _linear(hidden: np.ndarray, weights: Arrays, name: str) -> np.ndarray:
    return hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def _norm(hidden: np.ndarray, weights: Arrays) -> np.ndarray:
    apart = hidden - hidden.mean(axis=-1, keepdims=True)
    scaled = apart / np.sqrt((apart**2).mean(axis=-1, keepdims=True) + EPSILON)
    return scaled * weights["weight"] + weights["bias"]


def _gelu(hidden: np.ndarray) -> np.ndarray:
    return hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))

"""Make the weights of the encoder block and its input, from a seed and without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BATCH = 2
SEQUENCE = 128
HIDDEN = 256
HEADS = 8
EXPANSION = 4
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Dense:
    """A matrix and its bias; a layer norm's scale stands in the place of the matrix."""

    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True, slots=True)
class Weights:
    """All parameters of one encoder block, as float32."""

    attention_norm: Dense
    qkv: Dense
    output: Dense
    mlp_norm: Dense
    up: Dense
    down: Dense


def make_weights(seed: int = 0) -> Weights:
    """Return random weights, the same for the same seed."""
    random = np.random.default_rng(seed)

    def norm() -> Dense:
        return Dense(
            _normal(random, 1, HIDDEN, scale=0.1) + 1, _normal(random, 1, HIDDEN, scale=0.1)
        )

    def dense(rows: int, columns: int) -> Dense:
        weight = _normal(random, rows, columns, scale=rows**-0.5)
        return Dense(weight, _normal(random, 1, columns, scale=0.1))

    return Weights(
        attention_norm=norm(),
        qkv=dense(HIDDEN, 3 * HIDDEN),
        output=dense(HIDDEN, HIDDEN),
        mlp_norm=norm(),
        up=dense(HIDDEN, EXPANSION * HIDDEN),
        down=dense(EXPANSION * HIDDEN, HIDDEN),
    )


def make_input(seed: int = 1) -> np.ndarray:
    """Return a random batch of token embeddings, the same for the same seed."""
    return _normal(np.random.default_rng(seed), BATCH, SEQUENCE, HIDDEN, scale=1.0)


def _normal(random: np.random.Generator, *shape: int, scale: float) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)

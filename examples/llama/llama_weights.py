"""Make the weights of a small Llama and its prompts, from a seed and without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LAYERS = 2
HIDDEN = 512
HEADS = 8
KEY_HEADS = 2
HEAD_SIZE = 64
EXPANDED = 1024
VOCABULARY = 1024
EPSILON = 1e-5
ROPE_BASE = 10000.0

PROMPTS = (5, 64, 97, 128)  # the lengths of the prompts, one for each user
USERS = len(PROMPTS)
STEPS = 2  # tokens that follow each prompt
LONGEST = 256  # positions for which there is room
PAGE = 32  # positions in a page of the cache
PAGES_PER_USER = LONGEST // PAGE


@dataclass(frozen=True, slots=True)
class Layer:
    """The parameters of one decoder layer, as float32; matrices are [inputs, outputs]."""

    attention_norm: np.ndarray
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    output: np.ndarray
    mlp_norm: np.ndarray
    gate: np.ndarray
    up: np.ndarray
    down: np.ndarray


@dataclass(frozen=True, slots=True)
class Weights:
    """All parameters of the model, as float32."""

    embedding: np.ndarray
    layers: tuple[Layer, ...]
    norm: np.ndarray
    head: np.ndarray


def make_weights(seed: int = 0) -> Weights:
    """Return random weights, the same for the same seed."""
    random = np.random.default_rng(seed)

    def norm() -> np.ndarray:
        return _normal(random, HIDDEN, scale=0.1) + 1

    def matrix(rows: int, columns: int) -> np.ndarray:
        return _normal(random, rows, columns, scale=rows**-0.5)

    def layer() -> Layer:
        return Layer(
            attention_norm=norm(),
            query=matrix(HIDDEN, HEADS * HEAD_SIZE),
            key=matrix(HIDDEN, KEY_HEADS * HEAD_SIZE),
            value=matrix(HIDDEN, KEY_HEADS * HEAD_SIZE),
            output=matrix(HEADS * HEAD_SIZE, HIDDEN),
            mlp_norm=norm(),
            gate=matrix(HIDDEN, EXPANDED),
            up=matrix(HIDDEN, EXPANDED),
            down=matrix(EXPANDED, HIDDEN),
        )

    return Weights(
        embedding=_normal(random, VOCABULARY, HIDDEN, scale=1.0),
        layers=tuple(layer() for _ in range(LAYERS)),
        norm=norm(),
        head=matrix(HIDDEN, VOCABULARY),
    )


def make_tokens(seed: int = 1) -> tuple[np.ndarray, ...]:
    """Return the text of each user: a prompt and the tokens that follow it."""
    random = np.random.default_rng(seed)
    return tuple(random.integers(0, VOCABULARY, length + STEPS) for length in PROMPTS)


def make_page_table(seed: int = 2) -> np.ndarray:
    """Return which pages of the cache each user has; they are scattered, as in a server."""
    pages = np.random.default_rng(seed).permutation(USERS * PAGES_PER_USER)
    return pages.reshape(USERS, PAGES_PER_USER).astype(np.int32)


def rope_tables() -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines by position; both numbers of a pair have the same angle."""
    rates = ROPE_BASE ** (-np.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    angles = np.repeat(np.outer(np.arange(LONGEST), rates), 2, axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _normal(random: np.random.Generator, *shape: int, scale: float) -> np.ndarray:
    return (random.standard_normal(shape) * scale).astype(np.float32)

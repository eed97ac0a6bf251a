"""Make the weights of a small DeepSeek and its prompts, from a seed and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

StateDict = Mapping[str, np.ndarray]

MESH = (4, 8)  # rows of chips serve different users, the chips of a row share their work
PLACES = 32  # for how many users each row of chips has a place
TAKEN = (0, 5)  # the places that are taken; a server has empty ones too
LENGTHS = ((5, 32, 17, 30), (9, 24, 31, 12))  # of prompts, by taken place and by row of chips
STEPS = 2  # tokens that follow each prompt
LONGEST = 64  # positions for which there is room
PAGE = 32  # positions in a page of the cache
PAGES_PER_USER = LONGEST // PAGE
DECISIVE = 2.0  # the logits of the experts that a word is for; those of others are near zero


@dataclass(frozen=True, slots=True)
class DeepSeekConfig:
    """The sizes of the model, by the names that they have in Hugging Face's configuration."""

    hidden_size: int = 512
    num_hidden_layers: int = 3
    first_k_dense_replace: int = 1
    num_attention_heads: int = 16
    q_lora_rank: int = 128
    kv_lora_rank: int = 64
    qk_nope_head_dim: int = 32
    qk_rope_head_dim: int = 32
    v_head_dim: int = 32
    intermediate_size: int = 512
    moe_intermediate_size: int = 64
    n_routed_experts: int = 64
    n_shared_experts: int = 4
    num_experts_per_tok: int = 4
    n_group: int = 4
    topk_group: int = 2
    routed_scaling_factor: float = 2.5
    vocab_size: int = 256
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0


def make_state_dict(config: DeepSeekConfig, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random weights, the same for the same seed; matrices are [outputs, inputs]."""
    random = np.random.default_rng(seed)
    table = _normal(random, config.vocab_size, config.hidden_size)
    return {
        "model.embed_tokens.weight": table,
        **{
            f"model.layers.{number}.{name}": array
            for number in range(config.num_hidden_layers)
            for name, array in _layer(config, random, number, table).items()
        },
        "model.norm.weight": _norm(random, config.hidden_size),
        "lm_head.weight": _matrix(random, config.vocab_size, config.hidden_size),
    }


def part(state_dict: StateDict, prefix: str) -> dict[str, np.ndarray]:
    """Return the weights of one module, by their names within it."""
    begin = f"{prefix}."
    return {
        name.removeprefix(begin): array
        for name, array in state_dict.items()
        if name.startswith(begin)
    }


def make_tokens(config: DeepSeekConfig, seed: int = 1) -> list[list[np.ndarray]]:
    """Return the text of each user by slot and row: a prompt and the tokens after it."""
    random = np.random.default_rng(seed)
    return [
        [random.integers(0, config.vocab_size, length + STEPS) for length in lengths]
        for lengths in LENGTHS
    ]


def make_page_table(seed: int = 2) -> np.ndarray:
    """Return which pages of its row's cache each place has: [row, place, page]."""
    table = np.zeros((MESH[0], PLACES, PAGES_PER_USER), np.int32)
    for row in table:
        pages = np.random.default_rng(seed).permutation(len(TAKEN) * PAGES_PER_USER)
        row[list(TAKEN)] = pages.reshape(len(TAKEN), PAGES_PER_USER)
    return table


def rope_tables(config: DeepSeekConfig) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines by position; both numbers of a pair have the same angle."""
    size = config.qk_rope_head_dim
    rates = config.rope_theta ** (-np.arange(0, size, 2) / size)
    angles = np.repeat(np.outer(np.arange(LONGEST), rates), 2, axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _layer(
    config: DeepSeekConfig, random: np.random.Generator, number: int, table: np.ndarray
) -> dict[str, np.ndarray]:
    hidden, heads = config.hidden_size, config.num_attention_heads
    query = heads * (config.qk_nope_head_dim + config.qk_rope_head_dim)
    latent = config.kv_lora_rank
    is_dense = number < config.first_k_dense_replace
    mlp = _dense(config, random) if is_dense else _moe(config, random, table)
    return {
        "input_layernorm.weight": _norm(random, hidden),
        "self_attn.q_a_proj.weight": _matrix(random, config.q_lora_rank, hidden),
        "self_attn.q_a_layernorm.weight": _norm(random, config.q_lora_rank),
        "self_attn.q_b_proj.weight": _matrix(random, query, config.q_lora_rank),
        "self_attn.kv_a_proj_with_mqa.weight": _matrix(
            random, latent + config.qk_rope_head_dim, hidden
        ),
        "self_attn.kv_a_layernorm.weight": _norm(random, latent),
        "self_attn.kv_b_proj.weight": _matrix(
            random, heads * (config.qk_nope_head_dim + config.v_head_dim), latent
        ),
        "self_attn.o_proj.weight": _residual(config, random, heads * config.v_head_dim),
        "post_attention_layernorm.weight": _norm(random, hidden),
        **{f"mlp.{name}": array for name, array in mlp.items()},
    }


def _dense(config: DeepSeekConfig, random: np.random.Generator) -> dict[str, np.ndarray]:
    return _mlp(config, random, config.intermediate_size)


def _moe(
    config: DeepSeekConfig, random: np.random.Generator, table: np.ndarray
) -> dict[str, np.ndarray]:
    width, experts = config.moe_intermediate_size, config.n_routed_experts
    shared = _mlp(config, random, width * config.n_shared_experts)
    return {
        "gate.weight": _gate(config, random, table),
        "gate.e_score_correction_bias": _normal(random, experts) * np.float32(0.02),
        **{f"shared_experts.{name}": array for name, array in shared.items()},
        **{
            f"experts.{expert}.{name}": array
            for expert in range(experts)
            for name, array in _mlp(config, random, width).items()
        },
    }


def _gate(config: DeepSeekConfig, random: np.random.Generator, table: np.ndarray) -> np.ndarray:
    """Return a gate that knows, as a trained one does, which experts each word is for.

    With a random one, choices would hang on the last bits of scores that are nearly alike.
    """
    groups, size = config.n_group, config.n_routed_experts // config.n_group
    wanted = np.zeros((len(table), groups, size), np.float32)
    for word in wanted:
        for group in random.choice(groups, config.topk_group, replace=False):
            chosen = config.num_experts_per_tok // config.topk_group
            word[group, random.choice(size, chosen, replace=False)] = DECISIVE
    return np.ascontiguousarray((np.linalg.pinv(table) @ wanted.reshape(len(table), -1)).T)


def _mlp(config: DeepSeekConfig, random: np.random.Generator, width: int) -> dict[str, np.ndarray]:
    hidden = config.hidden_size
    return {
        "gate_proj.weight": _matrix(random, width, hidden),
        "up_proj.weight": _matrix(random, width, hidden),
        "down_proj.weight": _residual(config, random, width),
    }


def _norm(random: np.random.Generator, size: int) -> np.ndarray:
    return _normal(random, size) * np.float32(0.1) + np.float32(1)


def _matrix(random: np.random.Generator, outputs: int, inputs: int) -> np.ndarray:
    return _normal(random, outputs, inputs) * np.float32(inputs**-0.5)


def _residual(config: DeepSeekConfig, random: np.random.Generator, inputs: int) -> np.ndarray:
    """Return a matrix whose result is added to the hidden state; there are two in each layer."""
    scale = np.float32((2 * config.num_hidden_layers) ** -0.5)
    return _matrix(random, config.hidden_size, inputs) * scale


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)

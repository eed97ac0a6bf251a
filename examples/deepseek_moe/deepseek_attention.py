"""Latent attention: all heads share one small key for each token, which is all that is kept.

The chips of a row share the heads; each row keeps the tokens of its own users in a paged cache.
The matrices that would expand the latent keys and values are applied to queries and results
instead, so that attention itself works on latent keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import deepseek_placement as place
import numpy as np
import ttnn
from deepseek_weights import PAGE, PAGES_PER_USER, TAKEN

from optrove.runconfig import (
    AllReduceConfig,
    ConcatConfig,
    ConcatHeadsConfig,
    FlashMLAConfig,
    FlashMLADecodeConfig,
    FromWeight,
    LinearConfig,
    Module,
    PagedFillCacheConfig,
    PermuteConfig,
    ReshardConfig,
    RMSNormConfig,
    RotaryEmbeddingConfig,
    Sharding,
    TypecastConfig,
    Weight,
    column_sharded,
    row_sharded,
    save_weights,
    sharded,
)

if TYPE_CHECKING:
    from pathlib import Path

    from deepseek_weights import DeepSeekConfig, StateDict

BY_HEAD = sharded(dim=1)


@dataclass(frozen=True, slots=True)
class Step:
    """What a pass knows besides its tokens: their angles, and where the cache keeps them.

    Prefill has the place of its users; decode has the position of every place.
    """

    angles: tuple[Any, Any]
    rotation: Any
    page_table: Any
    taken: int | None = None
    positions: Any = None


class LatentAttention(Module):
    """Attention of one layer, with its cache."""

    @staticmethod
    def convert_weights(
        hf_config: DeepSeekConfig, state_dict: StateDict, output_path: Path, mesh_device: Any
    ) -> Any:
        """Write the projections; keys and values of each head are expanded apart."""
        heads, nope = hf_config.num_attention_heads, hf_config.qk_nope_head_dim
        first = [state_dict[f"{name}.weight"] for name in ("q_a_proj", "kv_a_proj_with_mqa")]
        expand = state_dict["kv_b_proj.weight"].reshape(1, heads, -1, hf_config.kv_lora_rank)
        keys, values = expand[:, :, :nope], expand[:, :, nope:].transpose(0, 1, 3, 2)

        def matrix(array: np.ndarray, sharding: Sharding) -> dict[str, Weight]:
            return {"input_tensor_b": Weight(np.ascontiguousarray(array), sharding)}

        return save_weights(
            {
                "project": matrix(np.concatenate(first).T, row_sharded()),
                "query_norm": {"weight": place.norm_weight(state_dict["q_a_layernorm.weight"])},
                "query": matrix(state_dict["q_b_proj.weight"].T, column_sharded()),
                "latent_norm": {"weight": place.norm_weight(state_dict["kv_a_layernorm.weight"])},
                "to_latent": matrix(keys, BY_HEAD),
                "from_latent": matrix(values, BY_HEAD),
                "output": matrix(state_dict["o_proj.weight"].T, row_sharded()),
            },
            output_path,
            mesh_device,
        )

    @staticmethod
    def prefill_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of a whole prompt, in DRAM."""
        return {
            **_projections(hf_config, ttnn.DRAM_MEMORY_CONFIG),
            "rope": RotaryEmbeddingConfig(is_decode_mode=False),
            "narrow": TypecastConfig(dtype=ttnn.bfloat8_b),
            "keep": PagedFillCacheConfig(),  # batch_idx is dynamic: the place of the user
            "attend": FlashMLAConfig(
                head_dim_v=hf_config.kv_lora_rank,
                scale=_scale(hf_config),
                is_causal=True,
                program_config=place.attention(place.TILE),
                compute_kernel_config=place.PRECISE,
            ),
        }

    @staticmethod
    def decode_model_config(hf_config: DeepSeekConfig, mesh_device: Any) -> Any:
        """Return the configurations of one token for each place, in L1 and sharded by place."""
        rope, latent = hf_config.qk_rope_head_dim, hf_config.kv_lora_rank
        return {
            **_projections(hf_config, ttnn.L1_MEMORY_CONFIG),
            "rope": RotaryEmbeddingConfig(is_decode_mode=True),
            "shard_rope": ReshardConfig(memory_config=place.by_place(rope)),
            "shard": ReshardConfig(memory_config=place.by_place(latent + rope)),
            "attend": FlashMLADecodeConfig(
                head_dim_v=latent,
                scale=_scale(hf_config),
                program_config=place.attention(0),
                compute_kernel_config=place.PRECISE,
                memory_config=ttnn.DRAM_MEMORY_CONFIG,
            ),
        }

    def __init__(self, hf_config: DeepSeekConfig, mesh_device: Any) -> None:
        """Make an empty cache: each row of chips has pages for its own users."""
        self._config = hf_config
        self._heads = hf_config.num_attention_heads // mesh_device.shape[1]
        width = hf_config.kv_lora_rank + hf_config.qk_rope_head_dim
        self._cache = place.on_mesh(
            np.zeros((len(TAKEN) * PAGES_PER_USER, 1, PAGE, width), np.float32),
            mesh_device,
            ttnn.bfloat8_b,
            layout=ttnn.TILE_LAYOUT,
        )

    def forward(self, x: Any, cfg: Any, mesh_device: Any, step: Step | None = None) -> Any:
        """Return the columns of each chip, from the columns of each chip."""
        assert step is not None
        attend = self._prefill if step.positions is None else self._decode
        heads = ttnn.linear(attend(x, cfg, step), **cfg["from_latent"])
        joined = ttnn.experimental.nlp_concat_heads(heads, **cfg["join_heads"])
        return ttnn.reduce_scatter(ttnn.linear(joined, **cfg["output"]), **cfg["reduce"])

    def _projected(self, x: Any, cfg: Any) -> tuple[Any, Any, Any]:
        """Return queries, normalised latent keys and their part for rope, a row for each token."""
        config = self._config
        query_rank, latent = config.q_lora_rank, config.kv_lora_rank
        fused = ttnn.all_reduce(ttnn.linear(x, **cfg["project"]), **cfg["reduce_projected"])
        low = _columns(fused, 0, query_rank)
        query = ttnn.linear(ttnn.rms_norm(low, **cfg["query_norm"]), **cfg["query"])
        low = _columns(fused, query_rank, query_rank + latent)
        rope = _columns(fused, query_rank + latent, fused.shape[-1])
        return query, ttnn.rms_norm(low, **cfg["latent_norm"]), rope

    def _prefill(self, x: Any, cfg: Any, step: Step) -> Any:
        """Keep the keys of a prompt and attend to it: [1, head, token, latent]."""
        query, latent, key_rope = self._projected(x, cfg)
        query = ttnn.permute(self._split(query), **cfg["swap"])
        nope, query_rope = self._parts(query)
        query_rope, key_rope = (
            ttnn.experimental.rotary_embedding_llama(
                part, *step.angles, step.rotation, **cfg["rope"]
            )
            for part in (query_rope, key_rope)
        )
        query = ttnn.concat([ttnn.linear(nope, **cfg["to_latent"]), query_rope], **cfg["join"])
        key = ttnn.typecast(ttnn.concat([latent, key_rope], **cfg["join"]), **cfg["narrow"])
        ttnn.experimental.paged_fill_cache(
            self._cache, key, step.page_table, batch_idx=step.taken, **cfg["keep"]
        )
        return ttnn.transformer.flash_mla_prefill(query, key, **cfg["attend"])

    def _decode(self, x: Any, cfg: Any, step: Step) -> Any:
        """Keep one key for each place and attend to all before it: [1, head, place, latent]."""
        query, latent, key_rope = self._projected(x, cfg)
        nope, query_rope = self._parts(self._split(query))
        latent, key_rope = (ttnn.permute(part, **cfg["swap"]) for part in (latent, key_rope))
        query_rope, key_rope = (self._turned(part, cfg, step) for part in (query_rope, key_rope))
        nope = ttnn.linear(ttnn.permute(nope, **cfg["swap"]), **cfg["to_latent"])
        nope = ttnn.permute(nope, **cfg["swap"])
        query, key = (
            ttnn.to_memory_config(ttnn.concat([*parts], **cfg["join"]), **cfg["shard"])
            for parts in ((nope, query_rope), (latent, key_rope))
        )
        ttnn.experimental.paged_update_cache(
            self._cache,
            key,
            update_idxs_tensor=step.positions,
            page_table=step.page_table,
        )
        attended = ttnn.transformer.paged_flash_multi_latent_attention_decode(
            query,
            self._cache,
            page_table_tensor=step.page_table,
            cur_pos_tensor=step.positions,
            **cfg["attend"],
        )
        return ttnn.permute(attended, **cfg["swap"])

    def _turned(self, part: Any, cfg: Any, step: Step) -> Any:
        part = ttnn.to_memory_config(part, **cfg["shard_rope"])
        part = ttnn.experimental.rotary_embedding_llama(
            part, *step.angles, step.rotation, **cfg["rope"]
        )
        return ttnn.sharded_to_interleaved(part, ttnn.L1_MEMORY_CONFIG)

    def _split(self, query: Any) -> Any:
        """Part the columns of queries into heads: [1, token, head, size]."""
        return ttnn.reshape(query, (1, query.shape[-2], self._heads, -1))

    def _parts(self, query: Any) -> tuple[Any, Any]:
        """Return the columns of queries that know no position, and those that do."""
        nope = self._config.qk_nope_head_dim
        return _columns(query, 0, nope), _columns(query, nope, query.shape[-1])


def _columns(x: Any, start: int, end: int) -> Any:
    first, second, rows, _ = x.shape
    return ttnn.slice(x, [0, 0, 0, start], [first, second, rows, end])


def _scale(hf_config: DeepSeekConfig) -> float:
    return float((hf_config.qk_nope_head_dim + hf_config.qk_rope_head_dim) ** -0.5)


def _projections(hf_config: DeepSeekConfig, memory: Any) -> dict[str, Any]:
    """Return the configuration that prefill and decode share, except for the memory."""
    hidden, heads, latent = (
        hf_config.hidden_size,
        hf_config.num_attention_heads,
        hf_config.kv_lora_rank,
    )
    nope, rope, value = (
        hf_config.qk_nope_head_dim,
        hf_config.qk_rope_head_dim,
        hf_config.v_head_dim,
    )

    def linear(sharding: Sharding, *shape: int) -> LinearConfig:
        return LinearConfig(
            input_tensor_b=FromWeight(shape=shape, dtype=ttnn.bfloat8_b, sharding=sharding),
            dtype=ttnn.bfloat16,
            memory_config=memory,
            compute_kernel_config=place.PRECISE,
        )

    norm = RMSNormConfig(
        weight=FromWeight(),
        epsilon=hf_config.rms_norm_eps,
        memory_config=memory,
        compute_kernel_config=place.PRECISE,
    )
    fused = hf_config.q_lora_rank + latent + rope
    return {
        "project": linear(row_sharded(), hidden, fused),
        "reduce_projected": AllReduceConfig(
            cluster_axis=place.CHIPS_OF_A_ROW,
            memory_config=memory,
            topology=ttnn.Topology.Linear,
        ),
        "query_norm": norm,
        "query": linear(column_sharded(), hf_config.q_lora_rank, heads * (nope + rope)),
        "latent_norm": norm,
        "to_latent": linear(BY_HEAD, 1, heads, nope, latent),
        "swap": PermuteConfig(dims=(0, 2, 1, 3), memory_config=memory),
        "join": ConcatConfig(dim=3, memory_config=memory),
        "from_latent": linear(BY_HEAD, 1, heads, latent, value),
        "join_heads": ConcatHeadsConfig(memory_config=memory),
        "output": linear(row_sharded(), heads * value, hidden),
        "reduce": place.reduced(memory),
    }

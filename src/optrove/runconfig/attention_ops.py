"""The configurations of attention ops: heads, rotary embeddings, caches, attention itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optrove.runconfig.opconfig import OpConfig
from optrove.runconfig.ops import (  # noqa: TC001 - readers of the dataclasses find their types
    ComputeKernelConfig,
    MemoryConfig,
    ProgramConfig,
    Tensor,
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SDPAConfig(OpConfig):
    """``ttnn.transformer.scaled_dot_product_attention``, as in prefill."""

    ops: ClassVar[tuple[str, ...]] = (
        "ttnn.transformer.scaled_dot_product_attention",
        "ttnn.transformer.chunked_scaled_dot_product_attention",
    )

    is_causal: bool | None = None
    scale: float | None = None
    sliding_window_size: int | None = None
    attention_sink: Tensor | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SDPADecodeConfig(SDPAConfig):
    """``ttnn.transformer.scaled_dot_product_attention_decode``, paged or not."""

    ops: ClassVar[tuple[str, ...]] = (
        "ttnn.transformer.scaled_dot_product_attention_decode",
        "ttnn.transformer.paged_scaled_dot_product_attention_decode",
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FlashMLAConfig(OpConfig):
    """``ttnn.transformer.flash_mla_prefill``: attention on latent keys."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.transformer.flash_mla_prefill",)

    head_dim_v: int | None = None
    is_causal: bool | None = None
    scale: float | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FlashMLADecodeConfig(FlashMLAConfig):
    """``ttnn.transformer.flash_multi_latent_attention_decode``, paged or not."""

    ops: ClassVar[tuple[str, ...]] = (
        "ttnn.transformer.flash_multi_latent_attention_decode",
        "ttnn.transformer.paged_flash_multi_latent_attention_decode",
    )

    sliding_window_size: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RotaryEmbeddingConfig(OpConfig):
    """``ttnn.experimental.rotary_embedding_llama``, or the one without a matrix."""

    ops: ClassVar[tuple[str, ...]] = (
        "ttnn.experimental.rotary_embedding_llama",
        "ttnn.experimental.rotary_embedding",
    )

    cos_cache: Tensor | None = None
    sin_cache: Tensor | None = None
    trans_mat: Tensor | None = None
    is_decode_mode: bool | None = None
    token_index: int | None = None
    memory_config: MemoryConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PagedUpdateCacheConfig(OpConfig):
    """``ttnn.experimental.paged_update_cache``: one token for each user."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.experimental.paged_update_cache",)

    share_cache: bool | None = None
    batch_offset: int | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    mesh_coords: Any = None
    block_size: int | None = None
    num_kv_heads: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PagedFillCacheConfig(OpConfig):
    """``ttnn.experimental.paged_fill_cache``: all tokens of one user."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.experimental.paged_fill_cache",)

    batch_idx: int | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    mesh_coords: Any = None
    block_size: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UpdateCacheConfig(OpConfig):
    """``ttnn.update_cache``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.update_cache", "ttnn.kv_cache.update_cache_for_token_")

    batch_offset: int | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FillCacheConfig(OpConfig):
    """``ttnn.fill_cache``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.fill_cache", "ttnn.kv_cache.fill_cache_for_user_")

    update_idx: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CreateHeadsConfig(OpConfig):
    """``ttnn.experimental.nlp_create_qkv_heads``, or the one for decode."""

    ops: ClassVar[tuple[str, ...]] = (
        "ttnn.experimental.nlp_create_qkv_heads",
        "ttnn.experimental.nlp_create_qkv_heads_decode",
    )

    num_heads: int | None = None
    num_kv_heads: int | None = None
    transpose_k_heads: bool | None = None
    overlap_qk_coregrid: bool | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConcatHeadsConfig(OpConfig):
    """``ttnn.experimental.nlp_concat_heads``, or the one for decode."""

    ops: ClassVar[tuple[str, ...]] = (
        "ttnn.experimental.nlp_concat_heads",
        "ttnn.experimental.nlp_concat_heads_decode",
    )

    num_heads: int | None = None
    memory_config: MemoryConfig | None = None

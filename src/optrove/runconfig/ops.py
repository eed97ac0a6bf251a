"""The op configurations: one dataclass for each op that models configure.

A field has the name of the op's argument; a test compares all of them with the signatures of the
installed ttnn. Activations are not fields: the forward pass gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.model.case import rewrite
from optrove.model.values import Null, Struct, Value
from optrove.runconfig.opconfig import (
    FromWeight,
    MeshDeviceStub,
    OpConfig,
    Sharding,
    bound,
    names_of,
    path_of,
)
from optrove.serializer.plain import user_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.serializer.tables import ConverterTable


# The classes of ttnn, by the names that they have there: this module does not need ttnn.
Tensor: TypeAlias = Any
MeshDevice: TypeAlias = Any
MemoryConfig: TypeAlias = Any
DataType: TypeAlias = Any
Layout: TypeAlias = Any
Topology: TypeAlias = Any
ProgramConfig: TypeAlias = Any
ComputeKernelConfig: TypeAlias = Any
CoreGrid: TypeAlias = Any
CoreRangeSet: TypeAlias = Any
SubDeviceId: TypeAlias = Any
UnaryOps: TypeAlias = Any
Semaphores: TypeAlias = Any


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MatmulConfig(OpConfig, ops=("ttnn.matmul",)):
    """``ttnn.matmul``, whose second matrix is usually an activation."""

    input_tensor_b: Tensor | None = None
    transpose_a: bool | None = None
    transpose_b: bool | None = None
    memory_config: MemoryConfig | None = None
    dtype: DataType | None = None
    program_config: ProgramConfig | None = None
    activation: Any = None
    compute_kernel_config: ComputeKernelConfig | None = None
    core_grid: CoreGrid | None = None
    sub_device_id: SubDeviceId | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LinearConfig(MatmulConfig, ops=("ttnn.linear",)):
    """``ttnn.linear``, with its weight as ``input_tensor_b``."""

    bias: Tensor | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SparseMatmulConfig(OpConfig, ops=("ttnn.sparse_matmul",)):
    """``ttnn.sparse_matmul``, as mixtures of experts use it."""

    input_tensor_b: Tensor | None = None
    program_config: ProgramConfig | None = None
    nnz: int | None = None
    is_input_a_sparse: bool | None = None
    is_input_b_sparse: bool | None = None
    memory_config: MemoryConfig | None = None
    dtype: DataType | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    core_grid: CoreGrid | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MulConfig(OpConfig, ops=("ttnn.multiply", "ttnn.mul")):
    """``ttnn.mul``, with activations of its inputs such as SILU."""

    input_tensor_b: Tensor | float | None = None
    memory_config: MemoryConfig | None = None
    dtype: DataType | None = None
    activations: UnaryOps = None
    input_tensor_a_activations: UnaryOps = None
    input_tensor_b_activations: UnaryOps = None
    fast_and_approximate_mode: bool | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AddConfig(MulConfig, ops=("ttnn.add",)):
    """``ttnn.add``, such as that of a bias or a residual."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EmbeddingConfig(OpConfig, ops=("ttnn.embedding",)):
    """``ttnn.embedding``, with its table as ``weight``."""

    weight: Tensor | None = None
    padding_idx: int | None = None
    layout: Layout | None = None
    embeddings_type: Any = None
    dtype: DataType | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RMSNormConfig(OpConfig, ops=("ttnn.rms_norm",)):
    """``ttnn.rms_norm``."""

    epsilon: float | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LayerNormConfig(RMSNormConfig, ops=("ttnn.layer_norm",)):
    """``ttnn.layer_norm``."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RMSNormPreAllGatherConfig(OpConfig, ops=("ttnn.rms_norm_pre_all_gather",)):
    """``ttnn.rms_norm_pre_all_gather``: the statistics of a norm over several chips."""

    dtype: DataType | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RMSNormPostAllGatherConfig(RMSNormConfig, ops=("ttnn.rms_norm_post_all_gather",)):
    """``ttnn.rms_norm_post_all_gather``: the norm itself, from gathered statistics."""

    dtype: DataType | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SoftmaxConfig(OpConfig, ops=("ttnn.softmax",)):
    """``ttnn.softmax``."""

    dim: int | None = None
    memory_config: MemoryConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    numeric_stable: bool | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TopKConfig(OpConfig, ops=("ttnn.topk",)):
    """``ttnn.topk``."""

    k: int | None = None
    dim: int | None = None
    largest: bool | None = None
    sorted: bool | None = None
    memory_config: MemoryConfig | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReshapeConfig(OpConfig, ops=("ttnn.reshape",)):
    """``ttnn.reshape``."""

    shape: Any = None
    memory_config: MemoryConfig | None = None
    pad_value: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SliceConfig(OpConfig, ops=("ttnn.slice",)):
    """``ttnn.slice``, by ``starts`` and ``ends`` or by ``slice_start`` and ``slice_end``."""

    starts: Any = None
    ends: Any = None
    steps: Any = None
    slice_start: Any = None
    slice_end: Any = None
    slice_step: Any = None
    memory_config: MemoryConfig | None = None
    pad_value: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConcatConfig(OpConfig, ops=("ttnn.concat",)):
    """``ttnn.concat``."""

    dim: int | None = None
    memory_config: MemoryConfig | None = None
    groups: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PermuteConfig(OpConfig, ops=("ttnn.permute",)):
    """``ttnn.permute``."""

    dims: Any = None
    memory_config: MemoryConfig | None = None
    pad_value: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RepeatConfig(OpConfig, ops=("ttnn.repeat",)):
    """``ttnn.repeat``."""

    repeat_dims: Any = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TypecastConfig(OpConfig, ops=("ttnn.typecast",)):
    """``ttnn.typecast``."""

    dtype: DataType | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ToMemoryConfigConfig(OpConfig, ops=("ttnn.to_memory_config",)):
    """``ttnn.to_memory_config``."""

    memory_config: MemoryConfig | None = None
    dtype: DataType | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReshardConfig(ToMemoryConfigConfig):
    """``ttnn.to_memory_config`` between two shardings."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AllGatherConfig(OpConfig, ops=("ttnn.all_gather",)):
    """``ttnn.all_gather``."""

    dim: int | None = None
    cluster_axis: int | None = None
    memory_config: MemoryConfig | None = None
    num_links: int | None = None
    topology: Topology | None = None
    subdevice_id: SubDeviceId | None = None
    sub_core_grids: CoreRangeSet | None = None
    chunks_per_sync: int | None = None
    num_workers_per_link: int | None = None
    num_buffers_per_channel: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AllGatherAsyncConfig(OpConfig, ops=("ttnn.experimental.all_gather_async",)):
    """``ttnn.experimental.all_gather_async``, with its semaphores and persistent buffers."""

    dim: int | None = None
    cluster_axis: int | None = None
    mesh_device: MeshDevice | None = None
    multi_device_global_semaphore: Semaphores = None
    barrier_semaphore: Semaphores = None
    memory_config: MemoryConfig | None = None
    num_links: int | None = None
    topology: Topology | None = None
    subdevice_id: SubDeviceId | None = None
    chunks_per_sync: int | None = None
    num_workers_per_link: int | None = None
    num_buffers_per_channel: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReduceScatterConfig(OpConfig, ops=("ttnn.reduce_scatter",)):
    """``ttnn.reduce_scatter``."""

    dim: int | None = None
    cluster_axis: int | None = None
    memory_config: MemoryConfig | None = None
    intermediate_memory_config: MemoryConfig | None = None
    num_links: int | None = None
    topology: Topology | None = None
    subdevice_id: SubDeviceId | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    chunks_per_sync: int | None = None
    num_workers_per_link: int | None = None
    num_buffers_per_channel: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReduceScatterAsyncConfig(
    ReduceScatterConfig, ops=("ttnn.experimental.reduce_scatter_minimal_async",)
):
    """``ttnn.experimental.reduce_scatter_minimal_async``, with its semaphores."""

    multi_device_global_semaphore: Semaphores = None
    barrier_semaphore: Semaphores = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AllReduceConfig(OpConfig, ops=("ttnn.all_reduce",)):
    """``ttnn.all_reduce``, or a reduce-scatter and an all-gather that the model calls itself.

    With one of ``dim``, ``dtype``, ``num_reduce_scatter_links``, ``num_all_gather_links`` and
    ``use_composite`` it is the latter: ``parts`` gives the configs of the two ops.
    """

    cluster_axis: int | None = None
    memory_config: MemoryConfig | None = None
    num_links: int | None = None
    topology: Topology | None = None
    subdevice_id: SubDeviceId | None = None
    dim: int | None = None
    dtype: DataType | None = None
    num_reduce_scatter_links: int | None = None
    num_all_gather_links: int | None = None
    use_composite: bool | None = None

    def unchecked(self) -> frozenset[str]:
        """Return the given fields of a reduction that the model calls itself."""
        return _COMPOSED.intersection(self._given())

    def parts(self) -> tuple[ReduceScatterConfig, AllGatherConfig]:
        """Return the configs of the two ops that reduce together."""
        scatter, gather = (
            self.num_links if links is None else links
            for links in (self.num_reduce_scatter_links, self.num_all_gather_links)
        )
        alike = {
            "dim": self.dim,
            "cluster_axis": self.cluster_axis,
            "memory_config": self.memory_config,
            "topology": self.topology,
            "subdevice_id": self.subdevice_id,
        }
        path = path_of(self) or ""
        return (
            bound(ReduceScatterConfig(num_links=scatter, **alike), path, {}, ()),
            bound(AllGatherConfig(num_links=gather, **alike), path, {}, ()),
        )


_COMPOSED: Final = frozenset(
    ("dim", "dtype", "num_reduce_scatter_links", "num_all_gather_links", "use_composite")
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SDPAConfig(
    OpConfig,
    ops=(
        "ttnn.transformer.scaled_dot_product_attention",
        "ttnn.transformer.chunked_scaled_dot_product_attention",
    ),
):
    """``ttnn.transformer.scaled_dot_product_attention``, as in prefill."""

    is_causal: bool | None = None
    scale: float | None = None
    sliding_window_size: int | None = None
    attention_sink: Tensor | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SDPADecodeConfig(
    SDPAConfig,
    ops=(
        "ttnn.transformer.scaled_dot_product_attention_decode",
        "ttnn.transformer.paged_scaled_dot_product_attention_decode",
    ),
):
    """``ttnn.transformer.scaled_dot_product_attention_decode``, paged or not."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FlashMLAConfig(OpConfig, ops=("ttnn.transformer.flash_mla_prefill",)):
    """``ttnn.transformer.flash_mla_prefill``: attention on latent keys."""

    head_dim_v: int | None = None
    is_causal: bool | None = None
    scale: float | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FlashMLADecodeConfig(
    FlashMLAConfig,
    ops=(
        "ttnn.transformer.flash_multi_latent_attention_decode",
        "ttnn.transformer.paged_flash_multi_latent_attention_decode",
    ),
):
    """``ttnn.transformer.flash_multi_latent_attention_decode``, paged or not."""

    sliding_window_size: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RotaryEmbeddingConfig(
    OpConfig, ops=("ttnn.experimental.rotary_embedding_llama", "ttnn.experimental.rotary_embedding")
):
    """``ttnn.experimental.rotary_embedding_llama``, or the one without a matrix."""

    cos_cache: Tensor | None = None
    sin_cache: Tensor | None = None
    trans_mat: Tensor | None = None
    is_decode_mode: bool | None = None
    token_index: int | None = None
    memory_config: MemoryConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PagedUpdateCacheConfig(OpConfig, ops=("ttnn.experimental.paged_update_cache",)):
    """``ttnn.experimental.paged_update_cache``: one token for each user."""

    share_cache: bool | None = None
    batch_offset: int | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    mesh_coords: Any = None
    block_size: int | None = None
    num_kv_heads: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PagedFillCacheConfig(OpConfig, ops=("ttnn.experimental.paged_fill_cache",)):
    """``ttnn.experimental.paged_fill_cache``: all tokens of one user."""

    batch_idx: int | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    mesh_coords: Any = None
    block_size: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UpdateCacheConfig(
    OpConfig, ops=("ttnn.update_cache", "ttnn.kv_cache.update_cache_for_token_")
):
    """``ttnn.update_cache``."""

    batch_offset: int | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FillCacheConfig(OpConfig, ops=("ttnn.fill_cache", "ttnn.kv_cache.fill_cache_for_user_")):
    """``ttnn.fill_cache``."""

    update_idx: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CreateHeadsConfig(
    OpConfig,
    ops=("ttnn.experimental.nlp_create_qkv_heads", "ttnn.experimental.nlp_create_qkv_heads_decode"),
):
    """``ttnn.experimental.nlp_create_qkv_heads``, or the one for decode."""

    num_heads: int | None = None
    num_kv_heads: int | None = None
    transpose_k_heads: bool | None = None
    overlap_qk_coregrid: bool | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConcatHeadsConfig(
    OpConfig,
    ops=("ttnn.experimental.nlp_concat_heads", "ttnn.experimental.nlp_concat_heads_decode"),
):
    """``ttnn.experimental.nlp_concat_heads``, or the one for decode."""

    num_heads: int | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GatherConfig(OpConfig, ops=("ttnn.gather",)):
    """``ttnn.gather``: the elements at given indices."""

    dim: int | None = None
    memory_config: MemoryConfig | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScatterConfig(OpConfig, ops=("ttnn.scatter",)):
    """``ttnn.scatter``: elements written to given indices."""

    dim: int | None = None
    reduce: str | None = None
    memory_config: MemoryConfig | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SumConfig(OpConfig, ops=("ttnn.sum",)):
    """``ttnn.sum``, for example over the outputs of several experts."""

    dim: Any = None
    keepdim: bool | None = None
    scalar: float | None = None
    memory_config: MemoryConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MeshPartitionConfig(OpConfig, ops=("ttnn.mesh_partition",)):
    """``ttnn.mesh_partition``: each chip keeps its part of a tensor that all have."""

    dim: int | None = None
    cluster_axis: int | None = None
    memory_config: MemoryConfig | None = None


_HOME: Final = "optrove.runconfig"

OP_CONFIGS: Final[tuple[type[OpConfig], ...]] = tuple(
    kind
    for kind in tuple(globals().values())
    if isinstance(kind, type) and issubclass(kind, OpConfig) and kind is not OpConfig
)

KNOWN: Final[tuple[type, ...]] = (*OP_CONFIGS, FromWeight, MeshDeviceStub, Sharding)

for _kind in KNOWN:
    # As users import them, and as files name them, wherever they are defined.
    _kind.__module__ = _HOME

_FIELDS: Final[dict[str, frozenset[str]]] = {
    f"python.dataclass:{_HOME}:{kind.__name__}": frozenset(names_of(kind)) for kind in KNOWN
}


@cache
def _known_table() -> ConverterTable:
    return user_table(KNOWN)


def table_with(types: Iterable[type] = ()) -> ConverterTable:
    """Return the converters of our classes and of ``types``; TypeError for an unsuitable one."""
    added = tuple(types)
    return user_table((*KNOWN, *added)) if added else _known_table()


def complete(value: Value) -> Value:
    """Return ``value`` with every field of its op configurations; None for missing ones."""
    return rewrite(value, _completed)


def compact(value: Value) -> Value:
    """Return ``value`` with only those fields of its op configurations that are not None."""
    return rewrite(value, _compacted)


def _completed(value: Value) -> Value:
    if not isinstance(value, Struct) or value.type not in _FIELDS:
        return value
    missing = _FIELDS[value.type] - {name for name, _ in value.fields}
    return Struct(value.type, (*value.fields, *((name, Null()) for name in missing)))


def _compacted(value: Value) -> Value:
    if not isinstance(value, Struct) or value.type not in _FIELDS:
        return value
    given = [(name, item) for name, item in value.fields if not isinstance(item, Null)]
    return Struct(value.type, tuple(given))

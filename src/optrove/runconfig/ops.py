"""The op configurations: one dataclass for each op that models configure beforehand.

A field is called like the argument of the op that it is for, and a test holds each against the
signatures of the installed ttnn. Activations are no fields: the forward pass gives them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from optrove.runconfig.opconfig import OpConfig, bound, path_of

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
class MatmulConfig(OpConfig):
    """``ttnn.matmul``, whose second matrix is usually an activation."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.matmul",)

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
class LinearConfig(MatmulConfig):
    """``ttnn.linear``, with its weight as ``input_tensor_b``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.linear",)

    bias: Tensor | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SparseMatmulConfig(OpConfig):
    """``ttnn.sparse_matmul``, as mixtures of experts use it."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.sparse_matmul",)

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
class MulConfig(OpConfig):
    """``ttnn.mul``, with activations of its inputs such as SILU."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.multiply", "ttnn.mul")

    input_tensor_b: Tensor | float | None = None
    memory_config: MemoryConfig | None = None
    dtype: DataType | None = None
    activations: UnaryOps = None
    input_tensor_a_activations: UnaryOps = None
    input_tensor_b_activations: UnaryOps = None
    fast_and_approximate_mode: bool | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AddConfig(MulConfig):
    """``ttnn.add``, such as that of a bias or a residual."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.add",)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EmbeddingConfig(OpConfig):
    """``ttnn.embedding``, with its table as ``weight``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.embedding",)

    weight: Tensor | None = None
    padding_idx: int | None = None
    layout: Layout | None = None
    embeddings_type: Any = None
    dtype: DataType | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RMSNormConfig(OpConfig):
    """``ttnn.rms_norm``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.rms_norm",)

    epsilon: float | None = None
    weight: Tensor | None = None
    bias: Tensor | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LayerNormConfig(RMSNormConfig):
    """``ttnn.layer_norm``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.layer_norm",)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RMSNormPreAllGatherConfig(OpConfig):
    """``ttnn.rms_norm_pre_all_gather``: the statistics of a norm over several chips."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.rms_norm_pre_all_gather",)

    dtype: DataType | None = None
    memory_config: MemoryConfig | None = None
    program_config: ProgramConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RMSNormPostAllGatherConfig(RMSNormConfig):
    """``ttnn.rms_norm_post_all_gather``: the norm itself, from gathered statistics."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.rms_norm_post_all_gather",)

    dtype: DataType | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SoftmaxConfig(OpConfig):
    """``ttnn.softmax``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.softmax",)

    dim: int | None = None
    memory_config: MemoryConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None
    numeric_stable: bool | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TopKConfig(OpConfig):
    """``ttnn.topk``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.topk",)

    k: int | None = None
    dim: int | None = None
    largest: bool | None = None
    sorted: bool | None = None
    memory_config: MemoryConfig | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReshapeConfig(OpConfig):
    """``ttnn.reshape``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.reshape",)

    shape: Any = None
    memory_config: MemoryConfig | None = None
    pad_value: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SliceConfig(OpConfig):
    """``ttnn.slice``, by ``starts`` and ``ends`` or by ``slice_start`` and ``slice_end``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.slice",)

    starts: Any = None
    ends: Any = None
    steps: Any = None
    slice_start: Any = None
    slice_end: Any = None
    slice_step: Any = None
    memory_config: MemoryConfig | None = None
    pad_value: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ConcatConfig(OpConfig):
    """``ttnn.concat``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.concat",)

    dim: int | None = None
    memory_config: MemoryConfig | None = None
    groups: int | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PermuteConfig(OpConfig):
    """``ttnn.permute``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.permute",)

    dims: Any = None
    memory_config: MemoryConfig | None = None
    pad_value: float | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RepeatConfig(OpConfig):
    """``ttnn.repeat``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.repeat",)

    repeat_dims: Any = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TypecastConfig(OpConfig):
    """``ttnn.typecast``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.typecast",)

    dtype: DataType | None = None
    memory_config: MemoryConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ToMemoryConfigConfig(OpConfig):
    """``ttnn.to_memory_config``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.to_memory_config",)

    memory_config: MemoryConfig | None = None
    dtype: DataType | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ReshardConfig(ToMemoryConfigConfig):
    """``ttnn.to_memory_config`` between two shardings."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AllGatherConfig(OpConfig):
    """``ttnn.all_gather``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.all_gather",)

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
class AllGatherAsyncConfig(OpConfig):
    """``ttnn.experimental.all_gather_async``, with its semaphores and persistent buffers."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.experimental.all_gather_async",)

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
class ReduceScatterConfig(OpConfig):
    """``ttnn.reduce_scatter``."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.reduce_scatter",)

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
class ReduceScatterAsyncConfig(ReduceScatterConfig):
    """``ttnn.experimental.reduce_scatter_minimal_async``, with its semaphores."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.experimental.reduce_scatter_minimal_async",)

    multi_device_global_semaphore: Semaphores = None
    barrier_semaphore: Semaphores = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AllReduceConfig(OpConfig):
    """``ttnn.all_reduce``, or a reduce-scatter and an all-gather that the model calls itself.

    With one of ``dim``, ``dtype``, ``num_reduce_scatter_links``, ``num_all_gather_links`` and
    ``use_composite`` it is the latter: ``parts`` gives the configs of the two ops.
    """

    ops: ClassVar[tuple[str, ...]] = ("ttnn.all_reduce",)

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

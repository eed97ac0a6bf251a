"""The configurations of ops that route tokens to experts: choices, sums, parts for each chip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from optrove.runconfig.opconfig import OpConfig
from optrove.runconfig.ops import (  # noqa: TC001 - readers of the dataclasses find their types
    ComputeKernelConfig,
    CoreRangeSet,
    MemoryConfig,
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GatherConfig(OpConfig):
    """``ttnn.gather``: the numbers at given places."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.gather",)

    dim: int | None = None
    memory_config: MemoryConfig | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScatterConfig(OpConfig):
    """``ttnn.scatter``: numbers put at given places."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.scatter",)

    dim: int | None = None
    reduce: str | None = None
    memory_config: MemoryConfig | None = None
    sub_core_grids: CoreRangeSet | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SumConfig(OpConfig):
    """``ttnn.sum``, such as that of what several experts gave."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.sum",)

    dim: Any = None
    keepdim: bool | None = None
    scalar: float | None = None
    memory_config: MemoryConfig | None = None
    compute_kernel_config: ComputeKernelConfig | None = None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MeshPartitionConfig(OpConfig):
    """``ttnn.mesh_partition``: each chip keeps its part of what all have."""

    ops: ClassVar[tuple[str, ...]] = ("ttnn.mesh_partition",)

    dim: int | None = None
    cluster_axis: int | None = None
    memory_config: MemoryConfig | None = None

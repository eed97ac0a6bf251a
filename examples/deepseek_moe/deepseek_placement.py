"""Where the tensors of the small DeepSeek lie, and which programs multiply them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ttnn
from deepseek_weights import PLACES

from optrove.runconfig import AllGatherConfig, ReduceScatterConfig, Sharding, Weight, replicated

if TYPE_CHECKING:
    import numpy as np

TILE = 32
ROWS_OF_CHIPS, CHIPS_OF_A_ROW = 0, 1  # the axes of the mesh

PRECISE = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi4,
    math_approx_mode=False,
    fp32_dest_acc_en=True,
    packer_l1_acc=True,
)


def gathered(memory: Any, *, dim: int = 3, axis: int = CHIPS_OF_A_ROW) -> AllGatherConfig:
    """Return how every chip of a line gets the parts of all."""
    return AllGatherConfig(
        dim=dim,
        cluster_axis=axis,
        memory_config=memory,
        num_links=1,
        topology=ttnn.Topology.Linear,
    )


def reduced(memory: Any, *, dim: int = 3, axis: int = CHIPS_OF_A_ROW) -> ReduceScatterConfig:
    """Return how every chip of a line gets its part of the sum of all."""
    return ReduceScatterConfig(
        dim=dim,
        cluster_axis=axis,
        memory_config=memory,
        num_links=1,
        topology=ttnn.Topology.Linear,
    )


def norm_weight(scale: np.ndarray, sharding: Sharding | None = None) -> Weight:
    """Return the scale of a norm, in rows as wide as a tile."""
    rows = scale.reshape(1, 1, -1, TILE)
    return Weight(rows, sharding or replicated(), ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)


def by_place(columns: int) -> Any:
    """Return where heads lie of which each place has a tile high on a core of its own."""
    return ttnn.create_sharded_memory_config(
        (TILE, columns),
        core_grid=ttnn.CoreGrid(x=8, y=PLACES // 8),
        strategy=ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )


def decode_matmul(columns: int) -> Any:
    """Return the program for one row of tiles: every core has one column of tiles."""
    tiles = columns // TILE
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(min(tiles, 8), -(-tiles // 8)),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        fuse_batch=True,
        fused_activation=None,
        mcast_in0=True,
    )


def prefill_matmul(tokens: int, columns: int) -> Any:
    """Return the program in which rows of cores share tokens, and columns share weights."""
    tiles = columns // TILE
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(min(tiles, 8), min(tokens // TILE, 8)),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=-(-tokens // (TILE * 8)),
        per_core_N=-(-tiles // 8),
        transpose_mcast=False,
        fused_activation=None,
        fuse_batch=False,
    )


def attention(chunk: int) -> Any:
    """Return the program of attention, on 8x8 cores; 0 leaves the chunk of queries to ttnn."""
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        exp_approx_mode=False,
        q_chunk_size=chunk,
        k_chunk_size=TILE,
    )


def on_mesh(
    array: np.ndarray,
    mesh: Any,
    dtype: Any,
    *,
    sharding: Sharding | None = None,
    layout: Any = ttnn.ROW_MAJOR_LAYOUT,
    memory: Any = ttnn.DRAM_MEMORY_CONFIG,
) -> Any:
    """Put an array on the chips: the same on all, or split along axes of the mesh."""
    placements = [
        ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim)
        for dim in (sharding or replicated()).dims
    ]
    mapper = ttnn.create_mesh_mapper(mesh, ttnn.MeshMapperConfig(placements))
    host = ttnn.Tensor(array, dtype, layout=layout, mesh_mapper=mapper)
    return ttnn.to_device(host, mesh, memory_config=memory)

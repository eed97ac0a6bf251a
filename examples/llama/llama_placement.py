"""Where the tensors of the small Llama lie, and which programs multiply them."""

from __future__ import annotations

from typing import Any

import ttnn
from llama_weights import HEAD_SIZE, HIDDEN, USERS

TILE = 32
CORES = 8  # one row of cores holds the hidden state of all users during decode
ROWS = 4  # during prefill, four rows of cores share the tokens of a prompt

PRECISE = ttnn.WormholeComputeKernelConfig(
    math_fidelity=ttnn.MathFidelity.HiFi4,
    math_approx_mode=False,
    fp32_dest_acc_en=True,
    packer_l1_acc=True,
)


def row_of_cores(count: int) -> Any:
    """Return the first cores of the first row."""
    last = ttnn.CoreCoord(count - 1, 0)
    return ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), last)])


def dram_sharded(mesh: Any, rows: int, columns: int) -> Any:
    """Return the memory configuration of a matrix whose columns are spread over all DRAM banks."""
    banks = mesh.dram_grid_size()
    last = ttnn.CoreCoord(banks.x - 1, banks.y - 1)
    width = _tiles(columns, banks.x * banks.y) * TILE
    return ttnn.MemoryConfig(
        ttnn.TensorMemoryLayout.WIDTH_SHARDED,
        ttnn.BufferType.DRAM,
        ttnn.ShardSpec(
            ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), last)]),
            [rows, width],
            ttnn.ShardOrientation.ROW_MAJOR,
        ),
    )


def width_sharded(columns: int, cores: int = CORES) -> Any:
    """Return the memory configuration of a row of tiles spread over a row of cores."""
    return ttnn.create_sharded_memory_config(
        (TILE, columns // cores),
        core_grid=row_of_cores(cores),
        strategy=ttnn.ShardStrategy.WIDTH,
        use_height_and_width_as_shard_shape=True,
    )


def user_sharded(columns: int = HEAD_SIZE) -> Any:
    """Return where heads lie of which each user has a tile high on a core of its own."""
    return ttnn.create_sharded_memory_config(
        (TILE, columns),
        core_grid=row_of_cores(USERS),
        strategy=ttnn.ShardStrategy.HEIGHT,
        use_height_and_width_as_shard_shape=True,
    )


def decode_norm() -> Any:
    """Return the program that normalises width-sharded rows."""
    return ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(CORES, 1),
        subblock_w=_tiles(HIDDEN, CORES),
        block_h=1,
        block_w=_tiles(HIDDEN, CORES),
        inplace=False,
    )


def decode_matmul(rows: int, columns: int, cores: int = CORES) -> Any:
    """Return the program that streams a DRAM-sharded matrix past width-sharded rows."""
    return ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=_tiles(rows, cores),
        per_core_M=1,
        per_core_N=_tiles(columns, cores),
        fused_activation=None,
    )


def prefill_matmul(tokens: int, rows: int, columns: int) -> Any:
    """Return the program in which rows of cores share tokens and columns share weights."""
    return ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(CORES, ROWS),
        in0_block_w=_tiles(rows, CORES),
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=_tiles(tokens, ROWS),
        per_core_N=_tiles(columns, CORES),
        transpose_mcast=False,
        fused_activation=None,
        fuse_batch=False,
    )


def attention(chunk: int) -> Any:
    """Return the program of attention, on the whole grid; 0 leaves the chunk to ttnn."""
    return ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=(8, 8),
        exp_approx_mode=False,
        q_chunk_size=chunk,
        k_chunk_size=chunk,
    )


def _tiles(size: int, shares: int) -> int:
    """Return how many tiles of ``size`` numbers each share gets, rounded up."""
    return -(-size // (TILE * shares))

"""A transformer encoder block in ttnn, interleaved and block-sharded."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import ttnn
from weights import BATCH, EPSILON, EXPANSION, HEADS, HIDDEN, SEQUENCE, Dense, Weights

TILE = 32
HEAD_SIZE = HIDDEN // HEADS
GRID = 4  # the sharded variant runs on 4x4 cores
ROWS_PER_CORE = BATCH * SEQUENCE // TILE // GRID


@dataclass(frozen=True, slots=True)
class Parameters:
    """The weights of one encoder block on a device."""

    attention_norm: Any
    qkv: Any
    output: Any
    mlp_norm: Any
    up: Any
    down: Any


def to_device(array: Any, device: Any, dtype: Any = ttnn.bfloat16) -> Any:
    """Put a numpy array on the device, tiled; torch is not needed for it."""
    return ttnn.to_device(ttnn.Tensor(array, dtype).to(ttnn.TILE_LAYOUT), device)


def load(weights: Weights, device: Any, dtype: Any = ttnn.bfloat16) -> Parameters:
    """Put the weights on the device: matrices in ``dtype``, norms and biases in bfloat16."""

    def pair(name: str, dense: Dense) -> tuple[Any, Any]:
        matrix = ttnn.bfloat16 if name.endswith("norm") else dtype
        return to_device(dense.weight, device, matrix), to_device(dense.bias, device)

    return Parameters(
        **{item.name: pair(item.name, getattr(weights, item.name)) for item in fields(weights)}
    )


def encoder(hidden: Any, parameters: Parameters) -> Any:
    """Run the block with everything interleaved in DRAM, programs chosen by ttnn."""
    scale, shift = parameters.attention_norm
    normed = ttnn.layer_norm(hidden, epsilon=EPSILON, weight=scale, bias=shift)
    fused = ttnn.linear(normed, parameters.qkv[0], bias=parameters.qkv[1])
    query, key, value = ttnn.transformer.split_query_key_value_and_split_heads(
        fused, num_heads=HEADS
    )
    scores = ttnn.multiply(ttnn.matmul(query, key), HEAD_SIZE**-0.5)
    context = ttnn.matmul(ttnn.softmax(scores, dim=-1), value)
    context = ttnn.transformer.concatenate_heads(context)
    hidden = hidden + ttnn.linear(context, parameters.output[0], bias=parameters.output[1])

    scale, shift = parameters.mlp_norm
    normed = ttnn.layer_norm(hidden, epsilon=EPSILON, weight=scale, bias=shift)
    wide = ttnn.linear(normed, parameters.up[0], bias=parameters.up[1], activation="gelu")
    return hidden + ttnn.linear(wide, parameters.down[0], bias=parameters.down[1])


def sharded_encoder(hidden: Any, parameters: Parameters) -> Any:
    """Run the block with block-sharded activations in L1 and every program chosen here."""
    sharded = block_sharded(HIDDEN)
    hidden = ttnn.to_memory_config(hidden, sharded)

    fused = _linear(_norm(hidden, parameters.attention_norm), parameters.qkv, 3 * HIDDEN)
    fused = ttnn.sharded_to_interleaved(fused, ttnn.L1_MEMORY_CONFIG)
    query, key, value = ttnn.transformer.split_query_key_value_and_split_heads(
        fused, num_heads=HEADS, memory_config=ttnn.L1_MEMORY_CONFIG
    )
    ttnn.deallocate(fused)
    scores = ttnn.matmul(query, key, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.multiply_(scores, HEAD_SIZE**-0.5)
    scores = ttnn.softmax_in_place(scores)
    context = ttnn.matmul(scores, value, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.deallocate(scores)
    context = ttnn.transformer.concatenate_heads(context, memory_config=ttnn.L1_MEMORY_CONFIG)
    context = ttnn.to_memory_config(context, sharded)
    attended = _linear(context, parameters.output, HIDDEN)
    hidden = ttnn.add(hidden, attended, memory_config=sharded)

    normed = _norm(hidden, parameters.mlp_norm)
    wide = _linear(normed, parameters.up, EXPANSION * HIDDEN, gelu=True)
    narrow = _linear(wide, parameters.down, HIDDEN, inputs=EXPANSION * HIDDEN)
    hidden = ttnn.add(hidden, narrow, memory_config=sharded)
    return ttnn.to_memory_config(hidden, ttnn.DRAM_MEMORY_CONFIG)


VARIANTS = {"interleaved": encoder, "sharded": sharded_encoder}


def block_sharded(width: int) -> Any:
    """Return the memory config of activations of this width on the grid of cores."""
    return ttnn.create_sharded_memory_config(
        (BATCH, SEQUENCE, width),
        core_grid=ttnn.CoreGrid(y=GRID, x=GRID),
        strategy=ttnn.ShardStrategy.BLOCK,
    )


def _norm(hidden: Any, norm: tuple[Any, Any]) -> Any:
    columns = HIDDEN // TILE // GRID
    program = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(GRID, GRID),
        subblock_w=columns,
        block_h=ROWS_PER_CORE,
        block_w=columns,
        inplace=False,
    )
    return ttnn.layer_norm(
        hidden,
        epsilon=EPSILON,
        weight=norm[0],
        bias=norm[1],
        memory_config=block_sharded(HIDDEN),
        program_config=program,
    )


def _linear(
    hidden: Any, dense: tuple[Any, Any], width: int, *, inputs: int = HIDDEN, gelu: bool = False
) -> Any:
    """Multiply with a 2D multicast program: rows of cores share inputs, columns share weights."""
    program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(GRID, GRID),
        in0_block_w=inputs // TILE // GRID,
        out_subblock_h=1,
        out_subblock_w=2,
        per_core_M=ROWS_PER_CORE,
        per_core_N=width // TILE // GRID,
        transpose_mcast=False,
        fused_activation=(ttnn.UnaryOpType.GELU, True) if gelu else None,
    )
    precise = ttnn.WormholeComputeKernelConfig(
        math_fidelity=ttnn.MathFidelity.HiFi4,
        math_approx_mode=False,
        fp32_dest_acc_en=True,
        packer_l1_acc=True,
    )
    return ttnn.linear(
        hidden,
        dense[0],
        bias=dense[1],
        memory_config=block_sharded(width),
        program_config=program,
        compute_kernel_config=precise,
    )

"""A small Llama in ttnn: prefill user by user, decode for all users, on one chip or two.

With two chips each has half of the heads and half of the columns inside the MLP, and what they
have computed is summed over the fabric. Keys and values lie in a paged cache.
"""

from __future__ import annotations

from typing import Any

import llama_placement as place
import numpy as np
import ttnn
from llama_loading import LayerParameters, Parameters, row_major
from llama_weights import EPSILON, HEAD_SIZE, HEADS, HIDDEN, KEY_HEADS, USERS

TILE = place.TILE
SCALE = HEAD_SIZE**-0.5
COLUMNS = 3


def prefill(parameters: Parameters, tokens: np.ndarray, user: int) -> Any:
    """Read a prompt into the user's pages and return the logits of its last tile of tokens.

    The logits are [1, 1, 32, vocabulary / chips]: each chip has those of its own words.
    """
    length = -(-len(tokens) // (TILE * place.ROWS)) * TILE * place.ROWS
    padded = np.zeros((1, length), np.uint32)
    padded[0, : len(tokens)] = tokens
    hidden = _embedded(parameters, padded, ttnn.DRAM_MEMORY_CONFIG)
    angles = tuple(_rows(table, length) for table in (parameters.cosines, parameters.sines))
    for layer in parameters.layers:
        normed = ttnn.rms_norm(hidden, epsilon=EPSILON, weight=layer.attention_norm)
        hidden = ttnn.add(hidden, _attend(parameters, layer, normed, angles, user))
        normed = ttnn.rms_norm(hidden, epsilon=EPSILON, weight=layer.mlp_norm)
        hidden = ttnn.add(hidden, _prefill_mlp(parameters, layer, normed))
    start = (len(tokens) - 1) // TILE * TILE
    last = ttnn.slice(hidden, [0, 0, start, 0], [1, 1, start + TILE, HIDDEN])
    return _logits(parameters, ttnn.to_memory_config(last, place.width_sharded(HIDDEN)))


def decode(parameters: Parameters, tokens: np.ndarray, positions: np.ndarray) -> Any:
    """Read one token of each user and return the logits, a row for each user.

    The logits are [1, 1, 32, vocabulary / chips]; the rows after those of the users mean nothing.
    """
    padded = np.zeros((1, TILE), np.uint32)
    padded[0, :USERS] = tokens
    hidden = _embedded(parameters, padded, place.width_sharded(HIDDEN))
    where = row_major(positions.astype(np.int32), parameters.mesh, ttnn.int32)
    angles = _angles(parameters, positions)
    for layer in parameters.layers:
        normed = _norm(hidden, layer.attention_norm)
        attended = _attend_cached(parameters, layer, normed, angles, where)
        hidden = ttnn.add(hidden, attended, memory_config=place.width_sharded(HIDDEN))
        normed = _norm(hidden, layer.mlp_norm)
        narrow = _decode_mlp(parameters, layer, normed)
        hidden = ttnn.add(hidden, narrow, memory_config=place.width_sharded(HIDDEN))
    return _logits(parameters, hidden)


def _embedded(parameters: Parameters, tokens: np.ndarray, memory: Any) -> Any:
    indices = row_major(tokens, parameters.mesh, ttnn.uint32)
    hidden = ttnn.embedding(indices, parameters.embedding, layout=ttnn.TILE_LAYOUT)
    return ttnn.to_memory_config(ttnn.unsqueeze_to_4D(hidden), memory)


def _rows(table: Any, length: int) -> Any:
    """Return the first rows of a rope table, tiled."""
    rows = ttnn.slice(table, [0, 0], [length, HEAD_SIZE])
    return ttnn.to_layout(ttnn.unsqueeze_to_4D(rows), ttnn.TILE_LAYOUT)


def _angles(parameters: Parameters, positions: np.ndarray) -> tuple[Any, Any]:
    """Return the rows of the rope tables for the position of each user: [1, user, 1, size]."""
    indices = row_major(positions.astype(np.uint32)[None], parameters.mesh, ttnn.uint32)

    def looked_up(table: Any) -> Any:
        rows = ttnn.embedding(indices, table, layout=ttnn.TILE_LAYOUT)
        by_user = ttnn.transpose(ttnn.unsqueeze_to_4D(rows), 1, 2)
        return ttnn.interleaved_to_sharded(by_user, place.user_sharded())

    return looked_up(parameters.cosines), looked_up(parameters.sines)


def _attend(
    parameters: Parameters, layer: LayerParameters, hidden: Any, angles: tuple[Any, Any], user: int
) -> Any:
    """Attend to the prompt itself and keep its keys and values."""
    chips = parameters.mesh.get_num_devices()
    fused = _prefill_linear(hidden, layer.qkv)
    query, key, value = ttnn.experimental.nlp_create_qkv_heads(
        fused,
        num_heads=HEADS // chips,
        num_kv_heads=KEY_HEADS // chips,
        transpose_k_heads=False,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
    )
    ttnn.deallocate(fused)
    query, key = (
        ttnn.experimental.rotary_embedding_llama(
            heads, *angles, parameters.rotation, is_decode_mode=False
        )
        for heads in (query, key)
    )
    key, value = (ttnn.typecast(heads, parameters.dtype) for heads in (key, value))
    for cache, heads in ((layer.keys, key), (layer.values, value)):
        ttnn.experimental.paged_fill_cache(cache, heads, parameters.page_table, batch_idx=user)
    context = ttnn.transformer.scaled_dot_product_attention(
        query,
        key,
        value,
        is_causal=True,
        scale=SCALE,
        program_config=place.attention(64),
        compute_kernel_config=place.PRECISE,
    )
    context = ttnn.experimental.nlp_concat_heads(context, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    return _summed(parameters, _prefill_linear(context, layer.output))


def _prefill_mlp(parameters: Parameters, layer: LayerParameters, hidden: Any) -> Any:
    gate, up = _prefill_linear(hidden, layer.gate), _prefill_linear(hidden, layer.up)
    wide = ttnn.multiply(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU])
    return _summed(parameters, _prefill_linear(wide, layer.down))


def _prefill_linear(hidden: Any, matrix: Any) -> Any:
    return ttnn.linear(
        hidden,
        matrix,
        dtype=ttnn.bfloat16,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
        program_config=place.prefill_matmul(hidden.shape[-2], matrix.shape[-2], matrix.shape[-1]),
        compute_kernel_config=place.PRECISE,
    )


def _summed(parameters: Parameters, hidden: Any) -> Any:
    """Sum what the chips have computed; every chip gets all of it."""
    if parameters.mesh.get_num_devices() == 1:
        return hidden
    return ttnn.all_reduce(hidden, cluster_axis=1, topology=ttnn.Topology.Linear)


def _attend_cached(
    parameters: Parameters, layer: LayerParameters, hidden: Any, angles: tuple[Any, Any], where: Any
) -> Any:
    """Keep the keys and values of one token of each user, and attend to all before it."""
    chips = parameters.mesh.get_num_devices()
    fused = _decode_linear(hidden, layer.qkv)
    fused = ttnn.sharded_to_interleaved(fused, ttnn.L1_MEMORY_CONFIG)
    width = fused.shape[-1]
    query, key, value = ttnn.experimental.nlp_create_qkv_heads_decode(
        ttnn.reshape(fused, (1, 1, USERS, width), (1, 1, TILE, width)),
        num_heads=HEADS // chips,
        num_kv_heads=KEY_HEADS // chips,
        memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    )
    query, key = (
        ttnn.experimental.rotary_embedding_llama(
            heads, *angles, parameters.rotation_by_user, is_decode_mode=True
        )
        for heads in (query, key)
    )
    for cache, heads in ((layer.keys, key), (layer.values, value)):
        ttnn.experimental.paged_update_cache(
            cache, heads, update_idxs_tensor=where, page_table=parameters.page_table
        )
        ttnn.deallocate(heads)
    context = ttnn.transformer.paged_scaled_dot_product_attention_decode(
        query,
        layer.keys,
        layer.values,
        parameters.page_table,
        cur_pos_tensor=where,
        scale=SCALE,
        program_config=place.attention(0),
        compute_kernel_config=place.PRECISE,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
    )
    context = ttnn.to_memory_config(context, place.user_sharded())
    context = ttnn.experimental.nlp_concat_heads_decode(context, num_heads=HEADS // chips)
    return _gathered(parameters, _decode_linear(context, layer.output, cores=HEADS // chips))


def _decode_mlp(parameters: Parameters, layer: LayerParameters, hidden: Any) -> Any:
    gate, up = _decode_linear(hidden, layer.gate), _decode_linear(hidden, layer.up)
    wide = ttnn.multiply(
        gate,
        up,
        input_tensor_a_activations=[ttnn.UnaryOpType.SILU],
        memory_config=gate.memory_config(),
    )
    return _gathered(parameters, _decode_linear(wide, layer.down))


def _decode_linear(hidden: Any, matrix: Any, *, cores: int = place.CORES) -> Any:
    return ttnn.linear(
        hidden,
        matrix,
        dtype=ttnn.bfloat16,
        memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
        program_config=place.decode_matmul(matrix.shape[-2], matrix.shape[-1], cores=cores),
        compute_kernel_config=place.PRECISE,
    )


def _gathered(parameters: Parameters, hidden: Any) -> Any:
    """Sum what the chips have computed, each a part of it, and give every chip all parts."""
    if parameters.mesh.get_num_devices() > 1:
        hidden = ttnn.sharded_to_interleaved(hidden, ttnn.L1_MEMORY_CONFIG)
        hidden = ttnn.reduce_scatter(hidden, COLUMNS, cluster_axis=1, topology=ttnn.Topology.Linear)
        hidden = ttnn.all_gather(hidden, COLUMNS, cluster_axis=1, topology=ttnn.Topology.Linear)
    return ttnn.to_memory_config(hidden, place.width_sharded(HIDDEN))


def _norm(hidden: Any, scale: Any) -> Any:
    return ttnn.rms_norm(
        hidden,
        epsilon=EPSILON,
        weight=scale,
        program_config=place.decode_norm(),
        memory_config=place.width_sharded(HIDDEN),
    )


def _logits(parameters: Parameters, hidden: Any) -> Any:
    logits = _decode_linear(_norm(hidden, parameters.norm), parameters.head)
    return ttnn.sharded_to_interleaved(logits, ttnn.DRAM_MEMORY_CONFIG)

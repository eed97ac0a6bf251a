"""Put the weights and the cache of the small Llama on the chips of a mesh, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import llama_placement as place
import numpy as np
import ttnn
from llama_weights import (
    HEAD_SIZE,
    KEY_HEADS,
    PAGE,
    PAGES_PER_USER,
    USERS,
    Layer,
    Weights,
    make_page_table,
    rope_tables,
)

ROWS, COLUMNS = 2, 3  # the dimensions along which a matrix may be split between chips


@dataclass(frozen=True, slots=True)
class LayerParameters:
    """The weights of one layer on the chips, and its cache of keys and values."""

    attention_norm: Any
    qkv: Any
    output: Any
    mlp_norm: Any
    gate: Any
    up: Any
    down: Any
    keys: Any
    values: Any


@dataclass(frozen=True, slots=True)
class Parameters:
    """Everything that is on the chips before the first token comes."""

    mesh: Any
    dtype: Any
    embedding: Any
    layers: tuple[LayerParameters, ...]
    norm: Any
    head: Any
    cosines: Any
    sines: Any
    rotation: Any
    rotation_by_user: Any
    page_table: Any


def load(weights: Weights, mesh: Any, dtype: Any = ttnn.bfloat16) -> Parameters:
    """Put the model on the mesh: matrices and cache in ``dtype``, all else in bfloat16."""
    cosines, sines = rope_tables()
    rotation = _rotation()
    return Parameters(
        mesh=mesh,
        dtype=dtype,
        embedding=row_major(weights.embedding, mesh),
        layers=tuple(_layer(layer, mesh, dtype) for layer in weights.layers),
        norm=_norm(weights.norm, mesh),
        head=_matrix(weights.head, mesh, dtype, split=COLUMNS),
        cosines=row_major(cosines, mesh),
        sines=row_major(sines, mesh),
        rotation=tiled(rotation, mesh),
        rotation_by_user=tiled(
            np.tile(rotation, (USERS, 1)), mesh, memory=place.user_sharded(place.TILE)
        ),
        page_table=row_major(make_page_table(), mesh, ttnn.int32),
    )


def row_major(array: np.ndarray, mesh: Any, dtype: Any = ttnn.bfloat16) -> Any:
    """Put the same rows on every chip."""
    host = ttnn.Tensor(array, dtype)
    return ttnn.to_device(
        ttnn.distribute_tensor(host, ttnn.replicate_tensor_to_mesh_mapper(mesh)), mesh
    )


def tiled(
    array: np.ndarray,
    mesh: Any,
    dtype: Any = ttnn.bfloat16,
    *,
    split: int | None = None,
    memory: Any = ttnn.DRAM_MEMORY_CONFIG,
) -> Any:
    """Put tiles on the chips: the same on every chip, or split between them along a dimension."""
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    mapper = (
        ttnn.replicate_tensor_to_mesh_mapper(mesh)
        if split is None
        else ttnn.shard_tensor_to_mesh_mapper(mesh, split)
    )
    host = ttnn.Tensor(array, dtype).to(ttnn.TILE_LAYOUT)
    return ttnn.to_device(ttnn.distribute_tensor(host, mapper), mesh, memory_config=memory)


def _layer(layer: Layer, mesh: Any, dtype: Any) -> LayerParameters:
    qkv = _fused((layer.query, layer.key, layer.value), mesh.get_num_devices())
    return LayerParameters(
        attention_norm=_norm(layer.attention_norm, mesh),
        qkv=_matrix(qkv, mesh, dtype, split=COLUMNS),
        output=_matrix(layer.output, mesh, dtype, split=ROWS),
        mlp_norm=_norm(layer.mlp_norm, mesh),
        gate=_matrix(layer.gate, mesh, dtype, split=COLUMNS),
        up=_matrix(layer.up, mesh, dtype, split=COLUMNS),
        down=_matrix(layer.down, mesh, dtype, split=ROWS),
        keys=_cache(mesh, dtype),
        values=_cache(mesh, dtype),
    )


def _fused(matrices: tuple[np.ndarray, ...], chips: int) -> np.ndarray:
    """Put matrices side by side so that each chip gets its share of every one."""
    shares = [np.split(matrix, chips, axis=1) for matrix in matrices]
    return np.concatenate([part for chip in zip(*shares, strict=True) for part in chip], axis=1)


def _matrix(array: np.ndarray, mesh: Any, dtype: Any, *, split: int) -> Any:
    """Split a matrix between the chips, and on each chip between the banks of DRAM."""
    rows, columns = (
        size // (mesh.get_num_devices() if dim == split else 1)
        for dim, size in zip((ROWS, COLUMNS), array.shape, strict=True)
    )
    memory = place.dram_sharded(mesh, rows, columns)
    return tiled(array, mesh, dtype, split=split, memory=memory)


def _norm(scale: np.ndarray, mesh: Any) -> Any:
    """Put the scale of a norm on every chip, in rows as wide as a tile."""
    return row_major(scale.reshape(1, 1, -1, place.TILE), mesh)


def _cache(mesh: Any, dtype: Any) -> Any:
    """Make an empty cache; each chip holds the pages of its own heads."""
    shape = (USERS * PAGES_PER_USER, KEY_HEADS, PAGE, HEAD_SIZE)
    return tiled(np.zeros(shape, np.float32), mesh, dtype, split=1)


def _rotation() -> np.ndarray:
    """Return the matrix that swaps the numbers of each pair and negates the second one."""
    matrix = np.zeros((place.TILE, place.TILE), np.float32)
    even = np.arange(0, place.TILE, 2)
    matrix[even, even + 1] = 1
    matrix[even + 1, even] = -1
    return matrix

"""Weights as files: what is written, what is known of each file, and how it is checked."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.model.values import TensorSpec, TtnnPlacement
from optrove.runconfig.sharding import REPLICATED, Sharding, whole_shape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from optrove.model.values import Struct

_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight to be written: an array of torch or numpy, and how it is kept.

    Where nothing is said: bfloat8_b, in tiles, interleaved in DRAM, a copy on every chip.
    """

    tensor: Any
    sharding: Sharding = REPLICATED
    dtype: Any = None
    layout: Any = None
    memory_config: Any = None


@dataclass(frozen=True, slots=True)
class WeightFacts:
    """What a file of a weight holds; ``shape`` is that of the whole, ``spread`` how it is split.

    ``spread`` has the number of parts and the dimension, for each axis along which it is split.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    memory: Struct | None
    spread: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SavedWeight(os.PathLike[str]):
    """A file of a weight, as it was written; stands for its path wherever a path is wanted.

    ``source`` is a hash of the numbers that it was made from, ``recipe`` one of these and of all
    that was asked of the file.
    """

    path: str
    facts: WeightFacts
    mesh_shape: tuple[int, ...]
    size: int
    sha256: str
    source: str
    recipe: str

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    def __str__(self) -> str:
        """Return the path."""
        return self.path


def tensor_facts(tensor: Any) -> WeightFacts:
    """Return what a live tensor of ttnn holds; TypeError if it is none."""
    spec = describe(tensor, loaded_tables())
    if not isinstance(spec, TensorSpec) or not isinstance(spec.placement, TtnnPlacement):
        raise TypeError(f"expected a tensor of ttnn, found {type(tensor).__name__}")
    mesh = spec.placement.mesh
    dims = () if mesh is None else mesh.placements
    sizes = () if mesh is None else mesh.distribution_shape
    return WeightFacts(
        whole_shape(spec.shape, dims, sizes),
        spec.dtype,
        spec.placement.layout,
        spec.placement.memory,
        spread(dims, sizes, len(spec.shape)),
    )


def spread(
    dims: Sequence[int | None], mesh_shape: Sequence[int], rank: int
) -> tuple[tuple[int, int], ...]:
    """Return along which axes something is split: the number of parts, and the dimension."""
    return tuple(
        (size, dim % rank)
        for dim, size in zip(dims, mesh_shape, strict=False)
        if dim is not None and size > 1
    )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; OSError if it cannot be read."""
    told = sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            told.update(block)
    return told.hexdigest()


def file_problem(weight: SavedWeight, path: Path, *, verify: bool) -> str | None:
    """Return what is wrong with the file of a weight; with ``verify`` all of it is read."""
    again = "run convert_weights again"
    try:
        size = path.stat().st_size
        if size != weight.size:
            return f"{path} has {size:,} bytes, {weight.size:,} were written: it is torn; {again}"
        if verify and file_digest(path) != weight.sha256:
            return f"{path} was changed after it was written; {again}"
    except FileNotFoundError:
        return f"there is no file {path}; {again}, or move its folder back"
    except OSError as error:
        return f"{path} cannot be read: {error}"
    return None

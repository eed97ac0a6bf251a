"""Read tensors out of master files, which do not tell all of their placement.

What is not told is derived where ttnn derives it too, and every such step is noted:

- the padded shape follows from the alignment: that of the tile, of the shard's width in row-major
  tensors that are sharded along their width, else none. Version 1 tells the alignment itself;
- the tile is 32x32 with faces of 16x16 in version 2; version 1 tells it. Neither tells transposes;
- the chips that hold a part are all those of the mesh, row by row, if there are as many as parts;
- tensors on meshes of the same shape within one call are on the same device;
- version 1 tells neither layout nor storage. The layout is TILE where the alignment is that of
  tiles or the dtype has no other, and the storage is taken to be the device.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.interop.printed import UnknownSpelling
from optrove.interop.struct_spellings import counts, member, read_memory, sizes
from optrove.model.values import (
    Int,
    List,
    MeshPlacement,
    Struct,
    Symbol,
    TensorSpec,
    Tile,
    TorchPlacement,
    TtnnPlacement,
)

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.interop.understanding import Reading

USUAL_TILE: Final = Tile((32, 32), (16, 16))
_ALWAYS_TILED: Final = frozenset({"ttnn.bfloat8_b", "ttnn.bfloat4_b"})
_SHARDED_IN_ROWS: Final = frozenset({"WIDTH_SHARDED", "BLOCK_SHARDED"})
_MOST_CHIPS: Final = 4096

# The kinds of repairs, as they are counted.
PADDED: Final = "padded shape and tile of a tensor: not told, those of 32x32 tiles"
ALIGNED: Final = "padded shape of a tensor: not told, computed from its alignment"
CHIPS: Final = "chips of a tensor: not told, the whole mesh row by row"
NO_CHIPS: Final = "chips of a tensor: not told, left empty"
NO_MESH: Final = "mesh of a tensor: not told, left empty"
STORAGE: Final = "layout and storage of a tensor: not told, by its alignment and on a device"
VALUES: Final = "not kept: values of a tensor"
TORCH: Final = "memory of a torch tensor: not told, contiguous on the CPU"


def read_tensor(data: dict[str, Any], path: str, reading: Reading) -> TensorSpec:
    """Read a tensor of version 2 in either form, or of ttnn's own parameter files.

    UnknownSpelling when its shape, dtype, layout or storage is missing or means nothing.
    """
    shape = counts(_first(data, "original_shape", "shape"))
    dtype = f"ttnn.{member(_first(data, 'original_dtype', 'dtype'), 'DataType').lower()}"
    layout = member(_told(data, "layout"), "Layout")
    storage = member(_told(data, "storage_type"), "StorageType").lower()
    told = data.get("memory_config")
    memory = None if told is None else read_memory(told, f"{path}.memory_config", reading)
    tile = USUAL_TILE if layout == "TILE" else None
    mesh_shape, mesh = _spread(data, reading)
    storage = storage.removesuffix("_storage")
    reading.notes.append(PADDED)
    if "values" in data:
        reading.notes.append(VALUES)
    placement = TtnnPlacement(
        padded_shape=padded(shape, _alignment(tile, memory)),
        layout=layout,
        tile=tile,
        storage=storage,
        memory=memory,
        mesh_shape=mesh_shape,
        mesh=mesh,
        device=0 if storage == "device" else None,
    )
    return TensorSpec(shape, dtype, placement)


def _first(data: dict[str, Any], *names: str) -> Json:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _told(data: dict[str, Any], name: str) -> Json:
    if name not in data:
        raise UnknownSpelling(f"a tensor without {name}")
    return data[name]


def _alignment(tile: Tile | None, memory: Struct | None) -> tuple[int, ...]:
    if tile is not None:
        return tile.shape
    match {} if memory is None else dict(memory.fields):
        case {"memory_layout": Symbol(_, layout), "shard_spec": Struct(_, fields)}:
            match dict(fields).get("shape"):
                case List((*_, Int(width))) if layout in _SHARDED_IN_ROWS and width > 0:
                    return (width,)
    return (1,)


def padded(shape: tuple[int, ...], alignment: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that a tensor takes up, as ttnn computes it.

    The last two sizes are rounded up; of those before, only where what is behind them does not
    make up a whole multiple already. A shape of fewer dimensions than the alignment grows.
    """
    if any(step < 1 for step in alignment):
        raise UnknownSpelling(f"an alignment of {list(alignment)}")
    sides = [1] * (len(alignment) - len(shape)) + list(shape)
    within = 1
    for back, step in enumerate(reversed(alignment), start=1):
        last_two = back <= len(USUAL_TILE.shape)
        if last_two or within % step:
            sides[-back] = -(-sides[-back] // step) * step
        within *= step
    return tuple(sides)


def _spread(
    data: dict[str, Any], reading: Reading
) -> tuple[tuple[int, ...] | None, MeshPlacement | None]:
    """Read the mesh of a tensor and how it is spread over it."""
    if isinstance(data.get("tensor_placement"), dict):
        told = data["tensor_placement"]
        words, shape = re.findall(r"'([^']*)'", str(told["placement"])), "mesh_device_shape"
    elif isinstance(data.get("mesh_device"), dict):
        told = data["mesh_device"]
        words, shape = told.get("placements", []), "shape"
    else:
        reading.notes.append(NO_MESH)
        return None, None
    mesh_shape = None if told.get(shape) is None else counts(told[shape])
    distribution = counts(told["distribution_shape"])
    placements = tuple(_placement(word) for word in words)
    chips = _chips(distribution, mesh_shape)
    reading.notes.append(CHIPS if chips else NO_CHIPS)
    return mesh_shape, MeshPlacement(distribution, placements, chips)


def _placement(word: Json) -> int | None:
    if word == "PlacementReplicate":
        return None
    found = re.fullmatch(r"PlacementShard\((-?\d{1,9})\)", str(word))
    if found is None:
        raise UnknownSpelling(f"{word!r} is no placement")
    return int(found[1])


def _chips(
    distribution: tuple[int, ...], mesh_shape: tuple[int, ...] | None
) -> tuple[tuple[int, ...], ...]:
    parts = prod(distribution)
    if mesh_shape is None:
        return ((0, 0),) if parts == 1 else ()
    if parts != prod(mesh_shape) or not 0 < parts <= _MOST_CHIPS:
        return ()
    return tuple(product(*(range(size) for size in mesh_shape)))


def read_printed_tensor(data: dict[str, Any], path: str, reading: Reading) -> TensorSpec:
    """Read a tensor of version 1: ``{"storage": {}, "tensor_spec": {...}}``."""
    spec = data["tensor_spec"]
    lies = spec["tensor_layout"]
    shape = counts(spec["logical_shape"])
    dtype = f"ttnn.{member(lies['dtype'], 'DataType').lower()}"
    where = f"{path}.tensor_spec.tensor_layout.memory_config"
    memory = read_memory(lies["memory_config"], where, reading)
    alignment = sizes(lies["alignment"])
    told = lies["page_config"]["config"]["tile"]
    tile = Tile(_pair(told["tile_shape"]), _pair(told["face_shape"]))
    tiled = dtype in _ALWAYS_TILED or _is_that_of_tiles(alignment, tile)
    reading.notes += [ALIGNED, STORAGE]
    placement = TtnnPlacement(
        padded_shape=padded(shape, alignment),
        layout="TILE" if tiled else "ROW_MAJOR",
        tile=tile if tiled else None,
        storage="device",
        memory=memory,
        mesh_shape=None,
        mesh=None,
        device=0,
    )
    return TensorSpec(shape, dtype, placement)


def _pair(data: Json) -> tuple[int, int]:
    height, width = counts(data)
    return height, width


def _is_that_of_tiles(alignment: tuple[int, ...], tile: Tile) -> bool:
    if len(alignment) < len(tile.shape) or not all(tile.shape):
        return False
    return all(step % size == 0 for step, size in zip(alignment[-2:], tile.shape, strict=True))


def read_torch_tensor(data: dict[str, Any], reading: Reading) -> TensorSpec:
    """Read a torch tensor, of which files tell the shape and the dtype only."""
    shape = counts(data["shape"])
    dtype = data["dtype"]
    if not isinstance(dtype, str) or not dtype:
        raise UnknownSpelling("a torch tensor without dtype")
    reading.notes += [TORCH, VALUES] if "values" in data else [TORCH]
    strides = tuple(
        prod(max(size, 1) for size in shape[place + 1 :]) for place in range(len(shape))
    )
    placement = TorchPlacement(strides, "strided", "cpu", requires_grad=False)
    return TensorSpec(shape, f"torch.{dtype.removeprefix('torch.')}", placement)

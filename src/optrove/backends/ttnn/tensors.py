"""The converters of ttnn's tensors and devices.

A tensor is described without touching what a device holds: only facts that the host knows are
read, no operation is dispatched, no number is fetched, and no object is printed. A deallocated
tensor still tells its shape and layout, but no device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.base import DeviceConverter, TensorConverter
from optrove.model.values import MeshPlacement, Struct, TensorSpec, Tile, TtnnPlacement

if TYPE_CHECKING:
    from types import ModuleType

    from optrove.backends.base import Describing


def converters(ttnn: ModuleType) -> tuple[TensorConverter, DeviceConverter]:
    """Return the converters of tensors and devices for the given ttnn."""
    rule = TensorRule(ttnn)
    return (
        TensorConverter("ttnn.Tensor", ttnn.Tensor, rule.spec, tensor_key, subclasses=True),
        DeviceConverter("ttnn.MeshDevice", ttnn.MeshDevice, mesh_shape, subclasses=True),
    )


def tensor_key(live: Any) -> int:
    """Return ttnn's own number of a tensor, which every Python object for it shares."""
    key: int = live.tensor_id
    return key


def mesh_shape(device: Any) -> tuple[int, ...]:
    """Return the shape of a device's mesh."""
    return _row(device.shape)


class TensorRule:
    """How a tensor is described."""

    __slots__ = ("_dtypes", "_layouts", "_meshes", "_storages", "_tile_layout")

    def __init__(self, ttnn: ModuleType) -> None:
        self._dtypes = {member: dtype_name(member) for member in ttnn.DataType}
        self._layouts = {member: member.name for member in ttnn.Layout}
        self._storages = {member: member.name.lower() for member in ttnn.StorageType}
        self._tile_layout = ttnn.Layout.TILE
        self._meshes = Meshes()

    def spec(self, live: Any, describing: Describing, identity: int) -> TensorSpec:
        """Return the specification of ``live``; ValueError if its memory cannot be described."""
        memory = describing.describe(live.memory_config())
        if not isinstance(memory, Struct):
            raise ValueError("this tensor's memory configuration has no recorded form")  # noqa: TRY004 - not a wrong type of argument
        layout = live.layout
        device = live.device()
        placement = TtnnPlacement(
            _sizes(live.padded_shape),
            self._layouts[layout],
            _tile(live.tile) if layout is self._tile_layout else None,
            self._storages[live.storage_type()],
            memory,
            None if device is None else _row(device.shape),
            self._meshes.of(live.tensor_topology()),
        )
        return TensorSpec(_sizes(live.shape), self._dtypes[live.dtype], placement, identity)


class Meshes:
    """The recorded forms of the last few different topologies seen.

    A program has a handful of them, and comparing two is cheaper than reading one, which lists
    every chip. ttnn hands a topology out as a copy, so that a remembered one never changes.
    (Tiles are not remembered: ttnn's ``==`` on them does not look at their transposes.)
    """

    __slots__ = ("_known",)

    _LIMIT = 32

    def __init__(self) -> None:
        self._known: list[tuple[Any, MeshPlacement]] = []

    def of(self, topology: Any) -> MeshPlacement:
        """Return how a tensor of this topology is spread."""
        for known, placement in self._known:
            if known == topology:
                return placement
        placement = MeshPlacement(
            _row(topology.distribution_shape()),
            tuple([getattr(part, "dim", None) for part in topology.placements()]),
            tuple([_row(coordinate) for coordinate in topology.mesh_coords()]),
        )
        if len(self._known) >= self._LIMIT:
            self._known.clear()
        self._known.append((topology, placement))
        return placement


def dtype_name(member: Any) -> str:
    """Return the public name of a data type: ``ttnn.bfloat16`` for ``DataType.BFLOAT16``."""
    return f"ttnn.{member.name.lower()}"


def _sizes(shape: Any) -> tuple[int, ...]:
    # By index, because iterating over a ttnn shape takes ten times as long.
    return tuple([shape[index] for index in range(shape.rank)])


def _row(mesh: Any) -> tuple[int, ...]:
    return tuple([mesh[index] for index in range(mesh.dims())])


def _tile(live: Any) -> Tile:
    height, width = live.tile_shape
    face_height, face_width = live.face_shape
    return Tile(
        (height, width),
        (face_height, face_width),
        live.transpose_within_face,
        live.transpose_of_faces,
    )

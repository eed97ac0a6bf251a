"""Converters of tensors, devices and runtime handles.

A tensor is described without reading device memory: only facts on the host are read, no operation
is dispatched, no number is fetched, and no object is printed. A deallocated tensor still has its
shape and layout, but no device.

Limit: ``ttnn.narrow`` returns views that begin elsewhere in the same buffer. They share the number
of the buffer, but their offset is not recorded.

Only a mapper that replicates shows how it was created. For all others the probe observes the
creation; the fields of the recipe are the named arguments of the creating call.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from inspect import unwrap
from itertools import product
from math import prod
from operator import lt
from typing import TYPE_CHECKING, Any

from optrove.model.values import MeshPlacement, Struct, TensorSpec, Tile, TtnnPlacement
from optrove.serializer.tables import DeviceConverter, Fields, HandleConverter, TensorConverter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from optrove.serializer.tables import Describing


def converters(ttnn: ModuleType) -> tuple[TensorConverter, DeviceConverter]:
    """Return the converters of tensors and devices for the given ttnn."""
    rule = TensorRule(ttnn)
    return (
        TensorConverter(
            "ttnn.Tensor",
            ttnn.Tensor,
            rule.spec,
            tensor_key,
            subclasses=True,
            storage=storage_key,
        ),
        DeviceConverter(
            "ttnn.MeshDevice", ttnn.MeshDevice, mesh_shape, subclasses=True, key=device_key
        ),
    )


def tensor_key(live: Any) -> int:
    """Return ttnn's number of a tensor; all Python objects for the tensor share it."""
    key: int = live.tensor_id
    return key


def storage_key(live: Any) -> tuple[str, int]:
    """Return the number of the buffer that owns the memory; all tensors in the buffer share it.

    Not its address: a later buffer may get the same one, and so may a buffer of another device.
    Host tensors and deallocated tensors count separately, since ttnn does not show their buffer.
    """
    buffer = live.buffer_unique_id()
    return ("tensor", live.tensor_id) if buffer is None else ("buffer", buffer)


def device_key(device: Any) -> int:
    """Return ttnn's number of a mesh or of a part of one."""
    key: int = device.id()
    return key


def mesh_shape(device: Any) -> tuple[int, ...]:
    """Return the shape of a device's mesh."""
    return _row(device.shape)


class TensorRule:
    """How a tensor is described."""

    __slots__ = (
        "_coordinate",
        "_dtypes",
        "_host",
        "_host_buffer",
        "_layouts",
        "_meshes",
        "_storages",
        "_tile_layout",
    )

    def __init__(self, ttnn: ModuleType) -> None:
        self._dtypes = {member: dtype_name(member) for member in ttnn.DataType}
        self._layouts = {member: member.name for member in ttnn.Layout}
        self._storages = {member: member.name.lower() for member in ttnn.StorageType}
        self._coordinate = ttnn.MeshCoordinate
        self._host = ttnn.StorageType.HOST
        # ttnn's function, since the shadow's replacement would read numbers.
        self._host_buffer = unwrap(ttnn.Tensor.host_buffer)
        self._tile_layout = ttnn.Layout.TILE
        self._meshes = Meshes()

    def spec(self, live: Any, describing: Describing, identity: int, storage: int) -> TensorSpec:
        """Return the specification of ``live``; ValueError if its memory cannot be described."""
        memory = describing.describe(live.memory_config())
        if not isinstance(memory, Struct):
            raise ValueError("this tensor's memory configuration has no recorded form")  # noqa: TRY004 - not a wrong type of argument
        layout = live.layout
        device = live.device()
        on_device = device is not None
        storage_type = live.storage_type()
        topology = live.tensor_topology()
        if on_device:
            chips = live.device_coords()
        else:
            chips = self._kept(live, topology) if storage_type is self._host else None
        placement = TtnnPlacement(
            _sizes(live.padded_shape),
            self._layouts[layout],
            _tile(live.tile) if layout is self._tile_layout else None,
            self._storages[storage_type],
            memory,
            _row(device.shape) if on_device else None,
            self._meshes.of(topology, chips),
            describing.device_number(device) if on_device else None,
        )
        return TensorSpec(
            _sizes(live.shape), self._dtypes[live.dtype], placement, identity, storage
        )

    def _kept(self, live: Any, topology: Any) -> list[Any] | None:
        """Return the chips whose parts a host tensor has; None if its topology decides.

        One part that was read from a tensor has the topology of the whole. A host tensor may also
        keep its parts at other coordinates than the chips of its topology.
        """
        kept = self._host_buffer(live)
        extent = _row(kept.shape())
        if prod(extent) == 1:
            return None
        named = [_row(chip) for chip in topology.mesh_coords()]
        if any(len(chip) != len(extent) or not all(map(lt, chip, extent)) for chip in named):
            return None
        chips = [self._coordinate(chip) for chip in product(*map(range, extent))]
        return [chip for chip in chips if kept.get_shard(chip) is not None]


class Meshes:
    """A cache of the recorded placements of tensors on meshes.

    A program has a handful of them, and comparing two is cheaper than reading one, which lists
    every chip. ttnn returns copies of topologies and chips, so cached ones never change. (Tiles are
    not cached: ttnn's ``==`` ignores their transposes.)
    """

    __slots__ = ("_known",)

    _LIMIT = 32

    def __init__(self) -> None:
        self._known: list[tuple[Any, list[Any] | None, MeshPlacement]] = []

    def of(self, topology: Any, chips: list[Any] | None) -> MeshPlacement:
        """Return the placement of a tensor with this topology and with buffers on these chips.

        ``chips`` is None if the topology decides: after deallocation, or on a host that does not
        keep the parts by the chips of the topology.
        """
        for known, known_chips, placement in self._known:
            if known == topology and known_chips == chips:
                return placement
        placement = MeshPlacement(
            _row(topology.distribution_shape()),
            tuple([getattr(part, "dim", None) for part in topology.placements()]),
            _coordinates(topology, chips),
        )
        if len(self._known) >= self._LIMIT:
            self._known.clear()
        self._known.append((topology, chips, placement))
        return placement


def _coordinates(topology: Any, chips: list[Any] | None) -> tuple[tuple[int, ...], ...]:
    """Return the chips that hold a part, in the order of the parts in the topology.

    One part of a tensor inherits the topology of the whole, which then has chips without a part.
    """
    named = [_row(coordinate) for coordinate in topology.mesh_coords()]
    if chips is None:
        return tuple(named)
    held = dict.fromkeys(_row(chip) for chip in chips)
    ordered = [coordinate for coordinate in named if coordinate in held]
    return tuple(dict.fromkeys([*ordered, *held]))


def dtype_name(member: Any) -> str:
    """Return the public name of a data type: ``ttnn.bfloat16`` for ``DataType.BFLOAT16``."""
    return f"ttnn.{member.name.lower()}"


def _sizes(shape: Any) -> tuple[int, ...]:
    # By index, because iterating over a ttnn shape is ten times slower.
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


def handle_converters(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
    """Return the converters of the handles of the given ttnn."""
    return (*_device_objects(ttnn), *_mappers(ttnn))


def _device_objects(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
    """Return the converters of objects on a device: semaphores, buffers, sub-devices, events."""
    extension = ttnn._ttnn  # noqa: SLF001 - the only place that holds these classes
    return (
        HandleConverter(
            "ttnn.GlobalSemaphore",
            extension.global_semaphore.global_semaphore,
            _on_device(ttnn.create_global_semaphore),
            names=("cores", "initial_value", "buffer_type"),
        ),
        HandleConverter(
            "ttnn.GlobalCircularBuffer",
            extension.global_circular_buffer.global_circular_buffer,
            _on_device(ttnn.create_global_circular_buffer),
            names=("sender_receiver_core_mapping", "size", "buffer_type"),
        ),
        HandleConverter(
            "ttnn.SubDevice",
            ttnn.SubDevice,
            lambda recipe, _: ttnn.SubDevice(**recipe),
            names=("cores",),
        ),
        HandleConverter(
            "ttnn.SubDeviceManagerId",
            ttnn.SubDeviceManagerId,
            lambda recipe, device: device.create_sub_device_manager(**recipe),
            names=("sub_devices", "local_l1_size"),
        ),
        HandleConverter(
            "ttnn.MeshEvent",
            ttnn.MeshEvent,
            _on_device(ttnn.record_event),
            names=("cq_id", "sub_device_ids", "device_range"),
        ),
    )


def _mappers(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
    """Return the converters of mappers and composers of tensors on a mesh."""
    return (
        HandleConverter(
            "ttnn.TensorToMesh",
            ttnn.CppTensorToMesh,
            lambda recipe, device: ttnn.create_mesh_mapper(device, ttnn.MeshMapperConfig(**recipe)),
            names=("placements", "mesh_shape_override", "mesh_offset_override"),
        ),
        HandleConverter(
            "ttnn.ReplicateTensorToMesh",
            # ``ttnn.ReplicateTensorToMesh`` is a function that wraps a mapper in this class.
            import_module("ttnn.distributed.distributed").ReplicateTensorToMeshWrapper,
            lambda _, device: ttnn.ReplicateTensorToMesh(device),
            partial(_replicate_recipe, ttnn.PlacementReplicate),
            names=(),
        ),
        HandleConverter(
            "ttnn.MeshToTensor",
            ttnn.CppMeshToTensor,
            lambda recipe, device: ttnn.create_mesh_composer(
                device, ttnn.MeshComposerConfig(**recipe)
            ),
            names=("dims", "mesh_shape_override", "mesh_offset_override"),
        ),
    )


def _replicate_recipe(replicate: type, live: Any) -> Fields | None:
    """Return an empty recipe; None if the wrapped mapper does not replicate."""
    placements = live.unwrap().config().placements
    return {} if all(isinstance(part, replicate) for part in placements) else None


def _on_device(create: Callable[..., Any]) -> Callable[[Fields, Any], Any]:
    """Return a function that calls ``create`` with the device and the recipe."""
    return lambda recipe, device: create(device, **recipe)

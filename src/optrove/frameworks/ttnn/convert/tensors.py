"""Converters of tensors, devices and runtime handles.

A tensor is described without touching what a device holds: only facts that the host knows are
read, no operation is dispatched, no number is fetched, and no object is printed. A deallocated
tensor still tells its shape and layout, but no device.

Limit: ``ttnn.narrow`` makes views that begin elsewhere in the same buffer. They share its number,
but where they begin is not recorded.

Only a mapper that replicates tells how it was made. For all others the recipe comes from whoever
saw the creation; its fields are the arguments of the call that makes one, by their names.
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
    """Return ttnn's own number of a tensor, which every Python object for it shares."""
    key: int = live.tensor_id
    return key


def storage_key(live: Any) -> tuple[str, int]:
    """Return what the tensors in one buffer share: the number of the buffer that owns the memory.

    Not its address, which the next buffer gets when this one is gone, and which buffers of
    several devices have alike. Host tensors and deallocated ones count by themselves, since ttnn
    does not tell which buffer they have or had.
    """
    buffer = live.buffer_unique_id()
    return ("tensor", live.tensor_id) if buffer is None else ("buffer", buffer)


def device_key(device: Any) -> int:
    """Return ttnn's own number of a mesh or of a part of one."""
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
        # ttnn's own, as the shadow's would ask for numbers.
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
        """Return the chips whose parts a host tensor has, None if its topology alone tells.

        What is read from one part of a tensor has the topology of the whole. A host tensor may
        also keep its parts in other places than those of the chips in its topology.
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
    """The recorded forms of the last few different spreads of tensors over chips.

    A program has a handful of them, and comparing two is cheaper than reading one, which lists
    every chip. ttnn hands topologies and chips out as copies, so that remembered ones never
    change. (Tiles are not remembered: ttnn's ``==`` on them does not look at their transposes.)
    """

    __slots__ = ("_known",)

    _LIMIT = 32

    def __init__(self) -> None:
        self._known: list[tuple[Any, list[Any] | None, MeshPlacement]] = []

    def of(self, topology: Any, chips: list[Any] | None) -> MeshPlacement:
        """Return how a tensor of this topology is spread, which has buffers on these chips.

        ``chips`` is None where only the topology tells: after deallocation, or on a host where the
        parts are not kept by the chips of the topology.
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
    """Return the chips that hold a part, in the order that the topology gives to the parts.

    One part of a tensor inherits the topology of the whole, so that the topology alone may name
    chips which hold nothing.
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


def handle_converters(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
    """Return the converters of the handles of the given ttnn."""
    return (*_device_objects(ttnn), *_mappers(ttnn))


def _device_objects(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
    """Return the converters of what lives on a device: semaphores, buffers, parts of it, events."""
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
    """Return the converters of what spreads tensors over a mesh and gathers them."""
    return (
        HandleConverter(
            "ttnn.TensorToMesh",
            ttnn.CppTensorToMesh,
            lambda recipe, device: ttnn.create_mesh_mapper(device, ttnn.MeshMapperConfig(**recipe)),
            names=("placements", "mesh_shape_override", "mesh_offset_override"),
        ),
        HandleConverter(
            "ttnn.ReplicateTensorToMesh",
            # ``ttnn.ReplicateTensorToMesh`` itself is a function, which wraps a mapper in this.
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
    """Return an empty recipe; None if the mapper within does something else than replicate."""
    placements = live.unwrap().config().placements
    return {} if all(isinstance(part, replicate) for part in placements) else None


def _on_device(create: Callable[..., Any]) -> Callable[[Fields, Any], Any]:
    """Return a maker that calls ``create`` with the device and the recipe."""
    return lambda recipe, device: create(device, **recipe)

"""The converters of ttnn's runtime objects, which a replay has to make anew.

Only a mapper that replicates tells how it was made. For all others the recipe comes from whoever
saw the creation; its fields are the arguments of the call that makes one, by their names.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from optrove.backends.base import Fields, HandleConverter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def converters(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
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

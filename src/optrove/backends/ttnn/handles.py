"""The converters of ttnn's runtime objects, which a replay has to make anew.

None of these tells how it was made, so the recipe comes from whoever saw its creation; the
recipe's fields are the arguments of the call that makes one, by their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.base import Fields, HandleConverter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


def converters(ttnn: ModuleType) -> tuple[HandleConverter, ...]:
    """Return the converters of the handles of the given ttnn."""
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
        HandleConverter(
            "ttnn.TensorToMesh",
            ttnn.CppTensorToMesh,
            lambda recipe, device: ttnn.create_mesh_mapper(device, ttnn.MeshMapperConfig(**recipe)),
            names=("placements", "mesh_shape_override", "mesh_offset_override"),
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


def _on_device(create: Callable[..., Any]) -> Callable[[Fields, Any], Any]:
    """Return a maker that calls ``create`` with the device and the recipe."""
    return lambda recipe, device: create(device, **recipe)

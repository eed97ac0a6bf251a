"""What stands in a model configuration for things that only a run has: weights and the mesh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optrove.runconfig.sharding import Sharding  # noqa: TC001 - readers of the dataclass find its types

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class MeshDeviceStub:
    """Stands for the mesh device in a model configuration; only its shape is known."""

    mesh_shape: tuple[int, ...]

    def __init__(self, mesh_shape: Iterable[int]) -> None:
        object.__setattr__(self, "mesh_shape", tuple(int(size) for size in mesh_shape))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mesh, as an open mesh device has it."""
        return self.mesh_shape


@dataclass(frozen=True, kw_only=True)
class FromWeight:
    """Stands for a weight: the weight configuration has to name a file for it.

    What is given here is held against what the file holds. ``shape`` is that of the whole weight,
    before it is split over the mesh.
    """

    shape: tuple[int, ...] | None = None
    dtype: Any = None
    layout: Any = None
    memory_config: Any = None
    sharding: Sharding | None = None
    mesh_device: MeshDeviceStub | None = None

"""Weight tensors: create them, write them to files and load them, with the installed ttnn."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import FrameworkMissing
from optrove.frameworks.installed import version_of
from optrove.frameworks.probe_protocol import muted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SUFFIX: Final = ".tensorbin"
"""The suffix of the files that ttnn writes and reads."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The form of a weight: live values of ttnn, and the split dimension of each mesh axis."""

    dtype: Any
    layout: Any
    memory_config: Any
    dims: tuple[int | None, ...]


class WeightTensors:
    """Creates, writes and loads the tensors of weights."""

    def __init__(self) -> None:
        """Import ttnn; FrameworkMissing if it is not installed."""
        try:
            self._ttnn: Any = import_module("ttnn")
        except ImportError as error:
            raise FrameworkMissing(
                f"weights are written and read by ttnn, which cannot be imported ({error}); "
                f"install optrove[ttnn] (Python 3.10 and 3.12 on Linux)"
            ) from error

    @property
    def version(self) -> str:
        """The version of ttnn, on which the format of its files depends."""
        return version_of("ttnn") or "unknown"

    def packing(
        self, dtype: Any, layout: Any, memory_config: Any, dims: Sequence[int | None]
    ) -> Packing:
        """Return the form of a weight; the defaults: bfloat8_b, in tiles, interleaved in DRAM."""
        ttnn = self._ttnn
        return Packing(
            ttnn.bfloat8_b if dtype is None else dtype,
            ttnn.TILE_LAYOUT if layout is None else layout,
            ttnn.DRAM_MEMORY_CONFIG if memory_config is None else memory_config,
            tuple(dims),
        )

    def pack(self, array: Any, packing: Packing, mesh_device: Any) -> Any:
        """Return a host tensor of an array of torch or numpy, spread over the mesh."""
        ttnn = self._ttnn
        placements = [
            ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim)
            for dim in packing.dims
        ]
        mapper = ttnn.create_mesh_mapper(mesh_device, ttnn.MeshMapperConfig(placements))
        return ttnn.Tensor(
            array,
            packing.dtype,
            layout=packing.layout,
            mem_config=packing.memory_config,
            mesh_mapper=mapper,
        )

    def dump(self, tensor: Any, path: Path) -> None:
        """Write a tensor to a file whose name has the suffix."""
        with muted():  # the path of a draft means nothing in a recording
            self._ttnn.dump_tensor(path, tensor)

    def load(self, path: Path, mesh_device: Any) -> Any:
        """Return the tensor of a file, on the mesh; RuntimeError if it does not fit."""
        return self._ttnn.load_tensor(path, device=mesh_device)

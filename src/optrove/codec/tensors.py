"""Read tensor specs and their placements out of JSON-able builtins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.codec.reading import (
    Faults,
    Reader,
    found,
    list_of,
    optional,
    pair_of,
    read_bool,
    read_count,
    read_counts,
    read_integer,
    read_name,
    read_object,
)
from optrove.errors import Fault
from optrove.model.values import (
    MeshPlacement,
    NumpyPlacement,
    Struct,
    TensorPlacement,
    TensorSpec,
    Tile,
    TorchPlacement,
    TtnnPlacement,
)

if TYPE_CHECKING:
    from optrove.codec.text import Json

_integers = list_of(read_integer)
_size_pair = pair_of(read_count)

_TILE: dict[str, Reader[Any]] = {
    "shape": _size_pair,
    "face_shape": _size_pair,
    "transpose_within_face": read_bool,
    "transpose_of_faces": read_bool,
}
_MESH: dict[str, Reader[Any]] = {
    "distribution_shape": read_counts,
    "placements": list_of(optional(read_integer)),
    "coordinates": list_of(read_counts),
}
_TORCH: dict[str, Reader[Any]] = {
    "strides": _integers,
    "layout": read_name,
    "device": read_name,
    "requires_grad": read_bool,
    "offset": read_count,
    "conjugate": read_bool,
    "negative": read_bool,
}
_NUMPY: dict[str, Reader[Any]] = {"strides": _integers, "offset": read_integer}

NO_TENSOR = TensorSpec((), "", NumpyPlacement(()))
"""What stands for a tensor that could not be read, until BadData is raised."""


def tensor_reader(read_memory: Reader[Struct | None]) -> Reader[TensorSpec]:
    """Return a reader of tensor specs; ``read_memory`` reads their memory configurations."""
    readers: dict[str, Reader[Any]] = {
        "shape": read_counts,
        "dtype": read_name,
        "identity": read_count,
        "storage": read_count,
        "placement": _placement_reader(read_memory),
    }

    def read_tensor(data: Json, path: str, faults: Faults) -> TensorSpec:
        fields = read_object(data, path, faults, readers)
        if fields is None or fields["placement"] is None:
            return NO_TENSOR
        return TensorSpec(**fields)

    return read_tensor


def _placement_reader(read_memory: Reader[Struct | None]) -> Reader[TensorPlacement | None]:
    ttnn: dict[str, Reader[Any]] = {
        "padded_shape": read_counts,
        "layout": read_name,
        "tile": optional(_read_tile),
        "storage": read_name,
        "memory": optional(read_memory),
        "mesh_shape": optional(read_counts),
        "mesh": optional(_read_mesh),
        "device": optional(read_count),
    }
    kinds: dict[str, tuple[type[Any], dict[str, Reader[Any]]]] = {
        "ttnn": (TtnnPlacement, ttnn),
        "torch": (TorchPlacement, _TORCH),
        "numpy": (NumpyPlacement, _NUMPY),
    }

    def read_placement(data: Json, path: str, faults: Faults) -> TensorPlacement | None:
        kind = data.get("kind") if type(data) is dict else None
        if type(kind) is not str or kind not in kinds:
            known = ", ".join(kinds)
            faults.append(
                Fault(path, f"expected a placement of kind {known}, found {found(kind or data)}")
            )
            return None
        placement, readers = kinds[kind]
        content = {key: item for key, item in data.items() if key != "kind"}
        fields = read_object(content, path, faults, readers)
        return None if fields is None else placement(**fields)

    return read_placement


def _read_tile(data: Json, path: str, faults: Faults) -> Tile | None:
    fields = read_object(data, path, faults, _TILE)
    return None if fields is None else Tile(**fields)


def _read_mesh(data: Json, path: str, faults: Faults) -> MeshPlacement | None:
    fields = read_object(data, path, faults, _MESH)
    return None if fields is None else MeshPlacement(**fields)

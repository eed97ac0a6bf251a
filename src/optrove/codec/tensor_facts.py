"""What the tensors of a Value can be searched by: shape, dtype, layout, memory and mesh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from optrove.codec.text import write
from optrove.codec.wire import encode
from optrove.model.values import (
    FrozenSet,
    Handle,
    List,
    Mapping,
    NumpyPlacement,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HOST: Final = "HOST"
"""The memory of a tensor that no device holds."""

STRIDED: Final = "strided"
"""The layout of numpy's arrays, by the name that torch gives to its usual one."""


class Facts(NamedTuple):
    """What one tensor can be searched by, wherever it is; see ``TensorFacts``."""

    shape: str
    dtype: str
    layout: str
    memory: str
    mesh: str | None


def tensor_specs(value: Value) -> Iterator[TensorSpec]:
    """Yield the tensors within ``value``, in an order that depends on nothing but its content."""
    if isinstance(value, TensorSpec):
        yield value
        return
    for part in _parts(value):
        yield from tensor_specs(part)


def _parts(value: Value) -> Iterable[Value]:
    match value:
        case List(items) | Tuple(items):
            return items
        case Set(items) | FrozenSet(items):
            return sorted(items, key=_spelled)
        case Mapping(entries):
            ordered = sorted(entries, key=lambda entry: _spelled(entry[0]))
            return (part for entry in ordered for part in entry)
        case Struct(_, fields):
            return (item for _, item in fields)
        case Handle(_, recipe):
            return () if recipe is None else (recipe,)
        case _:
            return ()


def facts_of(spec: TensorSpec) -> Facts:
    """Return what a tensor can be searched by."""
    layout, memory, mesh = _place(spec)
    dtype = spec.dtype.rpartition(".")[2]
    return Facts(
        by(spec.shape),
        searchable(dtype),
        searchable(layout),
        searchable(memory),
        None if mesh is None else by(mesh),
    )


def by(sizes: Iterable[int]) -> str:
    """Return how a shape is spelled: ``1x1x32x64``."""
    return "x".join(map(str, sizes))


def searchable(text: str) -> str:
    """Return ``text`` as every database takes it: without surrogates and control characters."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _spelled(value: Value) -> str:
    return write(encode(value))


def _place(spec: TensorSpec) -> tuple[str, str, tuple[int, ...] | None]:
    match spec.placement:
        case TtnnPlacement() as placement:
            return placement.layout, _memory(placement), placement.mesh_shape
        case TorchPlacement() as placement:
            return placement.layout, placement.device, None
        case NumpyPlacement():
            return STRIDED, HOST, None


def _memory(placement: TtnnPlacement) -> str:
    """Return buffer and layout of a tensor on a device; the kind of storage of any other."""
    if placement.storage.casefold() == "device" and placement.memory is not None:
        match dict(placement.memory.fields):
            case {"buffer_type": Symbol(_, buffer), "memory_layout": Symbol(_, layout)}:
                return f"{buffer}_{layout}"
            case _:
                return placement.storage.upper()
    return placement.storage.upper()

"""The family of a Case: what is left of it when its scalar arguments may be any.

A scalar is replaced by the name of its kind, also within lists, tuples and the values of mappings,
so that ``batch_idx=3`` and ``batch_idx=4`` are one family, and ``batch_idx=None`` is another.
Coordinates of chips count as scalars, and so does a set of scalars, however many it holds. All
that describes tensors, configurations and devices is kept.
"""

from __future__ import annotations

from typing import Final

from optrove.model.values import (
    Bool,
    Bytes,
    Callable,
    Complex,
    DeviceRef,
    Float,
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
    Value,
)

ANY: Final = "any of its kind"
"""The type of what stands for a scalar, by the name of its kind."""

COORDINATES: Final = frozenset(
    {"ttnn.MeshCoordinate", "ttnn.MeshCoordinateRange", "ttnn.MeshCoordinateRangeSet"}
)
"""The types that are nothing but coordinates of chips."""


def family_of(value: Value) -> Value:
    """Return ``value`` with its scalars replaced; the same object when it holds none."""
    match value:
        case List(items):
            return List(tuple(map(family_of, items)))
        case Tuple(items):
            return Tuple(tuple(map(family_of, items)))
        case Mapping(items):
            return Mapping(frozenset((key, family_of(item)) for key, item in items))
        case Null() | Symbol() | TensorSpec() | DeviceRef() | Handle() | Callable() | Opaque():
            return value
        case Bool() | Int() | Float() | Complex() | Text() | Bytes():
            return Symbol(ANY, type(value).__name__)
        case Set() | FrozenSet() | Struct():
            return Symbol(ANY, _kind(value)) if _is_scalar(value) else value


def _is_scalar(value: Value) -> bool:
    match value:
        case Set(items) | FrozenSet(items):
            return all(map(_is_scalar, items))
        case Struct(type_name, _):
            return type_name in COORDINATES
        case _:
            return isinstance(value, (Bool, Int, Float, Complex, Text, Bytes))


def _kind(value: Value) -> str:
    return value.type if isinstance(value, Struct) else type(value).__name__

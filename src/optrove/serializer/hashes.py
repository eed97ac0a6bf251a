"""The identities of a Case: canonical bytes, semantic and placement hash, family.

They are the ASCII JSON of the wire form with sorted keys and no spaces, and so depend neither on
the order of dicts and sets nor on the Python version or its hash seed.

The *placement* hash covers the whole Case. The *semantic* hash covers a projection that leaves
out what only says where and how: memory configurations, layouts, program and compute
configurations, topology, core ranges, devices, handles, and arguments that are explicitly None.
So the same computation can be compared across boards, and two placements are never merged.

A scalar is replaced by the name of its kind, also within lists, tuples and the values of mappings,
so that ``batch_idx=3`` and ``batch_idx=4`` are one family, and ``batch_idx=None`` is another.
Coordinates of chips count as scalars, and so does a set of scalars, however many it holds. All
that describes tensors, configurations and devices is kept.
"""

from __future__ import annotations

import hashlib
from hashlib import sha256
from typing import TYPE_CHECKING, Final

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
    NumpyPlacement,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
    Value,
    walk,
)
from optrove.serializer.text import Json, write
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from optrove.model.case import Case


def canonical_bytes(value: Value) -> bytes:
    """Return the canonical bytes of ``value``."""
    return write(encode(value)).encode("ascii")


def fingerprint(data: Json) -> str:
    """Return the SHA-256 of the canonical JSON of builtins, in 64 hex digits."""
    return hashlib.sha256(write(data).encode("ascii")).hexdigest()


SEMANTIC_TTNN: Final = frozenset(
    {
        "ttnn.BcastOpDim",
        "ttnn.BcastOpMath",
        "ttnn.BinaryOpType",
        "ttnn.DataType",
        "ttnn.DistributedLayerNormStage",
        "ttnn.EmbeddingsType",
        "ttnn.GeluVariant",
        "ttnn.LayerNormType",
        "ttnn.LossReductionMode",
        "ttnn.MorehSoftmaxBackwardOp",
        "ttnn.MorehSoftmaxOp",
        "ttnn.PaddingMode",
        "ttnn.RGBRange",
        "ttnn.ReduceType",
        "ttnn.RoutedExpertActivation",
        "ttnn.Shape",
        "ttnn.SigmoidMode",
        "ttnn.Size",
        "ttnn.UnaryOpType",
        "ttnn.UnaryWithParam",
        "ttnn.YUVCoefficients",
        "ttnn.YUVColorSpace",
        "ttnn.YUVFormat",
        "ttnn.YUVRange",
        "ttnn.experimental.quasar.BinaryOpType",
        "ttnn.operations.ccl.MoEActivationFunction",
    }
)
"""The ttnn types that say what is computed; every other ttnn type says where or how."""

PLACEMENT_TORCH: Final = frozenset(
    {"torch.device", "torch.layout", "torch.memory_format", "torch.Generator", "torch.Stream"}
)
"""The torch types that say where or how; every other torch type says what is computed."""

FUSED: Final = "what a configuration computes"
"""The type of what is left of a configuration that also computes, such as a fused activation."""

_NOWHERE: Final = NumpyPlacement(())


def case_data(case: Case) -> Json:
    """Return the JSON-able form of a Case, from which its hashes are made."""
    arguments = {name: encode(value) for name, value in case.arguments}
    return {"op": case.op, "arguments": arguments}


def placement_hash(case: Case) -> str:
    """Return the identity of the whole Case, in 64 hex digits."""
    return fingerprint(case_data(case))


def semantic_hash(case: Case) -> str:
    """Return the identity of what the Case computes, in 64 hex digits."""
    kept = {name: semantics(value) for name, value in case.arguments}
    arguments = {name: encode(value) for name, value in kept.items() if value is not None}
    return fingerprint({"op": case.op, "arguments": arguments})


def semantics(argument: Value) -> Value | None:
    """Return the part of an argument that says what is computed, or None if none does."""
    return None if isinstance(argument, Null) else project(argument)


def project(value: Value) -> Value | None:
    """Return ``value`` without where and how; None when nothing else is in it.

    Within a list or tuple that keeps other items, Null marks the place of one that went.
    """
    match value:
        case TensorSpec(shape, dtype, _, identity, storage):
            return TensorSpec(shape, dtype, _NOWHERE, identity, storage)
        case Struct():
            return _struct(value)
        case Symbol(type_name, _):
            return value if says_what(type_name) else None
        case DeviceRef() | Handle():
            return None
        case List() | Tuple() | Set() | FrozenSet() | Mapping():
            return _container(value)
        case (
            Null() | Bool() | Int() | Float() | Complex() | Text() | Bytes() | Callable() | Opaque()
        ):
            return value


def says_what(type_name: str) -> bool:
    """Tell whether objects of this type say what is computed, not where or how."""
    if type_name.startswith("ttnn."):
        return type_name in SEMANTIC_TTNN
    return type_name not in PLACEMENT_TORCH


def _struct(value: Struct) -> Struct | None:
    if says_what(value.type):
        kept = [(name, project(item)) for name, item in value.fields]
        return Struct(value.type, tuple((name, item) for name, item in kept if item is not None))
    # A program configuration may carry a fused activation, which does count.
    computed = [(name, project(item)) for name, item in value.fields if _may_compute(item)]
    fields = tuple((name, item) for name, item in computed if item is not None)
    return Struct(FUSED, fields) if fields else None


def _may_compute(field: Value) -> bool:
    """Tell whether a field of a configuration holds a type that says what is computed."""
    return any(
        isinstance(part, (Struct, Symbol)) and says_what(part.type) for _, part in walk(field)
    )


def _container(value: List | Tuple | Set | FrozenSet | Mapping) -> Value | None:
    match value:
        case List(items):
            kept = _places(items)
            return None if kept is None else List(kept)
        case Tuple(items):
            kept = _places(items)
            return None if kept is None else Tuple(kept)
        case Set(items):
            left = _left(items)
            return Set(left) if left or not items else None
        case FrozenSet(items):
            left = _left(items)
            return FrozenSet(left) if left or not items else None
        case Mapping(items):
            pairs = [(key, project(item)) for key, item in items]
            entries = frozenset((key, item) for key, item in pairs if item is not None)
            return Mapping(entries) if entries or not items else None


def _left(items: frozenset[Value]) -> frozenset[Value]:
    return frozenset(item for item in map(project, items) if item is not None)


def _places(items: tuple[Value, ...]) -> tuple[Value, ...] | None:
    kept = [project(item) for item in items]
    if items and all(item is None for item in kept):
        return None
    return tuple(Null() if item is None else item for item in kept)


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


_MOST_KNOWN: Final = 8192


class Contents:
    """Writes Cases as ``identity.placement_hash`` sees them; arguments that repeat only once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Value, str] = {}

    def arguments(self, case: Case) -> str:
        """Return the JSON of the arguments; BadData for what no reader would accept."""
        return f"{{{','.join([f'{write(n)}:{self._text(value)}' for n, value in case.arguments])}}}"

    def case_id(self, case: Case) -> str:
        """Return the placement hash of a Case."""
        return case_id(case.op, self.arguments(case))

    def _text(self, value: Value) -> str:
        text = self._known.get(value)
        if text is None:
            text = write(encode(value))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[value] = text
        return text


def case_id(op: str, arguments: str) -> str:
    """Return the placement hash of the Case of this op and the JSON of its arguments."""
    content = f'{{"arguments":{arguments},"op":{write(op)}}}'
    return sha256(content.encode("ascii")).hexdigest()

"""The two identities of a Case: what is computed, and that plus where and how.

The *placement* hash covers the whole Case. The *semantic* hash covers a projection that leaves
out what only says where and how: memory configurations, layouts, program and compute
configurations, topology, core ranges, devices, handles, and arguments that are explicitly None.
So the same computation can be compared across boards, and two placements are never merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.codec.canonical import fingerprint
from optrove.codec.wire import encode
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
)
from optrove.model.walk import walk

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.model.case import Case

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

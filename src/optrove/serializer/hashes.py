"""Hash Cases: canonical text, and the projections behind the semantic and the family hash.

The canonical text of a Value is the ASCII JSON of its wire form with sorted keys and no spaces. It
depends neither on the order of dicts and sets nor on the Python version or its hash seed. The text
of a Case is ``{"arguments":{name:value,...},"op":name}``. Its SHA-256 is the *placement* hash,
which is the case_id everywhere.

The *semantic* hash covers a projection that leaves out where and how something is computed: memory
configurations, layouts, program and compute configurations, topology, core ranges, devices,
handles, and arguments that are explicitly None. So the same computation can be compared across
boards, and two placements are never merged.

The *family* hash covers a projection that replaces a scalar by the name of its kind, also within
lists, tuples and the values of mappings: ``batch_idx=3`` and ``batch_idx=4`` are one family,
``batch_idx=None`` is another. Coordinates of chips count as scalars, and so does a set of scalars,
however many it holds. Tensors, configurations and devices are kept.
"""

from __future__ import annotations

from functools import lru_cache
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
    from collections.abc import Iterable

    from optrove.model.case import Case

_MAX_CACHED: Final = 8192
_MAX_CACHED_CHARS: Final = 8192


def canonical_text(value: Value) -> str:
    """Return the canonical text of ``value``; BadData if no reader would accept it."""
    return write(encode(value))


def canonical_bytes(value: Value) -> bytes:
    """Return the canonical text of ``value`` as bytes."""
    return canonical_text(value).encode("ascii")


def text_hash(text: str) -> str:
    """Return the SHA-256 of canonical text, in 64 hex digits."""
    return sha256(text.encode("ascii")).hexdigest()


def fingerprint(data: Json) -> str:
    """Return the hash of builtins by their canonical JSON."""
    return text_hash(write(data))


def arguments_text(arguments: Iterable[tuple[str, str]]) -> str:
    """Return the canonical text of arguments from their own texts, which are sorted by name."""
    return f"{{{','.join([f'{_name(name)}:{text}' for name, text in arguments])}}}"


def case_text(op: str, arguments: Iterable[tuple[str, str]]) -> str:
    """Return the canonical text of a Case from those of its arguments, sorted by name."""
    return f'{{"arguments":{arguments_text(arguments)},"op":{_name(op)}}}'


@lru_cache(maxsize=4096)
def _name(text: str) -> str:
    return write(text)


class CanonicalTexts:
    """The canonical texts of Values; those of Values that repeat are written once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Value, str] = {}

    def of(self, value: Value) -> str:
        """Return the canonical text of ``value``; BadData if no reader would accept it."""
        text = self._known.get(value)
        if text is None:
            text = canonical_text(value)
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            if len(text) <= _MAX_CACHED_CHARS:
                self._known[value] = text
        return text

    def arguments(self, case: Case) -> list[tuple[str, str]]:
        """Return the texts of the arguments of a Case, by name."""
        return [(name, self.of(value)) for name, value in case.arguments]

    def case_id(self, case: Case) -> str:
        """Return the placement hash of a Case."""
        return text_hash(case_text(case.op, self.arguments(case)))


def placement_hash(case: Case) -> str:
    """Return the identity of the whole Case, in 64 hex digits."""
    return CanonicalTexts().case_id(case)


def case_data(case: Case) -> Json:
    """Return a Case as builtins, whose canonical JSON is the text of the Case."""
    return {"op": case.op, "arguments": {name: encode(value) for name, value in case.arguments}}


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
"""The ttnn types that determine the computation; all others determine where or how."""

PLACEMENT_TORCH: Final = frozenset(
    {"torch.device", "torch.layout", "torch.memory_format", "torch.Generator", "torch.Stream"}
)
"""The torch types that determine where or how; all others determine the computation."""

FUSED: Final = "what a configuration computes"
"""The type of the rest of a configuration that also computes, such as a fused activation."""

_NOWHERE: Final = NumpyPlacement(())


def semantics(argument: Value) -> Value | None:
    """Return the part of an argument that determines the computation, or None."""
    return None if isinstance(argument, Null) else project(argument)


def project(value: Value) -> Value | None:
    """Return ``value`` without where and how; None when nothing is left.

    Within a list or tuple that keeps other items, Null marks the position of a removed one.
    """
    match value:
        case TensorSpec(shape, dtype, _, identity, storage):
            return TensorSpec(shape, dtype, _NOWHERE, identity, storage)
        case Struct():
            return _struct(value)
        case Symbol(type_name, _):
            return value if is_semantic(type_name) else None
        case DeviceRef() | Handle():
            return None
        case List() | Tuple() | Set() | FrozenSet() | Mapping():
            return _container(value)
        case (
            Null() | Bool() | Int() | Float() | Complex() | Text() | Bytes() | Callable() | Opaque()
        ):
            return value


def is_semantic(type_name: str) -> bool:
    """Return whether objects of this type determine the computation, not where or how."""
    if type_name.startswith("ttnn."):
        return type_name in SEMANTIC_TTNN
    return type_name not in PLACEMENT_TORCH


def _struct(value: Struct) -> Struct | None:
    if is_semantic(value.type):
        kept = [(name, project(item)) for name, item in value.fields]
        return Struct(value.type, tuple((name, item) for name, item in kept if item is not None))
    # A program configuration may carry a fused activation, which is computed.
    computed = [(name, project(item)) for name, item in value.fields if _holds_semantics(item)]
    fields = tuple((name, item) for name, item in computed if item is not None)
    return Struct(FUSED, fields) if fields else None


def _holds_semantics(field: Value) -> bool:
    """Return whether a field of a configuration holds a type that determines the computation."""
    return any(
        isinstance(part, (Struct, Symbol)) and is_semantic(part.type) for _, part in walk(field)
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
"""The type of the Symbol that replaces a scalar; its name is the kind."""

COORDINATES: Final = frozenset(
    {"ttnn.MeshCoordinate", "ttnn.MeshCoordinateRange", "ttnn.MeshCoordinateRangeSet"}
)
"""The types that hold only coordinates of chips."""


def family_of(value: Value) -> Value:
    """Return ``value`` with its scalars replaced by their kinds."""
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

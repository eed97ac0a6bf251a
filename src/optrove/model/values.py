"""The Value union: one argument of an operation in recorded form.

Every kind is an immutable, hashable dataclass without behavior. Scalars are wrapped, so that
``Int(1)``, ``Bool(True)`` and ``Float(1.0)`` stay three different values although Python compares
their contents as equal. The union is closed: a ``match`` over it needs no default branch.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping as AbstractMapping


@dataclass(frozen=True, slots=True)
class Null:
    """An explicit None, as opposed to an omitted argument."""


@dataclass(frozen=True, slots=True)
class Bool:
    """True or false."""

    value: bool


@dataclass(frozen=True, slots=True)
class Int:
    """A whole number of any size."""

    value: int


@dataclass(frozen=True, slots=True, eq=False)
class Float:
    """A double, compared by its bits: -0.0 is not 0.0, and all NaNs are equal."""

    value: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Float) and self.bits() == other.bits()

    def __hash__(self) -> int:
        return hash(self.bits())

    def bits(self) -> bytes:
        """Return the IEEE 754 bytes, the same ones for every NaN."""
        return _NAN if self.value != self.value else struct.pack(">d", self.value)


_NAN = struct.pack(">d", float("nan"))


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number as its two parts."""

    real: Float
    imaginary: Float


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """A byte string."""

    value: bytes


@dataclass(frozen=True, slots=True)
class List:
    """A list."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple, distinct from a list."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Set:
    """A set."""

    items: frozenset[Value]


@dataclass(frozen=True, slots=True)
class FrozenSet:
    """A frozen set, distinct from a set: it can be a key."""

    items: frozenset[Value]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A dictionary with keys of any kind; the order of its entries is not recorded."""

    items: frozenset[tuple[Value, Value]]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named constant: an enum member, a dtype, a layout (``ttnn.Layout``, ``TILE``)."""

    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Struct:
    """An object of a known class with named fields, sorted by name."""

    type: str
    fields: tuple[tuple[str, Value], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(sorted(self.fields, key=lambda field: field[0])))


@dataclass(frozen=True, slots=True)
class Tile:
    """The tile of a tiled tensor: its shape, the shape of its faces, and its transposes."""

    shape: tuple[int, int]
    face_shape: tuple[int, int]
    transpose_within_face: bool = False
    transpose_of_faces: bool = False


@dataclass(frozen=True, slots=True)
class MeshPlacement:
    """How a tensor is spread over a mesh of chips.

    ``placements`` has one entry per dimension of ``distribution_shape``: the tensor dimension
    that is split along it, or None where the tensor is replicated. ``coordinates`` are the chips
    that hold a part, row by row.
    """

    distribution_shape: tuple[int, ...]
    placements: tuple[int | None, ...]
    coordinates: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class TtnnPlacement:
    """Where and how a ttnn tensor is stored: on a host or a mesh of chips.

    ``device`` is the number of the device that holds it, equal to the identity of a DeviceRef to
    the same device; None on the host.
    """

    padded_shape: tuple[int, ...]
    layout: str
    tile: Tile | None
    storage: str
    memory: Struct | None
    mesh_shape: tuple[int, ...] | None
    mesh: MeshPlacement | None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class TorchPlacement:
    """Where and how a torch tensor is stored.

    ``offset`` counts elements from the start of the storage. ``conjugate`` and ``negative`` are
    set when the numbers in memory have yet to be conjugated or negated.
    """

    strides: tuple[int, ...]
    layout: str
    device: str
    requires_grad: bool
    offset: int = 0
    conjugate: bool = False
    negative: bool = False


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor of torch."""
    return tuple(prod(max(1, size) for size in shape[n + 1 :]) for n in range(len(shape)))


QUANTIZED: Final = "quantized"
NESTED: Final = "nested"
"""Layouts of torch tensors that torch itself calls strided."""


@dataclass(frozen=True, slots=True)
class QuantizedPlacement(TorchPlacement):
    """How a quantized torch tensor is stored, and what its whole numbers stand for.

    ``scale`` and ``zero_point`` are those of a tensor that has one of each. A tensor that has them
    for each channel has only its ``axis`` here. Its layout is ``quantized``.
    """

    scheme: str = "per_tensor_affine"
    scale: float | None = None
    zero_point: int | None = None
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class NestedPlacement(TorchPlacement):
    """How a nested torch tensor is stored; ``components`` are the shapes of its tensors.

    Its layout is ``nested``, or ``jagged`` if these differ in one ``axis`` only; it has no strides.
    """

    components: tuple[tuple[int, ...], ...] = ()
    axis: int = 0


@dataclass(frozen=True, slots=True)
class NumpyPlacement:
    """How a numpy array is stored; strides and the offset in its buffer are in bytes."""

    strides: tuple[int, ...]
    offset: int = 0


TensorPlacement: TypeAlias = TtnnPlacement | TorchPlacement | NumpyPlacement


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor without its numbers.

    ``shape`` and ``dtype`` (``ttnn.bfloat16``, ``torch.float32``) determine the computation,
    ``placement`` where the tensor is stored. ``identity`` numbers the distinct tensors of one call
    in order of appearance: a tensor that is passed twice, updated in place or returned keeps its
    number. ``storage`` numbers their distinct buffers likewise: a tensor and its views share one.
    """

    shape: tuple[int, ...]
    dtype: str
    placement: TensorPlacement
    identity: int = 0
    storage: int = 0


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """A device that the caller supplied; a replay uses its own instead.

    ``identity`` numbers the distinct devices of one call, such as the parts of a mesh.
    """

    type: str
    mesh_shape: tuple[int, ...]
    identity: int = 0


@dataclass(frozen=True, slots=True)
class Handle:
    """A runtime object that has to be recreated: a semaphore, a sub-device, a generator.

    ``recipe`` holds the arguments to create one; None where its creation was not observed.
    ``identity`` numbers the distinct handles of one call.
    """

    type: str
    recipe: Struct | None
    identity: int = 0


@dataclass(frozen=True, slots=True)
class Callable:
    """A function or class, by its qualified name; names in data are never looked up."""

    name: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object that no converter knows. ``token`` is unique, so no two are ever equal."""

    type: str
    token: str


Value: TypeAlias = (
    Null
    | Bool
    | Int
    | Float
    | Complex
    | Text
    | Bytes
    | List
    | Tuple
    | Set
    | FrozenSet
    | Mapping
    | Symbol
    | Struct
    | TensorSpec
    | DeviceRef
    | Handle
    | Callable
    | Opaque
)


MAX_DEPTH: Final = 100
"""How deeply Values may be nested. Real arguments need about ten levels; the limit keeps hostile
data from exhausting the stack, which Python reports in a different place in each version."""

_PLAIN_KEY = re.compile(r"[$A-Za-z_][A-Za-z0-9_]*\Z")


_MAX_KEY_CHARS: Final = 200
"""Longer keys are cut in paths, which people read."""


@lru_cache(maxsize=4096)
def key_step(key: str) -> str:
    """Return the step of a path to ``key``: ``.name``, or ``["odd name"]``."""
    if len(key) > _MAX_KEY_CHARS:
        key = f"{key[:_MAX_KEY_CHARS]}..."
    if _PLAIN_KEY.match(key):
        return f".{key}"
    return f'["{key}"]'.encode("utf-8", "backslashreplace").decode("utf-8")


def walk(value: Value, path: str = "$") -> Iterator[tuple[str, Value]]:
    """Yield ``value`` and everything within it, outermost first, each with its path.

    The entries of sets and mappings have no order, so their paths say ``[*]``.
    """
    pending = [(path, value)]
    while pending:
        here, item = pending.pop()
        yield here, item
        pending.extend(reversed([(here + step, child) for step, child in children(item)]))


def tensors_in(value: Value) -> Iterator[TensorSpec]:
    """Yield the tensors within ``value``."""
    return (part for _, part in walk(value) if isinstance(part, TensorSpec))


def children(value: Value) -> list[tuple[str, Value]]:
    """Return the parts of ``value`` one level down, each with the step of its path."""
    match value:
        case List(items):
            return [(f"[{index}]", item) for index, item in enumerate(items)]
        case Tuple(items):
            return [(f".$tuple[{index}]", item) for index, item in enumerate(items)]
        case Set(items) | FrozenSet(items):
            step = ".$set[*]" if isinstance(value, Set) else ".$frozenset[*]"
            return [(step, item) for item in items]
        case Mapping(items):
            return _entries(items)
        case Struct(_, fields):
            return [(f".fields{key_step(name)}", item) for name, item in fields]
        case TensorSpec():
            return _memory(value)
        case Handle(_, recipe, _):
            return [] if recipe is None else [(".recipe", recipe)]
        case (
            Null()
            | Bool()
            | Int()
            | Float()
            | Complex()
            | Text()
            | Bytes()
            | Symbol()
            | DeviceRef()
            | Callable()
            | Opaque()
        ):
            return []


def _entries(items: frozenset[tuple[Value, Value]]) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for key, item in items:
        if isinstance(key, Text) and not key.value.startswith("$"):
            found.append((key_step(key.value), item))
        else:
            found += [(".$map[*][0]", key), (".$map[*][1]", item)]
    return found


def _memory(spec: TensorSpec) -> list[tuple[str, Value]]:
    placement = spec.placement
    if isinstance(placement, TtnnPlacement) and placement.memory is not None:
        return [(".$tensor.placement.memory", placement.memory)]
    return []


def storage_lengths(arguments: AbstractMapping[str, Value]) -> dict[int, int]:
    """Return the number of elements that each storage of torch needs."""
    lengths: dict[int, int] = defaultdict(int)
    for value in arguments.values():
        for _, part in walk(value):
            if isinstance(part, TensorSpec) and isinstance(part.placement, TorchPlacement):
                placement = part.placement
                pairs = zip(part.shape, placement.strides, strict=False)
                last = placement.offset + sum((size - 1) * stride for size, stride in pairs)
                length = placement.offset if 0 in part.shape else last + 1
                lengths[part.storage] = max(lengths[part.storage], length)
    return lengths

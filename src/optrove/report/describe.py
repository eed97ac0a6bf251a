"""Describe recorded values, and differences between arguments, as text.

    Tensor(shape=[1, 1, 12544, 32], dtype=BFLOAT8_B, memory=L1_HEIGHT_SHARDED,
           shard(shard_shape=[224, 32], grid=[(0,0)->(7,6)], orientation=ROW_MAJOR))

For reading only: usual properties are left out (tiles of 32x32, a mesh of one chip, fields that are
None, contiguous strides), and names lose their framework. Nothing parses this text.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, get_args

from optrove.model.case import argument_order
from optrove.model.differences import ABSENT, differences
from optrove.model.ttnn_classes import USUAL_TILE
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
    NestedPlacement,
    Null,
    NumpyPlacement,
    Opaque,
    QuantizedPlacement,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
    walk,
)
from optrove.report.document import Field, Fields

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.case import Case, NamedValues
    from optrove.model.differences import Parts
    from optrove.model.records import Call
    from optrove.model.values import MeshPlacement


_MAX_TEXT_CHARS: Final = 200


def value_text(value: Value) -> str:
    """Return a value as one line of text."""
    match value:
        case TensorSpec():
            return _tensor(value)
        case Struct():
            return _struct(value)
        case Symbol(type_name, name):
            return f"{_short(type_name)}.{name}"
        case DeviceRef() | Handle() | Callable() | Opaque():
            return _runtime_object(value)
        case List() | Tuple() | Set() | FrozenSet() | Mapping():
            return _container(value)
        case Null() | Bool() | Int() | Float() | Complex() | Text() | Bytes():
            return _scalar(value)


def in_reading_order(case: Case) -> NamedValues:
    """Return the arguments of a case as people count them: ``arg2`` before ``arg10``."""
    return tuple(sorted(case.arguments, key=lambda item: argument_order(item[0])))


def argument_fields(case: Case) -> Fields:
    """Return the arguments of a case as fields."""
    return Fields(tuple(Field(name, text, code=True) for name, text in argument_texts(case)))


def argument_texts(case: Case) -> tuple[tuple[str, str], ...]:
    """Return the names and texts of the arguments of a case, in reading order.

    A torch tensor that is an earlier one, or shares its storage, says so after the value.
    """
    tensors: dict[int, str] = {}
    storages: dict[int, str] = {}
    found = []
    for name, value in in_reading_order(case):
        parts = [value_text(value)]
        for path, part in walk(value, name):
            if isinstance(part, TensorSpec) and isinstance(part.placement, TorchPlacement):
                place = path.replace(".$tuple", "")
                shared = _shared(part, tensors, storages)
                if shared:
                    parts.append(shared if place == name else f"{place} {shared}")
                tensors.setdefault(part.identity, place)
                storages.setdefault(part.storage, place)
        found.append((name, ", ".join(parts)))
    return tuple(found)


def _shared(spec: TensorSpec, tensors: dict[int, str], storages: dict[int, str]) -> str:
    if spec.identity in tensors:
        return f"same tensor as {tensors[spec.identity]}"
    if spec.storage in storages:
        return f"shares its storage with {storages[spec.storage]}"
    return ""


def _tensor(spec: TensorSpec) -> str:
    facts = [f"shape={list(spec.shape)}"]
    dtype = spec.dtype.rpartition(".")[2]
    match spec.placement:
        case TtnnPlacement() as placement:
            return f"Tensor({', '.join([*facts, f'dtype={dtype.upper()}', *_ttnn(placement)])})"
        case TorchPlacement() as placement:
            facts += [f"dtype={dtype}", *_torch(spec.shape, placement)]
            return f"torch.Tensor({', '.join(facts)})"
        case NumpyPlacement():
            return f"numpy.ndarray({', '.join([*facts, f'dtype={dtype}'])})"


def _ttnn(placement: TtnnPlacement) -> list[str]:
    facts = []
    if placement.layout != "TILE":
        facts.append(f"layout={placement.layout}")
    elif placement.tile is not None and placement.tile.shape != USUAL_TILE.shape:
        facts.append(f"tile={_by(placement.tile.shape)}")
    if placement.storage != "device":
        facts.append(f"memory={placement.storage.upper()}")
    elif placement.memory is not None:
        facts += _memory(placement.memory, "memory=")
    if placement.mesh is not None and len(placement.mesh.coordinates) > 1:
        facts.append(f"mesh={_mesh(placement.mesh)}")
    return facts


def _mesh(mesh: MeshPlacement) -> str:
    parts = [f"shard({place})" if place is not None else "replicate" for place in mesh.placements]
    return f"{_by(mesh.distribution_shape)} {' '.join(parts)}"


def _torch(shape: tuple[int, ...], placement: TorchPlacement) -> list[str]:
    facts = []
    if placement.device != "cpu":
        facts.append(f"device={placement.device}")
    if isinstance(placement, QuantizedPlacement):
        facts.append(_quantization(placement))
    elif isinstance(placement, NestedPlacement):
        facts.append(f"{placement.layout} of {', '.join(map(_by, placement.components))}")
    elif placement.layout != "strided":
        facts.append(f"layout={placement.layout}")
    elif placement.strides != _contiguous(shape):
        facts.append(f"strides={list(placement.strides)}")
    if placement.offset:
        facts.append(f"offset {placement.offset}")
    if placement.conjugate:
        facts.append("conjugate")
    if placement.negative:
        facts.append("negative")
    if placement.requires_grad:
        facts.append("requires_grad")
    return facts


def _quantization(placement: QuantizedPlacement) -> str:
    if placement.axis is not None:
        return f"{placement.scheme}, axis {placement.axis}"
    return f"{placement.scheme}, scale {placement.scale}, zero point {placement.zero_point}"


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _struct(value: Struct) -> str:
    fields = dict(value.fields)
    match value.type, fields:
        case "ttnn.MemoryConfig", _:
            return f"MemoryConfig({', '.join(_memory(value))})"
        case "ttnn.ShardSpec", _:
            return _shard(value)
        case "ttnn.CoreRangeSet", {"ranges": List(items) | Tuple(items)}:
            return f"[{', '.join(map(value_text, items))}]"
        case "ttnn.CoreRange", {"start": start, "end": end}:
            return f"{value_text(start)}->{value_text(end)}"
        case "ttnn.CoreCoord", {"x": Int(x), "y": Int(y)}:
            return f"({x},{y})"
        case _:
            return f"{_short(value.type)}({_fields(value)})"


def _memory(memory: Struct, label: str = "") -> list[str]:
    """Return buffer and layout as one fact, and how shards are laid out as another."""
    match dict(memory.fields):
        case {"buffer_type": Symbol(_, buffer), "memory_layout": Symbol(_, layout)} as fields:
            facts = [f"{label}{buffer}_{layout}"]
        case _:
            return [f"{label}{_short(memory.type)}({_fields(memory)})"]
    named = {"buffer_type", "memory_layout", "shard_spec"}
    shard = fields.get("shard_spec")
    if isinstance(shard, Struct):
        facts.append(_shard(shard))
    rest = ((name, item) for name, item in memory.fields if name not in named)
    return facts + _named(rest)


def _shard(shard: Struct) -> str:
    match dict(shard.fields):
        case {"shape": shape, "grid": grid, "orientation": Symbol(_, orientation)}:
            cores = f"grid={value_text(grid)}, orientation={orientation}"
            return f"shard(shard_shape={value_text(shape)}, {cores})"
        case _:
            return f"shard({_fields(shard)})"


def _fields(value: Struct) -> str:
    return ", ".join(_named(value.fields))


def _named(fields: Iterable[tuple[str, Value]]) -> list[str]:
    return [f"{name}={value_text(item)}" for name, item in fields if not isinstance(item, Null)]


def _runtime_object(value: DeviceRef | Handle | Callable | Opaque) -> str:
    match value:
        case DeviceRef(type_name, mesh_shape):
            return f"{_short(type_name)}({_by(mesh_shape)})"
        case Handle(type_name, recipe):
            made = "unknown recipe" if recipe is None else _fields(recipe)
            return f"{_short(type_name)}({made})"
        case Callable(name):
            return name
        case Opaque(type_name):
            return f"<{type_name}, which no converter knows>"


def _container(value: List | Tuple | Set | FrozenSet | Mapping) -> str:
    match value:
        case List(items):
            return f"[{', '.join(map(value_text, items))}]"
        case Tuple(items):
            return f"({', '.join(map(value_text, items))}{',' if len(items) == 1 else ''})"
        case Set(items) | FrozenSet(items):
            return f"{{{', '.join(sorted(map(value_text, items)))}}}"
        case Mapping(items):
            entries = sorted(f"{value_text(key)}: {value_text(item)}" for key, item in items)
            return f"{{{', '.join(entries)}}}"


def _scalar(value: Null | Bool | Int | Float | Complex | Text | Bytes) -> str:
    match value:
        case Null():
            return "None"
        case Complex(real, imaginary):
            return str(complex(real.value, imaginary.value))
        case Text(text):
            cut = text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}..."
            return ascii(cut)
        case Bytes(content):
            return f"<{len(content)} bytes>"
        case Bool(plain) | Int(plain) | Float(plain):
            return str(plain)


def _short(type_name: str) -> str:
    return type_name.rpartition(".")[2]


def _by(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


NOT_GIVEN: Final = "(not given)"

# Their value_text is short, so their parts would say less than the whole.
_WHOLE: Final = frozenset({"ttnn.CoreCoord", "ttnn.CoreRange", "ttnn.CoreRangeSet", "ttnn.Shape"})
_KINDS: Final = get_args(Value)


@dataclass(frozen=True, slots=True)
class ArgumentChange:
    """A part of the arguments that differs, and how it reads in the one and the other."""

    path: str
    a: str
    b: str


def argument_changes(a: Case, b: Case) -> tuple[ArgumentChange, ...]:
    """Return every part that differs, in the order of the arguments' names."""
    ours, theirs = dict(a.arguments), dict(b.arguments)
    names = sorted(ours.keys() | theirs.keys())
    old, new = ({name: side.get(name, ABSENT) for name in names} for side in (ours, theirs))
    return tuple(
        ArgumentChange(path.removeprefix("."), _text(one), _text(other))
        for path, one, other in differences(old, new, _changed_parts)
    )


def _changed_parts(value: Any) -> Parts | None:
    """Return the named parts of a value; None if it is compared as a whole."""
    match value:
        case dict():
            return dict, value
        case TensorSpec():
            rest = {"shape": value.shape, "dtype": value.dtype, "identity": value.identity}
            parts = {**rest, "storage_number": value.storage, **_changed_fields(value.placement)}
            return TensorSpec, dict(sorted(parts.items()))
        case Struct(type_name, named):
            # A name for the type as well, so that two classes never look like one.
            parts = {"type": type_name, **dict(named)}
            return None if type_name in _WHOLE else (Struct, dict(sorted(parts.items())))
        case List(items) | Tuple(items):
            return type(value), dict(enumerate(items))
        case Mapping(items) if all(isinstance(key, Text) for key, _ in items):
            pairs = [(key.value, item) for key, item in items if isinstance(key, Text)]
            return Mapping, dict(sorted(pairs))
        case _ if is_dataclass(value) and not isinstance(value, _KINDS):
            return type(value), dict(sorted(_changed_fields(value).items()))
        case _:
            return None


def _changed_fields(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _text(part: Any) -> str:
    if part is ABSENT:
        return NOT_GIVEN
    if isinstance(part, _KINDS):
        return value_text(part)
    if is_dataclass(part):
        inside = ", ".join(f"{name}={_text(item)}" for name, item in _changed_fields(part).items())
        return f"{type(part).__name__}({inside})"
    return str(list(part)) if isinstance(part, tuple) else str(part)


def call_line(call: Call) -> str:
    """Return the file and line of the code that made a call; empty if unknown."""
    site = call.call_site
    return "" if site is None else f"{site.file.rpartition('/')[2]}:{site.line}"

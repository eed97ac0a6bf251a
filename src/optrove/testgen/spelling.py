"""Spell recorded values as Python source, formatted as ruff would.

An expression is a text, or a bracket with expressions in it. What does not fit into a line is
broken at the outermost bracket, each item with a comma behind it, which the formatter keeps.

The tables mirror the converters that take live objects apart: a class that is not in them takes
its fields by their names. What has no constructor call is Unspellable, with the path to it.
"""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

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
    key_step,
)
from optrove.serializer.hashes import canonical_bytes

if TYPE_CHECKING:
    from collections.abc import Callable as Function
    from collections.abc import Iterable, Sequence

    Fields: TypeAlias = dict[str, Value]
    Rule: TypeAlias = Function[[str, Fields, str], "Expression"]

WIDTH: Final = 100
_STEP: Final = "    "


@dataclass(frozen=True, slots=True)
class Bracket:
    """Items between two texts: a call, a list, a dictionary.

    ``single`` is a tuple of one item. ``comments`` stand above the items, and keep the
    bracket from ever being one line.
    """

    opening: str
    items: tuple[Expression, ...]
    closing: str
    single: bool = False
    comments: tuple[str | None, ...] = ()


Expression: TypeAlias = "str | Bracket"


def call(function: str, *items: Expression) -> Bracket:
    """Return the call of a function."""
    return Bracket(f"{function}(", items, ")")


def row(items: Iterable[Expression]) -> Bracket:
    """Return a list."""
    return Bracket("[", tuple(items), "]")


def tuple_of(items: Iterable[Expression]) -> Bracket:
    """Return a tuple."""
    listed = tuple(items)
    return Bracket("(", listed, ")", single=len(listed) == 1)


def named(name: str, expression: Expression) -> Expression:
    """Return an expression as the value of a keyword."""
    return prefixed(f"{name}=", expression)


def prefixed(prefix: str, expression: Expression) -> Expression:
    """Return an expression with a text before it."""
    if isinstance(expression, str):
        return prefix + expression
    return replace(expression, opening=prefix + expression.opening)


def flat(expression: Expression) -> str:
    """Return an expression as one line."""
    if isinstance(expression, str):
        return expression
    comma = "," if expression.single else ""
    return (
        f"{expression.opening}{', '.join(map(flat, expression.items))}{comma}{expression.closing}"
    )


def laid_out(expression: Expression, indent: int = 0, suffix: str = "") -> str:
    """Return an expression on as many lines as it takes; all but the first are indented.

    The first line is to be written at ``indent`` columns, ``suffix`` follows the last one.
    """
    return "\n".join(_lines(expression, indent, suffix)).removeprefix(" " * indent)


def _lines(expression: Expression, indent: int, suffix: str) -> Sequence[str]:
    margin = " " * indent
    whole = f"{margin}{flat(expression)}{suffix}"
    if isinstance(expression, str) or not expression.items:
        return [whole]
    if len(whole) <= WIDTH and not any(expression.comments):
        return [whole]
    lines = [margin + expression.opening]
    for place, item in enumerate(expression.items):
        comment = expression.comments[place] if expression.comments else None
        if comment is not None:
            lines.append(f"{margin}{_STEP}# {comment}")
        lines += _lines(item, indent + len(_STEP), ",")
    return [*lines, f"{margin}{expression.closing}{suffix}"]


FRAMEWORKS: Final = ("ttnn.", "torch.")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


class Unspellable(Exception):
    """A part of a case that no Python text makes again: where it is, and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


_QUASAR: Final = "operations.experimental.quasar"

UNPUBLISHED: Final = {
    "ttnn.CBIndex": "program_descriptor.CBIndex",
    "ttnn.MatmulUnifiedProgramConfig": f"{_QUASAR}.MatmulUnifiedProgramConfig",
    "ttnn.MorehSoftmaxBackwardOp": "operations.moreh.MorehSoftmaxBackwardOp",
    "ttnn.MorehSoftmaxBackwardOpParallelizationStrategy": (
        "operations.moreh.MorehSoftmaxBackwardOpParallelizationStrategy"
    ),
    "ttnn.MorehSoftmaxOp": "operations.moreh.MorehSoftmaxOp",
    "ttnn.MorehSoftmaxOpParallelizationStrategy": (
        "operations.moreh.MorehSoftmaxOpParallelizationStrategy"
    ),
    "ttnn.RoutingDirection": "multi_device.experimental.RoutingDirection",
    "ttnn.VectorUInt32": "program_descriptor.VectorUInt32",
    "ttnn.VectorUnpackToDestMode": "program_descriptor.VectorUnpackToDestMode",
}
"""Where ttnn keeps classes that it does not publish under the names that they go by here."""


def class_path(kind: str, path: str) -> str:
    """Return how a class is written in Python; Unspellable if it is none of a framework."""
    if not kind.startswith(FRAMEWORKS) or not _NAME.fullmatch(kind):
        raise Unspellable(path, f"{kind} belongs to a program, not to ttnn or torch")
    if kind in UNPUBLISHED:
        return f"ttnn._ttnn.{UNPUBLISHED[kind]}"
    quasar = kind.removeprefix("ttnn.experimental.quasar.")
    return kind if quasar == kind else f"ttnn._ttnn.{_QUASAR}.{quasar}"


def spelled(value: Value, path: str = "$") -> Expression:
    """Return the expression of a value; Unspellable if there is none."""
    match value:
        case Null() | Bool() | Int() | Float() | Complex() | Text() | Bytes():
            return scalar(value)
        case List() | Tuple() | Set() | FrozenSet() | Mapping():
            return _container(value, path)
        case Symbol():
            return _symbol(value, path)
        case Struct():
            return _struct(value, path)
        case TensorSpec():
            raise Unspellable(path, "a tensor in a place where only plain values are expected")
        case DeviceRef():
            return "device"
        case Handle():
            return _handle(value, path)
        case Callable(name):
            raise Unspellable(path, f"the function {name} is recorded by name only")
        case Opaque(kind):
            raise Unspellable(path, f"no converter knew this {kind} when it was recorded")


def scalar(value: Null | Bool | Int | Float | Complex | Text | Bytes) -> str:
    """Return a plain value as Python writes it."""
    match value:
        case Null():
            return "None"
        case Complex(real, imaginary):
            return f"complex({scalar(real)}, {scalar(imaginary)})"
        case Float(number) if not math.isfinite(number):
            return f'float("{number}")'
        case Text(text) | Bytes(text):
            return quoted(text)
        case Bool(plain) | Int(plain) | Float(plain):
            return repr(plain)


def quoted(text: str | bytes) -> str:
    """Return a string in double quotes, as the formatter likes it, unless it holds some."""
    written = ascii(text)
    inside = written[2:-1] if written.startswith("b") else written[1:-1]
    if written.endswith("'") and '"' not in inside:
        return f'{"b" if isinstance(text, bytes) else ""}"{inside}"'
    return written


def _container(value: List | Tuple | Set | FrozenSet | Mapping, path: str) -> Expression:
    match value:
        case List(items):
            return row(_items(items, path))
        case Tuple(items):
            return tuple_of(_items(items, f"{path}.$tuple"))
        case Set(items):
            ordered = tuple(_items(_sorted(items), f"{path}.$set"))
            return Bracket("{", ordered, "}") if ordered else "set()"
        case FrozenSet(items):
            return call("frozenset", row(_items(_sorted(items), f"{path}.$frozenset")))
        case Mapping(items):
            return _mapping(items, path)


def _sorted(items: Iterable[Value]) -> list[Value]:
    return sorted(items, key=_order)


def _order(value: Value) -> tuple[tuple[int, ...], bytes]:
    """Order coordinates by their numbers, all else by its canonical form."""
    match value:
        case Struct(fields=((_, List(items) | Tuple(items)),)):
            return tuple(item.value for item in items if isinstance(item, Int)), b""
    return (), canonical_bytes(value)


def _items(items: Iterable[Value], path: str) -> Iterable[Expression]:
    return (spelled(item, f"{path}[{place}]") for place, item in enumerate(items))


def _mapping(items: frozenset[tuple[Value, Value]], path: str) -> Expression:
    ordered = sorted(items, key=lambda item: canonical_bytes(Tuple(item)))
    entries = []
    for key, item in ordered:
        written = spelled(key, f"{path}.$map[*][0]")
        if not isinstance(written, str):
            raise Unspellable(path, "a dictionary with keys that are no plain values")
        entries.append(prefixed(f"{written}: ", spelled(item, f"{path}.$map[*][1]")))
    return Bracket("{", tuple(entries), "}")


_DTYPES: Final = frozenset(
    {"bfloat16", "bfloat4_b", "bfloat8_b", "float32", "int32", "uint16", "uint32", "uint8"}
)
_SHORT_SYMBOLS: Final = {
    ("ttnn.Layout", "TILE"): "ttnn.TILE_LAYOUT",
    ("ttnn.Layout", "ROW_MAJOR"): "ttnn.ROW_MAJOR_LAYOUT",
}


def _symbol(value: Symbol, path: str) -> str:
    kind, name = value.type, value.name
    if (kind, name) in _SHORT_SYMBOLS:
        return _SHORT_SYMBOLS[kind, name]
    if not _NAME.fullmatch(name):
        raise Unspellable(path, f"{kind} has a member that is no name: {name!a}")
    if kind == "ttnn.DataType" and name.lower() in _DTYPES:
        return f"ttnn.{name.lower()}"
    if kind == "torch.dtype":
        return dtype(f"torch.{name.removeprefix('torch.')}", path)
    if kind in ("torch.memory_format", "torch.layout"):
        return f"torch.{name.removeprefix('torch.')}"
    return f"{class_path(kind, path)}.{name}"


def dtype(name: str, path: str) -> str:
    """Return a dtype as it is written in Python: ``ttnn.bfloat16``, ``torch.float32``."""
    if not name.startswith(FRAMEWORKS) or not _NAME.fullmatch(name):
        raise Unspellable(path, f"{name!a} is no dtype of ttnn or torch")
    return name


def _struct(value: Struct, path: str) -> Expression:
    if value.type in NO_CONSTRUCTOR:
        raise Unspellable(path, f"no constructor of {value.type} takes its fields")
    kind = class_path(value.type, path)
    fields = dict(value.fields)
    usual = _by_place("value") if fields.keys() == {"value"} else _by_name
    rule = RULES.get(value.type, usual)
    try:
        return rule(kind, fields, path)
    except KeyError as error:
        raise Unspellable(path, f"{value.type} lacks the field {error}") from error


def _field(fields: Fields, name: str, path: str) -> Expression:
    return spelled(fields[name], f"{path}.fields{key_step(name)}")


def check_name(name: str, path: str) -> None:
    """Raise Unspellable for a name that Python does not allow for a keyword."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise Unspellable(path, f"{name!a} cannot be the name of an argument in Python")


def _by_name(kind: str, fields: Fields, path: str) -> Expression:
    for name in fields:
        check_name(name, path)
    return call(kind, *(named(name, _field(fields, name, path)) for name in fields))


def _by_place(*names: str) -> Rule:
    """Return the rule of a constructor that takes these fields without names."""

    def rule(kind: str, fields: Fields, path: str) -> Expression:
        return call(kind, *(_field(fields, name, path) for name in names))

    return rule


def _spread(first: str, rest: str) -> Rule:
    """Return the rule of a constructor that takes one field, and the items of another."""

    def rule(kind: str, fields: Fields, path: str) -> Expression:
        items = fields[rest]
        if not isinstance(items, (List, Tuple)):
            raise Unspellable(path, f"{rest} is no list")
        return call(kind, _field(fields, first, path), *_items(items.items, path))

    return rule


def _memory(kind: str, fields: Fields, path: str) -> Expression:
    switched = [name for name in fields if name.endswith("_allocation")]
    if switched:
        raise Unspellable(path, f"no constructor takes {', '.join(switched)}")
    plain = fields["shard_spec"] == Null() and fields["nd_shard_spec"] == Null()
    match fields["memory_layout"], fields["buffer_type"]:
        case Symbol(name="INTERLEAVED"), Symbol(name="DRAM" | "L1" as buffer) if plain:
            return f"ttnn.{buffer}_MEMORY_CONFIG"
    if fields["nd_shard_spec"] == Null():
        return _by_place("memory_layout", "buffer_type", "shard_spec")(kind, fields, path)
    if fields["shard_spec"] != Null():
        raise Unspellable(path, "only a tensor's own shape gives nd shards a shard_spec")
    return _by_place("buffer_type", "nd_shard_spec")(kind, fields, path)


def _tensor_spec(kind: str, fields: Fields, path: str) -> Expression:
    memory = fields["memory_config"]
    told = dict(memory.fields) if isinstance(memory, Struct) else {}
    if told.get("nd_shard_spec") != Null() or len(told) > _PARTS_OF_MEMORY:
        raise Unspellable(path, "a TensorSpec with nd shards, or with experimental memory")
    parts = {**told, "tile": fields["tile"]}
    rest = ("memory_layout", "shard_spec", "buffer_type", "tile")
    return call(
        kind,
        *(_field(fields, name, path) for name in ("shape", "dtype", "layout")),
        *(named(name, _field(parts, name, path)) for name in rest),
    )


def _corner(kind: str, fields: Fields, path: str) -> Expression:
    corners = (call("ttnn.MeshCoordinate", _field(fields, name, path)) for name in ("start", "end"))
    return call(kind, *corners)


_PARTS_OF_MEMORY: Final = 4

NO_CONSTRUCTOR: Final = frozenset(
    {
        "ttnn.ComputeConfigDescriptor",
        "ttnn.Config",
        "ttnn.DispatchCoreConfig",
        "ttnn.FabricRouterConfig",
        "ttnn.LayerNormParams",
        "ttnn.MatmulParams",
        "ttnn.SliceParams",
        "ttnn.disaggregation.DeviceGroup",
        "ttnn.disaggregation.KvCacheLocation",
        "ttnn.disaggregation.KvChunkAddressTableConfig",
    }
)
"""Classes whose objects are filled after they are made; no operation of a model takes them."""

RULES: Final[dict[str, Rule]] = {
    "ttnn.CoreCoord": _by_place("x", "y"),
    "ttnn.CoreRange": _by_place("start", "end"),
    "ttnn.CoreRangeSet": _by_place("ranges"),
    "ttnn.MemoryConfig": _memory,
    "ttnn.MeshCoordinate": _by_place("coords"),
    "ttnn.MeshCoordinateRange": _corner,
    "ttnn.MeshShape": _by_place("shape"),
    "ttnn.PlacementShard": _by_place("dim"),
    "ttnn.Shape": _by_place("shape"),
    "ttnn.ShardSpec": _by_place("grid", "shape", "orientation"),
    "ttnn.SubDeviceId": _by_place("id"),
    "ttnn.TensorSpec": _tensor_spec,
    "ttnn.Tile": _by_place("shape", "transpose"),
    "ttnn.UnaryWithParam": _spread("op_type", "params"),
    "ttnn.VectorUInt32": _by_place("items"),
    "ttnn.VectorUnpackToDestMode": _by_place("items"),
}
"""The constructors that do not take their fields by name."""

SEMAPHORE: Final = "ttnn.GlobalSemaphore"
ALL_CORES: Final = call("all_cores", "device")
"""Where a semaphore is put whose recording does not tell; the file defines the function."""

_MAKERS: Final = {
    SEMAPHORE: ("ttnn.create_global_semaphore", ("cores", "initial_value", "buffer_type")),
    "ttnn.GlobalCircularBuffer": (
        "ttnn.create_global_circular_buffer",
        ("sender_receiver_core_mapping", "size", "buffer_type"),
    ),
}


def _handle(value: Handle, path: str) -> Expression:
    if value.type == "ttnn.ReplicateTensorToMesh":
        return call("ttnn.ReplicateTensorToMesh", "device")
    if value.type == SEMAPHORE and value.recipe is None:
        return call("ttnn.create_global_semaphore", "device", ALL_CORES, "0")
    if value.type not in _MAKERS:
        raise Unspellable(path, f"a {value.type} is made by the program that uses it")
    if value.recipe is None:
        raise Unspellable(path, f"how this {value.type} was made was not observed")
    function, names = _MAKERS[value.type]
    fields = dict(value.recipe.fields)
    given = (_field(fields, name, f"{path}.recipe") for name in names if name in fields)
    return call(function, "device", *given)


_LONGEST: Final = 60
"""Longer ones are named."""

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NEEDLESS: Final = ("_PROGRAM_CONFIG", "_KERNEL_CONFIG", "_CONFIG")


class Constants:
    """The constants of one file, in the order in which they are first used."""

    def __init__(self) -> None:
        self._expressions: dict[str, Expression] = {}
        self._names: dict[Struct, str] = {}

    def use(self, value: Struct, path: str) -> Expression:
        """Return a struct as an expression: the name of a constant if it is long."""
        if value in self._names:
            return self._names[value]
        expression = spelled(value, path)
        if len(flat(expression)) <= _LONGEST:
            return expression
        name = self._unused(constant_name(value))
        self._names[value] = name
        self._expressions[name] = expression
        return name

    def lines(self) -> list[str]:
        """Return the assignments, one text each."""
        return [_assignment(name, expression) for name, expression in self._expressions.items()]

    def _unused(self, name: str) -> str:
        number = 1
        found = name
        while found in self._expressions:
            number += 1
            found = f"{name}_{number}"
        return found


def _assignment(name: str, expression: Expression) -> str:
    whole = laid_out(prefixed(f"{name} = ", expression))
    if len(whole.partition("\n")[0]) <= WIDTH:
        return whole
    return f"{name} = (\n    {laid_out(expression, 4)}\n)"


def constant_name(value: Struct) -> str:
    """Return what a configuration could be called: ``L1_WIDTH_SHARDED_32X288_ON_8X1``."""
    fields = dict(value.fields)
    match fields:
        case {"buffer_type": Symbol(name=buffer), "memory_layout": Symbol(name=layout)}:
            return "_".join([buffer, layout, *_shards(fields.get("shard_spec"))])
        case {"math_fidelity": Symbol(name=fidelity)}:
            return f"COMPUTE_{fidelity.upper()}"
    name = _WORDS.sub("_", value.type.rpartition(".")[2]).upper()
    for needless in _NEEDLESS:
        name = name.removesuffix(needless) or name
    return name


def _shards(shard: Value | None) -> list[str]:
    if not isinstance(shard, Struct):
        return []
    fields = dict(shard.fields)
    parts = []
    match fields.get("shape"):
        case List(items) | Tuple(items):
            parts.append("X".join(str(item.value) for item in items if isinstance(item, Int)))
    match fields.get("grid"):
        case Struct(fields=((_, List((Struct() as only,))),)):
            parts += _extent(only)
    return parts


def _extent(part: Struct) -> list[str]:
    """Return how many columns and rows of cores a range has."""
    match dict(part.fields):
        case {"start": Struct(fields=first), "end": Struct(fields=last)}:
            begin, end = dict(first), dict(last)
        case _:
            return []
    sizes = []
    for axis in ("x", "y"):
        low, high = begin.get(axis), end.get(axis)
        if not isinstance(low, Int) or not isinstance(high, Int):
            return []
        sizes.append(str(high.value - low.value + 1))
    return [f"ON_{'X'.join(sizes)}"]

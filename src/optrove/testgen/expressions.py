"""Recorded values as Python expressions, formatted as ruff does.

An expression is a text, or a bracket with expressions in it. An expression that does not fit on a
line is broken at the outermost bracket, with a comma after each item, which the formatter keeps.

The tables mirror the converters of live objects: a class that is not in them takes its fields by
name. A value that no constructor call makes is NotExpressible, with the path to it.
"""

from __future__ import annotations

import keyword
import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.frameworks.op_names import written_refusal
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

    ``single`` marks a tuple of one item. ``comments`` stand above the items; a bracket with
    comments is never on one line.
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


def prefixed(prefix: str, expression: Expression) -> Expression:
    """Return an expression with a text before it."""
    if isinstance(expression, str):
        return prefix + expression
    return replace(expression, opening=prefix + expression.opening)


def flat(expression: Expression) -> str:
    """Return an expression on one line."""
    if isinstance(expression, str):
        return expression
    items = ", ".join(map(flat, expression.items))
    return f"{expression.opening}{items}{',' * expression.single}{expression.closing}"


def formatted(expression: Expression, indent: int = 0, suffix: str = "") -> str:
    """Return an expression on as many lines as it needs; all but the first are indented.

    The first line will stand at column ``indent``, and ``suffix`` after the last one.
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


_MEMBER: Final = re.compile(r"_?[A-Za-z][A-Za-z0-9_]*")


class NotExpressible(Exception):
    """A part of a case that no Python expression makes: the path to it, and the reason."""

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
"""Where ttnn keeps the classes that are not public under their recorded names."""


BUILT_IN: Final = {"python.slice": "slice", "python.range": "range"}
"""The built-in classes that an argument may have."""


_PARAMETERS: Final = re.compile(
    r"ttnn\.((experimental\.quasar|disaggregation)\.)?"
    r"[A-Z]\w*?(Coefficients|Config|ConfigDescriptor|Coord|Coordinate|Geometry|Grid|Group|GroupIndex"
    r"|Id|Location|Override|Params|Range|RangeSet|Set|Spec|WithParam)|"
    r"ttnn\.(MeshShape|NdShardSpec|PlacementReplicate|PlacementShard|Rank|SemaphoreDescriptor|Shape"
    r"|Size|SocketConnection|TensorTopology|Tile|TileDescriptor|VectorUInt32"
    r"|VectorUnpackToDestMode)|torch\.(device|Size|return_types\.[a-z]\w*)",
    re.ASCII,
)
"""The classes of parameters: their constructors only take facts, and touch nothing else."""

_ENUMS: Final = re.compile(
    r"ttnn\.((experimental\.(quasar|fabric_mux)|disaggregation|cluster|graph|operations\.ccl"
    r"|KernelDescriptor|Op2DSliceConfig)\.)?[A-Z]\w*"
    r"|torch\.(qscheme|nn\.attention\.SDPBackend|distributed\.ReduceOp)",
    re.ASCII,
)
_CONSTANTS: Final = re.compile(
    r"(strided|jagged|_mkldnn|sparse_\w+|contiguous_format|preserve_format|channels_last(_3d)?)",
    re.ASCII,
)
"""The names of torch's layouts and memory formats."""

_DTYPE: Final = re.compile(
    r"ttnn\.(bfloat\w+|u?int\d+|float\d+|fp8_\w+)"
    r"|torch\.(bool|half|float|double|short|int|long|cfloat|cdouble|chalf"
    r"|(b?float|complex|[qu]?u?int|bits|quint)\d\w*)",
    re.ASCII,
)


def harmless(text: str) -> str:
    """Return recorded text that cannot end the docstring or comment in which it stands."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return plain.replace("\\", "/").replace('"', "'")


def class_path(kind: str, path: str) -> str:
    """Return the Python name of a class or enum; NotExpressible if no framework defines it."""
    if kind in BUILT_IN:
        return BUILT_IN[kind]
    if not (_PARAMETERS.fullmatch(kind) or _ENUMS.fullmatch(kind)):
        raise NotExpressible(
            path, f"{kind!a} belongs to a program, or is no class that arguments have"
        )
    if kind in UNPUBLISHED:
        return f"ttnn._ttnn.{UNPUBLISHED[kind]}"
    quasar = kind.removeprefix("ttnn.experimental.quasar.")
    return kind if quasar == kind else f"ttnn._ttnn.{_QUASAR}.{quasar}"


def expression_of(value: Value, path: str = "$") -> Expression:
    """Return the expression that makes a value; NotExpressible if Python has no such expression."""
    match value:
        case Null() | Bool() | Int() | Float() | Complex() | Text() | Bytes():
            return _scalar(value)
        case List() | Tuple() | Set() | FrozenSet() | Mapping():
            return _container(value, path)
        case Symbol():
            return _symbol(value, path)
        case Struct():
            return _struct(value, path)
        case TensorSpec():
            raise NotExpressible(path, "a tensor in a place where only plain values are expected")
        case DeviceRef():
            return "device"
        case Handle():
            return _handle(value, path)
        case Callable(name):
            raise NotExpressible(path, f"the function {name} is recorded by name only")
        case Opaque(kind):
            raise NotExpressible(path, f"no converter knew this {kind} when it was recorded")


def _scalar(value: Null | Bool | Int | Float | Complex | Text | Bytes) -> str:
    match value:
        case Null():
            return "None"
        case Complex(real, imaginary):
            return f"complex({_scalar(real)}, {_scalar(imaginary)})"
        case Float(number) if not math.isfinite(number):
            return f'float("{number}")'
        case Text(text) | Bytes(text):
            return quoted(text)
        case Bool(plain) | Int(plain) | Float(plain):
            return repr(plain)


def quoted(text: str | bytes) -> str:
    """Return a string in double quotes, as the formatter writes it, unless it contains some."""
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
            ordered = tuple(_items(sorted(items, key=_order), f"{path}.$set"))
            return Bracket("{", ordered, "}") if ordered else "set()"
        case FrozenSet(items):
            return call("frozenset", row(_items(sorted(items, key=_order), f"{path}.$frozenset")))
        case Mapping(items):
            return _mapping(items, path)


def _order(value: Value) -> tuple[tuple[int, ...], bytes]:
    """Return a key that sorts coordinates by number, and other values by their canonical form."""
    match value:
        case Struct(fields=((_, List(items) | Tuple(items)),)):
            return tuple(item.value for item in items if isinstance(item, Int)), b""
    return (), canonical_bytes(value)


def _items(items: Iterable[Value], path: str) -> Iterable[Expression]:
    return (expression_of(item, f"{path}[{place}]") for place, item in enumerate(items))


def _mapping(items: frozenset[tuple[Value, Value]], path: str) -> Expression:
    ordered = sorted(items, key=lambda item: canonical_bytes(Tuple(item)))
    entries = []
    for key, item in ordered:
        written = expression_of(key, f"{path}.$map[*][0]")
        if not isinstance(written, str):
            raise NotExpressible(path, "a dictionary with keys that are not plain values")
        entries.append(prefixed(f"{written}: ", expression_of(item, f"{path}.$map[*][1]")))
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
    if kind == "python.Ellipsis":
        return "..."
    if not _MEMBER.fullmatch(name.removeprefix("torch.")):
        raise NotExpressible(path, f"{kind!a} has a member that is not a name: {name!a}")
    if kind == "ttnn.DataType" and name.lower() in _DTYPES:
        return f"ttnn.{name.lower()}"
    if kind == "torch.dtype":
        return dtype(f"torch.{name.removeprefix('torch.')}", path)
    if kind in ("torch.memory_format", "torch.layout"):
        constant = name.removeprefix("torch.")
        if not _CONSTANTS.fullmatch(constant):
            raise NotExpressible(path, f"{kind} has no member {name!a}")
        return f"torch.{constant}"
    return f"{class_path(kind, path)}.{name}"


def dtype(name: str, path: str) -> str:
    """Return a dtype as an expression: ``ttnn.bfloat16``, ``torch.float32``."""
    if not _DTYPE.fullmatch(name):
        raise NotExpressible(path, f"{name!a} is not a dtype of ttnn or torch")
    return name


def _struct(value: Struct, path: str) -> Expression:
    if value.type in NO_CONSTRUCTOR:
        raise NotExpressible(path, f"no constructor of {value.type} takes its fields")
    if value.type not in BUILT_IN and not _PARAMETERS.fullmatch(value.type):
        raise NotExpressible(
            path, f"{value.type!a} belongs to a program, or is no class of parameters"
        )
    kind = class_path(value.type, path)
    fields = dict(value.fields)
    usual = _by_position("value") if fields.keys() == {"value"} else _by_name
    rule = RULES.get(value.type, usual)
    try:
        return rule(kind, fields, path)
    except KeyError as error:
        raise NotExpressible(path, f"{value.type} lacks the field {error}") from error


def _field(fields: Fields, name: str, path: str) -> Expression:
    return expression_of(fields[name], f"{path}.fields{key_step(name)}")


def check_op(op: str) -> None:
    """Raise NotExpressible for what is not the name of an operation: no program may call it."""
    why = written_refusal(op)
    if why is not None:
        raise NotExpressible("$.op", why)


def check_name(name: str, path: str) -> None:
    """Raise NotExpressible for a name that cannot be a keyword argument."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise NotExpressible(path, f"{name!a} cannot be the name of an argument in Python")


def _by_name(kind: str, fields: Fields, path: str) -> Expression:
    for name in fields:
        check_name(name, path)
    return call(kind, *(prefixed(f"{name}=", _field(fields, name, path)) for name in fields))


def _by_position(*names: str) -> Rule:
    """Return the rule of a constructor that takes these fields by position."""

    def rule(kind: str, fields: Fields, path: str) -> Expression:
        return call(kind, *(_field(fields, name, path) for name in names))

    return rule


def _unary(kind: str, fields: Fields, path: str) -> Expression:
    parameters = fields["params"]
    if not isinstance(parameters, (List, Tuple)):
        raise NotExpressible(path, "params is not a list")
    return call(kind, _field(fields, "op_type", path), *_items(parameters.items, path))


def _memory(kind: str, fields: Fields, path: str) -> Expression:
    switched = [name for name in fields if name.endswith("_allocation")]
    if switched:
        raise NotExpressible(path, f"no constructor takes {', '.join(switched)}")
    plain = fields["shard_spec"] == Null() and fields["nd_shard_spec"] == Null()
    match fields["memory_layout"], fields["buffer_type"]:
        case Symbol(name="INTERLEAVED"), Symbol(name="DRAM" | "L1" as buffer) if plain:
            return f"ttnn.{buffer}_MEMORY_CONFIG"
    if fields["nd_shard_spec"] == Null():
        return _by_position("memory_layout", "buffer_type", "shard_spec")(kind, fields, path)
    if fields["shard_spec"] != Null():
        raise NotExpressible(path, "only a tensor's own shape gives nd shards a shard_spec")
    return _by_position("buffer_type", "nd_shard_spec")(kind, fields, path)


def _tensor_spec(kind: str, fields: Fields, path: str) -> Expression:
    memory = fields["memory_config"]
    parts = dict(memory.fields) if isinstance(memory, Struct) else {}
    if parts.get("nd_shard_spec") != Null() or len(parts) > len(_MEMORY_FIELDS):
        raise NotExpressible(path, "a TensorSpec with nd shards, or with experimental memory")
    parts["tile"] = fields["tile"]
    rest = ("memory_layout", "shard_spec", "buffer_type", "tile")
    return call(
        kind,
        *(_field(fields, name, path) for name in ("shape", "dtype", "layout")),
        *(prefixed(f"{name}=", _field(parts, name, path)) for name in rest),
    )


def _corner(kind: str, fields: Fields, path: str) -> Expression:
    corners = (call("ttnn.MeshCoordinate", _field(fields, name, path)) for name in ("start", "end"))
    return call(kind, *corners)


_MEMORY_FIELDS: Final = ("memory_layout", "buffer_type", "shard_spec", "nd_shard_spec")

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
"""Classes whose objects get their fields after construction; no op of a model takes them."""

RULES: Final[dict[str, Rule]] = {
    "python.slice": _by_position("start", "stop", "step"),
    "python.range": _by_position("start", "stop", "step"),
    "ttnn.CoreCoord": _by_position("x", "y"),
    "ttnn.CoreRange": _by_position("start", "end"),
    "ttnn.CoreRangeSet": _by_position("ranges"),
    "ttnn.MemoryConfig": _memory,
    "ttnn.MeshCoordinate": _by_position("coords"),
    "ttnn.MeshCoordinateRange": _corner,
    "ttnn.MeshShape": _by_position("shape"),
    "ttnn.PlacementShard": _by_position("dim"),
    "ttnn.Shape": _by_position("shape"),
    "ttnn.ShardSpec": _by_position("grid", "shape", "orientation"),
    "ttnn.SubDeviceId": _by_position("id"),
    "ttnn.TensorSpec": _tensor_spec,
    "ttnn.Tile": _by_position("shape", "transpose"),
    "ttnn.UnaryWithParam": _unary,
    "ttnn.VectorUInt32": _by_position("items"),
    "ttnn.VectorUnpackToDestMode": _by_position("items"),
}
"""The constructors that do not take all fields by name."""

SEMAPHORE: Final = "ttnn.GlobalSemaphore"
ALL_CORES: Final = call("all_cores", "device")
"""The cores of a semaphore if they were not recorded; the file defines the function."""

_MAKERS: Final = {
    SEMAPHORE: ("ttnn.create_global_semaphore", ("cores", "initial_value", "buffer_type")),
    "ttnn.GlobalCircularBuffer": (
        "ttnn.create_global_circular_buffer",
        ("sender_receiver_core_mapping", "size", "buffer_type"),
    ),
    "ttnn.TensorToMesh": (
        "ttnn.create_mesh_mapper",
        ("placements", "mesh_shape_override", "mesh_offset_override"),
    ),
    "ttnn.MeshToTensor": (
        "ttnn.create_mesh_composer",
        ("dims", "mesh_shape_override", "mesh_offset_override"),
    ),
}
_CONFIGS: Final = {
    "ttnn.TensorToMesh": "ttnn.MeshMapperConfig",
    "ttnn.MeshToTensor": "ttnn.MeshComposerConfig",
}
"""The class that holds all that is known of a mapper or composer."""

_NO_OFFSET: Final = Struct("ttnn.MeshCoordinate", (("coords", List(())),))


def _handle(value: Handle, path: str) -> Expression:
    if value.type == "ttnn.ReplicateTensorToMesh":
        return call("ttnn.ReplicateTensorToMesh", "device")
    if value.type == SEMAPHORE and value.recipe is None:
        return call("ttnn.create_global_semaphore", "device", ALL_CORES, "0")
    if value.type not in _MAKERS:
        raise NotExpressible(path, f"a {value.type} is made by the program that uses it")
    if value.recipe is None:
        raise NotExpressible(path, f"how this {value.type} was made was not observed")
    function, names = _MAKERS[value.type]
    fields = {name: each for name, each in value.recipe.fields if each != _NO_OFFSET}
    given = (_field(fields, name, f"{path}.recipe") for name in names if name in fields)
    if value.type in _CONFIGS:
        return call(function, "device", call(_CONFIGS[value.type], *given))
    return call(function, "device", *given)


_MAX_CHARS: Final = 60
"""The longest configuration that stands where it is used; longer ones become constants."""

_NOT_IN_NAMES: Final = re.compile(r"\W+", re.ASCII)
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIXES: Final = ("_PROGRAM_CONFIG", "_KERNEL_CONFIG", "_CONFIG")


class Constants:
    """The constants of one file, in the order of their first use."""

    def __init__(self) -> None:
        self._expressions: dict[str, Expression] = {}
        self._names: dict[Struct, str] = {}

    def use(self, value: Struct, path: str) -> Expression:
        """Return the expression of a struct: the name of a constant if it is long."""
        if value in self._names:
            return self._names[value]
        expression = expression_of(value, path)
        if len(flat(expression)) <= _MAX_CHARS:
            return expression
        base = name = _NOT_IN_NAMES.sub("_", _constant_name(value))
        number = 1
        while name in self._expressions:
            number += 1
            name = f"{base}_{number}"
        self._names[value] = name
        self._expressions[name] = expression
        return name

    @property
    def text(self) -> str:
        """The assignments."""
        return "\n".join(_assignment(*each) for each in self._expressions.items())


def _assignment(name: str, expression: Expression) -> str:
    whole = formatted(prefixed(f"{name} = ", expression))
    if len(whole.partition("\n")[0]) <= WIDTH:
        return whole
    return f"{name} = (\n    {formatted(expression, 4)}\n)"


def _constant_name(value: Struct) -> str:
    """Return a name for a configuration: ``L1_WIDTH_SHARDED_32X288_ON_8X1``."""
    fields = dict(value.fields)
    match fields:
        case {"buffer_type": Symbol(name=buffer), "memory_layout": Symbol(name=layout)}:
            return "_".join([buffer, layout, *_shards(fields.get("shard_spec"))])
        case {"math_fidelity": Symbol(name=fidelity)}:
            return f"COMPUTE_{fidelity.upper()}"
    name = _WORDS.sub("_", value.type.rpartition(".")[2]).upper()
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix) or name
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
    """Return the columns and rows of a range of cores: ``ON_8X1``."""
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

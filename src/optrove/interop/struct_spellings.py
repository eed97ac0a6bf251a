"""Read ttnn's configurations out of the objects and texts that master files have for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.codec.decode import decode
from optrove.codec.text import MAX_INT_BITS
from optrove.errors import BadData
from optrove.interop.almost_json import NotAlmostJson, parse_almost_json
from optrove.interop.printed import (
    UnknownSpelling,
    as_boolean,
    core,
    core_range,
    core_ranges,
    read_printed,
)
from optrove.interop.ttnn_words import BOOLEANS, COMPUTE_CONFIG, CORE_RANGES, ENUMERATIONS, NULLS
from optrove.model.values import Bool, Float, Int, List, Null, Struct, Symbol, Text, Value
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.interop.understanding import Reading

# What follows from the rest of a memory configuration; the hash is ttnn's own and changes.
_DERIVED = frozenset({"is_sharded", "interleaved", "hash", "created_with_nd_shard_spec", "type"})
_SWITCHES = ("per_core_allocation", "range_lockstep_allocation")
_MEMORY_FIELDS = frozenset({"memory_layout", "buffer_type", "shard_spec", "nd_shard_spec"})


def member(text: Json, enumeration: str) -> str:
    """Return the name of a member: ``TILE`` for ``Layout.TILE``, ``Layout::TILE`` and ``TILE``."""
    if not isinstance(text, str):
        raise UnknownSpelling(f"{type(text).__name__} is no {enumeration}")
    head, _, name = text.replace("::", ".").rpartition(".")
    if head.rpartition(".")[2] not in (enumeration, "") or not name.isidentifier():
        raise UnknownSpelling(f"{text!r} is no {enumeration}")
    return name


def symbol(text: Json, enumeration: str) -> Symbol:
    """Return a member of an enumeration of ttnn."""
    return Symbol(f"ttnn.{enumeration}", member(text, enumeration))


def sizes(data: Json) -> tuple[int, ...]:
    """Return a row of whole numbers, written as a list or as text: ``[4, 8]``, ``{32, 32}``."""
    if isinstance(data, str):
        try:
            data = parse_almost_json(data)
        except NotAlmostJson as error:
            raise UnknownSpelling(f"{data!r} is no list of whole numbers") from error
    if not isinstance(data, list) or not all(_is_whole(item) for item in data):
        raise UnknownSpelling(f"{str(data)[:80]!r} is no list of whole numbers")
    return tuple(data)


def counts(data: Json) -> tuple[int, ...]:
    """Return a row of whole numbers from zero on, such as a shape."""
    row = sizes(data)
    if any(size < 0 for size in row):
        raise UnknownSpelling(f"{list(row)} is no shape")
    return row


def _is_whole(data: Json) -> bool:
    return type(data) is int and data.bit_length() <= MAX_INT_BITS


def is_wire(data: dict[str, Any]) -> bool:
    """Tell whether an object is in the form of ``wire``, as our own parameter files have it."""
    return any(key.startswith("$") for key in data)


def read_wire(data: Json) -> Value:
    """Read an object in the form of ``wire``."""
    try:
        return decode(data)
    except BadData as error:
        raise UnknownSpelling(str(error)) from error


def is_memory(data: dict[str, Any]) -> bool:
    """Tell whether an object is a memory configuration."""
    return "memory_layout" in data and "buffer_type" in data


def read_memory(data: dict[str, Any], path: str, reading: Reading) -> Struct:
    """Read a memory configuration; a part of it without a known spelling is kept as it is.

    As ttnn has it, ``nd_shard_spec`` counts only where the configuration was made with one;
    otherwise it follows from ``shard_spec``.
    """
    if is_wire(data):
        exact = read_wire(data)
        if not isinstance(exact, Struct):
            raise UnknownSpelling("a memory configuration that is none")
        return exact
    fields: list[tuple[str, Value]] = [
        ("memory_layout", symbol(data["memory_layout"], "TensorMemoryLayout")),
        ("buffer_type", symbol(data["buffer_type"], "BufferType")),
        ("shard_spec", _shard(data.get("shard_spec"), f"{path}.shard_spec", reading)),
    ]
    by_nd = data.get("created_with_nd_shard_spec", 1)
    nd_spec = data.get("nd_shard_spec") if by_nd else None
    fields.append(("nd_shard_spec", _shard(nd_spec, f"{path}.nd_shard_spec", reading)))
    fields += [(name, Bool(value=True)) for name in _SWITCHES if data.get(name)]
    for key in sorted(data.keys() - _MEMORY_FIELDS - _DERIVED - set(_SWITCHES)):
        reading.notes.append(f"not kept: {key} of a memory configuration")
    return Struct("ttnn.MemoryConfig", tuple(fields))


def _shard(data: Json, path: str, reading: Reading) -> Value:
    if data is None or (isinstance(data, str) and data in NULLS):
        return Null()
    kind = "NdShardSpec" if path.endswith("nd_shard_spec") else "ShardSpec"
    try:
        return read_shards(data, kind)
    except (ValueError, LookupError, TypeError, AttributeError):
        return reading.keep(kind, data, path)


def read_shards(data: Json, kind: str) -> Value:
    """Read a ShardSpec or an NdShardSpec, as ``kind`` says, from an object or printed text."""
    if kind == "NdShardSpec":
        return _nd_shard_spec(parse_almost_json(data) if isinstance(data, str) else data)
    return of_type(read_printed(data), kind) if isinstance(data, str) else _shard_spec(data)


def of_type(value: Value, kind: str) -> Value:
    """Return ``value`` if it is of the class that the file names; else UnknownSpelling."""
    named = value.type if isinstance(value, (Struct, Symbol)) else type(value).__name__.lower()
    if named.rpartition(".")[2] != kind:
        raise UnknownSpelling(f"a {named} where the file says {kind}")
    return value


def _shard_spec(data: dict[str, Any]) -> Struct:
    shape = data["shape"] if "shape" in data else data["shard_shape"]
    return Struct(
        "ttnn.ShardSpec",
        (
            ("grid", _grid(data["grid"])),
            ("shape", List(tuple(Int(size) for size in sizes(shape)))),
            ("orientation", symbol(data["orientation"], "ShardOrientation")),
        ),
    )


def _nd_shard_spec(data: dict[str, Any]) -> Struct:
    shape = List(tuple(Int(size) for size in sizes(data["shard_shape"])))
    strategy = data["shard_distribution_strategy"]
    return Struct(
        "ttnn.NdShardSpec",
        (
            ("grid", _grid(data["grid"])),
            ("shard_shape", Struct("ttnn.Shape", (("shape", shape),))),
            ("orientation", symbol(data["orientation"], "ShardOrientation")),
            ("shard_distribution_strategy", symbol(strategy, "ShardDistributionStrategy")),
        ),
    )


def _grid(data: Json) -> Struct:
    """Read core ranges: objects with start and end, or pairs of cores, or one pair alone.

    A list with one range in it may stand for that range, as C++ prints it.
    """
    if not isinstance(data, list):
        raise UnknownSpelling(f"{str(data)[:80]!r} is no grid of cores")
    if data and all(isinstance(item, dict) and "x" in item for item in data):
        data = [data]
    return core_ranges(tuple(_range(item) for item in data))


def _range(data: Json) -> Struct:
    match data:
        case {"start": start, "end": end} | [start, end] | [{"start": start, "end": end}]:
            return core_range(read_core(start), read_core(end))
    raise UnknownSpelling(f"{str(data)[:80]!r} is no range of cores")


def read_core(data: Json) -> Struct:
    """Read the coordinate of a core: an object with x and y."""
    match data:
        case {"x": x, "y": y} if len(data) == len(("x", "y")) and _is_whole(x) and _is_whole(y):
            return core(x, y)
    raise UnknownSpelling(f"{str(data)[:80]!r} is no core")


def is_compute(data: dict[str, Any]) -> bool:
    """Tell whether an object is a compute configuration, whose class is not told."""
    return "math_fidelity" in data and "math_approx_mode" in data


def read_compute(data: dict[str, Any], path: str, reading: Reading) -> Struct:
    """Read a compute configuration."""
    return Struct(COMPUTE_CONFIG, read_fields(data, path, reading))


def read_fields(data: dict[str, Any], path: str, reading: Reading) -> tuple[tuple[str, Value], ...]:
    """Read the fields of a configuration; one without a known spelling is kept as it is."""
    fields = []
    for name, item in data.items():
        if name == "type":
            continue
        try:
            value = _field(name, item)
        except UnknownSpelling:
            value = reading.keep(name, item, path + key_step(name))
        fields.append((name, value))
    return tuple(fields)


def _field(name: str, data: Json) -> Value:
    if data is None or (isinstance(data, str) and data in NULLS):
        return Null()
    if name in ENUMERATIONS:
        return symbol(data, ENUMERATIONS[name])
    if name in BOOLEANS:
        return _truth(data)
    if name in CORE_RANGES and not data:
        return core_ranges(())
    match data:
        case {"op_type": str(kind), "param": list(params), **rest} if not rest:
            return _activation(kind, params)
        case dict():
            return read_core(data)
        case list():
            return _list(data)
    return plain(data)


def _activation(kind: str, params: list[Any]) -> Struct:
    """Read a fused activation; ttnn itself writes a number for its kind, which is not read."""
    if not all(type(item) is float for item in params):
        raise UnknownSpelling("an activation with other parameters than numbers")
    return Struct(
        "ttnn.UnaryWithParam",
        (("op_type", symbol(kind, "UnaryOpType")), ("params", List(tuple(map(Float, params))))),
    )


def _list(data: list[Any]) -> Value:
    if data and all(isinstance(item, dict) and "start" in item for item in data):
        return _grid(data)
    return List(tuple(_list(item) if isinstance(item, list) else plain(item) for item in data))


def _truth(data: Json) -> Value:
    spellings = {"True": True, "False": False, "true": True, "false": False}
    if isinstance(data, str) and data in spellings:
        return Bool(value=spellings[data])
    value = as_boolean("inplace", plain(data))
    if not isinstance(value, Bool):
        raise UnknownSpelling(f"{data!r} is neither true nor false")
    return value


def plain(data: Json) -> Value:
    """Read what JSON has of its own; text that names a member of an enumeration is one."""
    match data:
        case None:
            return Null()
        case bool():
            return Bool(data)
        case int() if _is_whole(data):
            return Int(data)
        case float():
            return Float(data)
        case str():
            return _word(data)
    raise UnknownSpelling(f"{str(data)[:80]!r} is no plain value")


def _word(text: str) -> Value:
    if "::" in text or "." in text:
        try:
            value = read_printed(text)
        except UnknownSpelling:
            return Text(text)
        return value if isinstance(value, Symbol) else Text(text)
    return Text(text)

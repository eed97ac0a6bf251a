"""Values in the JSON of tt-metal's vector files, as its runner reads and writes them.

A vector of tt-metal reaches ``run`` through a file: texts in it that are Python literals or names
of ttnn's enum members become these, ``{"type", "data"}`` becomes an object of ttnn, everything else
stays as it is. ``read_value`` does the same for vectors that come from a module without a file.
"""

from __future__ import annotations

import ast
import json
import warnings
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from optrove.model.ttnn_classes import core, core_range, core_ranges, numbers
from optrove.model.values import (
    Bool,
    Float,
    Int,
    List,
    Mapping,
    Null,
    Struct,
    Symbol,
    Text,
    Tuple,
    Value,
)
from optrove.serializer.build import build
from optrove.serializer.tables import SymbolConverter

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from optrove.serializer.tables import Tables
    from optrove.serializer.text import Json

_OBJECT: Final = {"type", "data"}
_PREFIX: Final = "ttnn._ttnn.tensor."
_NOT_LITERALS: Final = frozenset({"sum", "mean", "max", "min", "std", "var"})
_BAD_LITERAL: Final = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


def is_tt_metal(document: Json) -> bool:
    """Return whether a document has the form of tt-metal's vector files: suites of vectors."""
    return (
        isinstance(document, dict)
        and any(document.values())
        and not any(name.startswith("$") for name in document)
        and all(
            isinstance(suite, dict) and all(isinstance(each, dict) for each in suite.values())
            for suite in document.values()
        )
    )


def read_value(data: Any, module: ModuleType, tables: Tables) -> Any:
    """Return a value of a vector as tt-metal's runner passes it to ``run``.

    ``data`` is JSON of a vector file, or a live value of a module. ValueError for an object of ttnn
    that cannot be made.
    """
    if type(data) is str:
        return _read_text(data, module, tables)
    if type(data) is list:
        return [read_value(item, module, tables) for item in data]
    if type(data) is dict:
        kind = data.get("type")
        if data.keys() == _OBJECT and isinstance(kind, str):
            read = _READERS.get(kind.rpartition(".")[2]) if kind.startswith("ttnn.") else None
            if read is not None:
                content = data["data"]
                content = json.loads(content) if isinstance(content, str) else content
                return build(read(content, tables), tables)
        return {key: read_value(item, module, tables) for key, item in data.items()}
    return data


def _read_text(text: str, module: ModuleType, tables: Tables) -> Any:
    kind, _, member = text.removeprefix("ttnn.").rpartition(".")
    if kind:
        name = "torch.dtype" if kind == "torch" else f"ttnn.{kind}"
        converter = tables.by_name.get(name)
        if isinstance(converter, SymbolConverter) and member in converter.members:
            return converter.members[member]
        own = getattr(module, kind, None)
        if isinstance(own, type) and issubclass(own, Enum) and member in own.__members__:
            return own[member]
    if text in _NOT_LITERALS:
        return text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    except _BAD_LITERAL:
        return text


def _symbol(data: Json, kind: str, tables: Tables) -> Symbol:
    """Return a member of an enum of ttnn, which is given by its name or its number."""
    converter = tables.by_name[kind]
    assert isinstance(converter, SymbolConverter)  # noqa: S101 - an enum; narrows the type
    for name, member in converter.members.items():
        if data in (name, getattr(member, "value", None)):
            return Symbol(kind, name)
    raise ValueError(f"{kind} has no member {data!r}")


def _coordinate(data: Json, tables: Tables) -> Struct:  # noqa: ARG001 - the signature of all readers
    return core(data["x"], data["y"])


def _core_range(data: Json, tables: Tables) -> Struct:
    return core_range(_coordinate(data["start"], tables), _coordinate(data["end"], tables))


def _core_ranges(data: Json, tables: Tables) -> Struct:
    return core_ranges(tuple(_core_range(each, tables) for each in data))


def _sizes(data: Json) -> List:
    if not isinstance(data, list) or not all(type(size) is int for size in data):
        raise ValueError(f"the file does not have the shape of the shards, but {str(data)[:60]!r}")
    return numbers(data)


def _shard_spec(data: Json, tables: Tables) -> Struct:
    return Struct(
        "ttnn.ShardSpec",
        (
            ("grid", _core_ranges(data["grid"], tables)),
            ("orientation", _symbol(data["orientation"], "ttnn.ShardOrientation", tables)),
            ("shape", _sizes(data["shape"])),
        ),
    )


def _nd_shard_spec(data: Json, tables: Tables) -> Struct:
    strategy = data["shard_distribution_strategy"]
    return Struct(
        "ttnn.NdShardSpec",
        (
            ("grid", _core_ranges(data["grid"], tables)),
            ("orientation", _symbol(data["orientation"], "ttnn.ShardOrientation", tables)),
            (
                "shard_distribution_strategy",
                _symbol(strategy, "ttnn.ShardDistributionStrategy", tables),
            ),
            ("shard_shape", Struct("ttnn.Shape", (("shape", _sizes(data["shard_shape"])),))),
        ),
    )


def _memory_config(data: Json, tables: Tables) -> Struct:
    shards = data.get("shard_spec")
    nd_shards = data.get("nd_shard_spec") if data.get("created_with_nd_shard_spec") else None
    layout = _symbol(data["memory_layout"], "ttnn.TensorMemoryLayout", tables)
    return Struct(
        "ttnn.MemoryConfig",
        (
            ("buffer_type", _symbol(data["buffer_type"], "ttnn.BufferType", tables)),
            ("memory_layout", layout),
            ("nd_shard_spec", Null() if nd_shards is None else _nd_shard_spec(nd_shards, tables)),
            (
                "shard_spec",
                Null() if shards is None or nd_shards else _shard_spec(shards, tables),
            ),
        ),
    )


_READERS: Final[dict[str, Callable[[Json, Tables], Struct]]] = {
    "CoreCoord": _coordinate,
    "CoreRange": _core_range,
    "CoreRangeSet": _core_ranges,
    "MemoryConfig": _memory_config,
    "ShardSpec": _shard_spec,
}


def write_value(value: Value) -> Json:
    """Return a value as JSON of tt-metal's vector files; ValueError if it has no such form."""
    match value:
        case Null():
            return None
        case Bool() | Int() | Float() | Text():
            return value.value
        case List(items):
            return [write_value(item) for item in items]
        case Mapping(entries) if all(isinstance(key, Text) for key, _ in entries):
            ordered = sorted(entries, key=lambda entry: entry[0].value)  # type: ignore[union-attr]  # texts, as tested
            return {key.value: write_value(item) for key, item in ordered}  # type: ignore[union-attr]
        case Tuple():
            return repr(_literal(value))
        case Symbol("torch.dtype", name):
            return f"torch.{name}"
        case Symbol(kind, name):
            # "ttnn.Layout", or "python.enum:module:Class" for an enum of the module.
            return f"{kind.rpartition(':')[2].removeprefix('ttnn.')}.{name}"
        case Struct(kind, _) if kind.rpartition(".")[2] in _READERS:
            return {"type": _PREFIX + kind.rpartition(".")[2], "data": _object_data(value)}
    raise ValueError(f"{type(value).__name__} has no form in tt-metal's vector files")


def _literal(value: Value) -> Any:
    match value:
        case Null():
            return None
        case Bool() | Int() | Float() | Text():
            return value.value
        case List(items):
            return [_literal(item) for item in items]
        case Tuple(items):
            return tuple(_literal(item) for item in items)
    raise ValueError(
        f"{type(value).__name__} within a tuple has no form in tt-metal's vector files"
    )


_NUMBERED: Final = {
    "ttnn.ShardOrientation": ("ROW_MAJOR", "COL_MAJOR"),
    "ttnn.ShardDistributionStrategy": ("ROUND_ROBIN_1D", "GRID_2D"),
}
"""The members of the enums that have numbers there."""


def _object_data(value: Value) -> Json:
    """Return the parts of an object of ttnn as its ``to_json`` has them."""
    match value:
        case Struct("ttnn.CoreRangeSet", (("ranges", ranges),)):
            return _object_data(ranges)
        case Struct("ttnn.MemoryConfig", fields):
            if dict(fields).get("nd_shard_spec", Null()) != Null():
                raise ValueError("nd shards have no form in tt-metal's vector files")
            known = [(name, item) for name, item in fields if item != Null()]
            return {
                **{name: _object_data(item) for name, item in known},
                "created_with_nd_shard_spec": False,
                "per_core_allocation": False,
            }
        case Struct(_, fields):
            return {name: _object_data(item) for name, item in fields}
        case List(items):
            return [_object_data(item) for item in items]
        case Symbol(kind, name):
            return _NUMBERED[kind].index(name) if kind in _NUMBERED else name
    return write_value(value)

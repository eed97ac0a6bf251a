"""Values as JSON-able builtins: the form, and the encoder; ``decode`` reads it back.

What JSON has is written as JSON has it; everything else is an object with one ``$`` key:

    None, bool, int, str, list      as they are; finite floats always with a point or exponent
    {"a": 1}                        a mapping whose keys are strings without a leading ``$``
    {"$map": [[key, value], ...]}   any other mapping
    {"$float": "nan"}               also "inf" and "-inf"
    {"$text": base64}               a string with a surrogate pair, which JSON would join
    {"$bytes": base64}  {"$complex": [re, im]}
    {"$tuple": [...]}  {"$set": [...]}  {"$frozenset": [...]}
    {"$symbol": type, "name": name}
    {"$struct": type, "fields": {name: value}}
    {"$tensor": {"shape", "dtype", "identity", "storage", "placement"}}
    {"$device": type, "mesh_shape": [...], "identity": number}
    {"$handle": type, "recipe": struct or null, "identity": number}
    {"$callable": name}  {"$opaque": type, "token": token}

Sets and ``$map`` entries are sorted by their own canonical text, so that equal Values have
one form whatever the order of Python's hashes.
"""

from __future__ import annotations

import base64
import math
import re
from dataclasses import fields
from typing import Any, Final

from optrove.codec.decode import decode
from optrove.codec.text import MAX_INT_BITS, Json, write
from optrove.errors import BadData, Fault
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
    MeshPlacement,
    Null,
    NumpyPlacement,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorPlacement,
    TensorSpec,
    Text,
    Tile,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
)
from optrove.model.walk import MAX_DEPTH, key_step

__all__ = ["decode", "encode"]

_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def encode(value: Value, *, depth: int = 0) -> Json:
    """Return the JSON-able form of ``value``, from which ``decode`` makes an equal one.

    BadData for what no reader would accept: nesting beyond the limit, a number beyond the
    limit, a struct or mapping that has a name or key twice, an unreadable name. ``depth`` is how
    many levels of others the value is going to lie within.
    """
    return _value(value, "$", depth)


def _value(value: Value, path: str, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise _bad(path, f"nested more than {MAX_DEPTH} levels deep")
    match value:
        case Null():
            return None
        case Bool(content) | Int(content):
            return _whole(content, path)
        case Float() | Complex() | Text() | Bytes():
            return _scalar(value)
        case List() | Tuple() | Set() | FrozenSet() | Mapping():
            return _container(value, path, depth)
        case Struct() | TensorSpec() | Handle():
            return _compound(value, path, depth)
        case Symbol() | DeviceRef() | Callable() | Opaque():
            return _named(value, path)


def _whole(content: int, path: str) -> int:
    if content.bit_length() > MAX_INT_BITS:
        raise _bad(path, f"a number of {content.bit_length()} bits; the limit is {MAX_INT_BITS}")
    return content


def _scalar(value: Float | Complex | Text | Bytes) -> Json:
    match value:
        case Float(number):
            return number if math.isfinite(number) else {"$float": str(number)}
        case Complex(real, imaginary):
            return {"$complex": [_scalar(real), _scalar(imaginary)]}
        case Text(text):
            return {"$text": _base64(_utf8(text))} if _SURROGATE_PAIR.search(text) else text
        case Bytes(content):
            return {"$bytes": _base64(content)}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _container(value: List | Tuple | Set | FrozenSet | Mapping, path: str, depth: int) -> Json:
    match value:
        case List(items):
            return _items(items, path, depth)
        case Tuple(items):
            return {"$tuple": _items(items, f"{path}.$tuple", depth)}
        case Set(items):
            return {"$set": _distinct(items, f"{path}.$set[*]", depth)}
        case FrozenSet(items):
            return {"$frozenset": _distinct(items, f"{path}.$frozenset[*]", depth)}
        case Mapping(items):
            return _mapping(items, path, depth)


def _items(items: tuple[Value, ...], path: str, depth: int) -> list[Json]:
    return [_value(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(items)]


def _distinct(items: frozenset[Value], path: str, depth: int) -> list[Json]:
    return _sorted([_value(item, path, depth + 1) for item in items])


def _sorted(items: list[Json]) -> list[Json]:
    return sorted(items, key=write)


def _mapping(items: frozenset[tuple[Value, Value]], path: str, depth: int) -> Json:
    if len({key for key, _ in items}) != len(items):
        raise _bad(path, "a mapping with the same key twice")
    texts = [key.value for key, _ in items if isinstance(key, Text)]
    if len(texts) == len(items) and all(_is_plain_key(text) for text in texts):
        values = {key.value: item for key, item in items if isinstance(key, Text)}
        return {key: _value(values[key], path + key_step(key), depth + 1) for key in sorted(values)}
    pairs = [
        [
            _value(key, f"{path}.$map[*][0]", depth + 1),
            _value(item, f"{path}.$map[*][1]", depth + 1),
        ]
        for key, item in items
    ]
    return {"$map": _sorted(pairs)}


def _is_plain_key(text: str) -> bool:
    return not text.startswith("$") and not _SURROGATE_PAIR.search(text)


def _compound(value: Struct | TensorSpec | Handle, path: str, depth: int) -> Json:
    match value:
        case Struct(type_name, named):
            encoded = {
                _name(name, path): _value(item, f"{path}.fields{key_step(name)}", depth + 1)
                for name, item in named
            }
            if len(encoded) != len(named):
                raise _bad(path, "a struct with the same field twice")
            return {"$struct": _name(type_name, path), "fields": encoded}
        case TensorSpec(shape, dtype, placement, identity, storage):
            content: dict[str, Json] = {"shape": list(shape), "dtype": _name(dtype, path)}
            content |= {"identity": identity, "storage": storage}
            content["placement"] = _placement(placement, f"{path}.$tensor.placement", depth)
            return {"$tensor": content}
        case Handle(type_name, recipe, identity):
            made = None if recipe is None else _value(recipe, f"{path}.recipe", depth + 1)
            return {"$handle": _name(type_name, path), "recipe": made, "identity": identity}


def _placement(placement: TensorPlacement, path: str, depth: int) -> Json:
    content = {field.name: _plain(getattr(placement, field.name)) for field in fields(placement)}
    match placement:
        case TtnnPlacement():
            if placement.memory is not None:
                content["memory"] = _value(placement.memory, f"{path}.memory", depth + 1)
            return {"kind": "ttnn", **content}
        case TorchPlacement():
            return {"kind": "torch", **content}
        case NumpyPlacement():
            return {"kind": "numpy", **content}


def _plain(part: Any) -> Json:
    """Return a part of a placement that holds no Values as builtins."""
    if isinstance(part, (Tile, MeshPlacement)):
        return {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    if isinstance(part, tuple):
        # Most are numbers: a mesh of 32 chips has 64 of them.
        return [item if type(item) is int else _plain(item) for item in part]
    return part


def _named(value: Symbol | DeviceRef | Callable | Opaque, path: str) -> Json:
    match value:
        case Symbol(type_name, name):
            return {"$symbol": _name(type_name, path), "name": _name(name, path)}
        case DeviceRef(type_name, mesh_shape, identity):
            content = {"$device": _name(type_name, path), "mesh_shape": list(mesh_shape)}
            return {**content, "identity": identity}
        case Callable(name):
            return {"$callable": _name(name, path)}
        case Opaque(type_name, token):
            return {"$opaque": _name(type_name, path), "token": _name(token, path)}


def _name(text: str, path: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _bad(path, f"the name {text!a} holds a surrogate; names are valid Unicode") from error
    return text


def _bad(path: str, problem: str) -> BadData:
    return BadData((Fault(path, problem),))

"""Values as JSON-able builtins: encode and decode.

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
import binascii
import math
import re
from collections.abc import Callable as Function
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, Final

from optrove.errors import BadData, Fault
from optrove.model.values import (
    MAX_DEPTH,
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
    key_step,
)
from optrove.serializer.text import (
    MAX_INT_BITS,
    Faults,
    Json,
    Reader,
    check_keys,
    check_name,
    found,
    list_of,
    optional,
    pair_of,
    read_bool,
    read_count,
    read_counts,
    read_integer,
    read_name,
    read_object,
    read_text,
    write,
)

_integers = list_of(read_integer)
_size_pair = pair_of(read_count)

_TILE: dict[str, Reader[Any]] = {
    "shape": _size_pair,
    "face_shape": _size_pair,
    "transpose_within_face": read_bool,
    "transpose_of_faces": read_bool,
}
_MESH: dict[str, Reader[Any]] = {
    "distribution_shape": read_counts,
    "placements": list_of(optional(read_integer)),
    "coordinates": list_of(read_counts),
}
_TORCH: dict[str, Reader[Any]] = {
    "strides": _integers,
    "layout": read_name,
    "device": read_name,
    "requires_grad": read_bool,
    "offset": read_count,
    "conjugate": read_bool,
    "negative": read_bool,
}
_NUMPY: dict[str, Reader[Any]] = {"strides": _integers, "offset": read_integer}

NO_TENSOR = TensorSpec((), "", NumpyPlacement(()))
"""What stands for a tensor that could not be read, until BadData is raised."""


def tensor_reader(read_memory: Reader[Struct | None]) -> Reader[TensorSpec]:
    """Return a reader of tensor specs; ``read_memory`` reads their memory configurations."""
    readers: dict[str, Reader[Any]] = {
        "shape": read_counts,
        "dtype": read_name,
        "identity": read_count,
        "storage": read_count,
        "placement": _placement_reader(read_memory),
    }

    def read_tensor(data: Json, path: str, faults: Faults) -> TensorSpec:
        fields = read_object(data, path, faults, readers)
        if fields is None or fields["placement"] is None:
            return NO_TENSOR
        return TensorSpec(**fields)

    return read_tensor


def _placement_reader(read_memory: Reader[Struct | None]) -> Reader[TensorPlacement | None]:
    ttnn: dict[str, Reader[Any]] = {
        "padded_shape": read_counts,
        "layout": read_name,
        "tile": optional(_read_tile),
        "storage": read_name,
        "memory": optional(read_memory),
        "mesh_shape": optional(read_counts),
        "mesh": optional(_read_mesh),
        "device": optional(read_count),
    }
    kinds: dict[str, tuple[type[Any], dict[str, Reader[Any]]]] = {
        "ttnn": (TtnnPlacement, ttnn),
        "torch": (TorchPlacement, _TORCH),
        "numpy": (NumpyPlacement, _NUMPY),
    }

    def read_placement(data: Json, path: str, faults: Faults) -> TensorPlacement | None:
        kind = data.get("kind") if type(data) is dict else None
        if type(kind) is not str or kind not in kinds:
            known = ", ".join(kinds)
            faults.append(
                Fault(path, f"expected a placement of kind {known}, found {found(kind or data)}")
            )
            return None
        placement, readers = kinds[kind]
        content = {key: item for key, item in data.items() if key != "kind"}
        fields = read_object(content, path, faults, readers)
        return None if fields is None else placement(**fields)

    return read_placement


def _read_tile(data: Json, path: str, faults: Faults) -> Tile | None:
    fields = read_object(data, path, faults, _TILE)
    return None if fields is None else Tile(**fields)


def _read_mesh(data: Json, path: str, faults: Faults) -> MeshPlacement | None:
    fields = read_object(data, path, faults, _MESH)
    return None if fields is None else MeshPlacement(**fields)


UNREAD: Final = Opaque("unread", "unread")
"""What stands for a part that could not be read; recognised by being this very object."""

MAX_FAULTS: Final = 1000
"""How many faults are listed. Also ends the reading of lists that contain themselves twice, which
would otherwise be read 2 to the power of MAX_DEPTH times."""


def decode(data: Json) -> Value:
    """Return the Value that ``data`` spells; BadData names every fault with its path."""
    value, faults = decode_partly(data)
    if faults:
        raise bad_data(faults)
    return value


def decode_partly(data: Json) -> tuple[Value, Faults]:
    """Return what can be read of ``data``, with UNREAD for the rest, and every fault."""
    faults: Faults = []
    value = read_value(data, "$", faults)
    return value, faults


def bad_data(faults: Faults) -> BadData:
    """Return the error that lists these faults; it says so where it does not list them all."""
    if len(faults) < MAX_FAULTS:
        return BadData(tuple(faults))
    more = Fault("$", f"more than {MAX_FAULTS} faults; the rest is not listed")
    return BadData((*faults[:MAX_FAULTS], more))


def read_value(data: Json, path: str, faults: Faults, depth: int = 0) -> Value:
    """Read a Value that lies ``depth`` levels within others; notes what is wrong in ``faults``."""
    if len(faults) >= MAX_FAULTS:
        return UNREAD
    if depth > MAX_DEPTH:
        faults.append(Fault(path, f"nested more than {MAX_DEPTH} levels deep"))
        return UNREAD
    reader = _BY_TYPE.get(type(data))
    if reader is None:
        faults.append(Fault(path, f"expected JSON, found {found(data)}; call to_jsonable first"))
        return UNREAD
    return reader(data, path, faults, depth)


def _null(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Null()


def _bool(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Bool(data)


def _int(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Int(read_integer(data, path, faults))


def _float(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    if not math.isfinite(data):
        faults.append(Fault(path, f'{data} is not JSON; write {{"$float": "{data}"}}'))
    return Float(data)


def _text(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Text(data)


def _list(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return List(_read_items(data, path, faults, depth))


def _read_items(data: Json, path: str, faults: Faults, depth: int) -> tuple[Value, ...]:
    if type(data) is not list:
        faults.append(Fault(path, f"expected a list, found {found(data)}"))
        return ()
    return tuple(
        [read_value(item, f"{path}[{index}]", faults, depth + 1) for index, item in enumerate(data)]
    )


def _object(data: Json, path: str, faults: Faults, depth: int) -> Value:
    tags = []
    for key in data:
        if type(key) is not str:
            faults.append(Fault(path, f"expected string keys, found {found(key)}"))
            return UNREAD
        if key.startswith("$"):
            tags.append(key)
    if not tags:
        return Mapping(
            frozenset(
                (Text(key), read_value(item, path + key_step(key), faults, depth + 1))
                for key, item in data.items()
            )
        )
    if len(tags) > 1 or tags[0] not in _BY_TAG:
        listed = ", ".join(found(tag) for tag in tags)
        known = ", ".join(_BY_TAG)
        faults.append(
            Fault(path, f"expected one of the $ keys {known}; found {listed}; newer optrove?")
        )
        return UNREAD
    reader, companions = _BY_TAG[tags[0]]
    if len(data) != len(companions) + 1 or not all(key in data for key in companions):
        check_keys(data, path, faults, (tags[0], *companions))
        return UNREAD
    return reader(data, path, faults, depth)


def _special_float(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    name = data["$float"]
    if type(name) is str and name in ("nan", "inf", "-inf"):
        return Float(float(name))
    faults.append(Fault(f"{path}.$float", f'expected "nan", "inf" or "-inf", found {found(name)}'))
    return UNREAD


def _complex(data: Json, path: str, faults: Faults, depth: int) -> Value:
    parts = _read_items(data["$complex"], f"{path}.$complex", faults, depth - 1)
    match parts:
        case (Float() as real, Float() as imaginary):
            return Complex(real, imaginary)
    faults.append(Fault(f"{path}.$complex", "expected two floating-point numbers"))
    return UNREAD


def _encoded(text: Json, path: str, faults: Faults) -> bytes:
    content = read_text(text, path, faults)
    try:
        decoded = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        faults.append(Fault(path, f"not base64: {error}"))
        return b""
    if base64.b64encode(decoded) != content.encode("ascii"):
        faults.append(Fault(path, "not base64: spare bits at the end are not zero"))
    return decoded


def _encoded_text(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    content = _encoded(data["$text"], f"{path}.$text", faults)
    try:
        return Text(content.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        faults.append(Fault(f"{path}.$text", f"not UTF-8: {error.reason}"))
        return UNREAD


def _bytes(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Bytes(_encoded(data["$bytes"], f"{path}.$bytes", faults))


def _tuple(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return Tuple(_read_items(data["$tuple"], f"{path}.$tuple", faults, depth))


def _set(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return Set(_read_distinct(data["$set"], f"{path}.$set", faults, depth))


def _frozen_set(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return FrozenSet(_read_distinct(data["$frozenset"], f"{path}.$frozenset", faults, depth))


def _read_distinct(data: Json, path: str, faults: Faults, depth: int) -> frozenset[Value]:
    before = len(faults)
    items = _read_items(data, path, faults, depth)
    if len(faults) == before:
        _refuse_repeats(items, path, faults)
    return frozenset(items)


def _map(data: Json, path: str, faults: Faults, depth: int) -> Value:
    where = f"{path}.$map"
    before = len(faults)
    pairs: list[tuple[Value, Value]] = []
    entries = data["$map"] if type(data["$map"]) is list else None
    if entries is None:
        faults.append(Fault(where, f"expected a list of pairs, found {found(data['$map'])}"))
    for index, entry in enumerate(entries or ()):
        here = f"{where}[{index}]"
        match _read_items(entry, here, faults, depth):
            case (key, item):
                pairs.append((key, item))
            case _:
                faults.append(Fault(here, "expected a key and its value"))
    if len(faults) == before:
        _refuse_repeats([key for key, _ in pairs], where, faults)
    return Mapping(frozenset(pairs))


def _refuse_repeats(items: Sequence[Value], path: str, faults: Faults) -> None:
    """Note items that are there more than once; all must have been read, or they look alike."""
    seen: set[Value] = set()
    for index, item in enumerate(items):
        if item in seen:
            faults.append(Fault(f"{path}[{index}]", "the same as an earlier one; keep one of them"))
        seen.add(item)


def _symbol(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Symbol(
        read_name(data["$symbol"], f"{path}.$symbol", faults),
        read_name(data["name"], f"{path}.name", faults),
    )


def _struct(data: Json, path: str, faults: Faults, depth: int) -> Value:
    type_name = read_name(data["$struct"], f"{path}.$struct", faults)
    fields = data["fields"]
    if type(fields) is not dict:
        faults.append(Fault(f"{path}.fields", f"expected an object, found {found(fields)}"))
        return UNREAD
    named = []
    for key, item in fields.items():
        name = read_text(key, f"{path}.fields", faults)
        where = f"{path}.fields{key_step(name)}"
        check_name(name, where, faults)
        named.append((name, read_value(item, where, faults, depth + 1)))
    return Struct(type_name, tuple(named))


def _tensor(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return _tensor_reader(depth)(data["$tensor"], f"{path}.$tensor", faults)


@cache
def _tensor_reader(depth: int) -> Reader[TensorSpec]:
    """Return the reader of tensors at a depth, of which there are no more than MAX_DEPTH."""

    def read_memory(memory: Json, where: str, noted: Faults) -> Struct | None:
        return _only_struct(memory, where, noted, depth + 1)

    return tensor_reader(read_memory)


def _only_struct(data: Json, path: str, faults: Faults, depth: int) -> Struct | None:
    value = read_value(data, path, faults, depth)
    if isinstance(value, Struct):
        return value
    if value is not UNREAD:
        faults.append(Fault(path, f"expected a $struct, found {found(data)}"))
    return None


def _device(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return DeviceRef(
        read_name(data["$device"], f"{path}.$device", faults),
        read_counts(data["mesh_shape"], f"{path}.mesh_shape", faults),
        read_count(data["identity"], f"{path}.identity", faults),
    )


def _handle(data: Json, path: str, faults: Faults, depth: int) -> Value:
    recipe = data["recipe"]
    return Handle(
        read_name(data["$handle"], f"{path}.$handle", faults),
        None if recipe is None else _only_struct(recipe, f"{path}.recipe", faults, depth + 1),
        read_count(data["identity"], f"{path}.identity", faults),
    )


def _callable(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Callable(read_name(data["$callable"], f"{path}.$callable", faults))


def _opaque(data: Json, path: str, faults: Faults, depth: int) -> Value:  # noqa: ARG001 - one signature for all readers
    return Opaque(
        read_name(data["$opaque"], f"{path}.$opaque", faults),
        read_name(data["token"], f"{path}.token", faults),
    )


_ValueReader = Function[[Json, str, Faults, int], Value]

_BY_TYPE: Final[dict[type, _ValueReader]] = {
    type(None): _null,
    bool: _bool,
    int: _int,
    float: _float,
    str: _text,
    list: _list,
    dict: _object,
}

_BY_TAG: Final[dict[str, tuple[_ValueReader, tuple[str, ...]]]] = {
    "$float": (_special_float, ()),
    "$complex": (_complex, ()),
    "$text": (_encoded_text, ()),
    "$bytes": (_bytes, ()),
    "$tuple": (_tuple, ()),
    "$set": (_set, ()),
    "$frozenset": (_frozen_set, ()),
    "$map": (_map, ()),
    "$symbol": (_symbol, ("name",)),
    "$struct": (_struct, ("fields",)),
    "$tensor": (_tensor, ()),
    "$device": (_device, ("mesh_shape", "identity")),
    "$handle": (_handle, ("recipe", "identity")),
    "$callable": (_callable, ()),
    "$opaque": (_opaque, ("token",)),
}


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

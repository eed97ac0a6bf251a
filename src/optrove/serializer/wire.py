"""Values as JSON-able builtins: encode and decode.

Values that JSON has are written as JSON; all others are objects with one ``$`` key:

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
one form in any order of Python's hashes.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable as Function
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

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
    NestedPlacement,
    Null,
    NumpyPlacement,
    Opaque,
    QuantizedPlacement,
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.case import NamedValues

_Readers: TypeAlias = dict[str, Reader[Any]]
_ValueReader: TypeAlias = Function[[Json, str, Faults, int], Value]

UNREAD: Final = Opaque("unread", "unread")
"""Stands for a part that could not be read; recognized by being this very object."""

MAX_FAULTS: Final = 1000
"""How many faults are listed. The limit also ends the reading of lists that contain themselves
twice, which would otherwise be read 2 to the power of MAX_DEPTH times."""

T = TypeVar("T")


def decode(data: Json) -> Value:
    """Return the Value that ``data`` spells; BadData lists every fault with its path."""
    value, faults = decode_partly(data)
    if faults:
        raise bad_data(faults)
    return value


def decode_partly(data: Json) -> tuple[Value, Faults]:
    """Return the Value of ``data``, with UNREAD for the parts that have faults, and the faults."""
    faults: Faults = []
    value = read_value(data, "$", faults)
    return value, faults


def bad_data(faults: Sequence[Fault], limit: int = MAX_FAULTS) -> BadData:
    """Return the error that lists these faults, or the first ones and that there are more."""
    if len(faults) < limit:
        return BadData(faults)
    return BadData(
        (*faults[:limit], Fault("$", f"more than {limit} faults; the rest is not listed"))
    )


def read_value(data: Json, path: str, faults: Faults, depth: int = 0) -> Value:
    """Read a Value that is nested ``depth`` levels deep; adds its faults to ``faults``."""
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


def read_named_values(
    data: Json, path: str, faults: Faults, read: Reader[Value] = read_value
) -> NamedValues:
    """Read an object of Values by name, such as the arguments of a Case."""
    if type(data) is not dict:
        faults.append(Fault(path, f"expected an object, found {found(data)}"))
        return ()
    named = []
    for key, item in data.items():
        name = read_text(key, path, faults)
        where = path + key_step(name)
        check_name(name, where, faults)
        named.append((name, read(item, where, faults)))
    return tuple(named)


def _float(data: Json, path: str, faults: Faults, _: int) -> Value:
    if not math.isfinite(data):
        faults.append(Fault(path, f'{data} is not JSON; write {{"$float": "{data}"}}'))
    return Float(data)


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


def _special_float(data: Json, path: str, faults: Faults, _: int) -> Value:
    name = data["$float"]
    if type(name) is str and name in ("nan", "inf", "-inf"):
        return Float(float(name))
    faults.append(Fault(f"{path}.$float", f'expected "nan", "inf" or "-inf", found {found(name)}'))
    return UNREAD


def _complex(data: Json, path: str, faults: Faults, depth: int) -> Value:
    match _read_items(data["$complex"], f"{path}.$complex", faults, depth - 1):
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


def _encoded_text(data: Json, path: str, faults: Faults, _: int) -> Value:
    content = _encoded(data["$text"], f"{path}.$text", faults)
    try:
        return Text(content.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        faults.append(Fault(f"{path}.$text", f"not UTF-8: {error.reason}"))
        return UNREAD


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
    """Note repeated items; all must have been read, since unread ones are equal."""
    seen: set[Value] = set()
    for index, item in enumerate(items):
        if item in seen:
            faults.append(Fault(f"{path}[{index}]", "the same as an earlier one; keep one of them"))
        seen.add(item)


def _struct(data: Json, path: str, faults: Faults, depth: int) -> Value:
    type_name = read_name(data["$struct"], f"{path}.$struct", faults)
    fields = data["fields"]
    if type(fields) is not dict:
        faults.append(Fault(f"{path}.fields", f"expected an object, found {found(fields)}"))
        return UNREAD

    def read_field(item: Json, where: str, noted: Faults) -> Value:
        return read_value(item, where, noted, depth + 1)

    return Struct(type_name, read_named_values(fields, f"{path}.fields", faults, read_field))


def _struct_or_null(data: Json, path: str, faults: Faults, depth: int) -> Struct | None:
    value = None if data is None else read_value(data, path, faults, depth)
    if value is None or isinstance(value, Struct):
        return value
    if value is not UNREAD:
        faults.append(Fault(path, f"expected a $struct, found {found(data)}"))
    return None


def _handle(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return Handle(
        read_name(data["$handle"], f"{path}.$handle", faults),
        _struct_or_null(data["recipe"], f"{path}.recipe", faults, depth + 1),
        read_count(data["identity"], f"{path}.identity", faults),
    )


def _reader_of(kind: Function[..., T], readers: _Readers) -> Reader[T | None]:
    """Return the reader of an object whose keys are the fields of ``kind``."""

    def read_fields(data: Json, path: str, faults: Faults) -> T | None:
        fields = read_object(data, path, faults, readers)
        return None if fields is None else kind(**fields)

    return read_fields


_integers: Final = list_of(read_integer)
_size_pair: Final = pair_of(read_count)

_read_tile: Final = _reader_of(
    Tile,
    {
        "shape": _size_pair,
        "face_shape": _size_pair,
        "transpose_within_face": read_bool,
        "transpose_of_faces": read_bool,
    },
)
_read_mesh: Final = _reader_of(
    MeshPlacement,
    {
        "distribution_shape": read_counts,
        "placements": list_of(optional(read_integer)),
        "coordinates": list_of(read_counts),
    },
)
_TORCH: Final[_Readers] = {
    "strides": _integers,
    "layout": read_name,
    "device": read_name,
    "requires_grad": read_bool,
    "offset": read_count,
    "conjugate": read_bool,
    "negative": read_bool,
}


def _read_scale(data: Json, path: str, faults: Faults) -> float:
    if type(data) is not float:
        faults.append(Fault(path, f"expected a scale, found {found(data)}"))
        return 1.0
    return data


_PLACEMENTS: Final[dict[str, tuple[type[TensorPlacement], _Readers]]] = {
    "ttnn": (
        TtnnPlacement,
        {
            "padded_shape": read_counts,
            "layout": read_name,
            "tile": optional(_read_tile),
            "storage": read_name,
            "mesh_shape": optional(read_counts),
            "mesh": optional(_read_mesh),
            "device": optional(read_count),
        },
    ),
    "torch": (TorchPlacement, _TORCH),
    "torch-quantized": (
        QuantizedPlacement,
        {
            **_TORCH,
            "scheme": read_name,
            "scale": optional(_read_scale),
            "zero_point": optional(read_integer),
            "axis": optional(read_count),
        },
    ),
    "torch-nested": (
        NestedPlacement,
        {**_TORCH, "components": list_of(read_counts), "axis": read_count},
    ),
    "numpy": (NumpyPlacement, {"strides": _integers, "offset": read_integer}),
}
"""The placements by the name of their framework. The memory of ttnn's is a Value of its own."""

_KIND_OF: Final = {placement: kind for kind, (placement, _) in _PLACEMENTS.items()}


@cache
def _tensor_reader(depth: int) -> Reader[TensorSpec | None]:
    """Return the reader of tensors at a depth, of which there are no more than MAX_DEPTH."""

    def read_memory(data: Json, path: str, faults: Faults) -> Struct | None:
        return _struct_or_null(data, path, faults, depth + 1)

    kinds: dict[str, Reader[TensorPlacement | None]] = {
        name: _reader_of(kind, {**readers, "memory": read_memory} if name == "ttnn" else readers)
        for name, (kind, readers) in _PLACEMENTS.items()
    }

    def read_placement(data: Json, path: str, faults: Faults) -> TensorPlacement | None:
        kind = data.get("kind") if type(data) is dict else None
        if type(kind) is not str or kind not in kinds:
            known = ", ".join(kinds)
            faults.append(
                Fault(path, f"expected a placement of kind {known}, found {found(kind or data)}")
            )
            return None
        content = {key: item for key, item in data.items() if key != "kind"}
        return kinds[kind](content, path, faults)

    return _reader_of(
        TensorSpec,
        {
            "shape": read_counts,
            "dtype": read_name,
            "identity": read_count,
            "storage": read_count,
            "placement": read_placement,
        },
    )


_NAMED: Final[dict[type[Value], tuple[tuple[str, str, Reader[Any]], ...]]] = {
    Symbol: (("$symbol", "type", read_name), ("name", "name", read_name)),
    DeviceRef: (
        ("$device", "type", read_name),
        ("mesh_shape", "mesh_shape", read_counts),
        ("identity", "identity", read_count),
    ),
    Callable: (("$callable", "name", read_name),),
    Opaque: (("$opaque", "type", read_name), ("token", "token", read_name)),
}
"""The Values that hold no others: keys of their objects, fields of their classes, readers."""


def _named_reader(kind: type[Value]) -> _ValueReader:
    parts = _NAMED[kind]

    def read_named(data: Json, path: str, faults: Faults, _: int) -> Value:
        return kind(
            **{field: reader(data[key], f"{path}.{key}", faults) for key, field, reader in parts}
        )

    return read_named


_BY_TYPE: Final[dict[type, _ValueReader]] = {
    type(None): lambda *_: Null(),
    bool: lambda data, *_: Bool(data),
    int: lambda data, path, faults, _: Int(read_integer(data, path, faults)),
    float: _float,
    str: lambda data, *_: Text(data),
    list: lambda data, path, faults, depth: List(_read_items(data, path, faults, depth)),
    dict: _object,
}

_BY_TAG: Final[dict[str, tuple[_ValueReader, tuple[str, ...]]]] = {
    "$float": (_special_float, ()),
    "$complex": (_complex, ()),
    "$text": (_encoded_text, ()),
    "$bytes": (
        lambda data, path, faults, _: Bytes(_encoded(data["$bytes"], f"{path}.$bytes", faults)),
        (),
    ),
    "$tuple": (
        lambda data, path, *rest: Tuple(_read_items(data["$tuple"], f"{path}.$tuple", *rest)),
        (),
    ),
    "$set": (
        lambda data, path, *rest: Set(_read_distinct(data["$set"], f"{path}.$set", *rest)),
        (),
    ),
    "$frozenset": (
        lambda data, path, *rest: FrozenSet(
            _read_distinct(data["$frozenset"], f"{path}.$frozenset", *rest)
        ),
        (),
    ),
    "$map": (_map, ()),
    "$struct": (_struct, ("fields",)),
    "$tensor": (
        lambda data, path, faults, depth: (
            _tensor_reader(depth)(data["$tensor"], f"{path}.$tensor", faults) or UNREAD
        ),
        (),
    ),
    "$handle": (_handle, ("recipe", "identity")),
    **{
        parts[0][0]: (_named_reader(kind), tuple(key for key, *_ in parts[1:]))
        for kind, parts in _NAMED.items()
    },
}
"""The readers of objects with a ``$`` key, and the keys that such an object has besides."""


_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def encode(value: Value, *, depth: int = 0) -> Json:
    """Return the JSON-able form of ``value``, from which ``decode`` makes an equal one.

    BadData for a value that no reader would accept: nesting beyond the limit, a number beyond the
    limit, a struct or mapping that has a name or key twice, an unreadable name. ``depth`` is how
    deep the value will be nested.
    """
    return _value(value, "$", depth)


def _value(value: Value, path: str, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise BadData.at(path, f"nested more than {MAX_DEPTH} levels deep")
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
        raise BadData.at(
            path, f"a number of {content.bit_length()} bits; the limit is {MAX_INT_BITS}"
        )
    return content


def _scalar(value: Float | Complex | Text | Bytes) -> Json:
    match value:
        case Float(number):
            return number if math.isfinite(number) else {"$float": str(number)}
        case Complex(real, imaginary):
            return {"$complex": [_scalar(real), _scalar(imaginary)]}
        case Text(text):
            if not _SURROGATE_PAIR.search(text):
                return text
            return {"$text": _base64(text.encode("utf-8", "surrogatepass"))}
        case Bytes(content):
            return {"$bytes": _base64(content)}


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
    return sorted([_value(item, path, depth + 1) for item in items], key=write)


def _mapping(items: frozenset[tuple[Value, Value]], path: str, depth: int) -> Json:
    if len({key for key, _ in items}) != len(items):
        raise BadData.at(path, "a mapping with the same key twice")
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
    return {"$map": sorted(pairs, key=write)}


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
                raise BadData.at(path, "a struct with the same field twice")
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
    if isinstance(placement, TtnnPlacement) and placement.memory is not None:
        content["memory"] = _value(placement.memory, f"{path}.memory", depth + 1)
    return {"kind": _KIND_OF[type(placement)], **content}


def _plain(part: Any) -> Json:
    """Return a part of a placement that holds no Values as builtins."""
    if isinstance(part, (Tile, MeshPlacement)):
        return {field.name: _plain(getattr(part, field.name)) for field in fields(part)}
    if isinstance(part, tuple):
        # Most are numbers: a mesh of 32 chips has 64 of them.
        return [item if type(item) is int else _plain(item) for item in part]
    return part


def _named(value: Symbol | DeviceRef | Callable | Opaque, path: str) -> Json:
    encoded: dict[str, Json] = {}
    for key, field, _ in _NAMED[type(value)]:
        part = getattr(value, field)
        encoded[key] = _name(part, path) if type(part) is str else _plain(part)
    return encoded


def _name(text: str, path: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        problem = f"the name {text!a} holds a surrogate; names are valid Unicode"
        raise BadData.at(path, problem) from error
    return text

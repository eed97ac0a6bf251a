"""Read Values out of JSON-able builtins; the form itself is described in ``wire``."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable as Function
from collections.abc import Sequence
from functools import cache
from typing import Final

from optrove.codec.reading import (
    Faults,
    Reader,
    check_keys,
    check_name,
    found,
    read_count,
    read_counts,
    read_integer,
    read_name,
    read_text,
)
from optrove.codec.tensors import tensor_reader
from optrove.codec.text import Json
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
    Null,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
    Value,
)
from optrove.model.walk import MAX_DEPTH, key_step

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
    return List(_items(data, path, faults, depth))


def _items(data: Json, path: str, faults: Faults, depth: int) -> tuple[Value, ...]:
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
    parts = _items(data["$complex"], f"{path}.$complex", faults, depth - 1)
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
    return Tuple(_items(data["$tuple"], f"{path}.$tuple", faults, depth))


def _set(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return Set(_distinct(data["$set"], f"{path}.$set", faults, depth))


def _frozen_set(data: Json, path: str, faults: Faults, depth: int) -> Value:
    return FrozenSet(_distinct(data["$frozenset"], f"{path}.$frozenset", faults, depth))


def _distinct(data: Json, path: str, faults: Faults, depth: int) -> frozenset[Value]:
    before = len(faults)
    items = _items(data, path, faults, depth)
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
        match _items(entry, here, faults, depth):
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

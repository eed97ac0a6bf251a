"""Convert records (the dataclasses of ``model.records``) to JSON-able builtins and back.

One table of codecs, built from the types of the fields, drives both directions. Reading is
strict: ``"3"`` is not 3, and a string is not a tuple of letters. A field that has its default
value is left out, so the defaults are part of the format: changing one needs a new version.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from optrove.errors import Fault
from optrove.model.case import NamedValues
from optrove.model.values import Float, Value
from optrove.serializer.text import (
    Faults,
    Json,
    Reader,
    found,
    optional,
    read_bool,
    read_integer,
    read_items,
    read_text,
)
from optrove.serializer.wire import bad_data, encode, read_named_values, read_value

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


def record_to_builtins(record: Any) -> dict[str, Json]:
    """Return ``record`` as JSON-able builtins."""
    kind: Any = type(record)
    builtins: dict[str, Json] = _codec(kind).write(record)
    return builtins


def record_from_builtins(data: Json, kind: type[R]) -> R:
    """Return the record of ``kind`` that ``data`` spells; BadData lists every fault."""
    faults: Faults = []
    codec = _codec(kind)  # type: ignore[arg-type]  # a class is hashable
    record: R = codec.read(data, "$", faults)
    if faults:
        raise bad_data(faults)
    return record


class _Codec(NamedTuple):
    """How values of one type are read and written."""

    read: Reader[Any]
    write: Callable[[Any], Json]


@cache
def _codec(kind: Any) -> _Codec:
    """Return the codec for a field's type."""
    if kind in _CODECS:
        return _CODECS[kind]
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return _tuple_codec(arguments)
    if NoneType in arguments:
        (inner,) = [_codec(each) for each in arguments if each is not NoneType]
        return _Codec(
            optional(inner.read), lambda value: None if value is None else inner.write(value)
        )
    return _enum_codec(kind) if issubclass(kind, Enum) else _record_codec(kind)


def _unchanged(value: Json) -> Json:
    return value


def _read_float(data: Json, path: str, faults: Faults) -> float:
    before = len(faults)
    value = read_value(data, path, faults) if type(data) in (float, dict) else None
    if isinstance(value, Float):
        return value.value
    if len(faults) == before:
        faults.append(Fault(path, f"expected a floating-point number, found {found(data)}"))
    return 0.0


_CODECS: Final[dict[Any, _Codec]] = {
    str: _Codec(read_text, _unchanged),
    bool: _Codec(read_bool, _unchanged),
    int: _Codec(read_integer, _unchanged),
    float: _Codec(_read_float, lambda number: encode(Float(number))),
    Value: _Codec(read_value, encode),
    NamedValues: _Codec(
        read_named_values, lambda named: {name: encode(value) for name, value in named}
    ),
}


def _tuple_codec(kinds: tuple[Any, ...]) -> _Codec:
    codecs = [_codec(kind) for kind in kinds if kind is not Ellipsis]
    if kinds[-1] is Ellipsis:
        (item,) = codecs
        return _Codec(
            lambda data, path, faults: read_items(data, path, faults, item.read),
            lambda items: [item.write(each) for each in items],
        )

    def read_fixed(data: Json, path: str, faults: Faults) -> tuple[Any, ...]:
        if type(data) is not list or len(data) != len(codecs):
            faults.append(Fault(path, f"expected {len(codecs)} items, found {found(data)}"))
            return ()
        pairs = enumerate(zip(codecs, data, strict=True))
        return tuple([each.read(item, f"{path}[{n}]", faults) for n, (each, item) in pairs])

    return _Codec(
        read_fixed,
        lambda items: [each.write(item) for each, item in zip(codecs, items, strict=True)],
    )


def _enum_codec(kind: type[Enum]) -> _Codec:
    members = {member.value: member for member in kind}

    def read_member(data: Json, path: str, faults: Faults) -> Enum | None:
        member = members.get(data) if type(data) is str else None
        if member is None:
            faults.append(Fault(path, f"expected one of {', '.join(members)}; found {found(data)}"))
        return member

    return _Codec(read_member, lambda member: member.value)


def _record_codec(kind: type[Any]) -> _Codec:
    types = get_type_hints(kind)
    codecs = {field.name: _codec(types[field.name]) for field in fields(kind)}
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(kind)
    }

    def read_record(data: Json, path: str, faults: Faults) -> Any:
        if type(data) is not dict or not all(type(key) is str for key in data):
            faults.append(Fault(path, f"expected an object, found {found(data)}"))
            return None
        before = len(faults)
        extra = ", ".join(found(key) for key in sorted(data) if key not in codecs)
        if extra:
            known = ", ".join(codecs)
            faults.append(Fault(path, f"unknown key {extra}; known here: {known}"))
        values = {}
        for name, codec in codecs.items():
            if name in data:
                values[name] = codec.read(data[name], f"{path}.{name}", faults)
            elif defaults[name] is MISSING:
                faults.append(Fault(f"{path}.{name}", "missing"))
        return kind(**values) if len(faults) == before else None

    def write_record(record: Any) -> dict[str, Json]:
        written = {}
        for name, codec in codecs.items():
            value = getattr(record, name)
            if value != defaults[name]:
                written[name] = codec.write(value)
        return written

    return _Codec(read_record, write_record)

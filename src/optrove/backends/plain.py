"""Converters for plain Python: paths, slices, and the classes of user code.

User classes get their converter from the class itself, when an object is described or when the
caller names the class; never from a name that data holds. Their names tell what they are:
``python.dataclass:module:Class``, ``python.enum:...``, ``python.flag:...``,
``python.namedtuple:...``.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from enum import Enum, Flag
from os import fspath
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.base import (
    Converter,
    ConverterTable,
    Fields,
    StructConverter,
    SymbolConverter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

FRAMEWORK: Final = "python"
USER_KINDS: Final = (
    "python.dataclass:",
    "python.enum:",
    "python.flag:",
    "python.namedtuple:",
)
"""How the names of user classes begin. Unless the caller names the class, they stay as they are."""

_CONTENT = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)


def table() -> ConverterTable:
    """Return the converters of the classes that come with Python."""
    return ConverterTable(FRAMEWORK, (*_paths(), *_ranges(), *_containers(), *_constants()))


def user_table(types: Iterable[type]) -> ConverterTable:
    """Return converters for the caller's classes; TypeError for one that has no known form."""
    return ConverterTable(FRAMEWORK, [_required_converter(kind) for kind in dict.fromkeys(types)])


def user_converter(kind: type) -> Converter | None:
    """Return the converter of a dataclass, enum or named tuple; None for any other class.

    A class that adds its fields to a builtin with content of its own, or that inherits them
    without being declared a dataclass itself, may hold more than its fields tell: None.
    """
    if issubclass(kind, Flag):
        return _flag(kind)
    if issubclass(kind, Enum):
        return _enum(kind)
    if "__dataclass_fields__" in kind.__dict__ and not issubclass(kind, _CONTENT):
        return _dataclass(kind)
    if issubclass(kind, tuple) and _is_named_tuple(kind):
        return _named_tuple(kind)
    return None


def qualified_name(owner: Any, separator: str) -> str:
    """Return module and qualified name of a class or function, as valid Unicode."""
    module = owner.__module__ if isinstance(owner.__module__, str) else "?"
    name = f"{module}{separator}{owner.__qualname__}"
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _required_converter(kind: Any) -> Converter:
    converter = user_converter(kind) if isinstance(kind, type) else None
    if converter is None:
        raise TypeError(
            f"{kind!r} was given as a type to build, but it is no dataclass, enum or named tuple; "
            f"declare it as one of these or leave it out"
        )
    return converter


def _dataclass(kind: type) -> StructConverter:
    fields = dataclasses.fields(kind)
    names = tuple(field.name for field in fields)
    given = [field.name for field in fields if field.init]
    computed = [field.name for field in fields if not field.init]

    def make(values: Fields) -> Any:
        live = kind(**{name: values[name] for name in given})
        for name in computed:
            # A field that the constructor does not take, of a class that may be frozen.
            object.__setattr__(live, name, values[name])
        return live

    return StructConverter(
        name=f"python.dataclass:{qualified_name(kind, ':')}",
        type=kind,
        fields=lambda live: {name: getattr(live, name) for name in names},
        make=make,
        names=names,
    )


def _enum(kind: type[Enum]) -> SymbolConverter:
    members = dict(kind.__members__)
    # By identity, since a member may define its own equality; the first name wins over aliases.
    names = {id(member): name for name, member in reversed(members.items())}
    return SymbolConverter(
        name=f"python.enum:{qualified_name(kind, ':')}",
        type=kind,
        members=members,
        name_of=lambda live: names[id(live)],
    )


def _flag(kind: type[Flag]) -> StructConverter:
    # By value: a combination of members has no name in Python 3.10 and has one from 3.11 on.
    return StructConverter(
        name=f"python.flag:{qualified_name(kind, ':')}",
        type=kind,
        # Not ``live.value``, which a member of that name would hide.
        fields=lambda live: {"value": live._value_},
        make=lambda values: kind(values["value"]),
        names=("value",),
    )


def _is_named_tuple(kind: type) -> bool:
    names = getattr(kind, "_fields", None)
    return type(names) is tuple and all(type(name) is str for name in names)


def _named_tuple(kind: type) -> StructConverter:
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # tested by _is_named_tuple
    return StructConverter(
        name=f"python.namedtuple:{qualified_name(kind, ':')}",
        type=kind,
        fields=lambda live: dict(zip(names, tuple.__iter__(live), strict=True)),
        make=lambda values: kind(**values),
        names=names,
    )


def _paths() -> list[Converter]:
    def path(kind: type, name: str) -> Converter:
        return StructConverter(
            name=f"python.{name}",
            type=kind,
            fields=lambda live: {"path": fspath(live)},
            make=lambda values: kind(values["path"]),
            names=("path",),
        )

    # Named here, because Python 3.13 moved the classes to another module.
    return [
        path(PosixPath, "PosixPath"),
        path(PurePosixPath, "PurePosixPath"),
        path(PureWindowsPath, "PureWindowsPath"),
    ]


def _ranges() -> list[Converter]:
    def bounds(live: Any) -> Fields:
        return {"start": live.start, "stop": live.stop, "step": live.step}

    def steps(kind: Any) -> Converter:
        return StructConverter(
            name=f"python.{kind.__name__}",
            type=kind,
            fields=bounds,
            make=lambda values: kind(values["start"], values["stop"], values["step"]),
            names=("start", "stop", "step"),
        )

    return [steps(slice), steps(range)]


def _containers() -> list[Converter]:
    return [
        StructConverter(
            name="python.bytearray",
            type=bytearray,
            fields=lambda live: {"content": bytes(live)},
            make=lambda values: _bytearray(values["content"]),
            names=("content",),
        ),
        StructConverter(
            name="python.OrderedDict",
            type=OrderedDict,
            fields=lambda live: {"entries": list(live.items())},
            make=lambda values: OrderedDict(values["entries"]),
            names=("entries",),
        ),
    ]


def _bytearray(content: Any) -> bytearray:
    # Given a number, Python would make that many zeros, and run out of memory.
    if type(content) is not bytes:
        raise TypeError("expected bytes as content")
    return bytearray(content)


def _constants() -> list[Converter]:
    def constant(live: Any, name: str) -> Converter:
        return SymbolConverter(f"python.{name}", type(live), {name: live}, lambda _: name)

    return [constant(Ellipsis, "Ellipsis"), constant(NotImplemented, "NotImplemented")]

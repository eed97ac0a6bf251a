"""Converters for plain Python: paths, slices, and the classes of user code.

User classes get their converter from the class itself, when an object is described or when the
caller names the class; never from a name in data. Their names show the kind of class:
``python.dataclass:module:Class``, ``python.enum:...``, ``python.flag:...``,
``python.namedtuple:...``.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from enum import Enum, Flag
from functools import partial
from os import fspath
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, Final

from optrove.model.values import Callable
from optrove.serializer.tables import (
    Converter,
    ConverterTable,
    Fields,
    StructConverter,
    SymbolConverter,
    class_name,
    is_readable,
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
"""The prefixes of user classes. Unless the caller names the class, their Values stay Values."""


def table() -> ConverterTable:
    """Return the converters of the classes that come with Python."""
    return ConverterTable(FRAMEWORK, (*_paths(), *_ranges(), *_containers(), *_constants()))


def user_table(types: Iterable[type]) -> ConverterTable:
    """Return converters for the caller's classes; TypeError for a class of another kind."""
    return ConverterTable(FRAMEWORK, [_required_converter(kind) for kind in dict.fromkeys(types)])


def user_converter(kind: type) -> Converter | None:
    """Return the converter of a dataclass, enum or named tuple; None for any other class.

    None also for a class that may hold more than its fields: a dataclass whose base has a state of
    its own, and a class that inherits its fields without being declared a dataclass.
    """
    if issubclass(kind, Flag):
        return _flag(kind)
    if issubclass(kind, Enum):
        return _enum(kind) if all(map(is_readable, kind.__members__)) else None
    if "__dataclass_fields__" in kind.__dict__ and all(map(_is_stateless, kind.__mro__[1:])):
        return _dataclass(kind)
    if issubclass(kind, tuple) and _is_named_tuple(kind):
        return _named_tuple(kind)
    return None


def _is_stateless(base: type) -> bool:
    """Return whether a base of a dataclass adds no state besides the fields.

    These are dataclasses, protocols, and classes with neither ``__init__``, ``__new__`` nor slots:
    abstract ones, generic ones, those with methods only.
    """
    content = base.__dict__
    if base is object or "__dataclass_fields__" in content or content.get("_is_protocol"):
        return True
    makes_something = "__init__" in content or "__new__" in content
    return not makes_something and not content.get("__slots__")


def _required_converter(kind: Any) -> Converter:
    converter = user_converter(kind) if isinstance(kind, type) else None
    if converter is None:
        raise TypeError(
            f"{kind!r} cannot be built: it is not a dataclass, enum or named tuple; "
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
            # The constructor does not take these fields, and the class may be frozen.
            object.__setattr__(live, name, values[name])
        return live

    return StructConverter(
        name=f"python.dataclass:{class_name(kind).joined(':')}",
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
        name=f"python.enum:{class_name(kind).joined(':')}",
        type=kind,
        members=members,
        name_of=lambda live: names[id(live)],
    )


def _flag(kind: type[Flag]) -> StructConverter:
    # By value: combinations of members have names from Python 3.11 on only.
    return StructConverter(
        name=f"python.flag:{class_name(kind).joined(':')}",
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
        name=f"python.namedtuple:{class_name(kind).joined(':')}",
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
            fields=lambda live: {"path": _path_text(live)},
            make=lambda values: kind(values["path"]),
            names=("path",),
        )

    # Named here, because Python 3.13 moved the classes to another module.
    return [
        path(PosixPath, "PosixPath"),
        path(PurePosixPath, "PurePosixPath"),
        path(PureWindowsPath, "PureWindowsPath"),
    ]


def _path_text(live: PurePath) -> str:
    """Return the text of a path; ValueError if it is the text of another path.

    Before Python 3.12 the text of the Windows path ``./c:a`` is ``c:a``, which is on drive C.
    """
    text = fspath(live)
    if type(live)(text) != live:
        raise ValueError(f"{text!r} is the text of another path")
    return text


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
            make=lambda values: _ordered_dict(values["entries"]),
            names=("entries",),
        ),
        StructConverter(
            name="python.defaultdict",
            type=defaultdict,
            fields=lambda live: {"factory": live.default_factory, "entries": list(live.items())},
            make=_default_dict,
            names=("factory", "entries"),
        ),
        StructConverter(
            name="python.deque",
            type=deque,
            fields=lambda live: {"items": list(live), "maxlen": live.maxlen},
            make=_deque,
            names=("items", "maxlen"),
        ),
        StructConverter(
            name="python.partial",
            type=partial,
            fields=lambda live: {
                "function": live.func,
                "arguments": list(live.args),
                "keywords": dict(live.keywords),
            },
            make=_partial,
            names=("function", "arguments", "keywords"),
        ),
    ]


_FACTORIES: Final = {
    f"builtins:{kind.__name__}": kind
    for kind in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)
}
"""The classes that a recorded name may lead to; no other function is ever looked up."""


def _known_class(recorded: Any) -> Any:
    if recorded is None or recorded in _FACTORIES.values():
        return recorded
    found = _FACTORIES.get(recorded.name) if isinstance(recorded, Callable) else None
    if found is None:
        raise TypeError("a recorded function is a name, which is not looked up")
    return found


def _default_dict(fields: Fields) -> defaultdict[Any, Any]:
    return defaultdict(_known_class(fields["factory"]), _ordered_dict(fields["entries"]))


def _deque(fields: Fields) -> deque[Any]:
    items, longest = fields["items"], fields["maxlen"]
    if type(items) is not list or not (longest is None or type(longest) is int):
        raise TypeError("expected a list of items, and a number or None as maxlen")
    return deque(items, longest)


def _partial(fields: Fields) -> partial[Any]:
    arguments, keywords = fields["arguments"], fields["keywords"]
    if type(arguments) is not list or type(keywords) is not dict:
        raise TypeError("expected a list of arguments and a dict of keywords")
    return partial(_known_class(fields["function"]), *arguments, **keywords)


def _bytearray(content: Any) -> bytearray:
    # Given a number, Python would make that many zeros, and run out of memory.
    if type(content) is not bytes:
        raise TypeError("expected bytes as content")
    return bytearray(content)


def _ordered_dict(entries: Any) -> OrderedDict[Any, Any]:
    # Given other sequences, Python would take them apart: the string "ab" as a key and its value.
    if type(entries) is not list or not all(type(entry) is tuple for entry in entries):
        raise TypeError("expected a list of tuples as entries")
    made = OrderedDict(entries)
    if len(made) != len(entries):
        raise ValueError("two entries have the same key; keep one of them")
    return made


def _constants() -> list[Converter]:
    def constant(live: Any, name: str) -> Converter:
        return SymbolConverter(f"python.{name}", type(live), {name: live}, lambda _: name)

    return [constant(Ellipsis, "Ellipsis"), constant(NotImplemented, "NotImplemented")]

"""Tell whether a built object is the one that was recorded.

A class may change what it is given: round it, wrap it around, complete it. So a built object is
described once more, and what comes out must be what went in.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.backends.base import SymbolConverter, Tables
from optrove.backends.describe import Describer
from optrove.codec.reading import found
from optrove.codec.text import write
from optrove.codec.wire import encode
from optrove.errors import Fault
from optrove.model.values import (
    DeviceRef,
    Handle,
    List,
    Mapping,
    Struct,
    Symbol,
    Text,
    Tuple,
    Value,
)
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_Steps: TypeAlias = list[tuple[str, Value, Value]]


@dataclass(frozen=True, slots=True)
class Made:
    """An object, what it was made from, and the path of that in the data."""

    path: str
    recorded: Struct
    live: Any


def changes(objects: Iterable[Made], tables: Tables) -> Iterator[Fault]:
    """Yield a fault for each part of an object that is not as recorded.

    Fields that the record leaves out may have any value. Devices and handles are the caller's,
    and so are not compared.
    """
    # Without a limit on the size: they were built from data of that size.
    session = Describer(tables, max_parts=sys.maxsize)
    for made in objects:
        again = session.describe(made.live)
        if again != made.recorded:
            yield from _differences(made.path, made.recorded, again, tables)


def _differences(start: str, recorded: Value, again: Value, tables: Tables) -> Iterator[Fault]:
    pending: _Steps = [(start, recorded, again)]
    while pending:
        path, old, new = pending.pop()
        steps = _steps(old, new, tables)
        if steps is None:
            yield Fault(path, f"recorded as {_shown(old)}, but the class made {_shown(new)} of it")
        else:
            pending += [(path + step, part, made) for step, part, made in reversed(steps)]


def _steps(old: Value, new: Value, tables: Tables) -> _Steps | None:
    """Return the parts to compare next; None when the two differ themselves."""
    match old, new:
        case ((DeviceRef() | Handle()), _):
            return []
        case (List(olds), List(news)) if len(olds) == len(news):
            pairs = enumerate(zip(olds, news, strict=True))
            return [(f"[{index}]", *pair) for index, pair in pairs]
        case (Tuple(olds), Tuple(news)) if len(olds) == len(news):
            pairs = enumerate(zip(olds, news, strict=True))
            return [(f".$tuple[{index}]", *pair) for index, pair in pairs]
        case Mapping(entries), Mapping(others):
            return _entries(dict(entries), dict(others))
        case Struct(name, fields), Struct(other, others) if name == other:
            return _fields(fields, dict(others))
        case Symbol(name, _), Symbol(other, _) if name == other:
            return [] if _is_same_member(old, new, tables) else None
    return [] if old == new else None


def _entries(old: dict[Value, Value], new: dict[Value, Value]) -> _Steps | None:
    if old.keys() != new.keys():
        return None
    return [(_entry_step(key), item, new[key]) for key, item in old.items()]


def _entry_step(key: Value) -> str:
    if isinstance(key, Text) and not key.value.startswith("$"):
        return key_step(key.value)
    return ".$map[*][1]"


def _fields(old: tuple[tuple[str, Value], ...], new: dict[str, Value]) -> _Steps | None:
    if any(name not in new for name, _ in old):
        return None
    return [(f".fields{key_step(name)}", item, new[name]) for name, item in old]


def _is_same_member(old: Symbol, new: Symbol, tables: Tables) -> bool:
    """Tell whether two names are those of one member, which may have several."""
    if old == new:
        return True
    converter = tables.by_name.get(old.type)
    if not isinstance(converter, SymbolConverter):
        return False
    return converter.members.get(old.name) is converter.members.get(new.name, converter)


def _shown(value: Value) -> str:
    return found(write(encode(value)))

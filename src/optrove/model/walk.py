"""Visit every part of a Value, with its path in the JSON form."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

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
    TtnnPlacement,
    Tuple,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 100
"""How deeply Values may be nested. Real arguments need about ten levels; the limit keeps hostile
data from exhausting the stack, which Python reports in a different place in each version."""

_PLAIN_KEY = re.compile(r"[$A-Za-z_][A-Za-z0-9_]*\Z")


_LONGEST_KEY: Final = 200
"""Longer keys are cut in paths, which are for people to read."""


@lru_cache(maxsize=4096)
def key_step(key: str) -> str:
    """Return how a path spells the step to ``key``: ``.name``, or ``["odd name"]``."""
    if len(key) > _LONGEST_KEY:
        key = f"{key[:_LONGEST_KEY]}..."
    if _PLAIN_KEY.match(key):
        return f".{key}"
    return f'["{key}"]'.encode("utf-8", "backslashreplace").decode("utf-8")


def walk(value: Value, path: str = "$") -> Iterator[tuple[str, Value]]:
    """Yield ``value`` and everything within it, outermost first, each with its path.

    The entries of sets and mappings have no order, so their paths say ``[*]``.
    """
    pending = [(path, value)]
    while pending:
        here, item = pending.pop()
        yield here, item
        pending.extend(reversed([(here + step, child) for step, child in children(item)]))


def children(value: Value) -> list[tuple[str, Value]]:
    """Return the parts of ``value`` one level down, each with the step of its path."""
    match value:
        case List(items):
            return [(f"[{index}]", item) for index, item in enumerate(items)]
        case Tuple(items):
            return [(f".$tuple[{index}]", item) for index, item in enumerate(items)]
        case Set(items) | FrozenSet(items):
            step = ".$set[*]" if isinstance(value, Set) else ".$frozenset[*]"
            return [(step, item) for item in items]
        case Mapping(items):
            return _entries(items)
        case Struct(_, fields):
            return [(f".fields{key_step(name)}", item) for name, item in fields]
        case TensorSpec():
            return _memory(value)
        case Handle(_, recipe, _):
            return [] if recipe is None else [(".recipe", recipe)]
        case (
            Null()
            | Bool()
            | Int()
            | Float()
            | Complex()
            | Text()
            | Bytes()
            | Symbol()
            | DeviceRef()
            | Callable()
            | Opaque()
        ):
            return []


def _entries(items: frozenset[tuple[Value, Value]]) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for key, item in items:
        if isinstance(key, Text) and not key.value.startswith("$"):
            found.append((key_step(key.value), item))
        else:
            found += [(".$map[*][0]", key), (".$map[*][1]", item)]
    return found


def _memory(spec: TensorSpec) -> list[tuple[str, Value]]:
    placement = spec.placement
    if isinstance(placement, TtnnPlacement) and placement.memory is not None:
        return [(".$tensor.placement.memory", placement.memory)]
    return []

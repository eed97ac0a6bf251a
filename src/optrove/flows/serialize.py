"""Objects to JSON-able builtins and back: ``to_jsonable`` and ``from_jsonable``."""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from optrove.backends import plain
from optrove.backends.base import ConverterTable, Tables, framework_of
from optrove.backends.build import build
from optrove.backends.describe import describe
from optrove.codec.wire import decode, encode
from optrove.model.values import DeviceRef, Handle, Struct, Symbol, TensorSpec, Value
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json

FRAMEWORKS = ("numpy", "torch", "ttnn")

TensorRef = TensorSpec
"""What stands for a tensor in the data that ``from_jsonable`` returns: its spec, no numbers."""


def to_jsonable(obj: Any) -> Json:
    """Return ``obj`` in a form that ``json.dumps`` can write; never reads a tensor's numbers.

    An object that nothing is known about is recorded as such, and refused on the way back.
    """
    return encode(describe(obj, _tables(tuple(name for name in FRAMEWORKS if name in sys.modules))))


def from_jsonable(data: Json, mesh_device: Any = None, *, types: Iterable[type] = ()) -> Any:
    """Return what ``to_jsonable`` was given; BadData names every fault with its JSON path.

    ``mesh_device`` takes the place of recorded devices. ``types`` are your own dataclasses,
    enums and named tuples to be built; others stay Structs and Symbols, since no name in the
    data is ever looked up or imported. So do those of a framework that is not installed.
    """
    value = decode(data)
    wanted = frameworks_in(value)
    present = tuple(name for name in wanted if is_importable(name))
    return build(value, _tables(present, tuple(types)), mesh_device)


def frameworks_in(value: Value) -> list[str]:
    """Return the frameworks whose types ``value`` names, in the order of FRAMEWORKS."""
    named = {
        framework_of(part.type)
        for _, part in walk(value)
        if isinstance(part, (Struct, Symbol, DeviceRef, Handle))
    }
    return [name for name in FRAMEWORKS if name in named]


def is_importable(framework: str) -> bool:
    """Tell whether ``framework``, which is one of ours, is installed; does not import it."""
    if framework in sys.modules:
        return True
    spec = find_spec(framework)
    # A mere folder of that name, as a checkout of tt-metal has one, comes without an origin.
    return spec is not None and spec.origin is not None


@lru_cache(maxsize=64)
def _tables(present: tuple[str, ...], types: tuple[type, ...] = ()) -> Tables:
    """Return the joined tables of these frameworks and classes; all other frameworks are absent."""
    tables = (plain.table(), *map(_framework_table, present), plain.user_table(types))
    absent = (name for name in FRAMEWORKS if name not in present)
    return Tables(tables, absent=absent)


@cache
def _framework_table(framework: str) -> ConverterTable:
    """Import a framework's backend, and with it the framework, and return its table."""
    if framework == "numpy":
        from optrove.backends.numpy import table as numpy_table

        return numpy_table()
    if framework == "torch":
        from optrove.backends.torch import table as torch_table

        return torch_table()
    from optrove.backends.ttnn.values import table as ttnn_table

    return ttnn_table()

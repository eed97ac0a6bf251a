"""``to_jsonable`` and ``from_jsonable``: live objects to JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.errors import Fault
from optrove.frameworks.installed import (
    FRAMEWORKS,
    attempt,
    is_importable,
    join,
    joined_tables,
    loaded_tables,
)
from optrove.model.values import DeviceRef, Handle, Struct, Symbol, TensorSpec, Value, walk
from optrove.runconfig.ops import complete, table_with
from optrove.serializer.build import build, reason
from optrove.serializer.describe import describe
from optrove.serializer.tables import framework_of
from optrove.serializer.wire import bad_data, decode_partly, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.serializer.tables import ConverterTable
    from optrove.serializer.text import Json


def live_from(data: Json, mesh_device: Any, own: ConverterTable) -> Any:
    """Return the live object that ``data`` describes; BadData names every fault with its path.

    ``own`` has the Python classes to build, besides those of the installed frameworks.
    """
    read, unread = decode_partly(data)
    value = complete(read)
    present = tuple(name for name in frameworks_in(value) if is_importable(name))
    attempts = {name: attempt(name) for name in present}
    faults = [
        Fault("$", f"{name} is installed but cannot be used: {reason(error)}; repair or remove it")
        for name, error in attempts.items()
        if isinstance(error, Exception)
    ]
    if faults:
        raise bad_data(unread + faults)
    # Not kept: that would keep the caller's classes alive.
    tables = join(present, own) if names_in(value) & own.by_name.keys() else joined_tables(present)
    return build(value, tables, mesh_device, unread=unread)


def inert_from(data: Json, own: ConverterTable) -> Any:
    """Return the object that ``data`` describes, importing nothing: only ``own`` is built."""
    read, unread = decode_partly(data)
    return build(complete(read), join((), own), unread=unread)


def frameworks_in(value: Value) -> list[str]:
    """Return the frameworks whose types ``value`` names, in the order of FRAMEWORKS."""
    named = {framework_of(name) for name in names_in(value)}
    return [name for name in FRAMEWORKS if name in named]


def names_in(value: Value) -> set[str]:
    """Return the names of all types in ``value`` that may have a converter."""
    kinds = (Struct, Symbol, DeviceRef, Handle)
    return {part.type for _, part in walk(value) if isinstance(part, kinds)}


TensorRef = TensorSpec
"""The spec of a tensor, without its numbers; ``from_jsonable`` returns it for a tensor."""


def to_jsonable(obj: Any) -> Json:
    """Return ``obj`` in a form that ``json.dumps`` can write, without the values of tensors.

    An object of an unknown type is recorded as opaque, and ``from_jsonable`` rejects it.
    """
    return encode(describe(obj, loaded_tables()))


def from_jsonable(data: Json, mesh_device: Any = None, *, types: Iterable[type] = ()) -> Any:
    """Return the object that ``to_jsonable`` wrote; raise BadData with every fault and its path.

    ``mesh_device`` replaces recorded devices. ``types`` are your own dataclasses, enums and named
    tuples to build; objects of other types, and of frameworks that are not installed, stay Structs
    and Symbols, since no name in the data is ever looked up or imported. The classes of
    ``optrove.runconfig`` are built without being listed.
    """
    return live_from(data, mesh_device, table_with(types))

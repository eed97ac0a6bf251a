"""``to_jsonable`` and ``from_jsonable``: live objects to JSON and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

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
    from collections.abc import Callable, Iterable

    from optrove.serializer.tables import ConverterTable
    from optrove.serializer.text import Json


Complete: TypeAlias = "Callable[[Value], Value]"


def live_from(
    data: Json,
    mesh_device: Any = None,
    *,
    own: ConverterTable,
    complete: Complete,
) -> Any:
    """Return the live object that ``data`` tells of; BadData names every fault with its path.

    ``own`` are classes of Python to be built, besides those of frameworks that are installed.
    ``complete`` adds what the data may leave out.
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


def inert_from(data: Json, own: ConverterTable, complete: Complete) -> Any:
    """Return what ``data`` tells of without importing anything: only ``own`` is built."""
    read, unread = decode_partly(data)
    return build(complete(read), join((), own), unread=unread)


def frameworks_in(value: Value) -> list[str]:
    """Return the frameworks whose types ``value`` names, in the order of FRAMEWORKS."""
    named = {framework_of(name) for name in names_in(value)}
    return [name for name in FRAMEWORKS if name in named]


def names_in(value: Value) -> set[str]:
    """Return the names of all types in ``value`` that a converter may stand for."""
    kinds = (Struct, Symbol, DeviceRef, Handle)
    return {part.type for _, part in walk(value) if isinstance(part, kinds)}


TensorRef = TensorSpec
"""What stands for a tensor in the data that ``from_jsonable`` returns: its spec, no numbers."""


def to_jsonable(obj: Any) -> Json:
    """Return ``obj`` in a form that ``json.dumps`` can write; never reads a tensor's numbers.

    An object that nothing is known about is recorded as such, and refused on the way back.
    """
    return encode(describe(obj, loaded_tables()))


def from_jsonable(data: Json, mesh_device: Any = None, *, types: Iterable[type] = ()) -> Any:
    """Return what ``to_jsonable`` was given; BadData names every fault with its JSON path.

    ``mesh_device`` takes the place of recorded devices. ``types`` are your own dataclasses,
    enums and named tuples to be built; others stay Structs and Symbols, since no name in the
    data is ever looked up or imported. So do those of a framework that is not installed. The
    classes of ``optrove.runconfig`` are known.
    """
    return live_from(data, mesh_device, own=table_with(types), complete=complete)

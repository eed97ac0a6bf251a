"""Live objects to JSON-able builtins and back, through the converters of what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.backends.base import framework_of
from optrove.backends.build import build, reason
from optrove.backends.frameworks import (
    FRAMEWORKS,
    attempt,
    is_importable,
    join,
    joined_tables,
)
from optrove.codec.decode import bad_data, decode_partly
from optrove.errors import Fault
from optrove.model.values import DeviceRef, Handle, Struct, Symbol, Value
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.backends.base import ConverterTable
    from optrove.codec.text import Json

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

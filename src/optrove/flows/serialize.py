"""Objects to JSON-able builtins and back: ``to_jsonable`` and ``from_jsonable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends import plain
from optrove.backends.base import framework_of
from optrove.backends.build import build, reason
from optrove.backends.describe import describe
from optrove.backends.frameworks import (
    FRAMEWORKS,
    attempt,
    is_importable,
    join,
    joined_tables,
    loaded_tables,
)
from optrove.codec.decode import bad_data, decode_partly
from optrove.codec.wire import encode
from optrove.errors import Fault
from optrove.model.values import DeviceRef, Handle, Struct, Symbol, TensorSpec, Value
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json

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
    data is ever looked up or imported. So do those of a framework that is not installed.
    """
    value, unread = decode_partly(data)
    present = tuple(name for name in frameworks_in(value) if is_importable(name))
    attempts = {name: attempt(name) for name in present}
    faults = [
        Fault("$", f"{name} is installed but cannot be used: {reason(error)}; repair or remove it")
        for name, error in attempts.items()
        if isinstance(error, Exception)
    ]
    if faults:
        raise bad_data(unread + faults)
    own = plain.user_table(types)
    # Not kept: that would keep the caller's classes alive.
    tables = join(present, own) if own.by_name else joined_tables(present)
    return build(value, tables, mesh_device, unread=unread)


def frameworks_in(value: Value) -> list[str]:
    """Return the frameworks whose types ``value`` names, in the order of FRAMEWORKS."""
    named = {
        framework_of(part.type)
        for _, part in walk(value)
        if isinstance(part, (Struct, Symbol, DeviceRef, Handle))
    }
    return [name for name in FRAMEWORKS if name in named]

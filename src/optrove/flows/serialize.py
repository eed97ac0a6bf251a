"""Objects to JSON-able builtins and back: ``to_jsonable`` and ``from_jsonable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.backends.jsonable import live_from
from optrove.codec.wire import encode
from optrove.model.values import TensorSpec
from optrove.runconfig.known import complete, table_with

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
    data is ever looked up or imported. So do those of a framework that is not installed. The
    classes of ``optrove.runconfig`` are known.
    """
    return live_from(data, mesh_device, own=table_with(types), complete=complete)

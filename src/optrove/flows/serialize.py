"""Objects to JSON-able builtins and back: ``to_jsonable`` and ``from_jsonable``."""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from optrove.backends import plain
from optrove.backends.base import ConverterTable, Tables, framework_of
from optrove.backends.build import build, reason
from optrove.backends.describe import describe
from optrove.codec.decode import bad_data, decode_partly
from optrove.codec.wire import encode
from optrove.errors import Fault
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
    loaded = (name for name in FRAMEWORKS if is_loaded(name))
    present = tuple(name for name in loaded if not isinstance(_attempt(name), Exception))
    return encode(describe(obj, _tables(present)))


def from_jsonable(data: Json, mesh_device: Any = None, *, types: Iterable[type] = ()) -> Any:
    """Return what ``to_jsonable`` was given; BadData names every fault with its JSON path.

    ``mesh_device`` takes the place of recorded devices. ``types`` are your own dataclasses,
    enums and named tuples to be built; others stay Structs and Symbols, since no name in the
    data is ever looked up or imported. So do those of a framework that is not installed.
    """
    value, unread = decode_partly(data)
    present = tuple(name for name in frameworks_in(value) if is_importable(name))
    attempts = {name: _attempt(name) for name in present}
    faults = [
        Fault("$", f"{name} is installed but cannot be used: {reason(error)}; repair or remove it")
        for name, error in attempts.items()
        if isinstance(error, Exception)
    ]
    if faults:
        raise bad_data(unread + faults)
    own = plain.user_table(types)
    # Not kept: that would keep the caller's classes alive.
    tables = _join(present, own) if own.by_name else _tables(present)
    return build(value, tables, mesh_device, unread=unread)


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
        return _is_real(sys.modules[framework])
    spec = find_spec(framework)
    # A mere folder of that name, as a checkout of tt-metal has one, comes without an origin.
    return spec is not None and spec.origin is not None


def is_loaded(framework: str) -> bool:
    """Tell whether ``framework`` has been imported, to the end."""
    module = sys.modules.get(framework)
    return _is_real(module) and not getattr(vars(module)["__spec__"], "_initializing", False)


def _is_real(module: Any) -> bool:
    """Tell a framework from what tests and tools put in its place: None, a mock, a bare module."""
    if not issubclass(type(module), ModuleType):
        return False
    spec = vars(module).get("__spec__")
    return getattr(spec, "origin", None) is not None


@lru_cache(maxsize=64)
def _tables(present: tuple[str, ...]) -> Tables:
    """Return the joined tables of these frameworks; all other frameworks are absent."""
    return _join(present)


def _join(present: tuple[str, ...], *own: ConverterTable) -> Tables:
    tables = (plain.table(), *map(_framework_table, present), *own)
    return Tables(tables, absent=(name for name in FRAMEWORKS if name not in present))


def _attempt(framework: str) -> ConverterTable | Exception:
    """Return a framework's table, or what came of the attempt to make it."""
    try:
        return _framework_table(framework)
    except Exception as error:  # noqa: BLE001 - importing a broken framework may raise anything; the caller reports it
        return error


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

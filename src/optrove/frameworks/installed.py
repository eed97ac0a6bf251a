"""Which frameworks are there, and their converter tables joined into one."""

from __future__ import annotations

import atexit
import operator
import sys
from functools import cache, lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from optrove.serializer import plain
from optrove.serializer.tables import ConverterTable, Tables

FRAMEWORKS = ("numpy", "torch", "ttnn")


def loaded_tables() -> Tables:
    """Return the joined tables of the frameworks that have been imported and can be used."""
    loaded = (name for name in FRAMEWORKS if is_loaded(name))
    present = tuple(name for name in loaded if not isinstance(attempt(name), Exception))
    return joined_tables(present)


class LoadedTables:
    """What ``loaded_tables`` gives, found anew only when another framework was imported."""

    __slots__ = ("_modules", "_tables")

    def __init__(self) -> None:
        self._modules: tuple[ModuleType | None, ...] = ()
        self._tables: Tables | None = None

    def __call__(self) -> Tables:
        """Return the joined tables of the frameworks that have been imported."""
        modules = tuple(map(sys.modules.get, FRAMEWORKS))
        if self._tables is not None and all(map(operator.is_, modules, self._modules)):
            return self._tables
        tables = loaded_tables()
        # A framework that is being imported counts as soon as that is done.
        if all(
            module is None or is_loaded(name)
            for name, module in zip(FRAMEWORKS, modules, strict=True)
        ):
            self._modules, self._tables = modules, tables
        return tables


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
def joined_tables(present: tuple[str, ...]) -> Tables:
    """Return the joined tables of these frameworks; all other frameworks are absent."""
    return join(present)


def join(present: tuple[str, ...], *own: ConverterTable) -> Tables:
    """Return the tables of these frameworks joined with others; not kept."""
    tables = (plain.table(), *map(_framework_table, present), *own)
    return Tables(tables, absent=(name for name in FRAMEWORKS if name not in present))


def attempt(framework: str) -> ConverterTable | Exception:
    """Return a framework's table, or what came of the attempt to make it."""
    try:
        return _framework_table(framework)
    except Exception as error:  # noqa: BLE001 - importing a broken framework may raise anything; the caller reports it
        return error


@cache
def _framework_table(framework: str) -> ConverterTable:
    """Import a framework's backend, and with it the framework, and return its table."""
    # nanobind complains at the end of the process about classes that somebody still holds.
    atexit.register(_let_go)
    if framework == "numpy":
        from optrove.frameworks.numpy import table as numpy_table

        return numpy_table()
    if framework == "torch":
        from optrove.frameworks.torch.convert import table as torch_table

        return torch_table()
    from optrove.frameworks.ttnn.convert.table import table as ttnn_table

    return ttnn_table()


def _let_go() -> None:
    joined_tables.cache_clear()
    _framework_table.cache_clear()

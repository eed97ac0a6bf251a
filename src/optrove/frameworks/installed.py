"""Find out which frameworks are installed, and join their converter tables."""

from __future__ import annotations

import atexit
import operator
import sys
from contextlib import contextmanager
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from optrove.serializer import plain
from optrove.serializer.tables import ConverterTable, Tables

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMEWORKS = ("numpy", "torch", "ttnn")


def loaded_tables(*own: ConverterTable) -> Tables:
    """Return the tables of the frameworks that have been imported and can be used, with ``own``."""
    loaded = (name for name in FRAMEWORKS if is_loaded(name))
    present = tuple(name for name in loaded if not isinstance(attempt(name), Exception))
    return join(present, *own) if own else joined_tables(present)


def import_ttnn() -> ModuleType:
    """Import ttnn without its log of its whole configuration; later logs appear as usual."""
    logger: Any = import_module("loguru").logger
    logger.disable("ttnn")
    try:
        return import_module("ttnn")
    finally:
        logger.enable("ttnn")


@contextmanager
def torch_deferred() -> Iterator[None]:
    """Let ttnn be imported without torch inside the block.

    ttnn imports torch, if it is installed, for ``ttnn.tracer`` only, and this takes several times
    as long as the rest of ttnn. All other parts of ttnn import torch when they first need it.
    ``ttnn.tracer`` is imported when it is first used: each call reads it in ttnn's slow mode.
    """
    if "torch" in sys.modules:
        yield
        return
    # Python's own mark of a module that cannot be imported.
    sys.modules["torch"] = cast("ModuleType", None)
    try:
        yield
    finally:
        del sys.modules["torch"]
    if is_loaded("ttnn") and is_importable("torch"):
        _import_when_used(sys.modules["ttnn"], "tracer")


def _import_when_used(package: ModuleType, submodule: str) -> None:
    """Have a package that lacks a submodule import it on the first access."""

    def missing(name: str) -> ModuleType:
        if name == submodule:
            return import_module(f"{package.__name__}.{name}")
        raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}")

    if submodule not in vars(package):
        vars(package).setdefault("__getattr__", missing)


class LoadedTables:
    """The result of ``loaded_tables``, computed again when another framework was imported.

    ``own`` are further tables, such as that of a program's classes.
    """

    __slots__ = ("_modules", "_own", "_tables")

    def __init__(self, *own: ConverterTable) -> None:
        self._own = own
        self._modules: tuple[ModuleType | None, ...] = ()
        self._tables: Tables | None = None

    def __call__(self) -> Tables:
        """Return the joined tables of the frameworks that have been imported."""
        modules = tuple(map(sys.modules.get, FRAMEWORKS))
        if self._tables is not None and all(map(operator.is_, modules, self._modules)):
            return self._tables
        tables = loaded_tables(*self._own)
        # A framework counts when its import has finished.
        if all(
            module is None or is_loaded(name)
            for name, module in zip(FRAMEWORKS, modules, strict=True)
        ):
            self._modules, self._tables = modules, tables
        return tables


def version_of(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed or unknown."""
    try:
        return version(package)
    except PackageNotFoundError:  # also if it was built from source, and is on the path only
        return None


def is_importable(framework: str) -> bool:
    """Return whether ``framework`` is installed; do not import it."""
    if framework in sys.modules:
        return _is_real(sys.modules[framework])
    spec = find_spec(framework)
    # A mere folder of that name, as in a checkout of tt-metal, has no origin.
    return spec is not None and spec.origin is not None


def is_loaded(framework: str) -> bool:
    """Return whether the import of ``framework`` has finished."""
    module = sys.modules.get(framework)
    return _is_real(module) and not getattr(vars(module)["__spec__"], "_initializing", False)


def _is_real(module: Any) -> bool:
    """Return whether a module is a framework, and not None, a mock or a bare module of a test."""
    if not issubclass(type(module), ModuleType):
        return False
    spec = vars(module).get("__spec__")
    return getattr(spec, "origin", None) is not None


@lru_cache(maxsize=64)
def joined_tables(present: tuple[str, ...]) -> Tables:
    """Return the joined tables of these frameworks; all other frameworks are absent."""
    return join(present)


def join(present: tuple[str, ...], *own: ConverterTable) -> Tables:
    """Return the tables of these frameworks joined with others; not cached."""
    tables = (plain.table(), *map(_framework_table, present), *own)
    return Tables(tables, absent=(name for name in FRAMEWORKS if name not in present))


def attempt(framework: str) -> ConverterTable | Exception:
    """Return a framework's table, or the exception that making it raised."""
    try:
        return _framework_table(framework)
    except Exception as error:  # noqa: BLE001 - importing a broken framework may raise anything; the caller reports it
        return error


@cache
def _framework_table(framework: str) -> ConverterTable:
    """Import a framework's backend, and with it the framework, and return its table."""
    # nanobind complains at exit about classes that are still referenced.
    atexit.register(_release)
    if framework == "numpy":
        from optrove.frameworks.numpy import table as numpy_table

        return numpy_table()
    if framework == "torch":
        from optrove.frameworks.torch.convert import table as torch_table

        return torch_table()
    from optrove.frameworks.ttnn.convert.table import table as ttnn_table

    return ttnn_table()


def _release() -> None:
    joined_tables.cache_clear()
    _framework_table.cache_clear()

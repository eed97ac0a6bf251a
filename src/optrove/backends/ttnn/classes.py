"""Find the classes that the installed ttnn publishes, and the names they are known by.

ttnn's classes live in the extension module ``ttnn._ttnn``, whose layout changes from release to
release; people write ``ttnn.MemoryConfig``. A class is called by its published name: directly
under ``ttnn`` when it stands there, else by its shortest public path.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from optrove.backends.ttnn.signatures import constructors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXTENSION = "ttnn._ttnn"


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one ttnn by kind, each with its public name.

    ``values`` have a constructor that Python can call. ``handed_out`` are published but have
    none: only ttnn makes their objects, or nobody does (the bases of program configurations).
    """

    values: dict[type, str]
    handed_out: dict[type, str]
    enums: dict[type, str]


def find(ttnn: ModuleType) -> Classes:
    """Return the classes of ``ttnn`` that may stand in an operation's arguments.

    These are the enumerations, and the classes of the extension module that are published or
    whose name ends in ``Config``. The classes of the operations themselves do not count.
    """
    paths = _published(ttnn)
    everything = {*paths, *_extension_classes(ttnn)}
    everything |= {inner for outer in everything for inner in _nested(outer)}
    names = _names(everything, paths)
    enums = {cls: name for cls, name in names.items() if issubclass(cls, enum.Enum)}
    wanted = {
        cls: name
        for cls, name in names.items()
        if cls not in enums and _from_extension(cls) and (cls in paths or _is_config(cls))
    }
    # ttnn.DispatchCoreConfig derives from a class of the same name, which it replaces.
    replaced = {base for cls in paths for base in cls.__mro__[1:] if base.__name__ == cls.__name__}
    values = {
        cls: name for cls, name in wanted.items() if is_constructible(cls) and cls not in replaced
    }
    handed_out = {cls: name for cls, name in wanted.items() if not is_constructible(cls)}
    return Classes(values, handed_out, enums)


def is_constructible(cls: type) -> bool:
    """Tell whether Python can make an object of ``cls``."""
    return any(constructors(base) for base in cls.__mro__)


def _is_config(cls: type) -> bool:
    # The vectors are the types of fields of public descriptors.
    return cls.__name__.endswith("Config") or cls.__name__.startswith("Vector")


def _from_extension(cls: type) -> bool:
    return any(base.__module__.startswith(EXTENSION) for base in cls.__mro__)


def _published(ttnn: ModuleType) -> dict[type, tuple[str, ...]]:
    """Return every class reachable from ``ttnn`` without an underscore, with all its paths."""
    paths: dict[type, list[str]] = {}
    seen = {id(ttnn)}
    pending = [("ttnn", ttnn)]
    for prefix, module in pending:
        for name, member in sorted(vars(module).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, type) and _is_ours(member):
                paths.setdefault(member, []).append(f"{prefix}.{name}")
            elif isinstance(member, ModuleType) and id(member) not in seen:
                seen.add(id(member))
                if member.__name__.startswith("ttnn"):
                    pending.append((f"{prefix}.{name}", member))
    return {cls: tuple(found) for cls, found in paths.items()}


def _extension_classes(ttnn: ModuleType) -> Iterator[type]:
    pending = [ttnn._ttnn]  # noqa: SLF001 - where nanobind keeps what is not published
    for module in pending:
        inside = f"{module.__name__}."
        for member in vars(module).values():
            if isinstance(member, type) and _is_ours(member):
                yield member
            elif isinstance(member, ModuleType) and member.__name__.startswith(inside):
                pending.append(member)


def _nested(cls: type) -> Iterator[type]:
    for member in vars(cls).values():
        if isinstance(member, type) and issubclass(member, enum.Enum) and _is_ours(member):
            yield member


def _is_ours(cls: type) -> bool:
    return cls.__module__ == "ttnn" or cls.__module__.startswith("ttnn.")


def _names(classes: Iterable[type], paths: dict[type, tuple[str, ...]]) -> dict[type, str]:
    """Name every class; of several that could have the same name, only a published one does."""
    published = {cls: _shortest(cls, found) for cls, found in paths.items()}
    others = [cls for cls in classes if cls not in published]
    claims = Counter([*published.values(), *map(_direct, others)])
    unpublished = {
        cls: _direct(cls) if claims[_direct(cls)] == 1 else _place(cls) for cls in others
    }
    return {**published, **unpublished}


def _direct(cls: type) -> str:
    return f"ttnn.{cls.__qualname__}"


def _shortest(cls: type, paths: tuple[str, ...]) -> str:
    if _direct(cls) in paths:
        return _direct(cls)
    return min(paths, key=lambda path: (path.count("."), path))


def _place(cls: type) -> str:
    place = cls.__module__.removeprefix(EXTENSION).replace(".operations", "", 1)
    return f"ttnn{place}.{cls.__qualname__}"

"""The converter table of ttnn, and the classes that ttnn publishes.

ttnn's classes are defined in the extension module ``ttnn._ttnn``, whose layout changes from release
to release; people write ``ttnn.MemoryConfig``. A class has its public name: directly under ``ttnn``
if it is there, else its shortest public path.

``find`` finds the classes of the installed module; their converters are derived from their
signatures (``configs``), except for those in ``memory.SPECIAL``. ``NOT_CONVERTIBLE`` and
``NOT_CONFIGURATIONS`` name the classes without a converter, with the reason.
"""

from __future__ import annotations

import enum
import importlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from optrove.frameworks.ttnn.convert import tensors
from optrove.frameworks.ttnn.convert.configs import constructors, derive, hidden_state, properties
from optrove.frameworks.ttnn.convert.memory import SPECIAL, number
from optrove.serializer.tables import (
    CallableConverter,
    ConverterTable,
    StructConverter,
    SymbolConverter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


EXTENSION = "ttnn._ttnn"


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of one ttnn by kind, each with its public name.

    ``values`` have a constructor that Python can call. ``handed_out`` are public but have no
    constructor: only ttnn creates their objects, if there are any (not of base classes).
    """

    values: dict[type, str]
    handed_out: dict[type, str]
    enums: dict[type, str]


def find(ttnn: ModuleType) -> Classes:
    """Return the classes of ``ttnn`` that may be arguments of an operation.

    These are the enumerations, and the classes of the extension module that are public or whose
    name ends in ``Config``. The classes of the operations themselves do not count.
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
    """Return whether Python can make an object of ``cls``."""
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
    pending = [ttnn._ttnn]  # noqa: SLF001 - the extension module, which has classes without a public name
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
    """Name every class; if several claim one name, only a public class gets it."""
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


NOT_CONVERTIBLE: dict[str, str] = {
    "ttnn.SocketConfig": "its connections, ranks and sub-devices have no reader",
    "ttnn.SocketMemoryConfig": "its connections, ranks and sub-devices have no reader",
    "ttnn.MeshMapperConfig": "its shape override has no reader; tensors have their own placement",
    "ttnn.MeshComposerConfig": "its shape override has no reader",
    "ttnn.MeshCoordinateRangeSet": "its ranges have no reader",
    "ttnn.experimental.fabric_mux.Config": "its channels and addresses have no reader",
}
"""Configurations whose objects are recorded as Opaque, and why."""

NOT_CONFIGURATIONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "ttnn.CBDescriptor",
            "ttnn.CBFormatDescriptor",
            "ttnn.KernelDescriptor",
            "ttnn.MeshProgramDescriptor",
            "ttnn.ProgramDescriptor",
            "ttnn.RuntimeArgs",
        ),
        "a hand-written program: it holds addresses of live buffers, and its data formats and "
        "build options have no reader",
    ),
    **dict.fromkeys(
        (
            "ttnn.InterProcessCounterChannel",
            "ttnn.disaggregation.KvChunkAddressTable",
            "ttnn.experimental.layer_completion.LayerCompletionRouter",
        ),
        "a running service over shared memory or device addresses, not a value",
    ),
    **dict.fromkeys(
        (
            "ttnn.D2HSocket",
            "ttnn.D2HStreamService",
            "ttnn.H2DSocket",
            "ttnn.H2DStreamService",
            "ttnn.LayerAckService",
            "ttnn.LayerNormInputs",
            "ttnn.MatmulInputs",
            "ttnn.Mcast",
            "ttnn.MeshSocket",
            "ttnn.OverlappedTensor",
            "ttnn.SliceInputs",
            "ttnn.TensorAccessorArgs",
        ),
        "made of live tensors, devices, sockets or services",
    ),
}
"""Other public classes whose objects are recorded as Opaque, and what they are instead."""


def table() -> ConverterTable:
    """Import ttnn and return its converters."""
    ttnn = importlib.import_module("ttnn")
    classes = find(ttnn)
    return ConverterTable(
        "ttnn",
        [
            *tensors.converters(ttnn),
            *tensors.handle_converters(ttnn),
            *operations(ttnn),
            *symbols(classes),
            *structs(ttnn, classes),
        ],
    )


def structs(ttnn: ModuleType, classes: Classes) -> tuple[StructConverter, ...]:
    """Return a converter for each value class that can be read back and recreated."""
    found = (convert(ttnn, cls, name) for cls, name in classes.values.items())
    return tuple(converter for converter in found if converter is not None)


def symbols(classes: Classes) -> tuple[SymbolConverter, ...]:
    """Return a converter for each enumeration, by the names of its members."""
    return tuple(
        SymbolConverter(name, cls, dict(cls.__members__), _member_name)  # type: ignore[attr-defined]  # every class here is an Enum
        for cls, name in classes.enums.items()
    )


def operations(ttnn: ModuleType) -> tuple[CallableConverter, ...]:
    """Return the converters of operations; ttnn has one class per runtime mode."""
    name_of = partial(operation_name, ttnn)
    return tuple(
        CallableConverter(f"ttnn.{name}", getattr(ttnn.decorators, name), name_of)
        for name in ("FastOperation", "Operation")
    )


def operation_name(ttnn: ModuleType, live: Any) -> str:
    """Return the public name of an operation; LookupError if another one has the name."""
    name: str = live.python_fully_qualified_name
    found: Any = ttnn
    for part in name.removeprefix("ttnn.").split("."):
        found = getattr(found, part, None)
    if found is not live:
        raise LookupError(f"{name} is another operation, or none")
    return name


def convert(ttnn: ModuleType, cls: type, name: str) -> StructConverter | None:
    """Return the converter of one value class; None for a class that has no converter."""
    if name in SPECIAL:
        return SPECIAL[name](ttnn, cls, name)
    refused = name in NOT_CONVERTIBLE or name in NOT_CONFIGURATIONS
    if refused or holds_live_objects(cls) or hidden_state(cls):
        return number(cls, name) if "__int__" in vars(cls) else None
    return derive(cls, name)


# Objects of a running process. A class made of them describes no configuration.
_LIVE = re.compile(r"\b(MeshDevice|Tensor|\w+Service|\w+Socket)\b")


def holds_live_objects(cls: type) -> bool:
    """Return whether objects of ``cls`` are made of tensors, devices, sockets or services."""
    arguments = (kind for each in constructors(cls) for kind in each.annotations.values())
    getters: list[Any] = [member.fget for member in properties(cls).values()]
    signatures = (getattr(getter, "__nb_signature__", ()) for getter in getters)
    types = (overload[0] for overloads in signatures for overload in overloads)
    return any(_LIVE.search(text) for text in (*arguments, *types))


def _member_name(live: Any) -> str:
    name: str = live._name_
    return name

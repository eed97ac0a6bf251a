"""The converter table of ttnn: configurations, enumerations, operations, tensors, handles.

Classes are found by walking the installed module (``classes``) and derived from their signatures
(``configs``). What that rule cannot do is said by hand in ``special``; ``NOT_CONVERTIBLE`` and
``NOT_CONFIGURATIONS`` name the classes that have no converter, with the reason.
"""

from __future__ import annotations

import importlib
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from optrove.backends.base import (
    CallableConverter,
    ConverterTable,
    StructConverter,
    SymbolConverter,
)
from optrove.backends.ttnn import handles, tensors
from optrove.backends.ttnn.classes import Classes, find
from optrove.backends.ttnn.configs import derive, hidden_state
from optrove.backends.ttnn.signatures import constructors, properties
from optrove.backends.ttnn.special import SPECIAL, number

if TYPE_CHECKING:
    from types import ModuleType

NOT_CONVERTIBLE: dict[str, str] = {
    "ttnn.SocketConfig": "its connections, ranks and sub-devices have no reader",
    "ttnn.SocketMemoryConfig": "its connections, ranks and sub-devices have no reader",
    "ttnn.MeshMapperConfig": "its shape override has no reader; tensors tell their own placement",
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
    """Return the converters of the installed ttnn, which is imported now if it was not yet."""
    ttnn = importlib.import_module("ttnn")
    classes = find(ttnn)
    return ConverterTable(
        "ttnn",
        [
            *tensors.converters(ttnn),
            *handles.converters(ttnn),
            *operations(ttnn),
            *symbols(classes),
            *structs(ttnn, classes),
        ],
    )


def structs(ttnn: ModuleType, classes: Classes) -> tuple[StructConverter, ...]:
    """Return a converter for each value class that can be read back and made anew."""
    found = (convert(ttnn, cls, name) for cls, name in classes.values.items())
    return tuple(converter for converter in found if converter is not None)


def symbols(classes: Classes) -> tuple[SymbolConverter, ...]:
    """Return a converter for each enumeration, whose members go by their names."""
    return tuple(
        SymbolConverter(name, cls, dict(cls.__members__), _member_name)  # type: ignore[attr-defined]  # every class here is an Enum
        for cls, name in classes.enums.items()
    )


def operations(ttnn: ModuleType) -> tuple[CallableConverter, ...]:
    """Return the converters of operations, of which ttnn has one class per runtime mode."""
    name_of = partial(operation_name, ttnn)
    return tuple(
        CallableConverter(f"ttnn.{name}", getattr(ttnn.decorators, name), name_of)
        for name in ("FastOperation", "Operation")
    )


def operation_name(ttnn: ModuleType, live: Any) -> str:
    """Return the public name of an operation; LookupError when it leads to another one."""
    name: str = live.python_fully_qualified_name
    found: Any = ttnn
    for part in name.removeprefix("ttnn.").split("."):
        found = getattr(found, part, None)
    if found is not live:
        raise LookupError(f"{name} is another operation, or none")
    return name


def convert(ttnn: ModuleType, cls: type, name: str) -> StructConverter | None:
    """Return the converter of one value class, or None when it has none."""
    if name in SPECIAL:
        return SPECIAL[name](ttnn, cls, name)
    refused = name in NOT_CONVERTIBLE or name in NOT_CONFIGURATIONS
    if refused or holds_live_objects(cls) or hidden_state(cls):
        return number(cls, name) if "__int__" in vars(cls) else None
    return derive(cls, name)


# Objects of a running process. A class made of them describes no configuration.
_LIVE = re.compile(r"\b(MeshDevice|Tensor|\w+Service|\w+Socket)\b")


def holds_live_objects(cls: type) -> bool:
    """Tell whether objects of ``cls`` are made of tensors, devices, sockets or services."""
    arguments = (p.annotation for overload in constructors(cls) for p in overload.parameters)
    getters: list[Any] = [member.fget for member in properties(cls).values()]
    signatures = (getattr(getter, "__nb_signature__", ()) for getter in getters)
    types = (overload[0] for overloads in signatures for overload in overloads)
    return any(_LIVE.search(text) for text in (*arguments, *types))


def _member_name(live: Any) -> str:
    name: str = live._name_
    return name

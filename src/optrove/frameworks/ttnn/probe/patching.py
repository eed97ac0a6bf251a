"""Patch functions of ttnn without callers noticing, and unpatch for a while."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import WRAPPER_ASSIGNMENTS, wraps
from types import FunctionType, ModuleType
from typing import Any, Final, Protocol, TypeAlias

from optrove.frameworks.ttnn.probe.arguments import read_stub
from optrove.serializer.build import reason

# Patches are for the whole process, so the loaded ttnn itself carries what stands on top.
MARK: Final = "__optrove_attachment__"
SHADOW_MARK: Final = "__optrove_shadow__"


class Liftable(Protocol):
    """Patches that can be taken away and put back."""

    def install(self) -> None:
        """Put all patches in place, or none."""

    def remove(self) -> None:
        """Take all patches away."""


@contextmanager
def lifted(ttnn: ModuleType) -> Iterator[None]:
    """Take the attachment off inside the block, so that others can patch below it."""
    attachment: Liftable | None = getattr(ttnn, MARK, None)
    if attachment is not None:
        attachment.remove()
    try:
        yield
    finally:
        if attachment is not None:
            attachment.install()


__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

Note: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
"""Called with the result and the arguments of a call that returned."""

OnFault: TypeAlias = Callable[[str], None]
"""Told what went wrong in a watcher, since the watched program must not be."""

Place: TypeAlias = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and that attribute."""

SIGNATURE = "__nb_signature__"


def watched(original: Any, note: Note, on_fault: OnFault) -> Any:
    """Return a function that does what ``original`` does and tells ``note`` of each success."""

    @wraps(original, assigned=(*WRAPPER_ASSIGNMENTS, SIGNATURE))
    def call(*arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        try:
            note(result, arguments, keywords)
        except Exception as error:  # noqa: BLE001 - the recorder's border: it is told, and the caller's program goes on
            on_fault(f"a call of {call.__qualname__} was not understood: {reason(error)}")
        return result

    return call


def patches(notes: Iterable[tuple[Any, Note]], on_fault: OnFault) -> list[Place]:
    """Return what to replace so that each of the functions is watched under all its names."""
    replacements = {id(function): watched(function, note, on_fault) for function, note in notes}
    ours = [place for place in members() if id(place[2]) in replacements]
    # Tens of thousands, of which hardly any is ours.
    elsewhere = [
        (module, name, member)
        for module in _loaded_elsewhere()
        for name, member in list(vars(module).items())
        if id(member) in replacements
    ]
    return [(owner, name, replacements[id(member)]) for owner, name, member in (*ours, *elsewhere)]


def members() -> list[Place]:
    """Return all attributes of ttnn's loaded modules, classes and operations."""
    modules = [
        module
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] == "ttnn" and isinstance(module, ModuleType)
    ]
    found = list(globals_of(modules))
    owners = {id(cls): cls for _, _, member in found for cls in (member, type(member))}
    classes = [cls for cls in owners.values() if type(cls).__name__.startswith("nb_type")]
    return found + [(cls, *item) for cls in classes for item in list(vars(cls).items())]


def globals_of(modules: Iterable[ModuleType]) -> Iterator[Place]:
    """Yield the attributes of modules."""
    for module in modules:
        for name, member in list(vars(module).items()):
            yield module, name, member


def _loaded_elsewhere() -> list[ModuleType]:
    """Return the modules of everybody else, who may have said ``from ttnn import``."""
    return [
        module
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] != "ttnn" and type(module) is ModuleType
    ]


def stubs(function: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the overloads of a function of nanobind: stub line and default values."""
    native = type(function).__name__ in ("nb_func", "nb_method")
    if not native and not (isinstance(function, FunctionType) and SIGNATURE in vars(function)):
        return ()
    return tuple((entry[0], entry[2] or ()) for entry in getattr(function, SIGNATURE))


# A default stands in the stub as a backslash and its index into the tuple of live defaults.
_DEFAULT = re.compile(r"(\w+): [^:=]+ = \\(\d+)")


class Signature:
    """The overloads of a function of nanobind, read once."""

    def __init__(self, function: Any) -> None:
        self._overloads = [
            (read_stub(stub), {name: values[int(at)] for name, at in _DEFAULT.findall(stub)})
            for stub, values in stubs(function)
        ]

    def bind(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any] | None:
        """Return all arguments by name, defaults included; None when no overload takes them."""
        for overload, defaults in self._overloads:
            bound = overload.bind(arguments, keywords)
            if bound is not None:
                return defaults | bound
        return None

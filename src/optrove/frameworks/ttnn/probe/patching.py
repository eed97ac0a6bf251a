"""Observe calls of ttnn's functions by patches, and remove the probe's patches for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import WRAPPER_ASSIGNMENTS, wraps
from types import ModuleType
from typing import Any, Final, TypeAlias

from optrove.frameworks.ttnn.signatures import SIGNATURE
from optrove.serializer.build import reason

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

# Patches are for the whole process, so the loaded ttnn itself carries what is installed.
PROBE_ATTRIBUTE: Final = "__optrove_attachment__"
SHADOW_ATTRIBUTE: Final = "__optrove_shadow__"

OnReturn: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any]], None]
"""Called with the result and the arguments of a call that returned."""

OnFault: TypeAlias = Callable[[str], None]
"""Called with an error of an observer, which the observed program must not notice."""

Member: TypeAlias = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and that attribute."""


@contextmanager
def unpatched(ttnn: ModuleType) -> Iterator[None]:
    """Remove the probe's patches inside the block, so that others can patch below them."""
    attachment: Any = getattr(ttnn, PROBE_ATTRIBUTE, None)
    if attachment is not None:
        attachment.remove()
    try:
        yield
    finally:
        if attachment is not None:
            attachment.install()


def patches(observers: Iterable[tuple[Any, OnReturn]], on_fault: OnFault) -> list[Member]:
    """Return the patches that report each of the functions, under all its names."""
    replacements = {
        id(function): _observed(function, on_return, on_fault) for function, on_return in observers
    }
    ours = [member for member in members() if id(member[2]) in replacements]
    # Programs may have said ``from ttnn import``. They have tens of thousands of attributes, of
    # which hardly any is a function of ttnn.
    elsewhere = [
        (module, name, member)
        for module in _modules(ours=False)
        for name, member in list(vars(module).items())
        if id(member) in replacements
    ]
    return [(owner, name, replacements[id(member)]) for owner, name, member in (*ours, *elsewhere)]


def _observed(original: Any, on_return: OnReturn, on_fault: OnFault) -> Any:
    @wraps(original, assigned=(*WRAPPER_ASSIGNMENTS, SIGNATURE))
    def call(*arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        try:
            on_return(result, arguments, keywords)
        except Exception as error:  # noqa: BLE001 - the recorder's border: it is reported, and the caller's program goes on
            on_fault(f"a call of {call.__qualname__} was not understood: {reason(error)}")
        return result

    return call


def members() -> list[Member]:
    """Return all attributes of ttnn's loaded modules and of the classes in them."""
    found = [
        (module, name, member)
        for module in _modules(ours=True)
        for name, member in list(vars(module).items())
    ]
    owners = {id(cls): cls for _, _, member in found for cls in (member, type(member))}
    classes = [cls for cls in owners.values() if type(cls).__name__.startswith("nb_type")]
    return found + [(cls, *item) for cls in classes for item in list(vars(cls).items())]


def _modules(*, ours: bool) -> list[ModuleType]:
    """Return the loaded modules of ttnn, or those of everybody else."""
    return [
        module
        for name, module in sys.modules.copy().items()
        if (name.partition(".")[0] == "ttnn") is ours
        and (isinstance(module, ModuleType) if ours else type(module) is ModuleType)
    ]

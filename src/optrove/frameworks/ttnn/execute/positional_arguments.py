"""Match arguments that were recorded by place with the parameters of the installed ttnn.

Imported recordings have some or all arguments by place only. Those of Python calls are passed by
place again. Others have the places of C++, where keyword-only parameters count as well and an older
release may have had more or fewer parameters: these are matched with the parameters in ttnn's
signatures, in their order and by their types.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.frameworks.ttnn.signatures import NUMBER
from optrove.model.values import (
    Bool,
    DeviceRef,
    Float,
    Int,
    List,
    Null,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
    Value,
)
from optrove.model.values import Mapping as Dictionary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.frameworks.ttnn.execute.invoking import Target
    from optrove.frameworks.ttnn.execute.typed_arguments import ArgumentTypes
    from optrove.frameworks.ttnn.signatures import Overload

PLACE: Final = re.compile(r"arg(\d+)")
"""The names of arguments that were recorded by place."""

UNWRITTEN: Final = "unsupported type"
"""The text that tt-metal's tracer writes in place of an argument that it cannot print."""

_ROW: Final = re.compile(r"\b(array|SmallVector|vector|span)\b")
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ArgumentPassing:
    """How arguments are passed: ``places`` are those that are passed by place, in order.

    ``values`` are the arguments by the names that they have here; ``named`` maps recorded places to
    these names. ``roles`` maps arguments that are still passed by place to their parameters.
    ``notes`` list omitted arguments.
    """

    places: list[str]
    values: dict[str, Value]
    named: dict[str, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def argument_passing(target: Target, arguments: Mapping[str, Value]) -> ArgumentPassing:
    """Return how recorded arguments are passed to an operation."""
    numbered = numbered_places(arguments)
    own = {name for name in arguments if name != "self"}
    if any(overload.required <= own <= overload.names for overload in target.overloads):
        return ArgumentPassing([], dict(arguments))
    if not numbered or not target.overloads:
        return _to_python(target, arguments, numbered)
    fitting = _fitting_by_place(target.overloads, numbered, own)
    if fitting is not None and not any(is_unwritten(arguments[name]) for name in numbered):
        roles = dict(zip(numbered, fitting.positional, strict=False))
        return ArgumentPassing(numbered, dict(arguments), roles=roles)
    return _in_order_of_c(target, arguments, numbered) or ArgumentPassing(numbered, dict(arguments))


def is_unwritten(value: Value) -> bool:
    """Return whether a recorder had an argument here that it could not write."""
    return isinstance(value, Opaque) and UNWRITTEN in value.token


def numbered_places(names: Iterable[str]) -> list[str]:
    """Return the arguments that were recorded by place, in the order of their places."""
    return sorted(filter(PLACE.fullmatch, names), key=lambda name: int(name[3:]))


def positional_names(signature: inspect.Signature) -> list[str]:
    """Return the parameters of a Python function that can be passed by place."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in signature.parameters.values() if each.kind in kinds]


def _to_python(
    target: Target, arguments: Mapping[str, Value], numbered: list[str]
) -> ArgumentPassing:
    """Pass arguments to a Python function, without trailing None that it has no place for."""
    kept, places = dict(arguments), list(numbered)
    if target.signature is not None and numbered:
        room = positional_names(target.signature)
        parameters = target.signature.parameters.values()
        variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        while not variadic and len(places) > len(room) and isinstance(kept[places[-1]], Null):
            del kept[places.pop()]
    return ArgumentPassing(places, kept)


def _fitting_by_place(
    overloads: tuple[Overload, ...], numbered: list[str], own: set[str]
) -> Overload | None:
    """Return the overload that takes this many arguments by place, and the others by name."""
    count, others = len(numbered), own - set(numbered)
    for overload in overloads:
        placed = set(overload.positional[:count])
        fits = count <= len(overload.positional) and others <= overload.names - placed
        if fits and overload.required <= placed | others:
            return overload
    return None


def _in_order_of_c(
    target: Target, arguments: Mapping[str, Value], numbered: list[str]
) -> ArgumentPassing | None:
    """Return the arguments by the names of the first overload whose order they follow."""
    others = {name: value for name, value in arguments.items() if name not in numbered}
    for overload in target.overloads:
        found = _along(overload, {name: arguments[name] for name in numbered}, target.types)
        if found is None:
            continue
        named, notes = found
        if overload.required <= set(named.values()) | others.keys():
            values = {new: arguments[old] for old, new in named.items()}
            return ArgumentPassing([], {**values, **others}, named, notes=tuple(notes))
    return None


def _along(
    overload: Overload, values: Mapping[str, Value], types: ArgumentTypes
) -> tuple[dict[str, str], list[str]] | None:
    """Return the parameter of each argument, and notes about arguments without one.

    None needs no parameter, and neither does a zero or an unwritten argument that no parameter
    takes anymore; every other argument needs one.
    """
    left = list(overload.annotations.items())
    named: dict[str, str] = {}
    notes = []
    for name, value in values.items():
        if isinstance(value, Null):
            if left and "None" in left[0][1]:
                left.pop(0)
            continue
        place = next((i for i, (_, kind) in enumerate(left) if takes(kind, value, types)), None)
        if place is not None:
            named[name] = left[place][0]
            del left[: place + 1]
        elif is_unwritten(value) or value in (Int(0), Bool(value=False)):
            notes.append(f"the installed ttnn has no parameter for {name}; it was left out")
        else:
            return None
    return named, notes


def takes(annotation: str, value: Value, types: ArgumentTypes) -> bool:
    """Return whether a parameter of this type may take a value, once that is converted."""
    match value:
        case TensorSpec():
            return "Tensor" in annotation.replace("tensor.", "")
        case Bool() | Int() | Float():
            return bool(NUMBER.search(annotation)) and "Sequence" not in annotation
        case Text() | Dictionary():
            return types.fits(value, annotation) or types.converted(value, [annotation]) != value
        case List() | Tuple():
            return "Sequence" in annotation or "Shape" in annotation
        case Struct(type="ttnn.Shape"):
            return "Shape" in annotation or "Sequence[int]" in annotation
        case Struct(type=name) | Symbol(type=name) | DeviceRef(type=name):
            return name.rpartition(".")[2] in _WORD.findall(annotation)
        case Opaque(type=name):
            return _takes_unwritten(annotation, name)
    return True


def _takes_unwritten(annotation: str, name: str) -> bool:
    """Return whether a parameter may take an unwritten argument of this C++ type."""
    words = {word.removeprefix("Basic") for word in _WORD.findall(name)}
    kinds = {word.removeprefix("Eltwise") for word in _WORD.findall(annotation)}
    shared = {word for word in words & kinds if word[:1].isupper()}
    row = bool(_ROW.search(name))
    if "GlobalSemaphore" in words and "semaphore" in annotation.lower():
        return True
    return bool(shared) or (row and bool(re.search(r"Sequence\[.*int|Shape", annotation)))

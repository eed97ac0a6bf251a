"""Name the arguments of torch calls as torch's own signatures do.

A call has the same names however it is spelled. Operations of the dispatcher have a schema;
functions written in Python a signature; functions and methods written in C++ go by the schemas of
the ATen operation of their name, whose first parameter is called ``input`` in functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Final

Named = dict[str, Any]
Binder = Callable[[tuple[Any, ...], Mapping[str, Any]], Named]

UNTOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.as_tensor": ("data", "dtype", "device"),
    "torch.asarray": ("obj",),
    "torch.frombuffer": ("buffer",),
    "torch.tensor": ("data",),
}
"""Parameters of functions about which torch tells nothing."""

_INT_LIST: Final = "List[int]"
_LOOSE: Final = inspect.Parameter.VAR_POSITIONAL
_NAMED: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a schema; ``kind`` is its type, without ``Optional``."""

    name: str
    kind: str
    optional: bool
    required: bool
    keyword_only: bool


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call an ATen operation; ``first`` is the place that may take loose sizes."""

    positional: tuple[Parameter, ...]
    by_name: Mapping[str, Parameter]
    first: int

    def bind(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any], accepts: Accepts
    ) -> Named | None:
        """Return the arguments by name, None when they do not fit."""
        arguments = self._gathered(arguments)
        if len(arguments) > len(self.positional):
            return None
        placed = {part.name: live for part, live in zip(self.positional, arguments, strict=False)}
        if placed.keys() & keywords.keys():
            return None
        bound = placed | dict(keywords)
        required = {part.name for part in self.by_name.values() if part.required}
        if not required <= bound.keys() <= self.by_name.keys():
            return None
        fits = all(accepts(self.by_name[name], live) for name, live in bound.items())
        return bound if fits else None

    def _gathered(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Put loose sizes together: ``view(2, 3)`` is ``view((2, 3))``."""
        first = self.first
        if (
            len(arguments) > first + 1
            and len(self.positional) > first
            and self.positional[first].kind == _INT_LIST
            and all(type(live) is int for live in arguments[first:])
        ):
            return (*arguments[:first], arguments[first:])
        return arguments


Accepts = Callable[[Parameter, Any], bool]


class Signatures:
    """What is known about the parameters of torch's functions."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._examples: Mapping[Any, Any] = torch.overrides.get_testing_overrides()
        number = (int, float, complex)
        sequence = (list, tuple)
        self._classes: dict[str, Any] = {
            "Tensor": torch.Tensor,
            "number": number,
            "int": (int, torch.SymInt),
            "float": (int, float, torch.SymFloat),
            "bool": (bool, torch.SymBool),
            "complex": number,
            "str": str,
            "ScalarType": torch.dtype,
            "Layout": torch.layout,
            "MemoryFormat": torch.memory_format,
            "Device": (torch.device, str, int),
            "Generator": torch.Generator,
            "Dimname": str,
            _INT_LIST: (int, torch.SymInt, *sequence),
        }
        self._lists = sequence

    def of_operation(self, operation: Any) -> Binder:
        """Return what names the arguments of an operation of the dispatcher."""
        names = tuple(argument.name for argument in operation._schema.arguments)  # noqa: SLF001 - torch's public operations have no other way to tell
        return lambda arguments, keywords: by_names(names, arguments, keywords)

    def of_function(self, name: str, function: Any, *, method: bool) -> Binder:
        """Return what names the arguments of a function, which goes by ``name``."""
        if isinstance(function, FunctionType):
            signature = _signature(function)
            if signature is not None:
                return _python_binder(signature)
        overloads = self._overloads(function, method=method)
        names = UNTOLD.get(name) or self._example_names(function)
        names = ("self", *names[1:]) if method else names

        def bind(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Named:
            for overload in overloads:
                bound = overload.bind(arguments, keywords, self._accepts)
                if bound is not None:
                    return bound
            return by_names(names, arguments, keywords)

        return bind

    def _overloads(self, function: Any, *, method: bool) -> tuple[Overload, ...]:
        name = getattr(function, "__name__", "")
        packet = None if name.startswith("__") else getattr(self._torch.ops.aten, name, None)
        if packet is None:
            return ()
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]  # noqa: SLF001 - as above
        return tuple(_overload(schema.arguments, method=method) for schema in schemas)

    def _example_names(self, function: Any) -> tuple[str, ...]:
        """Return the parameters of torch's own stand-in for a function, none if it has none."""
        example = self._examples.get(function)
        if example is None:
            return ()
        parameters = inspect.signature(example).parameters.values()
        return tuple(each.name for each in parameters if each.kind is _NAMED)

    def _accepts(self, parameter: Parameter, live: Any) -> bool:
        if live is None:
            return parameter.optional
        kind = parameter.kind
        classes = self._classes.get(kind)
        if classes is None:
            return not kind.startswith("List[") or isinstance(live, self._lists)
        # To Python a bool is an int; to torch the two are apart.
        if kind in ("int", _INT_LIST) and isinstance(live, bool):
            return False
        return isinstance(live, classes)


def by_names(
    names: Iterable[str], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Named:
    """Return every argument by name; where names run out it is ``arg`` and its place."""
    told = tuple(names)
    places = [f"arg{place}" for place in range(len(told), len(arguments))]
    return {**dict(zip((*told, *places), arguments, strict=False)), **keywords}


def _overload(arguments: Iterable[Any], *, method: bool) -> Overload:
    parameters = []
    for argument in arguments:
        text = str(argument.real_type)
        optional = text.startswith("Optional[")
        name = argument.name if method or argument.name != "self" else "input"
        kind = text[len("Optional[") : -1] if optional else text
        if argument.name == "dtype" and kind == "int":
            kind = "ScalarType"  # TorchScript's overloads, as to(device, dtype), have numbers there
        required = not argument.has_default_value()
        parameters.append(Parameter(name, kind, optional, required, argument.kwarg_only))
    return Overload(
        positional=tuple(part for part in parameters if not part.keyword_only),
        by_name={part.name: part for part in parameters},
        first=1 if method else 0,
    )


def _signature(function: Any) -> inspect.Signature | None:
    """Return the signature of a Python function, None where it does not tell any names."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # it wraps a function of C++
        return None
    first = next(iter(signature.parameters.values()), None)
    return None if first is not None and first.kind is _LOOSE else signature


def _python_binder(signature: inspect.Signature) -> Binder:
    def bind(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Named:
        try:
            bound = signature.bind(*arguments, **keywords)
        except TypeError:  # the call is about to be refused
            return by_names((), arguments, keywords)
        named: Named = {}
        for name, live in bound.arguments.items():
            kind = signature.parameters[name].kind
            if kind is _LOOSE:
                named.update(by_names((), live, {}))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                named.update(live)
            else:
                named[name] = live
        return named

    return bind

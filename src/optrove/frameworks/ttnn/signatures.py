"""Read the signatures of ttnn's functions, and bind the arguments of calls to their parameters.

nanobind keeps ``__nb_signature__`` with every function: one entry per overload with a Python stub,
a docstring, and the live default values. The stub is split into parameters and never executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from inspect import unwrap
from itertools import pairwise
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.argument_names import bind_by_place, bind_by_signature, signature_of

if TYPE_CHECKING:
    from collections.abc import Iterable, KeysView, Mapping

SIGNATURE: Final = "__nb_signature__"

NUMBER: Final = re.compile(r"\b(int|float|bool)\b")

# A quoted type is C++ (``"detail::tuple<int_, int_>"``); its commas do not count.
_PUNCTUATION: Final = re.compile(r'"[^"]*"|[][(){},]')

# A default is written as a backslash and its index into the tuple of live defaults.
_DEFAULT: Final = re.compile(r"= \\(\d+)$")


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a function.

    ``annotations`` are the types of all parameters in their order, as the stub has them. Parameters
    in ``tensors`` never take a number. ``defaults`` are indices into the live default values.
    """

    positional: tuple[str, ...]
    annotations: Mapping[str, str]
    required: frozenset[str]
    tensors: frozenset[str]
    defaults: Mapping[str, int]

    @property
    def names(self) -> KeysView[str]:
        """The names of all parameters."""
        return self.annotations.keys()

    def bind(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the arguments by name, or None when they do not fit."""
        if len(arguments) > len(self.positional):
            return None
        placed = dict(zip(self.positional, arguments, strict=False))
        if placed.keys() & keywords.keys():
            return None
        bound = placed | dict(keywords)
        numbers = {name for name, value in bound.items() if isinstance(value, (int, float))}
        fits = self.required <= bound.keys() <= self.names and not numbers & self.tensors
        return bound if fits else None


@lru_cache(maxsize=4096)  # more than ttnn has: every trace of a process reads all of them
def read_stub(stub: str) -> Overload:
    r"""Read ``def op(self, a: Tensor, *, b: int = \0) -> Tensor``."""
    listed = [part for part in _split(stub) if part not in ("", "/", "self")]
    place = listed.index("*") if "*" in listed else len(listed)
    written = {part.partition(":")[0].strip(): part for part in listed}
    positional = tuple(written)[:place]
    written.pop("*", None)
    annotations = {name: _annotation(part) for name, part in written.items()}
    defaults = {name: _DEFAULT.search(part) for name, part in written.items()}
    return Overload(
        positional=positional,
        annotations=annotations,
        required=frozenset(name for name, part in written.items() if "=" not in part),
        tensors=frozenset(name for name, kind in annotations.items() if _takes_no_number(kind)),
        defaults={name: int(found.group(1)) for name, found in defaults.items() if found},
    )


def _split(stub: str) -> list[str]:
    """Return the parameters of a stub as they are written."""
    text = stub.partition("(")[2]
    cuts, depth = [-1], 0
    for found in _PUNCTUATION.finditer(text):
        mark = found.group()
        if mark in ",)" and depth == 0:
            cuts.append(found.start())
            if mark == ")":
                break
        depth += (mark in "([{") - (mark in ")]}")
    else:
        cuts.append(len(text))
    return [text[start + 1 : end].strip() for start, end in pairwise(cuts)]


def _annotation(part: str) -> str:
    return part.partition(":")[2].partition("=")[0].strip()


def _takes_no_number(annotation: str) -> bool:
    return "Tensor" in annotation and not NUMBER.search(annotation)


def overloads_of(function: Any) -> tuple[Overload, ...]:
    """Return the overloads of a nanobind function, also through wrappers; none of any other.

    An operation of C++ is an object whose class has the signature.
    """
    native = unwrap(function)
    entries = getattr(type(native).__call__, SIGNATURE, ()) or getattr(native, SIGNATURE, ())
    return tuple(read_stub(entry[0]) for entry in entries)


def stubs(function: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return the overloads of a nanobind function as stub and live default values."""
    native = type(function).__name__ in ("nb_func", "nb_method")
    if not native and not (isinstance(function, FunctionType) and SIGNATURE in vars(function)):
        return ()
    return tuple((entry[0], entry[2] or ()) for entry in getattr(function, SIGNATURE))


def bind_with_defaults(
    overloads: Iterable[tuple[str, tuple[Any, ...]]],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> dict[str, Any] | None:
    """Return all arguments by name, default values included; None when no overload takes them.

    ``overloads`` are what ``stubs`` returns.
    """
    for stub, values in overloads:
        overload = read_stub(stub)
        bound = overload.bind(arguments, keywords)
        if bound is not None:
            return {name: values[index] for name, index in overload.defaults.items()} | bound
    return None


def bind_all(
    function: Any,
    overloads: tuple[Overload, ...],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Return every argument by name; one that no signature names is called ``arg0`` on.

    A function without overloads is written in Python and has a signature of its own.
    """
    if not overloads:
        return bind_by_signature(signature_of(function), arguments, keywords)
    return bind_overloads(overloads, arguments, keywords)


def bind_overloads(
    overloads: tuple[Overload, ...], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return every argument by the names of the first overload that takes them all."""
    for overload in overloads:
        bound = overload.bind(arguments, keywords)
        if bound is not None:
            return bound
    return bind_by_place(arguments, keywords)


class Signatures:
    """The overloads of operations, each read once."""

    def __init__(self) -> None:
        self._overloads: dict[str, tuple[Overload, ...]] = {}

    def of(self, operation: Any) -> tuple[Overload, ...]:
        """Return the overloads of an operation; none if it is written in Python."""
        name = operation.python_fully_qualified_name
        if name not in self._overloads:
            self._overloads[name] = overloads_of(operation.function)
        return self._overloads[name]

    def bind(
        self, operation: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments by the names of the first overload that takes them.

        Where none does, ttnn will refuse the call or keeps its signature to itself: then only the
        keywords have names.
        """
        for overload in self.of(operation):
            bound = overload.bind(arguments, keywords)
            if bound is not None:
                return bound
        return dict(keywords)

    def parameters(self, operation: Any) -> frozenset[str]:
        """Return the names of all parameters of an operation, over all its overloads."""
        return frozenset().union(*(overload.names for overload in self.of(operation)))

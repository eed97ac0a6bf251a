"""Name the arguments of op calls as ttnn's own signatures do.

nanobind keeps ``__nb_signature__`` with every op: an entry per overload, whose first part is a
Python stub. Only the names in it and their order are read.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER = re.compile(r"\b(int|float|bool)\b")
MARK = re.compile(r"[][(){},]")


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call an op, by the names of its parameters; ``tensors`` never take a number.

    ``written`` are all parameters with their types, as the stub has them; with ``unnamed``
    they can be passed by place only.
    """

    positional: tuple[str, ...]
    names: frozenset[str]
    required: frozenset[str]
    tensors: frozenset[str]
    written: tuple[tuple[str, str], ...] = ()
    unnamed: bool = False

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


class Signatures:
    """The overloads of ops, each read once.

    ``originals`` are the functions of ops by name, as they were before somebody replaced them.
    """

    def __init__(self, originals: Mapping[str, Any] | None = None) -> None:
        self._originals = originals or {}
        self._overloads: dict[str, tuple[Overload, ...]] = {}

    def of(self, operation: Any) -> tuple[Overload, ...]:
        """Return the overloads of an op, none where it does not say."""
        name = operation.python_fully_qualified_name
        if name not in self._overloads:
            function = self._originals.get(name, operation.function)
            bound = getattr(type(function).__call__, "__nb_signature__", ())
            signatures = bound or getattr(function, "__nb_signature__", ())
            self._overloads[name] = tuple(read_stub(signature[0]) for signature in signatures)
        return self._overloads[name]

    def bind(
        self, operation: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments by the names of the first overload that takes them.

        Where none does, ttnn will refuse the call or has kept its signature to itself: then only
        the keywords have names.
        """
        for overload in self.of(operation):
            bound = overload.bind(arguments, keywords)
            if bound is not None:
                return bound
        return dict(keywords)

    def parameters(self, operation: Any) -> frozenset[str]:
        """Return the names of all parameters of an op, over all its overloads."""
        return frozenset().union(*(overload.names for overload in self.of(operation)))


def bind_all(
    function: Any,
    overloads: tuple[Overload, ...],
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Return every argument by name; one that no signature names is called ``arg0`` on.

    A function without overloads is written in Python and asked for its own signature.
    """
    if not overloads:
        return bind_python(function, arguments, keywords)
    return bind_overloads(overloads, arguments, keywords)


def bind_overloads(
    overloads: tuple[Overload, ...], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return every argument by the names of the first overload that takes them all."""
    for overload in overloads:
        bound = overload.bind(arguments, keywords)
        if bound is not None:
            return bound
    return bind_places(arguments, keywords)


def bind_python(
    function: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return every argument by the names in a Python function's signature."""
    try:
        bound = inspect.signature(function).bind(*arguments, **keywords)
    except (TypeError, ValueError):  # it takes other arguments, or tells no signature
        return bind_places(arguments, keywords)
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named.update(bind_places(value, {}))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    return named


def bind_places(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by their places, where nothing tells their names."""
    places = {f"arg{place}": value for place, value in enumerate(arguments)}
    return {**places, **keywords}


@lru_cache(maxsize=4096)  # more than ttnn has: every trace of a process reads all of them
def read_stub(stub: str) -> Overload:
    r"""Read ``def op(self, a: Tensor, *, b: int = \0) -> Tensor``."""
    parts = _listed(stub)
    listed = [part for part in parts if part not in ("", "/", "self")]
    place = listed.index("*") if "*" in listed else len(listed)
    written = {part.partition(":")[0].strip(): part for part in listed}
    positional = tuple(written)[:place]
    written.pop("*", None)
    return Overload(
        positional=positional,
        names=frozenset(written),
        required=frozenset(name for name, part in written.items() if "=" not in part),
        tensors=frozenset(name for name, part in written.items() if _takes_no_number(part)),
        written=tuple((name, _annotation(part)) for name, part in written.items()),
        unnamed="/" in parts,
    )


def _annotation(part: str) -> str:
    return part.partition(":")[2].partition("=")[0].strip()


def _takes_no_number(part: str) -> bool:
    annotation = part.partition(":")[2]
    return "Tensor" in annotation and not NUMBER.search(annotation)


def _listed(stub: str) -> list[str]:
    """Return the parameters of a stub as they are written, apart at their own commas only."""
    text = stub.partition("(")[2]
    cuts, depth = [-1], 0
    for found in MARK.finditer(text):
        mark = found.group()
        if mark in ",)" and depth == 0:
            cuts.append(found.start())
            if mark == ")":
                break
        depth += (mark in "([{") - (mark in ")]}")
    else:
        cuts.append(len(text))
    return [text[start + 1 : end].strip() for start, end in pairwise(cuts)]

"""Read the constructor signatures that nanobind keeps with every class of ttnn.

nanobind stores, beside the text for people, ``__nb_signature__``: one entry per overload with a
Python stub line and the live default values. The stub is parsed as syntax and never executed.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a constructor; ``annotation`` is the type as the stub spells it."""

    name: str
    annotation: str
    required: bool
    default: Any = None


@dataclass(frozen=True, slots=True)
class Overload:
    """One way to call a constructor. ``named`` is false when its arguments have no names."""

    parameters: tuple[Parameter, ...]
    named: bool

    @property
    def names(self) -> frozenset[str]:
        """The names of all parameters."""
        return frozenset(parameter.name for parameter in self.parameters)


def constructors(cls: type) -> tuple[Overload, ...]:
    """Return the overloads of ``cls.__init__``, none when Python cannot make the class.

    Copying does not count: it needs an object to begin with.
    """
    initialiser: Any = inspect.getattr_static(cls, "__init__")
    signatures = getattr(initialiser, "__nb_signature__", ())
    found = (_overload(signature[0], signature[2] or ()) for signature in signatures)
    itself = f"{cls.__module__}.{cls.__qualname__}"
    return tuple(o for o in found if [p.annotation for p in o.parameters] != [itself])


def properties(cls: type) -> dict[str, property]:
    """Return the readable properties of ``cls``, its bases included."""
    found: dict[str, property] = {}
    for base in reversed(cls.__mro__):
        found.update(
            (name, member)
            for name, member in vars(base).items()
            if isinstance(member, property) and not name.startswith("_")
        )
    return found


# A default stands in the stub as a backslash and its index into the tuple of live defaults.
_DEFAULT = re.compile(r"\\(\d+)")


def _overload(stub: str, defaults: tuple[Any, ...]) -> Overload:
    source = _DEFAULT.sub(r"\1", stub)
    named = "/)" not in source
    if named:
        # nanobind allows a required parameter after an optional one, Python's grammar only
        # among keywords; the order does not matter where every argument is passed by name.
        source = source.replace(", *,", ",").replace("(self,", "(self, *,")
    written = _written(source, named=named)
    if written is None:
        # Some stubs hold types that are no Python (``ArrayLike[]``): keep the text as one
        # parameter without a usable name, so that the overload is seen and never called.
        return Overload((Parameter(source, source, required=True),), named=False)
    return Overload(tuple(_parameter(*each, defaults) for each in written), named)


def _parameter(
    name: str, annotation: str, index: int | None, defaults: tuple[Any, ...]
) -> Parameter:
    if index is None:
        return Parameter(name, annotation, required=True)
    return Parameter(name, annotation, required=False, default=defaults[index])


@lru_cache(maxsize=4096)  # more than ttnn has: every trace of a process reads all of them
def _written(source: str, *, named: bool) -> tuple[tuple[str, str, int | None], ...] | None:
    """Return name, type and number of the default of each parameter, None if it is no Python."""
    try:
        parsed = ast.parse(f"{source}: ...").body[0]
    except SyntaxError:
        return None
    assert isinstance(parsed, ast.FunctionDef)  # noqa: S101 - a stub is one def; narrows the type
    listed = parsed.args.kwonlyargs if named else parsed.args.posonlyargs[1:]
    values = parsed.args.kw_defaults if named else [None] * len(listed)
    return tuple(
        (
            each.arg,
            ast.unparse(each.annotation) if each.annotation else "",
            None if value is None else ast.literal_eval(value),
        )
        for each, value in zip(listed, values, strict=True)
    )

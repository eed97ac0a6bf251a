"""Derive converters of configuration classes from their signatures.

nanobind stores, beside the text for people, ``__nb_signature__``: one entry per overload with a
Python stub line and the live default values. The stub is parsed as syntax and never executed.

Most of ttnn's classes take keyword arguments and have a property of the same name for each, so
one rule serves them all and a class of a new release needs no code here. The rule refuses a
class when a part of an object's state cannot be read back; it never leaves such a part out.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from optrove.serializer.tables import Caching, StructConverter

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.serializer.tables import Fields


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


# Methods that put state into an object which no property need show.
_MUTATORS = ("set", "experimental_set", "add_", "append_", "extend_", "merge")


@dataclass(frozen=True, slots=True)
class Derived:
    """One class taken apart by its readers and put together by its constructor.

    ``arguments`` go to the constructor by name, ``assigned`` are set afterwards, even if they were
    arguments: some constructors alter one argument for the sake of another. A field that data
    leaves out takes ttnn's own default if it has one: a recording made before a release added
    the field still builds.
    """

    cls: type
    readers: tuple[tuple[str, Callable[[Any], Any]], ...]
    arguments: tuple[str, ...]
    assigned: tuple[str, ...]

    def fields(self, live: Any) -> Fields:
        """Return the value of every field of ``live``."""
        return {name: read(live) for name, read in self.readers}

    def make(self, fields: Fields) -> Any:
        """Return a new object with the given fields."""
        live = self.cls(**{name: fields[name] for name in self.arguments if name in fields})
        for name in self.assigned:
            # An argument may be None where the property may not: ttnn then chose a value.
            if name in fields and not (fields[name] is None and name in self.arguments):
                setattr(live, name, fields[name])
        return live


def hidden_state(cls: type) -> str | None:
    """Say what of an object of ``cls`` cannot be read back, or None when all of it can."""
    readers = _readers(cls)
    overloads = _informative(cls)
    if not overloads:
        return "its constructor is not ttnn's own"
    unread = sorted({name for overload in overloads for name in overload.names} - readers.keys())
    if unread:
        return f"constructor arguments without a reader: {', '.join(unread)}"
    methods = [name for name in vars(cls) if not name.startswith("_") and name not in readers]
    mutators = [name for name in methods if name.startswith(_MUTATORS)]
    if mutators:
        return f"state set by methods: {', '.join(sorted(mutators))}"
    fields = readers.keys() & (_settable(cls) | {n for o in overloads for n in o.names})
    callables = [name for name in methods if callable(getattr(cls, name))]
    return "nothing can be read" if callables and not fields else None


def derive(cls: type, name: str) -> StructConverter:
    """Return the converter of a class without hidden state, to be called ``name``."""
    readers = _readers(cls)
    overloads = _informative(cls)
    fullest = max(overloads, key=lambda overload: len(overload.parameters))
    arguments = tuple(parameter.name for parameter in fullest.parameters)
    assigned = tuple(sorted(_settable(cls)))
    fields = dict.fromkeys((*arguments, *assigned))
    derived = Derived(
        cls,
        readers=tuple((field, readers[field]) for field in fields),
        arguments=arguments,
        assigned=assigned,
    )
    required = tuple(p.name for p in fullest.parameters if p.required)
    optional = tuple(field for field in fields if field not in required)
    return StructConverter(
        name, cls, derived.fields, derived.make, required, caching_of(cls), optional
    )


def caching_of(cls: type) -> Caching:
    """Return how descriptions of ``cls`` may be kept: by value where it defines its own hash."""
    own = {"__eq__", "__hash__"} <= vars(cls).keys() and vars(cls)["__hash__"] is not None
    return Caching.BY_VALUE if own and not _settable(cls) else Caching.NEVER


def _informative(cls: type) -> tuple[Overload, ...]:
    """Return the constructors of ``cls`` without its conversions from one other object."""
    overloads = constructors(cls)
    readers = _readers(cls).keys()
    told = any(overload.parameters and overload.names <= readers for overload in overloads)
    if not told and not _settable(cls):
        return overloads
    return tuple(o for o in overloads if o.names <= readers or len(o.parameters) != 1)


def _settable(cls: type) -> set[str]:
    return {name for name, member in properties(cls).items() if member.fset is not None}


def _readers(cls: type) -> dict[str, Callable[[Any], Any]]:
    """Return a reader per property, and per method without arguments that returns something."""
    readers: dict[str, Callable[[Any], Any]] = {}
    for name, member in vars(cls).items():
        signatures: Any = getattr(member, "__nb_signature__", ())
        if len(signatures) == 1 and signatures[0][0].startswith(f"def {name}(self) -> "):
            readers[name] = methodcaller(name)
    readers.update({name: attrgetter(name) for name in properties(cls)})
    return readers

"""Derive converters of configuration classes from their constructors.

Most of ttnn's classes take keyword arguments and have a property of the same name for each, so one
rule serves them all, and a class of a new release needs no code here. The rule refuses a class if
a part of an object's state cannot be read back; it never omits such a part.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any

from optrove.frameworks.ttnn.signatures import overloads_of
from optrove.serializer.tables import StructConverter

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.frameworks.ttnn.signatures import Overload
    from optrove.serializer.tables import Fields


def constructors(cls: type) -> tuple[Overload, ...]:
    """Return the overloads of ``cls.__init__``; none if Python cannot construct the class.

    Copying does not count: it needs an object to begin with.
    """
    found = overloads_of(inspect.getattr_static(cls, "__init__"))
    itself = [f"{cls.__module__}.{cls.__qualname__}"]
    return tuple(each for each in found if [*each.annotations.values()] != itself)


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


# Methods that change the state of an object, which properties may not show.
_MUTATORS = ("set", "experimental_set", "add_", "append_", "extend_", "merge")


@dataclass(frozen=True, slots=True)
class Derived:
    """The conversion of one class: its readers, and how its constructor is called.

    ``arguments`` are passed to the constructor by name, ``assigned`` are set afterwards, even if
    they were arguments: some constructors alter one argument for the sake of another. A field that
    the data lacks takes ttnn's default if it has one, so a recording that is older than the field
    still builds.
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
    """Return which state of an object of ``cls`` cannot be read back; None if all of it can."""
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
    """Return the converter, called ``name``, of a class without hidden state."""
    readers = _readers(cls)
    overloads = _informative(cls)
    fullest = max(overloads, key=lambda overload: len(overload.names))
    arguments = tuple(fullest.names)
    assigned = tuple(sorted(_settable(cls)))
    fields = dict.fromkeys((*arguments, *assigned))
    derived = Derived(
        cls,
        readers=tuple((field, readers[field]) for field in fields),
        arguments=arguments,
        assigned=assigned,
    )
    required = tuple(name for name in arguments if name in fullest.required)
    optional = tuple(field for field in fields if field not in required)
    return StructConverter(
        name, cls, derived.fields, derived.make, required, is_cacheable(cls), optional
    )


def is_cacheable(cls: type) -> bool:
    """Return whether descriptions of ``cls`` may be cached: if it defines its own hash."""
    own = {"__eq__", "__hash__"} <= vars(cls).keys() and vars(cls)["__hash__"] is not None
    return own and not _settable(cls)


def _informative(cls: type) -> tuple[Overload, ...]:
    """Return the constructors of ``cls`` except conversions from one other object."""
    overloads = constructors(cls)
    readers = _readers(cls).keys()
    readable = any(overload.names and overload.names <= readers for overload in overloads)
    if not readable and not _settable(cls):
        return overloads
    return tuple(o for o in overloads if o.names <= readers or len(o.names) != 1)


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

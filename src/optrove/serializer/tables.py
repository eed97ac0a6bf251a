"""Converter tables: the name of each framework type, and its conversion in both directions.

Two different objects must never be recorded as one. A name stands for a class or function only
while the module holds that very object under the name. So a wrapper that took over the name of the
wrapped function, a class made within a function, and a redefined class have no name.

A converter is one object that holds both directions, so that describing and building cannot
drift apart. A framework lists its converters in a ``ConverterTable``; ``Tables`` joins the tables
in use for ``describe`` and ``build``. Six kinds exist:

    StructConverter   a class with fields            <-> Struct
    SymbolConverter   an enum-like class             <-> Symbol
    TensorConverter   a tensor class                  -> TensorSpec (which stays one when built)
    DeviceConverter   a device class                  -> DeviceRef  (the caller's device goes in)
    HandleConverter   an object to be recreated      <-> Handle
    CallableConverter a class of functions            -> Callable   (which stays one when built)

Converters read and make; they never compare, print or format a live object, since ``==`` on a
tensor runs an operation and ``str`` may read its numbers. For an object or fields that it cannot
handle a converter raises any exception: the object is then described as Opaque, and building it
is a fault.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar
from weakref import ref

if TYPE_CHECKING:
    from optrove.model.values import TensorSpec, Value


T = TypeVar("T")


class ByClass(Generic[T]):
    """Things by class. Looks at the id of a class only: a metaclass may refuse to be hashed.

    ``entries`` are the things by that id, for readers that need speed. An entry goes when its class
    does, and so before another class can get the id, unless it refers to the class itself.
    """

    __slots__ = ("_watched", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, T] = {}
        self._watched: dict[int, ref[type]] = {}

    def keep(self, kind: type, entry: T) -> None:
        """Keep ``entry`` for as long as ``kind`` lives."""
        number, entries, watched = id(kind), self.entries, self._watched

        def forget(_: ref[type]) -> None:
            entries.pop(number, None)
            watched.pop(number, None)

        watched[number] = ref(kind, forget)
        entries[number] = entry


_UNKNOWN: Final = "?"
# Asked of ``type`` itself, since a metaclass may return anything, or raise.
_MODULE: Final = type.__dict__["__module__"]
_PATH: Final = type.__dict__["__qualname__"]
_CONTENT: Final = type.__dict__["__dict__"]


@dataclass(frozen=True, slots=True)
class Name:
    """The declared name of a class or function: its module, and the path within the module."""

    module: str
    path: str

    def joined(self, separator: str) -> str:
        """Return module and path as one name, in valid Unicode."""
        text = f"{self.module}{separator}{self.path}"
        return text.encode("utf-8", "backslashreplace").decode("utf-8")

    def leads_to(self, live: Any) -> bool:
        """Return whether ``live`` is found by this name; imports nothing, runs no user code."""
        module = sys.modules.get(self.module)
        if not issubclass(type(module), ModuleType):
            return False
        space: Any = vars(module)
        found: Any = None
        for step in self.path.split("."):
            found = None if space is None else space.get(step)
            space = _CONTENT.__get__(found) if issubclass(type(found), type) else None
        return (found.__func__ if type(found) is staticmethod else found) is live


def class_name(kind: type) -> Name:
    """Return the name of a class; never raises."""
    return Name(_text(_MODULE.__get__(kind)), _text(_PATH.__get__(kind)))


def function_name(live: Any) -> Name:
    """Return the name of a function."""
    return Name(_text(live.__module__), _text(live.__qualname__))


def is_readable(name: str) -> bool:
    """Return whether ``name`` is valid Unicode, as names in data must be."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _text(part: Any) -> str:
    return part if type(part) is str else _UNKNOWN


Fields: TypeAlias = dict[str, Any]


class Describing(Protocol):
    """The part of a Describer that converters use for objects within their own."""

    def describe(self, live: Any) -> Value:
        """Return the recorded form of ``live``; never raises."""

    def device_number(self, live: Any) -> int:
        """Return the number of a device within this session."""


@dataclass(frozen=True, slots=True)
class StructConverter:
    """A class with named fields.

    ``fields`` takes an object apart into live field values, and ``make`` creates one from them;
    the new object must have the same fields. ``names``, when given, are the fields that data must
    have, and ``optional`` those that it may have, so that ``make`` never sees a missing or unknown
    one. With ``cacheable``, objects never change, and ``hash`` and ``==`` cover all ``fields``.
    """

    name: str
    type: type
    fields: Callable[[Any], Fields]
    make: Callable[[Fields], Any]
    names: tuple[str, ...] | None = None
    cacheable: bool = False
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SymbolConverter:
    """A class with a fixed set of named objects; ``name_of`` is the inverse of ``members``.

    ``name_of`` may raise LookupError for an object that is not a member, which is then Opaque.
    """

    name: str
    type: type
    members: Mapping[str, Any]
    name_of: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class TensorConverter:
    """A tensor class.

    ``spec`` is called with the tensor, the running description (for parts such as a memory
    configuration) and the numbers that the tensor and its buffer have within the call. Two
    objects with the same ``key`` are one tensor; two tensors with the same ``storage`` share
    their numbers (None: each has a buffer of its own). With ``subclasses`` the classes derived
    from ``type`` count too.
    """

    name: str
    type: type
    spec: Callable[[Any, Describing, int, int], TensorSpec]
    key: Callable[[Any], Hashable] = id
    subclasses: bool = False
    storage: Callable[[Any], Hashable] | None = None


@dataclass(frozen=True, slots=True)
class DeviceConverter:
    """A device class; nothing but the shape of its mesh is recorded.

    Two objects with the same ``key`` are one device.
    """

    name: str
    type: type
    mesh_shape: Callable[[Any], tuple[int, ...]]
    subclasses: bool = False
    key: Callable[[Any], Hashable] = id


def unobserved(live: Any) -> Fields | None:  # noqa: ARG001 - the signature of HandleConverter.recipe
    """Return None: the object does not say how to create another one."""
    return None


@dataclass(frozen=True, slots=True)
class HandleConverter:
    """A class of runtime objects that have to be recreated.

    ``recipe`` returns the live values that ``make`` needs, or None if the object does not have
    them; a ``RecipeLookup`` that watched its creation is asked first. ``make`` is called with the
    recipe and the device. ``names`` are the exact fields of a recipe, as in StructConverter.
    Without ``needs_device`` an object is created even if the caller has no device.
    """

    name: str
    type: type
    make: Callable[[Fields, Any], Any]
    recipe: Callable[[Any], Fields | None] = unobserved
    names: tuple[str, ...] | None = None
    key: Callable[[Any], Hashable] = id
    subclasses: bool = False
    needs_device: bool = True


@dataclass(frozen=True, slots=True)
class CallableConverter:
    """A class of functions, such as a framework's operations.

    ``name_of`` returns the one public name of a function, and raises LookupError for one that
    has none, which is then Opaque.
    """

    name: str
    type: type
    name_of: Callable[[Any], str]


Converter: TypeAlias = (
    StructConverter
    | SymbolConverter
    | TensorConverter
    | DeviceConverter
    | HandleConverter
    | CallableConverter
)

RecipeLookup: TypeAlias = Callable[[Any], "Fields | None"]
"""Given a live handle, the recipe seen when it was made, or None."""


class ConverterTable:
    """The converters of one framework, whose names all start with ``framework`` and a dot."""

    __slots__ = ("by_name", "by_type", "framework")

    def __init__(self, framework: str, converters: Iterable[Converter]) -> None:
        self.framework = framework
        self.by_name: dict[str, Converter] = {}
        self.by_type: dict[type, Converter] = {}
        for converter in converters:
            self._add(converter)

    def _add(self, converter: Converter) -> None:
        if not converter.name.startswith(f"{self.framework}."):
            raise ValueError(
                f"converter {converter.name!r} is in the table of {self.framework!r}; "
                f"name it {self.framework}.{converter.name} or move it to its own table"
            )
        refuse_duplicate(converter, self.by_name, self.by_type)
        self.by_name[converter.name] = converter
        self.by_type[converter.type] = converter


class Tables:
    """The tables in use, joined; a name or a live class may be in only one of them.

    ``absent`` are the frameworks that are not installed: their Values stay as they are when
    built. A name of any other framework is a fault. ``handlers`` is the cache of ``describe``: the
    handler of each class.
    """

    __slots__ = ("absent", "by_name", "by_type", "handlers", "inherited")

    def __init__(self, tables: Iterable[ConverterTable], absent: Iterable[str] = ()) -> None:
        self.absent = frozenset(absent)
        self.handlers: ByClass[Any] = ByClass()
        self.by_name: dict[str, Converter] = {}
        self.by_type: dict[type, Converter] = {}
        for table in tables:
            self._join(table)
        self.inherited: tuple[Converter, ...] = tuple(
            converter for converter in self.by_type.values() if takes_subclasses(converter)
        )

    def _join(self, table: ConverterTable) -> None:
        for converter in table.by_name.values():
            refuse_duplicate(converter, self.by_name, self.by_type)
        self.by_name.update(table.by_name)
        self.by_type.update(table.by_type)

    def device_key(self, live: Any) -> Hashable:
        """Return the key that identifies a device, by the converter of its class."""
        kind = type(live)
        converter = self.by_type.get(kind) or self.for_subclass(kind)
        return converter.key(live) if isinstance(converter, DeviceConverter) else id(live)

    def for_subclass(self, kind: type) -> Converter | None:
        """Return the converter that accepts ``kind`` as a subclass, the nearest base first."""
        for base in kind.__mro__:
            for converter in self.inherited:
                if converter.type is base:
                    return converter
        return None


def framework_of(name: str) -> str:
    """Return the framework that a name starts with: ``ttnn`` of ``ttnn.Layout``; or ""."""
    framework, dot, _ = name.partition(".")
    return framework if dot else ""


def takes_subclasses(converter: Converter) -> bool:
    """Return whether ``converter`` also converts subclasses of its class."""
    match converter:
        case StructConverter() | SymbolConverter() | CallableConverter():
            return False
        case TensorConverter() | DeviceConverter() | HandleConverter():
            return converter.subclasses


def refuse_duplicate(
    converter: Converter, by_name: Mapping[str, Converter], by_type: Mapping[type, Converter]
) -> None:
    """Raise ValueError when the name or the live class of ``converter`` is taken."""
    if converter.name in by_name:
        raise ValueError(
            f"two converters are called {converter.name!r}: one for "
            f"{by_name[converter.name].type!r} and one for {converter.type!r}; keep one of them"
        )
    if converter.type in by_type:
        raise ValueError(
            f"{converter.type!r} has two converters: {by_type[converter.type].name!r} and "
            f"{converter.name!r}; keep one of them"
        )

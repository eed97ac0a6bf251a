"""Describe live objects as Values.

``Describer`` is one session: the arguments and results of one call go through the same one, so
that a tensor or handle that appears twice keeps its number. It never raises, never changes an
object, and never compares, prints or formats one. What no converter knows, what is nested too
deeply, contains itself or is too large becomes Opaque.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable as Function
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias, get_args

from optrove.backends.base import (
    CONVERTER_ERRORS,
    Caching,
    Converter,
    DeviceConverter,
    Fields,
    HandleConverter,
    RecipeLookup,
    StructConverter,
    SymbolConverter,
    Tables,
    TensorConverter,
    unobserved,
)
from optrove.backends.plain import qualified_name, user_converter
from optrove.codec.text import MAX_INT_BITS
from optrove.model.values import (
    Bool,
    Bytes,
    Callable,
    Complex,
    DeviceRef,
    Float,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
    Value,
)
from optrove.model.walk import MAX_DEPTH, walk

MAX_PARTS: Final = 1_000_000
"""How many parts one session describes unless told otherwise; lists that share sublists can
unfold without end."""

_NULL: Final = Null()
_TRUE: Final = Bool(value=True)
_FALSE: Final = Bool(value=False)


def describe(live: Any, tables: Tables) -> Value:
    """Return the recorded form of one object, by the converters of ``tables``."""
    return Describer(tables).describe(live)


class DescriptionCache:
    """Descriptions of objects that never change, as their converters declare.

    Bounded: when full it starts over, so that a program which makes a new configuration for
    every call neither grows without end nor keeps its objects alive for long.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int = 4096) -> None:
        self._entries: dict[Hashable, tuple[Any, Value]] = {}
        self._limit = limit

    def find(self, key: Hashable) -> Value | None:
        """Return what was kept under ``key``, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def keep(self, key: Hashable, live: Any, value: Value) -> None:
        """Keep ``value`` and hold ``live``, unless ``value`` is only good for this session."""
        if any(isinstance(part, (TensorSpec, Handle, Opaque)) for _, part in walk(value)):
            return
        if len(self._entries) >= self._limit:
            self._entries.clear()
        self._entries[key] = (live, value)


class Describer:
    """One session of describing, with its numbering of tensors and of handles."""

    __slots__ = (
        "_handlers",
        "_handles",
        "_held",
        "_open",
        "_parts_left",
        "_tables",
        "_tensors",
        "cache",
        "recipes",
    )

    def __init__(
        self,
        tables: Tables,
        *,
        cache: DescriptionCache | None = None,
        recipes: RecipeLookup = unobserved,
        max_parts: int = MAX_PARTS,
    ) -> None:
        self.cache = cache
        self.recipes = recipes
        self._tables = tables
        self._handlers: dict[type, Handler] = tables.handlers
        self._tensors: dict[Hashable, int] = {}
        self._handles: dict[Hashable, int] = {}
        self._held: list[Any] = []
        self._open: set[int] = set()
        self._parts_left = max_parts

    def describe(self, live: Any) -> Value:
        """Return the recorded form of ``live``; never raises."""
        kind = type(live)
        handler = self._handlers.get(kind)
        try:
            if handler is None:
                handler = self._handlers[kind] = _handler_for(kind, self._tables)
            return handler(self, live)
        except CONVERTER_ERRORS:
            # Not muted: an Opaque is counted by type in every summary.
            return opaque(self, live)

    def enter(self, live: Any, parts: int) -> bool:
        """Begin the ``parts`` of ``live``; False if it must not be taken apart any further."""
        self._parts_left -= parts
        if id(live) in self._open or len(self._open) >= MAX_DEPTH or self._parts_left < 0:
            return False
        self._open.add(id(live))
        return True

    def leave(self, live: Any) -> None:
        """End what ``enter`` began."""
        self._open.discard(id(live))

    def named(self, fields: Fields) -> tuple[tuple[str, Value], ...]:
        """Return the described fields of an object that was entered."""
        return tuple([(name, self.describe(item)) for name, item in fields.items()])

    def tensor_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a tensor within this session."""
        return self._number(self._tensors, live, key)

    def handle_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a handle within this session."""
        return self._number(self._handles, live, key)

    def _number(self, numbers: dict[Hashable, int], live: Any, key: Hashable) -> int:
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(numbers)
            # Held, because Python gives the id of a dead object to the next one.
            self._held.append(live)
        return number


Handler: TypeAlias = Function[[Describer, Any], Value]


def opaque(session: Describer, live: Any) -> Value:  # noqa: ARG001 - the signature of a Handler
    """Describe an object of which nothing but its type is known."""
    return Opaque(qualified_name(type(live), "."), secrets.token_hex(16))


def _list(session: Describer, live: list[Any]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        return List(tuple([session.describe(item) for item in live]))
    finally:
        session.leave(live)


def _tuple(session: Describer, live: tuple[Any, ...]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        return Tuple(tuple([session.describe(item) for item in live]))
    finally:
        session.leave(live)


def _set(session: Describer, live: set[Any] | frozenset[Any]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        items = frozenset([session.describe(item) for item in live])
    finally:
        session.leave(live)
    # Two objects may have one description (every NaN has); then the set cannot be recorded.
    return Set(items) if len(items) == len(live) else opaque(session, live)


def _dict(session: Describer, live: dict[Any, Any]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        items = [(session.describe(key), session.describe(item)) for key, item in live.items()]
    finally:
        session.leave(live)
    if len({key for key, _ in items}) != len(live):
        return opaque(session, live)
    return Mapping(frozenset(items))


def _int(session: Describer, live: int) -> Value:
    return Int(live) if live.bit_length() <= MAX_INT_BITS else opaque(session, live)


def _function(session: Describer, live: Any) -> Value:
    """Describe a function; one whose name does not tell it from others is Opaque."""
    owner = getattr(live, "__self__", None)
    if "<" in live.__qualname__ or not (owner is None or isinstance(owner, ModuleType)):
        return opaque(session, live)
    return Callable(qualified_name(live, ":"))


def _class(session: Describer, live: type) -> Value:
    name = qualified_name(live, ":")
    return opaque(session, live) if "<" in name else Callable(name)


_BUILTIN: Final[dict[type, Handler]] = {
    type(None): lambda _, live: _NULL,  # noqa: ARG005 - the signature of a Handler
    bool: lambda _, live: _TRUE if live else _FALSE,
    int: _int,
    float: lambda _, live: Float(live),
    complex: lambda _, live: Complex(Float(live.real), Float(live.imag)),
    str: lambda _, live: Text(live),
    bytes: lambda _, live: Bytes(live),
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _dict,
    FunctionType: _function,
    BuiltinFunctionType: _function,
}


def _same(session: Describer, live: Any) -> Any:  # noqa: ARG001 - the signature of a Handler
    return live


# What could not be built without its framework is a Value already and stays the same.
_HANDLERS: Final[dict[type, Handler]] = {**_BUILTIN, **dict.fromkeys(get_args(Value), _same)}


def _handler_for(kind: type, tables: Tables) -> Handler:
    handler = _HANDLERS.get(kind)
    if handler is not None:
        return handler
    converter = tables.by_type.get(kind) or tables.for_subclass(kind) or user_converter(kind)
    if converter is not None:
        return _converter_handler(converter)
    return _class if issubclass(kind, type) else opaque


def _converter_handler(converter: Converter) -> Handler:
    match converter:
        case StructConverter():
            return _struct_handler(converter)
        case SymbolConverter(name=name, name_of=name_of):
            return lambda _, live: Symbol(name, name_of(live))
        case TensorConverter():
            return _tensor_handler(converter)
        case DeviceConverter(name=name, mesh_shape=mesh_shape):
            return lambda _, live: DeviceRef(name, mesh_shape(live))
        case HandleConverter():
            return _handle_handler(converter)


def _struct_handler(converter: StructConverter) -> Handler:
    def taken_apart(session: Describer, live: Any) -> Value:
        fields = converter.fields(live)
        if not session.enter(live, len(fields)):
            return opaque(session, live)
        try:
            return Struct(converter.name, session.named(fields))
        finally:
            session.leave(live)

    def cached(session: Describer, live: Any) -> Value:
        cache = session.cache
        if cache is None:
            return taken_apart(session, live)
        by_value = converter.caching is Caching.BY_VALUE
        key = (converter.name, live if by_value else id(live))
        value = cache.find(key)
        if value is None:
            value = taken_apart(session, live)
            cache.keep(key, live, value)
        return value

    return taken_apart if converter.caching is Caching.NEVER else cached


def _tensor_handler(converter: TensorConverter) -> Handler:
    def handle(session: Describer, live: Any) -> Value:
        if not session.enter(live, 1):
            return opaque(session, live)
        try:
            return converter.spec(
                live, session, session.tensor_number(live, (converter.name, converter.key(live)))
            )
        finally:
            session.leave(live)

    return handle


def _handle_handler(converter: HandleConverter) -> Handler:
    def handle(session: Describer, live: Any) -> Value:
        number = session.handle_number(live, (converter.name, converter.key(live)))
        fields = session.recipes(live)
        if fields is None:
            fields = converter.recipe(live)
        if fields is None or not session.enter(live, len(fields)):
            return Handle(converter.name, None, number)
        try:
            return Handle(converter.name, Struct(converter.name, session.named(fields)), number)
        finally:
            session.leave(live)

    return handle

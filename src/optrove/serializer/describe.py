"""Describe live objects as Values.

A ``Describer`` is one session: the arguments and results of one call go through the same one, so
that a tensor or handle that appears twice keeps its number. It never raises, never changes an
object, and never compares, prints or formats one. An object that no converter knows, that is nested
too deeply, contains itself or is too large becomes Opaque.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable as Function
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from optrove.model.values import (
    MAX_DEPTH,
    Bool,
    Bytes,
    Callable,
    Complex,
    DeviceRef,
    Float,
    FrozenSet,
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
    walk,
)
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.plain import user_converter
from optrove.serializer.tables import (
    CallableConverter,
    Converter,
    DeviceConverter,
    Fields,
    HandleConverter,
    Name,
    RecipeLookup,
    StructConverter,
    SymbolConverter,
    Tables,
    TensorConverter,
    class_name,
    function_name,
    unobserved,
)
from optrove.serializer.text import MAX_INT_BITS
from optrove.serializer.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Hashable


Handler: TypeAlias = Function[["Describer", Any], Value]

_NULL: Final = Null()
_TRUE: Final = Bool(value=True)
_FALSE: Final = Bool(value=False)


def opaque(session: Describer, live: Any) -> Value:  # noqa: ARG001 - the signature of a Handler
    """Describe an object by its type only."""
    return Opaque(class_name(type(live)).joined("."), secrets.token_hex(16))


def handler_for(kind: type, tables: Tables) -> Handler:
    """Return the function that describes objects of ``kind``; it keeps no user class alive."""
    handler = _HANDLERS.get(kind)
    if handler is not None:
        return handler
    converter = tables.by_type.get(kind) or tables.for_subclass(kind)
    if converter is not None:
        return _converter_handler(converter)
    converter = user_converter(kind)
    if converter is not None:
        return _user_handler(class_name(kind), _converter_handler(converter))
    return _class if issubclass(kind, type) else opaque


def _sequence(session: Describer, live: list[Any] | tuple[Any, ...]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        items = tuple([session.describe(item) for item in live])
    finally:
        session.leave(live)
    return List(items) if type(live) is list else Tuple(items)


def _set(session: Describer, live: set[Any] | frozenset[Any]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        items = frozenset([session.describe(item) for item in live])
    finally:
        session.leave(live)
    # Two objects may have one description (every NaN has); then the set cannot be recorded.
    if len(items) != len(live):
        return opaque(session, live)
    return Set(items) if type(live) is set else FrozenSet(items)


def _dict(session: Describer, live: dict[Any, Any]) -> Value:
    if not session.enter(live, len(live)):
        return opaque(session, live)
    try:
        entries = [(session.describe(key), item) for key, item in live.items()]
        # Tensors and handles are numbered on the way, and equal dictionaries get equal numbers.
        entries.sort(key=lambda entry: _rank(entry[0]))
        items = [(key, session.describe(item)) for key, item in entries]
    finally:
        session.leave(live)
    if len({key for key, _ in items}) != len(live):
        return opaque(session, live)
    return Mapping(frozenset(items))


def _rank(key: Value) -> tuple[int, str | bytes]:
    return (0, key.value) if isinstance(key, Text) else (1, canonical_bytes(key))


def _int(session: Describer, live: int) -> Value:
    return Int(live) if live.bit_length() <= MAX_INT_BITS else opaque(session, live)


def _function(session: Describer, live: Any) -> Value:
    """Describe a function by its name; one that is not found under its name is Opaque."""
    owner = getattr(live, "__self__", None)
    name = function_name(live)
    if (owner is None or isinstance(owner, ModuleType)) and name.leads_to(live):
        return Callable(name.joined(":"))
    return opaque(session, live)


def _class(session: Describer, live: type) -> Value:
    name = class_name(live)
    return Callable(name.joined(":")) if name.leads_to(live) else opaque(session, live)


_BUILTIN: Final[dict[type, Handler]] = {
    type(None): lambda _, live: _NULL,  # noqa: ARG005 - the signature of a Handler
    bool: lambda _, live: _TRUE if live else _FALSE,
    int: _int,
    float: lambda _, live: Float(live),
    complex: lambda _, live: Complex(Float(live.real), Float(live.imag)),
    str: lambda _, live: Text(live),
    bytes: lambda _, live: Bytes(live),
    list: _sequence,
    tuple: _sequence,
    set: _set,
    frozenset: _set,
    dict: _dict,
    FunctionType: _function,
    BuiltinFunctionType: _function,
}


def _recorded(session: Describer, live: Any) -> Value:
    """Keep a Value, such as one whose framework is missing, unless no reader would accept it."""
    again = decode(encode(live, depth=session.depth))
    return again if again == live else opaque(session, live)


_HANDLERS: Final[dict[type, Handler]] = {**_BUILTIN, **dict.fromkeys(get_args(Value), _recorded)}


def _user_handler(name: Name, handle: Handler) -> Handler:
    def known_by_name(session: Describer, live: Any) -> Value:
        # Checked each time, since a later definition may take over the name.
        return (handle if name.leads_to(type(live)) else opaque)(session, live)

    return known_by_name


def _converter_handler(converter: Converter) -> Handler:
    match converter:
        case StructConverter():
            return _struct_handler(converter)
        case SymbolConverter(name=name, name_of=name_of):
            return lambda _, live: Symbol(name, name_of(live))
        case TensorConverter():
            return _tensor_handler(converter)
        case DeviceConverter(name=name, mesh_shape=mesh_shape):
            return lambda session, live: DeviceRef(
                name, mesh_shape(live), session.device_number(live)
            )
        case HandleConverter():
            return _handle_handler(converter)
        case CallableConverter(name_of=name_of):
            return lambda _, live: Callable(name_of(live))


def _struct_handler(converter: StructConverter) -> Handler:
    # Not the converter itself, which holds the class.
    name, fields_of = converter.name, converter.fields

    def taken_apart(session: Describer, live: Any) -> Value:
        fields = fields_of(live)
        if not session.enter(live, len(fields)):
            return opaque(session, live)
        try:
            return Struct(name, session.named(fields))
        finally:
            session.leave(live)

    def cached(session: Describer, live: Any) -> Value:
        cache = session.cache
        if cache is None:
            return taken_apart(session, live)
        key = (name, live)
        value = cache.find(key)
        if value is None:
            value = taken_apart(session, live)
            cache.keep(key, live, value)
        return value

    return cached if converter.cacheable else taken_apart


def _tensor_handler(converter: TensorConverter) -> Handler:
    name, key_of, storage_of, spec = (
        *(converter.name, converter.key),
        *(converter.storage, converter.spec),
    )

    def handle(session: Describer, live: Any) -> Value:
        if not session.enter(live, 1):
            return opaque(session, live)
        try:
            key = (name, key_of(live))
            storage = key if storage_of is None else (name, storage_of(live))
            return spec(
                live,
                session,
                session.tensor_number(live, key),
                session.storage_number(live, storage),
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
        # Two levels: the fields are in the recipe, and the recipe is in the handle.
        if fields is None or not session.enter(live, len(fields), levels=2):
            return Handle(converter.name, None, number)
        try:
            return Handle(converter.name, Struct(converter.name, session.named(fields)), number)
        finally:
            session.leave(live, levels=2)

    return handle


MAX_PARTS: Final = 1_000_000
"""The default limit of parts per session; lists that share sublists can unfold without end."""


def describe(live: Any, tables: Tables) -> Value:
    """Return the recorded form of one object, by the converters of ``tables``."""
    return Describer(tables).describe(live)


NUMBERED: Final = (TensorSpec, DeviceRef, Handle, Opaque)
"""The Values with a number or token that is valid in one session only."""


class DescriptionCache:
    """Descriptions of objects that never change, as their converters declare.

    The size is bounded: a full cache is cleared, so that a program which creates a configuration
    for every call neither grows without end nor keeps its objects alive for long.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int = 4096) -> None:
        self._entries: dict[Hashable, tuple[Any, Value]] = {}
        self._limit = limit

    def find(self, key: Hashable) -> Value | None:
        """Return the description under ``key``, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def keep(self, key: Hashable, live: Any, value: Value) -> None:
        """Keep ``value``, and ``live`` alive, unless ``value`` is valid in this session only."""
        if any(isinstance(part, NUMBERED) for _, part in walk(value)):
            return
        if len(self._entries) >= self._limit:
            self._entries.clear()
        self._entries[key] = (live, value)


class Describer:
    """One session of describing, with its numbering of tensors, buffers, devices and handles."""

    __slots__ = (
        "_devices",
        "_handlers",
        "_handles",
        "_held",
        "_open",
        "_parts_left",
        "_storages",
        "_tables",
        "_tensors",
        "cache",
        "depth",
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
        self.depth = 0
        self.recipes = recipes
        self._tables = tables
        self._handlers: dict[int, Handler] = tables.handlers.entries
        self._tensors: dict[Hashable, int] = {}
        self._storages: dict[Hashable, int] = {}
        self._devices: dict[Hashable, int] = {}
        self._handles: dict[Hashable, int] = {}
        self._held: list[Any] = []
        self._open: set[int] = set()
        self._parts_left = max_parts

    def describe(self, live: Any) -> Value:
        """Return the recorded form of ``live``; never raises."""
        try:
            kind = type(live)
            handler = self._handlers.get(id(kind))
            if handler is None:
                handler = handler_for(kind, self._tables)
                self._tables.handlers.keep(kind, handler)
            return handler(self, live)
        except Exception:  # noqa: BLE001 - the recorder's border: the user's classes run here and may raise anything
            # Not muted: every summary counts Opaques by type.
            return opaque(self, live)

    def enter(self, live: Any, parts: int, *, levels: int = 1) -> bool:
        """Begin to describe the ``parts`` of ``live``; False if a limit forbids it.

        ``levels`` is how much deeper the parts are nested in the recorded form.
        """
        self._parts_left -= parts
        too_deep = self.depth + levels > MAX_DEPTH
        if too_deep or self._parts_left < 0 or id(live) in self._open:
            return False
        self._open.add(id(live))
        self.depth += levels
        return True

    def leave(self, live: Any, *, levels: int = 1) -> None:
        """End the description of the parts of ``live``."""
        self._open.discard(id(live))
        self.depth -= levels

    def named(self, fields: Fields) -> tuple[tuple[str, Value], ...]:
        """Return the described fields of an object that was entered."""
        return tuple([(name, self.describe(item)) for name, item in fields.items()])

    def tensor_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a tensor within this session."""
        return self._number(self._tensors, live, key)

    def storage_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a tensor's buffer within this session."""
        return self._number(self._storages, live, key)

    def device_number(self, live: Any) -> int:
        """Return the number of a device within this session."""
        return self._number(self._devices, live, self._tables.device_key(live))

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

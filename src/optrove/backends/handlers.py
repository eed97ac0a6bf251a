"""How objects of each class are described: one function per class, found once."""

from __future__ import annotations

import secrets
from collections.abc import Callable as Function
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from optrove.backends.base import (
    Caching,
    CallableConverter,
    Converter,
    DeviceConverter,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    Tables,
    TensorConverter,
)
from optrove.backends.names import Name, class_name, function_name
from optrove.backends.plain import user_converter
from optrove.codec.canonical import canonical_bytes
from optrove.codec.text import MAX_INT_BITS
from optrove.codec.wire import decode, encode
from optrove.model.values import (
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
    Text,
    Tuple,
    Value,
)

if TYPE_CHECKING:
    from optrove.backends.describe import Describer

Handler: TypeAlias = Function[["Describer", Any], Value]

_NULL: Final = Null()
_TRUE: Final = Bool(value=True)
_FALSE: Final = Bool(value=False)


def opaque(session: Describer, live: Any) -> Value:  # noqa: ARG001 - the signature of a Handler
    """Describe an object of which nothing but its type is known."""
    return Opaque(class_name(type(live)).spelled("."), secrets.token_hex(16))


def handler_for(kind: type, tables: Tables) -> Handler:
    """Return what describes objects of ``kind``; it keeps no user class alive."""
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
    """Describe a function; one whose name does not tell it from others is Opaque."""
    owner = getattr(live, "__self__", None)
    name = function_name(live)
    if (owner is None or isinstance(owner, ModuleType)) and name.leads_to(live):
        return Callable(name.spelled(":"))
    return opaque(session, live)


def _class(session: Describer, live: type) -> Value:
    name = class_name(live)
    return Callable(name.spelled(":")) if name.leads_to(live) else opaque(session, live)


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


def _recorded(session: Describer, live: Any) -> Value:
    """Keep a Value, such as one whose framework is missing, unless no reader would take it."""
    again = decode(encode(live, depth=session.depth))
    return again if again == live else opaque(session, live)


_HANDLERS: Final[dict[type, Handler]] = {**_BUILTIN, **dict.fromkeys(get_args(Value), _recorded)}


def _user_handler(name: Name, handle: Handler) -> Handler:
    def known_by_name(session: Describer, live: Any) -> Value:
        # Asked each time, since a name may pass to another class of a later definition.
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
    by_value = converter.caching is Caching.BY_VALUE

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
        key = (name, live if by_value else id(live))
        value = cache.find(key)
        if value is None:
            value = taken_apart(session, live)
            cache.keep(key, live, value)
        return value

    return taken_apart if converter.caching is Caching.NEVER else cached


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
        # Two levels: the fields lie within the recipe, and that within the handle.
        if fields is None or not session.enter(live, len(fields), levels=2):
            return Handle(converter.name, None, number)
        try:
            return Handle(converter.name, Struct(converter.name, session.named(fields)), number)
        finally:
            session.leave(live, levels=2)

    return handle

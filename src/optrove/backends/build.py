"""Build live objects from Values, through converters only.

Nothing is imported, and no name is looked up anywhere but in the tables. What cannot be built is
reported with its path, all of it at once, and never replaced by something similar.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from optrove.backends.base import (
    CONVERTER_ERRORS,
    Converter,
    Fields,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    Tables,
    framework_of,
)
from optrove.backends.plain import USER_KINDS
from optrove.codec.canonical import canonical_bytes
from optrove.errors import BadData, Fault
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
from optrove.model.walk import key_step, walk


def build(value: Value, tables: Tables, mesh_device: Any = None) -> Any:
    """Return the live object that ``value`` describes; BadData names all that is in the way.

    Some Values stay as they are, because no object can stand for them: tensor specs, functions,
    user classes that are not in ``tables``, and everything of a framework that is not installed.
    Devices and handles become objects when ``mesh_device`` is given.
    """
    builder = _Builder(tables, mesh_device)
    live = builder.build(value, "$")
    if builder.faults:
        raise BadData(tuple(builder.faults))
    return live


class _Builder:
    """One session of building: its faults so far, and the handles that it has made."""

    __slots__ = ("_handles", "_mesh_device", "_tables", "faults")

    def __init__(self, tables: Tables, mesh_device: Any) -> None:
        self.faults: list[Fault] = []
        self._tables = tables
        self._mesh_device = mesh_device
        self._handles: dict[tuple[str, int], tuple[Handle, Any]] = {}

    def build(self, value: Value, path: str, *, hashable: bool = False) -> Any:
        """Return the object of ``value``, or None after noting why there is none.

        ``hashable`` asks for a frozen set, as in a key or in another set.
        """
        match value:
            case Null():
                return None
            case Bool() | Int() | Float() | Text() | Bytes():
                return value.value
            case Complex(real, imaginary):
                return complex(real.value, imaginary.value)
            case List() | Tuple() | Set() | Mapping():
                return self._container(value, path, hashable=hashable)
            case Symbol():
                return self._symbol(value, path)
            case Struct():
                return self._struct(value, path)
            case TensorSpec() | DeviceRef() | Handle() | Callable() | Opaque():
                return self._reference(value, path)

    def _fault(self, path: str, problem: str) -> None:
        self.faults.append(Fault(path, problem))

    def _container(self, value: List | Tuple | Set | Mapping, path: str, *, hashable: bool) -> Any:
        match value:
            case List(items):
                return [self.build(item, f"{path}[{index}]") for index, item in enumerate(items)]
            case Tuple(items):
                return tuple(
                    [
                        self.build(item, f"{path}.$tuple[{index}]", hashable=hashable)
                        for index, item in enumerate(items)
                    ]
                )
            case Set(items):
                found = self._set(sorted(items, key=canonical_bytes), f"{path}.$set")
                return frozenset(found) if hashable else found
            case Mapping(items):
                return self._mapping(items, path)

    def _set(self, items: list[Value], path: str) -> set[Any]:
        found: set[Any] = set()
        for index, item in enumerate(items):
            here = f"{path}[{index}]"
            before = len(self.faults)
            live = self.build(item, here, hashable=True)
            if len(self.faults) == before and self._is_new(live, found, here):
                found.add(live)
        return found

    def _mapping(self, items: frozenset[tuple[Value, Value]], path: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        ordered = sorted(items, key=lambda item: canonical_bytes(Tuple(item)))
        for index, (key, item) in enumerate(ordered):
            plain = isinstance(key, Text) and not key.value.startswith("$")
            entry = f"{path}.$map[{index}]"
            before = len(self.faults)
            live_key = self.build(key, f"{entry}[0]", hashable=True)
            usable = len(self.faults) == before and self._is_new(live_key, found, f"{entry}[0]")
            here = path + key_step(live_key) if plain else f"{entry}[1]"
            live = self.build(item, here)
            if usable:
                found[live_key] = live
        return found

    def _is_new(self, live: Any, found: set[Any] | dict[Any, Any], path: str) -> bool:
        """Tell whether ``live`` can be added to ``found``; notes why not."""
        try:
            known = live in found
        except CONVERTER_ERRORS as error:
            self._fault(path, f"cannot be in a set or be a key: {error}")
            return False
        if known:
            self._fault(path, "Python takes it for equal to another one of them")
        return not known

    def _converter(self, name: str, path: str) -> Converter | None:
        """Return the converter called ``name``; None when the Value stays or is a fault."""
        converter = self._tables.by_name.get(name)
        if converter is None and not self._stays(name):
            close = get_close_matches(name, self._tables.by_name, n=3)
            advice = f"; close to it: {', '.join(close)}" if close else ""
            self._fault(path, f"no converter is called {name!a}{advice}")
        return converter

    def _stays(self, name: str) -> bool:
        return name.startswith(USER_KINDS) or framework_of(name) in self._tables.absent

    def _check_inert(self, value: Value, path: str) -> None:
        """Note what is wrong within a Value that stays as it is."""
        for here, part in walk(value, path):
            match part:
                case Opaque():
                    self._opaque(part, here)
                case Struct() | Symbol() if part is not value:
                    self._converter(part.type, here)

    def _opaque(self, value: Opaque, path: str) -> None:
        self._fault(path, f"an object of {value.type} that no converter knew when it was recorded")

    def _symbol(self, value: Symbol, path: str) -> Any:
        converter = self._converter(value.type, path)
        if converter is None:
            return value
        if not isinstance(converter, SymbolConverter):
            self._fault(path, f"{value.type} is not a type with named members")
            return None
        if value.name not in converter.members:
            close = get_close_matches(value.name, converter.members, n=3) or converter.members
            listed = ", ".join(list(close)[:10])
            self._fault(path, f"{value.type} has no member {value.name!a}; it has {listed}")
            return None
        return converter.members[value.name]

    def _struct(self, value: Struct, path: str) -> Any:
        converter = self._converter(value.type, path)
        if converter is None:
            self._check_inert(value, path)
            return value
        if not isinstance(converter, StructConverter):
            self._fault(path, f"{value.type} is not a type with fields")
            return None
        fields = self._fields(value, converter.names, path)
        if fields is None:
            return None
        try:
            return converter.make(fields)
        except CONVERTER_ERRORS as error:
            self._fault(path, f"{value.type} refused these fields: {error}")
            return None

    def _fields(self, value: Struct, names: tuple[str, ...] | None, path: str) -> Fields | None:
        """Return the built fields of ``value``; None after a fault in them."""
        before = len(self.faults)
        fields = {
            name: self.build(item, f"{path}.fields{key_step(name)}") for name, item in value.fields
        }
        if names is not None:
            missing = [name for name in names if name not in fields]
            extra = [name for name in fields if name not in names]
            if missing:
                self._fault(path, f"{value.type} lacks the field {', '.join(missing)}")
            if extra:
                listed = ", ".join(ascii(name) for name in extra)
                self._fault(
                    path, f"{value.type} has no field {listed}; recorded with another version?"
                )
        return fields if len(self.faults) == before else None

    def _reference(
        self, value: TensorSpec | DeviceRef | Handle | Callable | Opaque, path: str
    ) -> Any:
        match value:
            case DeviceRef():
                return value if self._mesh_device is None else self._mesh_device
            case Handle():
                return self._handle(value, path)
            case TensorSpec() | Callable():
                self._check_inert(value, path)
                return value
            case Opaque():
                self._opaque(value, path)
                return None

    def _handle(self, value: Handle, path: str) -> Any:
        converter = self._converter(value.type, path)
        if converter is None or self._mesh_device is None:
            self._check_inert(value, path)
            return value
        if not isinstance(converter, HandleConverter):
            self._fault(path, f"{value.type} is not made anew for each run")
            return None
        key = (value.type, value.identity)
        if key not in self._handles:
            self._handles[key] = (value, self._made(value, converter, path))
        first, live = self._handles[key]
        if first != value:
            self._fault(path, f"handle {value.identity} has another recipe elsewhere")
        return live

    def _made(self, value: Handle, converter: HandleConverter, path: str) -> Any:
        recipe = value.recipe
        if recipe is None:
            self._fault(path, f"how this {value.type} was made was not observed")
            return None
        if recipe.type != value.type:
            self._fault(f"{path}.recipe", f"expected a recipe of {value.type}")
            return None
        fields = self._fields(recipe, converter.names, f"{path}.recipe")
        if fields is None:
            return None
        try:
            return converter.make(fields, self._mesh_device)
        except CONVERTER_ERRORS as error:
            self._fault(path, f"{value.type} could not be made: {error}")
            return None

"""Build live objects from Values, and check that they equal the recorded ones.

A class may change its arguments: round them, wrap them around, complete them. So a built object is
described again, and the description must equal the recorded one.

Nothing is imported, and names are looked up in the tables only. Every part that cannot be built is
reported with its path, and never replaced by something similar, such as one device for two.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.errors import Fault
from optrove.model.differences import ABSENT, differences
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
    TensorSpec,
    Text,
    Tuple,
    Value,
    key_step,
    walk,
)
from optrove.serializer.describe import Describer
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.plain import USER_KINDS
from optrove.serializer.tables import (
    Converter,
    Fields,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    Tables,
    class_name,
    framework_of,
)
from optrove.serializer.text import found as shown
from optrove.serializer.text import write
from optrove.serializer.wire import MAX_FAULTS, UNREAD, bad_data, encode

if TYPE_CHECKING:
    from collections.abc import Callable as Function
    from collections.abc import Iterable, Iterator

    from optrove.model.differences import Parts


@dataclass(frozen=True, slots=True)
class Made:
    """A built object, the Struct that it was built from, and its path in the data."""

    path: str
    recorded: Struct
    live: Any


def changes(objects: Iterable[Made], tables: Tables) -> Iterator[Fault]:
    """Yield a fault for each part of an object that is not as recorded.

    Fields that the record leaves out may have any value. Devices and handles are the caller's,
    and so are not compared.
    """
    # No limit on the size: the objects were built from data of that size.
    session = Describer(tables, max_parts=sys.maxsize)
    for made in objects:
        again = session.describe(made.live)
        if again == made.recorded:
            continue
        is_same = partial(_is_same, tables)
        for path, old, new in differences(
            made.recorded, again, _parts, path=made.path, step=_step, is_equal=is_same
        ):
            if old is not ABSENT:
                given = "nothing" if new is ABSENT else _shown(new)
                problem = f"recorded as {_shown(old)}, but the class made {given} of it"
                yield Fault(path, problem)


def _parts(value: Value) -> Parts | None:
    match value:
        case List(items):
            return (List, len(items)), dict(enumerate(items))
        case Tuple(items):
            steps = {("$tuple", index): item for index, item in enumerate(items)}
            return (Tuple, len(items)), steps
        case Mapping(entries):
            return (Mapping, frozenset(key for key, _ in entries)), dict(entries)
        case Struct(name, fields):
            return (Struct, name), {("fields", each): item for each, item in fields}
    return None


def _step(key: Any) -> str:
    match key:
        case int():
            return f"[{key}]"
        case ("$tuple", index):
            return f".$tuple[{index}]"
        case ("fields", name):
            return f".fields{key_step(name)}"
        case Text(name) if not name.startswith("$"):
            return key_step(name)
    return ".$map[*][1]"


def _is_same(tables: Tables, old: Value, new: Value) -> bool:
    """Return whether two values are the same; a member of an enum may have aliases."""
    if old == new or isinstance(old, (DeviceRef, Handle)):
        return True
    if not isinstance(old, Symbol) or not isinstance(new, Symbol) or old.type != new.type:
        return False
    converter = tables.by_name.get(old.type)
    if not isinstance(converter, SymbolConverter):
        return False
    return converter.members.get(old.name) is converter.members.get(new.name, converter)


def _shown(value: Value) -> str:
    return shown(write(encode(value)))


MakeTensor: TypeAlias = "Function[[TensorSpec, str], Any]"

_ADVISED: Final = 20
"""How many faults suggest similar names; finding these takes longer than the rest."""

_MAX_NAME_CHARS: Final = 200
"""Longer names are not typing errors."""

_MAX_REASON_CHARS: Final = 1000

_KNOWN: Final = "known"
"""The problem of a part that was not read, whose fault is listed already."""


def build(
    value: Value,
    tables: Tables,
    mesh_device: Any = None,
    *,
    unread: Iterable[Fault] = (),
    tensor: MakeTensor | None = None,
) -> Any:
    """Return the live object that ``value`` describes; BadData lists every fault.

    ``tensor`` creates the tensor of a spec from the spec and its path; an exception is a fault.
    ``unread`` are the faults of reading ``value``, which has UNREAD in their places; they are
    listed with the faults of building the rest.
    Some Values stay as they are: tensor specs without ``tensor``, functions, user classes that are
    not in ``tables``, and everything of a framework that is not installed. Devices and handles
    become objects when ``mesh_device`` is given.
    """
    known = list(unread)
    # With faults already known, nothing is created on a device.
    builder = _Builder(tables, None if known else mesh_device, None if known else tensor)
    live = builder.build(value, "$")
    faults = known + [fault for fault in builder.faults if fault.problem != _KNOWN]
    if not faults:
        faults = list(islice(changes(builder.made, tables), MAX_FAULTS))
    if faults:
        raise bad_data(faults)
    return live


class _Builder:
    """One session of building: its faults, and the outermost objects that converters made."""

    __slots__ = (
        "_device",
        "_handles",
        "_level",
        "_make_tensor",
        "_mesh_device",
        "_tables",
        "faults",
        "made",
    )

    def __init__(self, tables: Tables, mesh_device: Any, make_tensor: MakeTensor | None) -> None:
        self.faults: list[Fault] = []
        self.made: list[Made] = []
        self._level = 0
        self._device: DeviceRef | None = None
        self._tables = tables
        self._mesh_device = mesh_device
        self._make_tensor = make_tensor
        self._handles: dict[tuple[str, int], tuple[Handle, Any]] = {}

    def build(self, value: Value, path: str) -> Any:
        """Return the object of ``value``, or None after noting a fault."""
        if len(self.faults) >= MAX_FAULTS:
            return None
        match value:
            case Null():
                return None
            case Bool() | Int() | Float() | Text() | Bytes():
                return value.value
            case Complex(real, imaginary):
                return complex(real.value, imaginary.value)
            case List() | Tuple() | Set() | FrozenSet() | Mapping():
                return self._container(value, path)
            case Symbol():
                return self._symbol(value, path)
            case Struct():
                return self._struct(value, path)
            case TensorSpec() | DeviceRef() | Handle() | Callable() | Opaque():
                return self._reference(value, path)

    def _fault(self, path: str, problem: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(Fault(path, problem))

    def _is_sound_since(self, before: int) -> bool:
        """Return whether there are still only ``before`` faults."""
        return len(self.faults) == before and before < MAX_FAULTS

    def _container(self, value: List | Tuple | Set | FrozenSet | Mapping, path: str) -> Any:
        match value:
            case List(items):
                return [self.build(item, f"{path}[{index}]") for index, item in enumerate(items)]
            case Tuple(items):
                return tuple(
                    [
                        self.build(item, f"{path}.$tuple[{index}]")
                        for index, item in enumerate(items)
                    ]
                )
            case Set(items):
                return self._set(items, f"{path}.$set")
            case FrozenSet(items):
                return frozenset(self._set(items, f"{path}.$frozenset"))
            case Mapping(items):
                return self._mapping(items, path)

    def _set(self, items: frozenset[Value], path: str) -> set[Any]:
        found: set[Any] = set()
        for index, item in enumerate(sorted(items, key=canonical_bytes)):
            here = f"{path}[{index}]"
            before = len(self.faults)
            live = self.build(item, here)
            if self._is_sound_since(before) and self._is_new(live, found, here):
                found.add(live)
        return found

    def _mapping(self, items: frozenset[tuple[Value, Value]], path: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        ordered = sorted(items, key=lambda item: canonical_bytes(Tuple(item)))
        for index, (key, item) in enumerate(ordered):
            entry = f"{path}.$map[{index}]"
            before = len(self.faults)
            live_key = self.build(key, f"{entry}[0]")
            usable = self._is_sound_since(before) and self._is_new(live_key, found, f"{entry}[0]")
            here = f"{entry}[1]"
            if isinstance(key, Text) and not key.value.startswith("$"):
                here = path + key_step(key.value)
            live = self.build(item, here)
            if usable:
                found[live_key] = live
        return found

    def _is_new(self, live: Any, found: set[Any] | dict[Any, Any], path: str) -> bool:
        """Return whether ``live`` can be added to ``found``; notes why not."""
        try:
            hash(live)  # first, since ``in`` treats a set like a frozen one
            known = live in found
        except Exception as error:  # noqa: BLE001 - the user's classes run here; noted as a fault
            self._fault(path, f"cannot be in a set or be a key: {reason(error)}")
            return False
        if known:
            self._fault(path, "Python takes it for equal to another one of them")
        return not known

    def _converter(self, name: str, path: str) -> Converter | None:
        """Return the converter called ``name``; None when the Value stays or is a fault."""
        converter = self._tables.by_name.get(name)
        if converter is None and not self._stays(name):
            close = self._close(name, self._tables.by_name)
            advice = f"; close to it: {', '.join(close)}" if close else ""
            self._fault(path, f"no converter is called {shown(name)}{advice}")
        return converter

    def _close(self, name: str, known: Iterable[str]) -> list[str]:
        if len(self.faults) >= _ADVISED or len(name) > _MAX_NAME_CHARS:
            return []
        return get_close_matches(name, known, n=3)

    def _stays(self, name: str) -> bool:
        return name.startswith(USER_KINDS) or framework_of(name) in self._tables.absent

    def _check_inert(self, value: Value, path: str) -> None:
        """Note the faults within a Value that stays as it is."""
        for here, part in walk(value, path):
            match part:
                case Opaque():
                    self._opaque(part, here)
                case Struct() | Symbol() if part is not value:
                    self._converter(part.type, here)

    def _opaque(self, value: Opaque, path: str) -> None:
        if value is UNREAD:
            self._fault(path, _KNOWN)
            return
        kind = value.type[:_MAX_NAME_CHARS]
        self._fault(path, f"an object of {kind} that no converter knew when it was recorded")

    def _symbol(self, value: Symbol, path: str) -> Any:
        converter = self._converter(value.type, path)
        if converter is None:
            return value
        if not isinstance(converter, SymbolConverter):
            self._fault(path, f"{value.type} is not a type with named members")
            return None
        if value.name not in converter.members:
            close = self._close(value.name, converter.members) or converter.members
            listed = ", ".join(list(close)[:10])
            self._fault(path, f"{value.type} has no member {shown(value.name)}; it has {listed}")
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
        self._level += 1
        fields = self._fields(value, converter.names, path, converter.optional)
        self._level -= 1
        if fields is None:
            return None
        try:
            live = converter.make(fields)
        except Exception as error:  # noqa: BLE001 - the user's classes run here; noted as a fault
            self._fault(path, f"{value.type} refused these fields: {reason(error)}")
            return None
        if self._level == 0:
            self.made.append(Made(path, value, live))
        return live

    def _fields(
        self,
        value: Struct,
        names: tuple[str, ...] | None,
        path: str,
        optional: tuple[str, ...] = (),
    ) -> Fields | None:
        """Return the built fields of ``value``; None after a fault in them."""
        before = len(self.faults)
        fields = {
            name: self.build(item, f"{path}.fields{key_step(name)}") for name, item in value.fields
        }
        if names is not None:
            missing = [name for name in names if name not in fields]
            extra = [name for name in fields if name not in names and name not in optional]
            if missing:
                self._fault(path, f"{value.type} lacks the field {', '.join(missing)}")
            if extra:
                listed = ", ".join(map(shown, extra[:10]))
                self._fault(
                    path, f"{value.type} has no field {listed}; recorded with another version?"
                )
        return fields if self._is_sound_since(before) else None

    def _reference(
        self, value: TensorSpec | DeviceRef | Handle | Callable | Opaque, path: str
    ) -> Any:
        match value:
            case DeviceRef():
                return value if self._mesh_device is None else self._given_device(value, path)
            case Handle():
                return self._handle(value, path)
            case TensorSpec() if self._make_tensor is not None:
                return self._tensor(value, path, self._make_tensor)
            case TensorSpec() | Callable():
                self._check_inert(value, path)
                return value
            case Opaque():
                self._opaque(value, path)
                return None

    def _tensor(self, value: TensorSpec, path: str, make: MakeTensor) -> Any:
        try:
            return make(value, path)
        except Exception as error:  # noqa: BLE001 - the framework runs here; noted as a fault
            self._fault(path, f"this tensor could not be made: {reason(error)}")
            return None

    def _given_device(self, value: DeviceRef, path: str) -> Any:
        if self._device is None:
            self._device = value
        if self._device.identity != value.identity:
            self._fault(
                path,
                "a second device, and mesh_device is one only; "
                "leave mesh_device out and put yours in the place of the DeviceRefs",
            )
        return self._mesh_device

    def _handle(self, value: Handle, path: str) -> Any:
        converter = self._converter(value.type, path)
        if converter is None:
            self._check_inert(value, path)
            return value
        if not isinstance(converter, HandleConverter):
            self._fault(path, f"{value.type} is not an object that each run recreates")
            return None
        if converter.needs_device and self._mesh_device is None:
            self._check_inert(value, path)
            return value
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
        except Exception as error:  # noqa: BLE001 - the framework runs here; noted as a fault
            self._fault(path, f"{value.type} could not be made: {reason(error)}")
            return None


def reason(error: Exception) -> str:
    """Return the class and message of an exception, even if its class cannot be printed."""
    try:
        text = str(error)[:_MAX_REASON_CHARS]
    except Exception:  # noqa: BLE001 - the user's exception runs here; its class is still named
        text = "no message"
    return f"{class_name(type(error)).path}: {text}"

"""Read the arguments of a configuration into a Case: the spellings of both generations.

Version 2 has what Python's tracer wrote: objects with a ``type``, memory and compute
configurations without one, plain JSON for the rest. Version 1 has what C++ printed: objects named
by their class (``{"Tensor": ...}``, ``{"Shape": ...}``) and text for everything else, numbers
included, so that true and 1 are the same there. Our own parameter files also have objects in the
form of ``wire``, with a ``$`` key. A name is never guessed: ``arg0`` stays ``arg0``.

Tensors are numbered in the order of their arguments, ``arg0`` first and then by name; each has a
number of its own, since no file tells which of them are the same. Semaphores printed with the same
address are the same one. What has no known spelling becomes an Opaque with the text of the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from optrove.interop.almost_json import NotAlmostJson, parse_almost_json
from optrove.interop.printed import UnknownSpelling, read_printed
from optrove.interop.struct_spellings import (
    counts,
    is_compute,
    is_memory,
    is_wire,
    of_type,
    plain,
    read_compute,
    read_core,
    read_fields,
    read_memory,
    read_shards,
    read_wire,
    symbol,
)
from optrove.interop.tensor_spellings import read_printed_tensor, read_tensor, read_torch_tensor
from optrove.interop.ttnn_words import HANDLES
from optrove.interop.understanding import Reading
from optrove.model.case import Case, argument_order
from optrove.model.values import (
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
    TensorSpec,
    Text,
    TtnnPlacement,
    Value,
)
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json

_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*\Z", re.ASCII)
_UNSUPPORTED: Final = re.compile(
    r"\[ unsupported type , (?:std::reference_wrapper<)?(.*?)>?\s*\]\Z"
)
_SPECIAL_FLOATS: Final = frozenset({"inf", "-inf", "nan"})
_MESH_DEVICES: Final = frozenset({"MeshDevice", "Device", "ttnn.MeshDevice"})
_MALFORMED: Final = (UnknownSpelling, AttributeError, LookupError, TypeError, ValueError)

_MOST_KNOWN: Final = 8192

SPECIAL_FLOAT: Final = "infinite or undefined numbers: written as text"
BY_TYPE: Final = "nullopt: told by its type"
UNPARSED: Final = "UnparsedElement: parsed again"


@dataclass(slots=True)
class _Numbers:
    """The numbers that the tensors, handles and devices of one call have."""

    tensors: int = 0
    handles: dict[str, int] = field(default_factory=dict)
    devices: dict[tuple[int, ...] | None, int] = field(default_factory=dict)

    def tensor(self) -> int:
        self.tensors += 1
        return self.tensors - 1

    def handle(self, text: str) -> int:
        return self.handles.setdefault(text, len(self.handles))

    def device(self, mesh_shape: tuple[int, ...] | None) -> int:
        return self.devices.setdefault(mesh_shape, len(self.devices))


class ArgumentReader:
    """Reads the arguments of the configurations of one file; equal objects are read once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Value, Reading]] = {}

    def case(
        self, op: str, arguments: Iterable[tuple[str, Json]], *, printed: bool
    ) -> tuple[Case, list[tuple[str, Reading]]]:
        """Return the Case of a configuration, and what was noted about each argument.

        ``printed`` tells that text is what C++ printed, not a string.
        """
        numbers = _Numbers()
        named, parts = [], []
        for name, data in sorted(arguments, key=lambda item: argument_order(item[0])):
            reading = Reading()
            one = _Argument(self._known, numbers, reading, printed=printed)
            named.append((name, one.value(data, "")))
            parts.append((name, reading))
        return Case(op, tuple(named)), parts


class _Argument:
    """Reads one argument; ``reading`` takes what there is to note."""

    __slots__ = ("_known", "_numbers", "_printed", "_reading")

    def __init__(
        self,
        known: dict[str, tuple[Value, Reading]],
        numbers: _Numbers,
        reading: Reading,
        *,
        printed: bool,
    ) -> None:
        self._known = known
        self._numbers = numbers
        self._reading = reading
        self._printed = printed

    def value(self, data: Json, path: str) -> Value:
        """Return the Value of ``data``, which is at ``path`` within the argument."""
        if isinstance(data, list):
            items = [self.value(item, f"{path}[{index}]") for index, item in enumerate(data)]
            return List(tuple(items))
        if isinstance(data, dict):
            return self._dict(data, path)
        if isinstance(data, str):
            return self._printed_text(data, path) if self._printed else self._text(data)
        try:
            return plain(data)
        except UnknownSpelling:
            return self._reading.keep("number", data, path)

    def _text(self, data: str) -> Value:
        if data in _SPECIAL_FLOATS:
            self._reading.notes.append(SPECIAL_FLOAT)
            return Float(float(data))
        return Text(data)

    def _printed_text(self, data: str, path: str) -> Value:
        unsupported = _UNSUPPORTED.match(data)
        if unsupported is not None:
            kind = unsupported[1].strip()
            if kind.removesuffix("const").strip() == "std::nullopt_t":
                self._reading.notes.append(BY_TYPE)
                return Null()
            return self._reading.keep(kind, data, path)
        try:
            return read_printed(data)
        except UnknownSpelling:
            return self._reading.keep("text", data, path)

    def _dict(self, data: dict[str, Any], path: str) -> Value:
        match data:
            case {"type": str(kind), "shape": shape} if kind in _MESH_DEVICES:
                return self._device(data, shape, path)
            case {"type": str(kind), "value": str(text)} if kind in HANDLES:
                return Handle(HANDLES[kind], None, self._numbers.handle(text))
        if _is_mapping(data):
            entries = [
                (Text(key), self.value(item, path + key_step(key))) for key, item in data.items()
            ]
            return Mapping(frozenset(entries))
        return self._numbered(self._object(data, path))

    def _device(self, data: dict[str, Any], shape: Json, path: str) -> Value:
        try:
            mesh_shape = counts(shape)
        except UnknownSpelling:
            return self._reading.keep("MeshDevice", data, path)
        return DeviceRef("ttnn.MeshDevice", mesh_shape, self._numbers.device(mesh_shape))

    def _object(self, data: dict[str, Any], path: str) -> Value:
        """Return an object that holds no others that are numbered, from memory if possible."""
        text = json.dumps(data)
        known = self._known.get(text)
        if known is None:
            reading = Reading()
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[text] = (read_object(data, "", reading), reading)
        value, noted = known
        self._reading.notes += noted.notes
        self._reading.kept += [replace(kept, path=path + kept.path) for kept in noted.kept]
        return value

    def _numbered(self, value: Value) -> Value:
        if not isinstance(value, TensorSpec):
            return value
        number = self._numbers.tensor()
        placement = value.placement
        if isinstance(placement, TtnnPlacement) and placement.device is not None:
            device = self._numbers.device(placement.mesh_shape)
            if device != placement.device:
                placement = replace(placement, device=device)
        return TensorSpec(value.shape, value.dtype, placement, number, number)


def _is_mapping(data: dict[str, Any]) -> bool:
    """Tell whether an object is a dictionary that was an argument, not an object described."""
    if "type" in data or is_memory(data) or is_compute(data) or data.keys() == {"x", "y"}:
        return False
    if is_wire(data):
        return False
    return not (len(data) == 1 and _class_reader(next(iter(data))))


def read_object(data: dict[str, Any], path: str, reading: Reading) -> Value:
    """Read an object that describes a ttnn or torch object; what is unknown is kept as it is."""
    before = len(reading.kept), len(reading.notes)
    try:
        return _described(data, path, reading)
    except _MALFORMED:
        del reading.kept[before[0] :], reading.notes[before[1] :]
        return _kept(data, path, reading)


def _kept(data: dict[str, Any], path: str, reading: Reading) -> Opaque:
    """Keep an object under the name of its class; its printed text alone if there is one."""
    match data:
        case {"type": str(kind), "value": str(text), **rest} if not rest:
            return reading.keep(kind, text, path)
        case {"type": str(kind)}:
            return reading.keep(kind, data, path)
    return reading.keep(next(iter(data)) if len(data) == 1 else "object", data, path)


def _described(data: dict[str, Any], path: str, reading: Reading) -> Value:
    if is_memory(data):
        return read_memory(data, path, reading)
    if is_compute(data):
        return read_compute(data, path, reading)
    if is_wire(data):
        return read_wire(data)
    if "type" in data:
        return _typed(data, path, reading)
    if data.keys() == {"x", "y"}:
        return read_core(data)
    ((name, content),) = data.items()
    value: Value = _class_reader(name)(name, content, f"{path}.{name}", reading)
    return value


def _typed(data: dict[str, Any], path: str, reading: Reading) -> Value:
    match data:
        case {"type": "ttnn.Tensor"}:
            return read_tensor(data, path, reading)
        case {"type": "torch.Tensor"}:
            return read_torch_tensor(data, reading)
        case {"type": str(kind), "repr": str(text), **rest} if not rest:
            return _symbol_or_printed(kind, text)
        case {"type": str(kind), "value": str(text), **rest} if not rest:
            return _printed_as(kind, text)
        case {"type": str(kind)} if _CLASS.match(kind):
            return Struct(f"ttnn.{kind}", read_fields(data, path, reading))
    raise UnknownSpelling(f"an object of the type {data['type']!r}")


def _symbol_or_printed(kind: str, text: str) -> Value:
    try:
        return symbol(text, kind)
    except UnknownSpelling:
        return _printed_as(kind, text)


def _printed_as(kind: str, text: str) -> Value:
    """Read printed text that the file says to be of ``kind``."""
    if kind == "NdShardSpec":
        return read_shards(text, kind)
    value = read_printed(text)
    if kind == "set" and isinstance(value, Struct):
        value = Set(frozenset(_items(value)))
    return of_type(value, kind)


def _items(value: Struct) -> tuple[Value, ...]:
    match value:
        case Struct("ttnn.CoreRangeSet", (("ranges", List(items)),)):
            return items
    raise UnknownSpelling(f"a {value.type} is no set")


def _class_tensor(_: str, data: Json, path: str, reading: Reading) -> Value:
    return read_printed_tensor(data, path, reading)


def _class_memory(_: str, data: Json, path: str, reading: Reading) -> Value:
    return read_memory(data, path, reading)


def _class_shape(name: str, data: Json, path: str, reading: Reading) -> Value:  # noqa: ARG001 - one signature for all readers
    told = data["shape"] if isinstance(data, dict) else data
    return Struct(f"ttnn.{name}", (("shape", List(tuple(Int(size) for size in counts(told)))),))


def _class_fields(name: str, data: Json, path: str, reading: Reading) -> Value:
    return Struct(f"ttnn.{name}", read_fields(dict(data), path, reading))


_BY_CLASS: Final = {
    "Tensor": _class_tensor,
    "MemoryConfig": _class_memory,
    "Shape": _class_shape,
}
"""The readers of objects that are named by their class, as C++ prints them."""


def _class_reader(name: str) -> Any:
    """Return the reader of an object that is named by its class; None if it is none."""
    if name.endswith("Config") and _CLASS.match(name):
        return _BY_CLASS.get(name, _class_fields)
    return _BY_CLASS.get(name)


def unparsed_element(data: Json) -> dict[str, Json] | None:
    """Return what an ``UnparsedElement`` was to say; None if its text cannot be parsed."""
    text = data.get("element_info") if isinstance(data, dict) else None
    if not isinstance(text, str):
        return None
    try:
        parsed = parse_almost_json(text)
    except NotAlmostJson:
        return None
    return parsed if isinstance(parsed, dict) else None

"""Read the arguments of master files of both generations.

Version 2 is written by Python's tracer: objects with a ``type``, memory and compute configurations
without one, plain JSON for the rest. Version 1 is printed by C++: objects named by their class
(``{"Tensor": ...}``, ``{"Shape": ...}``), and text for everything else, numbers included, so that
true and 1 are the same there. Our own parameter files also have objects in the form of ``wire``,
with a ``$`` key. A name is never guessed: ``arg0`` stays ``arg0``.

Facts that a file does not record are derived where ttnn derives them too, and noted:

- the padded shape follows from the alignment: that of the tile, of the shard's width in row-major
  tensors that are sharded along their width, else none. Version 1 records the alignment itself;
- the tile is 32x32 with faces of 16x16 in version 2; version 1 records it. Neither records
  transposes;
- the chips that hold a part are all chips of the mesh, row by row, if there are as many as parts;
- tensors on meshes of the same shape within one call are on the same device;
- version 1 records neither layout nor storage. The layout is TILE where the alignment is that of
  tiles or the dtype has no other, and the storage is assumed to be the device.

Tensors are numbered in the order of their arguments, ``arg0`` first and then by name; each has a
number of its own, since no file records which of them are the same. Semaphores with the same
printed address are the same, and those without one are different. The class of a program
configuration without ``type`` follows from its fields, as in tt-metal's loader. An object of
unknown form becomes an Opaque with the text of the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.interop.fidelity import PartNotes
from optrove.interop.printed import (
    BOOLEANS,
    COMPUTE_CONFIG,
    CORE_RANGES,
    ENUMERATIONS,
    HANDLES,
    NULLS,
    PROGRAM_CONFIGS,
    UNARY_OPS,
    NotAlmostJson,
    UnknownForm,
    as_boolean,
    parse_almost_json,
    read_printed,
)
from optrove.model.case import Case, argument_order
from optrove.model.ttnn_classes import (
    USUAL_TILE,
    Memory,
    core,
    core_range,
    core_ranges,
    padded_shape,
)
from optrove.model.values import (
    Bool,
    Complex,
    DeviceRef,
    Float,
    Handle,
    Int,
    List,
    Mapping,
    MeshPlacement,
    Null,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tile,
    TorchPlacement,
    TtnnPlacement,
    Value,
    contiguous_strides,
    key_step,
)
from optrove.serializer.text import MAX_INT_BITS
from optrove.serializer.wire import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.serializer.text import Json


# These follow from the rest of a memory configuration; the hash is ttnn's own and changes.
_DERIVED = frozenset({"is_sharded", "interleaved", "hash", "created_with_nd_shard_spec", "type"})
_SWITCHES = ("per_core_allocation", "range_lockstep_allocation")
_MEMORY_FIELDS = frozenset({"memory_layout", "buffer_type", "shard_spec", "nd_shard_spec"})


def member(text: Json, enumeration: str) -> str:
    """Return the name of a member: ``TILE`` for ``Layout.TILE``, ``Layout::TILE`` and ``TILE``."""
    if not isinstance(text, str):
        raise UnknownForm(f"a {type(text).__name__} is not a member of {enumeration}")
    head, _, name = text.replace("::", ".").rpartition(".")
    if head.rpartition(".")[2] not in (enumeration, "") or not name.isidentifier():
        raise UnknownForm(f"{text!r} is not a member of {enumeration}")
    return name


def symbol(text: Json, enumeration: str) -> Symbol:
    """Return a member of an enumeration of ttnn."""
    return Symbol(f"ttnn.{enumeration}", member(text, enumeration))


def sizes(data: Json) -> tuple[int, ...]:
    """Return a row of whole numbers, written as a list or as text: ``[4, 8]``, ``{32, 32}``."""
    if isinstance(data, str):
        try:
            data = parse_almost_json(data)
        except NotAlmostJson as error:
            raise UnknownForm(f"{data!r} is not a list of whole numbers") from error
    if not isinstance(data, list) or not all(_is_whole(item) for item in data):
        raise UnknownForm(f"{str(data)[:80]!r} is not a list of whole numbers")
    return tuple(data)


def counts(data: Json) -> tuple[int, ...]:
    """Return a row of whole numbers from zero on, such as a shape."""
    row = sizes(data)
    if any(size < 0 for size in row):
        raise UnknownForm(f"{list(row)} is not a shape")
    return row


def _is_whole(data: Json) -> bool:
    return type(data) is int and data.bit_length() <= MAX_INT_BITS


def _is_wire(data: dict[str, Any]) -> bool:
    """Return whether an object has the form of ``wire``, as in our own parameter files."""
    return any(key.startswith("$") for key in data)


def _is_memory(data: dict[str, Any]) -> bool:
    """Return whether an object is a memory configuration."""
    return "memory_layout" in data and "buffer_type" in data


def read_memory(data: dict[str, Any] | str, path: str, notes: PartNotes) -> Struct:
    """Read a memory configuration; a part of unknown form is kept verbatim.

    It is an object, or the text that ttnn prints. As ttnn has it, ``nd_shard_spec`` counts only
    where the configuration was made with one; otherwise it follows from ``shard_spec``.
    """
    if isinstance(data, str):
        data = _printed_memory(data)
    if _is_wire(data):
        exact = decode(data)
        if not isinstance(exact, Struct):
            raise UnknownForm("a memory configuration that is not a struct")
        return exact
    fields: list[tuple[str, Value]] = [
        ("memory_layout", symbol(data["memory_layout"], "TensorMemoryLayout")),
        ("buffer_type", symbol(data["buffer_type"], "BufferType")),
        ("shard_spec", _shard(data.get("shard_spec"), f"{path}.shard_spec", notes)),
    ]
    by_nd = data.get("created_with_nd_shard_spec", 1)
    nd_spec = data.get("nd_shard_spec") if by_nd else None
    fields.append(("nd_shard_spec", _shard(nd_spec, f"{path}.nd_shard_spec", notes)))
    fields += [(name, Bool(value=True)) for name in _SWITCHES if data.get(name)]
    for key in sorted(data.keys() - _MEMORY_FIELDS - _DERIVED - set(_SWITCHES)):
        notes.add(f"not kept: {key} of a memory configuration")
    return Struct("ttnn.MemoryConfig", tuple(fields))


_PRINTED_MEMORY: Final = re.compile(
    r"MemoryConfig\(memory_layout=(?P<memory_layout>[\w:]+),\s*buffer_type=(?P<buffer_type>[\w:]+)"
    r",\s*shard_spec=(?P<shard_spec>.*?)(?:,\s*nd_shard_spec=(?P<nd_shard_spec>.*?)"
    r",\s*created_with_nd_shard_spec=(?P<created_with_nd_shard_spec>[01])"
    r"(?P<switches>(?:,\s*\w+=[01])*))?\)\Z",
    re.DOTALL,
)


def _printed_memory(text: str) -> dict[str, Any]:
    """Return the fields of a memory configuration that ttnn printed."""
    found = _PRINTED_MEMORY.match(text)
    if found is None:
        raise UnknownForm(f"{text[:80]!r} is not a memory configuration")
    fields: dict[str, Any] = {key: item for key, item in found.groupdict().items() if item}
    fields |= {name: f"{name}=1" in fields.pop("switches", "") for name in _SWITCHES}
    fields["created_with_nd_shard_spec"] = fields.get("created_with_nd_shard_spec") == "1"
    return fields


def _shard(data: Json, path: str, notes: PartNotes) -> Value:
    if data is None or (isinstance(data, str) and data in NULLS):
        return Null()
    kind = "NdShardSpec" if path.endswith("nd_shard_spec") else "ShardSpec"
    try:
        return read_shards(data, kind)
    except (ValueError, LookupError, TypeError, AttributeError):
        return notes.keep(kind, data, path)


def read_shards(data: Json, kind: str) -> Value:
    """Read a ShardSpec or an NdShardSpec, as ``kind`` says, from an object or printed text."""
    if kind == "NdShardSpec":
        return _nd_shard_spec(parse_almost_json(data) if isinstance(data, str) else data)
    return of_type(read_printed(data), kind) if isinstance(data, str) else _shard_spec(data)


def of_type(value: Value, kind: str) -> Value:
    """Return ``value`` if it is of the class that the file names; else UnknownForm."""
    named = value.type if isinstance(value, (Struct, Symbol)) else type(value).__name__.lower()
    if named.rpartition(".")[2] != kind:
        raise UnknownForm(f"a {named} where the file says {kind}")
    return value


def _shard_spec(data: dict[str, Any]) -> Struct:
    shape = data["shape"] if "shape" in data else data["shard_shape"]
    return Struct(
        "ttnn.ShardSpec",
        (
            ("grid", _grid(data["grid"])),
            ("shape", List(tuple(map(Int, sizes(shape))))),
            ("orientation", _orientation(data["orientation"])),
        ),
    )


def _orientation(data: Json) -> Symbol:
    """Read the orientation of shards; some files have its number."""
    names = {"0": "ROW_MAJOR", "1": "COL_MAJOR"}
    return symbol(names.get(str(data), data), "ShardOrientation")


def _nd_shard_spec(data: dict[str, Any]) -> Struct:
    shape = List(tuple(map(Int, sizes(data["shard_shape"]))))
    strategy = data["shard_distribution_strategy"]
    return Struct(
        "ttnn.NdShardSpec",
        (
            ("grid", _grid(data["grid"])),
            ("shard_shape", Struct("ttnn.Shape", (("shape", shape),))),
            ("orientation", symbol(data["orientation"], "ShardOrientation")),
            ("shard_distribution_strategy", symbol(strategy, "ShardDistributionStrategy")),
        ),
    )


def _grid(data: Json) -> Struct:
    """Read core ranges: objects with start and end, or pairs of cores, or one pair alone.

    A list with one range in it may stand for that range, as C++ prints it.
    """
    if not isinstance(data, list):
        raise UnknownForm(f"{str(data)[:80]!r} is not a grid of cores")
    if data and all(isinstance(item, dict) and "x" in item for item in data):
        data = [data]
    return core_ranges(tuple(_range(item) for item in data))


def _range(data: Json) -> Struct:
    match data:
        case {"start": start, "end": end} | [start, end] | [{"start": start, "end": end}]:
            return core_range(read_core(start), read_core(end))
    raise UnknownForm(f"{str(data)[:80]!r} is not a range of cores")


def read_core(data: Json) -> Struct:
    """Read the coordinate of a core: an object with x and y."""
    match data:
        case {"x": x, "y": y} if len(data) == len(("x", "y")) and _is_whole(x) and _is_whole(y):
            return core(x, y)
    raise UnknownForm(f"{str(data)[:80]!r} is not a core")


def _is_compute(data: dict[str, Any]) -> bool:
    """Return whether an object is a compute configuration, whose class is not recorded."""
    return "math_fidelity" in data and "math_approx_mode" in data


def _untyped_program_config(data: dict[str, Any]) -> str | None:
    """Return the class of a program configuration that was recorded without it."""
    keys = data.keys() | ({"compute_with_storage_grid_size"} if "compute_grid" in data else set())
    return next((name for name, fields in PROGRAM_CONFIGS if fields <= keys), None)


def read_fields(data: dict[str, Any], path: str, notes: PartNotes) -> tuple[tuple[str, Value], ...]:
    """Read the fields of a configuration; one of unknown form is kept verbatim."""
    fields = []
    for name, item in data.items():
        if name == "type":
            continue
        try:
            value = _field(name, item, notes)
        except UnknownForm:
            value = notes.keep(name, item, path + key_step(name))
        fields.append((_RENAMED.get(name, name), value))
    return tuple(fields)


_RENAMED: Final = {"compute_grid": "compute_with_storage_grid_size"}


def _field(name: str, data: Json, notes: PartNotes) -> Value:
    if data is None or (isinstance(data, str) and data in NULLS):
        return Null()
    if name in ENUMERATIONS:
        return symbol(data, ENUMERATIONS[name])
    if name in BOOLEANS:
        return _truth(data)
    if name in CORE_RANGES and not data:
        return core_ranges(())
    return _other_field(name, data, notes)


def _other_field(name: str, data: Json, notes: PartNotes) -> Value:
    """Read a field that is not an enumeration, a switch or an empty set of cores."""
    if _RENAMED.get(name, name) == "compute_with_storage_grid_size" and not isinstance(data, dict):
        return _core_of(data)
    match data:
        case {"op_type": str() | int() as kind, **rest} if rest.keys() <= {"param", "params"}:
            return _activation(kind, rest.get("param", rest.get("params", [])), notes)
        case dict():
            return read_core(data)
        case list():
            return _list(data)
    return plain(data)


def _core_of(data: Json) -> Struct:
    """Read the size of a grid: ``[8, 8]``, ``8-8`` or ``(x=8,y=8)``."""
    match read_printed(data) if isinstance(data, str) else data:
        case Struct("ttnn.CoreCoord") as found:
            return found
        case [x, y] if _is_whole(x) and _is_whole(y):
            return core(x, y)
        case List((Int(x), Int(y))):
            return core(x, y)
    raise UnknownForm(f"{str(data)[:80]!r} is not a core")


def _activation(kind: str | int, params: Json, notes: PartNotes) -> Struct:
    """Read a fused activation, whose kind is a name or its number."""
    if not isinstance(params, list) or not all(type(item) in (int, float) for item in params):
        raise UnknownForm("an activation with other parameters than numbers")
    if isinstance(kind, int):
        if not 0 <= kind < len(UNARY_OPS):
            raise UnknownForm(f"no activation has the number {kind}")
        notes.add(NUMBERED)
        kind = UNARY_OPS[kind]
    values = List(tuple(Float(float(item)) for item in params))
    op_type = symbol(kind, "UnaryOpType")
    return Struct("ttnn.UnaryWithParam", (("op_type", op_type), ("params", values)))


def _list(data: list[Any]) -> Value:
    if data and all(isinstance(item, dict) and "start" in item for item in data):
        return _grid(data)
    return List(tuple(_list(item) if isinstance(item, list) else plain(item) for item in data))


def _truth(data: Json) -> Value:
    if data in ("True", "False", "true", "false"):
        return Bool(value=data in ("True", "true"))
    value = as_boolean("inplace", plain(data))
    if not isinstance(value, Bool):
        raise UnknownForm(f"{data!r} is neither true nor false")
    return value


def plain(data: Json) -> Value:
    """Read a plain JSON value; text that names a member of an enumeration becomes a Symbol."""
    match data:
        case None:
            return Null()
        case bool():
            return Bool(data)
        case int() if _is_whole(data):
            return Int(data)
        case float():
            return Float(data)
        case str():
            return _word(data)
    raise UnknownForm(f"{str(data)[:80]!r} is not a plain value")


def _word(text: str) -> Value:
    if "::" in text or "." in text:
        try:
            value = read_printed(text)
        except UnknownForm:
            return Text(text)
        return value if isinstance(value, Symbol) else Text(text)
    return Text(text)


_ALWAYS_TILED: Final = frozenset({"ttnn.bfloat8_b", "ttnn.bfloat4_b"})
_LOW_TILES: Final = frozenset({1, 2, 4, 8, 16})
_SHARDED_IN_ROWS: Final = frozenset({"WIDTH_SHARDED", "BLOCK_SHARDED"})
_MAX_CHIPS: Final = 4096

# The kinds of repairs, as they are counted.
PADDED: Final = "padded shape and tile of a tensor: not recorded, those of 32x32 tiles"
TILED: Final = "padded shape and tile of a tensor: not recorded, by the height of its shards"
ALIGNED: Final = "padded shape of a tensor: not recorded, computed from its alignment"
CHIPS: Final = "chips of a tensor: not recorded, the whole mesh row by row"
NO_CHIPS: Final = "chips of a tensor: not recorded, left empty"
NO_MESH: Final = "mesh of a tensor: not recorded, left empty"
STORAGE: Final = "layout and storage of a tensor: not recorded, by its alignment and on a device"
VALUES: Final = "not kept: values of a tensor"
NUMBERED: Final = "kind of a fused activation: recorded as a number, read as that of ttnn 0.81"
UNTYPED: Final = "class of a program configuration: not recorded, by its fields"
TORCH: Final = "memory of a torch tensor: not recorded, contiguous on the CPU"


def read_tensor(data: dict[str, Any], path: str, notes: PartNotes) -> TensorSpec:
    """Read a tensor of version 2 in either form, or of ttnn's own parameter files.

    UnknownForm when its shape, dtype, layout or storage is missing or not valid.
    """
    shape = counts(_first(data, "original_shape", "shape"))
    dtype = f"ttnn.{member(_first(data, 'original_dtype', 'dtype'), 'DataType').lower()}"
    layout = member(data.get("layout"), "Layout")
    memory = data.get("memory_config")
    storage = "device"
    if memory is None or data.get("storage_type") is not None:
        storage = member(data.get("storage_type"), "StorageType").lower().removesuffix("_storage")
    if memory is not None:
        memory = read_memory(memory, f"{path}.memory_config", notes)
    tile = _tile(memory) if layout == "TILE" else None
    mesh_shape, mesh = _spread(data, notes)
    notes.add(PADDED if tile in (None, USUAL_TILE) else TILED)
    if "values" in data:
        notes.add(VALUES)
    placement = TtnnPlacement(
        padded_shape=padded(shape, _alignment(tile, memory)),
        layout=layout,
        tile=tile,
        storage=storage,
        memory=memory,
        mesh_shape=mesh_shape,
        mesh=mesh,
        device=0 if storage == "device" else None,
    )
    return TensorSpec(shape, dtype, placement)


def _first(data: dict[str, Any], *names: str) -> Json:
    return next((data[name] for name in names if data.get(name) is not None), None)


def _tile(memory: Struct | None) -> Tile:
    """Return the tile of a tensor: the usual one, or a lower one if shards are as low as that.

    Shards are whole tiles, and ttnn has no other tiles of these heights in use.
    """
    _, shard = _shard_shape(memory)
    if len(shard) == len(USUAL_TILE.shape) and shard[0] in _LOW_TILES:
        return Tile((shard[0], USUAL_TILE.shape[1]), (shard[0], USUAL_TILE.face_shape[1]))
    return USUAL_TILE


def _shard_shape(recorded: Struct | None) -> tuple[str, tuple[int, ...]]:
    """Return the layout of a memory configuration, and the shape of its shards; else nothing."""
    memory = Memory.of(recorded)
    if memory is None or memory.shards is None or memory.shards.strategy is not None:
        return "", ()
    return memory.layout, memory.shards.shape


def _alignment(tile: Tile | None, memory: Struct | None) -> tuple[int, ...]:
    if tile is not None:
        return tile.shape
    layout, shard = _shard_shape(memory)
    if layout in _SHARDED_IN_ROWS and shard and shard[-1] > 0:
        return (shard[-1],)
    return (1,)


def padded(shape: tuple[int, ...], alignment: tuple[int, ...]) -> tuple[int, ...]:
    """Return the padded shape of a tensor, as ttnn computes it; UnknownForm if it cannot be."""
    try:
        return padded_shape(shape, alignment)
    except ValueError as error:
        raise UnknownForm(str(error)) from error


def _spread(
    data: dict[str, Any], notes: PartNotes
) -> tuple[tuple[int, ...] | None, MeshPlacement | None]:
    """Read the mesh of a tensor, and the placement of the tensor on it."""
    if isinstance(data.get("tensor_placement"), dict):
        mesh = data["tensor_placement"]
        words, shape = re.findall(r"'([^']*)'", str(mesh.get("placement"))), "mesh_device_shape"
    elif isinstance(data.get("mesh_device"), dict):
        mesh = data["mesh_device"]
        words, shape = mesh.get("placements", []), "shape"
    else:
        mesh, words, shape = {}, [], "shape"
    mesh_shape = None if mesh.get(shape) is None else counts(mesh[shape])
    if mesh.get("distribution_shape") is None:
        notes.add(NO_MESH)
        return mesh_shape, None
    distribution = counts(mesh["distribution_shape"])
    placements = tuple(_placement(word) for word in words)
    chips = _chips(distribution, mesh_shape)
    notes.add(CHIPS if chips else NO_CHIPS)
    return mesh_shape, MeshPlacement(distribution, placements, chips)


def _placement(word: Json) -> int | None:
    if word == "PlacementReplicate":
        return None
    found = re.fullmatch(r"PlacementShard\((-?\d{1,9})\)", str(word))
    if found is None:
        raise UnknownForm(f"{word!r} is not a placement")
    return int(found[1])


def _chips(
    distribution: tuple[int, ...], mesh_shape: tuple[int, ...] | None
) -> tuple[tuple[int, ...], ...]:
    parts = prod(distribution)
    if mesh_shape is None:
        return ((0, 0),) if parts == 1 else ()
    if parts != prod(mesh_shape) or not 0 < parts <= _MAX_CHIPS:
        return ()
    return tuple(product(*(range(size) for size in mesh_shape)))


def read_printed_tensor(data: dict[str, Any], path: str, notes: PartNotes) -> TensorSpec:
    """Read a tensor of version 1: ``{"storage": {}, "tensor_spec": {...}}``."""
    spec = data["tensor_spec"]
    layout = spec["tensor_layout"]
    shape = counts(spec["logical_shape"])
    dtype = f"ttnn.{member(layout['dtype'], 'DataType').lower()}"
    where = f"{path}.tensor_spec.tensor_layout.memory_config"
    memory = read_memory(layout["memory_config"], where, notes)
    alignment = sizes(layout["alignment"])
    facts = layout["page_config"]["config"]["tile"]
    tile = Tile(_pair(facts["tile_shape"]), _pair(facts["face_shape"]))
    tiled = dtype in _ALWAYS_TILED or _is_that_of_tiles(alignment, tile)
    notes.add(ALIGNED, STORAGE)
    placement = TtnnPlacement(
        padded_shape=padded(shape, alignment),
        layout="TILE" if tiled else "ROW_MAJOR",
        tile=tile if tiled else None,
        storage="device",
        memory=memory,
        mesh_shape=None,
        mesh=None,
        device=0,
    )
    return TensorSpec(shape, dtype, placement)


def _pair(data: Json) -> tuple[int, int]:
    height, width = counts(data)
    return height, width


def _is_that_of_tiles(alignment: tuple[int, ...], tile: Tile) -> bool:
    if len(alignment) < len(tile.shape) or not all(tile.shape):
        return False
    return all(step % size == 0 for step, size in zip(alignment[-2:], tile.shape, strict=True))


def read_torch_tensor(data: dict[str, Any], notes: PartNotes) -> TensorSpec:
    """Read a torch tensor, of which files record the shape and the dtype only."""
    shape = counts(data["shape"])
    dtype = data["dtype"]
    if not isinstance(dtype, str) or not dtype:
        raise UnknownForm("a torch tensor without dtype")
    notes.add(TORCH, *([VALUES] if "values" in data else []))
    placement = TorchPlacement(contiguous_strides(shape), "strided", "cpu", requires_grad=False)
    return TensorSpec(shape, f"torch.{dtype.removeprefix('torch.')}", placement)


_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*\Z", re.ASCII)
_UNSUPPORTED: Final = re.compile(
    r"\[ unsupported type , (?:std::reference_wrapper<)?(.*?)>?\s*\]\Z"
)
_IDENTIFIED: Final = re.compile(r" (at 0x[0-9a-fA-F]+|object \d+)>")
_CALLED: Final = re.compile(r"(?:ttnn\.)?[A-Z]\w+\(\w+=.*\)\Z", re.DOTALL)
"""An object that was written as its text: ``CoreGrid(x=8, y=8)``."""
_SPECIAL_FLOATS: Final = frozenset({"inf", "-inf", "nan"})
_MESH_DEVICES: Final = frozenset({"MeshDevice", "Device", "ttnn.MeshDevice"})
_MALFORMED: Final = (BadData, AttributeError, LookupError, TypeError, ValueError)

_MAX_CACHED: Final = 8192

SPECIAL_FLOAT: Final = "infinite or undefined numbers: written as text"
BY_TYPE: Final = "nullopt: recognized by its type"
UNPARSED: Final = "UnparsedElement: parsed again"
LEFT_OUT: Final = "arguments that the file calls absent: left out"
ABSENT: Final = "__ABSENT__"
"""The value of an argument that a configuration does not have, as tt-metal's loader writes it."""


@dataclass(slots=True)
class _Numbers:
    """Numbers the tensors, handles and devices of one call."""

    tensors: int = 0
    handles: dict[str, int] = field(default_factory=dict)
    devices: dict[tuple[int, ...] | None, int] = field(default_factory=dict)

    def tensor(self) -> int:
        self.tensors += 1
        return self.tensors - 1

    def handle(self, text: str) -> int:
        """Return the number of a handle by its address; one without address is a new one."""
        known = text if _IDENTIFIED.search(text) else f"{text} {len(self.handles)}"
        return self.handles.setdefault(known, len(self.handles))

    def device(self, mesh_shape: tuple[int, ...] | None) -> int:
        return self.devices.setdefault(mesh_shape, len(self.devices))


class ArgumentReader:
    """Reads the arguments of the configurations of one file; equal objects are read once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Value, PartNotes]] = {}

    def case(
        self, op: str, arguments: Iterable[tuple[str, Json]], *, printed: bool
    ) -> tuple[Case, list[tuple[str, PartNotes]]]:
        """Return the Case of a configuration, and the notes about each argument.

        With ``printed``, text is what C++ printed, not a string.
        """
        numbers = _Numbers()
        named, parts = [], []
        for name, data in sorted(arguments, key=lambda item: argument_order(item[0])):
            if data == ABSENT:
                parts.append((name, PartNotes([LEFT_OUT])))
                continue
            one = _Argument(self._known, numbers, printed=printed)
            named.append((name, one.value(data, "")))
            parts.append((name, one.notes))
        return Case(op, tuple(named)), parts


class _Argument:
    """Reads one argument, and notes what was repaired or kept verbatim."""

    __slots__ = ("_known", "_numbers", "_printed", "notes")

    def __init__(
        self, known: dict[str, tuple[Value, PartNotes]], numbers: _Numbers, *, printed: bool
    ) -> None:
        self.notes = PartNotes()
        self._known = known
        self._numbers = numbers
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
        except UnknownForm:
            return self.notes.keep("number", data, path)

    def _text(self, data: str) -> Value:
        if data in _SPECIAL_FLOATS:
            self.notes.add(SPECIAL_FLOAT)
            return Float(float(data))
        if _CALLED.match(data):
            try:
                value = read_printed(data)
            except UnknownForm:
                return Text(data)
            return value if isinstance(value, Struct) else Text(data)
        return Text(data)

    def _printed_text(self, data: str, path: str) -> Value:
        unsupported = _UNSUPPORTED.match(data)
        if unsupported is not None:
            kind = unsupported[1].strip()
            if kind.removesuffix("const").strip() == "std::nullopt_t":
                self.notes.add(BY_TYPE)
                return Null()
            return self.notes.keep(kind, data, path)
        if data.startswith(('[{"', '{"')):
            try:
                return self.value(parse_almost_json(data), path)
            except (NotAlmostJson, UnknownForm):
                pass  # not JSON of C++, but perhaps a printed set
        try:
            return read_printed(data)
        except UnknownForm:
            return self.notes.keep("text", data, path)

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
        except UnknownForm:
            return self.notes.keep("MeshDevice", data, path)
        return DeviceRef("ttnn.MeshDevice", mesh_shape, self._numbers.device(mesh_shape))

    def _object(self, data: dict[str, Any], path: str) -> Value:
        """Return an object that holds no numbered objects; equal ones are read once."""
        text = json.dumps(data)
        known = self._known.get(text)
        if known is None:
            notes = PartNotes()
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            known = self._known[text] = (read_object(data, "", notes), notes)
        value, noted = known
        self.notes.add(*noted.texts)
        self.notes.verbatim += [replace(each, path=path + each.path) for each in noted.verbatim]
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
    """Return whether an object is a dictionary argument, not the description of an object."""
    if "type" in data or _is_memory(data) or _is_compute(data) or _is_wire(data):
        return False
    if data.keys() == {"x", "y"} or "tensor_spec" in data or _untyped_program_config(data):
        return False
    return not (len(data) == 1 and _is_class(next(iter(data))))


def read_object(data: dict[str, Any], path: str, notes: PartNotes) -> Value:
    """Read the description of a ttnn or torch object; one of unknown form is kept verbatim."""
    before = len(notes.verbatim), len(notes.texts)
    try:
        return _described(data, path, notes)
    except _MALFORMED:
        del notes.verbatim[before[0] :], notes.texts[before[1] :]
        return _kept(data, path, notes)


def _kept(data: dict[str, Any], path: str, notes: PartNotes) -> Opaque:
    """Keep an object under the name of its class, or its printed text if it has one."""
    match data:
        case {"type": str(kind), "value": str(text), **rest} if not rest:
            return notes.keep(kind, text, path)
        case {"type": str(kind)}:
            return notes.keep(kind, data, path)
    return notes.keep(next(iter(data)) if len(data) == 1 else "object", data, path)


def _described(data: dict[str, Any], path: str, notes: PartNotes) -> Value:
    if _is_memory(data):
        return read_memory(data, path, notes)
    if _is_compute(data):
        return Struct(COMPUTE_CONFIG, read_fields(data, path, notes))
    if _is_wire(data):
        return decode(data)
    if "type" in data:
        return _typed(data, path, notes)
    if data.keys() == {"x", "y"}:
        return read_core(data)
    if "tensor_spec" in data:
        return read_printed_tensor(data, path, notes)
    untyped = _untyped_program_config(data)
    if untyped is not None:
        notes.add(UNTYPED)
        return Struct(f"ttnn.{untyped}", read_fields(data, path, notes))
    ((name, content),) = data.items()
    return _of_class(name, content, f"{path}.{name}", notes)


def _typed(data: dict[str, Any], path: str, notes: PartNotes) -> Value:
    match data:
        case {"type": "ttnn.Tensor"}:
            return read_tensor(data, path, notes)
        case {"type": "torch.Tensor"}:
            return read_torch_tensor(data, notes)
        case {"type": str(kind), "repr": str(text), **rest} if not rest:
            return _symbol_or_printed(kind, text)
        case {"type": str(kind), "value": str(text), **rest} if not rest:
            return _printed_as(kind, text)
        case {"type": str(kind)} if _CLASS.match(kind):
            return Struct(f"ttnn.{kind}", read_fields(data, path, notes))
    raise UnknownForm(f"an object of the type {data['type']!r}")


def _symbol_or_printed(kind: str, text: str) -> Value:
    try:
        return symbol(text, kind)
    except UnknownForm:
        return _printed_as(kind, text)


def _printed_as(kind: str, text: str) -> Value:
    """Read printed text that the file says to be of ``kind``."""
    if kind == "MemoryConfig":
        return read_memory(text, "", PartNotes())
    if kind == "NdShardSpec":
        return read_shards(text, kind)
    if kind in _WITHOUT_FIELDS and re.fullmatch(rf"<[\w.]*\b{kind} object[^>]*>", text):
        return Struct(f"ttnn.{kind}", ())
    if kind in ("slice", "range", "ellipsis", "complex"):
        return _python_object(kind, text)
    value = read_printed(text)
    if kind == "set" and isinstance(value, Struct):
        value = Set(frozenset(_items(value)))
    return of_type(value, kind)


def _python_object(kind: str, text: str) -> Value:
    """Read an object of Python itself: ``slice(None, 32, None)``, ``range(0, 3)``, ``1j``."""
    if kind == "ellipsis" and text == "Ellipsis":
        return Symbol("python.Ellipsis", "Ellipsis")
    if kind == "complex":
        number = complex(text)
        return Complex(Float(number.real), Float(number.imag))
    steps = re.fullmatch(rf"{kind}\(({_STEP}), ({_STEP})(?:, ({_STEP}))?\)", text)
    if steps is None:
        raise UnknownForm(f"{text[:80]!r} is not a {kind}")
    start, stop, step = (
        Null() if each in (None, "None") else Int(int(each)) for each in steps.groups()
    )
    if kind == "range" and steps[3] is None:
        step = Int(1)
    return Struct(f"python.{kind}", (("start", start), ("stop", stop), ("step", step)))


_STEP: Final = r"-?\d{1,18}|None"
_WITHOUT_FIELDS: Final = frozenset({"SoftmaxDefaultProgramConfig", "MatmulMultiCoreProgramConfig"})
"""Classes without fields, which Python prints by their address only."""


def _items(value: Struct) -> tuple[Value, ...]:
    match value:
        case Struct("ttnn.CoreRangeSet", (("ranges", List(items)),)):
            return items
    raise UnknownForm(f"a {value.type} is not a set")


def _is_class(name: str) -> bool:
    """Return whether an object with the key ``name`` alone is named by its class, as C++ prints."""
    return name in ("Tensor", "Shape") or (name.endswith("Config") and bool(_CLASS.match(name)))


def _of_class(name: str, data: Json, path: str, notes: PartNotes) -> Value:
    match name:
        case "Tensor":
            return read_printed_tensor(data, path, notes)
        case "MemoryConfig":
            return read_memory(data, path, notes)
        case "Shape":
            shape = counts(data["shape"] if isinstance(data, dict) else data)
            return Struct("ttnn.Shape", (("shape", List(tuple(map(Int, shape)))),))
    return Struct(f"ttnn.{name}", read_fields(dict(data), path, notes))


def unparsed_element(data: Json) -> dict[str, Json] | None:
    """Return the argument in an ``UnparsedElement``; None if its text cannot be parsed."""
    text = data.get("element_info") if isinstance(data, dict) else None
    if not isinstance(text, str):
        return None
    try:
        parsed = parse_almost_json(text)
    except NotAlmostJson:
        return None
    return parsed if isinstance(parsed, dict) else None

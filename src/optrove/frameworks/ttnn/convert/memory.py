"""Converters of memory configurations, shards, tiles and other special classes.

``SPECIAL`` lists them; the converter of any other class is derived from its signature. Every
converter reads the whole state of an object and builds an object with exactly that state.

Two facts about ``MemoryConfig`` shape its converter. A configuration made from a ``ShardSpec``
gains an ``nd_shard_spec`` when a tensor uses it, and ttnn still calls the two equal: that part
is derived and not recorded. One made from an ``NdShardSpec`` may gain a ``shard_spec`` and another
layout in the same way, and ttnn calls the two different: there all of it is recorded.

ttnn divides by the sizes of shards and counts cores in 32 bits without checks: a size of zero, or
a count that wraps around to zero, ends the process. Such sizes are refused here first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.frameworks.ttnn.convert.configs import is_cacheable
from optrove.serializer.tables import Fields, StructConverter

if TYPE_CHECKING:
    from collections.abc import Iterator


# Experimental switches that only ``to_json`` shows. ttnn 0.78 lacks some of them, so only switches
# that are on are recorded: the same configuration is the same in every release.
_SWITCHES = ("per_core_allocation", "range_lockstep_allocation")

# ttnn keeps sizes in unsigned 32 bits and rounds them up to whole tiles, pages and shards.
_VOLUME_LIMIT = 2**31


def _memory(ttnn: ModuleType, cls: type, name: str) -> StructConverter:
    rule = MemoryRule(ttnn)
    names = ("memory_layout", "buffer_type", "shard_spec", "nd_shard_spec")
    return StructConverter(
        name, cls, rule.fields, rule.make, names, cacheable=True, optional=_SWITCHES
    )


@dataclass(frozen=True, slots=True)
class MemoryRule:
    """Reads and builds memory configurations."""

    ttnn: ModuleType

    def fields(self, live: Any) -> Fields:
        """Return layout, buffer type and shards of ``live``, and the switches that are on."""
        state = json.loads(live.to_json())
        by_nd = state["created_with_nd_shard_spec"]
        return {
            "memory_layout": live.memory_layout,
            "buffer_type": live.buffer_type,
            "shard_spec": live.shard_spec,
            "nd_shard_spec": live.nd_shard_spec if by_nd else None,
            **{name: True for name in _SWITCHES if state.get(name)},
        }

    def make(self, fields: Fields) -> Any:
        """Return the memory configuration with exactly these fields."""
        if fields["nd_shard_spec"] is None:
            live = self.ttnn.MemoryConfig(
                fields["memory_layout"], fields["buffer_type"], fields["shard_spec"]
            )
        else:
            live = self._make_nd(fields)
        for name in _SWITCHES:
            if fields.get(name):
                getattr(live, f"experimental_set_{name}")(fields[name])
        return live

    def _make_nd(self, fields: Fields) -> Any:
        """Return the configuration, if necessary in the form that it gets in a tensor.

        Only ttnn itself adds a shard_spec to an nd_shard_spec, if the shape of a tensor allows
        both. So tensor shapes are tried until one leads to the recorded form.
        """
        ttnn, nd = self.ttnn, fields["nd_shard_spec"]
        plain = ttnn.MemoryConfig(fields["buffer_type"], nd)
        if _same_form(plain, fields):
            return plain
        shard = _row(nd.shard_shape)
        _check_shards(shard, nd.grid)
        for shape in _shapes(shard, nd.grid):
            spec = ttnn.TensorSpec(
                ttnn.Shape(shape),
                ttnn.uint32,
                ttnn.ROW_MAJOR_LAYOUT,
                nd_shard_spec=nd,
                buffer_type=fields["buffer_type"],
            )
            if _same_form(spec.memory_config, fields):
                return spec.memory_config
        raise ValueError(
            "no tensor gives this nd_shard_spec the recorded memory_layout and shard_spec; "
            "record the configuration before a tensor uses it"
        )


def _same_form(live: Any, fields: Fields) -> bool:
    return bool(
        live.memory_layout == fields["memory_layout"] and live.shard_spec == fields["shard_spec"]
    )


def _shapes(shard: list[int], grid: Any) -> Iterator[list[int]]:
    """Yield tensor shapes of several shards: stacked, side by side, and in a grid."""
    *outer, height, width = [1, *shard] if len(shard) == 1 else shard
    cores, (rows_of_box, columns_of_box) = _cores(grid), _box(grid)
    for rows, columns in (
        (cores, 1),
        (1, cores),
        (rows_of_box, columns_of_box),
        (columns_of_box, rows_of_box),
        (1, 1),
    ):
        yield [*outer, height * rows, width * columns]
        yield [rows, *outer, height, width * columns]


def _check_shards(shard: list[int], grid: Any) -> None:
    """Raise ValueError for shards into which ttnn cannot divide a tensor."""
    if not shard or min(shard) < 1:
        raise ValueError(f"a shard of {shard} holds nothing; every size of it must be at least 1")
    cores = max(_cores(grid), prod(_box(grid)))
    if not 0 < prod(shard) * cores < _VOLUME_LIMIT:
        raise ValueError(
            f"shards of {shard} on {cores} cores make {prod(shard) * cores} elements, "
            f"which is not between 1 and {_VOLUME_LIMIT}; check the shard grid and shape"
        )


def _cores(grid: Any) -> int:
    """Return the number of cores of a grid; ttnn's own count wraps around at 32 bits."""
    return sum(
        (part.end.x - part.start.x + 1) * (part.end.y - part.start.y + 1) for part in grid.ranges()
    )


def _box(grid: Any) -> tuple[int, int]:
    """Return the rows and columns of the smallest rectangle around a grid."""
    parts = grid.ranges()
    if not parts:
        return (0, 0)
    rows = max(part.end.y for part in parts) - min(part.start.y for part in parts) + 1
    columns = max(part.end.x for part in parts) - min(part.start.x for part in parts) + 1
    return (rows, columns)


def _row(shape: Any) -> list[int]:
    return [shape[index] for index in range(shape.rank)]


def _tensor_spec(ttnn: ModuleType, cls: type, name: str) -> StructConverter:
    names = ("shape", "dtype", "layout", "tile", "memory_config")
    return StructConverter(
        name,
        cls,
        lambda live: {field: getattr(live, field) for field in names},
        partial(_make_tensor_spec, ttnn),
        names,
    )


def _make_tensor_spec(ttnn: ModuleType, fields: Fields) -> Any:
    """Return the tensor specification with these fields; ValueError if ttnn changes one."""
    memory = fields["memory_config"]
    recorded = MemoryRule(ttnn).fields(memory)
    _check_tensor(_row(fields["shape"]), recorded)
    if recorded["nd_shard_spec"] is not None:
        shards = {"nd_shard_spec": memory.nd_shard_spec}
    else:
        shards = {"memory_layout": memory.memory_layout, "shard_spec": memory.shard_spec}
    live = ttnn.TensorSpec(
        fields["shape"],
        fields["dtype"],
        fields["layout"],
        buffer_type=memory.buffer_type,
        tile=fields["tile"],
        **shards,
    )
    if not _same_form(live.memory_config, recorded) or recorded.keys() & set(_SWITCHES):
        raise ValueError(
            "ttnn.TensorSpec cannot be made with this memory configuration: its "
            "constructors take no experimental switches and derive the layout of nd shards"
        )
    return live


def _check_tensor(shape: list[int], memory: Fields) -> None:
    """Raise ValueError for sizes of a sharded tensor that ttnn cannot count."""
    shards, nd_shards = memory["shard_spec"], memory["nd_shard_spec"]
    if shards is None and nd_shards is None:
        return
    if nd_shards is not None:
        _check_shards(_row(nd_shards.shard_shape), nd_shards.grid)
    if shards is not None:
        _check_shards(list(shards.shape), shards.grid)
    # For an empty tensor ttnn computes a remainder by a width of zero, but only with nd shards.
    least = 0 if nd_shards is None else 1
    if not least <= prod(shape) < _VOLUME_LIMIT:
        raise ValueError(
            f"a sharded tensor of {shape} has {prod(shape)} elements, "
            f"which is not between {least} and {_VOLUME_LIMIT}; check its shape"
        )


def _tile(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the converter of tiles; ttnn sets their two transposes together."""

    def fields(live: Any) -> Fields:
        if live.transpose_within_face != live.transpose_of_faces:
            raise ValueError("Python cannot make a tile with only one of its two transposes")
        return {"shape": live.tile_shape, "transpose": live.transpose_of_faces}

    return StructConverter(
        name,
        cls,
        fields,
        lambda fields: cls(fields["shape"], fields["transpose"]),
        ("shape", "transpose"),
    )


Special: TypeAlias = Callable[[ModuleType, type, str], StructConverter]
"""Returns the converter of a class, given ttnn, the class and its public name."""


def number(cls: type, name: str) -> StructConverter:
    """Return the converter of a class that wraps one whole number."""
    return StructConverter(
        name,
        cls,
        lambda live: {"value": int(live)},
        lambda fields: cls(fields["value"]),
        ("value",),
    )


def _sequence(field: str, length: str) -> Special:
    """Return the rule of a sequence of numbers or symbols; ``length`` counts them."""

    def rule(_: ModuleType, cls: type, name: str) -> StructConverter:
        count: Callable[[Any], int] = getattr(cls, length)
        return StructConverter(
            name,
            cls,
            lambda live: {field: [live[index] for index in range(count(live))]},
            lambda fields: cls(fields[field]),
            (field,),
            is_cacheable(cls),
        )

    return rule


def _positional(*names: str, cacheable: bool = True) -> Special:
    """Return the rule of a class whose constructor takes these properties without names."""

    def rule(_: ModuleType, cls: type, name: str) -> StructConverter:
        return StructConverter(
            name,
            cls,
            lambda live: {field: getattr(live, field) for field in names},
            lambda fields: cls(*(fields[field] for field in names)),
            names,
            cacheable and is_cacheable(cls),
        )

    return rule


def _core_ranges(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the converter of core range sets: their ranges in the given order."""
    return StructConverter(
        name,
        cls,
        lambda live: {"ranges": live.ranges()},
        lambda fields: cls(fields["ranges"]),
        ("ranges",),
    )


def _activation(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the converter of unary operations with parameters."""
    return StructConverter(
        name,
        cls,
        lambda live: {"op_type": live.op_type, "params": activation_parameters(live)},
        lambda fields: cls(fields["op_type"], *fields["params"]),
        ("op_type", "params"),
    )


def activation_parameters(live: Any) -> list[float]:
    """Return the parameters of a unary operation.

    ttnn 0.78 shows them only inside a program configuration.
    """
    if hasattr(live, "params"):
        return list(live.params)
    holder = import_module("ttnn").MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=1, per_core_M=1, per_core_N=1, fused_activation=live
    )
    parameters: list[float] = json.loads(holder.to_json())["fused_activation"]["param"]
    if None in parameters:
        raise ValueError("ttnn 0.78 does not show an infinite or undefined parameter")
    return parameters


# A range only lists its coordinates. No mesh comes near this number.
_MAX_CHIPS = 4096


def _mesh_range(ttnn: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the converter of ranges over a mesh: their first and last coordinate."""

    def fields(live: Any) -> Fields:
        # The iterator yields one object that changes: copy each coordinate at once.
        corners = [
            [coordinate[i] for i in range(coordinate.dims())]
            for coordinate in islice(live, _MAX_CHIPS + 1)
        ]
        _check_chips(len(corners))
        return {"start": corners[0], "end": corners[-1]}

    def make(fields: Fields) -> Any:
        start, end = fields["start"], fields["end"]
        live = cls(ttnn.MeshCoordinate(start), ttnn.MeshCoordinate(end))
        _check_chips(prod(last - first + 1 for first, last in zip(start, end, strict=True)))
        return live

    return StructConverter(name, cls, fields, make, ("start", "end"))


def _check_chips(count: int) -> None:
    """Raise ValueError for a range that would take too long to iterate."""
    if count > _MAX_CHIPS:
        raise ValueError(f"a range over more than {_MAX_CHIPS} chips; check its start and end")


# A sub-device id is a byte.
_IDS = range(256)


def _sub_device_id(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the converter of sub-device ids, which can be compared but not read."""
    known = [cls(number) for number in _IDS]
    return StructConverter(
        name, cls, lambda live: {"id": known.index(live)}, lambda fields: cls(fields["id"]), ("id",)
    )


def _dispatch(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the converter of dispatch configurations.

    The constructor reads defaults from the cluster and fails without one; both fields are known
    here, so the base class is initialized directly.
    """
    base: Any = cls.__mro__[1]

    def make(fields: Fields) -> Any:
        live = base.__new__(cls)
        base.__init__(live, fields["type"], fields["axis"])
        return live

    return StructConverter(
        name, cls, lambda live: {"type": live.type, "axis": live.axis}, make, ("type", "axis")
    )


SPECIAL: dict[str, Special] = {
    "ttnn.CoreCoord": _positional("x", "y"),
    "ttnn.CoreRangeSet": _core_ranges,
    "ttnn.DispatchCoreConfig": _dispatch,
    "ttnn.MemoryConfig": _memory,
    "ttnn.MeshCoordinate": _sequence("coords", "dims"),
    "ttnn.MeshCoordinateRange": _mesh_range,
    "ttnn.MeshShape": _sequence("shape", "dims"),
    "ttnn.PlacementShard": _positional("dim"),
    "ttnn.Shape": _sequence("shape", "__len__"),
    "ttnn.ShardSpec": _positional("grid", "shape", "orientation", cacheable=False),
    "ttnn.SubDeviceId": _sub_device_id,
    "ttnn.TensorSpec": _tensor_spec,
    "ttnn.Tile": _tile,
    "ttnn.UnaryWithParam": _activation,
    "ttnn.VectorUInt32": _sequence("items", "__len__"),
    "ttnn.VectorUnpackToDestMode": _sequence("items", "__len__"),
}
"""Classes whose constructor and readers do not match by name."""

"""The ttnn classes whose constructor and readers do not match by name, each with its rule.

``SPECIAL`` is the list; a class that is not in it is derived from its signature. Every rule reads
all of an object's state and makes an object with exactly that state.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from itertools import islice
from math import prod
from types import ModuleType
from typing import Any, TypeAlias

from optrove.backends.base import Fields, StructConverter
from optrove.backends.ttnn import memory
from optrove.backends.ttnn.configs import caching_of
from optrove.backends.ttnn.signatures import properties

Special: TypeAlias = Callable[[ModuleType, type, str], StructConverter]
"""Given ttnn, a class and its public name, the converter."""


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
    """Return the rule of a class that is a row of numbers or symbols; ``length`` counts them."""

    def rule(_: ModuleType, cls: type, name: str) -> StructConverter:
        count: Callable[[Any], int] = getattr(cls, length)
        return StructConverter(
            name,
            cls,
            lambda live: {field: [live[index] for index in range(count(live))]},
            lambda fields: cls(fields[field]),
            (field,),
            caching_of(cls),
        )

    return rule


def _positional(*names: str) -> Special:
    """Return the rule of a class whose constructor takes these properties without names."""

    def rule(_: ModuleType, cls: type, name: str) -> StructConverter:
        return StructConverter(
            name,
            cls,
            lambda live: {field: getattr(live, field) for field in names},
            lambda fields: cls(*(fields[field] for field in names)),
            names,
            caching_of(cls),
        )

    return rule


def _core_ranges(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the rule of core range sets: their ranges in the order that they have."""
    return StructConverter(
        name,
        cls,
        lambda live: {"ranges": live.ranges()},
        lambda fields: cls(fields["ranges"]),
        ("ranges",),
    )


def _activation(ttnn: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the rule of unary operations with parameters."""
    parameters = _parameters if "params" in properties(cls) else partial(_told_parameters, ttnn)
    return StructConverter(
        name,
        cls,
        lambda live: {"op_type": live.op_type, "params": parameters(live)},
        lambda fields: cls(fields["op_type"], *fields["params"]),
        ("op_type", "params"),
    )


def _parameters(live: Any) -> list[float]:
    params: list[float] = live.params
    return params


def _told_parameters(ttnn: ModuleType, live: Any) -> list[float]:
    """Read the parameters on ttnn 0.78, which shows them only inside a program configuration."""
    holder = ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=1, per_core_M=1, per_core_N=1, fused_activation=live
    )
    told: list[float] = json.loads(holder.to_json())["fused_activation"]["param"]
    if None in told:
        raise ValueError("ttnn 0.78 does not tell an infinite or undefined parameter")
    return told


# A range tells its coordinates one by one and nothing else. No mesh comes near this number.
_MOST_CHIPS = 4096


def _mesh_range(ttnn: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the rule of ranges over a mesh: their first and last coordinate."""

    def fields(live: Any) -> Fields:
        # The coordinates that the iterator yields are one object that moves: copy each at once.
        corners = [
            [coordinate[i] for i in range(coordinate.dims())]
            for coordinate in islice(live, _MOST_CHIPS + 1)
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
    """Raise ValueError for a range that would take too long to walk."""
    if count > _MOST_CHIPS:
        raise ValueError(f"a range over more than {_MOST_CHIPS} chips; check its start and end")


# A sub-device id is a byte.
_IDS = range(256)


def _sub_device_id(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the rule of sub-device ids, which can be compared but not read."""
    known = [cls(number) for number in _IDS]
    return StructConverter(
        name, cls, lambda live: {"id": known.index(live)}, lambda fields: cls(fields["id"]), ("id",)
    )


def _dispatch(_: ModuleType, cls: type, name: str) -> StructConverter:
    """Return the rule of dispatch configurations.

    The constructor asks the cluster for defaults and fails where there is none; both fields are
    known here, so the class that it derives from is initialised directly.
    """
    base: Any = cls.__mro__[1]

    def make(fields: Fields) -> Any:
        live = base.__new__(cls)
        base.__init__(live, fields["type"], fields["axis"])
        return live

    return StructConverter(
        name, cls, lambda live: {"type": live.type, "axis": live.axis}, make, ("type", "axis")
    )


def _from_memory(ttnn: ModuleType, cls: type, name: str) -> StructConverter:
    return next(c for c in memory.converters(ttnn) if c.type is cls and c.name == name)


SPECIAL: dict[str, Special] = {
    "ttnn.CoreCoord": _positional("x", "y"),
    "ttnn.CoreRangeSet": _core_ranges,
    "ttnn.DispatchCoreConfig": _dispatch,
    "ttnn.MemoryConfig": _from_memory,
    "ttnn.MeshCoordinate": _sequence("coords", "dims"),
    "ttnn.MeshCoordinateRange": _mesh_range,
    "ttnn.MeshShape": _sequence("shape", "dims"),
    "ttnn.PlacementShard": _positional("dim"),
    "ttnn.Shape": _sequence("shape", "__len__"),
    "ttnn.ShardSpec": _from_memory,
    "ttnn.SubDeviceId": _sub_device_id,
    "ttnn.TensorSpec": _from_memory,
    "ttnn.Tile": _from_memory,
    "ttnn.UnaryWithParam": _activation,
    "ttnn.VectorUInt32": _sequence("items", "__len__"),
    "ttnn.VectorUnpackToDestMode": _sequence("items", "__len__"),
}
"""Classes whose constructor and readers do not match by name."""

"""Spell tensors and devices for generated tests.

    Spec((1, 1, 32, 64), ttnn.bfloat16, L1_WIDTH_SHARDED_32X64, mesh=(2, None))

A field that has its usual value is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.model.values import (
    FrozenSet,
    List,
    Mapping,
    Null,
    Set,
    Struct,
    TensorSpec,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
    walk,
)
from optrove.testgen.cases import Filling, Numbers
from optrove.testgen.spelling import (
    Expression,
    Unspellable,
    call,
    dtype,
    laid_out,
    named,
    prefixed,
    row,
    spelled,
    tuple_of,
)

if TYPE_CHECKING:
    from optrove.model.records import DeviceParameters
    from optrove.model.values import MeshPlacement, Tile


ALONE: Final = (1, 1)
FABRIC: Final = "FABRIC_1D"
"""What chips talk over where a recording does not tell; the one that most models ask for."""

L1_SMALL: Final = 24576
_WANTS_L1_SMALL: Final = re.compile(r"conv|pool|upsample|fold|halo|grid_sample")
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_NO_FABRIC: Final = "DISABLED"


@dataclass(frozen=True, slots=True)
class Opening:
    """With what a device is opened; zero is ttnn's own choice. ``untold`` was supplied."""

    mesh_shape: tuple[int, ...] = ALONE
    fabric: str | None = None
    l1_small_size: int = 0
    trace_region_size: int = 0
    worker_l1_size: int = 0
    command_queues: int = 1
    dispatch_axis: str | None = None
    untold: tuple[str, ...] = ()

    @property
    def chips(self) -> int:
        """How many chips it has."""
        return prod(self.mesh_shape)


def opening_of(device: DeviceParameters | None, op: str) -> Opening:
    """Return how a device is opened for an op, with what the recording does not tell."""
    if device is None:
        return _completed(Opening(), None, None, op)
    shape = device.mesh_shape or ALONE
    known = device.fabric_config if _NAME.fullmatch(device.fabric_config or "") else None
    opening = Opening(
        mesh_shape=shape,
        trace_region_size=device.trace_region_size or 0,
        worker_l1_size=device.worker_l1_size or 0,
        command_queues=device.command_queues or 1,
        dispatch_axis=device.dispatch_axis if device.dispatch_axis in ("ROW", "COL") else None,
    )
    return _completed(opening, known, device.l1_small_size, op)


def _completed(opening: Opening, fabric: str | None, l1_small: int | None, op: str) -> Opening:
    untold = []
    if fabric is None and opening.chips > 1:
        fabric = FABRIC
        untold.append(f"the fabric, {FABRIC}")
    if l1_small is None and _WANTS_L1_SMALL.search(op):
        l1_small = L1_SMALL
        untold.append(f"l1_small_size, {L1_SMALL}")
    return replace(
        opening,
        fabric=None if fabric == _NO_FABRIC else fabric,
        l1_small_size=l1_small or 0,
        untold=tuple(untold),
    )


def open_lines(opening: Opening, variable: str, indent: int) -> list[str]:
    """Return the statements that open the device."""
    lines = []
    if opening.fabric is not None:
        lines.append(f"ttnn.set_fabric_config(ttnn.FabricConfig.{opening.fabric})")
    told = {
        "l1_small_size": opening.l1_small_size,
        "trace_region_size": opening.trace_region_size,
        "worker_l1_size": opening.worker_l1_size,
        "num_command_queues": opening.command_queues if opening.command_queues > 1 else 0,
    }
    keywords: list[Expression] = [f"{name}={size}" for name, size in told.items() if size]
    if opening.dispatch_axis is not None:
        axis = f"axis=ttnn.DispatchCoreAxis.{opening.dispatch_axis}"
        keywords.append(f"dispatch_core_config=ttnn.DispatchCoreConfig({axis})")
    if opening.chips == 1:
        opened = call("ttnn.open_device", "device_id=0", *keywords)
    else:
        shape = call("ttnn.MeshShape", *map(str, opening.mesh_shape))
        opened = call("ttnn.open_mesh_device", shape, *keywords)
    return [*lines, laid_out(prefixed(f"{variable} = ", opened), indent)]


def close_lines(opening: Opening, variable: str) -> list[str]:
    """Return the statements that close the device."""
    kind = "device" if opening.chips == 1 else "mesh_device"
    lines = [f"ttnn.close_{kind}({variable})"]
    if opening.fabric is not None:
        lines.append("ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)")
    return lines


Constant: TypeAlias = Callable[[Struct, str], Expression]
"""Gives the expression of a struct: a constant of the file if it is long."""

USUAL_TILE: Final = (32, 32)
USUAL_LAYOUT: Final = "TILE"
LAYOUTS: Final = (USUAL_LAYOUT, "ROW_MAJOR")
HOST: Final = "host"
UNTOLD: Final = 8
"""Whole numbers stay below this where nothing tells how many places there are."""

_INTEGER: Final = re.compile(r"\.u?int\d+$|\.bool$")


def holds_tensors(value: Value) -> bool:
    """Tell whether there is a tensor in a value."""
    return any(isinstance(part, TensorSpec) for _, part in walk(value))


@dataclass(frozen=True, slots=True)
class Tensors:
    """Spells the tensors of cases that run on a mesh of a shape."""

    mesh_shape: tuple[int, ...]
    constant: Constant

    def spelled(self, value: Value, filling: Filling | None, path: str) -> Expression:
        """Return an argument that is a tensor, or a list of tensors and plain values."""
        match value:
            case TensorSpec():
                return self.spec(value, filling, path)
            case List(items):
                return row(self._items(items, filling, path))
            case Tuple(items):
                return tuple_of(self._items(items, filling, path))
            case Mapping() | Set() | FrozenSet() | Struct() if holds_tensors(value):
                raise Unspellable(path, "tensors within something else than a list")
        return spelled(value, path)

    def _items(
        self, items: tuple[Value, ...], filling: Filling | None, path: str
    ) -> tuple[Expression, ...]:
        return tuple(
            self.spelled(item, filling, f"{path}[{place}]") for place, item in enumerate(items)
        )

    def spec(self, spec: TensorSpec, filling: Filling | None, path: str) -> Expression:
        """Return the Spec of a tensor; one without filling is for comparison only."""
        first: list[Expression] = [
            tuple_of(map(str, spec.shape)) if spec.shape else "()",
            dtype(spec.dtype, path),
        ]
        match spec.placement:
            case TtnnPlacement() as placement:
                if filling is not None:
                    placement = _as_given(placement)
                rest = self._placed(placement, path)
            case TorchPlacement() as placement:
                _check_contiguous(spec.shape, placement, path)
                rest = ["None"]
            case _:
                raise Unspellable(path, "an array of numpy")
        values = [] if filling is None else _values(filling_of(spec, filling))
        return call("Spec", *first, *rest, *values)

    def _placed(self, placement: TtnnPlacement, path: str) -> list[Expression]:
        facts: list[Expression] = []
        memory = placement.memory
        if placement.storage == HOST:
            facts.append("None")
        elif memory is None:
            raise Unspellable(path, "the recording does not tell its memory")
        else:
            facts.append(self.constant(memory, f"{path}.$tensor.placement.memory"))
        if placement.layout not in LAYOUTS:
            raise Unspellable(path, f"the layout {placement.layout!a}")
        if placement.layout != USUAL_LAYOUT:
            facts.append(f"ttnn.{placement.layout}_LAYOUT")
        if placement.tile is not None and _is_unusual(placement.tile):
            facts.append(named("tile", _tile(placement.tile)))
        if placement.mesh is not None and prod(self.mesh_shape) > 1:
            facts += self._mesh(placement.mesh, path)
        return facts

    def _mesh(self, mesh: MeshPlacement, path: str) -> list[Expression]:
        """Return which dimension is split along each axis of the mesh, or along all chips."""
        if len(mesh.coordinates) != prod(self.mesh_shape):
            raise Unspellable(path, "it lies on a part of the mesh only")
        if mesh.distribution_shape not in (self.mesh_shape, (prod(self.mesh_shape),)):
            raise Unspellable(path, "it is spread over another shape than that of the mesh")
        if all(split is None for split in mesh.placements):
            return []
        return [named("mesh", tuple_of(map(str, mesh.placements)))]


def _as_given(placement: TtnnPlacement) -> TtnnPlacement:
    """Return the memory of a tensor as it was before the tensor's shape gave nd shards a form.

    ttnn writes a shard_spec beside the nd_shard_spec then, and will do so again.
    """
    memory = placement.memory
    fields = {} if memory is None else dict(memory.fields)
    if memory is None or not isinstance(fields.get("nd_shard_spec"), Struct):
        return placement
    given = Struct(memory.type, tuple({**fields, "shard_spec": Null()}.items()))
    return replace(placement, memory=given)


def filling_of(spec: TensorSpec, filling: Filling) -> Filling:
    """Return what a tensor holds: integers are never drawn from a normal distribution."""
    if filling.numbers is Numbers.NORMAL and _INTEGER.search(spec.dtype):
        return Filling(filling.argument, Numbers.WHOLE, UNTOLD)
    return filling


def _values(filling: Filling) -> list[Expression]:
    match filling.numbers:
        case Numbers.NORMAL:
            return []
        case Numbers.WHOLE | Numbers.DISTINCT:
            return [f"values={filling.numbers.value}({filling.below})"]
    return [f"values={filling.numbers.value}"]


def _is_unusual(tile: Tile) -> bool:
    return tile.shape != USUAL_TILE or tile.transpose_of_faces


def _tile(tile: Tile) -> Expression:
    transposed = ["True"] if tile.transpose_of_faces else []
    return call("ttnn.Tile", row(map(str, tile.shape)), *transposed)


def _check_contiguous(shape: tuple[int, ...], placement: TorchPlacement, path: str) -> None:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    if placement.strides != tuple(reversed(strides)) or placement.device != "cpu":
        raise Unspellable(path, "a tensor of torch that is not contiguous, or not on the host")

"""Spell tensors for generated tests: a Spec with the part that each chip holds.

    Spec((1, 1, 32, 64), ttnn.bfloat16, L1_WIDTH_SHARDED_32X64, mesh=(2, None))

A field that has its usual value is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.interop.testgen_cases import Filling, Numbers
from optrove.interop.testgen_layout import Expression, call, named, row, tuple_of
from optrove.interop.testgen_spelling import Unspellable, dtype, spelled
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
)
from optrove.model.walk import walk

if TYPE_CHECKING:
    from optrove.model.values import MeshPlacement, Tile

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

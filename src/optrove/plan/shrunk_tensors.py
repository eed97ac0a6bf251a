"""Change the tensors of a case so that each stays one that could have been recorded.

A tensor's padded shape follows its shape, and its shards are made smaller with it where whole
tiles remain. Sizes that stand in lists and shapes among the arguments change with those of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from optrove.model.case import Case
from optrove.model.rewrite import rewrite
from optrove.model.values import (
    DeviceRef,
    Int,
    List,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    Tuple,
    Value,
)

TILE: Final = 32
ALONE: Final = (1, 1)

PLAIN_MEMORY: Final = Struct(
    "ttnn.MemoryConfig",
    (
        ("memory_layout", Symbol("ttnn.TensorMemoryLayout", "INTERLEAVED")),
        ("buffer_type", Symbol("ttnn.BufferType", "DRAM")),
        ("shard_spec", Null()),
        ("nd_shard_spec", Null()),
    ),
)

Retensor = Callable[[TensorSpec], TensorSpec]


def is_plain(memory: Struct) -> bool:
    """Tell whether a memory configuration is the simplest one."""
    return memory == PLAIN_MEMORY


def with_tensors(case: Case, change: Retensor) -> Case:
    """Return a case with each of its tensors as ``change`` returns it."""

    def changed(part: Value) -> Value:
        return change(part) if isinstance(part, TensorSpec) else part

    return Case(case.op, tuple((name, rewrite(value, changed)) for name, value in case.arguments))


def plainly_kept(spec: TensorSpec) -> TensorSpec:
    """Return a tensor that lies in interleaved DRAM, if it is on a device."""
    placement = spec.placement
    if not isinstance(placement, TtnnPlacement) or placement.storage != "device":
        return spec
    return replace(spec, placement=replace(placement, memory=PLAIN_MEMORY))


def of_dtype(spec: TensorSpec, dtype: str) -> TensorSpec:
    """Return a tensor with another dtype."""
    return replace(spec, dtype=dtype)


def alone(case: Case) -> Case:
    """Return a case whose tensors and devices are on one chip."""

    def changed(part: Value) -> Value:
        match part:
            case TensorSpec(placement=TtnnPlacement(mesh_shape=(_, *_)) as placement):
                placement = replace(placement, mesh_shape=ALONE, mesh=None)
                return replace(part, placement=placement)
            case DeviceRef():
                return replace(part, mesh_shape=ALONE)
        return part

    return Case(case.op, tuple((name, rewrite(value, changed)) for name, value in case.arguments))


def resized(size: int, less: int, *, batches_only: bool = False) -> Callable[[Case], Case]:
    """Return what makes a size smaller wherever it stands, in tensors, lists and shapes.

    With ``batches_only`` the last two dimensions of tensors keep it.
    """

    def tensor(spec: TensorSpec) -> TensorSpec:
        kept = len(spec.shape) - 2 if batches_only else len(spec.shape)
        shape = tuple(
            less if own == size and place < kept else own for place, own in enumerate(spec.shape)
        )
        return reshaped(spec, shape)

    def change(case: Case) -> Case:
        smaller = with_tensors(case, tensor)
        if smaller == case:
            return case
        given = tuple((name, _listed(value, size, less)) for name, value in smaller.arguments)
        return Case(case.op, given)

    return change


def _listed(value: Value, size: int, less: int) -> Value:
    """Return an argument that is a list of sizes, or a shape, with the smaller size."""

    def numbers(items: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(Int(less) if item == Int(size) else item for item in items)

    match value:
        case List(items):
            return List(numbers(items))
        case Tuple(items):
            return Tuple(numbers(items))
        case Struct("ttnn.Shape", ((name, List(items)),)):
            return Struct("ttnn.Shape", ((name, List(numbers(items))),))
    return value


def first_dimensions(place: int, less: int) -> Retensor:
    """Return what makes one dimension of a tensor smaller."""

    def change(spec: TensorSpec) -> TensorSpec:
        if place >= len(spec.shape) or spec.shape[place] <= less:
            return spec
        return reshaped(spec, (*spec.shape[:place], less, *spec.shape[place + 1 :]))

    return change


def flattened(spec: TensorSpec) -> TensorSpec:
    """Return a tensor without dimensions of size 1 before the last two."""
    rest = tuple(size for size in spec.shape[:-2] if size != 1)
    return reshaped(spec, (*rest, *spec.shape[-2:]))


def reshaped(spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
    """Return a tensor of another shape, laid out as it was; one of torch stays as it is."""
    if shape == spec.shape:
        return spec
    placement = spec.placement
    if not isinstance(placement, TtnnPlacement):
        return spec
    memory = placement.memory
    if memory is not None:
        memory = _resharded(memory, _plane(spec.shape), _plane(shape))
    mesh = placement.mesh
    if len(shape) != len(spec.shape):
        # Which dimension was split over the mesh is not known any more by its number.
        mesh = None
    placement = replace(placement, padded_shape=_padded(placement, shape), memory=memory, mesh=mesh)
    return replace(spec, shape=shape, placement=placement)


def _plane(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the rows and columns that shards divide a tensor into."""
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, shape[-1] if shape else 1


def _padded(placement: TtnnPlacement, shape: tuple[int, ...]) -> tuple[int, ...]:
    if placement.tile is None:
        return shape
    tile = placement.tile.shape[-len(shape) :]
    pairs = zip(shape[-2:], tile, strict=False)
    last = [-(-size // unit) * unit if unit else size for size, unit in pairs]
    return (*shape[:-2], *last)


def _resharded(memory: Struct, old: tuple[int, int], new: tuple[int, int]) -> Struct:
    """Return the memory of a smaller tensor, with smaller shards on the same cores."""

    def changed(part: Value) -> Value:
        match part:
            case Struct("ttnn.ShardSpec", fields):
                return Struct(part.type, tuple(_smaller(field, old, new) for field in fields))
        return part

    found = rewrite(memory, changed)
    return found if isinstance(found, Struct) else memory


def _smaller(
    field: tuple[str, Value], old: tuple[int, int], new: tuple[int, int]
) -> tuple[str, Value]:
    name, value = field
    match value:
        case List((Int(rows), Int(columns))) if name == "shape":
            sizes = (_scaled(rows, old[0], new[0]), _scaled(columns, old[1], new[1]))
            return name, List(tuple(map(Int, sizes)))
    return field


def _scaled(size: int, old: int, new: int) -> int:
    """Return the part of a shard that remains, in whole tiles if it had some."""
    if new >= old or old == 0:
        return size
    part, rest = divmod(size * new, old)
    whole = rest == 0 and part > 0 and (size % TILE != 0 or part % TILE == 0)
    return part if whole else size

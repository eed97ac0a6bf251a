"""Tell which part of a sharded tensor each core holds.

What ttnn does: a tensor is seen as a matrix (its last size is the width, all others together are
the height) and cut into shards, row by row. ``HEIGHT_SHARDED`` and ``WIDTH_SHARDED`` deal them out
to the cores in the order of the orientation; ``BLOCK_SHARDED`` lays them on the rectangle of cores
as they lie in the matrix, mirrored at the diagonal for ``COL_MAJOR``. Shards of more dimensions
are dealt out in turn, so that a core may hold several.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.model.values import Int, List, Struct, Symbol, TensorSpec, TtnnPlacement, Tuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.values import Value

Core: TypeAlias = tuple[int, int]
"""A core by its column and row."""

_MOST_ACROSS: Final = 64
_MOST_SHARDS: Final = 16_384
_LARGEST: Final = 2**40
_IN_BLOCKS: Final = frozenset({"BLOCK_SHARDED", "GRID_2D"})
_COLUMNS_FIRST: Final = "COL_MAJOR"
_BY_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One shard: its number, and from where to where it goes in each dimension of the tensor."""

    number: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """A core with the shards that it holds; none where there are more cores than shards."""

    core: Core
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """A tensor that is cut into shards; ``sizes`` are those that are cut, a matrix mostly."""

    buffer: str
    layout: str
    orientation: str
    sizes: tuple[int, ...]
    shard: tuple[int, ...]
    holdings: tuple[Holding, ...]

    @property
    def count(self) -> int:
        """How many shards there are."""
        return sum(len(each.parts) for each in self.holdings)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a memory configuration says of shards, from whichever of its two forms."""

    buffer: str
    layout: str
    strategy: str
    orientation: str
    shard: tuple[int, ...]
    ranges: tuple[tuple[Core, Core], ...]


def shard_layout(spec: TensorSpec) -> ShardLayout | None:
    """Return what each core holds; None for what is not sharded, or not so that it could be."""
    if not isinstance(spec.placement, TtnnPlacement) or spec.placement.memory is None:
        return None
    told = _told(spec.placement.memory)
    if told is None or not _is_possible(told, spec.placement.padded_shape):
        return None
    sizes = _cut_sizes(spec.placement.padded_shape, len(told.shard), told.strategy)
    parts = _parts(sizes, told.shard)
    held = _held(told, parts, sizes)
    return ShardLayout(
        buffer=told.buffer,
        layout=told.layout,
        orientation=told.orientation,
        sizes=sizes,
        shard=told.shard,
        holdings=tuple(Holding(core, tuple(own)) for core, own in held.items()),
    )


def _told(memory: Struct) -> _Told | None:
    match dict(memory.fields):
        case {"buffer_type": Symbol(_, buffer), "memory_layout": Symbol(_, layout)} as fields:
            pass
        case _:
            return None
    for name in ("shard_spec", "nd_shard_spec"):
        spec = fields.get(name)
        if isinstance(spec, Struct):
            return _from_spec(buffer, layout, spec)
    return None


def _from_spec(buffer: str, layout: str, spec: Struct) -> _Told | None:
    fields = dict(spec.fields)
    shape = fields.get("shape", fields.get("shard_shape"))
    if isinstance(shape, Struct):
        shape = dict(shape.fields).get("shape")
    sizes, ranges = _whole_numbers(shape), _ranges(fields.get("grid"))
    match fields.get("orientation"):
        case Symbol(_, orientation) if sizes and ranges:
            pass
        case _:
            return None
    strategy = fields.get("shard_distribution_strategy")
    named = strategy.name if isinstance(strategy, Symbol) else layout
    return _Told(buffer, layout, named, orientation, sizes, ranges)


def _whole_numbers(value: Value | None) -> tuple[int, ...]:
    if not isinstance(value, List | Tuple):
        return ()
    numbers = tuple(item.value for item in value.items if isinstance(item, Int))
    return numbers if len(numbers) == len(value.items) else ()


def _ranges(grid: Value | None) -> tuple[tuple[Core, Core], ...]:
    """Return the rectangles of a grid of cores, each by its first and last core."""
    ranges = dict(grid.fields).get("ranges") if isinstance(grid, Struct) else None
    if not isinstance(ranges, List | Tuple):
        return ()
    found = []
    for each in ranges.items:
        fields = dict(each.fields) if isinstance(each, Struct) else {}
        first, last = _core(fields.get("start")), _core(fields.get("end"))
        if first is None or last is None:
            return ()
        found.append((first, last))
    return tuple(found)


def _core(value: Value | None) -> Core | None:
    match dict(value.fields) if isinstance(value, Struct) else {}:
        case {"x": Int(x), "y": Int(y)}:
            return x, y
        case _:
            return None


def _is_possible(told: _Told, shape: Sequence[int]) -> bool:
    """Tell whether shards can be dealt out at all; nothing keeps data from being absurd."""
    corners = [corner for each in told.ranges for corner in each]
    within = all(0 <= x < _MOST_ACROSS and 0 <= y < _MOST_ACROSS for x, y in corners)
    if not within or len(told.ranges) > _MOST_ACROSS or min(told.shard) < 1:
        return False
    if not all(0 < size < _LARGEST for size in shape):
        return False
    sizes = _cut_sizes(shape, len(told.shard), told.strategy)
    shards = prod(-(-size // part) for size, part in zip(sizes, told.shard, strict=True))
    return shards <= _MOST_SHARDS and bool(_cores(told))


def _cut_sizes(shape: Sequence[int], rank: int, strategy: str) -> tuple[int, ...]:
    """Return the sizes of a tensor in as many dimensions as its shards have."""
    as_matrix = rank == _BY_MATRIX and strategy.endswith("SHARDED")
    whole = (*(1,) * max(rank - len(shape), 0), *shape)
    first = len(whole) - rank + 1
    if as_matrix or first > 1:
        return (prod(whole[:first]), *whole[first:])
    return whole


def _parts(sizes: Sequence[int], shard: Sequence[int]) -> list[Part]:
    steps = (range(0, size, part) for size, part in zip(sizes, shard, strict=True))
    return [
        Part(
            number,
            starts,
            tuple(
                min(start + part, size)
                for start, part, size in zip(starts, shard, sizes, strict=True)
            ),
        )
        for number, starts in enumerate(product(*steps))
    ]


def _cores(told: _Told) -> list[Core]:
    """Return the cores in the order in which they get shards."""
    found: dict[Core, None] = {}
    for (left, top), (right, bottom) in told.ranges:
        columns, rows = range(left, right + 1), range(top, bottom + 1)
        if told.orientation == _COLUMNS_FIRST:
            found.update(dict.fromkeys((x, y) for x in columns for y in rows))
        else:
            found.update(dict.fromkeys((x, y) for y in rows for x in columns))
    return list(found)


def _held(told: _Told, parts: Sequence[Part], sizes: Sequence[int]) -> dict[Core, list[Part]]:
    cores = _cores(told)
    held: dict[Core, list[Part]] = {core: [] for core in cores}
    in_blocks = _as_blocks(told, parts, sizes) if told.strategy in _IN_BLOCKS else []
    if in_blocks and all(core in held for core, _ in in_blocks):
        dealt: Iterable[tuple[Core, Part]] = in_blocks
    else:
        dealt = ((cores[each.number % len(cores)], each) for each in parts)
    for core, part in dealt:
        held[core].append(part)
    return held


def _as_blocks(told: _Told, parts: Sequence[Part], sizes: Sequence[int]) -> list[tuple[Core, Part]]:
    """Return the cores of shards that lie on a rectangle as they lie in the matrix."""
    if len(told.ranges) != 1 or len(sizes) != _BY_MATRIX:
        return []
    left, top = told.ranges[0][0]
    columns = -(-sizes[1] // told.shard[1])
    found = []
    for part in parts:
        row, column = divmod(part.number, columns)
        if told.orientation == _COLUMNS_FIRST:
            row, column = column, row
        found.append(((left + column, top + row), part))
    return found

"""Views of recorded objects of ttnn: the one place that knows the fields of its classes.

A view is made by ``of``, which returns nothing for a value of another form, since files of other
people may hold anything. ``struct`` gives the value back that ttnn's own objects are recorded as.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.model.values import Int, List, Null, Struct, Symbol, Tile, Tuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.values import Value

Core: TypeAlias = "tuple[int, int]"
"""A core by its column and row."""

TILE: Final = 32
"""The height and the width of usual tiles."""

USUAL_TILE: Final = Tile((TILE, TILE), (16, 16))


def padded_shape(shape: tuple[int, ...], alignment: tuple[int, ...]) -> tuple[int, ...]:
    """Return the padded shape of a tensor, as ttnn computes it; ValueError for a step below 1.

    The last two sizes are rounded up; those before only where the sizes behind them are not a
    whole multiple already. A shape of fewer dimensions than the alignment grows.
    """
    if any(step < 1 for step in alignment):
        raise ValueError(f"an alignment of {list(alignment)}")
    sides = [1] * (len(alignment) - len(shape)) + list(shape)
    within = 1
    for back, step in enumerate(reversed(alignment), start=1):
        last_two = back <= len(USUAL_TILE.shape)
        if last_two or within % step:
            sides[-back] = -(-sides[-back] // step) * step
        within *= step
    return tuple(sides)


def whole_numbers(value: Value | None) -> tuple[int, ...]:
    """Return the numbers of a list, or of a ttnn.Shape; nothing if it holds anything else."""
    if isinstance(value, Struct):
        value = dict(value.fields).get("shape")
    if not isinstance(value, List | Tuple):
        return ()
    numbers = tuple(item.value for item in value.items if isinstance(item, Int))
    return numbers if len(numbers) == len(value.items) else ()


def numbers(sizes: Iterable[int]) -> List:
    """Return numbers as a recorded list."""
    return List(tuple(map(Int, sizes)))


def core(x: int, y: int) -> Struct:
    """Return the coordinate of a core as it is recorded."""
    return Struct("ttnn.CoreCoord", (("x", Int(x)), ("y", Int(y))))


def core_range(start: Value, end: Value) -> Struct:
    """Return a rectangle of cores as it is recorded, with a field for each corner."""
    return Struct("ttnn.CoreRange", (("end", end), ("start", start)))


def core_ranges(ranges: tuple[Value, ...]) -> Struct:
    """Return a set of rectangles of cores as it is recorded, in their order."""
    return Struct("ttnn.CoreRangeSet", (("ranges", List(ranges)),))


@dataclass(frozen=True, slots=True)
class CoreGrid:
    """A ttnn.CoreRangeSet: rectangles of cores, each by its first and last core."""

    ranges: tuple[tuple[Core, Core], ...] = ()

    @classmethod
    def of(cls, value: Value | None) -> CoreGrid:
        """Return the view of a grid; an empty one for anything else."""
        ranges = dict(value.fields).get("ranges") if isinstance(value, Struct) else None
        items = ranges.items if isinstance(ranges, List | Tuple) else ()
        corners = [_corners(item) for item in items]
        known = tuple(pair for pair in corners if pair is not None)
        return cls(known if len(known) == len(corners) else ())

    @property
    def count(self) -> int:
        """The number of cores, if no two rectangles overlap."""
        return sum((x2 - x1 + 1) * (y2 - y1 + 1) for (x1, y1), (x2, y2) in self.ranges)

    def struct(self) -> Struct:
        """Return the grid as it is recorded."""
        return core_ranges(
            tuple(core_range(core(*one), core(*other)) for one, other in self.ranges)
        )


def _corners(value: Value) -> tuple[Core, Core] | None:
    fields = dict(value.fields) if isinstance(value, Struct) else {}
    first, last = _core(fields.get("start")), _core(fields.get("end"))
    return None if first is None or last is None else (first, last)


def _core(value: Value | None) -> Core | None:
    match dict(value.fields) if isinstance(value, Struct) else {}:
        case {"x": Int(x), "y": Int(y)}:
            return x, y
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Shards:
    """A ttnn.ShardSpec, or with a strategy a ttnn.NdShardSpec."""

    shape: tuple[int, ...]
    grid: CoreGrid
    orientation: str
    strategy: str | None = None

    @classmethod
    def of(cls, value: Value | None) -> Shards | None:
        """Return the view of shards that are on cores; None for anything else."""
        fields = dict(value.fields) if isinstance(value, Struct) else {}
        shape = whole_numbers(fields.get("shape", fields.get("shard_shape")))
        grid, strategy = CoreGrid.of(fields.get("grid")), fields.get("shard_distribution_strategy")
        match fields.get("orientation"):
            case Symbol(_, orientation) if shape and grid.ranges:
                named = strategy.name if isinstance(strategy, Symbol) else None
                return cls(shape, grid, orientation, named)
        return None

    def struct(self) -> Struct:
        """Return the shards as they are recorded."""
        fields = (
            ("grid", self.grid.struct()),
            ("orientation", Symbol("ttnn.ShardOrientation", self.orientation)),
        )
        if self.strategy is None:
            return Struct("ttnn.ShardSpec", (*fields, ("shape", numbers(self.shape))))
        strategy = Symbol("ttnn.ShardDistributionStrategy", self.strategy)
        shape = Struct("ttnn.Shape", (("shape", numbers(self.shape)),))
        both = (("shard_distribution_strategy", strategy), ("shard_shape", shape))
        return Struct("ttnn.NdShardSpec", (*fields, *both))


@dataclass(frozen=True, slots=True)
class Memory:
    """A ttnn.MemoryConfig; ``shards`` are those that it was made with, in either form."""

    buffer: str
    layout: str
    shards: Shards | None = None

    @classmethod
    def of(cls, value: Value | None) -> Memory | None:
        """Return the view of a memory configuration; None for anything else.

        Shards without cores are none.
        """
        match dict(value.fields) if isinstance(value, Struct) else {}:
            case {"buffer_type": Symbol(_, buffer), "memory_layout": Symbol(_, layout)} as fields:
                specs = (fields.get("shard_spec"), fields.get("nd_shard_spec"))
                given = next((spec for spec in specs if isinstance(spec, Struct)), None)
                return cls(buffer, layout, Shards.of(given))
            case _:
                return None

    def struct(self) -> Struct:
        """Return the memory configuration as it is recorded."""
        shards = Null() if self.shards is None else self.shards.struct()
        by_nd = self.shards is not None and self.shards.strategy is not None
        return Struct(
            "ttnn.MemoryConfig",
            (
                ("buffer_type", Symbol("ttnn.BufferType", self.buffer)),
                ("memory_layout", Symbol("ttnn.TensorMemoryLayout", self.layout)),
                ("nd_shard_spec", shards if by_nd else Null()),
                ("shard_spec", Null() if by_nd else shards),
            ),
        )


INTERLEAVED_DRAM: Final = Memory("DRAM", "INTERLEAVED")

"""The table of boards: the facts from which mock clusters are made.

Nothing here imports ttnn. ``compute_grid``, ``dram_grid`` and ``mesh_shapes`` are what ttnn itself
reports after opening such a board; the tests compare them with every board opened for real.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import UnknownBoard

DEVICE_DIRECTORY: Final = Path("/dev/tenstorrent")
"""Where the driver of real boards puts a file for each of them."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class EthernetLink:
    """One ethernet link between two chips, each end on a channel of its own."""

    chip: int
    channel: int
    other_chip: int
    other_channel: int


@dataclass(frozen=True, slots=True)
class Card:
    """One board as sold: its type in the cluster descriptor, and its chips."""

    type: str
    id: int
    chips: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Harvesting:
    """Which parts of a chip are fused off, as bit masks over rows, banks and ports."""

    tensix: int
    dram: int = 0
    ethernet: int = 0
    pcie: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a chip sits in a Galaxy: its PCI bus and its place on the tray."""

    bus: int
    place: int


@dataclass(frozen=True, slots=True)
class Board:
    """A machine that ttnn can open, in the facts that its cluster descriptor is made of.

    ``slow_dispatch``: ttnn 0.81 checks kernel placement on a mock N300 or T3K against the 8x7
    grid of worker dispatch although they open with ethernet dispatch and 8x8 cores. Without
    dispatch cores there is nothing to confuse: both models that hard-code an 8x8 grid and models
    that ask for worker dispatch then run. On a Galaxy it would break DRAM-sharded matmuls.
    """

    name: str
    title: str
    arch: str
    cards: tuple[Card, ...]
    mmio: tuple[int, ...]
    links: tuple[EthernetLink, ...]
    harvesting: tuple[Harvesting, ...]
    mesh_shapes: tuple[tuple[int, int], ...]
    compute_grid: tuple[int, int]
    dram_grid: tuple[int, int]
    slots: tuple[Slot, ...] = ()
    slow_dispatch: bool = False

    @property
    def chips(self) -> int:
        """Return how many chips ttnn finds."""
        return sum(len(card.chips) for card in self.cards)


def cable(
    ends: Iterable[tuple[int, int]], channels: Iterable[tuple[int, int]]
) -> Iterator[EthernetLink]:
    """Join each pair of chips by one link per pair of channels."""
    for (chip, other), (channel, other_channel) in product(ends, tuple(channels)):
        yield EthernetLink(chip, channel, other, other_channel)


@dataclass(frozen=True, slots=True)
class Tray:
    """How a Galaxy is cabled: four trays of 4x2 chips, mirrored, closed to a torus of 4x8.

    ``strides`` turn (tray, column, row) into a chip number. Each chip has one group of channels
    per direction. Two trays face each other with the same groups, so their far ends meet over
    ``east`` or ``south`` and the torus closes over ``west`` or ``north``.
    """

    strides: tuple[int, int, int]
    beside: tuple[tuple[int, int], ...]
    below: tuple[tuple[int, int], ...]
    east: tuple[int, ...]
    west: tuple[int, ...]
    south: tuple[int, ...]
    north: tuple[int, ...]
    buses: tuple[int, ...]

    def chip(self, tray: int, column: int, row: int) -> int:
        """Return the number of the chip at a place of a tray."""
        return tray * self.strides[0] + column * self.strides[1] + row * self.strides[2]

    def links(self) -> tuple[EthernetLink, ...]:
        """Return all links: within the trays, between them, and around the torus."""
        chip = self.chip
        trays, columns, rows = range(4), range(4), range(2)
        rightward = [
            (chip(t, c, r), chip(t, c + 1, r)) for t, c, r in product(trays, range(3), rows)
        ]
        downward = [(chip(t, c, 0), chip(t, c, 1)) for t, c in product(trays, columns)]
        middle_columns = [
            (chip(a, 3, r), chip(b, 3, r)) for (a, b), r in product(self.beside, rows)
        ]
        outer_columns = [(chip(a, 0, r), chip(b, 0, r)) for (a, b), r in product(self.beside, rows)]
        middle_rows = [(chip(a, c, 1), chip(b, c, 1)) for (a, b), c in product(self.below, columns)]
        outer_rows = [(chip(a, c, 0), chip(b, c, 0)) for (a, b), c in product(self.below, columns)]
        return (
            *cable(rightward, zip(self.east, self.west, strict=True)),
            *cable(downward, zip(self.south, self.north, strict=True)),
            *cable(middle_columns, zip(self.east, self.east, strict=True)),
            *cable(outer_columns, zip(self.west, self.west, strict=True)),
            *cable(middle_rows, zip(self.south, self.south, strict=True)),
            *cable(outer_rows, zip(self.north, self.north, strict=True)),
        )

    def slots(self) -> tuple[Slot, ...]:
        """Return the slot of every chip, in the order of chip numbers."""
        slots = {
            self.chip(t, c, r): Slot(self.buses[t] + place, place)
            for t, c, r in product(range(4), range(4), range(2))
            for place in (1 + c + 4 * r,)
        }
        return tuple(slots[chip] for chip in sorted(slots))


WORMHOLE_GALAXY = Tray(
    strides=(1, 4, 16),
    beside=((0, 1), (2, 3)),
    below=((0, 2), (1, 3)),
    east=(8, 9, 10, 11),
    west=(4, 5, 6, 7),
    south=(12, 13, 14, 15),
    north=(0, 1, 2, 3),
    buses=(0xC0, 0x40, 0x00, 0x80),
)

BLACKHOLE_GALAXY = Tray(
    strides=(8, 1, 4),
    beside=((0, 3), (1, 2)),
    below=((0, 1), (3, 2)),
    east=(4, 5),
    west=(2, 3),
    south=(6, 7),
    north=(0, 1),
    buses=(0x00, 0x40, 0x80, 0xC0),
)

# The two chips of an N300 talk over channels 8 and 9 of the one with PCIe, 0 and 1 of the other.
WITHIN_N300 = ((8, 0), (9, 1))

T3K_LINKS = (
    *cable(((0, 4), (1, 5), (2, 6), (3, 7)), WITHIN_N300),
    *cable(((0, 1), (2, 3)), ((14, 14), (15, 15))),
    *cable(((0, 2), (4, 5), (6, 7)), ((6, 6), (7, 7))),
    *cable(((1, 3),), ((0, 0), (1, 1))),
)

GALAXY_SHAPES = ((4, 8), (8, 4), (1, 8), (1, 32), (32, 1))

_TABLE = (
    Board(
        name="n150",
        title="Wormhole N150, one chip",
        arch="wormhole_b0",
        cards=(Card("n150", 0x0100018611902000, (0,)),),
        mmio=(0,),
        links=(),
        harvesting=(Harvesting(tensix=0b1000000),),
        mesh_shapes=((1, 1),),
        compute_grid=(8, 8),
        dram_grid=(12, 1),
    ),
    Board(
        name="n300",
        title="Wormhole N300, two chips on a card",
        arch="wormhole_b0",
        cards=(Card("n300", 0x0100014511902000, (0, 1)),),
        mmio=(0,),
        links=tuple(cable(((0, 1),), WITHIN_N300)),
        harvesting=(Harvesting(tensix=0b1000001),) * 2,
        mesh_shapes=((1, 2), (2, 1)),
        compute_grid=(8, 8),
        dram_grid=(12, 1),
        slow_dispatch=True,
    ),
    Board(
        name="t3k",
        title="Wormhole T3000, four N300 cards",
        arch="wormhole_b0",
        cards=tuple(Card("n300", 0x0100014511902000 + n, (n, n + 4)) for n in range(4)),
        mmio=(0, 1, 2, 3),
        links=T3K_LINKS,
        harvesting=(Harvesting(tensix=0b1000000001),) * 8,
        mesh_shapes=((2, 4), (1, 8), (8, 1), (4, 2)),
        compute_grid=(8, 8),
        dram_grid=(12, 1),
        slow_dispatch=True,
    ),
    Board(
        name="galaxy",
        title="Wormhole Galaxy, 32 chips in a torus",
        arch="wormhole_b0",
        cards=(Card("ubb", 0x0100035100000000, tuple(range(32))),),
        mmio=tuple(range(32)),
        links=WORMHOLE_GALAXY.links(),
        harvesting=(Harvesting(tensix=0),) * 32,
        mesh_shapes=GALAXY_SHAPES,
        compute_grid=(8, 9),
        dram_grid=(12, 1),
        slots=WORMHOLE_GALAXY.slots(),
    ),
    Board(
        name="p100",
        title="Blackhole P100, one chip without ethernet",
        arch="blackhole",
        cards=(Card("p100", 0x0000043200000000, (0,)),),
        mmio=(0,),
        links=(),
        harvesting=(Harvesting(tensix=0b11000000, dram=0b1000, ethernet=0x3FFF, pcie=0b10),),
        mesh_shapes=((1, 1),),
        compute_grid=(11, 10),
        dram_grid=(7, 1),
        slots=(Slot(0x61, 0),),
    ),
    Board(
        name="p150",
        title="Blackhole P150, one chip",
        arch="blackhole",
        cards=(Card("p150", 0x0000040100000000, (0,)),),
        mmio=(0,),
        links=(),
        harvesting=(Harvesting(tensix=0b11000000, ethernet=0b100100000, pcie=0b10),),
        mesh_shapes=((1, 1),),
        compute_grid=(11, 10),
        dram_grid=(8, 1),
        slots=(Slot(0x01, 0),),
    ),
    Board(
        name="p300",
        title="Blackhole P300, two chips on a card",
        arch="blackhole",
        cards=(Card("p300", 0x0000045100000000, (0, 1)),),
        mmio=(0, 1),
        links=tuple(cable(((0, 1),), ((2, 9), (3, 8)))),
        # Each chip of the pair has the PCIe core that the other one lacks.
        harvesting=(
            Harvesting(tensix=0b10000010000000, ethernet=0b100100000, pcie=0b10),
            Harvesting(tensix=0b10000010000000, ethernet=0b100100000, pcie=0b01),
        ),
        mesh_shapes=((1, 2), (2, 1)),
        compute_grid=(11, 10),
        dram_grid=(8, 1),
        slots=(Slot(0x01, 0), Slot(0x02, 1)),
    ),
    Board(
        name="bh-galaxy",
        title="Blackhole Galaxy, 32 chips in a torus",
        arch="blackhole",
        cards=(Card("ubb_blackhole", 0x0000047300000000, tuple(range(32))),),
        mmio=tuple(range(32)),
        links=BLACKHOLE_GALAXY.links(),
        harvesting=(Harvesting(tensix=0b10000000, ethernet=0b100100000, pcie=0b1),) * 32,
        mesh_shapes=GALAXY_SHAPES,
        compute_grid=(12, 10),
        dram_grid=(8, 1),
        slots=BLACKHOLE_GALAXY.slots(),
    ),
)

BOARDS = {board.name: board for board in _TABLE}


CORES_SEPARATOR: Final = ":"


@dataclass(frozen=True, slots=True)
class _CoreGrid:
    """The Tensix cores of a chip: lines, of which some may be harvested, and their size."""

    lines: int
    size: int

    def counts(self) -> list[int]:
        """Return how many cores a chip may have; ttnn knows at most two harvested lines."""
        return [(self.lines - harvested) * self.size for harvested in range(3)]


CORE_GRIDS: Final = {"wormhole_b0": _CoreGrid(10, 8), "blackhole": _CoreGrid(14, 10)}


def find_board(name: str) -> Board:
    """Return the board called ``name``; an unknown one is an error that lists the known.

    ``p150:130`` is a P150 with 130 Tensix cores on each chip, harvested in other ways than that of
    the table.
    """
    wanted, separator, cores = str(name).lower().partition(CORES_SEPARATOR)
    board = BOARDS.get(wanted)
    if board is None:
        close = get_close_matches(wanted, BOARDS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        known = ", ".join(BOARDS)
        raise UnknownBoard(f"no board is called {name!r}.{hint} Known boards: {known}")
    return _with_cores(board, cores) if separator else board


def _with_cores(board: Board, cores: str) -> Board:
    grid = CORE_GRIDS[board.arch]
    counts = grid.counts()
    if cores not in map(str, counts):
        choices = ", ".join(f"{board.name}{CORES_SEPARATOR}{count}" for count in counts)
        raise UnknownBoard(
            f"{board.name} with {cores!r} Tensix cores is unknown. Each chip may have: {choices}"
        )
    harvested = counts.index(int(cores))
    lines = grid.lines - harvested
    # Dispatch takes a line of cores, unless it runs on ethernet cores or from the host.
    free = lines if board.slow_dispatch else lines - 1
    return replace(
        board,
        name=f"{board.name}{CORES_SEPARATOR}{cores}",
        title=f"{board.title}, with {cores} Tensix cores on each chip",
        harvesting=tuple(
            replace(each, tensix=_mask(each.tensix, harvested, grid.lines))
            for each in board.harvesting
        ),
        compute_grid=(grid.size, free) if board.arch == "wormhole_b0" else (free, grid.size),
    )


def _mask(mask: int, harvested: int, lines: int) -> int:
    """Return a mask with so many lines, those of ``mask`` first."""
    places = sorted(range(lines), key=lambda line: not mask >> line & 1)
    return sum(1 << line for line in places[:harvested])

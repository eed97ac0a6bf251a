"""Write the cluster descriptor of a board: the file that puts ttnn on a mock cluster.

The descriptor is JSON, which every YAML reader takes, so no YAML library is needed to write it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optrove.backends.ttnn.boards import Board, Harvesting

# The mock cluster only needs chip ids that differ; this is where ours start counting.
FIRST_UNIQUE_ID = 0x0135313930300000


def cluster_descriptor(board: Board) -> str:
    """Return the text of the board's cluster descriptor."""
    chips = range(board.chips)
    wormhole_pair = board.arch == "wormhole_b0" and not board.slots
    document: dict[str, Any] = {
        "arch": {str(chip): board.arch for chip in chips},
        "chips": _ethernet_coordinates(board) if wormhole_pair else {},
        "chip_unique_ids": {str(chip): FIRST_UNIQUE_ID + chip for chip in chips},
        "ethernet_connections": [
            [
                {"chip": link.chip, "chan": link.channel},
                {"chip": link.other_chip, "chan": link.other_channel},
            ]
            for link in board.links
        ],
        "ethernet_connections_to_remote_devices": [],
        "chips_with_mmio": [{str(chip): chip} for chip in board.mmio],
        "io_device_type": "PCIe",
        "harvesting": {str(chip): _harvesting(board.harvesting[chip]) for chip in chips},
        "boards": [
            [{"board_id": card.id}, {"board_type": card.type}, {"chips": list(card.chips)}]
            for card in board.cards
        ],
    }
    if board.slots:
        slots = list(enumerate(board.slots))
        document["chip_to_bus_id"] = {str(chip): f"{slot.bus:#06x}" for chip, slot in slots}
        document["asic_locations"] = {str(chip): slot.place for chip, slot in slots}
    return json.dumps(document, indent=1) + "\n"


def _harvesting(harvesting: Harvesting) -> dict[str, Any]:
    return {
        "noc_translation": True,
        "harvest_mask": harvesting.tensix,
        "dram_harvesting_mask": harvesting.dram,
        "eth_harvesting_mask": harvesting.ethernet,
        "pcie_harvesting_mask": harvesting.pcie,
        "l2cpu_harvesting_mask": 0,
    }


def _ethernet_coordinates(board: Board) -> dict[str, list[int]]:
    """Place the chips of N150, N300 and T3K on the ethernet grid, [x, y, rack, shelf]."""
    places = {1: [(0, 0)], 2: [(0, 0), (1, 0)], 8: _T3K_PLACES}[board.chips]
    return {str(chip): [x, y, 0, 0] for chip, (x, y) in enumerate(places)}


# Two rows of four: the cards' PCIe chips in the middle, their second chips at the ends.
_T3K_PLACES = [(1, 0), (1, 1), (2, 0), (2, 1), (0, 0), (0, 1), (3, 0), (3, 1)]

import json
from collections import Counter, defaultdict
from unittest.mock import MagicMock

import pytest

from optrove.errors import NotReplayable, UnknownBoard
from optrove.frameworks.ttnn.board.devices import Devices
from optrove.frameworks.ttnn.board.runtime import cluster_descriptor
from optrove.frameworks.ttnn.board.table import BOARDS, find_board
from optrove.model.records import HARMLESS, DeviceParameters

NAMES = ["n150", "n300", "t3k", "galaxy", "p100", "p150", "p300", "bh-galaxy"]
every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def neighbours(board):
    found = defaultdict(set)
    for link in board.links:
        found[link.chip].add(link.other_chip)
        found[link.other_chip].add(link.chip)
    return found


def test_the_table_holds_the_promised_boards():
    assert list(BOARDS) == NAMES


def test_an_unknown_board_is_an_error_that_lists_the_known():
    with pytest.raises(UnknownBoard) as caught:
        find_board("n3000")
    message = str(caught.value)
    assert "'n3000'" in message
    assert "Did you mean 'n300'?" in message
    assert all(name in message for name in NAMES)


@pytest.mark.parametrize("name", [None, 3, ""])
def test_what_is_no_name_is_no_board(name):
    with pytest.raises(UnknownBoard, match=r"Known boards: n150, n300"):
        find_board(name)


def test_a_board_is_found_in_capitals_too():
    assert find_board("T3K") is BOARDS["t3k"]


@every_board
def test_no_ethernet_channel_is_cabled_twice(board):
    ends = Counter()
    for link in board.links:
        ends[link.chip, link.channel] += 1
        ends[link.other_chip, link.other_channel] += 1
    assert all(uses == 1 for uses in ends.values())


@every_board
def test_every_chip_can_be_reached(board):
    around = neighbours(board)
    reached, frontier = {0}, [0]
    while frontier:
        new = around[frontier.pop()] - reached
        reached |= new
        frontier.extend(new)
    assert reached == set(range(board.chips))


@pytest.mark.parametrize("name", ["galaxy", "bh-galaxy"])
def test_a_galaxy_is_a_torus(name):
    assert {len(chips) for chips in neighbours(BOARDS[name]).values()} == {4}


@every_board
def test_every_mesh_shape_fits_the_chips(board):
    assert all(rows * columns <= board.chips for rows, columns in board.mesh_shapes)


@every_board
def test_the_descriptor_tells_of_every_chip(board):
    descriptor = json.loads(cluster_descriptor(board))
    chips = {str(chip) for chip in range(board.chips)}
    assert set(descriptor["arch"]) == set(descriptor["harvesting"]) == chips
    assert len(set(descriptor["chip_unique_ids"].values())) == board.chips
    assert len(descriptor["ethernet_connections"]) == len(board.links)


@pytest.mark.parametrize(
    ("name", "grid", "masks"),
    [
        ("n150:64", (8, 7), {2}),
        ("N300:72", (8, 9), {1}),
        ("p150:140", (13, 10), {0}),
        ("p150:130", (12, 10), {1}),
        ("bh-galaxy:120", (11, 10), {2}),
    ],
)
def test_a_board_may_have_another_number_of_cores(name, grid, masks):
    board = find_board(name)
    assert board.name == name.lower()
    assert board.compute_grid == grid
    assert {each.tensix.bit_count() for each in board.harvesting} == masks
    assert "Tensix cores on each chip" in board.title


@pytest.mark.parametrize("name", ["p150:110", "n150:", "t3k:many"])
def test_a_number_of_cores_that_no_chip_has_is_an_error(name):
    with pytest.raises(UnknownBoard, match="Each chip may have: "):
        find_board(name)


def test_a_board_with_another_dispatch_axis_is_opened_with_its_own():
    ttnn = MagicMock()
    ttnn.get_num_devices.return_value = 1
    ttnn.open_mesh_device.side_effect = [RuntimeError("no such dispatch core axis"), "device"]
    devices = Devices(ttnn)
    (note,) = devices.open(DeviceParameters(dispatch_axis="ROW"))
    assert devices.live == "device"
    assert note.endswith("dispatch along this board's own axis, recorded by ROW")
    assert note.startswith(HARMLESS)


def test_a_device_that_cannot_be_opened_says_why_first():
    thrown = "TT_THROW @ build.cpp:70: tt::exception\ninfo:\nbrisc build failed\nbacktrace:\n --- a"
    ttnn = MagicMock()
    ttnn.get_num_devices.return_value = 1
    ttnn.open_mesh_device.side_effect = RuntimeError(thrown)
    with pytest.raises(NotReplayable) as raised:
        Devices(ttnn).open(DeviceParameters())
    first, _, rest = str(raised.value).partition("\n")
    assert first.endswith("could not be opened: brisc build failed")
    assert rest == thrown

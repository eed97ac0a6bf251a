import os

import pytest

import optrove
from optrove.errors import FrameworkTooEarly

pytestmark = pytest.mark.ttnn

IMPORTED_TOO_EARLY = """
import os
import ttnn
before = dict(os.environ)
import optrove
from optrove.errors import FrameworkTooEarly
try:
    with optrove.mock_board("n300"):
        raise SystemExit("entered")
except FrameworkTooEarly as error:
    print(error)
assert dict(os.environ) == before
"""

REAL_ENVIRONMENT = """
import optrove
with optrove.mock_board("n300"):
    import ttnn
    device = ttnn.open_device(device_id=0)
    tile = ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.add(tile, tile)
    ttnn.close_device(device)
    print(ttnn.get_num_devices())
"""

SHADOW = """
import optrove
with optrove.mock_board("n150"):
    import torch, ttnn
    device = ttnn.open_device(device_id=0)
    ones = ttnn.from_torch(
        torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
    )
    print(ttnn.to_torch(ones + ones).sum().item())
    ttnn.close_device(device)
"""

AFTERWARDS = """
import optrove
with optrove.mock_board("n300"):
    pass
import ttnn
device = ttnn.open_device(device_id=1)
print(device.compute_with_storage_grid_size())
ttnn.close_device(device)
"""


def test_ttnn_imported_before_the_board_is_an_error_that_says_what_to_do(run_python):
    message = run_python(IMPORTED_TOO_EARLY)
    assert "ttnn was imported before mock_board('n300')" in message
    assert "Enter mock_board before the first 'import ttnn'" in message


def test_a_second_board_in_one_process_is_an_error(ttnn):
    board = pytest.raises(FrameworkTooEarly, match="already runs ttnn on the mock board 'galaxy'")
    with board, optrove.mock_board("t3k"):
        pass


def test_the_same_board_can_be_entered_again(ttnn):
    before = dict(os.environ)
    with optrove.mock_board("galaxy") as board:
        assert ttnn.get_num_devices() == board.chips
        assert os.environ["TT_METAL_MOCK_CLUSTER_DESC_PATH"]
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TT_VISIBLE_DEVICES", "0"),
        ("TT_METAL_WATCHER", "10"),
        ("TT_METAL_DPRINT_CORES", "0,0"),
        ("TT_METAL_DEVICE_PROFILER", "1"),
        ("TT_METAL_CCACHE_KERNEL_SUPPORT", "1"),
    ],
)
def test_variables_for_real_devices_do_no_harm(run_python, variable, value):
    assert run_python(REAL_ENVIRONMENT, **{variable: value}) == "2\n"


@pytest.mark.torch
def test_the_shadow_can_be_asked_for_by_the_environment(run_python):
    assert run_python(SHADOW, OPTROVE_SHADOW="1") == "2048.0\n"


def test_ttnn_stays_on_the_board_after_the_block(run_python):
    assert run_python(AFTERWARDS) == "8-8\n"

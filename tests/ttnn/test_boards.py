import json
from math import prod

import pytest

from optrove.frameworks.ttnn.board.runtime import prepare
from optrove.frameworks.ttnn.board.table import BOARDS

pytestmark = pytest.mark.ttnn

every_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
multi_chip_boards = [board for board in BOARDS.values() if board.chips > 1]
every_multi_chip_board = pytest.mark.parametrize(
    "board", multi_chip_boards, ids=[board.name for board in multi_chip_boards]
)

FACTS = """
import json, os, sys
import optrove
before = dict(os.environ)
with optrove.mock_board(sys.argv[1]) as board:
    import ttnn
    device = ttnn.open_device(device_id=0)
    grid, dram = device.compute_with_storage_grid_size(), device.dram_grid_size()
    facts = {
        "arch": ttnn.get_arch_name(),
        "chips": ttnn.get_num_devices(),
        "compute_grid": [grid.x, grid.y],
        "dram_grid": [dram.x, dram.y],
    }
    tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
    a = ttnn.zeros([1, 1, 64, 96], **tiles)
    b = ttnn.zeros([1, 1, 96, 32], **tiles)
    assert tuple(ttnn.add(a, a).shape) == (1, 1, 64, 96)
    assert tuple(ttnn.matmul(a, b).shape) == (1, 1, 64, 32)
    x, y = board.compute_grid
    shape = [1, 1, x * y * 32, 64]
    sharded = ttnn.create_sharded_memory_config(
        shape, core_grid=ttnn.CoreGrid(x=x, y=y), strategy=ttnn.ShardStrategy.HEIGHT
    )
    whole_grid = ttnn.zeros(shape, memory_config=sharded, **tiles)
    result = ttnn.relu(whole_grid)
    assert result.memory_config() == sharded
    assert tuple(result.memory_config().shard_spec.shape) == (32, 64)
    ttnn.close_device(device)
facts["environment"] = dict(os.environ) == before
print(json.dumps(facts))
"""

MESHES = """
import sys
import optrove
with optrove.mock_board(sys.argv[1]) as board:
    import ttnn
    for fabric in ("FABRIC_1D", "FABRIC_1D_RING", "FABRIC_2D"):
        ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
        for shape in board.mesh_shapes:
            mesh = ttnn.open_mesh_device(ttnn.MeshShape(*shape))
            assert tuple(mesh.shape) == shape
            tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": mesh}
            tensor = ttnn.zeros([1, 1, 32, 64], **tiles)
            weights = ttnn.zeros([1, 1, 64, 96], **tiles)
            assert tuple(ttnn.add(tensor, tensor).shape) == (1, 1, 32, 64)
            assert tuple(ttnn.matmul(tensor, weights).shape) == (1, 1, 32, 96)
            sharded = ttnn.create_sharded_memory_config(
                [1, 1, 32, 64], core_grid=ttnn.CoreGrid(x=2, y=1), strategy=ttnn.ShardStrategy.WIDTH
            )
            assert ttnn.relu(tensor, memory_config=sharded).memory_config() == sharded
            axis = max(range(2), key=shape.__getitem__)
            gathered = ttnn.all_gather(tensor, 3, cluster_axis=axis)
            assert tuple(gathered.shape) == (1, 1, 32, 64 * shape[axis])
            ttnn.close_mesh_device(mesh)
        ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
print("done")
"""

PARTS = """
import json, sys
import optrove
from optrove.model.records import DeviceParameters
with optrove.mock_board(sys.argv[1]) as board:
    import ttnn
    from optrove.frameworks.ttnn.board.devices import Devices
    devices = Devices(ttnn)
    for shape in map(tuple, json.loads(sys.argv[2])):
        for fabric in (None, "FABRIC_1D", "FABRIC_2D"):
            devices.open(DeviceParameters(mesh_shape=shape, fabric_config=fabric))
            assert tuple(devices.live.shape) == shape
            tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": devices.live}
            tensor = ttnn.zeros([1, 1, 32, 64], **tiles)
            assert tuple(ttnn.add(tensor, tensor).shape) == (1, 1, 32, 64)
            axis = max(range(2), key=shape.__getitem__)
            if shape[axis] > 1:
                gathered = ttnn.all_gather(tensor, 3, cluster_axis=axis)
                assert tuple(gathered.shape) == (1, 1, 32, 64 * shape[axis])
    devices.close()
print("done")
"""

UNFIT = """
import optrove
from optrove.errors import NotReplayable
from optrove.model.records import DeviceParameters
with optrove.mock_board("t3k"):
    import ttnn
    from optrove.frameworks.ttnn.board.devices import Devices
    devices = Devices(ttnn)
    devices.open(DeviceParameters(mesh_shape=(1, 8)))
    try:
        devices.open(DeviceParameters(mesh_shape=(5, 1, 1)))
    except NotReplayable as error:
        print(error)
    devices.open(DeviceParameters(mesh_shape=(2, 2)))
    print("x".join(map(str, devices.live.shape)), "opens")
    devices.close()
"""

TOO_LARGE = """
import contextlib, sys
with contextlib.ExitStack() as stack:
    if sys.argv[1] == "optrove":
        import optrove
        stack.enter_context(optrove.mock_board("n300"))
    import ttnn
    device = ttnn.open_device(device_id=0)
    config = ttnn.create_sharded_memory_config(
        [1, 1, 72 * 32, 64], core_grid=ttnn.CoreGrid(x=8, y=9), strategy=ttnn.ShardStrategy.HEIGHT
    )
    try:
        ttnn.zeros([1, 1, 72 * 32, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT,
                   device=device, memory_config=config)
    except RuntimeError as error:
        print(type(error).__name__, str(error).split("backtrace:")[0])
    ttnn.close_device(device)
"""

# Two kinds of model that ttnn's own mock check confuses on N300: one hard-codes the 8x8 grid, the
# other asks for worker dispatch and takes whatever grid the device then has.
TWO_KINDS_OF_MODEL = """
import sys
import optrove
with optrove.mock_board("n300"):
    import ttnn
    worker = ttnn.DispatchCoreConfig(ttnn.DispatchCoreType.WORKER)
    options = {"dispatch_core_config": worker} if sys.argv[1] == "worker" else {}
    device = ttnn.open_device(device_id=0, **options)
    grid = device.compute_with_storage_grid_size()
    x, y = (grid.x, grid.y) if sys.argv[1] == "worker" else (8, 8)
    tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
    config = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        compute_with_storage_grid_size=(x, y), in0_block_w=1, out_subblock_h=1, out_subblock_w=1,
        per_core_M=1, per_core_N=1, transpose_mcast=False, fused_activation=None,
    )
    a = ttnn.zeros([1, 1, y * 32, x * 32], **tiles)
    b = ttnn.zeros([1, 1, x * 32, x * 32], **tiles)
    assert tuple(ttnn.linear(a, b, program_config=config).shape) == (1, 1, y * 32, x * 32)
    event = ttnn.record_event(device, 0)
    ttnn.wait_for_event(0, event)
    ttnn.close_device(device)
print("done")
"""


@every_board
def test_ttnn_reports_the_facts_of_the_table_and_runs_ops_of_one_chip(board, run_python):
    facts = json.loads(run_python(FACTS, board.name))
    assert facts == {
        "arch": board.arch,
        "chips": board.chips,
        "compute_grid": list(board.compute_grid),
        "dram_grid": list(board.dram_grid),
        "environment": True,
    }


@every_multi_chip_board
def test_every_mesh_shape_opens_under_every_fabric_and_gathers(board, run_python):
    assert run_python(MESHES, board.name) == "done\n"


def test_a_shard_grid_that_is_too_large_is_rejected_in_ttnn_s_own_words(run_python, tmp_path):
    """The message is the one of a process that knows nothing of optrove."""
    message = run_python(TOO_LARGE, "optrove")
    assert message.startswith("RuntimeError TT_FATAL @ ")
    assert "Invalid shard grid: shard core (0, 8) has no L1 bank on this device" in message
    variables = prepare(BOARDS["n300"], tmp_path / "cache").variables()
    given = {name: value for name, value in variables.items() if value is not None}
    assert run_python(TOO_LARGE, "plain", LOGURU_LEVEL="ERROR", **given) == message


def parts(board):
    """The meshes that are a part of a board or all of it."""
    shapes = [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
        (1, 4),
        (2, 4),
        (4, 2),
        (1, 6),
        (1, 8),
        (4, 4),
        (4, 8),
    ]
    return [shape for shape in shapes if prod(shape) <= board.chips]


@every_multi_chip_board
def test_every_part_of_a_board_opens_with_a_fabric_and_without(board, run_python):
    shapes = json.dumps(parts(board))
    assert run_python(PARTS, board.name, shapes) == "done\n"


def test_a_mesh_that_no_mesh_of_all_chips_has_room_for_is_refused_before_it_is_opened(run_python):
    said = run_python(UNFIT)
    assert "a 5x1x1 mesh with FABRIC_1D could not be opened" in said
    assert said.endswith("2x2 opens\n")


@pytest.mark.parametrize("kind", ["hard-coded", "worker"])
def test_both_kinds_of_n300_model_run(kind, run_python):
    assert run_python(TWO_KINDS_OF_MODEL, kind) == "done\n"

"""Calls that would end the process on a mock board, and the environment that programs see."""

import pytest

pytestmark = pytest.mark.ttnn

ROOT = """
import os, subprocess, sys
import optrove
shown = os.environ.get("TT_METAL_RUNTIME_ROOT")
with optrove.mock_board("n150"):
    import ttnn
    assert os.environ.get("TT_METAL_RUNTIME_ROOT") == shown
    with optrove.mock_board("n150"):
        assert os.environ.get("TT_METAL_RUNTIME_ROOT") == shown
    device = ttnn.open_device(device_id=0)
    ttnn.relu(ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device))
    ttnn.close_device(device)
    ask = "import os; print(os.environ['TT_METAL_RUNTIME_ROOT'])"
    child = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert os.path.exists(child.stdout.strip() + "runtime/sfpi/compiler/bin/riscv-tt-elf-g++")
ask = "import os; print(os.environ.get('TT_METAL_RUNTIME_ROOT'))"
child = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
assert child.stdout == f"{shown}\\n"
assert os.environ.get("TT_METAL_RUNTIME_ROOT") == shown
print(shown)
"""

GRIDS = """
import sys
import optrove
with optrove.mock_board(sys.argv[1]):
    import ttnn
    for kind in (ttnn.DispatchCoreType.WORKER, ttnn.DispatchCoreType.ETH):
        for axis in (ttnn.DispatchCoreAxis.ROW, ttnn.DispatchCoreAxis.COL):
            try:
                config = ttnn.DispatchCoreConfig(kind, axis)
            except RuntimeError:
                continue  # no such dispatch on this architecture
            device = ttnn.open_mesh_device(ttnn.MeshShape(1, 1), dispatch_core_config=config)
            grid = device.compute_with_storage_grid_size()
            for shape in ([grid.x * grid.y * 64, 256], [32, grid.x * grid.y * 64]):
                rows = ttnn.zeros(
                    shape, dtype=ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT, device=device
                )
                ttnn.to_layout(ttnn.to_layout(rows, ttnn.TILE_LAYOUT), ttnn.ROW_MAJOR_LAYOUT)
            print(kind.name, axis.name, f"{grid.x}x{grid.y}")
            ttnn.close_mesh_device(device)
"""

SAFE_CALLS = """
import sys
import optrove
with optrove.mock_board(sys.argv[1]) as board:
    import ttnn
    if board.chips > 1:
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(
        ttnn.MeshShape(*board.mesh_shapes[0]), trace_region_size=4096, num_command_queues=2
    )
    tiles = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": mesh}
    tensor = ttnn.zeros([1, 8, 32, 64], **tiles)

    trace = ttnn.begin_trace_capture(mesh, cq_id=0)
    assert ttnn.is_trace_capture_active(mesh)
    ttnn.add(tensor, tensor)
    ttnn.end_trace_capture(mesh, trace, cq_id=0)
    assert not ttnn.is_trace_capture_active(mesh)
    ttnn.execute_trace(mesh, trace, cq_id=0, blocking=False)
    ttnn.release_trace(mesh, trace)
    try:
        ttnn.execute_trace(mesh, trace, cq_id=0)
    except RuntimeError as error:
        assert "no captured trace" in str(error)

    ttnn.wait_for_event(1, ttnn.record_event(mesh, 0))
    ttnn.synchronize_device(mesh)

    cores = [[ttnn.CoreRange(ttnn.CoreCoord(0, y), ttnn.CoreCoord(3, y))] for y in range(2)]
    parts = [ttnn.SubDevice([ttnn.CoreRangeSet(each)]) for each in cores]
    manager = mesh.create_sub_device_manager(parts, 0)
    mesh.load_sub_device_manager(manager)
    mesh.set_sub_device_stall_group([ttnn.SubDeviceId(1)])
    ttnn.synchronize_device(mesh, sub_device_ids=[ttnn.SubDeviceId(1)])
    ttnn.add(tensor, tensor)
    mesh.reset_sub_device_stall_group()
    mesh.clear_loaded_sub_device_manager()
    mesh.remove_sub_device_manager(manager)

    if board.chips > 1:
        sharded = ttnn.create_sharded_memory_config(
            [1, 8, 32, 64], core_grid=ttnn.CoreGrid(x=8, y=1), strategy=ttnn.ShardStrategy.HEIGHT
        )
        ttnn.experimental.paged_update_cache(
            ttnn.zeros([8, 1, 64, 64], **tiles),
            ttnn.interleaved_to_sharded(tensor, sharded),
            update_idxs=list(range(8)),
            mesh_coords={ttnn.MeshCoordinate(0, 0)},
        )
        coordinates = ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1)
        sent = ttnn.point_to_point(tensor, *coordinates, topology=ttnn.Topology.Linear)
        assert sent.spec == tensor.spec
        part = ttnn.get_device_tensors(tensor)[1]
        part.cpu()
        if not board.slow_dispatch:
            try:
                ttnn.add(part, part)
            except optrove.errors.UnsupportedOnMock as error:
                assert "ttnn.add was called with a tensor on one chip" in str(error)
            else:
                raise AssertionError("an op on a part of a mesh was called")
    ttnn.close_mesh_device(mesh)
print("done")
"""

# A read of 64 cores takes 64 of the 8,192 places in a queue of ttnn that nothing empties.
READS = """
import faulthandler, sys
import optrove
faulthandler.dump_traceback_later(120, exit=True)
with optrove.mock_board(sys.argv[1]) as board:
    import ttnn
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(*board.mesh_shapes[0]))
    spread = ttnn.create_sharded_memory_config(
        [1, 1, 2048, 64], core_grid=ttnn.CoreGrid(x=8, y=8), strategy=ttnn.ShardStrategy.HEIGHT
    )
    tensor = ttnn.zeros(
        [1, 1, 2048, 64],
        dtype=ttnn.bfloat16,
        layout=ttnn.TILE_LAYOUT,
        device=mesh,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
    )
    tensor = ttnn.to_memory_config(tensor, spread)
    host = tensor.cpu()
    reads = {
        "cpu": lambda: tensor.cpu(),
        "from_device": lambda: ttnn.from_device(tensor),
        "repr": lambda: repr(tensor),
        "list": lambda: tensor.to_list() if board.chips == 1 else tensor.cpu(),
        "copy": lambda: ttnn.copy_device_to_host_tensor(tensor, host),
    }
    for name, read in reads.items():
        for _ in range(130):
            read()
    for each in (host, ttnn.from_device(tensor)):
        assert each.spec == tensor.spec
        assert each.tensor_topology() == tensor.tensor_topology()
        assert len(ttnn.get_device_tensors(each)) == board.chips
    part = ttnn.get_device_tensors(tensor)[-1].cpu()
    assert part.spec == tensor.spec
    assert len(ttnn.get_device_tensors(part)) == 1
    ttnn.deallocate(tensor)
    ttnn.close_mesh_device(mesh)
print("done")
"""

# From the core descriptors of ttnn, which real boards take their grids from.
WORMHOLE_GRIDS = {
    "n150": ("WORKER ROW 8x8", "WORKER COL 7x9", "ETH ROW 8x8"),
    "galaxy": ("WORKER ROW 8x9", "WORKER COL 7x10", "ETH ROW 8x10"),
}


@pytest.mark.parametrize("root", [None, "/a/checkout"])
def test_programs_see_the_runtime_root_of_their_user(run_python, root):
    variables = {} if root is None else {"TT_METAL_RUNTIME_ROOT": root}
    assert run_python(ROOT, **variables) == f"{root}\n"


@pytest.mark.parametrize(
    ("board", "grids"), [*WORMHOLE_GRIDS.items(), ("p150", ("WORKER COL 11x10",))]
)
def test_every_dispatch_has_the_grid_of_a_real_board_and_can_use_all_of_it(
    run_python, board, grids
):
    assert run_python(GRIDS, board).splitlines() == list(grids)


@pytest.mark.parametrize("board", ["n300", "t3k"])
def test_slow_dispatch_has_all_cores_on_every_axis(run_python, board):
    lines = run_python(GRIDS, board).splitlines()
    assert {line.split()[-1] for line in lines} == {"8x8"}
    assert len(lines) == 3


@pytest.mark.parametrize("board", ["n150", "n300", "p150", "p300", "galaxy"])
def test_no_call_ends_the_process(run_python, board):
    assert run_python(SAFE_CALLS, board) == "done\n"


@pytest.mark.parametrize("board", ["n150", "p150", "galaxy"])
def test_tensors_can_be_read_any_number_of_times(run_python, board):
    assert run_python(READS, board) == "done\n"

"""A program of many kinds of calls, traced on a mock board; its cases are written to a file."""

import json
import sys
import tempfile
from pathlib import Path

import optrove
from optrove.model.records import CallOutcome, DeviceKind, Job
from optrove.serializer.records import record_to_builtins
from tracing import readers_in, seen_in


def one_chip(ttnn):
    """Call operations on one chip."""
    device = ttnn.open_device(device_id=0, l1_small_size=8192)

    def ones(*shape, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT):
        return ttnn.ones(list(shape), dtype=dtype, layout=layout, device=device)

    a, b, w = ones(1, 1, 64, 128), ones(1, 1, 64, 128), ones(1, 1, 128, 256)
    hidden = ttnn.linear(a, w, bias=ones(1, 1, 1, 256), activation="relu")
    ttnn.matmul(
        a,
        w,
        program_config=ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
            compute_with_storage_grid_size=(2, 2),
            in0_block_w=1,
            out_subblock_h=1,
            out_subblock_w=1,
            per_core_M=1,
            per_core_N=4,
            transpose_mcast=False,
            fused_activation=None,
        ),
        compute_kernel_config=ttnn.WormholeComputeKernelConfig(
            math_fidelity=ttnn.MathFidelity.LoFi
        ),
    )
    heights = ttnn.create_sharded_memory_config(
        [1, 1, 64, 128], core_grid=ttnn.CoreGrid(x=1, y=2), strategy=ttnn.ShardStrategy.HEIGHT
    )
    sharded = ttnn.to_memory_config(a, heights)
    ttnn.add(sharded, sharded, memory_config=heights)
    ttnn.add(a, a)
    ttnn.multiply_(b, 2.0)
    ttnn.add(a, 1)
    ttnn.rsub(a, 1.5)
    ttnn.layer_norm(a, epsilon=1e-5, weight=ones(1, 128))
    ttnn.softmax(hidden, dim=-1, numeric_stable=True)
    ttnn.concat([a, b], dim=3)
    ttnn.reshape(a, (1, 2, 32, 128))
    ttnn.permute(a, (0, 1, 3, 2))
    ttnn.pad(a, [(0, 0), (0, 0), (0, 32), (0, 0)], 0.0)
    ttnn.slice(a, [0, 0, 0, 0], [1, 1, 32, 64])
    ttnn.typecast(a, ttnn.bfloat8_b)
    ttnn.sum(a, dim=-1, keepdim=True)
    view = ttnn.reshape(a, (64, 128))
    ttnn.multiply(view, view)
    tokens = ttnn.zeros([1, 32], dtype=ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT, device=device)
    ttnn.embedding(tokens, ones(512, 64, layout=ttnn.ROW_MAJOR_LAYOUT), layout=ttnn.TILE_LAYOUT)
    ttnn.to_layout(a, ttnn.ROW_MAJOR_LAYOUT)
    host = ttnn.from_device(a)
    host.to(ttnn.ROW_MAJOR_LAYOUT)
    a[0:1, 0:1, 0:32, 0:64]
    ttnn.neg(a) @ w
    ttnn.to_device(ttnn.from_device(sharded), device)
    with tempfile.TemporaryDirectory() as directory:
        weights = Path(directory) / "weights.tensorbin"
        ttnn.dump_tensor(weights, sharded)
        ttnn.load_tensor(str(weights), device=device)
        ttnn.load_tensor(weights)
    ttnn.close_device(device)


def two_chips(ttnn):
    """Call operations on a mesh of two chips, with semaphores and spread tensors."""
    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(7, 7))])
    semaphores = [ttnn.create_global_semaphore(mesh, cores, 0) for _ in range(3)]
    spec = (1, 1, 32, 64), ttnn.bfloat16, ttnn.TILE_LAYOUT
    spread = ttnn.allocate_tensor_on_device(ttnn.Shape(spec[0]), *spec[1:], mesh)
    spread.update_tensor_topology(
        ttnn.TensorTopology(
            ttnn.MeshShape(1, 2),
            [ttnn.PlacementReplicate(), ttnn.PlacementShard(3)],
            [ttnn.MeshCoordinate(0, 0), ttnn.MeshCoordinate(0, 1)],
        )
    )
    ttnn.add(spread, spread)
    one_of_two = ttnn.from_device(ttnn.get_device_tensors(spread)[0])
    ttnn.to_layout(one_of_two, ttnn.ROW_MAJOR_LAYOUT)
    ttnn.to_device(one_of_two, mesh)
    with tempfile.TemporaryDirectory() as directory:
        ttnn.dump_tensor(Path(directory) / "part.tensorbin", one_of_two)
    ttnn.all_gather(spread, 3)
    ttnn.experimental.all_gather_async(
        spread,
        dim=3,
        multi_device_global_semaphore=semaphores[:2],
        barrier_semaphore=semaphores[2],
        num_links=1,
        topology=ttnn.Topology.Linear,
    )
    ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)
    ttnn.close_mesh_device(mesh)


def jobs_in(directory):
    """Return a Job for each case of the journals, with what it gave."""
    jobs = {}
    for reader in readers_in(directory):
        for seen in seen_in(reader):
            call = seen.call
            outputs = call.outputs if call.outcome is CallOutcome.RETURNED else None
            job = Job(seen.case, DeviceKind.MOCK, device=call.device, outputs=outputs)
            jobs.setdefault(seen.hash, job)
    return list(jobs.values())


def main(board, output):
    """Trace the program of a board, and write a Job for each of its cases."""
    with (
        tempfile.TemporaryDirectory() as directory,
        optrove.trace(Path(directory) / "trove.db") as trace,
    ):
        with optrove.mock_board(board):
            import ttnn

            (one_chip if board in ("n150", "p150") else two_chips)(ttnn)
        data = [record_to_builtins(job) for job in jobs_in(trace.directory)]
    Path(output).write_text(json.dumps(data))


if __name__ == "__main__":
    main(*sys.argv[1:])

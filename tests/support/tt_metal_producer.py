"""Trace a small program on a mock board with tt-metal's tracer, and make its master file.

    python tt_metal_producer.py CHECKOUT DIRECTORY MASTER

The directory is laid out as ``generic_ops_tracer.py --store`` does.
"""

import importlib.util
import json
import os
import sys
import types
from pathlib import Path

import optrove

MACHINE = {
    "board_type": "Wormhole",
    "device_series": "n300",
    "card_count": 1,
    "device_count": 2,
    "tt_kmd": "2.3.0",
    "tt_smi": "3.0.25",
    "tt_firmware": ["19.2.0.0", "19.3.0.0"],
}
METADATA = {
    "test_source": "models/tt_transformers/demo/simple_text_demo.py",
    "timestamp": "2026-08-11T10:20:30.123456",
    "trace_uid": "3f0c6bb8-6a0e-4be1-9a5e-1d1d3a4c1f00",
    "machine_info": MACHINE,
    "pytest_args": "-k 'performance and batch-1'",
    "HF_MODEL": "meta-llama/Llama-3.2-1B",
}


def main(checkout, directory, master):
    """Trace, lay out the directory, and convert it."""
    tests = [directory / f"{number:016x}" for number in range(4)]
    with optrove.mock_board("n300"):
        import ttnn

        tracer = loaded(checkout / "ttnn/ttnn/operation_tracer.py", "their_tracer")
        sys.path.insert(0, str(checkout))
        ttnn.operation_tracer.serialize_operation_parameters = tracer.serialize_operation_parameters
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), l1_small_size=24576)
        ttnn.operation_tracer.enable_tracing()
        bodies = (elementwise, projections, configurations, elementwise)
        for test, body in zip(tests, bodies, strict=True):
            os.environ["TTNN_OPERATION_TRACE_DIR"] = str(test)
            body(ttnn, mesh)
        ttnn.operation_tracer.enable_tracing(False)
    for test, status in zip(tests, ("passed", "passed", "passed", "failed"), strict=True):
        content = {"test_nodeid": f"test.py::{test.name}", "status": status}
        (test / "_status.json").write_text(json.dumps(content))
    (directory / "_trace_metadata.json").write_text(json.dumps(METADATA))
    convert(checkout, directory, master)


def convert(checkout, directory, master):
    """Make the master file of a directory of trace files, as tt-metal does."""
    # It only draws progress bars with it.
    sys.modules["tqdm"] = types.SimpleNamespace(tqdm=lambda items, **_: items)
    sys.path.insert(0, str(checkout))
    os.chdir(directory.parent)
    generic = loaded(checkout / "model_tracer/generic_ops_tracer.py", "generic_ops_tracer")
    generic.BASE_DIR = str(checkout)
    sys.argv = ["generic_ops_tracer.py", "--load", str(directory), "-o", str(master)]
    code = generic.main()
    assert code == 0, code


def loaded(path, name):
    """Return the module of a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def allocated(ttnn, mesh, shape, memory=None, dtype=None, layout=None):
    """Return a tensor on the board without values."""
    return ttnn.allocate_tensor_on_device(
        ttnn.Shape(shape),
        dtype or ttnn.bfloat16,
        layout or ttnn.TILE_LAYOUT,
        mesh,
        memory or ttnn.DRAM_MEMORY_CONFIG,
    )


def sharded(ttnn, layout, shape, *corners, buffer=None, facing=None):
    """Return a sharded memory configuration."""
    ranges = [
        ttnn.CoreRange(ttnn.CoreCoord(*start), ttnn.CoreCoord(*end)) for start, end in corners
    ]
    spec = ttnn.ShardSpec(
        ttnn.CoreRangeSet(ranges), shape, facing or ttnn.ShardOrientation.ROW_MAJOR
    )
    return ttnn.MemoryConfig(layout, buffer or ttnn.BufferType.L1, spec)


def elementwise(ttnn, mesh):
    """Call ops with shards of both orientations, lists of tensors, symbols and odd numbers."""
    layouts = ttnn.TensorMemoryLayout
    rows = sharded(ttnn, layouts.HEIGHT_SHARDED, [32, 64], ((0, 0), (3, 0)), ((0, 1), (3, 1)))
    columns = sharded(
        ttnn,
        layouts.BLOCK_SHARDED,
        [32, 32],
        ((0, 0), (3, 1)),
        facing=ttnn.ShardOrientation.COL_MAJOR,
    )
    plain = allocated(ttnn, mesh, [1, 1, 256, 64])
    for _ in range(3):
        ttnn.add(plain, plain, memory_config=ttnn.L1_MEMORY_CONFIG)
    ttnn.add(allocated(ttnn, mesh, [1, 1, 256, 64], rows), 0.5, dtype=ttnn.bfloat8_b)
    ttnn.relu(allocated(ttnn, mesh, [1, 1, 128, 64], columns))
    ttnn.concat([plain, plain], dim=2)
    ttnn.clamp(plain, min=float("-inf"), max=1.0)
    ttnn.multiply(
        plain,
        plain,
        input_tensor_a_activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU)],
    )
    ttnn.reshape(plain, ttnn.Shape([1, 1, 64, 256]))
    ttnn.permute(plain, (0, 1, 3, 2))
    ttnn.pad(plain, [(0, 0), (0, 0), (0, 32), (0, 0)], value=float("inf"))
    ttnn.typecast(plain, ttnn.float32)
    ttnn.softmax(plain, dim=-1)
    ttnn.zeros([1, 1, 32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=mesh)


def projections(ttnn, mesh):
    """Call ops with program and compute configurations, on shards and over the fabric."""
    one_d = ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=(8, 2),
        in0_block_w=1,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=1,
        fuse_batch=True,
        mcast_in0=True,
        fused_activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU),
    )
    compute = ttnn.WormholeComputeKernelConfig(
        math_fidelity=ttnn.MathFidelity.HiFi2, math_approx_mode=False, fp32_dest_acc_en=True
    )
    left, right = (allocated(ttnn, mesh, shape) for shape in ([1, 1, 32, 256], [1, 1, 256, 512]))
    ttnn.linear(left, right, program_config=one_d, compute_kernel_config=compute)
    ttnn.matmul(left, right, core_grid=ttnn.CoreGrid(x=8, y=2), dtype=ttnn.bfloat8_b)
    weight = allocated(ttnn, mesh, [1, 1, 8, 32], layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.rms_norm(left, epsilon=1e-5, weight=weight, compute_kernel_config=compute)
    heads = allocated(ttnn, mesh, [1, 8, 64, 64])
    ttnn.transformer.scaled_dot_product_attention(
        heads,
        heads,
        heads,
        is_causal=True,
        program_config=ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=(8, 8), q_chunk_size=32, k_chunk_size=32
        ),
    )
    grid = mesh.compute_with_storage_grid_size()
    cores = ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(grid.x - 1, grid.y - 1))
    semaphores = [
        ttnn.create_global_semaphore(mesh, ttnn.CoreRangeSet([cores]), 0) for _ in range(3)
    ]
    ttnn.experimental.all_gather_async(
        allocated(ttnn, mesh, [1, 1, 32, 64]),
        dim=3,
        multi_device_global_semaphore=semaphores[:2],
        barrier_semaphore=semaphores[2],
        num_links=1,
        topology=ttnn.Topology.Linear,
        memory_config=ttnn.DRAM_MEMORY_CONFIG,
    )


def configurations(ttnn, mesh):
    """Call ops with other classes of configurations, some of them with tensors on the host."""
    import torch

    layouts = ttnn.TensorMemoryLayout
    blocks = sharded(ttnn, layouts.BLOCK_SHARDED, [64, 64], ((0, 0), (3, 3)))
    square, tiled = allocated(ttnn, mesh, [1, 1, 256, 256], blocks), [1, 1, 256, 256]
    sizes = {"in0_block_w": 2, "out_subblock_h": 1, "out_subblock_w": 1}
    two_d = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(
        **{"compute_with_storage_grid_size": (4, 4), **sizes, "per_core_M": 2, "per_core_N": 2},
        transpose_mcast=False,
        fused_activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.GELU, 1.0),
    )
    ttnn.linear(square, allocated(ttnn, mesh, tiled), program_config=two_d)
    batched = allocated(ttnn, mesh, [1, 4, 64, 64])
    reuse = ttnn.MatmulMultiCoreReuseProgramConfig(
        **{"compute_with_storage_grid_size": (4, 2), **sizes, "per_core_M": 2, "per_core_N": 2}
    )
    ttnn.matmul(batched, batched, program_config=reuse)
    norm = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=(4, 4),
        subblock_w=2,
        block_h=2,
        block_w=2,
        inplace=False,
    )
    ttnn.layer_norm(square, epsilon=1e-12, program_config=norm, memory_config=blocks)
    host = {"weight_tensor": [32, 32, 3, 3], "bias_tensor": [1, 1, 1, 32]}
    ttnn.conv2d(
        input_tensor=allocated(ttnn, mesh, [1, 1, 1024, 32], layout=ttnn.ROW_MAJOR_LAYOUT),
        **{name: ttnn.from_torch(torch.zeros(shape)) for name, shape in host.items()},
        device=mesh,
        in_channels=32,
        out_channels=32,
        batch_size=1,
        input_height=32,
        input_width=32,
        kernel_size=(3, 3),
        padding=(1, 1),
        conv_config=ttnn.Conv2dConfig(
            weights_dtype=ttnn.bfloat8_b, shard_layout=layouts.HEIGHT_SHARDED
        ),
    )


if __name__ == "__main__":
    main(*(Path(argument).resolve() for argument in sys.argv[1:]))

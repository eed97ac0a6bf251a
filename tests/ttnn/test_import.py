"""What ttnn's own tracer writes is read as what optrove itself would have recorded."""

import importlib

import pytest

from optrove.interop.detect import read_file
from optrove.model.values import Opaque
from optrove.serializer import plain
from optrove.serializer.describe import describe
from optrove.serializer.tables import Tables

pytestmark = pytest.mark.ttnn


@pytest.fixture(scope="module")
def tables(ttnn):
    from optrove.frameworks.ttnn.convert import table as values

    return Tables([values.table(), plain.table()])


@pytest.fixture
def traced(ttnn, tmp_path):
    """Write a call as ttnn's tracer does, and return its arguments as they are imported."""
    tracer = importlib.import_module("ttnn.operation_tracer")

    def trace(*arguments, **keywords):
        tracer.serialize_operation_parameters(
            "ttnn.add", arguments, keywords, tmp_path, None, serialize_tensor_values=False
        )
        (imported,), fidelity = read_file(tmp_path)
        assert fidelity.adds_up()
        return dict(imported.cases[0].case.arguments), fidelity

    return trace


def shards(ttnn, shape):
    ranges = [((0, 0), (3, 1)), ((0, 2), (1, 2))]
    grid = ttnn.CoreRangeSet(
        [ttnn.CoreRange(ttnn.CoreCoord(*start), ttnn.CoreCoord(*end)) for start, end in ranges]
    )
    return ttnn.ShardSpec(grid, shape, ttnn.ShardOrientation.ROW_MAJOR)


def test_tensors_have_the_placement_that_they_have_on_the_board(ttnn, mesh, tables, traced):
    layouts = ttnn.TensorMemoryLayout
    lie = ttnn.MemoryConfig
    told = [
        ((1, 1, 30, 50), ttnn.bfloat16, ttnn.TILE_LAYOUT, ttnn.DRAM_MEMORY_CONFIG),
        ((50,), ttnn.bfloat8_b, ttnn.TILE_LAYOUT, ttnn.L1_MEMORY_CONFIG),
        ((7, 5), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, ttnn.DRAM_MEMORY_CONFIG),
        (
            (1, 1, 49, 310),
            ttnn.bfloat16,
            ttnn.ROW_MAJOR_LAYOUT,
            lie(layouts.WIDTH_SHARDED, ttnn.BufferType.L1, shards(ttnn, [49, 32])),
        ),
        (
            (1, 1, 310, 33),
            ttnn.bfloat16,
            ttnn.TILE_LAYOUT,
            lie(layouts.HEIGHT_SHARDED, ttnn.BufferType.L1, shards(ttnn, [32, 64])),
        ),
    ]
    live = [
        ttnn.allocate_tensor_on_device(ttnn.Shape(shape), dtype, layout, mesh, memory)
        for shape, dtype, layout, memory in told
    ]
    found, fidelity = traced(*live)
    for place, each in enumerate(live):
        spec, recorded = found[f"arg{place}"], describe(each, tables)
        assert (spec.shape, spec.dtype) == (recorded.shape, recorded.dtype)
        assert spec.placement == recorded.placement
        ttnn.deallocate(each)
    assert fidelity.understood == 1


def test_configurations_are_those_that_were_passed(ttnn, mesh, tables, traced):
    spec = shards(ttnn, [64, 32])
    live = [
        mesh,
        ttnn.Shape([1, 2]),
        ttnn.Tile([32, 32]),
        ttnn.SubDeviceId(1),
        ttnn.Conv2dConfig(),
        ttnn.MeshCoordinate(0, 1),
        spec.grid,
        ttnn.CoreCoord(1, 2),
        ttnn.CoreGrid(x=8, y=7),
        ttnn.NdShardSpec(ttnn.Shape([32, 32]), spec.grid),
        ttnn.UnaryWithParam(ttnn.UnaryOpType.GELU, 1.0),
        ttnn.MemoryConfig(ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, spec),
        ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=(8, 8), q_chunk_size=32, k_chunk_size=64
        ),
        ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2),
        ttnn.bfloat16,
        ttnn.Topology.Ring,
        {ttnn.MeshCoordinate(0, 1), ttnn.MeshCoordinate(1, 1)},
        float("-inf"),
        [1, 2.5, None, "nearest"],
    ]
    found, fidelity = traced(*live)
    for place, each in enumerate(live):
        assert found[f"arg{place}"] == describe(each, tables), type(each).__name__
    assert fidelity.understood == 1


def test_an_activation_that_ttnn_numbers_is_kept_and_not_guessed(ttnn, traced):
    config = ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=1,
        per_core_M=1,
        per_core_N=1,
        fused_activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU),
    )
    found, fidelity = traced(program_config=config)
    assert isinstance(dict(found["program_config"].fields)["fused_activation"], Opaque)
    assert (fidelity.partly, fidelity.verbatim[0].kind) == (1, "fused_activation")

"""What ttnn's own tracer writes is read as what optrove itself would have recorded."""

import importlib
import json
import re

import pytest

from optrove.frameworks.ttnn.convert import table as converters
from optrove.interop.formats import read_file
from optrove.interop.master_writer import master_value
from optrove.interop.printed import UNARY_OPS
from optrove.serializer import plain
from optrove.serializer.describe import describe
from optrove.serializer.tables import Tables
from ttnn_samples import Samples

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
    rows = [
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
        for shape, dtype, layout, memory in rows
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


def test_an_activation_that_ttnn_numbers_is_the_one_that_was_passed(ttnn, tables, traced):
    assert [member.name for member in ttnn.UnaryOpType] == list(UNARY_OPS)
    config = ttnn.MatmulMultiCoreReuseMultiCastDRAMShardedProgramConfig(
        in0_block_w=1,
        per_core_M=1,
        per_core_N=1,
        fused_activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.SILU),
    )
    found, fidelity = traced(program_config=config)
    assert found["program_config"] == describe(config, tables)
    assert ("recorded as a number" in dict(fidelity.notes).popitem()[0]) is True


PRINTED_BY_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
NO_ARGUMENTS = {
    *("Config", "DeviceGroupIndex", "FabricNodeId", "MeshCoreCoord", "Rank", "Size"),
    *("SubcontextId", "TensorTopology"),
}
"""Classes that are printed, but are no arguments of operations."""


def test_every_class_that_ttnn_prints_is_written_as_it_prints_it(ttnn, mesh, tables, tmp_path):
    """An exported master file has the text that ttnn's tracer writes for the same object."""
    tracer = importlib.import_module("ttnn.operation_tracer")
    found = converters.find(ttnn)
    table = converters.table()
    samples = Samples(ttnn, found, table)
    kinds = [cls for cls in found.values if hasattr(table.by_type.get(cls), "fields")]
    live = [sample for cls in kinds for sample in samples.of_class(cls)[:2]]
    live += [mesh, ttnn.bfloat16, ttnn.Layout.TILE, {ttnn.MeshCoordinate(0, 1)}]
    tracer.serialize_operation_parameters(
        "ttnn.add", tuple(live), {}, tmp_path, None, serialize_tensor_values=False
    )
    (file,) = tmp_path.glob("*.json")
    written = [each["value"] for each in json.loads(file.read_text())["args"]]
    compared, different = set(), {}
    for sample, theirs in zip(live, written, strict=True):
        kind = type(sample).__name__
        value = describe(sample, tables)
        if "hash" in theirs or kind in NO_ARGUMENTS or kind.startswith("Vector"):
            continue  # memory has its own test; the rest is never passed
        if "object at" in str(theirs) and kind != "SoftmaxDefaultProgramConfig":
            continue  # an address alone
        text = PRINTED_BY_ADDRESS.sub("", json.dumps(theirs))
        expected = json.loads(text.replace("=Invalid,", "=DataType::INVALID,"))
        ours = master_value(value)
        if kind == "MeshDevice":
            expected.pop("device_ids")  # of the execution, not of the Case
        if ours != expected:
            different[kind] = ours, expected
        compared.add(kind)
    assert not different, "\n".join(f"{k}\n  {o}\n  {t}" for k, (o, t) in different.items())
    assert {"Conv2dConfig", "SDPAProgramConfig", "WormholeComputeKernelConfig"} <= compared
    assert {kind for kind in compared if kind.startswith("Matmul")}

"""What a master file lacks or leaves unconverted is no verdict about the op or the board."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.ttnn

SCRIPT = """
import json, sys
from optrove.interop.formats import read_file
from optrove.model.records import DeviceKind, Job
from optrove.replay.worker import run_in_process
from pathlib import Path

(imported,), _ = read_file(Path(sys.argv[1]))
jobs = [Job(each.case, DeviceKind.MOCK) for each in imported.cases]
print(json.dumps([
    [attempt.outcome.value, attempt.detail, list(attempt.notes)]
    for attempt in run_in_process(jobs, board="n300")
]))
"""

MEMORY = {
    "memory_layout": "TensorMemoryLayout.INTERLEAVED",
    "buffer_type": "BufferType.DRAM",
    "shard_spec": None,
}
LINEAR = {"type": "Topology", "repr": "Topology.Linear"}


def tensor(*shape, dtype="BFLOAT16", layout="TILE", memory=MEMORY):
    return {
        "type": "ttnn.Tensor",
        "original_shape": list(shape),
        "original_dtype": f"DataType.{dtype}",
        "layout": f"Layout.{layout}",
        "storage_type": "StorageType.DEVICE",
        "memory_config": memory,
        "tensor_placement": {
            "placement": "['PlacementReplicate', 'PlacementReplicate']",
            "distribution_shape": "[1, 2]",
            "mesh_device_shape": "[1, 2]",
        },
    }


GATHERED, SCATTERED = tensor(1, 1, 32, 64), tensor(1, 1, 32, 128)
LEFT, RIGHT, HEADS = tensor(1, 1, 32, 64), tensor(1, 1, 64, 64), tensor(1, 8, 64, 64)
ASYNC = "ttnn.experimental."
ONE_D = {
    "compute_with_storage_grid_size": {"x": 2, "y": 1},
    **dict.fromkeys(("in0_block_w", "out_subblock_h", "out_subblock_w"), 1),
    **dict.fromkeys(("per_core_M", "per_core_N", "out_block_h", "out_block_w"), 1),
    "fuse_batch": 1,
    "mcast_in0": True,
    "fused_activation": {"op_type": 58, "param": []},
}
TWO_D = {
    "type": "MatmulMultiCoreReuseMultiCastProgramConfig",
    "compute_with_storage_grid_size": {"x": 2, "y": 2},
    **dict.fromkeys(("in0_block_w", "out_subblock_h", "out_subblock_w"), 1),
    **dict.fromkeys(("per_core_M", "per_core_N"), 1),
    "transpose_mcast": False,
    "fused_activation": "None",
}
SEMAPHORES = "multi_device_global_semaphore was not recorded; used instead: semaphores"

# Op, arguments, outcome, and a text in the notes or the detail.
CASES = {
    "semaphores that the tracer leaves out": (
        f"{ASYNC}all_gather_async",
        {"arg0": GATHERED, "dim": 3, "num_links": 1, "topology": LINEAR},
        "passed",
        SEMAPHORES,
    ),
    "those of a call with all else by place": (
        f"{ASYNC}all_gather_async",
        {"arg0": GATHERED, "arg1": 3},
        "passed",
        SEMAPHORES,
    ),
    "three of them": (
        f"{ASYNC}reduce_scatter_minimal_async",
        {"arg0": SCATTERED, "dim": 3, "num_links": 1, "topology": LINEAR},
        "passed",
        SEMAPHORES,
    ),
    "an enumeration as text": (
        "ttnn.reshape",
        {"arg0": LEFT, "arg1": [1, 1, 64, 32], "reshape_tile_mode": "CACHE"},
        "passed",
        "reshape_tile_mode was recorded as 'CACHE'; passed as ttnn.TileReshapeMapMode.CACHE",
    ),
    "more of them, and nothing as text": (
        "ttnn.embedding",
        {
            "arg0": tensor(1, 32, dtype="UINT32", layout="ROW_MAJOR"),
            "arg1": tensor(64, 64, layout="ROW_MAJOR"),
            "embeddings_type": "GENERIC",
            "memory_config": "nullopt",
        },
        "passed",
        "memory_config was recorded as 'nullopt'; passed as None",
    ),
    "a program configuration without type, and switches as numbers": (
        "ttnn.matmul",
        {"arg0": LEFT, "arg1": RIGHT, "transpose_a": 0, "program_config": ONE_D},
        "passed",
        None,
    ),
    "a grid in another form": (
        "ttnn.transformer.scaled_dot_product_attention",
        {
            **{f"arg{place}": HEADS for place in range(3)},
            "is_causal": 1,
            "program_config": {"compute_grid": [8, 8], "q_chunk_size": 32, "k_chunk_size": 32},
        },
        "passed",
        None,
    ),
    "a required argument that nothing supplies": (
        "ttnn.matmul",
        {"arg0": LEFT, "transpose_a": 0},
        "not_run",
        "the recording lacks the required argument input_tensor_b",
    ),
    "one beside the semaphores": (
        f"{ASYNC}all_gather_async",
        {"arg0": GATHERED, "num_links": 1},
        "not_run",
        "the recording lacks the required argument dim",
    ),
    "a configuration that is none": (
        "ttnn.matmul",
        {"arg0": LEFT, "arg1": RIGHT, "program_config": {"mystery": 1}},
        "not_run",
        "the recording has an argument that cannot be converted: program_config",
    ),
    "shards that the tracer does not record": (
        "ttnn.relu",
        {"arg0": tensor(1, 2, 64, 32, memory={**MEMORY, "memory_layout": "ND_SHARDED"})},
        "not_run",
        "the recording lost the shards of the memory of arg0",
    ),
    "a memory configuration as text": (
        "ttnn.relu",
        {
            "arg0": tensor(
                *(1, 1, 64, 64),
                memory="MemoryConfig(memory_layout=TensorMemoryLayout::HEIGHT_SHARDED,"
                'buffer_type=BufferType::L1,shard_spec=ShardSpec{grid=[{"start":{"x":0,"y":0},'
                '"end":{"x":1,"y":0}], shape=[32, 64], orientation=ShardOrientation::ROW_MAJOR},'
                "nd_shard_spec=std::nullopt,created_with_nd_shard_spec=0,per_core_allocation=0)",
            )
        },
        "passed",
        None,
    ),
    "low tiles": (
        "ttnn.matmul",
        {
            "arg0": tensor(
                *(1, 1, 32, 64),
                memory={
                    "memory_layout": "TensorMemoryLayout.HEIGHT_SHARDED",
                    "buffer_type": "BufferType.L1",
                    "shard_spec": {
                        "grid": [{"start": {"x": 0, "y": 0}, "end": {"x": 1, "y": 0}}],
                        "shape": [16, 64],
                        "orientation": "ROW_MAJOR",
                    },
                },
            ),
            "arg1": RIGHT,
        },
        "passed",
        None,
    ),
    "an argument that is absent": (
        "ttnn.relu",
        {"arg0": LEFT, "memory_config": "__ABSENT__"},
        "passed",
        None,
    ),
    "an argument of another kind": (
        "ttnn.relu",
        {"arg0": LEFT, "memory_config": 7},
        "not_run",
        "the recording has an argument that cannot be converted: memory_config (7",
    ),
    "a tensor that was not recorded": (
        "ttnn.relu",
        {"arg0": None},
        "not_run",
        "the recording has an argument that cannot be converted: arg0 (None",
    ),
    "a list with a hole": (
        "ttnn.concat",
        {"arg0": [LEFT, None], "dim": 2},
        "not_run",
        "the recording has an argument that cannot be converted: arg0",
    ),
    "an argument of another version": (
        "ttnn.relu",
        {"arg0": LEFT, "from_the_future": 7},
        "not_run",
        "the installed ttnn has no parameter for from_the_future",
    ),
    "one that is not set": (
        "ttnn.relu",
        {"arg0": LEFT, "from_the_future": None},
        "passed",
        "the installed ttnn has no parameter from_the_future; left out: None",
    ),
    "a field that is not set": (
        "ttnn.matmul",
        {"arg0": LEFT, "arg1": RIGHT, "program_config": {**TWO_D, "from_the_future": False}},
        "passed",
        "has no field from_the_future, which program_config does not set",
    ),
    "lists and grids in other forms": (
        "ttnn.matmul",
        {"arg0": LEFT, "arg1": RIGHT, "core_grid": {"x": 8, "y": 8}},
        "passed",
        None,
    ),
    "a list as text": ("ttnn.permute", {"arg0": LEFT, "arg1": "(0, 1, 3, 2)"}, "passed", None),
    "semaphores that are null": (
        f"{ASYNC}all_gather_async",
        {"arg0": GATHERED, "dim": 3, "multi_device_global_semaphore": None},
        "passed",
        SEMAPHORES,
    ),
    "a true answer": (
        "ttnn.matmul",
        {"arg0": LEFT, "arg1": tensor(1, 1, 96, 64)},
        "rejected",
        "The width of the first tensor must be equal to the height of the second tensor",
    ),
}


@pytest.fixture(scope="module")
def attempts(tmp_path_factory):
    """Replay all cases in one process, and return outcome, detail and notes by op and arguments."""
    folder = tmp_path_factory.mktemp("replayed")
    operations = {}
    for op, arguments, *_ in CASES.values():
        config = {"arguments": arguments, "executions": [{"source": "a.py", "count": 1}]}
        operations.setdefault(op, {"configurations": []})["configurations"].append(config)
    file = folder / "master.json"
    file.write_text(json.dumps({"operations": operations}))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)],
        cwd=folder,
        env={**os.environ, "TT_LOGGER_LEVEL": "fatal"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = iter(json.loads(done.stdout.splitlines()[-1]))
    ordered = [name for op in operations for name, case in CASES.items() if case[0] == op]
    return dict(zip(ordered, answers, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_a_master_file_is_replayed_or_the_recording_is_blamed(attempts, name):
    _, _, outcome, text = CASES[name]
    found, detail, notes = attempts[name]
    assert found == outcome, detail
    if text is not None:
        assert any(text in each for each in (detail or "", *notes)), (detail, notes)

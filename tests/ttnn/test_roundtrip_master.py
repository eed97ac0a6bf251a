import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ttnn

TOOL = Path(__file__).parents[2] / "tools" / "roundtrip_master.py"

SHARDED = {
    "memory_layout": "TensorMemoryLayout.WIDTH_SHARDED",
    "buffer_type": "BufferType.L1",
    "shard_spec": {
        "grid": [
            {"start": {"x": 1, "y": 0}, "end": {"x": 3, "y": 0}},
            {"start": {"x": 0, "y": 2}, "end": {"x": 0, "y": 2}},
        ],
        "shape": [32, 64],
        "orientation": "ShardOrientation.ROW_MAJOR",
    },
    "hash": 1,
}
DOCUMENT = {
    "operations": {
        "ttnn.linear": {
            "configurations": [
                {
                    "arguments": {
                        "arg0": {
                            "type": "ttnn.Tensor",
                            "original_shape": [1, 1, 32, 256],
                            "original_dtype": "DataType.BFLOAT8_B",
                            "layout": "Layout.TILE",
                            "storage_type": "StorageType.DEVICE",
                            "memory_config": SHARDED,
                            "tensor_placement": {
                                "placement": "['PlacementReplicate', 'PlacementShard(3)']",
                                "distribution_shape": "[4, 8]",
                                "mesh_device_shape": "[4, 8]",
                            },
                        },
                        "memory_config": SHARDED,
                        "program_config": {
                            "type": "SoftmaxShardedMultiCoreProgramConfig",
                            "value": "SoftmaxShardedMultiCoreProgramConfig("
                            "compute_with_storage_grid_size=(x=8,y=4),subblock_w=2,block_h=1,"
                            "block_w=4)",
                        },
                        "mesh_coords": {"type": "set", "value": "{MeshCoordinate([2, 7])}"},
                        "transpose_b": True,
                    }
                }
            ]
        }
    }
}


def run(tmp_path, document):
    path = tmp_path / "master.json"
    path.write_text(json.dumps(document))
    command = [sys.executable, str(TOOL), str(path)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def arguments(document):
    return document["operations"]["ttnn.linear"]["configurations"][0]["arguments"]


def test_tensors_and_configurations_survive(tmp_path):
    done = run(tmp_path, DOCUMENT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 configurations of 1 operations" in done.stdout
    assert "memory configs         2          2          0          0" in done.stdout


def test_what_the_board_alters_is_a_difference_with_its_path(tmp_path):
    document = copy.deepcopy(DOCUMENT)
    arguments(document)["arg0"]["tensor_placement"]["mesh_device_shape"] = "[2, 16]"
    done = run(tmp_path, document)
    assert done.returncode == 1
    assert "arguments.arg0: mesh shape: (2, 16) became (4, 8)" in done.stdout


def test_an_unknown_spelling_is_counted_and_not_guessed(tmp_path):
    document = copy.deepcopy(DOCUMENT)
    arguments(document)["program_config"]["value"] = "Mystery<8>"
    done = run(tmp_path, document)
    assert done.returncode == 1
    message = "SoftmaxShardedMultiCoreProgramConfig has no known form: 'Mystery<8>'"
    assert f"arguments.program_config: {message}" in done.stdout


def test_an_empty_file_is_no_success(tmp_path):
    assert run(tmp_path, {"operations": {}}).returncode == 1

"""Small master files of both generations, made for the tests, with every known spelling."""

from optrove.model.records import CallOutcome
from optrove.model.trove import ExecutionRow

SHARDS = {
    "grid": [
        {"start": {"x": 1, "y": 0}, "end": {"x": 3, "y": 0}},
        {"start": {"x": 0, "y": 2}, "end": {"x": 0, "y": 2}},
    ],
    "shape": [32, 64],
    "orientation": "ROW_MAJOR",
}
GALAXY = {
    "board_type": "Wormhole",
    "device_series": "tt-galaxy-wh",
    "card_count": 32,
    "device_count": 32,
    "device_ids": [3, 1, 2],
    "mesh_device_shape": [4, 8],
}


def memory(layout="INTERLEAVED", buffer="DRAM", shards="None"):
    """Return a memory configuration of version 2."""
    return {
        "memory_layout": f"TensorMemoryLayout.{layout}",
        "buffer_type": f"BufferType.{buffer}",
        "shard_spec": shards,
        "is_sharded": shards != "None",
        "interleaved": layout == "INTERLEAVED",
        "hash": 46082544174525093,
    }


def tensor(shape=(1, 1, 30, 64), dtype="BFLOAT8_B", layout="TILE", stored_in=None, **changes):
    """Return a tensor of version 2."""
    return {
        "type": "ttnn.Tensor",
        "original_shape": list(shape),
        "original_dtype": f"DataType.{dtype}",
        "layout": f"Layout.{layout}",
        "storage_type": "StorageType.DEVICE",
        "memory_config": memory() if stored_in is None else stored_in,
        "tensor_placement": {
            "placement": "['PlacementReplicate', 'PlacementShard(-1)']",
            "distribution_shape": "[4, 8]",
            "mesh_device_shape": "[4, 8]",
        },
        **changes,
    }


def semaphore(address):
    """Return a semaphore as Python prints it."""
    name = "ttnn._ttnn.global_semaphore.global_semaphore"
    return {"type": "global_semaphore", "value": f"<{name} object at {address:#x}>"}


def old_tensor():
    """Return a tensor of a list, which has its mesh in another form."""
    data = tensor(dtype="BFLOAT16")
    del data["tensor_placement"]
    spread = {
        "placements": ["PlacementShard(2)", "PlacementReplicate"],
        "distribution_shape": [4, 8],
        "shape": [4, 8],
        "device_ids": [0, 1],
    }
    return {**data, "mesh_device": spread, "shape": [1, 1, 30, 64], "dtype": "DataType.BFLOAT16"}


EVERYTHING = {
    "arg0": tensor(),
    "arg1": tensor((7, 5), "INT32", "ROW_MAJOR"),
    "arg2": [old_tensor(), old_tensor()],
    "arg10": tensor(stored_in=memory("WIDTH_SHARDED", "L1", SHARDS)),
    "batch_idx": 3,
    "compute_kernel_config": {
        "math_fidelity": "MathFidelity.HiFi2",
        "math_approx_mode": "False",
        "fp32_dest_acc_en": True,
        "packer_l1_acc": False,
        "dst_full_sync_en": False,
        "throttle_level": "ThrottleLevel.NO_THROTTLE",
    },
    "device": {
        "type": "MeshDevice",
        "repr": "MeshDevice(4x8 grid, 32 devices)",
        "shape": [4, 8],
        "device_ids": [0, 1],
    },
    "dtype": {"type": "DataType", "repr": "DataType.BFLOAT16"},
    "epsilon": 1e-05,
    "memory_config": memory(),
    "mesh_coords": {"type": "set", "value": "{MeshCoordinate([2, 2]), MeshCoordinate([0, 1])}"},
    "multi_device_global_semaphore": [semaphore(0x721), semaphore(0x722)],
    "barrier_semaphore": semaphore(0x722),
    "output": None,
    "output_tile": {"type": "Tile", "value": "Tile with shape: [32, 32]"},
    "padding": [[0, 0], [0, 32]],
    "program_config": {
        "allowed_worker_cores": None,
        "compute_with_storage_grid_size": {"x": 4, "y": 1},
        "fuse_batch": False,
        "fused_activation": None,
        "hop_cores": [],
        "in0_block_w": 16,
        "type": "MatmulMultiCoreReuseMultiCast1DProgramConfig",
    },
    "norm_config": {
        "type": "LayerNormShardedMultiCoreProgramConfig",
        "value": "LayerNormShardedMultiCoreProgramConfig("
        "compute_with_storage_grid_size=(x=4,y=7),subblock_w=1,inplace=0)",
    },
    "shape": {"type": "Shape", "value": "Shape([1, 1, 8, 1])"},
    "activations": [{"type": "UnaryOpType", "repr": "UnaryOpType.SILU"}],
    "named": {"a": 1, "b": [True]},
    "mode": "bilinear",
    "use_broadcast": True,
    "value": "-inf",
}


def configuration(arguments, *, number=1, executions=None, **changes):
    """Return a configuration of version 2."""
    data = {"source": "models/demo.py", "machine_info": GALAXY, "count": 10}
    return {
        "config_id": number,
        "config_hash": f"{number:064x}",
        "arguments": arguments,
        "executions": [data] if executions is None else executions,
        **changes,
    }


def master(*configurations, op="ttnn.linear", **metadata):
    """Return a master file with these configurations of one operation."""
    about = {"models": ["models/demo.py"], "last_updated": "2026-03-08 13:48:13", **metadata}
    return {"operations": {op: {"configurations": list(configurations)}}, "metadata": about}


PRINTED_SHARDS = (
    '{"grid":{[{"x":0,"y":0} - {"x":7,"y":5}], [{"x":0,"y":6} - {"x":0,"y":6}]},'
    '"shape":"{64, 32}","orientation":"ShardOrientation::ROW_MAJOR"}'
)
PRINTED_ND_SHARDS = (
    '{"shard_shape":[64, 32],"grid":[{"x":0,"y":0} - {"x":7,"y":5}],'
    '"orientation":"ShardOrientation::ROW_MAJOR",'
    '"shard_distribution_strategy":"ShardDistributionStrategy::ROUND_ROBIN_1D"}'
)


def printed_memory(layout="INTERLEAVED", shards='"std::nullopt"', nd='"std::nullopt"', by_nd=0):
    """Return a memory configuration as C++ prints it."""
    return (
        f'{{"memory_layout":"TensorMemoryLayout::{layout}","buffer_type":"BufferType::L1",'
        f'"shard_spec":{shards},"nd_shard_spec":{nd},"created_with_nd_shard_spec":{by_nd}}}'
    )


def printed_tensor(stored_in, *, dtype="BFLOAT16", alignment="[32, 32]", shape="[1, 1, 49, 24]"):
    """Return a tensor as C++ prints it."""
    tile = '{"tile_shape":"{32, 32}","face_shape":"{16, 16}","num_faces":4}'
    return (
        f'{{"Tensor":{{"storage":{{}},"tensor_spec":{{"logical_shape":{shape},'
        f'"tensor_layout":{{"dtype":"DataType::{dtype}","page_config":{{"config":{{"tile":{tile}}}}},'
        f'"memory_config":{stored_in},"alignment":{alignment}}}}}}}}}'
    )


def unparsed(name, text):
    """Return the entry of version 1 for an argument that its writer could not parse."""
    return {
        "UnparsedElement": {
            "error": "Expecting ',' delimiter: line 1 column 363 (char 362)",
            "element_info": f'{{"{name}": {text}}}',
        }
    }


def unsupported(kind):
    """Return the text that C++ prints instead of a value that it cannot print."""
    return f"[ unsupported type , std::reference_wrapper<{kind}>]"


def rows_of(runs, *, as_written=True):
    """Return the Cases of Runs with their executions, as a trove hands them out to an export.

    Without ``as_written``, an export writes the configurations from the Cases alone.
    """
    found = {}
    for imported in runs:
        for each in imported.cases:
            row = ExecutionRow(
                case_id="",
                run_id=imported.run.id,
                source=imported.run.source,
                model=imported.run.model,
                machine=imported.machine,
                board=imported.run.environment.board,
                test_id=None,
                phase=None,
                module=None,
                mode=None,
                outermost=True,
                outcome=CallOutcome.RETURNED,
                count=each.count,
                total_ns=None,
                outputs=None,
                error=None,
                provenance=imported.run.provenance,
                configuration=each.configuration if as_written else None,
            )
            found.setdefault(each.case, []).append(row)
    return list(found.items())

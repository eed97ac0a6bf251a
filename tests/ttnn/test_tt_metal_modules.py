"""Sweep modules and vector files of tt-metal's form, with objects of the real ttnn.

With TT_METAL_CHECKOUT, the directory of a checkout of tt-metal, its own code reads what optrove
writes, and optrove what that code writes.
"""

import json
from types import ModuleType

import pytest

from optrove.frameworks.installed import joined_tables
from optrove.model.records import DeviceKind, Sweep
from optrove.replay.sweep_module import FACTS
from optrove.serializer.describe import describe
from optrove.sweep.tt_metal_json import read_value, write_value
from optrove.sweep.vector_files import vectors_from_file, write_vectors
from optrove.sweep.vectors import module_vectors
from tt_metal import checkout, run

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

MODULE = """
import enum
import ttnn

class Kind(enum.Enum):
    ROUND = enum.auto()

cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))})
shards = ttnn.ShardSpec(cores, [32, 64], ttnn.ShardOrientation.COL_MAJOR)
sharded = ttnn.MemoryConfig(
    ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shards
)

parameters = {
    "nightly": {
        "shape": [(1, 1, 128, 64)],
        "dtype": [ttnn.bfloat16],
        "layout": [ttnn.TILE_LAYOUT],
        "memory": [sharded, ttnn.DRAM_MEMORY_CONFIG],
        "grid": [cores],
        "kind": [Kind.ROUND],
        "placement": [{"mesh": "[1, 2]", "fidelity": "MathFidelity.HiFi2"}],
        "program": [ttnn.CoreGrid(x=8, y=7)],
        "traced_machine_info": [{"device_series": "n300", "mesh_device_shape": [1, 2]}],
    }
}


def run(memory, layout, *, device, **vector):
    assert isinstance(memory, ttnn.MemoryConfig) and layout is ttnn.TILE_LAYOUT
    assert vector["shape"] == (1, 1, 128, 64) and vector["grid"] == cores
    return True, " ".join(sorted({"memory", "layout", *vector}))
"""


@pytest.fixture
def module(tmp_path):
    file = tmp_path / "sweeps" / "mine.py"
    file.parent.mkdir()
    file.write_text(MODULE)
    return file


def test_objects_of_ttnn_are_written_as_tt_metal_reads_them(ttnn):
    tables = joined_tables(("ttnn",))
    cores = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 1))})
    shards = ttnn.ShardSpec(cores, [32, 64], ttnn.ShardOrientation.COL_MAJOR)
    layout = ttnn.TensorMemoryLayout.BLOCK_SHARDED
    memory = ttnn.MemoryConfig(layout, ttnn.BufferType.L1, shards)
    for live in (memory, ttnn.DRAM_MEMORY_CONFIG, shards, cores, ttnn.CoreCoord(1, 2)):
        written = json.loads(json.dumps(write_value(describe(live, tables))))
        kind = type(live)
        assert written["type"] == f"{kind.__module__}.{kind.__qualname__}"
        expected = json.loads(live.to_json())
        assert _numbered(written["data"], ttnn) == expected
        assert read_value(written, ModuleType("none"), tables) == live


def _numbered(data, ttnn):
    """Return the data with the numbers of enum members, which ``to_json`` has."""
    names = {"buffer_type": ttnn.BufferType, "memory_layout": ttnn.TensorMemoryLayout}
    if not isinstance(data, dict):
        return data
    return {
        name: getattr(names[name], item).value if name in names else item
        for name, item in data.items()
    }


def test_a_memory_configuration_that_a_file_does_not_state_is_refused(ttnn):
    tables = joined_tables(("ttnn",))
    grid = [{"start": {"x": 0, "y": 0}, "end": {"x": 0, "y": 0}}]
    spec = {"grid": grid, "orientation": 0, "shard_distribution_strategy": 0, "shard_shape": "?"}
    data = {"buffer_type": "DRAM", "memory_layout": "ND_SHARDED", "nd_shard_spec": spec}
    data["created_with_nd_shard_spec"] = True
    written = {"type": "ttnn._ttnn.tensor.MemoryConfig", "data": data}
    with pytest.raises(ValueError, match="does not have the shape of the shards"):
        read_value(written, ModuleType("none"), tables)
    spec["shard_shape"] = [32, 32]
    made = read_value(written, ModuleType("none"), tables)
    assert list(made.nd_shard_spec.shard_shape) == [32, 32]


@pytest.mark.slow
def test_the_vectors_of_a_file_are_those_of_the_module(module, tmp_path):
    sweep = Sweep(device_kind=DeviceKind.MOCK)
    found = module_vectors(module, sweep)
    assert len(found.vectors) == 2
    assert {where.board for where in found.where.values()} == {"n300"}
    write_vectors(found, tmp_path / "v.json")
    again = vectors_from_file(tmp_path / "v.json", sweep, "mine", module)
    assert (again.vectors, again.where) == (found.vectors, found.where)


@pytest.mark.slow
def test_the_code_of_tt_metal_reads_our_files_and_we_read_those_that_it_writes(module, tmp_path):
    root = checkout("tests/sweep_framework/framework/vector_source.py")
    sweep = Sweep(device_kind=DeviceKind.MOCK)
    found = module_vectors(module, sweep)
    ours, theirs = module.with_name("ours.json"), tmp_path / "theirs.json"
    write_vectors(found, ours)
    run("their_vectors.py", root, ours, tmp_path / "answer.json", cwd=root)
    answer = json.loads((tmp_path / "answer.json").read_text())
    # The text of a member of the module's own enum; no object of this class.
    kept = [name for name, _ in found.vectors[0].job.case.arguments if name not in FACTS]
    names = sorted({*kept, "__absent_keys__"} - {"program"})
    assert answer["verdicts"] == [[True, " ".join(names)]] * len(found.vectors)
    theirs.write_text(json.dumps(answer["document"]))
    again = vectors_from_file(theirs, sweep, "mine", module)
    expected = [
        {name: value for name, value in each.job.case.arguments if name != "program"}
        for each in found.vectors
    ]
    assert [dict(each.job.case.arguments) for each in again.vectors] == expected

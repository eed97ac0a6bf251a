"""tt-metal's own tracer and loader agree with what optrove imports and exports."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tt_metal
from optrove.interop.exporting import export_to
from optrove.interop.importing import import_all
from optrove.trove.place import place_of
from optrove.trove.query import CaseFilters
from optrove.trove.reader import open_reader

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

SUPPORT = str(Path(tt_metal.__file__).parent)
PROGRAM = """
import ttnn
from tt_metal_producer import configurations, elementwise, projections

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2), l1_small_size=24576)
elementwise(ttnn, mesh)
projections(ttnn, mesh)
configurations(ttnn, mesh)
"""
NEEDED = (
    "model_tracer/generic_ops_tracer.py",
    "tests/sweep_framework/master_config_loader_v2.py",
    "ttnn/ttnn/operation_tracer.py",
    "models/common/tensor_utils.py",
)


@pytest.fixture(scope="module")
def produced(tmp_path_factory):
    """Trace a program with tt-metal's tracer: the trace files, the master file, its vectors."""
    checkout = tt_metal.checkout(*NEEDED)
    folder = tmp_path_factory.mktemp("tt-metal")
    traces, master = folder / "traces", folder / "master.json"
    tt_metal.run("tt_metal_producer.py", checkout, traces, master, cwd=folder)
    return checkout, traces, master, loaded(checkout, master)


def loaded(checkout, master):
    """Return the vectors of a master file by operation, as tt-metal's loader gives them."""
    output = master.with_suffix(".vectors.json")
    tt_metal.run("tt_metal_loader.py", checkout, master, output, cwd=master.parent)
    return json.loads(output.read_text())


def exported(tmp_path, source):
    """Import a file or directory, and export it as a master file."""
    store, target = str(tmp_path / "trove.db"), tmp_path / "exported.json"
    import_all(store, [str(source)])
    with open_reader(place_of(store)) as reader:
        export_to(reader, str(target), "master", CaseFilters())
    return target


def by_text(vectors, *without):
    return sorted(json.dumps(cleaned(each, without), sort_keys=True) for each in vectors)


def cleaned(data, without):
    if isinstance(data, list):
        return [cleaned(item, without) for item in data]
    if isinstance(data, dict):
        return {key: cleaned(item, without) for key, item in data.items() if key not in without}
    return data


def test_their_master_file_comes_back_with_equal_vectors(produced, tmp_path):
    checkout, _, master, theirs = produced
    target = exported(tmp_path, master)
    ours = loaded(checkout, target)
    assert ours == theirs
    assert sum(map(len, theirs.values())) >= 21
    written, read = (json.loads(path.read_text())["operations"] for path in (target, master))
    assert written.keys() == read.keys()
    for op, entry in read.items():
        found = {each["config_hash"]: each for each in written[op]["configurations"]}
        for each in entry["configurations"]:
            again = found[each["config_hash"]]
            assert again["arguments"] == each["arguments"]
            assert again["executions"] == each["executions"]


def test_their_trace_files_make_the_master_file_that_they_make_of_them(produced, tmp_path):
    checkout, traces, _, theirs = produced
    ours = loaded(checkout, exported(tmp_path, traces))
    # tt-metal leaves out operations that only move data.
    assert theirs.keys() <= ours.keys()
    for op, vectors in theirs.items():
        assert by_text(ours[op]) == by_text(vectors), op


def test_every_configuration_of_their_master_file_is_replayed(produced):
    """All of these calls returned on the same mock board when they were traced."""
    _, _, master, _ = produced
    tt_metal.run("replay_master.py", master, cwd=master.parent)


def test_our_own_trace_makes_the_master_file_of_their_tracer(produced, tmp_path):
    """All but facts about the host, and ttnn's own hash of a memory configuration."""
    checkout, _, _, theirs = produced
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    store = str(tmp_path / "own.db")
    command = ["trace", "--board", "n300", "--store", store, str(program)]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([SUPPORT, *sys.path])}
    subprocess.run(
        [sys.executable, "-m", "optrove", *command], cwd=tmp_path, env=variables, check=True
    )
    target = tmp_path / "own.json"
    with open_reader(place_of(store)) as reader:
        export_to(reader, str(target), "master", CaseFilters())
    ours = loaded(checkout, target)
    host = ("hash", "tt_kmd", "tt_smi", "tt_firmware", "traced_source")
    for op, vectors in theirs.items():
        assert by_text(ours[op], *host) == by_text(vectors, *host), op

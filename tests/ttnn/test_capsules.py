"""Capsules of ttnn: any layout, dtype and mesh, on boards with numbers."""

import ast
import os
import sys
from zipfile import ZipFile

import pytest

from commands import ask
from forked_python import python

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

PROGRAM = """
import torch, ttnn

ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))

def put(numbers, dtype=ttnn.bfloat16, mapper=None, **keywords):
    keywords = {"layout": ttnn.TILE_LAYOUT, "device": mesh} | keywords
    return ttnn.from_torch(numbers, dtype=dtype, mesh_mapper=mapper, **keywords)

torch.manual_seed(0)
for scale in (1.0, 300.0):
    x = torch.randn(1, 1, 64, 128) * scale
    sharded = put(x, mapper=ttnn.ShardTensorToMesh(mesh, dim=-1))
    ttnn.gelu(sharded)
    blocks = put(x, ttnn.bfloat8_b)
    ttnn.add(blocks, blocks)
    rows = put(x, layout=ttnn.ROW_MAJOR_LAYOUT)
    ttnn.to_layout(rows, ttnn.TILE_LAYOUT)
    grid = ttnn.CoreGrid(y=2, x=1)
    memory = ttnn.create_sharded_memory_config(
        (1, 1, 64, 128), core_grid=grid, strategy=ttnn.ShardStrategy.HEIGHT
    )
    in_l1 = ttnn.to_memory_config(put(x), memory)
    ttnn.multiply(in_l1, in_l1)
    ttnn.deallocate(in_l1)
ids = put(torch.randint(0, 8, (1, 32)), ttnn.uint32, layout=ttnn.ROW_MAJOR_LAYOUT)
ttnn.embedding(ids, put(torch.randn(8, 64), layout=ttnn.ROW_MAJOR_LAYOUT))
ttnn.close_mesh_device(mesh)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A trove with capsules of all calls of a program on two chips."""
    directory = tmp_path_factory.mktemp("capsules")
    script = directory / "program.py"
    script.write_text(PROGRAM)
    path = directory / "trove.db"
    answer = ask(
        *("trace", script, "--board", "n300", "--shadow", "--capsule", "all"),
        *("--store", path, "--json"),
    )
    assert answer["capsules"]["omitted"] == {}
    assert answer["capsules"]["kept"] > 10
    return path


def test_every_case_passes_with_its_recorded_values(store):
    answer = ask(
        *("replay", "*", "--all", "--all-ops", "--device", "shadow", "--values", "capsule"),
        *("--store", store, "--json"),
    )
    assert set(answer["counts"]) == {"passed"}
    noted = [case for case in answer["cases"] if any("values of" in n for n in case["notes"])]
    assert {"ttnn.gelu", "ttnn.add", "ttnn.multiply", "ttnn.embedding"} <= {
        case["op"] for case in noted
    }


def test_a_plain_mock_board_has_no_values_to_keep(tmp_path):
    script = tmp_path / "program.py"
    script.write_text("import ttnn")
    words = ("trace", script, "--board", "n150", "--capsule", "all", "--store", tmp_path / "t.db")
    assert "add --shadow" in ask(*words, exit_code=2)


def run_pytest(directory, *words):
    """Run pytest in another directory on a mock board with numbers."""
    return python("-m", "pytest", "-q", "-p", "no:cacheprovider", *words, cwd=directory)


@pytest.mark.slow
def test_generated_tests_have_the_recorded_values(store, tmp_path):
    words = ("gelu", "add", "multiply", "embedding", "--with-values", "--store", store, "--json")
    answer = ask("testgen", *words, "-o", tmp_path)
    assert all(file["values"] for file in answer["files"])
    assert answer["cases"] > len(answer["files"])
    done = run_pytest(tmp_path, "--optrove-board", "n300", "--optrove-shadow")
    assert f"{answer['cases']} passed" in done.stdout, done.stdout
    text = (tmp_path / "test_gelu.py").read_text()
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert imported - set(sys.stdlib_module_names) - {"collections.abc"} == {
        *("pytest", "torch", "ttnn")
    }


WRONG = """
import optrove.frameworks.ttnn.shadow.shadow as shadow
from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror

original = shadow._Shadow._settle


def settle(self, operation, arguments, keywords, expected, result):
    original(self, operation, arguments, keywords, expected, result)
    if operation.python_fully_qualified_name != "ttnn.silu":
        return
    source = self.mirrors.of(arguments[0])
    if max(float(each.to_torch().float().abs().max()) for each in source.shards) > 500:
        self.mirrors.set(result, source)


shadow._Shadow._settle = settle
"""

MODEL = """
import torch
import ttnn

device = ttnn.open_device(device_id=0)
torch.manual_seed(0)
for scale in (1.0, 800.0, 3.0):
    numbers = (torch.randn(2, 64, 128) * scale).clamp(-600, 600)
    x = ttnn.from_torch(numbers, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.add(ttnn.silu(x), x)
ttnn.close_device(device)
"""


@pytest.mark.slow
def test_an_op_that_is_wrong_for_certain_values_is_found_and_travels_as_a_zip(
    tmp_path, monkeypatch
):
    patch = tmp_path / "patch"
    patch.mkdir()
    (tmp_path / "model.py").write_text(MODEL)
    path = tmp_path / "trove.db"
    words = ("--board", "n150", "--shadow", "--capsule", "all", "--store", path)
    ask("trace", tmp_path / "model.py", *words)
    (patch / "sitecustomize.py").write_text(WRONG)
    monkeypatch.setenv("PYTHONPATH", str(patch), prepend=os.pathsep)
    common = ("--device", "shadow", "--board", "n150", "--store", path, "--json")
    assert ask("sweep", "silu", "add", *common)["counts"] == {"passed": 2}
    found = ask("sweep", "silu", "add", "--values", "capsule", *common, exit_code=1)
    (case,) = [each for each in found["cases"] if each["outcome"] != "passed"]
    assert (case["op"], case["outcome"]) == ("ttnn.silu", "numerics")
    made = tmp_path / "silu.zip"
    shrunk = ask("shrink", case["case_id"], "--values", "capsule", "-o", made, *common)
    (tensor,) = shrunk["shrunk"]["arguments"].values()
    assert tensor["$tensor"]["shape"] == [32, 32]
    there = tmp_path / "there"
    with ZipFile(made) as archive:
        archive.extractall(there)
    board = ("--optrove-board", "n150", "--optrove-shadow")
    done = run_pytest(there, *board)
    assert "1 failed" in done.stdout, done.stdout
    assert "with the golden function" in done.stdout
    (patch / "sitecustomize.py").unlink()
    assert "1 passed" in run_pytest(there, *board).stdout
    assert "ttnn 0." in (there / "environment.txt").read_text()

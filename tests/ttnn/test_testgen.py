"""Generated tests run on mock boards: as pytest files with and without numbers, and standalone."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from forked_python import python
from optrove.cli.main import main

pytestmark = [pytest.mark.ttnn, pytest.mark.torch, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

ONE_CHIP = """
import sys

import optrove

with optrove.mock_board("n300"):
    import torch
    import ttnn

    device = ttnn.open_device(device_id=0)
    cores = ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 0))])
    shards = ttnn.ShardSpec(cores, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
    sharded = ttnn.MemoryConfig(
        ttnn.TensorMemoryLayout.HEIGHT_SHARDED, ttnn.BufferType.L1, shards
    )
    precise = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi4)

    def make(*shape, dtype=ttnn.bfloat16):
        return ttnn.zeros(shape, dtype, ttnn.TILE_LAYOUT, device)

    with optrove.trace(sys.argv[1], model="small"):
        x, weights = make(1, 1, 128, 64), make(64, 32, dtype=ttnn.bfloat8_b)
        ttnn.relu(ttnn.to_memory_config(x, sharded), memory_config=sharded)
        ttnn.linear(x, weights, bias=make(1, 32), activation="relu", compute_kernel_config=precise)
        ttnn.linear(x, make(64, 32), bias=make(1, 32), activation="gelu")
        ttnn.add(x, x)
        ttnn.multiply(x, 0.5)
        ttnn.multiply_(x, 2.0)
        ttnn.softmax(x, dim=-1)
        ttnn.concat([x, x], dim=2)
        ttnn.topk(x, k=32, dim=-1)
        ttnn.slice(x, [0, 0, 0, 0], [1, 1, 64, 64])
        ttnn.split(x, 32, dim=3)
        ttnn.pad(x, [(0, 0), (0, 0), (0, 32), (0, 0)], value=float("-inf"))
        ids = ttnn.zeros((1, 32), ttnn.uint32, ttnn.ROW_MAJOR_LAYOUT, device)
        ttnn.embedding(ids, make(128, 64), layout=ttnn.TILE_LAYOUT)
        x.reshape([1, 2, 64, 64])
        ttnn.from_torch(torch.zeros(4, 4), dtype=ttnn.float32)
    ttnn.close_device(device)
"""

EIGHT_CHIPS = """
import sys

import optrove

with optrove.mock_board("t3k"):
    import torch
    import ttnn

    ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(2, 4))

    def make(*shape, dims):
        mapper = ttnn.ShardTensor2dMesh(mesh, dims=dims, mesh_shape=(2, 4))
        return ttnn.from_torch(
            torch.zeros(shape),
            dtype=ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=mesh,
            mesh_mapper=mapper,
        )

    with optrove.trace(sys.argv[1], model="spread"):
        split, same = make(1, 2, 64, 128, dims=(1, 3)), make(1, 1, 64, 32, dims=(None, None))
        ttnn.add(split, same)
        ttnn.matmul(split, make(1, 1, 32, 128, dims=(None, 3)))
        ttnn.all_gather(split, dim=3, cluster_axis=1, topology=ttnn.Topology.Linear)
    ttnn.close_mesh_device(mesh)
"""


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """What gives the directory of tests that were generated from a traced program."""
    stores = {}

    def generate(script, *words):
        directory = tmp_path_factory.mktemp("generated")
        if script not in stores:
            stores[script] = directory / "trove.db"
            run(["-c", script, stores[script]], directory)
        store = stores[script]
        asked = ["testgen", "*", "-o", str(directory / "tests"), "--store", str(store), "--json"]
        result = CliRunner().invoke(main, [*asked, *words])
        assert result.exit_code == 0, result.output
        data = json.loads(result.stdout)
        assert data["left_out"] == []
        return directory / "tests", data["cases"]

    return generate


def run(words, directory, exit_code=0):
    variables = {name: text for name, text in os.environ.items() if not name.startswith("OPTROVE")}
    done = python(*words, cwd=directory, env=variables)
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout


def outcome(directory, *words, exit_code=0):
    """Run generated tests in a process of their own; return the last line, and all lines."""
    command = ["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *words, "."]
    output = run(command, directory, exit_code)
    summary = [line for line in output.splitlines() if " passed" in line][-1]
    return summary, output


def spoil(path, right, wrong):
    """Write a test again, under another name, so that it has to fail."""
    text = path.read_text()
    assert right in text
    path.with_stem(f"{path.stem}_spoiled").write_text(text.replace(right, wrong))


def test_calls_on_one_chip_are_accepted_and_numbers_said_to_be_missing(generated):
    directory, cases = generated(ONE_CHIP)
    summary, output = outcome(directory, "--optrove-board", "n300", "-W", "error")
    assert summary.startswith(f"{cases} passed, ")
    assert "only the specs of outputs were checked" in output


def test_calls_on_one_chip_have_the_numbers_of_golden_functions_and_wrong_ones_fail(generated):
    directory, cases = generated(ONE_CHIP)
    flipped = "lambda x: result.append(x.flip(-1))"
    spoil(directory / "test_softmax.py", "result.append, golden", f"{flipped}, golden")
    spoil(directory / "test_concat.py", "Spec((1, 1, 256, 64)", "Spec((1, 1, 255, 64)")
    spoil(directory / "test_add.py", "(tensor)[chip])", "(tensor)[chip]) * 1.05")
    words = ("--optrove-board", "n300", "--optrove-shadow")
    summary, output = outcome(directory, *words, exit_code=1)
    assert summary.startswith(f"3 failed, {cases} passed")
    assert "FAILED test_add_spoiled.py" in output
    assert "output 0 on chip 0: tile (" in output
    assert "FAILED test_concat_spoiled.py" in output
    assert "recorded: [(1, 1, 255, 64), " in output
    assert "FAILED test_softmax_spoiled.py" in output
    assert "with the golden function on chip 0" in output
    uncompared = [line for line in output.splitlines() if "numbers were not compared" in line]
    assert [line for line in uncompared if "test_tensor_reshape" not in line] == []


def test_calls_on_a_mesh_run_with_and_without_numbers(generated):
    directory, cases = generated(EIGHT_CHIPS)
    for words in ((), ("--optrove-shadow",)):
        summary, _ = outcome(directory, "--optrove-board", "t3k", *words)
        assert summary.startswith(f"{cases} passed")


def test_a_mesh_that_is_not_there_is_a_reason_to_skip(generated):
    directory, cases = generated(EIGHT_CHIPS)
    command = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "."]
    output = run([*command, "--optrove-board", "n300"], directory)
    assert f"{cases} skipped" in output
    assert "8 chips are needed, and there are 2" in output


def test_a_standalone_file_runs_without_pytest_and_optrove_s_help(generated):
    directory, cases = generated(ONE_CHIP, "--standalone")
    files = sorted(directory.glob("test_linear_*.py"))
    assert len(files) == 2
    assert len(list(directory.glob("*.py"))) == cases
    script = (
        "import optrove, runpy, sys, warnings\n"
        "warnings.simplefilter('error')\n"
        "with optrove.mock_board('n300', shadow=True):\n"
        "    for path in sys.argv[1:]:\n"
        "        runpy.run_path(path, run_name='__main__')\n"
    )
    run(["-c", script, *files], directory)


def test_where_no_device_opens_a_sentence_says_so_without_a_backtrace(generated):
    nowhere = {**os.environ, "TT_METAL_MOCK_CLUSTER_DESC_PATH": "no such file"}
    alone, _ = generated(ONE_CHIP, "--standalone", "--limit", "1")
    grouped, _ = generated(ONE_CHIP, "--limit", "1")
    tested = ["-m", "pytest", "-p", "no:cacheprovider", "-q"]
    for words in (
        [next(alone.glob("test_add_*.py"))],
        [*tested, next(alone.glob("test_add_*.py"))],
        [*tested, grouped / "test_add.py"],
    ):
        done = python(*words, env=nowhere)
        output = done.stdout + done.stderr
        assert done.returncode == 1, output
        assert "the device could not be opened: " in output
        assert "--optrove-board n300 --optrove-shadow" in output
        assert f"{words[-1].name} --optrove-board" in output
        assert "SystemExit:" not in output
        assert "libtt_metal.so(" not in output

"""Tracing of ttnn in pytest: the commands and examples of tt-metal's guides, on a mock board."""

import csv
import json
from collections import Counter

import pytest

from optrove.model.ops import Counting
from optrove.model.records import DeviceKind
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader

pytestmark = pytest.mark.ttnn

CONFTEST = """
    import pytest
    import ttnn  # as tt-metal's own conftest does

    def pytest_addoption(parser):
        parser.addoption("--trace-params", action="store_true", default=False)
        parser.addoption("--ops-jsonl", action="store", default=None)
        parser.addoption("--results-csv", action="store", default=None)

    @pytest.fixture
    def device():
        device = ttnn.open_device(device_id=0)
        yield device
        ttnn.close_device(device)
"""

GUIDE = """
    import ttnn

    def test_addition(device):
        a = ttnn.rand(shape=[2, 3], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        b = ttnn.rand(shape=[2, 3], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        c = ttnn.add(a, b)

    def test_from_torch(device):
        import torch
        torch_tensor = torch.randn([2, 3], dtype=torch.bfloat16)
        tensor_host = ttnn.from_torch(torch_tensor, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
        tensor_device = ttnn.to_device(
            tensor_host, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG
        )

    def test_methods(device):
        a = ttnn.rand([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        a[0:1, 0:32].cpu().to_torch()
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("OPTROVE_SHADOW", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV", "HF_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPTROVE_BOARD", "n150")


@pytest.fixture
def project(pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_mlp_1d=GUIDE)
    return pytester


def ops(directory):
    """The ops of the files in a directory, by the numbers in their names."""
    files = sorted(directory.iterdir(), key=lambda path: int(path.name.partition("_")[0]))
    contents = [json.loads(path.read_text()) for path in files]
    for path, content in zip(files, contents, strict=True):
        name = content["operation_name"].replace(".", "_")
        stem = f"{content['operation_number']}_{name}_{content['timestamp']}"
        assert path.name == f"{stem}.json"
    return [content["operation_name"] for content in contents]


@pytest.mark.torch
def test_the_examples_of_the_guide_give_the_files_that_it_says(project):
    result = project.runpytest_subprocess(
        "--trace-params", "--trace-params-keep", "-k", "test_addition or test_from_torch"
    )
    result.assert_outcomes(passed=2, deselected=1)
    result.stdout.fnmatch_lines(["5 parameter files: *operation_parameters"])
    assert ops(project.path / "generated" / "ttnn" / "operation_parameters") == [
        *("ttnn.rand", "ttnn.rand", "ttnn.add"),
        *("ttnn.from_torch", "ttnn.to_device"),
    ]


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_files_are_removed_after_the_session(project, processes):
    project.makepyfile(
        test_there="""
        import os

        def test_files_are_there_while_it_runs(device):
            import ttnn
            tensor = ttnn.zeros([2, 3], device=device)
            directory = "generated/ttnn/operation_parameters"
            (zeros,) = [name for name in os.listdir(directory) if "ttnn_zeros" in name]
            assert '"values"' not in open(os.path.join(directory, zeros)).read()
        """
    )
    chosen = ("test_mlp_1d.py::test_addition", "test_there.py")
    result = project.runpytest_subprocess("--trace-params", *chosen, *processes)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["* parameter files: *, removed (keep them with *)"])
    assert not (project.path / "generated").exists()


@pytest.mark.torch
def test_the_commands_of_the_plan_work_as_written(project):
    result = project.runpytest_subprocess(
        "test_mlp_1d.py", "--ops-jsonl", "op_calls.jsonl", "--results-csv", "results.csv", "-q"
    )
    result.assert_outcomes(passed=3)
    text = (project.path / "op_calls.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    tests = Counter(line["test_nodeid"] for line in lines if line["depth"] == 0)
    assert tests["test_mlp_1d.py::test_addition"] == 3
    assert tests["test_mlp_1d.py::test_from_torch"] == 2
    assert {line["module"] for line in lines} == {"mlp_1d"}
    assert all(line["op_name"].startswith("ttnn.") for line in lines)
    add = next(line for line in lines if line["op_name"] == "ttnn.add")
    assert (add["op_index"], add["phase"], len(add["inputs"])) == (2, "call", 2)
    with (project.path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows] == ["passed"] * 3
    assert {row["run_id"] for row in rows} == {line["run_id"] for line in lines}
    assert not list(project.path.glob("*.journal"))
    assert "leaked" not in result.stderr.str(), "the trace keeps objects of ttnn alive"


def test_a_trove_gets_the_board_and_all_calls(project):
    project.makepyfile(
        test_small="""
        import pytest, ttnn

        @pytest.mark.parametrize("number", range(3))
        def test_sum(device, number):
            a = ttnn.rand([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            ttnn.add(a, number)[0:1, 0:32].cpu()
        """
    )
    result = project.runpytest_subprocess("--optrove-store", "trove.db", "test_small.py", "-n", "2")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["trove: *trove.db, *"])
    with open_reader(place_of(str(project.path / "trove.db"))) as reader:
        (row,) = reader.runs(counting=Counting(all_ops=True, nested=True))
        ops = reader.op_names()
        calls = list(reader.calls(row.run.id))
    assert row.run.source == "test_small.py"
    assert row.run.environment.board == "n150"
    assert row.run.environment.device_kind is DeviceKind.MOCK
    assert dict(row.tests) == {"passed": 3}
    assert row.complete
    assert len(calls) == row.calls
    assert {"ttnn.rand", "ttnn.add", "ttnn.Tensor.cpu"} <= set(ops)


@pytest.mark.torch
def test_values_are_written_when_asked_for(project):
    project.makepyfile(
        test_values="""
        import torch, ttnn

        def test_values(device):
            ones = torch.ones(2, 3)
            tensor = ttnn.from_torch(ones, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            ttnn.add(tensor, tensor)
        """
    )
    options = ("--trace-params", "--trace-params-with-values", "--trace-params-keep")
    result = project.runpytest_subprocess("test_values.py", "--optrove-shadow", *options)
    result.assert_outcomes(passed=1)
    (add,) = (project.path / "generated" / "ttnn" / "operation_parameters").glob("*_ttnn_add_*")
    returned = json.loads(add.read_text())["return_value"]
    assert returned["values"] == [[2.0] * 3] * 2
    assert (returned["dtype"], returned["original_dtype"]) == ("float32", "bfloat16")


def test_calls_of_module_imports_and_fixtures_are_seen_once(project):
    project.makepyfile(
        test_places="""
        import pytest, ttnn

        host = ttnn.Tensor([1.0] * 1024, [32, 32], ttnn.float32, ttnn.ROW_MAJOR_LAYOUT)
        tiled = host.to(ttnn.TILE_LAYOUT)

        @pytest.fixture
        def ones(device):
            yield ttnn.to_device(tiled, device)

        def test_sum(ones):
            ttnn.add(ones, ones)
        """
    )
    result = project.runpytest_subprocess("--ops-jsonl", "ops.jsonl", "test_places.py")
    result.assert_outcomes(passed=1)
    lines = [json.loads(line) for line in (project.path / "ops.jsonl").read_text().splitlines()]
    test = "test_places.py::test_sum"
    assert [(line["test_nodeid"], line["phase"], line["op_name"]) for line in lines] == [
        (None, None, "ttnn.Tensor.to"),
        (test, "setup", "ttnn.to_device"),
        (test, "call", "ttnn.add"),
    ]

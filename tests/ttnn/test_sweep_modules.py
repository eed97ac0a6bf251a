"""Sweep modules as people have them, over traced configurations, on a mock board with numbers."""

import json
from collections import Counter
from math import prod

import pytest

from masters import configuration, master, memory, tensor
from optrove.model.records import Outcome, Sweep
from optrove.replay.runner import run_jobs
from optrove.sweep import MasterConfigLoader, unpack_traced_config
from optrove.sweep.vector_files import vectors_from_file, write_vectors
from optrove.sweep.vectors import VectorRequest, module_vectors

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

UNARY = """
import torch
import ttnn

# 1. Import the loader and helper function
from optrove.sweep import MasterConfigLoader, unpack_traced_config
from optrove.metrics import check_with_pcc

TIMEOUT = 60

# 2. Load and add to parameters (before your parameters dict)
loader = MasterConfigLoader()
# Default: Run exact 30 traced configs
model_traced_params = loader.get_suite_parameters("sigmoid_accurate")

parameters = {
    "nightly": {
        "input_shape": [[1, 1, 32, 32]],
        "input_a_dtype": [ttnn.bfloat16],
        "input_a_layout": [ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT],
        "input_a_memory_config": [ttnn.DRAM_MEMORY_CONFIG],
        "output_memory_config": [ttnn.L1_MEMORY_CONFIG],
    },
    "xfail_wide": {"input_shape": [[1, 1, 32, 33]], "input_a_layout": [ttnn.TILE_LAYOUT]},
    "model_traced": model_traced_params,  # Just add this line!
}


def invalidate_vector(test_vector):
    if test_vector.get("input_a_layout") == ttnn.ROW_MAJOR_LAYOUT:
        return True, "tiles only"
    return False, None


# 3. In your run() function, add traced_config_name parameter and ONE line to unpack
def run(
    input_shape=None,
    input_a_dtype=None,
    input_a_layout=None,
    input_a_memory_config=None,
    output_memory_config=None,
    traced_config_name=None,  # Add this parameter
    *,
    device,
):
    # Unpack all config values in ONE line
    if traced_config_name:
        input_shape, input_a_dtype, input_a_layout, input_a_memory_config, output_memory_config = unpack_traced_config(traced_config_name)

    if input_shape[-1] == 33:
        raise RuntimeError("TT_FATAL: widths of 33 are not for us")
    numbers = torch.randn(input_shape)
    given = ttnn.from_torch(
        numbers,
        dtype=input_a_dtype,
        layout=input_a_layout,
        device=device,
        memory_config=input_a_memory_config,
    )
    assert given.memory_config() == input_a_memory_config
    result = ttnn.sigmoid_accurate(given, memory_config=output_memory_config)
    return [check_with_pcc(torch.sigmoid(numbers), ttnn.to_torch(result), 0.99), 1000]
"""  # noqa: E501 - to be copied as it is

BINARY = """
import torch
import ttnn

# 1. Import the loader and BINARY helper function
from optrove.sweep import MasterConfigLoader, unpack_binary_traced_config
from optrove.metrics import check_with_pcc

# 2. Load and add to parameters (same as unary)
loader = MasterConfigLoader()
model_traced_params = loader.get_suite_parameters("add")  # Automatically detects binary operation

parameters = {"model_traced": model_traced_params}  # Same as unary!


def mesh_device_fixture():
    device = ttnn.open_device(device_id=0)
    yield device, "one chip"
    ttnn.close_device(device)


# 3. In your run() function, use unpack_BINARY_traced_config
def run(
    input_shape=None,  # IMPORTANT: All parameters must have default values!
    input_a_dtype=None,
    input_b_dtype=None,
    input_a_layout=None,
    input_b_layout=None,
    input_a_memory_config=None,
    input_b_memory_config=None,
    traced_config_name=None,
    *,
    device,
):
    # Unpack BINARY config (7 values) in ONE line
    if traced_config_name:
        input_shape, input_a_dtype, input_b_dtype, input_a_layout, input_b_layout, \\
            input_a_memory_config, input_b_memory_config = unpack_binary_traced_config(traced_config_name)

    numbers = torch.randn(input_shape), torch.randn(input_shape)
    inputs = [
        ttnn.from_torch(each, dtype=dtype, layout=layout, device=device, memory_config=memory)
        for each, dtype, layout, memory in zip(
            numbers,
            (input_a_dtype, input_b_dtype),
            (input_a_layout, input_b_layout),
            (input_a_memory_config, input_b_memory_config),
        )
    ]
    return check_with_pcc(sum(numbers), ttnn.to_torch(ttnn.add(*inputs)), 0.99)
"""  # noqa: E501 - to be copied as it is


def shards(rows, width=32):
    grid = [{"start": {"x": 0, "y": 0}, "end": {"x": rows - 1, "y": 0}}]
    stored_in = {"grid": grid, "shape": [32, width], "orientation": "ROW_MAJOR"}
    return memory("HEIGHT_SHARDED", "L1", stored_in)


def unary(rows, width, number):
    given = tensor((1, 1, 32 * rows, width), stored_in=shards(rows, width), tensor_placement=None)
    return configuration({"input_tensor": given}, number=number)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with both modules and a master file of 30 and 3 configurations."""
    directory = tmp_path_factory.mktemp("place")
    sigmoid = [
        unary(rows, width, 10 * rows + place)
        for rows in range(1, 7)
        for place, width in enumerate((32, 64, 96, 128, 160))
    ]
    again = configuration(sigmoid[0]["arguments"] | {"memory_config": memory()}, number=90)
    one = tensor((1, 1, 32, 64), "BFLOAT16", tensor_placement=None)
    adding = [
        configuration({"input_tensor_a": one, "input_tensor_b": other}, number=100 + number)
        for number, other in enumerate(
            (one, tensor((1, 1, 32, 64), stored_in=shards(1, 64), tensor_placement=None), 2.0)
        )
    ]
    document = master(*sigmoid, again, op="ttnn.sigmoid_accurate")
    document["operations"]["ttnn.add"] = {"configurations": adding}
    (directory / "master.json").write_text(json.dumps(document))
    (directory / "sigmoid.py").write_text(UNARY)
    (directory / "adding.py").write_text(BINARY)
    return directory


@pytest.fixture(autouse=True)
def traced(place, monkeypatch):
    monkeypatch.setenv("TTNN_MASTER_JSON_PATH", str(place / "master.json"))


@pytest.mark.slow
def test_the_examples_run_with_only_the_import_line_changed(place, tmp_path):
    sigmoid = module_vectors(place / "sigmoid.py", Sweep(board="n150"))
    adding = module_vectors(place / "adding.py", Sweep(board="n150"))
    assert Counter(each.suite for each in sigmoid.vectors) == {
        "nightly": 1,
        "xfail_wide": 1,
        "model_traced": 30,
    }
    assert sigmoid.left_out == (("invalid: tiles only", 1),)
    assert sigmoid.notes == ("ttnn.sigmoid_accurate: 31 traced, 30 distinct",)
    assert adding.notes == ("ttnn.add: 3 traced, 2 distinct, 1 without 2 tensors left out",)
    assert {each.job.timeout_ns for each in sigmoid.vectors} == {60 * 10**9}

    write_vectors(adding, tmp_path / "adding.json")
    again = vectors_from_file(tmp_path / "adding.json", Sweep(), "adding", place / "adding.py")
    assert again.vectors == adding.vectors

    jobs = [each.job for each in (*sigmoid.vectors, *again.vectors)]
    attempts = {each.case_id: each for each in run_jobs(jobs, board="n150")}
    suites = {each.case_id: each.suite for each in (*sigmoid.vectors, *again.vectors)}
    rejected = [each for each in attempts.values() if suites[each.case_id] == "xfail_wide"]
    assert [each.outcome for each in rejected] == [Outcome.REJECTED]
    passed = [each for each in attempts.values() if suites[each.case_id] != "xfail_wide"]
    assert len(passed) == 33
    assert {each.outcome for each in passed} == {Outcome.PASSED}, [each.detail for each in passed]
    assert all(each.measurements[0].value > 0.99 for each in passed)


def test_all_cases_gives_live_values_for_every_combination(place, ttnn):
    loader = MasterConfigLoader()
    every = loader.get_suite_parameters("sigmoid_accurate", all_cases=True)
    counts = {name: len(values) for name, values in every.items()}
    assert counts == {
        "input_shape": 30,
        "input_a_dtype": 1,
        "input_a_layout": 1,
        "input_a_memory_config": 30,
        "output_memory_config": 1,
    }
    assert all(isinstance(each, ttnn.MemoryConfig) for each in every["input_a_memory_config"])
    assert every["input_a_dtype"] == [ttnn.bfloat8_b]
    assert list(loader.get_suite_parameters("add", all_cases=True)) == [
        "input_shape",
        "input_a_dtype",
        "input_b_dtype",
        "input_a_layout",
        "input_b_layout",
        "input_a_memory_config",
        "input_b_memory_config",
    ]
    sweep = Sweep(suite="model_traced", board="n150")
    found = module_vectors(place / "sigmoid.py", sweep, VectorRequest(all_cases=True))
    assert len(found.vectors) == prod(counts.values()) == 900


def test_names_give_the_exact_shards_that_were_traced(place, ttnn):
    loader = MasterConfigLoader()
    for name in loader.get_suite_parameters("sigmoid_accurate")["traced_config_name"]:
        shape, dtype, layout, memory, output = unpack_traced_config(name)
        assert (dtype, layout) == (ttnn.bfloat8_b, ttnn.TILE_LAYOUT)
        assert memory.shard_spec.shape == [32, shape[-1]]
        assert memory.shard_spec.grid.num_cores() == shape[-2] // 32
        assert output == memory

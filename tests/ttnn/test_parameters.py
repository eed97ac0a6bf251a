"""The files of live tracing, written of live objects on a mock board."""

import json
import math

import pytest

import optrove
from observed_calls import observed
from optrove.capture.parameters import ParameterFiles, parameter_directory
from optrove.capture.sinks import OpLineWriter
from optrove.errors import NoNumbers
from optrove.frameworks.tensor_values import numbers, sketch
from optrove.serializer.op_lines import read_op_lines
from optrove.serializer.wire import encode

pytestmark = pytest.mark.ttnn


@pytest.fixture
def torch():
    import torch

    return torch


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "operation_parameters"


@pytest.fixture
def sink(directory):
    return ParameterFiles(lambda: directory)


@pytest.fixture
def sink_with_values(directory):
    return ParameterFiles(lambda: directory, values=True)


def call(ttnn, sink, name, *arguments, **keywords):
    """Call an op, and hand the call to the sink."""
    result = getattr(ttnn, name)(*arguments, **keywords)
    sink.completed(observed(*arguments, op=f"ttnn.{name}", keywords=keywords, result=result))
    return result


def written(directory):
    paths = sorted(directory.iterdir(), key=lambda path: int(path.name.partition("_")[0]))
    contents = [json.loads(path.read_text()) for path in paths]
    for path, content in zip(paths, contents, strict=True):
        op = content["operation_name"].replace(".", "_")
        assert path.stem == f"{content['operation_number']}_{op}_{content['timestamp']}"
    return contents


def on_device():
    """What is written of a [2, 3] bfloat16 tensor in tiles, but for its memory."""
    return {
        "type": "ttnn.Tensor",
        "shape": [2, 3],
        "dtype": "bfloat16",
        "original_shape": [2, 3],
        "original_dtype": "bfloat16",
        "layout": "TILE",
        "storage_type": "DEVICE_STORAGE",
    }


def without_memory(form):
    assert form["memory_config"]["$struct"] == "ttnn.MemoryConfig"
    return {name: part for name, part in form.items() if name != "memory_config"}


def add_two(ttnn, device, sink):
    keywords = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
    a = call(ttnn, sink, "rand", shape=[2, 3], **keywords)
    b = call(ttnn, sink, "rand", shape=[2, 3], **keywords)
    return a, b, call(ttnn, sink, "add", a, b, dtype=None, memory_config=None)


def test_the_guides_first_example_gives_its_three_files(ttnn, device, sink, directory):
    add_two(ttnn, device, sink)
    first, second, third = written(directory)
    assert [each["operation_name"] for each in (first, second, third)] == [
        *("ttnn.rand", "ttnn.rand", "ttnn.add")
    ]
    assert first["kwargs"] == {
        "shape": [2, 3],
        "dtype": {"$symbol": "ttnn.DataType", "name": "BFLOAT16"},
        "layout": {"$symbol": "ttnn.Layout", "name": "TILE"},
        "device": {"$device": "ttnn.MeshDevice", "mesh_shape": [1, 1], "identity": 0},
    }
    assert (first["args"], first["num_tensors"]) == ([], 1)
    assert third.keys() == {
        *("operation_number", "operation_name", "timestamp", "args", "kwargs", "num_tensors"),
        "return_value",
    }
    assert third["operation_number"] == 3
    assert [each["position"] for each in third["args"]] == [0, 1]
    for each in (*(entry["value"] for entry in third["args"]), third["return_value"]):
        assert without_memory(each) == on_device()
    assert third["kwargs"] == {"dtype": None, "memory_config": None}
    assert third["num_tensors"] == 3


def test_the_guides_second_example_gives_its_two_files(ttnn, device, torch, sink, directory):
    source = torch.randn([2, 3], dtype=torch.bfloat16)
    host = call(ttnn, sink, "from_torch", source, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    memory = ttnn.DRAM_MEMORY_CONFIG
    call(ttnn, sink, "to_device", host, device=device, memory_config=memory)
    first, second = written(directory)
    assert first["args"] == [
        {
            "position": 0,
            "value": {"type": "torch.Tensor", "shape": [2, 3], "dtype": "bfloat16"},
        }
    ]
    on_host = {**on_device(), "storage_type": "HOST_STORAGE"}
    assert without_memory(first["return_value"]) == on_host
    assert without_memory(second["args"][0]["value"]) == on_host
    assert without_memory(second["return_value"]) == on_device()
    assert second["kwargs"]["memory_config"] == optrove.to_jsonable(memory)
    assert optrove.from_jsonable(second["return_value"]["memory_config"]) == memory
    assert (first["num_tensors"], second["num_tensors"]) == (2, 2)


def test_with_values_a_tensor_holds_its_numbers_as_float32(
    ttnn, device, torch, report, sink_with_values, directory
):
    source = torch.tensor([[0.5, 1.0, -2.0], [float("nan"), float("inf"), 3.0]])
    keywords = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT, "device": device}
    tensor = call(ttnn, sink_with_values, "from_torch", source.bfloat16(), **keywords)
    call(ttnn, sink_with_values, "add", tensor, tensor)
    first, second = written(directory)
    values = [[0.5, 1.0, -2.0], ["nan", "inf", 3.0]]
    assert first["args"][0]["value"] == {
        "type": "torch.Tensor",
        "shape": [2, 3],
        "dtype": "float32",
        "values": values,
    }
    expected = {**on_device(), "dtype": "float32", "values": values}
    assert without_memory(first["return_value"]) == expected
    assert without_memory(second["args"][1]["value"]) == expected
    assert second["return_value"]["values"] == [[1.0, 2.0, -4.0], ["nan", "inf", 6.0]]


def test_a_tensor_on_a_mesh_holds_the_values_of_each_part(
    ttnn, mesh, torch, report, sink_with_values, directory
):
    part = mesh.create_submesh(ttnn.MeshShape(1, 2))
    tensor = ttnn.from_torch(
        torch.arange(4, dtype=torch.int32).reshape(2, 2),
        device=part,
        mesh_mapper=ttnn.ShardTensorToMesh(part, dim=0),
    )
    call(ttnn, sink_with_values, "identity", tensor)
    ttnn.close_mesh_device(part)
    (content,) = written(directory)
    value = content["args"][0]["value"]
    assert value["shape"] == [1, 2]
    assert value["values"] == [[[0, 1]], [[2, 3]]]
    assert (value["parts"], value["dtype"]) == (2, "int32")


def test_a_mock_board_without_shadow_has_no_values_to_show(
    ttnn, device, torch, sink_with_values, directory
):
    host = ttnn.from_torch(torch.ones(1, 2))
    call(ttnn, sink_with_values, "to_device", host, device=device)
    (content,) = written(directory)
    assert content["args"][0]["value"]["values"] == [[1.0, 1.0]]
    assert "values" not in content["return_value"]
    assert "mock board" in content["return_value"]["values_omitted"]
    assert content["return_value"]["dtype"] == "float32"


def test_a_deallocated_tensor_is_written_without_values(
    ttnn, device, torch, report, sink_with_values, directory
):
    tensor = ttnn.from_torch(torch.ones(2, 3), device=device)
    call(ttnn, sink_with_values, "deallocate", tensor)
    (content,) = written(directory)
    value = content["args"][0]["value"]
    assert (value["shape"], value["dtype"]) == ([2, 3], "float32")
    assert value["values_omitted"] == "the tensor was deallocated"
    assert "return_value" not in content


def test_nothing_is_read_while_a_trace_is_captured(ttnn, device, torch, report, monkeypatch):
    tensor = ttnn.from_torch(torch.ones(2, 3), device=device)
    assert numbers(tensor) == [[1.0] * 3] * 2
    # Capturing for real ends the process on a mock board.
    monkeypatch.setattr(ttnn, "is_trace_capture_active", lambda asked: asked.id() == device.id())
    with pytest.raises(NoNumbers, match="capturing"):
        numbers(tensor)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "bfloat8_b", "bfloat4_b"])
def test_numbers_of_a_host_tensor_are_those_that_ttnn_gives(ttnn, torch, dtype):
    source = torch.tensor([[1.0, -0.5, 0.25], [0.0, 2.0, 4.0]])
    host = ttnn.from_torch(source, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT)
    assert numbers(host) == ttnn.to_torch(host).tolist()
    assert sketch(host)["max"] == 4.0


def test_a_dtype_that_ttnn_itself_cannot_read_says_so(ttnn, torch):
    host = ttnn.from_torch(torch.ones(2, 3), dtype=ttnn.fp8_e4m3)
    with pytest.raises(NoNumbers, match="could not be read"):
        numbers(host)


def test_a_sketch_keeps_whole_numbers_exact_and_counts_what_is_no_number(ttnn, torch):
    whole = ttnn.from_torch(torch.tensor([[0, 2**31 - 1], [-(2**31), 0]], dtype=torch.int32))
    facts = sketch(whole)
    assert (facts["min"], facts["max"], facts["count"]) == (-(2**31), 2**31 - 1, 4)
    assert isinstance(facts["max"], int)
    assert (facts["zero_share"], facts["nan_count"]) == (0.5, 0)
    floats = torch.tensor([1.0, 3.0, math.nan, -math.inf], dtype=torch.bfloat16)
    assert sketch(floats) == {
        "count": 4,
        "min": -math.inf,
        "max": 3.0,
        "mean": 2.0,
        "std": 1.0,
        "zero_share": 0.0,
        "nan_count": 1,
    }
    assert sketch(torch.ones(0))["min"] is None
    assert sketch(torch.tensor([2**63 - 1]))["max"] == 2**63 - 1
    with pytest.raises(NoNumbers, match="order"):
        sketch(torch.ones(1, dtype=torch.complex64))


def test_torch_tensors_of_every_kind_are_read_or_refused(torch):
    assert numbers(torch.tensor(3)) == 3
    assert numbers(torch.tensor([[True], [False]])) == [[True], [False]]
    assert numbers(torch.nn.Parameter(torch.ones(2, dtype=torch.float16))) == [1.0, 1.0]
    assert numbers(torch.ones(2, dtype=torch.float8_e4m3fn)) == [1.0, 1.0]
    assert numbers(torch.tensor([1 + 2j]).conj()) == [1 - 2j]
    assert numbers(torch.eye(2).to_sparse()) == [[1.0, 0.0], [0.0, 1.0]]
    with pytest.raises(NoNumbers, match="meta"):
        numbers(torch.ones(2, device="meta"))
    with pytest.raises(NoNumbers, match=r"builtins\.list"):
        numbers([1, 2])


def test_ttnns_own_settings_choose_the_directory(ttnn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = ttnn.CONFIG.root_report_path
    assert parameter_directory(ttnn.CONFIG) == tmp_path / "generated/ttnn/operation_parameters"
    try:
        ttnn.CONFIG.root_report_path = str(tmp_path / "mine")
        assert parameter_directory(ttnn.CONFIG) == tmp_path / "mine" / "operation_parameters"
        ttnn.CONFIG.root_report_path = ""
        assert parameter_directory(ttnn.CONFIG) == tmp_path / "generated/ttnn/operation_parameters"
    finally:
        ttnn.CONFIG.root_report_path = before


def test_a_line_of_an_op_call_is_read_back_with_its_tensors(ttnn, device, torch, tmp_path):
    sink = OpLineWriter(tmp_path / "ops.jsonl")
    tensor = ttnn.from_torch(torch.ones(2, 3), device=device, layout=ttnn.TILE_LAYOUT)
    keywords = {"memory_config": ttnn.L1_MEMORY_CONFIG}
    result = call(ttnn, sink, "add", tensor, tensor, **keywords)
    sink.close()
    with (tmp_path / "ops.jsonl").open("rb") as stream:
        (line,) = read_op_lines(stream)
    first, second = line.inputs
    assert first == second
    assert (first.identity, line.output.identity) == (0, 1)
    assert first.placement.device == line.output.placement.device
    (name, memory), *_ = line.keywords
    assert (name, encode(memory)) == ("memory_config", optrove.to_jsonable(ttnn.L1_MEMORY_CONFIG))
    assert (
        optrove.to_jsonable(result)["$tensor"]["placement"]
        == (encode(line.output)["$tensor"]["placement"])
    )

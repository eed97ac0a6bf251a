import json
import re
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import fakeframework as fake
import observed_calls
from observed_calls import STARTED_NS
from optrove.capture.parameters import (
    ParameterFiles,
    json_numbers,
    parameter_directory,
    remove_empty,
)
from optrove.serializer import plain
from optrove.serializer.tables import Tables

observed = partial(observed_calls.observed, tables=Tables((plain.table(), fake.table())))


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "generated" / "ttnn" / "operation_parameters"


@pytest.fixture
def sink(directory):
    return ParameterFiles(lambda: directory)


def written(directory):
    """The files in the order of their numbers, read."""
    paths = sorted(directory.iterdir(), key=lambda path: int(path.name.partition("_")[0]))
    return [json.loads(path.read_text()) for path in paths]


def value_of(sink, directory, live):
    sink.completed(observed(live))
    return written(directory)[-1]["args"][0]["value"]


def test_a_file_is_named_by_number_op_and_time(sink, directory):
    for op in ("ttnn.add", "ttnn.experimental.rotary_embedding", "ttnn::prim::sum"):
        sink.completed(observed(op=op))
    stamp = (
        datetime.fromtimestamp(STARTED_NS // 10**9, timezone.utc)
        .astimezone()
        .strftime("%Y%m%d_%H%M%S")
    )
    assert sorted(path.name for path in directory.iterdir()) == [
        f"1_ttnn_add_{stamp}_345678.json",
        f"2_ttnn_experimental_rotary_embedding_{stamp}_345678.json",
        f"3_ttnn_prim_sum_{stamp}_345678.json",
    ]


def test_the_fields_are_those_of_the_guide(sink, directory):
    sink.completed(observed(1, "x", op="ttnn.add", keywords={"dtype": None}, result=2.5))
    (path,) = directory.iterdir()
    assert json.loads(path.read_text()) == {
        "operation_number": 1,
        "operation_name": "ttnn.add",
        "timestamp": path.stem.removeprefix("1_ttnn_add_"),
        "args": [{"position": 0, "value": 1}, {"position": 1, "value": "x"}],
        "kwargs": {"dtype": None},
        "num_tensors": 0,
        "return_value": 2.5,
    }


def test_an_op_that_returned_nothing_has_no_return_value(sink, directory):
    sink.completed(observed(1))
    assert "return_value" not in written(directory)[0]


def test_a_call_that_raised_has_its_error_in_the_place_of_a_return_value(sink, directory):
    sink.completed(observed(1, error=RuntimeError("TT_FATAL")))
    (content,) = written(directory)
    assert content["error"] == {"type": "RuntimeError", "message": "TT_FATAL"}
    assert "return_value" not in content


@pytest.mark.parametrize("live", [None, True, 3, 2.5, "text", [1, [None, "a"]], {"a": {"b": [1]}}])
def test_plain_arguments_are_written_as_they_are(sink, directory, live):
    assert value_of(sink, directory, live) == live


def test_tuples_are_lists_as_json_has_no_others(sink, directory):
    assert value_of(sink, directory, (1, (2, 3))) == [1, [2, 3]]


@pytest.mark.parametrize(
    ("live", "form"),
    [
        (float("nan"), {"$float": "nan"}),
        ({1: 2}, {"$map": [[1, 2]]}),
        ({"$tuple": 1}, {"$map": [["$tuple", 1]]}),
        (b"ab", {"$bytes": "YWI="}),
        (fake.TILE, {"$symbol": "fake.Layout", "name": "TILE"}),
        (fake.Grid(1, 2), {"$struct": "fake.Grid", "fields": {"x": 1, "y": 2}}),
    ],
)
def test_other_arguments_have_the_form_of_the_serializer(sink, directory, live, form):
    assert value_of(sink, directory, live) == form


def test_what_contains_itself_ends(sink, directory):
    endless = [1]
    endless.append(endless)
    first, inner = value_of(sink, directory, endless)
    assert first == 1
    assert inner["$opaque"] == "builtins.list"


def test_a_tensor_is_written_by_its_facts(sink, directory):
    tensor = fake.Tensor((2, 3), memory=fake.Memory("L1"))
    assert value_of(sink, directory, tensor) == {
        "type": "ttnn.Tensor",
        "shape": [2, 3],
        "dtype": "int8",
        "original_shape": [2, 3],
        "original_dtype": "int8",
        "layout": "ROW",
        "storage_type": "HOST_STORAGE",
        "memory_config": {
            "$struct": "fake.Memory",
            "fields": {"kind": "L1", "shards": {"$tuple": []}},
        },
    }


def test_tensors_are_counted_wherever_they_are(sink, directory):
    tensor = fake.Tensor((2,), memory=fake.Memory("L1"))
    other = fake.Tensor((2,), memory=fake.Memory("L1"))
    sink.completed(
        observed(tensor, [other, 1], keywords={"x": {"y": (other,)}}, result=[tensor, tensor])
    )
    assert written(directory)[0]["num_tensors"] == 5


def test_values_that_cannot_be_read_are_left_out_with_the_reason(directory):
    sink = ParameterFiles(lambda: directory, values=True)
    tensor = value_of(sink, directory, fake.Tensor((2,), memory=fake.Memory("L1")))
    assert "fakeframework.Tensor" in tensor["values_omitted"]
    assert "values" not in tensor
    assert tensor["dtype"] == "int8"


def test_values_that_json_lacks_are_strings():
    nested = [[1.5, float("nan")], [float("inf"), float("-inf")], [True, 2]]
    assert json_numbers(nested) == [[1.5, "nan"], ["inf", "-inf"], [True, 2]]
    assert json_numbers(float("nan")) == "nan"
    assert json_numbers([1 + 2j]) == [{"$complex": [1.0, 2.0]}]


def test_processes_that_share_a_directory_never_write_over_one_another(directory):
    sinks = [ParameterFiles(lambda: directory) for _ in range(3)]
    for number, sink in enumerate(sinks):
        sink.completed(observed(number))
    paths = sorted(directory.iterdir())
    contents = [json.loads(path.read_text()) for path in paths]
    assert [path.stem[-6:] for path in paths] == ["345678", "345679", "345680"]
    assert [content["args"][0]["value"] for content in contents] == [0, 1, 2]
    assert [content["operation_number"] for content in contents] == [1, 1, 1]
    for path, content in zip(paths, contents, strict=True):
        assert re.fullmatch(rf"1_fake_add_{content['timestamp']}\.json", path.name)


def test_the_directory_is_asked_for_at_each_call(tmp_path):
    chosen = tmp_path / "first"
    sink = ParameterFiles(lambda: chosen)
    sink.completed(observed(1))
    chosen = tmp_path / "second"
    sink.completed(observed(2))
    numbers = [content["operation_number"] for content in written(chosen)]
    assert (len(written(tmp_path / "first")), numbers) == (1, [2])


def test_a_directory_that_was_removed_meanwhile_is_made_again(sink, directory):
    sink.completed(observed(1))
    sink.remove()
    assert not directory.exists()
    sink.completed(observed(2))
    assert [content["operation_number"] for content in written(directory)] == [2]


def test_exactly_what_was_written_is_removed(tmp_path, sink, directory):
    kept = tmp_path / "generated" / "mine.txt"
    kept.parent.mkdir()
    kept.write_text("mine")
    sink.completed(observed(1))
    sink.completed(observed(2))
    first, _ = directory.iterdir()
    first.unlink()
    sink.remove()
    assert list(tmp_path.rglob("*")) == [kept.parent, kept]


def test_files_of_others_and_their_directory_stay(sink, directory):
    sink.completed(observed(1))
    other = directory / "1_other.json"
    other.write_text("{}")
    sink.remove()
    assert list(directory.iterdir()) == [other]


@pytest.mark.parametrize(
    ("config", "root"),
    [
        ({}, "generated/ttnn"),
        ({"root_report_path": None}, "generated/ttnn"),
        ({"root_report_path": ""}, "generated/ttnn"),
        ({"root_report_path": Path("generated/ttnn/reports")}, "generated/ttnn"),
        ({"root_report_path": "generated/ttnn"}, "generated/ttnn"),
        ({"root_report_path": "/reports"}, "/reports"),
        ({"root_report_path": Path("reports")}, "reports"),
        ({"root_report_path": "/a", "operation_parameter_log_dir": "/b"}, "/b"),
        ({"root_report_path": "/a", "operation_parameter_log_dir": None}, "/a"),
        ({"root_report_path": "/a", "operation_parameter_log_dir": ""}, "/a"),
    ],
)
def test_the_directory_is_the_first_that_is_set(tmp_path, monkeypatch, config, root):
    monkeypatch.chdir(tmp_path)
    expected = tmp_path / root / "operation_parameters"
    assert parameter_directory(SimpleNamespace(**config)) == expected


def test_a_named_trace_directory_comes_first_and_is_the_directory_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TTNN_OPERATION_TRACE_DIR", "mine")
    config = SimpleNamespace(operation_parameter_log_dir="/b")
    assert parameter_directory(config) == tmp_path / "mine"


def test_tensor_methods_have_no_file_but_indexing_has(sink, directory):
    for op in ("ttnn.Tensor.cpu", "ttnn.Tensor.__getitem__", "ttnn.Tensor.to", "ttnn.to_device"):
        sink.completed(observed(op=op))
    ops = [content["operation_name"] for content in written(directory)]
    assert ops == ["ttnn.Tensor.__getitem__", "ttnn.to_device"]
    assert [content["operation_number"] for content in written(directory)] == [1, 2]
    assert sink.written() == {directory: 2}


def test_only_the_ops_of_one_framework_have_files_if_asked(directory):
    sink = ParameterFiles(lambda: directory, of="ttnn.")
    for op in ("torch.add", "ttnn.add"):
        sink.completed(observed(op=op))
    assert [content["operation_name"] for content in written(directory)] == ["ttnn.add"]


def test_directories_that_others_use_are_left_to_them(tmp_path, directory):
    first, second = (ParameterFiles(lambda: directory) for _ in range(2))
    first.completed(observed())
    second.completed(observed())
    left = first.remove()
    assert left == (directory, directory.parent, directory.parent.parent)
    assert second.remove() == ()
    assert directory.is_dir()
    assert remove_empty(left) == ()
    assert list(tmp_path.iterdir()) == []

import io
import json

import pytest

from masters import (
    EVERYTHING,
    GALAXY,
    configuration,
    master,
    printed_memory,
    printed_tensor,
    rows_of,
    unsupported,
)
from optrove.interop.master_reader import read_master
from optrove.interop.master_writer import write_master
from optrove.interop.text_form import sorted_lines, write_text
from optrove.model.case import Case
from optrove.model.values import (
    Callable,
    Float,
    Int,
    List,
    MeshPlacement,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tile,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
)
from optrove.serializer.hashes import placement_hash


def exported(pairs, **options):
    stream = io.BytesIO()
    written = write_master(stream, pairs, **options)
    return json.loads(stream.getvalue()), written


def configurations(document):
    return [each for op in document["operations"].values() for each in op["configurations"]]


def test_a_file_of_the_second_generation_comes_back_spelled_as_it_was():
    document = master(configuration(EVERYTHING))
    runs, _ = read_master(document, "a", strict=True)
    again, written = exported(rows_of(runs), last_updated="2026-03-08 13:48:13")
    (config,) = configurations(again)
    assert "optrove" not in config
    told = dict(EVERYTHING)
    for name, argument in config["arguments"].items():
        if name not in ("arg2", "compute_kernel_config", "mesh_coords", "norm_config", "shape"):
            assert without(argument) == without(told[name]), name
    assert config["executions"] == [
        {"source": "models/demo.py", "machine_info": GALAXY, "count": 10}
    ]
    assert config["config_id"] == 1
    assert config["config_hash"] == placement_hash(runs[0].cases[0].case)
    assert again["metadata"] == {
        "models": ["models/demo.py"],
        "unique_operations": 1,
        "total_configurations": 1,
        "operations_summary": {"ttnn.linear": 1},
        "last_updated": "2026-03-08 13:48:13",
    }
    assert (written.cases, written.calls) == (1, 10)
    third, _ = read_master(again, "a", strict=True)
    assert third == runs


def without(data):
    """Return a value without what is not written: hashes, addresses, numbers of chips."""
    if isinstance(data, list):
        return [without(item) for item in data]
    if not isinstance(data, dict) or data.get("type") == "global_semaphore":
        return data if not isinstance(data, dict) else data["type"]
    dropped = {"hash", "device_ids"}
    return {key: _orientation(without(item)) for key, item in data.items() if key not in dropped}


def _orientation(data):
    return "ShardOrientation.ROW_MAJOR" if data == "ROW_MAJOR" else data


def test_the_first_generation_comes_out_as_the_second_with_the_same_runs():
    arguments = [
        {"arg0": json.loads(printed_tensor(printed_memory()))},
        {"arg1": unsupported("std::array<int, 2ul> ")},
        {"arg2": "-1"},
    ]
    runs, _ = read_master(master(arguments, op="ttnn::pad"), "a", strict=False)
    document, _ = exported(rows_of(runs))
    assert list(document["operations"]) == ["ttnn.pad"]
    again, fidelity = read_master(document, "a", strict=False)
    assert [each.run.id for each in again] == [each.run.id for each in runs]
    assert [each.kind for each in fidelity.verbatim] == ["std::array<int, 2ul>"]


MEMORY = Struct(
    "ttnn.MemoryConfig",
    (
        ("memory_layout", Symbol("ttnn.TensorMemoryLayout", "INTERLEAVED")),
        ("buffer_type", Symbol("ttnn.BufferType", "DRAM")),
        ("shard_spec", Struct("ttnn.Odd", ())),
        ("nd_shard_spec", Int(3)),
    ),
)
KNOWS_MORE = {
    "another tile": TtnnPlacement(
        (32, 32), "TILE", Tile((16, 32), (16, 16)), "device", None, None, None, 0
    ),
    "some chips": TtnnPlacement(
        (2, 2), "ROW_MAJOR", None, "device", MEMORY, (1, 2), MeshPlacement((2,), (0,), ((0, 1),)), 0
    ),
    "strides": TorchPlacement((1, 2), "strided", "cuda:0", requires_grad=True),
}


@pytest.mark.parametrize("placement", KNOWS_MORE.values(), ids=KNOWS_MORE)
def test_a_case_that_knows_more_than_can_be_spelled_is_written_exactly_too(placement):
    case = Case("ttnn.add", (("a", TensorSpec((2, 2), "ttnn.bfloat16", placement, 3, 1)),))
    document, _ = exported([(case, [])])
    (config,) = configurations(document)
    assert config["optrove"]["op"] == "ttnn.add"
    runs, fidelity = read_master(document, "a", strict=True)
    assert runs[0].cases[0].case == case
    assert fidelity.adds_up()


@pytest.mark.parametrize(
    "value",
    [
        Tuple((Int(1),)),
        Text("inf"),
        Text("\ud800\udc00"),
        Callable("torch.relu"),
        Symbol("torch.dtype", "float32"),
        Struct("mine.Config", (("type", Int(1)),)),
        List((Struct("ttnn.CoreRange", ()), Float(float("nan")))),
    ],
)
def test_nothing_is_lost_that_the_spelling_cannot_tell(value):
    case = Case("torch.add", (("a", value),))
    document, _ = exported([(case, [])])
    runs, _ = read_master(document, "a", strict=False)
    assert runs[0].cases[0].case == case


def test_operations_are_sorted_and_configurations_numbered_throughout():
    names = ["ttnn.b", "ttnn.a", "ttnn.b"]
    pairs = [(Case(op, (("x", Int(place)),)), []) for place, op in enumerate(names)]
    document, _ = exported(pairs)
    assert list(document["operations"]) == ["ttnn.a", "ttnn.b"]
    assert [each["config_id"] for each in configurations(document)] == [1, 2, 3]
    assert [each["arguments"]["x"] for each in configurations(document)] == [1, 0, 2]


def test_a_model_that_the_source_does_not_name_is_written_beside_it():
    runs, _ = read_master(
        master([{"arg0": "1"}], op="ttnn::pad", models=["net"]), "a", strict=False
    )
    document, _ = exported(rows_of(runs))
    assert configurations(document)[0]["executions"][0]["model"] == "net"


def test_an_empty_selection_is_a_valid_file():
    document, written = exported([])
    assert document["operations"] == {}
    assert (written.cases, written.calls) == (0, 0)


def test_more_lines_than_are_sorted_at_once_come_out_in_order():
    lines = [f"{number * 7919 % 1000:03}\n".encode() for number in range(1000)]
    assert list(sorted_lines(iter(lines), at_once=64)) == sorted(lines)
    assert list(sorted_lines([])) == []


def test_the_text_form_is_one_sorted_line_per_case():
    runs, _ = read_master(
        master(configuration({"a": 1}), configuration({"a": 2}, number=2)), "a", strict=True
    )
    stream = io.BytesIO()
    write_text(stream, rows_of(runs)[::-1])
    header, first, second = stream.getvalue().decode("ascii").splitlines()
    assert header == '{"format":"optrove-text","version":1}'
    assert first.startswith('{"op":"ttnn.linear","arguments":{"a":1},"executions":[{"count":10,')
    assert json.loads(second)["arguments"] == {"a": 2}

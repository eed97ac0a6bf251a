import io
import json
from dataclasses import replace

import pytest

from masters import (
    EVERYTHING,
    GALAXY,
    SHARDS,
    configuration,
    master,
    printed_memory,
    printed_tensor,
    rows_of,
    tensor,
    unsupported,
)
from optrove.interop.master_reader import read_master
from optrove.interop.master_writer import config_hash, write_master
from optrove.interop.text_form import sorted_lines, write_text
from optrove.model.case import Case
from optrove.model.trove import Machine
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


def exported(pairs):
    stream = io.BytesIO()
    written = write_master(stream, pairs)
    return json.loads(stream.getvalue()), written


def configurations(document):
    return [each for op in document["operations"].values() for each in op["configurations"]]


def test_a_file_of_the_second_generation_comes_back_as_it_was():
    executions = [
        {"source": "a.py", "machine_info": GALAXY, "count": 1, "trace_uid": "1", "pytest_args": "x"}
    ]
    document = master(
        configuration(EVERYTHING, config_hash="c0ffee", sweep_source_hash="ff" * 32),
        configuration(EVERYTHING, number=2, config_hash="c0ffee", executions=executions),
        last_updated=None,
    )
    runs, _ = read_master(document, "a", strict=True)
    again, written = exported(rows_of(runs))
    assert configurations(again) == configurations(document)
    assert again["metadata"] == {
        "models": ["a.py", "models/demo.py"],
        "unique_operations": 1,
        "total_configurations": 2,
        "operations_summary": {"ttnn.linear": 2},
        "last_updated": None,
    }
    assert (written.cases, written.calls) == (1, 11)
    third, _ = read_master(again, "a", strict=True)
    assert third == runs


def test_executions_that_a_file_does_not_have_are_not_made_up():
    unnamed = [{"source": None, "machine_info": GALAXY, "count": 2, "trace_uid": "1"}]
    document = master(
        configuration({"a": 1}, executions=unnamed),
        configuration({"a": 2}, executions=[], number=2),
    )
    runs, _ = read_master(document, "a", strict=True)
    again, written = exported(rows_of(runs))
    assert [each["executions"] for each in configurations(again)] == [unnamed, []]
    assert (written.cases, written.calls) == (2, 2)


def test_a_case_is_written_as_the_tracer_of_tt_metal_writes_its_call():
    runs, _ = read_master(master(configuration(EVERYTHING)), "a", strict=True)
    again, _ = exported(rows_of(runs, as_written=False))
    (config,) = configurations(again)
    for name, argument in config["arguments"].items():
        if name not in ("arg2", "mesh_coords", "norm_config"):
            assert argument == cleaned(EVERYTHING[name]), name
    lost = {"multi_device_global_semaphore", "barrier_semaphore"}
    assert EVERYTHING.keys() - config["arguments"].keys() == lost
    assert config["executions"] == [
        {"source": "models/demo.py", "machine_info": GALAXY, "count": 10}
    ]
    assert config["config_hash"] == config_hash("ttnn.linear", config["arguments"], GALAXY)
    third, _ = read_master(again, "a", strict=True)
    assert [each.case for each in third[0].cases] == [each.case for each in runs[0].cases]


def cleaned(data):
    """Return an argument without ttnn's hash of memory, and None where tt-metal cleans up."""
    if isinstance(data, list):
        return [cleaned(item) for item in data]
    if not isinstance(data, dict):
        return data
    dropped = {"hash"} | ({"device_ids"} if data.get("type") == "MeshDevice" else set())
    kept = {key: cleaned(item) for key, item in data.items() if key not in dropped}
    return kept | ({"shard_spec": None} if kept.get("shard_spec") == "None" else {})


def test_shards_are_written_without_the_name_of_the_enumeration():
    """tt-metal's loader drops a shard spec with ``ShardOrientation.ROW_MAJOR``."""
    runs, _ = read_master(
        master(configuration({"memory_config": EVERYTHING["arg10"]["memory_config"]})),
        "a",
        strict=True,
    )
    document, _ = exported(rows_of(runs, as_written=False))
    written = configurations(document)[0]["arguments"]["memory_config"]["shard_spec"]
    assert written == SHARDS


def test_the_hash_is_that_of_tt_metal():
    """The expected hashes are those that tt-metal's tracer gives to the same arguments."""
    shape = {"type": "Shape", "value": "Shape([1, 2])"}
    arguments = {"a": {"hash": 7, "shard_spec": None}, "b": shape, "c": "<x at 0x7f>"}
    plain = {"a": {"shard_spec": "None"}, "b": [1, 2], "c": "<x>"}
    assert config_hash("ttnn.add", arguments, {}) == config_hash("ttnn.add", plain, {})
    assert config_hash("ttnn.add", plain, {}) != config_hash("ttnn.add", plain, GALAXY)
    assert (
        config_hash("ttnn.add", {"arg0": 1}, {"board_type": "Wormhole", "device_series": "n300"})
        == "d031e2777c0060fe16c598e457d68aac2c2c9f62f2fa468b2e24c720783a1848"
    )


def test_executions_on_other_hardware_are_another_configuration():
    executions = [
        {"source": "a.py", "machine_info": GALAXY, "count": 1},
        {"source": "a.py", "machine_info": {**GALAXY, "mesh_device_shape": [8, 4]}, "count": 2},
        {"source": "b.py", "machine_info": GALAXY, "count": 4},
    ]
    runs, _ = read_master(master(configuration({"a": 1}, executions=executions)), "a", strict=True)
    document, written = exported(rows_of(runs, as_written=False))
    counts = [sum(each["count"] for each in c["executions"]) for c in configurations(document)]
    assert sorted(counts) == [2, 5]
    assert len({each["config_hash"] for each in configurations(document)}) == 2
    assert written.calls == 7


def test_a_recorded_run_has_the_machine_and_the_chips_that_tt_metal_names():
    runs, _ = read_master(master(configuration(EVERYTHING)), "a", strict=True)
    ((case, (row,)),) = rows_of(runs, as_written=False)
    opened = json.dumps({"mesh_shape": [4, 8], "device_ids": list(range(32))})
    row = replace(row, machine=Machine(board_type="galaxy"), device=opened)
    document, _ = exported([(case, [row])])
    (config,) = configurations(document)
    assert config["executions"][0]["machine_info"] == {
        "board_type": "Wormhole",
        "device_series": "tt-galaxy-wh",
        "card_count": 32,
        "device_count": 32,
        "mesh_device_shape": [4, 8],
        "device_ids": list(range(32)),
    }
    assert config["arguments"]["device"]["device_ids"] == list(range(32))


def test_the_mesh_of_a_machine_is_that_of_a_tensor_on_it():
    spread = {"placement": "['PlacementReplicate']", "distribution_shape": "[1]"}
    spread["mesh_device_shape"] = "[1, 1]"
    weights = tensor(storage_type="StorageType.HOST", tensor_placement=spread)
    written = {"bias": weights, "input_tensor": tensor()}
    runs, _ = read_master(master(configuration(written)), "a", strict=True)
    ((case, (row,)),) = rows_of(runs, as_written=False)
    document, _ = exported([(case, [replace(row, machine=Machine(board_type="galaxy"))])])
    (config,) = configurations(document)
    assert config["executions"][0]["machine_info"]["mesh_device_shape"] == [4, 8]


def test_arguments_that_were_passed_by_place_are_called_by_their_place():
    case = Case("ttnn.add", (("a", Int(1)), ("b", Int(2)), ("dtype", Int(3))))
    ((_, (row,)),) = rows_of(
        read_master(master(configuration({"a": 1})), "a", strict=True)[0], as_written=False
    )
    rows = [row, replace(row, places=("b", "a"), count=5)]
    document, _ = exported([(case, rows)])
    assert len(configurations(document)) == 2
    assert [list(each["arguments"]) for each in configurations(document)] == [
        ["a", "b", "dtype"],
        ["arg0", "arg1", "dtype"],
    ]
    assert configurations(document)[1]["arguments"] == {"arg0": 2, "arg1": 1, "dtype": 3}
    (imported,), _ = read_master(document, "a", strict=True)
    assert {each.case for each in imported.cases} == {case}


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


@pytest.mark.parametrize(
    "written",
    [
        {"type": "slice", "value": "slice(None, 32, None)"},
        {"type": "slice", "value": "slice(-1, None, 2)"},
        {"type": "range", "value": "range(0, 3)"},
        {"type": "range", "value": "range(0, 9, 3)"},
        {"type": "ellipsis", "value": "Ellipsis"},
        {"type": "complex", "value": "1j"},
    ],
)
def test_objects_of_python_come_back_as_they_were_written(written):
    runs, _ = read_master(master(configuration({"arg1": [written]})), "a", strict=True)
    document, _ = exported(rows_of(runs, as_written=False))
    (config,) = configurations(document)
    assert config["arguments"] == {"arg1": [written]}
    assert "optrove" not in config


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

"""Every kind of file that can be imported, found out and read through one door."""

import io
import json
import os

import pytest

from masters import (
    EVERYTHING,
    configuration,
    master,
    rows_of,
    tensor,
)
from optrove.errors import BadData, BadTarget
from optrove.interop.formats import FORMATS, read_file
from optrove.interop.machines import Exported
from optrove.interop.master_reader import read_master
from optrove.interop.op_line_files import write_call_lines
from optrove.interop.parameter_directories import write_params_directory
from optrove.interop.text_form import write_text
from optrove.model.case import Case
from optrove.model.records import Call, CallOutcome, Phase
from optrove.model.values import Bool, Float, Int, List, Opaque, Symbol, Text, TorchPlacement
from optrove.serializer.hashes import placement_hash

MOMENT = "2026-01-15T10:46:16.345678Z"


def read_document(tmp_path, document, **options):
    path = tmp_path / "master.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_file(path, **options)


def case_with_everything():
    runs, _ = read_file_of(EVERYTHING)
    return runs[0].cases[0].case


def read_file_of(arguments):
    return read_master(master(configuration(arguments)), "a", strict=True)


def faults(path, **options):
    with pytest.raises(BadData) as caught:
        read_file(path, **options)
    return [str(fault) for fault in caught.value.faults]


def test_a_master_file_is_found_out_however_it_is_laid_out(tmp_path):
    document = master(configuration(EVERYTHING))
    runs, fidelity = read_document(tmp_path, document)
    assert fidelity.format == "master v2"
    indented, _ = read_document(tmp_path, json.dumps(document, indent=2))
    assert indented == runs
    assert fidelity.file == str(tmp_path / "master.json")


def test_a_text_export_gives_the_same_runs_as_the_master_file(tmp_path):
    runs, _ = read_file_of(EVERYTHING)
    path = tmp_path / "cases.txt"
    with path.open("wb") as stream:
        write_text(stream, rows_of(runs))
    again, fidelity = read_file(path, strict=True)
    assert [each.run.id for each in again] == [each.run.id for each in runs]
    assert [each.cases[0].case for each in again] == [each.cases[0].case for each in runs]
    assert (fidelity.format, fidelity.understood, fidelity.cases) == ("text", 1, 1)
    assert fidelity.adds_up()


LINE = '{"op":"a","arguments":{},"executions":[{"source":"s","count":1}]}'


@pytest.mark.parametrize(
    ("lines", "original"),
    [
        (["{}"], "unknown"),
        ([LINE[:-1]], "line 2: not JSON"),
        ([LINE.replace('"op":"a"', '"op":3')], "line 2: expected a Case"),
        (
            [LINE.replace('{"source"', '{"x":1,"source"')],
            "line 2: $.executions[0]: unknown key 'x'",
        ),
        ([LINE.replace('"count":1', '"count":-1')], "line 2: $.executions[0].count"),
        ([LINE.replace('"source":"s"', '"source":1')], "line 2: $.executions[0].source"),
        (
            [LINE.replace('[{"source":"s","count":1}]', "3")],
            "line 2: $.executions: expected a list",
        ),
        ([LINE.replace('[{"source":"s","count":1}]', "[3]")], "line 2: $.executions[0]: expected"),
        ([LINE.replace('"arguments":{}', '"arguments":{"a":{"$odd":1}}')], "line 2: $.arguments.a"),
        ([LINE, LINE.replace("1}", '1,"machine":[1]}')], "line 3: $.executions[0].machine"),
    ],
)
def test_a_bad_line_of_text_is_an_error_with_its_number(tmp_path, lines, original):
    path = tmp_path / "cases.txt"
    path.write_text("\n".join(['{"format":"optrove-text","version":1}', *lines, ""]))
    expected = original if original != "unknown" else 'line 2: expected an object with "op"'
    assert any(expected in fault for fault in faults(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format":"optrove-text","version":1}\n' + LINE, "cut off"),
        ('{"format":"optrove-text","version":2}\n', "upgrade"),
    ],
)
def test_a_text_file_that_cannot_be_read_is_an_error(tmp_path, content, message):
    path = tmp_path / "cases.txt"
    path.write_text(content)
    assert any(message in fault for fault in faults(path))


def calls_of(*cases):
    for index, case in enumerate(cases):
        yield (
            Call(
                run_id="run",
                case_id=placement_hash(case),
                op_index=index,
                parent=0 if index == 1 else None,
                depth=int(index == 1),
                test_id="tests/test_net.py::test_it",
                phase=Phase.CALL,
                started_at=MOMENT,
                duration_ns=1_500_000,
                outputs=(Int(index),) if index < 2 else (),
                outcome=CallOutcome.RETURNED if index < 2 else CallOutcome.RAISED,
                error=None if index < 2 else "RuntimeError: no: space",
            ),
            case,
        )


def test_op_lines_give_back_the_cases_of_the_calls(tmp_path):
    cases = [case_with_everything(), Case("ttnn.add", (("a", Int(1)),)), Case("ttnn.add", ())]
    path = tmp_path / "ops.jsonl"
    with path.open("wb") as stream:
        assert write_call_lines(stream, calls_of(*cases, cases[1])).calls == 4
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["op_index"] for line in lines] == [0, 1, 2, 3]
    assert [line["parent"] for line in lines] == [None, 0, None, None]
    assert lines[2]["error"] == {"type": "RuntimeError", "message": "no: space"}
    assert lines[1]["output"] == 1
    (imported,), fidelity = read_file(path, strict=True)
    assert [each.case for each in imported.cases] == cases
    assert [each.count for each in imported.cases] == [1, 2, 1]
    assert imported.run.source == "tests/test_net.py"
    assert imported.run.started_at == MOMENT
    assert fidelity.format == "op lines"
    assert fidelity.adds_up()
    assert dict(fidelity.notes) == {"calls that raised": 2, "calls within other calls": 1}


def op_line(**changes):
    line = {
        "run_id": "r",
        "test_nodeid": None,
        "module": None,
        "op_index": 0,
        "op_name": "ttnn.add",
        "inputs": [1],
        "kwargs": {"b": {"$opaque": "Odd", "token": "1"}},
        "output": None,
    }
    return json.dumps({**line, **changes}) + "\n"


def test_positional_arguments_keep_their_places_and_are_noted(tmp_path):
    path = tmp_path / "ops.jsonl"
    path.write_text(op_line())
    (imported,), fidelity = read_file(path)
    assert imported.cases[0].case.arguments == (("arg0", Int(1)), ("b", Opaque("Odd", "1")))
    assert imported.run.source == "unknown"
    assert [kind for kind, _ in fidelity.notes] == [
        "arguments by position: their names are not recorded"
    ]
    assert (fidelity.partly, fidelity.verbatim[0].path) == (1, "line 1.b")


def test_a_case_id_that_does_not_fit_is_noted(tmp_path):
    path = tmp_path / "ops.jsonl"
    path.write_text(op_line(inputs=[], case_id="0" * 64))
    _, fidelity = read_file(path)
    assert fidelity.notes[0][0].startswith("case_id of a line")


def test_a_torn_last_line_is_refused_alone(tmp_path):
    path = tmp_path / "ops.jsonl"
    path.write_text(op_line() + op_line()[:30])
    _, fidelity = read_file(path)
    assert (fidelity.configurations, fidelity.refused, fidelity.cases) == (2, 1, 1)
    assert fidelity.adds_up()
    assert any("torn line" in fault for fault in faults(path, strict=True))


def test_a_bad_line_amid_good_ones_is_an_error(tmp_path):
    path = tmp_path / "ops.jsonl"
    path.write_text(op_line() + "{}\n" + op_line())
    assert "line 2: missing" in faults(path)[0]
    path.write_text(op_line() + op_line(kwargs={"arg0": 1}))
    assert "arg0" in faults(path)[0]


def test_parameter_files_are_written_in_the_form_of_the_guide_and_read_back(tmp_path):
    directory = tmp_path / "params"
    tuple_case = Case(
        "ttnn.experimental.add", (("a", List((Int(1), Float(0.5)))), ("b", Text("x")))
    )
    assert write_params_directory(
        directory, calls_of(tuple_case, tuple_case, tuple_case)
    ) == Exported(1, 3)
    names = sorted(path.name for path in directory.iterdir())
    assert [name.partition("_2026")[0] for name in names] == [
        "1_ttnn_experimental_add",
        "2_ttnn_experimental_add",
        "3_ttnn_experimental_add",
    ]
    content = json.loads((directory / names[0]).read_text())
    assert list(content) == [
        "operation_number",
        "operation_name",
        "timestamp",
        "args",
        "kwargs",
        "num_tensors",
        "return_value",
    ]
    assert "error" in json.loads((directory / names[2]).read_text())
    (imported,), fidelity = read_file(directory)
    assert [(each.case, each.count) for each in imported.cases] == [(tuple_case, 3)]
    assert imported.run.started_at.startswith("2026-01-1")
    assert fidelity.format == "parameter files"
    assert fidelity.adds_up()
    assert dict(fidelity.notes) == {"not kept: error of a call": 1}


def test_tensors_and_configurations_survive_our_parameter_files(tmp_path):
    case = case_with_everything()
    write_params_directory(tmp_path, calls_of(case))
    (imported,), fidelity = read_file(tmp_path, strict=True)
    found, original = dict(imported.cases[0].case.arguments), dict(case.arguments)
    assert found.keys() == original.keys()
    exact = [name for name in original if name not in ("arg0", "arg1", "arg2", "arg10")]
    assert {name: found[name] for name in exact} == {name: original[name] for name in exact}
    assert found["arg0"].placement.memory == original["arg0"].placement.memory
    assert found["arg0"].placement.padded_shape == original["arg0"].placement.padded_shape
    assert fidelity.understood == 1


def write_parameters(directory, number, **changes):
    content = {"operation_id": number, "operation_name": "ttnn.add", "args": [], "kwargs": {}}
    path = directory / f"{number}_ttnn_add_20260115_104616_{345670 + number}.json"
    path.write_text(json.dumps({**content, **changes}))
    return path


def test_a_directory_of_tests_is_read_as_tt_metal_stores_it(tmp_path):
    spread = {"placements": ["PlacementReplicate"], "distribution_shape": [2]}
    spec = tensor()
    del spec["tensor_placement"]
    spec["mesh_device"] = {**spread, "shape": [1, 2], "device_ids": [4, 0]}
    for number, status in enumerate(("passed", "failed", "passed", None)):
        folder = tmp_path / "trace" / f"{number:016x}"
        folder.mkdir(parents=True)
        args = [{"position": 0, "value": spec}]
        write_parameters(folder, number + 1, args=args, kwargs={"n": number})
        content = {"test_nodeid": f"t.py::{number}", "status": status}
        (folder / "_status.json").write_text(json.dumps(content) if status else '{"status": "pa')
    metadata = {
        "test_source": "demo.py",
        "HF_MODEL": "meta/llama",
        "timestamp": "2026-08-11T10:20:30.5",
        "trace_uid": "t1",
        "pytest_args": "-k x",
        "machine_info": {"board_type": "Wormhole", "device_series": "n300", "card_count": 1},
        "software_versions": {"tt_kmd": "2.3.0"},
    }
    (tmp_path / "trace" / "_trace_metadata.json").write_text(json.dumps(metadata))
    for place in (tmp_path / "trace", tmp_path):
        (imported,), fidelity = read_file(place, strict=True)
        assert [dict(each.case.arguments)["n"] for each in imported.cases] == [Int(0), Int(2)]
        assert dict(fidelity.notes)["not read: calls of tests that failed"] == 1
        assert dict(fidelity.notes)["not read: calls of tests that have no readable status"] == 1
        assert not any("other names" in kind for kind, _ in fidelity.notes)
        assert imported.run.source == "demo.py [HF_MODEL:meta/llama]"
        assert imported.run.model == "meta/llama"
        assert imported.run.started_at == "2026-08-11T10:20:30.500000Z"
        assert dict(imported.run.provenance) == {"trace_uid": '"t1"', "pytest_args": '"-k x"'}
        assert imported.machine.data() == {
            **metadata["machine_info"],
            **metadata["software_versions"],
            "device_ids": [4, 0],
            "device_count": 2,
            "mesh_device_shape": [1, 2],
        }


def test_files_that_lead_elsewhere_are_not_read(tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "sent").mkdir()
    secret = write_parameters(tmp_path / "secret", 1, args=[{"position": 0, "value": "secret"}])
    sent = tmp_path / "sent"
    own = write_parameters(sent, 1)
    (sent / own.name.replace("1_", "2_", 1)).symlink_to(secret)
    (sent / own.name.replace("1_", "3_", 1)).symlink_to("/dev/zero")
    os.mkfifo(sent / own.name.replace("1_", "4_", 1))
    (sent / "_trace_metadata.json").symlink_to("/dev/zero")
    (imported,), _ = read_file(sent, strict=True)
    assert [each.case for each in imported.cases] == [Case("ttnn.add", ())]


def test_the_files_of_ttnns_own_tracer_are_read(tmp_path):
    folder = tmp_path / "operation_parameters"
    folder.mkdir()
    original = tensor()
    del original["tensor_placement"]
    original["mesh_device"] = {"placements": ["PlacementReplicate"], "distribution_shape": [1]}
    args = [
        {"position": 0, "value": {**original, "storage_type": "StorageType.HOST", "values": [[1]]}},
        {"position": 1, "value": {"type": "torch.Tensor", "shape": [2, 3], "dtype": "torch.int32"}},
        {"position": 2, "value": {"type": "Layout", "repr": "Layout.TILE"}},
        {"position": 3, "value": float("-inf")},
    ]
    write_parameters(folder, 2, args=args, kwargs={"flag": True}, return_value=original)
    write_parameters(folder, 10, sweep_source_hash="x")
    (folder / "notes.json").write_text("{}")
    (imported,), fidelity = read_file(tmp_path, strict=True)
    first, second = imported.cases
    found = dict(first.case.arguments)
    assert found["arg0"].placement.storage == "host"
    assert found["arg0"].placement.device is None
    assert found["arg0"].placement.mesh.coordinates == ((0, 0),)
    assert (found["arg1"].dtype, found["arg1"].shape) == ("torch.int32", (2, 3))
    contiguous = TorchPlacement((3, 1), "strided", "cpu", requires_grad=False)
    assert found["arg1"].placement == contiguous
    assert found["arg2"] == Symbol("ttnn.Layout", "TILE")
    assert found["arg3"] == Float(float("-inf"))
    assert found["flag"] == Bool(value=True)
    assert second.case == Case("ttnn.add", ())
    assert imported.run.started_at == "2026-01-15T10:46:16.345672Z"
    notes = dict(fidelity.notes)
    assert notes["not kept: values of a tensor"] == 1
    assert json.loads(second.configuration) == {"sweep_source_hash": "x", "arguments": {}}
    written = json.loads(first.configuration)["arguments"]
    assert written["arg0"] == {
        **{key: item for key, item in original.items() if key != "mesh_device"},
        "storage_type": "StorageType.HOST",
        "memory_config": {**original["memory_config"], "shard_spec": None},
        "tensor_placement": {
            "placement": "['PlacementReplicate']",
            "distribution_shape": "[1]",
            "mesh_device_shape": "[1, 1]",
        },
    }
    assert written["arg3"] == "-inf"
    assert notes["not read: files with other names"] == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"args": 3},
        {"args": [3]},
        {"args": [{"position": 0, "value": 1}, {"position": 0, "value": 2}]},
        {"kwargs": []},
        {"operation_name": 3},
        {"args": [{"position": 0, "value": 1}], "kwargs": {"arg0": 2}},
    ],
)
def test_a_wrong_parameter_file_is_an_error_with_its_name(tmp_path, changes):
    path = write_parameters(tmp_path, 1, **changes)
    assert path.name in faults(tmp_path)[0]


def test_a_parameter_file_that_is_no_json_is_an_error_and_hides_no_other(tmp_path):
    write_parameters(tmp_path, 1).write_text("{")
    write_parameters(tmp_path, 2, args=3)
    original = "\n".join(faults(tmp_path))
    assert "1_ttnn_add" in original
    assert "2_ttnn_add" in original


@pytest.mark.parametrize(
    ("content", "original"),
    [
        (b"", "the file is empty"),
        (b"{", "not JSON at line 1"),
        (b"\xff\xfe", "text in UTF-16; save it as UTF-8"),
        (b"[1, 2]", "a file of no known format; import one of"),
        (b"null", "a file of no known format; import one of"),
        (b'{"operation_name": "a", "args": [], "kwargs": {}}', "import its directory"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"operations": {}, "operations": {}}', "twice"),
        (b"[" + b"1" * 5000 + b"]", "a number of 5000 digits"),
        (b'{"operations": {"ttnn.add": {"configurations": [', "is the file complete?"),
        (b"[" * 100_000, "not readable|nested too deeply|not JSON"),
    ],
)
def test_another_file_is_an_error_that_says_what_can_be_imported(tmp_path, content, original):
    path = tmp_path / "file"
    path.write_bytes(content)
    (fault,) = faults(path)
    assert str(path) in fault
    assert any(part in fault for part in original.split("|"))


@pytest.mark.parametrize("value", ['{"a": 1, "a": 2}', "1" * 5000])
def test_a_part_that_is_not_readable_costs_its_configuration(tmp_path, value):
    text = json.dumps(master(configuration({"arg0": "HERE"}), configuration({"arg0": 1})))
    path = tmp_path / "master.json"
    path.write_text(text.replace('"HERE"', value))
    _, fidelity = read_file(path)
    assert (fidelity.understood, fidelity.refused) == (1, 1)
    ((where, _),) = fidelity.refusals
    assert where.endswith(".configurations[0].arguments.arg0")


def test_an_operation_that_a_file_has_twice_keeps_all_of_its_configurations(tmp_path):
    entry = '"ttnn.add": {"configurations": [{"arguments": {"arg0": %d}}]}'
    path = tmp_path / "master.json"
    path.write_text(f'{{"operations": {{{entry % 1}, {entry % 2}}}}}')
    _, fidelity = read_file(path)
    assert (fidelity.understood, fidelity.cases) == (2, 2)


def test_a_byte_order_mark_is_no_part_of_a_document(tmp_path):
    path = tmp_path / "master.json"
    path.write_text(json.dumps(master(configuration({"arg0": 1}))), encoding="utf-8-sig")
    assert read_file(path)[1].understood == 1


def test_a_directory_of_something_else_is_an_error(tmp_path):
    assert "without parameter files" in faults(tmp_path)[0]


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(BadTarget, match="cannot be read"):
        read_file(tmp_path / "nothing.json")


def test_lines_of_another_process_are_numbered_by_themselves():
    case = Case("ttnn.add", ())
    calls = [
        (Call("r", "c", index, process=process), case) for process in (0, 1) for index in (0, 1)
    ]
    stream = io.BytesIO()
    write_call_lines(stream, calls)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["op_index"] for line in lines] == [0, 1, 0, 1]
    assert lines[0]["error"]["type"] == "Unfinished"


def test_the_command_line_offers_every_format_of_the_table():
    from optrove.cli.keep import export

    (form,) = [each for each in export.params if each.name == "form"]
    assert set(form.type.choices) == {each.name for each in FORMATS if each.is_written} | {
        "superset"
    }

import io
import json
from dataclasses import replace

import pytest

from optrove.errors import BadData
from optrove.model.records import CallSite, Phase
from optrove.model.values import Bool, Float, Int, List, Null, Text, Tuple
from optrove.serializer.hashes import CanonicalTexts
from optrove.serializer.op_lines import (
    BadLine,
    OpError,
    OpLine,
    op_line,
    op_line_from_builtins,
    read_op_lines,
)

FULL = OpLine(
    run_id="run",
    test_id="tests/test_a.py::test_b[x\u2028y]",
    module="models.mlp",
    op_index=3,
    op="ttnn.add",
    inputs=(Int(1), Tuple((Float(float("nan")), Text("line\nbreak")))),
    keywords=(("b", Null()), ("a", List((Int(2),)))),
    output=Int(4),
    parent=2,
    depth=1,
    process=7,
    started_at="2026-01-15T10:46:16.345678Z",
    duration_ms=0.25,
    case_id="c" * 64,
    phase=Phase.CALL,
    mode="prefill",
    call_site=CallSite("a:b/model.py", 12),
)
RAISED = OpLine(
    *("run", None, None, 0, "ttnn.add", (), (), None),
    error=OpError("RuntimeError", "TT_FATAL\nsecond line"),
)
NEEDED = {
    "run_id": "run",
    "test_nodeid": None,
    "module": None,
    "op_index": 0,
    "op_name": "ttnn.add",
    "inputs": [],
    "kwargs": {},
    "output": None,
}


def scan(content):
    return list(read_op_lines(io.BytesIO(content)))


@pytest.mark.parametrize("line", [FULL, RAISED], ids=["full", "raised"])
def test_a_written_call_is_read_back(line):
    assert scan(op_line(line)) == [line]


def test_remembered_values_are_written_as_new_ones():
    zeros = OpLine("run", None, None, 0, "a.b", (Int(0), Bool(value=False), Float(0.0)), (), Null())
    negative = replace(zeros, inputs=(Float(-0.0), Null(), Int(1), Bool(value=True)))
    texts = CanonicalTexts()
    for line in (FULL, zeros, negative, FULL, negative, zeros):
        assert op_line(line, texts) == op_line(line)


def test_a_line_is_ascii_and_holds_no_other_newline():
    line = op_line(FULL).decode("ascii")
    assert line.splitlines(keepends=True) == [line]


def test_the_fields_of_a_line_are_those_that_were_promised():
    data = json.loads(op_line(FULL))
    assert data["test_nodeid"] == FULL.test_id
    assert data["op_name"] == "ttnn.add"
    assert data["call_site"] == "a:b/model.py:12"
    assert data["inputs"] == [1, {"$tuple": [{"$float": "nan"}, "line\nbreak"]}]
    assert data["kwargs"] == {"a": [2], "b": None}
    assert data["start_ts"] == "2026-01-15T10:46:16.345678Z"
    assert "error" not in data
    assert json.loads(op_line(RAISED))["error"] == {
        "type": "RuntimeError",
        "message": "TT_FATAL\nsecond line",
    }


def test_a_call_that_returned_none_is_not_one_that_raised():
    (returned,) = scan(json.dumps(NEEDED).encode())
    assert returned.output == Null()
    (raised,) = scan(op_line(RAISED))
    assert raised.output is None


def test_a_keyword_may_begin_with_a_dollar():
    line = OpLine("run", None, None, 0, "a.b", (), (("$tuple", Int(1)),), Null())
    assert scan(op_line(line)) == [line]


def test_lines_are_numbered_as_in_the_file_with_empty_lines_counted():
    lines = scan(op_line(FULL) + b"\n \n" + op_line(RAISED))
    assert [line.number for line in lines] == [1, 4]


def test_a_torn_last_line_is_reported_and_hides_nothing():
    first, torn = scan(op_line(FULL) + op_line(RAISED)[:40])
    assert first == FULL
    assert isinstance(torn, BadLine)
    assert torn.number == 2
    assert "cut off" in torn.faults[0].problem


def test_a_torn_line_that_was_completed_later_is_reported_in_its_place():
    torn, good = scan(op_line(FULL)[:40] + b"\n" + op_line(RAISED))
    assert isinstance(torn, BadLine)
    assert (torn.number, good) == (1, RAISED)


def test_a_last_line_that_lacks_only_its_newline_is_read():
    assert scan(op_line(FULL)[:-1]) == [FULL]


@pytest.mark.parametrize(
    ("key", "bad", "path"),
    [
        ("run_id", 3, "$.run_id"),
        ("test_nodeid", [], "$.test_nodeid"),
        ("op_index", -1, "$.op_index"),
        ("op_index", True, "$.op_index"),
        ("op_name", "\ud800", "$.op_name"),
        ("inputs", {}, "$.inputs"),
        ("inputs", [0, {"$tensor": 1}], "$.inputs[1].$tensor"),
        ("kwargs", [], "$.kwargs"),
        ("kwargs", {"x": {"$nonsense": 1}}, "$.kwargs.x"),
        ("output", {"$tuple": 1}, "$.output.$tuple"),
        ("error", "boom", "$.error"),
        ("error", {"type": "E"}, "$.error"),
        ("parent", "0", "$.parent"),
        ("depth", None, "$.depth"),
        ("process", 1.5, "$.process"),
        ("start_ts", "yesterday", "$.start_ts"),
        ("start_ts", "", "$.start_ts"),
        ("duration_ms", -0.5, "$.duration_ms"),
        ("duration_ms", "1", "$.duration_ms"),
        ("phase", "lunch", "$.phase"),
        ("phase", ["call"], "$.phase"),
        ("call_site", "model.py", "$.call_site"),
        ("call_site", "model.py:\u0663", "$.call_site"),
        ("suprise", 1, "$"),
    ],
)
def test_a_wrong_field_is_named_by_its_path(key, bad, path):
    (line,) = scan(json.dumps({**NEEDED, key: bad}).encode() + b"\n")
    assert isinstance(line, BadLine)
    assert path in [fault.path for fault in line.faults]


@pytest.mark.parametrize("key", NEEDED)
def test_a_missing_field_is_named(key):
    data = {name: value for name, value in NEEDED.items() if name != key}
    with pytest.raises(BadData, match=f"missing {key}"):
        op_line_from_builtins(data)


@pytest.mark.parametrize("data", [None, 3, "text", [NEEDED]])
def test_a_line_that_is_no_object_is_refused(data):
    with pytest.raises(BadData, match="expected an object"):
        op_line_from_builtins(data)


def test_all_faults_of_all_lines_are_reported():
    two_faults = json.dumps({**NEEDED, "op_index": "x", "inputs": [{"$set": 1}]}).encode()
    first, second = scan(two_faults + b"\nnot json\n")
    assert [fault.path for fault in first.faults] == ["$.op_index", "$.inputs[0].$set"]
    assert (second.number, second.faults[0].path) == (2, "$")


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b'{"a":1,"a":2}\n', b"[" * 5000 + b"\n"])
def test_bytes_that_are_no_json_are_a_bad_line(content):
    (line,) = scan(content)
    assert isinstance(line, BadLine)

import os
import signal
import subprocess
import sys
import textwrap
from functools import partial

import pytest

import fakeframework as fake
import observed_calls
from optrove.capture.sinks import OpLineWriter
from optrove.model.records import CallSite, Phase, Scope
from optrove.model.values import Int, List, Null, TensorSpec
from optrove.serializer import plain
from optrove.serializer.op_lines import BadLine, OpError, read_op_lines
from optrove.serializer.tables import Tables

observed = partial(observed_calls.observed, tables=Tables((plain.table(), fake.table())))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "made" / "for" / "it" / "ops.jsonl"


@pytest.fixture
def sink(path):
    sink = OpLineWriter(path)
    yield sink
    sink.close()


def lines(path):
    with path.open("rb") as stream:
        return list(read_op_lines(stream))


def test_a_call_is_in_the_file_as_soon_as_it_was_handed_over(sink, path):
    sink.completed(
        observed(
            *(1, [2]),
            keywords={"b": None},
            result=3,
            case_id="c" * 64,
            number=4,
            parent=3,
            depth=1,
            scope=Scope("test_a.py::test_b", Phase.CALL, "models.mlp", "decode"),
            call_site=CallSite("model.py", 7),
            process=5,
        )
    )
    (line,) = lines(path)
    assert (line.run_id, line.test_id, line.module) == ("run", "test_a.py::test_b", "models.mlp")
    assert (line.phase, line.mode, line.process) == (Phase.CALL, "decode", 5)
    assert (line.op, line.op_index, line.parent, line.depth) == ("fake.add", 4, 3, 1)
    assert line.inputs == (Int(1), List((Int(2),)))
    assert line.keywords == (("b", Null()),)
    assert line.output == Int(3)
    assert line.error is None
    assert line.case_id == "c" * 64
    assert line.call_site == CallSite("model.py", 7)
    assert line.started_at == "2026-01-15T10:46:16.345678Z"
    assert line.duration_ms == 1.5


def test_one_tensor_has_one_number_throughout_a_call(sink, path):
    first, second = fake.Tensor((2,)), fake.Tensor((3,))
    sink.completed(observed(first, [second], keywords={"out": first}, result=(second, first)))
    (line,) = lines(path)
    tensors = [line.inputs[0], line.inputs[1].items[0], line.keywords[0][1], *line.output.items]
    assert all(isinstance(tensor, TensorSpec) for tensor in tensors)
    assert [tensor.identity for tensor in tensors] == [0, 1, 0, 1, 0]


def test_the_order_of_keywords_does_not_change_the_line(sink, path):
    first, second = fake.Tensor((2,)), fake.Tensor((3,))
    sink.completed(observed(keywords={"a": first, "b": second}))
    sink.completed(observed(keywords={"b": second, "a": first}))
    one, other = lines(path)
    assert one.keywords == other.keywords


class Refusal(Exception):
    pass


def test_a_call_that_raised_says_what(sink, path):
    sink.completed(observed(1, error=ValueError("no\nsuch shape"), result=None))
    sink.completed(observed(1, error=Refusal("x")))
    first, second = lines(path)
    assert (first.error, first.output) == (OpError("ValueError", "no\nsuch shape"), None)
    assert second.error.type == f"{Refusal.__module__}.Refusal"


def test_what_no_converter_knows_is_written_as_opaque(sink, path):
    sink.completed(observed(object()))
    (line,) = lines(path)
    assert line.inputs[0].type == "builtins.object"


def test_what_is_in_the_file_stays_and_a_torn_line_gets_its_end(tmp_path):
    path = tmp_path / "ops.jsonl"
    for _ in range(2):
        sink = OpLineWriter(path)
        sink.completed(observed(1))
        sink.close()
    with path.open("ab") as stream:
        stream.write(b'{"run_id": "ki')
    sink = OpLineWriter(path)
    sink.completed(observed(2))
    sink.close()
    *whole, torn, last = lines(path)
    assert len(whole) == 2
    assert isinstance(torn, BadLine)
    assert last.inputs == (Int(2),)


def test_a_closed_sink_takes_no_more_calls(sink):
    sink.close()
    sink.close()
    with pytest.raises(ValueError, match="closed"):
        sink.completed(observed())


def test_a_path_that_cannot_be_written_is_an_error_of_the_system(tmp_path):
    with pytest.raises(IsADirectoryError):
        OpLineWriter(tmp_path)


WRITER = textwrap.dedent("""
    import os, sys
    from pathlib import Path
    from observed_calls import observed
    from optrove.serializer import plain
    from optrove.serializer.tables import Tables
    from optrove.capture.sinks import OpLineWriter
    tables = Tables((plain.table(),))
    sink = OpLineWriter(Path(sys.argv[1]))
    process, calls = int(sys.argv[2]), int(sys.argv[3])
    for index in range(calls):
        sink.completed(observed("x" * (index * 97 % 9000), number=index, process=process))
    if process == 0:
        print("written", flush=True)
        sys.stdin.read()
""")


def start(path, process, calls):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(process), str(calls)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_share_a_file_and_a_killed_one_has_written_every_call(tmp_path):
    path = tmp_path / "ops.jsonl"
    with start(path, 0, 200) as killed, start(path, 1, 200) as other:
        assert killed.stdout.readline() == "written\n"
        killed.send_signal(signal.SIGKILL)
        other.communicate()
    assert other.returncode == 0
    found = lines(path)
    for process in (0, 1):
        indices = [line.op_index for line in found if line.process == process]
        assert indices == list(range(200))

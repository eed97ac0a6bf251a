import sys
import threading
from dataclasses import dataclass

import pytest

from optrove.errors import BadData
from optrove.frameworks.probe_protocol import CONFIG_UNPACKING, muted
from optrove.journal.format import find_journals
from optrove.journal.reader import JournalReader
from optrove.journal.writer import WINDOW_RECORDS
from optrove.runconfig import MeshDeviceStub, OpConfig, create_run_config
from tracing import fake_op, perform, start_recorder


@dataclass
class FakeConfig(OpConfig):
    ops = ("fake.op",)
    a: int = 0


@dataclass
class AnyConfig(OpConfig):
    a: int = 0


@pytest.fixture
def recorder(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    CONFIG_UNPACKING.on_unpack = recorder.marks.unpacked
    yield recorder
    CONFIG_UNPACKING.on_unpack = None
    journal.close()


@pytest.fixture
def cfg(monkeypatch):
    layer = {"w1": FakeConfig(a=1), "any": AnyConfig(a=2)}
    # Where ttnn has been imported, its signatures would be asked about the fake op.
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "ttnn", raising=False)
        return create_run_config({"layers": {"0-1": layer}}, {}, MeshDeviceStub((1, 1)))["layers"]


def call(recorder, op="fake.op", **keywords):
    perform(recorder, fake_op(op), lambda a: a, keywords.get("a", 0))


def counted(directory):
    (lines,) = find_journals(directory)
    content = JournalReader(lines)
    return {
        (path, content.case(number).op): calls for path, number, calls in content.config_calls()
    }


def test_calls_are_counted_by_the_entry_that_was_unpacked_just_before(recorder, cfg, tmp_path):
    for _ in range(3):
        call(recorder, **cfg[0]["w1"])
        call(recorder, a=1)
        call(recorder, **cfg[1]["w1"])
    call(recorder, "other.op", **cfg[1]["any"])
    assert counted(tmp_path) == {
        ("layers.0.w1", "fake.op"): 3,
        ("layers.1.w1", "fake.op"): 3,
        ("layers.1.any", "other.op"): 1,
    }


def test_an_entry_that_was_unpacked_for_something_else_is_not_counted(recorder, cfg, tmp_path):
    dict(cfg[0]["w1"])
    call(recorder, "other.op")
    call(recorder, **cfg[0]["w1"])
    with muted():
        dict(cfg[0]["any"])
    call(recorder)
    assert counted(tmp_path) == {("layers.0.w1", "fake.op"): 1}


def test_reading_a_config_without_unpacking_it_marks_nothing(recorder, cfg, tmp_path):
    assert list(cfg[0]["w1"]) == ["a"]
    assert cfg[0]["w1"]["a"] == 1
    call(recorder)
    assert counted(tmp_path) == {}
    assert not list(tmp_path.glob("*.configs"))


def test_marks_go_on_in_the_next_window(recorder, cfg, tmp_path):
    for _ in range(WINDOW_RECORDS - 1):
        recorder.fast_path_state.window.take()
    for _ in range(3):
        call(recorder, **cfg[0]["w1"])
    assert counted(tmp_path) == {("layers.0.w1", "fake.op"): 3}
    assert not recorder.faults


def test_two_threads_that_unpack_before_one_call_leave_it_without_an_entry(recorder, cfg, tmp_path):
    dict(cfg[0]["w1"])
    other = threading.Thread(target=lambda: dict(cfg[1]["w1"]))
    other.start()
    other.join()
    call(recorder)
    assert counted(tmp_path) == {}


def test_a_journal_that_cannot_be_written_is_a_fault_that_does_not_reach_the_program(
    recorder, cfg, tmp_path
):
    (lines,) = find_journals(tmp_path)
    lines.with_suffix(".configs").mkdir()
    call(recorder, **cfg[0]["w1"])
    ((fault, times),) = recorder.faults.items()
    assert fault.startswith("the entries of run configurations: FileExistsError")
    assert times == 1


def test_bad_marks_are_refused(recorder, cfg, tmp_path):
    call(recorder, **cfg[0]["w1"])
    (file,) = tmp_path.glob("*.configs")
    file.write_bytes(b"something else")
    with pytest.raises(BadData, match="was it overwritten"):
        counted(tmp_path)


def test_nothing_is_marked_after_the_recorder_was_closed(recorder, cfg, tmp_path):
    recorder.close()
    dict(cfg[0]["w1"])
    assert counted(tmp_path) == {}

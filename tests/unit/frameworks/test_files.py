"""A replay gives a call files of its own, and the trace of it says what was recorded."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from optrove.errors import NotReplayable
from optrove.frameworks.ttnn.execute.files import (
    held_by_file,
    place_of_file,
    remove_old_files,
    replay_file,
    without_directories,
)
from optrove.model.case import Case
from optrove.model.values import Int, Null, Struct, Text

AS_TENSOR = "ttnn.as_tensor"


def path(text):
    return Struct("python.PosixPath", (("path", Text(text)),))


@pytest.mark.parametrize(
    ("op", "argument", "recorded", "name"),
    [
        ("ttnn.load_tensor", "file_name", Text("/home/me/w.tensorbin"), "tensor.tensorbin"),
        ("ttnn.load_tensor", "arg0", path("w.bin"), "tensor.bin"),
        ("ttnn.dump_tensor", "file_name", path("/w.tensorbin"), "tensor.tensorbin"),
        ("ttnn.dump_tensor", "file_name", Text("/w/.."), "tensor"),
        ("ttnn.dump_tensor", "file_name", Text("w.\0/../../a"), "tensor"),
        (AS_TENSOR, "cache_file_name", path("/cache/w1"), "tensor"),
    ],
)
def test_the_recorded_file_is_replaced_by_one_that_goes_again(op, argument, recorded, name):
    case = Case(op, ((argument, recorded), ("tensor", Text(name))))
    with replay_file(op, case) as file:
        passed = file.substituted(dict(case.arguments))
        assert file.path.name == name
        assert file.path.parent.is_dir()
        assert str(file.path) in str(passed[argument])
        traced = Case(op, ((argument, file.traced), ("tensor", Text(name))))
        assert traced != case
        assert file.as_recorded(traced) == case
    assert not file.path.parent.exists()


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("ttnn.add", (("file_name", Text("a")),)),
        ("ttnn.as_tensor", (("tensor", Int(1)),)),
        ("ttnn.as_tensor", (("cache_file_name", Null()),)),
    ],
)
def test_calls_that_name_no_file_are_left_as_they_are(op, arguments):
    with replay_file(op, Case(op, arguments)) as file:
        assert file is None


@pytest.mark.parametrize(
    ("op", "arguments", "message"),
    [
        ("ttnn.load_tensor", {"file_name": Int(1)}, "does not tell which file"),
        ("ttnn.load_tensor", {"file_name": Null()}, "does not tell which file"),
        ("ttnn.load_tensor", {"file_name": Struct("x.Path", ())}, "does not tell which file"),
        ("ttnn.dump_tensor", {}, "the recording names no file"),
        ("ttnn.dump_tensor", {"arg0": Text("a"), "file_name": Text("b")}, "names no file"),
        (AS_TENSOR, {"cache_file_name": Text("w"), "tensor": Null()}, "lacks the cache"),
    ],
)
def test_a_call_without_one_readable_file_is_refused(op, arguments, message):
    case = Case(op, tuple(arguments.items()))
    with pytest.raises(NotReplayable, match=message), replay_file(op, case):
        pass


def test_what_is_said_of_the_file_is_said_of_the_recorded_one():
    case = Case("ttnn.load_tensor", (("file_name", Text("w.bin")),))
    with replay_file("ttnn.load_tensor", case) as file:
        assert file.text_as_recorded(f"File {file.path} must end") == "File w.bin must end"


@pytest.mark.parametrize(
    ("op", "arguments", "place"),
    [
        ("ttnn.dump_tensor", ("file_name", "tensor"), "$.arguments.file_name"),
        ("ttnn.dump_tensor", ("arg1", "arg2"), "$.arguments"),
        ("ttnn.ttnn.dump_tensor", ("arg00", "arg1"), "$.arguments"),
        ("ttnn.load_tensor", ("arg0", "file_name"), "$.arguments.arg0"),
        ("ttnn.ttnn.as_tensor", ("cache_file_name", "tensor"), "$.arguments.cache_file_name"),
        ("ttnn.as_tensor", ("tensor",), None),
        ("ttnn.add", ("file_name",), None),
    ],
)
def test_whatever_may_name_a_file_is_found_under_any_name(op, arguments, place):
    case = Case(op, tuple((name, Text("x")) for name in arguments))
    assert place_of_file(case) == place


def test_only_old_files_of_processes_that_are_gone_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    kept = {
        f"optrove-replay-{os.getpid()}-a",
        f"optrove-replay-{gone.pid}-new",
        "optrove-replay-x-a",
    }
    for name in (*kept, f"optrove-replay-{gone.pid}-old"):
        (tmp_path / name).mkdir()
        if not name.endswith("new"):
            os.utime(tmp_path / name, (0, 0))
    remove_old_files()
    assert {each.name for each in tmp_path.iterdir()} == kept


@pytest.mark.parametrize("outputs", [None, (), (Null(),)])
def test_what_a_file_held_has_to_be_known(outputs):
    with pytest.raises(NotReplayable, match="the recording lacks what was in the file"):
        held_by_file(outputs)


@pytest.mark.parametrize(
    ("live", "message"),
    [
        ("/var/a/w.tensorbin", "w.tensorbin"),
        (Path("/home/me/w.tensorbin"), Path("w.tensorbin")),
        ("w.tensorbin", "w.tensorbin"),
        ("", ""),
        (Path(), Path()),
        (3, 3),
    ],
)
def test_files_are_shown_by_their_names(live, message):
    bind = without_directories("ttnn.load_tensor", lambda arguments, _: {"file_name": arguments[0]})
    assert bind((live,), {}) == {"file_name": message}


def test_other_arguments_are_shown_unchanged():
    def bind(arguments, keywords):
        return dict(keywords)

    assert without_directories("ttnn.add", bind) is bind
    as_tensor = without_directories("ttnn.as_tensor", bind)
    assert as_tensor((), {"tensor": "/a/b", "cache_file_name": "/a/b"}) == {
        "tensor": "/a/b",
        "cache_file_name": "b",
    }

import sys
from types import ModuleType

import pytest

import optrove
from optrove.capture.recorder import Sites
from optrove.journal.calls import Dictionary
from optrove.journal.writer import Numbering
from tracing import readers_in, start_recorder


@pytest.fixture
def sites(tmp_path):
    recorder, journal = start_recorder(tmp_path)
    yield recorder._sites
    journal.close()


def code_in(file, name="user"):
    """Return a function of a module, which gives its caller's and its own frame."""
    space = {"sys": sys, "__name__": name}
    exec(compile("def look(): return sys._getframe()", file, "exec"), space)  # noqa: S102 - code of another file
    return space["look"]


def test_a_line_has_one_number_and_is_found_again(sites, tmp_path):
    numbers = [sites.number(sys._getframe()) for _ in range(3)]
    line = sys._getframe().f_lineno - 1
    other = sites.number(sys._getframe())
    assert len({*numbers}) == 1
    assert other != numbers[0]
    (reader,) = readers_in(tmp_path)
    known = Dictionary(reader.dictionary())
    assert known.entry("sites", numbers[0]) == [__file__, line]
    assert known.entry("sites", other) == [__file__, line + 2]


def test_two_calls_in_one_line_have_one_number(sites):
    numbers = (sites.number(sys._getframe()), sites.number(sys._getframe()))
    assert numbers[0] == numbers[1]


def test_frames_of_frameworks_and_of_optrove_do_not_count(sites):
    own = optrove.__file__.replace("__init__", "capture/made_up")
    for look in (
        code_in("/somewhere/a.py", "ttnn.operations.a"),
        code_in("/somewhere/b.py", "torch.nn"),
        code_in(own),
        code_in("<frozen importlib._bootstrap>"),
    ):
        site = sites.locate(look())
        assert site.file == __file__
    assert sites.locate(code_in("/somewhere/c.py", "ttnn_models")()).file == "/somewhere/c.py"


def test_a_frameworks_module_under_another_name_is_known_by_its_file(sites, monkeypatch):
    framework = ModuleType("ttnn")
    framework.__file__ = "/packages/ttnn/__init__.py"
    monkeypatch.setitem(sys.modules, "ttnn", framework)
    assert sites.locate(code_in("/packages/ttnn/operations/core.py", "core")()).file == __file__
    users = "/packages/ttnn_models/core.py"
    assert sites.locate(code_in(users, "core")()).file == users


def test_no_users_line_is_no_site(tmp_path):
    class Nowhere:
        f_code = code_in("/somewhere/a.py").__code__
        f_globals = {"__name__": "torch"}  # noqa: RUF012 - never changed
        f_back = None

    sites = Sites(Numbering(None))
    assert sites.number(Nowhere) == 0
    assert sites.locate(Nowhere) is None

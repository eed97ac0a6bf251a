import pytest

from optrove.errors import BadTarget
from optrove.tracing.targets import TargetKind, find_target

TEST_FUNCTION = "import pytest\n\ndef test_it():\n    pass\n"
ASYNC_TEST = "async def test_it(): ...\n"
TEST_CLASS = "class TestIt:\n    def test_it(self): ...\n"
TRAINING = "def train(): ...\n\ndef test(model): ...\n\nif __name__ == '__main__':\n    train()\n"
BROKEN = "def test_it(:\n"


@pytest.fixture(autouse=True)
def working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("test_model.py", "", TargetKind.PYTEST),
        ("model_test.py", BROKEN, TargetKind.PYTEST),
        ("demo.py", TEST_FUNCTION, TargetKind.PYTEST),
        ("demo.py", ASYNC_TEST, TargetKind.PYTEST),
        ("demo.py", TEST_CLASS, TargetKind.PYTEST),
        ("demo.py", "class TestBed: ...\n", TargetKind.SCRIPT),
        ("demo.py", TRAINING, TargetKind.SCRIPT),
        ("demo.py", BROKEN, TargetKind.SCRIPT),
        ("demo.py", "", TargetKind.SCRIPT),
        ("testing.py", "", TargetKind.SCRIPT),
    ],
)
def test_a_file_is_for_pytest_when_there_are_tests_in_it(working_directory, name, content, kind):
    (working_directory / name).write_text(content)
    assert find_target(name).kind is kind


def test_a_node_and_a_directory_are_for_pytest(working_directory):
    (working_directory / "demo.py").write_text("")
    (working_directory / "tests").mkdir()
    assert find_target("demo.py::test_it[a::b]").kind is TargetKind.PYTEST
    assert find_target("tests").kind is TargetKind.PYTEST


def test_the_name_stays_as_it_was_given(working_directory):
    (working_directory / "demo.py").write_text("")
    assert find_target("./demo.py").name == "./demo.py"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("dmeo.py", "is it 'demo.py'\\?"),
        ("dmeo.py::test_it", "there is no file 'dmeo.py' here; is it 'demo.py'\\?"),
        ("entirely_else.py", "check the spelling"),
        ("nowhere/demo.py", "no directory 'nowhere' either"),
        ("notes.md", "neither a Python file"),
    ],
)
def test_what_cannot_be_run_is_refused_with_advice(working_directory, name, advice):
    (working_directory / "demo.py").write_text("")
    (working_directory / "notes.md").write_text("")
    with pytest.raises(BadTarget, match=advice):
        find_target(name)

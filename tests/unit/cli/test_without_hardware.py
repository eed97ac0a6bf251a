import re
from pathlib import Path

import pytest

from optrove.cli import without_hardware as demo
from optrove.cli.main import main
from optrove.errors import FrameworkMissing, NotFound

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("shadow", [False, True])
def test_every_command_of_the_demo_is_one_that_optrove_takes(shadow):
    for step in demo.steps(EXAMPLES, shadow=shadow):
        name, *words = step.words
        context = main.commands[name].make_context(name, words)
        assert context.args == []


def test_numbers_are_asked_for_only_where_something_computes_them():
    plain, computed = (demo.steps(EXAMPLES, shadow=shadow) for shadow in (False, True))
    assert not any("shadow" in step.line for step in plain)
    verbs = [step.words[0] for step in computed if "shadow" in step.line]
    assert verbs == ["trace", "trace", "trace", "replay", "sweep"]


def test_what_is_shown_can_be_copied_into_a_shell():
    lines = [step.line for step in demo.steps(Path("my examples"), shadow=False)]
    assert "'my examples/encoder/test_encoder.py'" in lines[0]
    assert any(re.fullmatch(r"optrove sweep '\*' --board n300 --summary", line) for line in lines)


def test_a_board_that_refuses_cases_is_an_answer_and_a_failing_sweep_is_not():
    by_verb = {step.words[0]: step for step in demo.steps(EXAMPLES, shadow=False)}
    assert by_verb["check-board"].is_well(1)
    assert not by_verb["check-board"].is_well(2)
    assert not by_verb["sweep"].is_well(1)


def test_the_demo_begins_with_an_empty_trove_and_leaves_others_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_NEEDED", ())
    (tmp_path / ".optrove" / "demo.db.journals" / "run").mkdir(parents=True)
    for name in ("demo.db", "demo.db-wal", "trove.db"):
        (tmp_path / ".optrove" / name).touch()
    assert demo.prepared() == EXAMPLES
    assert [path.name for path in (tmp_path / ".optrove").iterdir()] == ["trove.db"]


def test_the_examples_of_a_wheel_are_copied_to_where_they_can_be_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_NEEDED", ())
    monkeypatch.setattr(demo, "_PACKAGE", tmp_path / "site" / "optrove")
    test = tmp_path / "site" / "optrove" / "_examples" / "encoder" / "test_encoder.py"
    test.parent.mkdir(parents=True)
    test.write_text("def test_nothing(): ...")
    examples = demo.prepared()
    assert examples == Path(".optrove/examples")
    assert (examples / "encoder" / "test_encoder.py").is_file()


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(demo, "_NEEDED", ("no_such_package_anywhere",))
    with pytest.raises(FrameworkMissing, match=r"no_such_package_anywhere; pip install"):
        demo.prepared()


def test_an_installation_without_examples_says_where_it_has_looked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "_NEEDED", ())
    monkeypatch.setattr(demo, "_PACKAGE", tmp_path / "lib" / "site" / "optrove")
    with pytest.raises(NotFound, match=r"neither in .*_examples nor in .*examples; install"):
        demo.prepared()

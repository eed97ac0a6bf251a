"""A trace that ended early says so everywhere, whatever ended it."""

import pytest

from ended_early import CASES, EXITS, MODEL, TRACE, ended, last_run, start, states

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a program, which is the current one."""
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTROVE_STORE", "trove.db")
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("ending", EXITS)
def test_a_trace_that_ended_early(project, ending):
    timeout = ("--timeout", "5") if ending == "out_of_budget" else ()
    how = "full" if ending == "disk_full" else "wait"
    marker = project / "marker"
    target = ("--", marker, how, CASES)
    process = start(project, "-m", "optrove", *TRACE, *timeout, *target)
    output = ended(process, marker, ending)
    assert process.returncode == {**EXITS, "disk_full": 0}[ending], output
    found, texts = states(last_run("trace"), "trace")
    state = "killed" if ending == "out_of_budget" else ending
    assert found == {state}
    assert all(f"incomplete, {state.replace('_', ' ')}" in text for text in texts)
    if ending == "disk_full":
        assert "x the journal could not be written" in output

"""A simulated board in pytest: what is refused, and the last line of a simulator is not lost."""

import os

import pytest

STAND_IN = """
    import os
    from contextlib import contextmanager
    from types import SimpleNamespace
    from optrove.pytest_plugin import start

    @contextmanager
    def sim_board(name):
        yield SimpleNamespace(name=name, title="a stand-in")

    start.sim_board = sim_board
"""
TEST = """
    import os

    def test_it_passes():
        print("captured")

    def test_a_kernel_that_is_refused():
        os.write(1, b"[5] ERROR: UnimplementedFunctionality: pack: mode\\n")
        os._exit(1)
"""


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv("OPTROVE_BOARD", raising=False)
    pytester.makepyfile(stand_in=STAND_IN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(pytester.path), *_inherited())))

    def run(*options):
        return pytester.runpytest_subprocess("-p", "stand_in", "-p", "optrove", *options)

    return run


def _inherited():
    given = os.environ.get("PYTHONPATH")
    return (given,) if given else ()


def test_the_line_of_the_simulator_survives_the_end_of_the_process(run, pytester):
    pytester.makepyfile(TEST)
    done = run("--optrove-sim", "n150")
    assert done.ret == 1
    text = done.stdout.str()
    assert "optrove: simulated board n150, a stand-in; real kernels" in text
    assert "[5] ERROR: UnimplementedFunctionality: pack: mode" in text
    assert "captured" not in text


@pytest.mark.parametrize("more", [("--optrove-board", "n300"), ("--optrove-shadow",)])
def test_one_board_can_be_given(run, more):
    done = run("--optrove-sim", "n150", *more)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--optrove-sim names a simulated board, --optrove-board a mock one" in done.stderr.str()

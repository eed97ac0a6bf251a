"""A run without a part from outside says so in its last line, and fails in CI."""

from pathlib import Path

import pytest

TESTS = """
    import pytest
    from parts import leave_out

    @pytest.mark.parametrize("number", [1, 2])
    def test_page(number):
        leave_out("browser", "nothing to download from")

    def test_other():
        pytest.skip("not today")
"""
LINE = (
    "browser (2 tests: nothing to download from; install chromium, "
    "or set OPTROVE_BROWSER to the path of a Chromium)"
)


@pytest.fixture
def run(pytester, monkeypatch):
    """Run tests with the plugin; return the exit status and the last line."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("OPTROVE_MISSING_PYTHONS", raising=False)
    pytester.makeconftest("pytest_plugins = ('parts',)")

    def run(source, *options, **variables):
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        pytester.makepyfile(source)
        done = pytester.runpytest(*options)
        return done.ret, done.outlines[-1]

    return run


@pytest.mark.parametrize("options", [(), ("-n", "2"), ("-q",)])
def test_the_last_line_names_the_part_the_reason_and_the_remedy(run, options):
    assert run(TESTS, *options) == (0, f"Left out: {LINE}")


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_in_ci_the_run_fails(run, options):
    said = f"FAILED, because CI is set and tests were left out: {LINE}"
    assert run(TESTS, *options, CI="true") == (1, said)


def test_in_ci_the_run_may_lack_an_optional_part(run):
    without = """
        from parts import leave_out

        def test_kernel():
            leave_out("simulator", "OPTROVE_SIM is not set")

        def test_other(): ...
    """
    status, last = run(without, CI="true")
    assert status == 0
    assert last.startswith("Left out: simulator (1 test: OPTROVE_SIM is not set; set it to a dir")


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_test_module_that_imports_a_missing_part_is_left_out(run, options):
    hidden = "raise ModuleNotFoundError('there is none', name='ray')"
    status, last = run(hidden, *options)
    assert status == pytest.ExitCode.NO_TESTS_COLLECTED
    assert last.startswith("Left out: Ray (whole files: ray is not installed; run: pip install")


def test_other_pythons_that_were_not_found_are_named(run):
    passes = "def test_it(): ..."
    assert run(passes, OPTROVE_MISSING_PYTHONS="3.11 3.13")[1] == (
        "Left out: Python 3.11 (not found; install it, for example with pyenv or uv), "
        "Python 3.13 (not found; install it, for example with pyenv or uv)"
    )
    assert run(passes, CI="true")[0] == 1


def test_nothing_is_said_when_nothing_is_missing(run):
    status, last = run("def test_it(): ...", CI="true")
    assert status == 0
    assert "1 passed" in last

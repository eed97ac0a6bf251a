"""The options of the plugin, without a framework to trace."""

import pytest


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("OPTROVE_BOARD", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--trace-params-with-values",), "*--trace-params-with-values*: add --trace-params*"),
        (("--trace-params-keep",), "*--trace-params-keep*: add --trace-params*"),
        (("--ops-jsonl", ""), "*--ops-jsonl needs a path, and got an empty one*"),
        (("--optrove-store", ""), "*--optrove-store needs a path or a URL*"),
        (("--optrove-include", "add"), "*--optrove-include without anything to trace into*"),
        (("--optrove-backend", "jax", "--trace-params"), "*--optrove-backend*'jax'*"),
        (("--ops-jsonl", "."), "*cannot be written*choose another file*"),
        (("--ops-jsonl", ".", "-n", "2"), "*cannot be written*choose another file*"),
        (("--optrove-journal", "test_one.py/journal"), "*journal*cannot be written*"),
        (("--optrove-board", "n3000"), "*no board is called 'n3000'*n300*bh-galaxy*"),
        (("--optrove-board", ""), "*no board is called ''*"),
        (("--optrove-shadow",), "*--optrove-shadow needs a mock board: add --optrove-board NAME*"),
        (("--results-csv", ""), "*--results-csv needs a path*"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(pytester, options, message):
    pytester.makepyfile(test_one="def test_one(): pass")
    result = pytester.runpytest_subprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_session_without_calls_says_so_and_leaves_nothing_behind(pytester, processes):
    pytester.makepyfile(test_one="def test_one(): pass")
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl", *processes)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["not a single op call was traced: *"])
    assert (pytester.path / "ops.jsonl").read_text() == ""
    assert not (pytester.path / "ops.jsonl.journal").exists()


def test_collecting_tests_prints_no_warning_about_missing_calls(pytester):
    pytester.makepyfile(test_one="def test_one(): pass")
    result = pytester.runpytest_subprocess("--trace-params", "--collect-only")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*not a single op call*")


def test_the_options_explain_themselves(pytester):
    result = pytester.runpytest_subprocess("--help")
    result.stdout.fnmatch_lines(["*--optrove-board=NAME*", "*--optrove-shadow*"])

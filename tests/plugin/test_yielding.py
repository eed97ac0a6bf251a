"""Conftests that have options of the same names, as tt-metal's have."""

import pytest

THEIRS = """
    def pytest_addoption(parser):
        parser.addoption("--ops-jsonl", action="store", default=None, help="theirs")
        parser.addoption("--trace-params", action="store_true", default=False)
        group = parser.getgroup("tt-metal")
        group.addoption("--results-csv", dest="their_csv", type=str.upper)
        group.addoption("--trace-params-with-values", action="store_true")
        parser.getgroup("optrove").addoption("--optrove-board", choices=["n150", "theirs"])
"""
TEST = """
    def test_theirs_work(request):
        option = request.config.option
        assert option.ops_jsonl == "ops.jsonl"
        assert option.their_csv == "RESULTS.CSV"
        assert option.trace_params is request.config.getoption("--trace-params") is True
        assert option.trace_params_with_values is False
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("OPTROVE_BOARD", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_theirs_and_ours_are_read(pytester, processes):
    pytester.makeconftest(THEIRS)
    pytester.makepyfile(TEST)
    options = ("--ops-jsonl", "ops.jsonl", "--results-csv", "results.csv", "--trace-params")
    pytester.runpytest_subprocess(*options, *processes).assert_outcomes(passed=1)
    assert (pytester.path / "ops.jsonl").exists()
    assert len((pytester.path / "results.csv").read_text().splitlines()) == 2


def test_their_options_do_no_harm_when_nobody_uses_them(pytester):
    pytester.makeconftest(THEIRS)
    pytester.makepyfile("def test_one(): pass")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    shown = pytester.runpytest_subprocess("--help").stdout
    shown.fnmatch_lines_random(["*--optrove-store=*", "*--ops-jsonl=OPS_JSONL*"])
    shown.no_fnmatch_line("*TT_OP_RESULTS_JSONL*")


def test_a_plugin_that_came_first_keeps_its_option(pytester):
    pytester.makepyfile(
        early="""
        def pytest_addoption(parser):
            parser.addoption("--ops-jsonl", default=None)
            parser.getgroup("early").addoption("--results-csv", default=None)
        """
    )
    pytester.makepyfile("def test_one(): pass")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("-p", "early", "--ops-jsonl", "ops.jsonl")
    result.assert_outcomes(passed=1)
    assert (pytester.path / "ops.jsonl").exists()


def test_a_conflict_among_others_is_still_an_error(pytester):
    pytester.makeconftest(
        """
        def pytest_addoption(parser):
            parser.addoption("--theirs")
            parser.addoption("--theirs")
        """
    )
    assert pytester.runpytest_subprocess().ret != pytest.ExitCode.OK


def test_a_conftest_deep_down_may_have_the_same_option(pytester):
    deep = pytester.mkpydir("deep")
    deep.joinpath("conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--ops-jsonl')\n"
    )
    deep.joinpath("test_deep.py").write_text("def test_one(): pass\n")
    pytester.makeini("[pytest]\n")
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl")
    result.assert_outcomes(passed=1)

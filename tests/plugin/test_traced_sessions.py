"""Sessions that are traced and end in every possible way; their operations need no framework."""

import json
from pathlib import Path

import pytest

from optrove.journal.format import find_journals
from optrove.model.records import TestOutcome
from optrove.model.values import Int, Text
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from tracing import journals

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Let sessions find the operations, and nothing that would change what they do."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    for name in ("OPTROVE_BOARD", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV", "HF_MODEL"):
        monkeypatch.delenv(name, raising=False)


def lines(pytester):
    return [json.loads(line) for line in (pytester.path / "ops.jsonl").read_text().splitlines()]


def ops(pytester):
    return [line["op_name"] for line in lines(pytester)]


PHASES = """
    import pytest
    from traced_program import add, apply, divide

    ONE = add(0, 1)

    @pytest.fixture
    def doubled():
        yield add(ONE, ONE)
        divide(ONE, ONE)

    @pytest.mark.parametrize("mode", ["prefill", "decode"])
    def test_apply(doubled, mode):
        apply(int)
"""


def test_calls_belong_to_their_test_and_phase(pytester):
    pytester.makepyfile(test_phases=PHASES)
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl", "-q")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*optrove: op calls*", "7 lines, one per observed call: *ops.jsonl"]
    )
    rows = [(line["test_nodeid"], line["phase"], line["op_name"]) for line in lines(pytester)]
    assert rows == [
        (None, None, "fake.add"),
        *(
            (f"test_phases.py::test_apply[{mode}]", phase, op)
            for mode in ("prefill", "decode")
            for phase, op in (
                ("setup", "fake.add"),
                ("call", "fake.apply"),
                ("teardown", "fake.divide"),
            )
        ),
    ]
    inside = [line for line in lines(pytester) if line["test_nodeid"]]
    assert {line["module"] for line in inside} == {"phases"}
    assert {line["mode"] for line in inside} == {"prefill", "decode"}
    assert not (pytester.path / "ops.jsonl.journal").exists()


OUTCOMES = """
    import pytest
    from traced_program import add

    @pytest.fixture
    def broken():
        add(1, 1)
        raise RuntimeError("no board")

    @pytest.fixture
    def breaks_later():
        yield
        raise RuntimeError("cannot close")

    @pytest.mark.parametrize("size", [3])
    def test_passes(size, record_metric):
        record_metric("pcc", 0.99, threshold=0.9, passed=True)
        record_metric("error", float("nan"))
        add(size, 1)
    def test_fails(): assert add(1, 1) == 3
    def test_skips(): pytest.skip("not today")
    def test_setup(broken): pass
    def test_teardown(breaks_later): pass
    @pytest.mark.xfail(reason="known")
    def test_xfails(): assert 0
    @pytest.mark.xfail(reason="thought so")
    def test_xpasses(): pass
"""


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_every_test_has_its_result(pytester, processes):
    pytester.makepyfile(test_outcomes=OUTCOMES)
    outputs = ("--optrove-store", "trove.db", "--results-csv", "results.csv")
    options = (*outputs, "--optrove-model", "m")
    pytester.runpytest_subprocess(*options, *processes)
    with open_reader(place_of(str(pytester.path / "trove.db"))) as reader:
        (row,) = reader.runs()
        rows = list(reader.tests(row.run.id))
        processes_seen = {call.process for call in reader.calls(row.run.id)}
    assert processes_seen == ({1, 2} if processes else {0})
    assert row.run.model == "m"
    assert f",{row.run.id}," in (pytester.path / "results.csv").read_text()
    results = {one.test_id.partition("::")[2]: one for one in rows}
    assert {name: result.outcome.value for name, result in results.items()} == {
        "test_passes[3]": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_setup": "error",
        "test_teardown": "error",
        "test_xfails": "xfailed",
        "test_xpasses": "xpassed",
    }
    passed = results["test_passes[3]"]
    assert passed.parameters == (("size", Int(3)),)
    assert [(one.name, one.threshold, one.passed) for one in passed.metrics] == [
        ("pcc", 0.9, True),
        ("error", None, None),
    ]
    assert passed.module == "outcomes"
    assert None not in (passed.setup_ns, passed.call_ns, passed.teardown_ns, passed.started_at)
    assert "no board" in results["test_setup"].error
    assert results["test_setup"].call_ns is None


ENDS = """
    import os, pytest
    from traced_program import add

    def test_first():
        add(1, 1)

    def test_last():
        add(2, 2)
        {end}

    def test_never():
        add(3, 3)
"""


@pytest.mark.parametrize(
    ("end", "options", "outcome"),
    [
        ("pytest.exit('enough')", (), TestOutcome.UNFINISHED),
        ("assert 0", ("-x",), TestOutcome.FAILED),
        ("os._exit(3)", (), None),
    ],
    ids=["exit", "first-failure", "crash"],
)
def test_what_was_called_before_the_end_is_there(pytester, end, options, outcome):
    pytester.makepyfile(test_ends=ENDS.format(end=end))
    options = ("--ops-jsonl", "ops.jsonl", "--optrove-journal", "journal", *options)
    pytester.runpytest_subprocess(*options)
    assert ops(pytester) == ["fake.add"] * 2
    (reader,) = journals(pytester.path / "journal")
    rows = {result.test_id: result.outcome for result in reader.tests}
    expected = {"test_ends.py::test_first": TestOutcome.PASSED}
    assert rows == expected | ({"test_ends.py::test_last": outcome} if outcome else {})
    assert (reader.ending is None) == (outcome is None)


def test_the_journal_of_a_crashed_worker_stays(pytester):
    pytester.makepyfile(test_ends=ENDS.format(end="os._exit(3)"))
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl", "-n", "1")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["journals: *ops.jsonl.journal*"])
    assert ops(pytester) == ["fake.add"] * 3
    readers = journals(pytester.path / "ops.jsonl.journal")
    assert sorted((one.process, one.ending is None) for one in readers) == [(1, True), (2, False)]


def test_a_broken_conftest_or_test_file_keeps_the_lines_before(pytester):
    call = "from traced_program import add\nadd(1, 1)\n"
    pytester.makeconftest(call)
    pytester.makepyfile(test_broken=call + "1 / 0\n")
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert ops(pytester) == ["fake.add"] * 2
    pytester.makeconftest(call + "1 / 0\n")
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert ops(pytester) == ["fake.add"] * 3
    assert {line["test_nodeid"] for line in lines(pytester)} == {None}
    assert {line["phase"] for line in lines(pytester)} == {None}
    assert not (pytester.path / "ops.jsonl.journal").exists()


def test_calls_of_several_sessions_and_workers_share_a_file(pytester, monkeypatch):
    pytester.makepyfile(test_phases=PHASES)
    monkeypatch.setenv("TT_OP_RESULTS_JSONL", "ops.jsonl")
    # As in a worker of an outer session, whose variables are inherited.
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
    pytester.runpytest_subprocess("-n", "1").assert_outcomes(passed=2)
    processes = {}
    for line in lines(pytester):
        processes.setdefault(line["run_id"], set()).add(line["process"])
    assert list(processes.values()) == [{0}, {1}]
    assert len(lines(pytester)) == 7 + 7, "the controller of the worker traces nothing"


def test_a_parameter_that_cannot_be_shown_does_no_harm(pytester):
    pytester.makepyfile(
        test_odd="""
        import pytest
        from traced_program import add

        class Odd:
            def __str__(self):
                raise ValueError("nothing to see")

        @pytest.mark.parametrize("mode", [Odd()], ids=["odd"])
        @pytest.mark.parametrize("kind", ["a"])
        def test_odd(mode, kind):
            add(1, 1)
        """
    )
    result = pytester.runpytest_subprocess("--optrove-journal", "journal")
    result.assert_outcomes(passed=1)
    (reader,) = journals(pytester.path / "journal")
    assert dict(reader.tests[0].parameters)["kind"] == Text("a")
    assert reader.ending.faults
    assert find_journals(pytester.path / "journal")

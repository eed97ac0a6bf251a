"""Tracing in pytest, of torch's calls: sessions that end in every possible way."""

import json
import signal
import subprocess
import sys

import pytest

from optrove.codec.journal_reader import JournalReader, find_journals
from optrove.flows.trace import summarize_directory
from optrove.model.records import CallOutcome, TestOutcome
from optrove.model.values import Int, Text
from optrove.store.place import place_of
from optrove.store.reader import open_reader
from tracing import assert_adds_up

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("OPTROVE_BOARD", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV", "HF_MODEL"):
        monkeypatch.delenv(name, raising=False)


def lines(pytester, name="ops.jsonl"):
    return [json.loads(line) for line in (pytester.path / name).read_text().splitlines()]


def outermost(pytester):
    """The calls that the tests themselves made, by test and phase."""
    return [
        (line["test_nodeid"], line["phase"], line["op_name"])
        for line in lines(pytester)
        if line["depth"] == 0
    ]


def journals(pytester, directory):
    """The readers of all journals below a directory, which must add up."""
    place = pytester.path / directory
    for found in {lines.parent for lines in place.rglob("*.lines")}:
        assert_adds_up(summarize_directory(found))
    return [reader for found in place.rglob("*.lines") for reader in [JournalReader(found)]]


PHASES = """
    import pytest, torch

    ONES = torch.ones(2)

    @pytest.fixture
    def doubled():
        yield torch.add(ONES, ONES)
        torch.neg(ONES)

    @pytest.mark.parametrize("mode", ["prefill", "decode"])
    def test_mul(doubled, mode):
        torch.mul(doubled, doubled)
"""


def test_calls_belong_to_their_test_and_phase(pytester):
    pytester.makepyfile(test_phases=PHASES)
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl", "-q")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*optrove: op calls*", "one line per call: *ops.jsonl"])
    tests = [f"test_phases.py::test_mul[{mode}]" for mode in ("prefill", "decode")]
    assert outermost(pytester) == [
        (None, None, "torch.ones"),
        *(
            (test, phase, op)
            for test in tests
            for phase, op in (
                ("setup", "torch.add"),
                ("call", "torch.mul"),
                ("teardown", "torch.neg"),
            )
        ),
    ]
    inside = [line for line in lines(pytester) if line["test_nodeid"]]
    assert {line["module"] for line in inside} == {"phases"}
    assert {line["mode"] for line in inside} == {"prefill", "decode"}
    assert not (pytester.path / "ops.jsonl.journal").exists()


OUTCOMES = """
    import pytest, torch

    @pytest.fixture
    def broken():
        torch.ones(1)
        raise RuntimeError("no board")

    @pytest.fixture
    def breaks_later():
        yield
        raise RuntimeError("cannot close")

    @pytest.mark.parametrize("size", [3])
    def test_passes(size, record_metric):
        record_metric("pcc", 0.99, threshold=0.9, passed=True)
        record_metric("error", float("nan"))
        torch.ones(size)
    def test_fails(): assert torch.ones(1).item() == 2
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
    options = (
        "--optrove-store",
        "trove.db",
        "--results-csv",
        "results.csv",
        "--optrove-model",
        "m",
    )
    pytester.runpytest_subprocess(*options, *processes)
    with open_reader(place_of(str(pytester.path / "trove.db"))) as reader:
        (row,) = reader.runs()
        told = list(reader.tests(row.run.id))
        processes_seen = {call.process for call in reader.calls(row.run.id)}
    assert processes_seen == ({1, 2} if processes else {0})
    assert row.run.model == "m"
    assert f",{row.run.id}," in (pytester.path / "results.csv").read_text()
    results = {one.test_id.partition("::")[2]: one for one in told}
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
    import os, pytest, torch

    def test_first():
        torch.ones(1)

    def test_last():
        torch.ones(2)
        {end}

    def test_never():
        torch.ones(3)
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
    assert [op for _, _, op in outermost(pytester)] == ["torch.ones", "torch.ones"]
    (reader,) = journals(pytester, "journal")
    told = {result.test_id: result.outcome for result in reader.tests}
    expected = {"test_ends.py::test_first": TestOutcome.PASSED}
    assert told == expected | ({"test_ends.py::test_last": outcome} if outcome else {})
    assert (reader.ending is None) == (outcome is None)


def test_the_journal_of_a_crashed_worker_stays(pytester):
    pytester.makepyfile(test_ends=ENDS.format(end="os._exit(3)"))
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl", "-n", "1")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["journals: *ops.jsonl.journal*"])
    assert [op for _, _, op in outermost(pytester)] == ["torch.ones"] * 3
    readers = journals(pytester, "ops.jsonl.journal")
    assert sorted((one.process, one.ending is None) for one in readers) == [(1, True), (2, False)]


def test_the_call_in_flight_is_known_after_a_kill(pytester):
    pytester.makepyfile(
        test_hang="""
        import torch

        def hangs(value):
            print("here", flush=True)
            while True:
                pass

        def test_hang():
            torch.ones(2).map_(torch.ones(2), lambda a, b: hangs(a))
        """
    )
    command = [sys.executable, "-m", "pytest", "-s", "--ops-jsonl", "ops.jsonl"]
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) as child:
        while "here" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    (reader,) = journals(pytester, "ops.jsonl.journal")
    last = [raw for raw in reader.raw_calls() if raw.depth == 0][-1]
    assert last.outcome is CallOutcome.UNFINISHED
    assert reader.op(last.number) == "torch.Tensor.map_"
    assert reader.call(last, "", "").test_id == "test_hang.py::test_hang"


def test_a_broken_conftest_or_test_file_keeps_the_lines_before(pytester):
    pytester.makeconftest("import torch\ntorch.ones(1)\n")
    pytester.makepyfile(test_broken="import torch\ntorch.ones(2)\n1 / 0\n")
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert outermost(pytester) == [(None, None, "torch.ones")] * 2
    pytester.makeconftest("import torch\ntorch.ones(1)\n1 / 0\n")
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert outermost(pytester) == [(None, None, "torch.ones")] * 3
    assert not (pytester.path / "ops.jsonl.journal").exists()


def test_filtered_calls_are_counted_and_not_written(pytester):
    pytester.makepyfile(test_phases=PHASES)
    options = ("--optrove-include", "torch.mul,torch.neg", "--optrove-exclude", "neg")
    result = pytester.runpytest_subprocess(
        "--ops-jsonl", "ops.jsonl", "--optrove-journal", "journal", *options
    )
    result.assert_outcomes(passed=2)
    assert {op for _, _, op in outermost(pytester)} == {"torch.mul"}
    summary = summarize_directory(pytester.path / "journal")
    assert_adds_up(summary)
    assert [op.op for op in summary.ops] == ["torch.mul"]
    assert sum(count for _, count in summary.accounting.filtered) > 0


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
    assert len(outermost(pytester)) == 7 + 7, "the controller of the worker traces nothing"


def test_a_parameter_that_cannot_be_told_does_no_harm(pytester):
    pytester.makepyfile(
        test_odd="""
        import pytest, torch

        class Odd:
            def __str__(self):
                raise ValueError("nothing to see")

        @pytest.mark.parametrize("mode", [Odd()], ids=["odd"])
        @pytest.mark.parametrize("kind", ["a"])
        def test_odd(mode, kind):
            torch.ones(1)
        """
    )
    result = pytester.runpytest_subprocess("--optrove-journal", "journal")
    result.assert_outcomes(passed=1)
    (reader,) = journals(pytester, "journal")
    assert dict(reader.tests[0].parameters)["kind"] == Text("a")
    assert reader.ending.faults
    assert find_journals(pytester.path / "journal")

"""Tracing in pytest, of torch's calls; tests/plugin covers how sessions may end."""

import json
import signal
import subprocess
import sys

import pytest

from optrove.model.records import CallOutcome
from optrove.tracing.recorded import summarize_directory
from tracing import assert_adds_up, journals, seen_in

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


def test_calls_in_a_worker_belong_to_their_test_and_phase(pytester):
    pytester.makepyfile(test_phases=PHASES)
    result = pytester.runpytest_subprocess("--ops-jsonl", "ops.jsonl", "-q", "-n", "1")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*optrove: op calls*", "* lines, one per observed call: *ops.jsonl"]
    )
    tests = [f"test_phases.py::test_mul[{mode}]" for mode in ("prefill", "decode")]
    assert outermost(pytester) == [
        (None, None, "torch.ops.aten.ones.default"),
        *(
            (test, phase, op)
            for test in tests
            for phase, op in (
                ("setup", "torch.ops.aten.add.Tensor"),
                ("call", "torch.ops.aten.mul.Tensor"),
                ("teardown", "torch.ops.aten.neg.default"),
            )
        ),
    ]
    inside = [line for line in lines(pytester) if line["test_nodeid"]]
    assert {line["module"] for line in inside} == {"phases"}
    assert {line["mode"] for line in inside} == {"prefill", "decode"}
    assert not (pytester.path / "ops.jsonl.journal").exists()


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
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-s",
        "--ops-jsonl",
        "ops.jsonl",
        "--optrove-level",
        "api",
    ]
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) as child:
        while "here" not in child.stdout.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    (reader,) = journals(pytester.path / "ops.jsonl.journal")
    last = [seen for seen in seen_in(reader) if seen.call.depth == 0][-1]
    assert last.call.outcome is CallOutcome.UNFINISHED
    assert last.op == "torch.Tensor.map_"
    assert last.call.test_id == "test_hang.py::test_hang"


def test_filtered_calls_are_counted_and_not_written(pytester):
    pytester.makepyfile(test_phases=PHASES)
    options = ("--optrove-include", "aten.mul,aten.neg", "--optrove-exclude", "neg")
    result = pytester.runpytest_subprocess(
        "--ops-jsonl", "ops.jsonl", "--optrove-journal", "journal", *options
    )
    result.assert_outcomes(passed=2)
    assert {op for _, _, op in outermost(pytester)} == {"torch.ops.aten.mul.Tensor"}
    summary = summarize_directory(pytester.path / "journal")
    assert_adds_up(summary)
    assert [op.op for op in summary.ops] == ["torch.ops.aten.mul.Tensor"]
    assert sum(count for _, count in summary.accounting.filtered) > 0

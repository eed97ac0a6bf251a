from executed_runs import run
from optrove.model.ops import Amount, LeftOut
from optrove.model.records import Measurement, RunKind, TestOutcome, TestResult
from optrove.model.trove import Machine, OpRow, RunRow
from optrove.report.draw_html import draw_html
from optrove.report.report_page import TracedRun, traced_report


def outcome_of(name, outcome, **facts):
    return TestResult("run", f"test_model.py::{name}", outcome, **facts)


def test_a_traced_run_shows_its_tests_failures_first_and_its_ops():
    ops = (
        OpRow("ttnn.matmul", 3, 90, ("demo",), 1.0),
        OpRow("ttnn.add", 1, 10, ("demo",), 0.5),
        OpRow("ttnn.to_device", 2, 40, ("demo",), 1.0),
    )
    pcc = Measurement("pcc", 0.97, 0.99, passed=False)
    tests = (
        outcome_of("good", TestOutcome.PASSED, call_ns=2_000_000),
        outcome_of("skipped", TestOutcome.SKIPPED),
        outcome_of("bad", TestOutcome.FAILED, metrics=(pcc,), error="a\nAssertionError: <0.97>\n"),
    )
    left = LeftOut(moving=Amount(1, 2, 40), nested=Amount(1, 0, 10))
    row = RunRow(run("run", RunKind.TRACE, model="demo"), Machine(), 100, 4, left=left)
    page = traced_report(TracedRun(row, ops, tests))
    tiles, bar, sums, charts, tested, _, _ = page.parts
    assert {tile.label: tile.value for tile in tiles.tiles} == {
        "calls": "100",
        "cases": "4",
        "ops": "2",
        "tests passed": "1",
        "tests failed": "1",
    }
    assert sum(share.count for share in bar.shares) == 3
    assert sums.text == (
        "150 calls recorded = 100 shown + 40 that only move data + 10 made by other ops"
    )
    names = [line[0].text.rpartition("::")[2] for line in tested.parts[0].rows]
    assert names == ["bad", "skipped", "good"]
    (chart,) = charts.parts[0].charts
    assert [(bar.label, bar.bad) for bar in chart.bars] == [("0.95 to 0.99", 1)]
    assert "AssertionError: &lt;0.97&gt;" in draw_html(page)

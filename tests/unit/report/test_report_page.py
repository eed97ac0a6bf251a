from dataclasses import replace
from html.parser import HTMLParser

from executed_runs import (
    HOSTILE,
    NEW,
    OLD,
    SHARDED,
    WORDS,
    attempt,
    make_executed,
    run,
)
from optrove.model.ops import Amount, LeftOut
from optrove.model.records import (
    REFUSED,
    AttemptedCase,
    Measurement,
    Outcome,
    RunKind,
    TestOutcome,
    TestResult,
)
from optrove.model.trove import Machine, OpRow, RunRow
from optrove.report.draw_html import draw_html
from optrove.report.report_page import TracedRun, report_of, results_report, traced_report
from optrove.report.results import RunResults
from optrove.serializer.described import describe_case


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_needs_nothing_else_and_holds_data_as_text(tmp_path):
    page = Tags(report_of(NEW, OLD, str(make_executed(tmp_path / "trove.db"))).html)
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == names.count("style") == 1
    assert not {"img", "link", "iframe", "object", "base", "form", "b>here<"} & set(names)
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name == "style" for name in attributes)
        assert not attributes.get("src")
        assert attributes.get("href", "#").startswith("#")
    text = "".join(page.text)
    assert HOSTILE in text
    assert "has no bank <b>here</b>" in text
    assert "L1 width sharded, ROW_MAJOR: 64x64 in 8 shards" in text


def many(count):
    content = describe_case(SHARDED).content
    good = attempt(SHARDED, "run", pcc=0.999)
    rejected = attempt(SHARDED, "run", Outcome.REJECTED)
    bad = (f"cause {'x' * (number % 400)}\n{WORDS * 10}" for number in range(count))
    return tuple(
        AttemptedCase(
            f"ttnn.op{number % 300}",
            replace(rejected, detail=why) if number % 2 else good,
            number,
            content,
        )
        for number, why in enumerate(bad)
    )


def test_a_report_of_ten_thousand_cases_can_be_sent():
    text = draw_html(results_report(RunResults(run("run"), many(10_000)), None))
    assert len(text) < 5_000_000
    assert "10,000 cases = 5,000 passed + 5,000 rejected" in text
    assert "50 more causes" in text


def test_a_run_of_nothing_but_machine_faults_says_that_nothing_is_known():
    failed = attempt(SHARDED, "run", Outcome.NOT_RUN, "no chips detected")
    one = AttemptedCase("ttnn.matmul", failed, content=describe_case(SHARDED).content)
    text = "".join(Tags(draw_html(results_report(RunResults(run("run"), (one,)), None))).text)
    assert "no case ran" in text
    assert "no chips detected" in text


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


def test_the_page_tells_a_refused_tensor_with_the_rejection_only():
    refused = f"{REFUSED}weight was made; the op was not called"
    one = replace(attempt(SHARDED, "run", Outcome.REJECTED, "no bank"), notes=(refused,))
    cases = (AttemptedCase("ttnn.matmul", one, 1, describe_case(SHARDED).content),)
    text = "".join(Tags(draw_html(results_report(RunResults(run("run"), cases), None))).text)
    assert text.count(refused) == 1
    assert "Supplied, changed" not in text

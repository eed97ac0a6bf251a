import math
from dataclasses import replace

import pytest

from drawn import drawn_lines
from executed_runs import SHARDED, attempt, run
from optrove.model.records import AttemptedCase, DeviceKind, Measurement, Outcome
from optrove.model.trove import PlannedCase
from optrove.report.report_page import pcc_chart, time_chart
from optrove.report.results import (
    RunResults,
    numberless_text,
    results_document,
    spread,
    summed,
    totals_document,
)


def result(*args, suite=None, op="ttnn.matmul", **facts):
    return AttemptedCase(op, attempt(SHARDED, "run", *args, **facts), 3, "{}", suite)


def planned(digit, op):
    return PlannedCase(digit * 64, DeviceKind.SHADOW, op=op)


def summary(*results, waiting=()):
    return summed(RunResults(run("run"), results, tuple(waiting)))


@pytest.mark.parametrize(
    ("outcome", "suite", "view", "passed"),
    [
        (Outcome.PASSED, None, "passed", True),
        (Outcome.REJECTED, None, "rejected", False),
        (Outcome.REJECTED, "nightly", "rejected", False),
        (Outcome.REJECTED, "xfail_nightly", "xfailed", True),
        (Outcome.CRASHED, "xfail_nightly", "xfailed", True),
        (Outcome.PASSED, "xfail_nightly", "xpassed", True),
        (Outcome.NOT_RUN, "xfail_nightly", "not_run", False),
        (Outcome.REJECTED, "xfail", "xfailed", True),
        (Outcome.REJECTED, "XFail2", "xfailed", True),
        (Outcome.REJECTED, "not_xfail_nightly", "rejected", False),
    ],
)
def test_only_suites_that_are_to_fail_may(outcome, suite, view, passed):
    one = result(outcome, suite=suite)
    assert (one.view, one.passed) == (view, passed)


def test_counts_add_up_with_what_was_not_attempted():
    found = summary(
        result(),
        result(Outcome.HUNG, "no answer"),
        result(Outcome.NOT_RUN, "no ttnn", op="ttnn.add"),
        waiting=[planned("1", "ttnn.add"), planned("2", "ttnn.exp")],
    )
    assert found.counts == {"passed": 1, "hung": 1, "not_run": 1, "not_attempted": 2}
    assert found.planned == sum(row.planned for row in found.ops.values()) == 5
    assert (found.good, found.ran, found.pass_rate.share) == (1, 2, 0.5)
    assert list(found.ops) == ["ttnn.matmul", "ttnn.add", "ttnn.exp"]


def test_nothing_has_no_share():
    assert summary().pass_rate.share is None
    assert summary(result(Outcome.NOT_RUN, "no ttnn")).pass_rate.share is None


def test_passing_on_a_mock_board_is_said_to_tell_nothing_about_numbers():
    mocked = replace(result(), attempt=replace(result().attempt, device_kind=DeviceKind.MOCK))
    lost = replace(mocked, attempt=replace(mocked.attempt, outcome=Outcome.NOT_RUN))
    assert numberless_text(summary(result(), lost)) is None
    assert numberless_text(summary(mocked, lost)).startswith("no numbers were compared (mock)")
    assert numberless_text(summary(result(), mocked)).startswith("no numbers of 1 of them were")


def test_what_is_not_a_number_does_not_spoil_the_mean():
    found = spread([0.5, math.nan, 1.0])
    assert (found.count, found.least, found.mean, found.most) == (3, 0.5, 0.75, 1.0)
    assert found.undefined == 1
    assert math.isnan(spread([math.nan]).least)
    assert spread([]) is None
    assert spread([1.0, math.inf]).most == math.inf


def test_a_measured_time_is_preferred_to_that_of_the_attempt():
    one = result(ms=50)
    measured = replace(one.attempt, measurements=(Measurement("e2e_ns", 7e6),))
    timed = replace(one, attempt=measured)
    assert summary(timed).times.longest == 7_000_000
    lines = drawn_lines(results_document(RunResults(run("run"), (timed,)), None))
    assert "e2e_ns: min 7 ms, mean 7 ms, max 7 ms (1 measured)" in lines


def test_bars_hold_every_number_once():
    values = [math.nan, -0.5, 0.0, 0.5, 0.9, 0.98999, 0.99, 0.999, 0.99999, 1.0]
    chart = pcc_chart(Measurement("pcc", value, 0.99, passed=value >= 0.99) for value in values)
    assert sum(bar.count for bar in chart.bars) == len(values)
    assert sum(bar.bad for bar in chart.bars) == 6
    assert [bar.label for bar in chart.bars if bar.count == 2] == ["0 to 0.9", "0.99999 to 1"]
    assert pcc_chart([Measurement("ulp", 3.0)]) is None


def test_durations_are_shown_by_powers_of_ten():
    chart = time_chart([result(ms=0.5), result(ms=1.0), result(Outcome.HUNG, "no", ms=90_000)])
    assert [(bar.label, bar.good, bar.bad) for bar in chart.bars] == [
        ("under 1 ms", 1, 0),
        ("under 10 ms", 1, 0),
        ("under 100 ms", 0, 0),
        ("under 1 s", 0, 0),
        ("under 10 s", 0, 0),
        ("under 1:40 min", 0, 1),
    ]


@pytest.mark.parametrize("document", [results_document, totals_document])
def test_what_was_supplied_or_changed_for_cases_is_told(document):
    fabric = "no fabric was recorded; the mesh was opened with FABRIC_1D"
    noted = replace(result(), attempt=replace(result().attempt, notes=(fabric,)))
    found = RunResults(run("run"), (result(), noted, noted))
    lines = drawn_lines(document(found, None))
    first = lines.index("supplied, changed, or not compared:")
    assert lines[first + 1] == f"  2x {fabric}"
    found = RunResults(run("run"), (result(),))
    assert not any("supplied" in line for line in drawn_lines(document(found, None)))


def test_totals_name_causes_and_the_command_that_shows_all_of_them():
    refused = [result(Outcome.REJECTED, f"no {number}") for number in ("bank", "core", "core")]
    found = RunResults(run("run"), (result(), *refused))
    lines = drawn_lines(totals_document(found, "my trove.db"))
    first = lines.index("why:")
    assert lines[first + 1].startswith("  2x ")
    assert lines[first + 1].endswith("rejected: no core")
    assert any("optrove results run --store 'my trove.db'" in line for line in lines)
    passed = RunResults(run("run"), (result(),))
    assert "why:" not in drawn_lines(totals_document(passed, None))


def test_nothing_that_ran_is_reported_as_such():
    found = RunResults(run("run"), (result(Outcome.NOT_RUN, "no ttnn"),))
    lines = drawn_lines(results_document(found, None))
    assert "no case ran, so nothing is known about any operation" in lines

"""What the Superset dashboard of a trove shows: its metrics and its charts, as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TITLE: Final = "optrove"


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that is computed of a view, and how it is written."""

    name: str
    label: str
    expression: str
    format: str = ",d"


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of one view; ``kind`` is Superset's name of it, ``width`` is of twelve columns.

    A chart with ``columns`` lists rows as they are, the others show ``metrics`` for each of
    ``groups``, over ``time`` where it is given. The first metric orders them; ``least`` turns that.
    """

    name: str
    view: str
    kind: str
    width: int
    metrics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    time: str | None = None
    columns: tuple[str, ...] = ()
    order: str | None = None
    least: bool = False
    limit: int = 1000


METRICS: Final = {
    "v_runs": (Metric("runs", "runs", "COUNT(*)"), Metric("all_calls", "calls", "SUM(calls)")),
    "v_ops": (
        Metric("ops", "ops", "COUNT(*)"),
        Metric("all_cases", "cases", "SUM(cases)"),
        Metric("all_calls", "calls", "SUM(outermost_calls)"),
    ),
    "v_cases": (
        Metric("all_cases", "cases", "COUNT(*)"),
        Metric("replayable_share", "recorded completely", "AVG(1.0 * replayable)", ".1%"),
    ),
    "v_tensors": (Metric("all_calls", "calls", "SUM(calls)"),),
    "v_executions": (
        Metric("all_calls", "calls", "SUM(calls)"),
        Metric("all_ms", "ms", "SUM(total_ms)", ",.1f"),
    ),
    "v_tests": (
        Metric("tests", "tests", "COUNT(*)"),
        Metric("pass_share", "passed", "AVG(1.0 * passed)", ".1%"),
    ),
    "v_attempts": (
        Metric("attempts", "attempts", "COUNT(*)"),
        Metric("pass_share", "passed", "AVG(1.0 * passed)", ".1%"),
        Metric("mean_ms", "mean ms", "AVG(duration_ms)", ",.2f"),
    ),
    "v_failures": (Metric("failures", "failures", "COUNT(*)"),),
    "v_pcc": (
        Metric("lowest_pcc", "lowest PCC", "MIN(pcc)", ",.5f"),
        Metric("mean_pcc", "mean PCC", "AVG(pcc)", ",.5f"),
        Metric("measured", "measured", "COUNT(pcc)"),
    ),
}

CHARTS: Final = (
    Chart("Cases", "v_cases", "big_number_total", 3, ("all_cases",)),
    Chart("Calls", "v_ops", "big_number_total", 3, ("all_calls",)),
    Chart("Attempts that passed", "v_attempts", "big_number_total", 3, ("pass_share",)),
    Chart("Lowest PCC", "v_pcc", "big_number_total", 3, ("lowest_pcc",)),
    Chart(
        *("Ops by calls", "v_ops", "table", 6, ("all_calls", "all_cases"), ("op",)),
        limit=100,
    ),
    Chart("Outcomes of attempts", "v_attempts", "pie", 6, ("attempts",), ("outcome",)),
    Chart(
        *("Outcomes by day", "v_attempts", "echarts_timeseries_bar", 6),
        *(("attempts",), ("outcome",), "started"),
    ),
    Chart(
        *("Lowest PCC by day", "v_pcc", "echarts_timeseries_line", 6),
        *(("lowest_pcc",), ("board",), "started"),
    ),
    Chart(
        *("Failures by cause", "v_failures", "table", 12, ("failures",)),
        ("op", "outcome", "board", "cause"),
        limit=200,
    ),
    Chart(
        *("Least exact ops", "v_pcc", "table", 6, ("lowest_pcc", "mean_pcc", "measured"), ("op",)),
        *(None, (), None),
        least=True,
        limit=100,
    ),
    Chart("Calls by dtype", "v_tensors", "pie", 6, ("all_calls",), ("dtype",), limit=20),
    Chart(
        *("Tests", "v_tests", "table", 12),
        columns=("run_started", "model", "board", "test_id", "outcome", "duration_ms", "error"),
        order="duration_ms",
    ),
    Chart(
        *("Runs", "v_runs", "table", 12),
        columns=(
            *("run_started", "run_kind", "model", "board", "ttnn_version", "calls", "tests"),
            *("tests_passed", "attempts", "attempts_passed", "run_id"),
        ),
        order="run_started",
    ),
)

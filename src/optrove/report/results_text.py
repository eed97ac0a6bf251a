"""Draw what came of a run as text of 80 columns, and as data for machines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from optrove.codec.wire import encode
from optrove.model.values import Float
from optrove.report.attempted import attempt_data
from optrove.report.attempts_text import VERDICTS, number
from optrove.report.board_text import cause_lines, percent
from optrove.report.causes import cause_data
from optrove.report.commands import again_command
from optrove.report.results import (
    NOT_ATTEMPTED,
    XFAILED,
    XPASSED,
    numberless_text,
    slowest,
    summed,
    took,
)
from optrove.report.runs_text import SHORT_ID, moment
from optrove.report.tables import Column, duration, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.codec.text import Json
    from optrove.model.records import Run
    from optrove.report.results import OpResults, Result, RunResults, Spread, Summary, Times

WORDS: Final = {
    **{outcome.value: words for outcome, words in VERDICTS.items()},
    NOT_ATTEMPTED: "not attempted",
    XFAILED: "failed as expected",
    XPASSED: "passed unexpectedly",
}
"""Outcomes, and what else becomes of cases, in words."""

_MOST_SLOW: Final = 5
_MOST_OPS: Final = 25
_OPS: Final = (
    Column("op", flexible=True),
    Column("cases", right=True),
    Column("passed", right=True),
    Column("failed", right=True),
    Column("no answer", right=True),
    Column("pcc min", right=True),
    Column("mean", right=True),
    Column("time", right=True),
)


def title(run: Run) -> str:
    """Return a run in a line: what it was, on what, with which ttnn, and when."""
    environment = run.environment
    place = " ".join(filter(None, (environment.device_kind.value, environment.board)))
    version = environment.ttnn_version
    facts = [place, *([] if version is None else [f"ttnn {version}"]), moment(run.started_at)]
    return f"run {run.id[:SHORT_ID]}: {run.source} ({', '.join(facts)})"


def counted(summary: Summary) -> str:
    """Return how many cases ended how: ``5 cases: 3 passed, 2 rejected``."""
    told = ", ".join(f"{count:,} {WORDS[name]}" for name, count in summary.counts.items())
    return f"{plural(summary.planned, 'case')}: {told}"


def results_lines(found: RunResults, store: str | None, width: int | None = None) -> list[str]:
    """Return what came of a run as text; ``store`` is what its commands name."""
    summary = summed(found)
    return [
        title(found.run),
        counted(summary),
        *_share_lines(summary),
        *(f"left out: {count:,} {reason}" for reason, count in found.left_out),
        *_number_lines(summary),
        *cause_lines(summary.causes, _commands(found, store), width),
        *_op_lines(summary, width),
        *_slow_lines(found),
        *_unfinished(found),
    ]


def _share_lines(summary: Summary) -> list[str]:
    if summary.share is None:
        return ["no case ran, so nothing is known about any operation"]
    lines = [f"{percent(summary.share)} passed of {plural(summary.ran, 'case')} that ran"]
    if summary.views:
        told = ", ".join(f"{count:,} {WORDS[name]}" for name, count in summary.views.items())
        lines.append(f"of suites that are to fail: {told}")
    return [*lines, *filter(None, (numberless_text(summary),))]


def _number_lines(summary: Summary) -> list[str]:
    lines = [spread_text(name, found) for name, found in summary.measured.items()]
    return lines if summary.times is None else [*lines, f"durations: {times_text(summary.times)}"]


def spread_text(name: str, found: Spread) -> str:
    """Return how numbers are spread: ``pcc: min 0.98, mean 0.999, max 1 (30 measured)``."""
    undefined = f", {found.undefined:,} not a number" if found.undefined else ""
    least, mean, most = (value_text(name, each) for each in (found.least, found.mean, found.most))
    return f"{name}: min {least}, mean {mean}, max {most} ({found.count:,} measured{undefined})"


def value_text(name: str, value: float) -> str:
    """Return a measured number in the unit that its name tells."""
    timed = name.endswith("_ns") and math.isfinite(value)
    return duration(value) if timed else number(value)


def times_text(found: Times) -> str:
    """Return how long cases took, in words."""
    return (
        f"median {duration(found.median)}, longest {duration(found.longest)}, "
        f"{duration(found.total)} in all"
    )


def _slow_lines(found: RunResults) -> list[str]:
    shown = slowest(found.results, _MOST_SLOW)
    rows = [
        f"  {duration(took(each.attempt) or 0):>8}  {each.op}  {each.attempt.case_id[:SHORT_ID]}"
        for each in shown
    ]
    return ["", "slowest:", *rows] if len(found.results) > 1 and rows else []


def _op_lines(summary: Summary, width: int | None) -> list[str]:
    if len(summary.ops) <= 1:
        return []
    cells = [_op_cells(each) for each in summary.ops[:_MOST_OPS]]
    shown = [place for place in range(len(_OPS)) if any(row[place] for row in cells)]
    columns = [_OPS[place] for place in shown]
    rows = [[row[place] for place in shown] for row in cells]
    more = len(summary.ops) - _MOST_OPS
    rest = [f"{more:,} more ops (--json, or optrove report)"] if more > 0 else []
    return ["", *table_lines(columns, rows, width), *rest]


def _op_cells(row: OpResults) -> tuple[str, ...]:
    return (
        row.op,
        f"{row.planned:,}",
        f"{row.good:,}",
        f"{row.ran - row.good:,}" if row.ran > row.good else "",
        f"{row.planned - row.ran:,}" if row.planned > row.ran else "",
        "" if row.pcc is None else number(row.pcc.least),
        "" if row.pcc is None else number(row.pcc.mean),
        "" if row.times is None else duration(row.times.total),
    )


def _unfinished(found: RunResults) -> list[str]:
    if not found.waiting:
        return []
    return ["", f"{plural(len(found.waiting), 'case')} not attempted yet: optrove sweep --resume"]


def _commands(found: RunResults, store: str | None) -> Callable[[str], str]:
    by_id = {each.attempt.case_id: each for each in found.results}

    def command(case_id: str) -> str:
        one = by_id[case_id]
        return again_command(one.op, one.attempt, found.modules, store)

    return command


def results_data(found: RunResults, store: str | None) -> dict[str, Json]:
    """Return what came of a run for machines; see ``optrove.cli_results`` for the keys."""
    summary = summed(found)
    command = _commands(found, store)
    run, environment = found.run, found.run.environment
    return {
        "run_id": run.id,
        "kind": run.kind.value,
        "source": run.source,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "device": environment.device_kind.value,
        "board": environment.board,
        "ttnn_version": environment.ttnn_version,
        "planned": summary.planned,
        "counts": dict(summary.counts),
        "views": dict(summary.views),
        "left_out": dict(found.left_out),
        "good": summary.good,
        "ran": summary.ran,
        "pass_share": summary.share,
        "measurements": {name: spread_data(each) for name, each in summary.measured.items()},
        "durations": times_data(summary.times),
        "ops": [_op_data(each) for each in summary.ops],
        "causes": [
            cause_data(each, command(each.example.attempt.case_id)) for each in summary.causes
        ],
        "cases": [_result_data(each) for each in found.results],
        "not_attempted": [
            {"op": each.op, "case_id": each.case_id, "suite": each.suite} for each in found.waiting
        ],
    }


def spread_data(found: Spread | None) -> Json:
    """Return how numbers are spread, for machines."""
    if found is None:
        return None
    return {
        "count": found.count,
        "min": _number(found.least),
        "mean": _number(found.mean),
        "max": _number(found.most),
        "undefined": found.undefined,
    }


def _number(value: float) -> Json:
    return None if math.isnan(value) else encode(Float(value))


def times_data(found: Times | None) -> Json:
    """Return how long cases took, for machines."""
    if found is None:
        return None
    return {"total_ns": found.total, "median_ns": found.median, "longest_ns": found.longest}


def _op_data(row: OpResults) -> Json:
    return {
        "op": row.op,
        "planned": row.planned,
        "counts": dict(row.counts),
        "good": row.good,
        "ran": row.ran,
        "calls": row.calls,
        "pcc": spread_data(row.pcc),
        "durations": times_data(row.times),
    }


def _result_data(result: Result) -> Json:
    return {
        **attempt_data(result.op, result.attempt),
        "calls": result.calls,
        "suite": result.suite,
        "xfail": result.xfail,
        "view": result.view,
        "took_ns": took(result.attempt),
    }


def verdict(result: Result) -> str:
    """Return what came of a case, in words."""
    return WORDS[result.view]

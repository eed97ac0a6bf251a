"""Make the HTML report of a run in which cases were executed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.model.records import Outcome
from optrove.report.attempts_text import number
from optrove.report.board_text import percent
from optrove.report.causes import by_text, supplied
from optrove.report.distributions import pcc_chart, time_chart
from optrove.report.environment import environment_rows
from optrove.report.failures_page import failures
from optrove.report.page import BAD, GOOD, IDLE, ODD, Cell, Grid, Page, Tile, filled, shares
from optrove.report.results import (
    NOT_ATTEMPTED,
    XFAILED,
    XPASSED,
    lowest_pcc,
    numberless_text,
    slowest,
    summed,
    took,
)
from optrove.report.results_text import WORDS, title, value_text, verdict
from optrove.report.runs_text import SHORT_ID, moment
from optrove.report.since_page import since
from optrove.report.tables import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.report.releases import Comparison, Side
    from optrove.report.results import OpResults, Result, RunResults, Summary

_MOST_FAILURES: Final = 150
_MOST_SLOW: Final = 15
_MOST_LOW: Final = 15
_KINDS: Final = {
    Outcome.PASSED.value: GOOD,
    Outcome.NOT_RUN.value: IDLE,
    NOT_ATTEMPTED: IDLE,
    XFAILED: GOOD,
    XPASSED: ODD,
}


def results_page(
    found: RunResults,
    store: str | None,
    compared: tuple[Side, Side, Comparison] | None = None,
) -> Page:
    """Return the report of a run; ``store`` is what its commands name."""
    summary = summed(found)
    groups = by_text(summary.causes)
    charts = (
        pcc_chart(each for one in found.results for each in one.attempt.measurements),
        time_chart(found.results),
    )
    return Page(
        title=title(found.run),
        heading=found.run.source,
        subtitle=_subtitle(found),
        tiles=_tiles(summary),
        shares=shares(_parts(found)),
        sums=tuple(_sums(found, summary)),
        since=None if compared is None else since(*compared),
        failures=failures(groups[:_MOST_FAILURES], found, store),
        more_failures=max(len(groups) - _MOST_FAILURES, 0),
        charts=tuple(each for each in charts if each is not None),
        grids=(_ops(summary), *_least_exact(found), *_slow(found), *_all_measured(summary)),
        notes=supplied(found.results),
        environment=environment_rows(found.run),
    )


def _subtitle(found: RunResults) -> str:
    run, environment = found.run, found.run.environment
    place = " ".join(filter(None, (environment.device_kind.value, environment.board)))
    version = [] if environment.ttnn_version is None else [f"ttnn {environment.ttnn_version}"]
    return ", ".join([f"run {run.id[:SHORT_ID]}", place, *version, f"{moment(run.started_at)} UTC"])


def _parts(found: RunResults) -> list[tuple[str, int, str]]:
    """Return what became of all cases, for one bar: what went well first."""
    views: dict[str, int] = {}
    for each in found.results:
        views[each.view] = views.get(each.view, 0) + 1
    if found.waiting:
        views[NOT_ATTEMPTED] = len(found.waiting)
    order = [Outcome.PASSED.value, XFAILED, XPASSED, *(each.value for each in Outcome)]
    names = [name for name in dict.fromkeys([*order, NOT_ATTEMPTED]) if name in views]
    return [(WORDS[name], views[name], _KINDS.get(name, BAD)) for name in names]


def _tiles(summary: Summary) -> tuple[Tile, ...]:
    failed = summary.ran - summary.good
    idle = summary.planned - summary.ran
    tiles = [
        Tile("cases", f"{summary.planned:,}", plural(len(summary.ops), "op")),
        Tile("passed", f"{summary.good:,}", _share_note(summary), GOOD if summary.good else ""),
        Tile("failed", f"{failed:,}", _causes_note(summary), BAD if failed else ""),
        Tile("no answer", f"{idle:,}", _idle_note(summary), IDLE if idle else ""),
    ]
    if summary.pcc is not None:
        note = f"mean {number(summary.pcc.mean)}, max {number(summary.pcc.most)}"
        undefined = summary.pcc.undefined
        more = f", {undefined:,} not a number" if undefined else ""
        tiles.append(Tile("lowest PCC", number(summary.pcc.least), note + more))
    if summary.times is not None:
        note = f"median {duration(summary.times.median)}, {duration(summary.times.total)} in all"
        tiles.append(Tile("longest case", duration(summary.times.longest), note))
    return tuple(tiles)


def _idle_note(summary: Summary) -> str:
    """Return why there is no answer to some cases: the fault of a machine, or too little time."""
    names = (Outcome.NOT_RUN.value, NOT_ATTEMPTED)
    counts = {name: summary.counts.get(name, 0) for name in names}
    told = [f"{count:,} {WORDS[name]}" for name, count in counts.items() if count]
    return ", ".join(told) or "all of them ran"


def _share_note(summary: Summary) -> str:
    if summary.share is None:
        return "nothing ran"
    return f"{percent(summary.share)} of those that ran"


def _causes_note(summary: Summary) -> str:
    groups = by_text([each for each in summary.causes if each.outcome is not Outcome.NOT_RUN])
    return f"for {plural(len(groups), 'cause')}" if groups else ""


def _sums(found: RunResults, summary: Summary) -> Iterable[str]:
    parts = " + ".join(f"{count:,} {WORDS[name]}" for name, count in summary.counts.items())
    yield f"{plural(summary.planned, 'case')} = {parts}"
    if summary.views:
        told = ", ".join(f"{count:,} {WORDS[name]}" for name, count in summary.views.items())
        yield f"of suites that are to fail: {told}"
    yield from filter(None, (numberless_text(summary),))
    if found.repeated:
        yield f"{plural(found.repeated, 'earlier attempt')} at the same cases not counted"
    for reason, count in found.left_out:
        yield f"not planned: {count:,} {reason}"


def _ops(summary: Summary) -> Grid:
    counts = ("cases", "passed", "failed", "no answer")
    columns = ("op", "result", *counts, "PCC min", "PCC mean", "calls", "time")
    grid = Grid(
        name="ops",
        title="Ops",
        columns=columns,
        rows=tuple(map(_op_row, summary.ops)),
        right=frozenset(range(2, len(columns))),
        note="calls: how often models have called these cases where they were recorded",
        search=True,
    )
    return filled(grid)


def _op_row(row: OpResults) -> tuple[Cell, ...]:
    failed = row.ran - row.good
    parts = [("passed", row.good, GOOD), ("failed", failed, BAD)]
    parts.append(("no answer", row.planned - row.ran, IDLE))
    least, mean = (None, None) if row.pcc is None else (row.pcc.least, row.pcc.mean)
    total = None if row.times is None else row.times.total
    return (
        Cell(row.op, code=True),
        Cell("", row.good / row.planned if row.planned else None, shares=shares(parts)),
        *(_count(count) for count in (row.planned, row.good, failed, row.planned - row.ran)),
        _measured(least),
        _measured(mean),
        _count(row.calls),
        Cell("" if total is None else duration(total), total),
    )


def _count(count: int) -> Cell:
    return Cell(f"{count:,}" if count else "", count)


def _measured(value: float | None) -> Cell:
    return Cell("" if value is None else number(value), value)


def _least_exact(found: RunResults) -> Iterable[Grid]:
    measured = [(value, each) for each in found.results if (value := lowest_pcc(each)) is not None]
    # What is not a number is the worst.
    measured.sort(key=lambda item: (item[0] == item[0], item[0]))
    if measured:
        yield _grid("exact", "Least exact", (each for _, each in measured[:_MOST_LOW]))


def _slow(found: RunResults) -> Iterable[Grid]:
    shown = slowest(found.results, _MOST_SLOW)
    if shown:
        yield _grid("slow", "Slowest", shown)


def _all_measured(summary: Summary) -> Iterable[Grid]:
    rows = tuple(
        (
            Cell(name),
            _count(each.count),
            *(Cell(value_text(name, one), one) for one in (each.least, each.mean, each.most)),
            _count(each.undefined),
        )
        for name, each in summary.measured.items()
    )
    columns = ("what", "measured", "least", "mean", "greatest", "not a number")
    if rows:
        yield filled(Grid("measured", "Measured", columns, rows, frozenset(range(1, 6))))


def _grid(name: str, heading: str, results: Iterable[Result]) -> Grid:
    rows = tuple(
        (
            Cell(each.op, code=True),
            Cell(each.attempt.case_id[:SHORT_ID], code=True),
            Cell(verdict(each)),
            _measured(lowest_pcc(each)),
            Cell(duration(took(each.attempt) or 0), took(each.attempt) or 0),
            _count(each.calls),
        )
        for each in results
    )
    columns = ("op", "case", "verdict", "PCC", "time", "calls")
    return filled(Grid(name, heading, columns, rows, frozenset({3, 4, 5})))

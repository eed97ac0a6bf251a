"""The HTML report of a traced run, and writing reports to files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget
from optrove.model.records import TestOutcome, now
from optrove.model.trove import board_text
from optrove.report.attempts import number
from optrove.report.outcomes import EXECUTED, compared_with, results_of, run_meant, traced_in
from optrove.report.page import (
    BAD,
    GOOD,
    IDLE,
    ODD,
    Cell,
    Grid,
    Page,
    Tile,
    environment_rows,
    filled,
    html,
    pcc_chart,
    shares,
)
from optrove.report.results_page import results_page
from optrove.report.runs import SHORT_ID, moment, source_text
from optrove.report.tables import clipped, duration, plural
from optrove.report.trace import accounting_line
from optrove.trove.opening import reading
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from optrove.model.records import Run, TestResult
    from optrove.model.trove import OpRow
    from optrove.report.outcomes import Traced
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader


_MOST_TESTS: Final = 2_000
_LONGEST: Final = 400
_KINDS: Final = {
    TestOutcome.PASSED: GOOD,
    TestOutcome.FAILED: BAD,
    TestOutcome.ERROR: BAD,
    TestOutcome.UNFINISHED: BAD,
    TestOutcome.XPASSED: ODD,
    TestOutcome.XFAILED: GOOD,
    TestOutcome.SKIPPED: IDLE,
}
_SHOWN_FIRST: Final = (BAD, ODD, IDLE, GOOD)


def traced_page(found: Traced) -> Page:
    """Return the report of a traced or imported run."""
    run = found.row.run
    board = board_text(run.environment.board, found.row.machine)
    ttnn = run.environment.ttnn_version
    facts = [f"run {run.id[:SHORT_ID]}", board, *([] if ttnn is None else [f"ttnn {ttnn}"])]
    chart = pcc_chart(each for test in found.tests for each in test.metrics)
    return Page(
        title=f"run {run.id[:SHORT_ID]}: {source_text(run.source)}",
        heading=run.model or run.source,
        subtitle=", ".join([*filter(None, facts), f"{moment(run.started_at)} UTC"]),
        tiles=_tiles(found),
        shares=shares(_parts(found.tests)),
        sums=tuple(_sums(found)),
        charts=() if chart is None else (chart,),
        grids=(*_tests(found.tests), _ops(found)),
        environment=environment_rows(run),
    )


def _tiles(found: Traced) -> tuple[Tile, ...]:
    shown = [op for op in found.ops if not op.hidden]
    left = found.row.left.moving.calls + found.row.left.nested.calls
    tiles = [
        Tile("calls", f"{found.row.calls:,}", f"{left:,} more are left out" if left else ""),
        Tile("cases", f"{found.row.cases:,}", "different configurations"),
        Tile("ops", f"{len(shown):,}"),
    ]
    if found.tests:
        passed = sum(_KINDS[test.outcome] == GOOD for test in found.tests)
        failed = sum(_KINDS[test.outcome] == BAD for test in found.tests)
        note = f"of {plural(len(found.tests), 'test')}"
        tiles.append(Tile("tests passed", f"{passed:,}", note, GOOD if passed else ""))
        tiles.append(Tile("tests failed", f"{failed:,}", "", BAD if failed else ""))
    return tuple(tiles)


def _parts(tests: Iterable[TestResult]) -> list[tuple[str, int, str]]:
    counts = dict.fromkeys(_KINDS, 0)
    for test in tests:
        counts[test.outcome] += 1
    return [(f"tests {each.value}", count, _KINDS[each]) for each, count in counts.items()]


def _sums(found: Traced) -> Iterable[str]:
    shown, left = found.row.calls, found.row.left
    moving, nested = left.moving.calls, left.nested.calls
    yield (
        f"{shown + moving + nested:,} calls recorded = {shown:,} shown "
        f"+ {moving:,} that only move data + {nested:,} made by other ops"
    )
    accounting = found.row.run.accounting
    if accounting.observed:
        yield accounting_line(accounting)
    if not found.row.complete:
        yield "incomplete: a process of this run has not ended in order"


def _ops(found: Traced) -> Grid:
    shown = [op for op in found.ops if not op.hidden] or list(found.ops)
    rows = tuple(_op_row(op, sum(each.calls for each in shown)) for op in shown)
    columns = ("op", "cases", "calls", "share of calls", "complete")
    return Grid("ops", "Ops", columns, rows, frozenset(range(1, 5)), search=True)


def _op_row(op: OpRow, calls: int) -> tuple[Cell, ...]:
    share = op.calls / calls if calls else 0.0
    return (
        Cell(op.op, code=True),
        Cell(f"{op.cases:,}", op.cases),
        Cell(f"{op.calls:,}", op.calls),
        Cell(f"{share:.1%}", share),
        Cell(f"{op.replayable:.0%}", op.replayable),
    )


def _tests(tests: tuple[TestResult, ...]) -> Iterable[Grid]:
    if not tests:
        return
    ranked = sorted(tests, key=lambda test: _SHOWN_FIRST.index(_KINDS[test.outcome]))
    rows = tuple(map(_test_row, ranked[:_MOST_TESTS]))
    more = len(tests) - len(rows)
    note = f"{more:,} more" if more else ""
    columns = ("test", "outcome", "PCC min", "time", "error")
    yield filled(Grid("tests", "Tests", columns, rows, frozenset({2, 3}), note, search=True))


def _test_row(test: TestResult) -> tuple[Cell, ...]:
    found = [each.value for each in test.metrics if each.name == "pcc"]
    lowest = min(found) if found else None
    error = next((line for line in (test.error or "").splitlines()[::-1] if line.strip()), "")
    return (
        Cell(test.test_id, code=True),
        Cell(test.outcome.value),
        Cell("" if lowest is None else number(lowest), lowest),
        Cell("" if test.call_ns is None else duration(test.call_ns), test.call_ns),
        Cell(clipped(error, _LONGEST)),
    )


@dataclass(frozen=True, slots=True)
class Report:
    """A run, and the page about it as HTML."""

    run: Run
    html: str


def report_of(
    name: str | None,
    compare: str | None,
    store: str | None,
    tell: Callable[[Recovered], object] = lambda _: None,
) -> Report:
    """Return the report of a run; of the newest one where none is named.

    ``compare`` is an earlier result, by whatever name; NotFound and NotComparable when there is
    nothing to report, or nothing to compare.
    """
    with reading(store, tell) as reader:
        run = _meant(reader, name)
        if run.kind not in EXECUTED:
            if compare is not None:
                raise BadTarget(
                    f"run {run.id[:12]} is of the kind {run.kind.value!r}, and has no results to "
                    f"compare; compare what was called with: optrove diff {compare} {run.id[:12]}"
                )
            return Report(run, _drawn(traced_page(traced_in(reader, run))))
        found = results_of(reader, run)
    compared = None if compare is None else compared_with(compare, found, store, tell)
    return Report(run, _drawn(results_page(found, store, compared)))


def _meant(reader: TroveReader, name: str | None) -> Run:
    runs = reader.runs() if name is None else ()
    if runs and not any(row.run.kind in EXECUTED for row in runs):
        return runs[0].run
    return run_meant(reader, name)


def _drawn(page: Page) -> str:
    return html(replace(page, made=f"optrove {__version__}, {moment(now())} UTC"))

"""The HTML report of a run that executed cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.model.records import Outcome
from optrove.model.values import TensorSpec, walk
from optrove.report.attempts import BACKTRACE, again_command, number, said
from optrove.report.boards import percent
from optrove.report.causes import UNSAID, by_text, supplied, without_numbers
from optrove.report.describe import drawn_arguments
from optrove.report.page import (
    BAD,
    GOOD,
    IDLE,
    ODD,
    Cell,
    Changes,
    Failure,
    Grid,
    Page,
    Since,
    Tile,
    environment_rows,
    filled,
    pcc_chart,
    shares,
    time_chart,
)
from optrove.report.releases import side_title
from optrove.report.results import (
    NOT_ATTEMPTED,
    WORDS,
    XFAILED,
    XPASSED,
    lowest_pcc,
    numberless_text,
    slowest,
    summed,
    title,
    took,
    value_text,
    verdict,
)
from optrove.report.runs import SHORT_ID, moment
from optrove.report.shards import shard_svg
from optrove.report.tables import clipped, duration, plural
from optrove.serializer.described import case_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.case import Case
    from optrove.report.causes import Cause
    from optrove.report.releases import Change, Comparison, Side
    from optrove.report.results import OpResults, Result, RunResults, Summary


_WIDTH: Final = 96
"""How ttnn begins what only those who build it want to see."""
_LONGEST_WORDS: Final = 4_000
_LONGEST_ARGUMENTS: Final = 8_000
_MOST_CASES: Final = 12
_MOST_OPS: Final = 8
_MOST_PICTURES: Final = 3
_LARGEST_PICTURE: Final = 60_000
_ALL_PICTURES: Final = 1_000_000
"""How many letters pictures may have, one and all together: a report is to be sent."""


def failures(
    groups: Sequence[Sequence[Cause[Result]]], found: RunResults, store: str | None
) -> tuple[Failure, ...]:
    """Return why cases failed, one for each group of causes that say the same of several ops."""
    shown, left = [], _ALL_PICTURES
    for group in groups:
        example = max((each.example for each in group), key=lambda one: one.calls)
        case = case_of(example.content)
        pictures = tuple(_pictures(case, left))
        left -= sum(len(svg) for _, svg in pictures)
        first = group[0]
        words, backtrace = _words(example)
        ids = [case_id for each in group for case_id in each.case_ids]
        shown.append(
            Failure(
                count=len(ids),
                verdict=WORDS[first.outcome.value],
                kind=IDLE if first.outcome is Outcome.NOT_RUN else BAD,
                text=said(example.attempt).cause or UNSAID,
                ops=tuple((each.op, each.count) for each in group[:_MOST_OPS]),
                calls=sum(each.calls for each in group),
                example=example.attempt.case_id[:SHORT_ID],
                command=again_command(example.op, example.attempt, found.modules, store),
                words=words,
                backtrace=backtrace,
                arguments=_cut("\n".join(drawn_arguments(case, _WIDTH)), _LONGEST_ARGUMENTS),
                cases=tuple(one[:SHORT_ID] for one in ids[:_MOST_CASES]),
                more_cases=max(len(ids) - _MOST_CASES, 0),
                pictures=pictures,
            )
        )
    return tuple(shown)


def _words(result: Result) -> tuple[str, str]:
    """Return all that was said besides the cause, and apart from it the backtrace."""
    lines = [line.rstrip() for line in said(result.attempt).words]
    at = next((at for at, line in enumerate(lines) if line == BACKTRACE), len(lines))
    told, trace = "\n".join(lines[:at]).strip(), "\n".join(lines[at + 1 :])
    return _cut(told, _LONGEST_WORDS), _cut(trace, _LONGEST_WORDS)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}\n... ({len(text) - longest:,} more letters: optrove results --json)"


def _pictures(case: Case, left: int) -> Iterator[tuple[str, str]]:
    """Yield how the sharded tensors of a case lie on the cores, as far as there is room."""
    drawn = 0
    for name, value in case.arguments:
        for path, part in walk(value, name):
            svg = shard_svg(part) if isinstance(part, TensorSpec) else None
            if svg is None or drawn >= _MOST_PICTURES or len(svg) > min(_LARGEST_PICTURE, left):
                continue
            drawn += 1
            left -= len(svg)
            yield path, svg


_MOST_ENTRIES: Final = 60
_MOST_IDS: Final = 6
_LONGEST: Final = 500


def since(a: Side, b: Side, found: Comparison) -> Since:
    """Return what has changed from the first to the second."""
    uncompared = {
        "not run in both": len(found.not_run),
        "on another kind of device": len(found.unlike),
        "only before": len(found.only_a),
        "only now": len(found.only_b),
    }
    told = ", ".join(f"{count:,} {what}" for what, count in uncompared.items() if count)
    tiles = (
        Tile("broken", f"{len(found.broken):,}", "", BAD if found.broken else ""),
        Tile("slower", f"{len(found.slower):,}", "", ODD if found.slower else ""),
        Tile("moved", f"{len(found.moved):,}", "", ODD if found.moved else ""),
        Tile("fixed", f"{len(found.fixed):,}", "", GOOD if found.fixed else ""),
        Tile("the same", f"{found.same:,}", f"{found.compared:,} compared"),
        Tile("not compared", f"{sum(uncompared.values()):,}", told, IDLE if told else ""),
    )
    groups = (
        _changes(BAD, "Broken", found.broken),
        _changes(ODD, "Slower", found.slower),
        _changes(ODD, "Moved", found.moved),
        _changes(GOOD, "Fixed", found.fixed),
    )
    changes = tuple(each for each in groups if each.entries)
    return Since(side_title(a), side_title(b), tiles, changes, tuple(_warnings(a, b)))


def _warnings(a: Side, b: Side) -> Iterator[str]:
    for what in ("board", "device"):
        before, after = getattr(a, what), getattr(b, what)
        if before != after:
            yield f"the {what} is not the same: {before}, {after}"


def _changes(kind: str, title: str, changes: Sequence[Change]) -> Changes:
    groups: dict[tuple[str, str], list[Change]] = {}
    for each in changes:
        groups.setdefault((each.before.op, without_numbers(each.text)), []).append(each)
    ranked = sorted(groups.values(), key=lambda group: -len(group))
    entries = tuple(
        (
            len(group),
            group[0].before.op,
            clipped(group[0].text, _LONGEST),
            tuple(each.before.case_id[:SHORT_ID] for each in group[:_MOST_IDS]),
        )
        for group in ranked[:_MOST_ENTRIES]
    )
    return Changes(kind, title, entries, max(len(ranked) - _MOST_ENTRIES, 0))


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

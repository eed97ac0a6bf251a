"""The HTML report of a run: executed cases with their failures, or traced ops with their tests."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, NotFound
from optrove.model.ops import is_listed
from optrove.model.pass_rates import PassRate
from optrove.model.records import NOT_ATTEMPTED, Outcome, Query, now
from optrove.model.trove import board_text
from optrove.model.values import TensorSpec, walk
from optrove.report.attempts import (
    BACKTRACE,
    TEST_TONES,
    TONES,
    UNSAID,
    WORDS,
    by_text,
    lowest_pcc,
    refusals,
    remarks_of,
    rerun_command,
    worth_telling,
)
from optrove.report.describe import argument_fields
from optrove.report.document import (
    BAD,
    GOOD,
    IDLE,
    ODD,
    Cell,
    Chart,
    ChartBar,
    Charts,
    Code,
    Column,
    Command,
    Document,
    Field,
    Fields,
    Item,
    Items,
    Paragraph,
    Picture,
    Section,
    Share,
    StackedBar,
    Tile,
    Tiles,
    count_cell,
    first_items,
    paragraphs,
    table,
)
from optrove.report.draw_html import draw_html
from optrove.report.draw_text import draw_text
from optrove.report.listings import source_text
from optrove.report.memory import memory_section, run_memory
from optrove.report.releases import compare_with, release_document
from optrove.report.results import (
    cases_table,
    measurement_text,
    ops_table,
    results_of,
    run_meant,
    slowest,
    state_paragraph,
    summary_notes,
    summed,
    title,
    took,
)
from optrove.report.shards import shard_svg
from optrove.report.summary import accounting_text
from optrove.report.wording import (
    SHORT_ID,
    clipped,
    duration,
    moment,
    number,
    place_text,
    plural,
    progress_text,
    rate_text,
)
from optrove.serializer.described import case_of
from optrove.trove.opening import reading
from optrove.trove.sessions import EXECUTED
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from optrove.model.case import Case
    from optrove.model.records import (
        AttemptedCase,
        DeviceParameters,
        Environment,
        Measurement,
        Run,
        TestResult,
    )
    from optrove.model.trove import OpRow, RunRow
    from optrove.report.attempts import Cause
    from optrove.report.document import Node, Row, Table
    from optrove.report.memory import RunMemory
    from optrove.report.releases import ReleaseComparison
    from optrove.report.results import RunResults, Summary
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader

_MAX_MESSAGE_CHARS: Final = 4_000
_MAX_ARGUMENTS_CHARS: Final = 8_000
_MAX_ERROR_CHARS: Final = 400
_MAX_OPS: Final = 8
_MAX_FAILURES: Final = 150
_MAX_ROWS: Final = 15
_MAX_NOTES: Final = 20
_MAX_TESTS: Final = 2_000
_MAX_PICTURES: Final = 3
_MAX_PICTURE_CHARS: Final = 60_000
_ALL_PICTURES: Final = 1_000_000
"""Maximum size of one picture and of all: a report must stay small enough to send."""
_EDGES: Final = (0.0, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 0.99999)
"""The edges of the bars of PCC: near 1, and at the usual thresholds."""
_FASTEST: Final = 10_000
_SHOWN_FIRST: Final = (BAD, ODD, IDLE, GOOD)
_MEASURED: Final = (
    Column("name"),
    *(
        Column(name, right=True, optional=True)
        for name in ("measured", "least", "mean", "greatest", "not a number")
    ),
)
_TESTS: Final = (
    Column("test", code=True),
    Column("outcome"),
    Column("PCC min", right=True, optional=True),
    Column("time", right=True, optional=True),
    Column("error", optional=True),
)
_TRACED_OPS: Final = (
    Column("op", code=True),
    *(Column(name, right=True) for name in ("cases", "calls", "share of calls", "complete")),
)


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A run in which models called ops: its totals, its ops with most calls first, its tests.

    ``memory`` is None if the flow of its tensors was not recorded.
    """

    row: RunRow
    ops: tuple[OpRow, ...]
    tests: tuple[TestResult, ...] = ()
    memory: RunMemory | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A run, and its report as HTML."""

    run: Run
    html: str


def report_of(
    name: str | None,
    compare: str | None,
    store: str | None,
    on_recovered: Callable[[Recovered], object] = lambda _: None,
) -> Report:
    """Return the report of a run, by default of the newest one.

    ``compare`` names an earlier result. Raises NotFound or NotComparable when there is nothing to
    report or to compare.
    """
    with reading(store, on_recovered) as reader:
        run = _run_named(reader, name)
        if run.kind not in EXECUTED:
            if compare is not None:
                raise BadTarget(
                    f"run {run.id[:SHORT_ID]}, whose kind is {run.kind.value!r}, has no results to "
                    f"compare; compare its calls with: optrove diff {compare} {run.id[:SHORT_ID]}"
                )
            return _drawn(run, traced_report(traced_in(reader, run)))
        found = results_of(reader, run)
    compared = None if compare is None else compare_with(compare, found, store, on_recovered)
    return _drawn(run, results_report(found, store, compared))


def _run_named(reader: TroveReader, name: str | None) -> Run:
    runs = reader.runs() if name is None else ()
    if runs and not any(row.run.kind in EXECUTED for row in runs):
        return runs[0].run
    return run_meant(reader, name)


def _drawn(run: Run, document: Document) -> Report:
    footer = f"optrove {__version__}, {moment(now())} UTC"
    return Report(run, draw_html(replace(document, footer=footer)))


def traced_in(reader: TroveReader, run: Run) -> TracedRun:
    """Return the calls of a run, op by op, and the results of its tests."""
    with reader.connection.snapshot():
        (row,) = reader.runs(run.id)
        ops = reader.ops(Query(run_id=run.id, data_movement=True))
        tests = tuple(reader.tests(run.id))
        memory = run_memory(reader, run.id) if reader.flows(run.id) else None
    if not ops and not tests:
        raise NotFound(
            f"nothing was called in run {run.id[:SHORT_ID]}; list the runs with: optrove runs"
        )
    return TracedRun(row, ops, tests, memory)


def results_report(
    found: RunResults,
    store: str | None,
    compared: ReleaseComparison | None = None,
) -> Document:
    """Return the report of a run that executed cases; ``store`` is the trove that commands name."""
    summary = summed(found)
    run = found.run
    place = place_text(run.environment.device_kind.value, run.environment.board)
    return Document(
        title=title(run),
        heading=run.source,
        subtitle=_subtitle(run, place),
        parts=(
            Tiles(_tiles(summary)),
            StackedBar(_shares(found)),
            *state_paragraph(found.progress, found.run),
            *paragraphs(_sums(found, summary)),
            *(() if compared is None else (_changes(compared),)),
            *_failures(summary, found, store),
            *_charts(
                pcc_chart(each for one in found.results for each in one.attempt.measurements),
                time_chart(found.results),
            ),
            Section(
                "Ops",
                (
                    ops_table(summary),
                    Paragraph("calls: the number of calls by models, where cases were recorded"),
                ),
                name="ops",
            ),
            *_case_sections(found),
            *_measured(summary),
            *_notes(found),
            _environment(run),
        ),
    )


def _subtitle(run: Run, place: str) -> str:
    version = run.environment.ttnn_version
    facts = (f"run {run.id[:SHORT_ID]}", place, "" if version is None else f"ttnn {version}")
    return ", ".join((*filter(None, facts), f"{moment(run.started_at)} UTC"))


def _tiles(summary: Summary) -> tuple[Tile, ...]:
    failed, idle = summary.ran - summary.good, summary.planned - summary.ran
    groups = by_text([each for each in summary.causes if each.outcome is not Outcome.NOT_RUN])
    names = (Outcome.NOT_RUN.value, NOT_ATTEMPTED)
    unanswered = [
        f"{summary.counts[name]:,} {WORDS[name]}" for name in names if name in summary.counts
    ]
    tiles = [
        Tile("cases", f"{summary.planned:,}", plural(len(summary.ops), "op")),
        Tile(
            "passed",
            f"{summary.good:,}",
            rate_text(summary.pass_rate),
            GOOD if summary.good else "",
        ),
        Tile(
            "failed",
            f"{failed:,}",
            f"for {plural(len(groups), 'cause')}" if groups else "",
            BAD if failed else "",
        ),
        Tile(
            "no answer",
            f"{idle:,}",
            ", ".join(unanswered) or "all of them ran",
            IDLE if idle else "",
        ),
    ]
    if summary.pcc is not None:
        undefined = summary.pcc.undefined
        more = f", {undefined:,} not a number" if undefined else ""
        note = f"mean {number(summary.pcc.mean)}, max {number(summary.pcc.most)}{more}"
        tiles.append(Tile("lowest PCC", number(summary.pcc.least), note))
    if summary.times is not None:
        median, total = duration(summary.times.median), duration(summary.times.total)
        note = f"host time; median {median}, {total} in all"
        tiles.append(Tile("longest case", duration(summary.times.longest), note))
    return tuple(tiles)


def _shares(found: RunResults) -> tuple[Share, ...]:
    views = Counter(each.view for each in found.results)
    views[NOT_ATTEMPTED] += len(found.waiting)
    return tuple(Share(WORDS[name], views[name], tone) for name, tone in TONES.items())


def _sums(found: RunResults, summary: Summary) -> Iterator[str]:
    parts = " + ".join(f"{count:,} {WORDS[name]}" for name, count in summary.counts.items())
    yield f"{plural(summary.planned, 'case')} = {parts}"
    yield from summary_notes(summary)
    if found.repeated:
        yield f"{plural(found.repeated, 'earlier attempt')} at the same cases not counted"
    yield from (f"not planned: {count:,} {reason}" for reason, count in found.left_out)


def _changes(compared: ReleaseComparison) -> Section:
    return Section("Changes", tuple(release_document(compared)), name="since")


def _failures(summary: Summary, found: RunResults, store: str | None) -> Iterator[Section]:
    groups = by_text(summary.causes)
    items, left = [], _ALL_PICTURES
    for group in groups[:_MAX_FAILURES]:
        example = max((each.example for each in group), key=lambda one: one.calls or 0)
        pictures = tuple(_pictures(case_of(example.content), left))
        left -= sum(len(each.svg) for each in pictures)
        command = rerun_command(example, found.modules, store)
        items.append(_failure(group, example, command, pictures))
    more = len(groups) - _MAX_FAILURES
    rest = f"{more:,} more causes: optrove results --json" if more > 0 else ""
    if items:
        yield Section("Failures by cause", (Items(tuple(items), rest),), name="failures")


def _failure(
    group: Sequence[Cause], example: AttemptedCase, command: str, pictures: tuple[Picture, ...]
) -> Item:
    """Return a cause with everything that is known of its example."""
    outcome = group[0].outcome
    remarks = remarks_of(example.attempt)
    lines = [line.rstrip() for line in remarks.words]
    at = lines.index(BACKTRACE) if BACKTRACE in lines else len(lines)
    words, trace = "\n".join(lines[:at]).strip(), "\n".join(lines[at + 1 :])
    arguments = "\n".join(draw_text((argument_fields(case_of(example.content)),)))
    calls = sum(each.calls for each in group)
    ids = tuple(case_id[:SHORT_ID] for each in group for case_id in each.case_ids)
    parts: list[Node] = [*paragraphs(refusals(group)), Command(command)]
    if words:
        parts.append(Code("Message", _cut(words, _MAX_MESSAGE_CHARS)))
    if trace:
        parts.append(Code("Backtrace", _cut(trace, _MAX_MESSAGE_CHARS), closed=True))
    case = example.attempt.case_id[:SHORT_ID]
    parts.append(Code(f"Arguments of case {case}", _cut(arguments, _MAX_ARGUMENTS_CHARS)))
    parts += pictures
    if calls:
        parts.append(Paragraph(f"called {calls:,} times by models"))
    return Item(
        count=len(ids),
        text=example.attempt.cause or UNSAID,
        label=WORDS[outcome.value],
        tone=IDLE if outcome is Outcome.NOT_RUN else BAD,
        ops=tuple((each.op, each.count) for each in group[:_MAX_OPS]),
        cases=ids,
        parts=tuple(parts),
    )


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return (
        f"{text[:longest]}\n... ({len(text) - longest:,} more characters: optrove results --json)"
    )


def _pictures(case: Case, left: int) -> Iterator[Picture]:
    """Yield pictures of the sharded tensors of a case, as far as there is room."""
    count = 0
    for name, value in case.arguments:
        for path, part in walk(value, name):
            svg = shard_svg(part) if isinstance(part, TensorSpec) else None
            if svg is None or count >= _MAX_PICTURES or len(svg) > min(_MAX_PICTURE_CHARS, left):
                continue
            count += 1
            left -= len(svg)
            yield Picture(f"{path} on the cores", svg)


def _charts(*charts: Chart | None) -> Iterator[Section]:
    shown = tuple(each for each in charts if each is not None)
    if shown:
        yield Section("Numbers", (Charts(shown),), name="numbers")


def pcc_chart(measurements: Iterable[Measurement]) -> Chart | None:
    """Return the distribution of PCC; bad values missed their threshold. None without any PCC."""
    found = [each for each in measurements if each.name == "pcc"]
    if not found:
        return None
    ranges = [
        f"{low:g} to {'1' if high is None else f'{high:g}'}"
        for low, high in zip(_EDGES, (*_EDGES[1:], None), strict=True)
    ]
    labels = ["not a number", "below 0", *ranges]
    bars = {label: [0, 0] for label in labels}
    for each in found:
        place = 0 if math.isnan(each.value) else 1 + sum(each.value >= edge for edge in _EDGES)
        bars[labels[place]][each.passed is False] += 1
    shown = _trimmed([ChartBar(label, *counts) for label, counts in bars.items()])
    missed = sum(bar.bad for bar in shown)
    note = f"{plural(len(found), 'result')} compared with golden functions"
    return Chart("PCC", f"{note}, {missed:,} below the threshold" if missed else note, shown)


def time_chart(results: Iterable[AttemptedCase]) -> Chart | None:
    """Return the distribution of durations; bad are cases that failed. None without any."""
    found = [
        (ns, each.passed) for each in results if each.ran and (ns := took(each.attempt)) is not None
    ]
    if not found:
        return None
    edges = [_FASTEST]
    while edges[-1] <= max(ns for ns, _ in found):
        edges.append(edges[-1] * 10)
    bars = {edge: [0, 0] for edge in edges}
    for ns, passed in found:
        bars[next(edge for edge in edges if ns < edge)][not passed] += 1
    shown = _trimmed([ChartBar(f"under {duration(edge)}", *n) for edge, n in bars.items()])
    return Chart("Host time", f"calls of {plural(len(found), 'case')}", shown)


def _trimmed(bars: Sequence[ChartBar]) -> tuple[ChartBar, ...]:
    """Return the bars from the first to the last that count something."""
    filled = [place for place, bar in enumerate(bars) if bar.count]
    return tuple(bars[filled[0] : filled[-1] + 1]) if filled else ()


def _case_sections(found: RunResults) -> Iterator[Section]:
    measured = [
        (value, each) for each in found.results if (value := lowest_pcc(each.attempt)) is not None
    ]
    # NaN is the worst value.
    measured.sort(key=lambda item: (not math.isnan(item[0]), item[0]))
    exact = [each for _, each in measured[:_MAX_ROWS]]
    for heading, name, results in (
        ("Least exact", "exact", exact),
        ("Slowest", "slow", slowest(found.results, _MAX_ROWS)),
    ):
        if results:
            yield Section(heading, (cases_table(results),), name=name)


def _measured(summary: Summary) -> Iterator[Section]:
    rows: list[Row] = [
        (
            name,
            count_cell(each.count),
            *(Cell(measurement_text(name, one), one) for one in (each.least, each.mean, each.most)),
            count_cell(each.undefined),
        )
        for name, each in summary.measured.items()
    ]
    if rows:
        yield Section("Measured", (table(_MEASURED, rows),), name="measured")


def _notes(found: RunResults) -> Iterator[Section]:
    items = [Item(count, text) for text, count in worth_telling(found.results)]
    if items:
        notes = first_items(items, _MAX_NOTES, "kinds")
        yield Section("Supplied, changed, or not compared", (notes,), name="notes")


def traced_report(found: TracedRun) -> Document:
    """Return the report of a traced or imported run."""
    run = found.row.run
    shares = Counter(test.outcome.value for test in found.tests)
    bar = tuple(Share(f"tests {each}", shares[each], tone) for each, tone in TEST_TONES.items())
    return Document(
        title=f"run {run.id[:SHORT_ID]}: {source_text(run.source)}",
        heading=run.model or run.source,
        subtitle=_subtitle(run, board_text(run.environment.board, found.row.machine)),
        parts=(
            Tiles(_traced_tiles(found)),
            *((StackedBar(bar),) if found.tests else ()),
            *paragraphs(_traced_sums(found)),
            *_charts(pcc_chart(each for test in found.tests for each in test.metrics)),
            *((Section("Tests", (_tests(found.tests),), name="tests"),) if found.tests else ()),
            Section("Ops", (_traced_ops(found),), name="ops"),
            *(() if found.memory is None else (memory_section(found.memory),)),
            _environment(run),
        ),
    )


def _traced_tiles(found: TracedRun) -> tuple[Tile, ...]:
    shown = [op for op in found.ops if is_listed(op.op)]
    left = found.row.left.moving.calls + found.row.left.nested.calls
    tiles = [
        Tile("calls", f"{found.row.calls:,}", f"{left:,} more are left out" if left else ""),
        Tile("cases", f"{found.row.cases:,}", "different configurations"),
        Tile("ops", f"{len(shown):,}"),
    ]
    if found.tests:
        rate = PassRate.of(Counter(test.outcome.value for test in found.tests))
        note, failed = f"of {rate.ran:,} that ran", rate.ran - rate.passed
        for label, count, more, tone in (
            ("passed", rate.passed, note, GOOD),
            ("failed", failed, "", BAD),
        ):
            tiles.append(Tile(f"tests {label}", f"{count:,}", more, tone if count else ""))
    return tuple(tiles)


def _traced_sums(found: TracedRun) -> Iterator[str]:
    shown, left = found.row.calls, found.row.left
    moving, nested = left.moving.calls, left.nested.calls
    yield (
        f"{shown + moving + nested:,} calls recorded = {shown:,} shown "
        f"+ {moving:,} that only move data + {nested:,} made by other ops"
    )
    accounting = found.row.run.accounting
    if accounting.observed:
        yield accounting_text(accounting)
    if not found.row.complete:
        yield f"{progress_text(found.row.progress)}: a process of this run did not end normally"


def _traced_ops(found: TracedRun) -> Table:
    shown = [op for op in found.ops if is_listed(op.op)] or list(found.ops)
    calls = sum(op.calls for op in shown) or 1
    rows = [
        (
            op.op,
            op.cases,
            op.calls,
            Cell(f"{op.calls / calls:.1%}", op.calls / calls),
            Cell(f"{op.replayable:.0%}", op.replayable),
        )
        for op in shown
    ]
    return table(_TRACED_OPS, rows, search=True)


def _tests(tests: tuple[TestResult, ...]) -> Table:
    ranked = sorted(tests, key=lambda test: _SHOWN_FIRST.index(TEST_TONES[test.outcome.value]))
    more = len(tests) - _MAX_TESTS
    rest = f"{more:,} more" if more > 0 else ""
    return table(_TESTS, map(_test_row, ranked[:_MAX_TESTS]), more=rest, search=True)


def _test_row(test: TestResult) -> tuple[str | Cell, ...]:
    lowest = min((each.value for each in test.metrics if each.name == "pcc"), default=None)
    error = next((line for line in (test.error or "").splitlines()[::-1] if line.strip()), "")
    return (
        test.test_id,
        test.outcome.value,
        Cell("" if lowest is None else number(lowest), lowest),
        Cell("" if test.call_ns is None else duration(test.call_ns), test.call_ns),
        clipped(error, _MAX_ERROR_CHARS),
    )


def _environment(run: Run) -> Section:
    """Return everything that is known of a run."""
    environment = run.environment
    facts = {
        "run": run.id,
        "kind": run.kind.value,
        "model": run.model,
        "started": run.started_at,
        "finished": run.finished_at or "not finished",
        "exit code": None if run.exit_code is None else str(run.exit_code),
        "command": shlex.join(environment.command_line),
        "device": environment.device_kind.value,
        "board": environment.board,
        "architecture": environment.arch,
        "chips": None if environment.device_count is None else str(environment.device_count),
        "opened with": _device_text(environment.device),
        "ttnn": environment.ttnn_version,
        "torch": environment.torch_version,
        "optrove": environment.optrove_version,
        "Python": environment.python_version,
        "platform": environment.platform,
        "host": environment.host,
        "commit": _commit_text(environment),
        **{name: text.strip('"') for name, text in run.provenance if text != "null"},
    }
    known = tuple(Field(name, text) for name, text in facts.items() if text)
    return Section("Environment", (Fields(known),), name="environment")


def _commit_text(environment: Environment) -> str | None:
    if environment.git_sha is None:
        return None
    return f"{environment.git_sha}{' with changes' if environment.git_dirty else ''}"


def _device_text(device: DeviceParameters | None) -> str | None:
    if device is None:
        return None
    mesh = None if device.mesh_shape is None else "x".join(map(str, device.mesh_shape))
    facts = {
        "mesh": mesh,
        "fabric": device.fabric_config,
        "dispatch axis": device.dispatch_axis,
        "l1_small_size": device.l1_small_size,
        "trace_region_size": device.trace_region_size,
        "worker_l1_size": device.worker_l1_size,
        "command queues": device.command_queues,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)

"""The results of a run: each case with its verdict, summed up, as a document and as data."""

from __future__ import annotations

import math
import shlex
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final, TypeVar

from optrove.errors import NotFound
from optrove.model.exit_codes import FAIL_ON, Exit
from optrove.model.pass_rates import PassRate
from optrove.model.records import CHECK_BOARD, E2E_NS, DeviceKind, kind_of, time_of
from optrove.model.trove import ALL_DONE, RunState
from optrove.model.values import Float
from optrove.report.attempts import (
    WORDS,
    XFAILED,
    XPASSED,
    attempt_data,
    cause_data,
    causes,
    counts_of,
    lowest_pcc,
    rerun_command,
)
from optrove.report.document import (
    BAD,
    GOOD,
    IDLE,
    Cell,
    Column,
    Command,
    Item,
    Paragraph,
    Section,
    Share,
    count_cell,
    first_items,
    paragraphs,
    table,
)
from optrove.report.replays import cause_sections, left_out_by_reason, note_section
from optrove.report.wording import (
    SHORT_ID,
    duration,
    moment,
    number,
    place_text,
    plural,
    progress_text,
    rate_text,
)
from optrove.serializer.wire import encode
from optrove.trove.query import run_named
from optrove.trove.sessions import EXECUTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.exit_codes import Reason
    from optrove.model.records import Attempt, AttemptedCase, Counts, Run, SweepModule
    from optrove.model.trove import PlannedCase, RunProgress
    from optrove.report.attempts import Cause
    from optrove.report.document import Node, Table
    from optrove.serializer.text import Json
    from optrove.trove.reader import TroveReader


_Totals = TypeVar("_Totals", bound="Totals")


@dataclass(frozen=True, slots=True)
class RunResults:
    """The results of a run: the last attempt at each case; ``repeated`` counts earlier ones."""

    run: Run
    results: tuple[AttemptedCase, ...]
    waiting: tuple[PlannedCase, ...] = ()
    repeated: int = 0
    left_out: Counts = ()
    modules: tuple[SweepModule, ...] = ()
    progress: RunProgress = ALL_DONE

    @property
    def planned(self) -> int:
        """The number of planned cases."""
        return len(self.results) + len(self.waiting)

    def exit(self, fail_on: frozenset[Reason] = FAIL_ON, *, interrupted: bool = False) -> Exit:
        """Return how a command for this run ends."""
        whole = self.progress.complete
        return Exit.of(
            self.results, len(self.waiting), fail_on, complete=whole, interrupted=interrupted
        )


def run_meant(reader: TroveReader, name: str | None) -> Run:
    """Return the run that begins so, or the newest in which cases were executed."""
    if name is not None:
        (row,) = reader.runs(run_named(reader, name.removeprefix("run:")))
        return row.run
    for row in reader.runs():
        if row.run.kind in EXECUTED:
            return row.run
    raise NotFound(
        f"{reader.place} has no run in which cases were executed; make one with optrove sweep, "
        f"optrove replay or optrove check-board"
    )


def results_of(reader: TroveReader, run: Run) -> RunResults:
    """Return the results of a run; NotFound if it planned and executed nothing."""
    results: dict[str, AttemptedCase] = {}
    attempts = 0
    with reader.connection.snapshot():
        for each in reader.attempted_cases(run.id):
            attempts += 1
            # The last of several Attempts at a case counts.
            results[each.attempt.case_id] = each
        (row,) = reader.runs(run.id)
        rest = tuple(reader.waiting(run.id))
        sweep = reader.sweep(run.id)
    if not results and not rest and row.progress.planned is None:
        raise NotFound(
            f"nothing was executed in run {run.id[:SHORT_ID]}, whose kind is {run.kind.value!r}; "
            f"name a run of optrove sweep, replay or check-board, or show the calls of this one: "
            f"optrove report {run.id[:SHORT_ID]}"
        )
    return RunResults(
        run=row.run,
        results=tuple(results.values()),
        waiting=rest,
        repeated=attempts - len(results),
        left_out=() if sweep is None else sweep.left_out,
        modules=() if sweep is None else sweep.modules,
        progress=row.progress,
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """The range and mean of measured numbers; ``undefined`` counts those that are NaN."""

    count: int
    least: float
    mean: float
    most: float
    undefined: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of cases, in nanoseconds."""

    total: int
    median: int
    longest: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Some cases summed up; ``counts`` of outcomes and unattempted cases add up to ``planned``."""

    counts: dict[str, int]
    calls: int
    good: int
    ran: int
    pcc: Spread | None
    times: Times | None

    @property
    def planned(self) -> int:
        """The number of planned cases."""
        return sum(self.counts.values())

    @property
    def pass_rate(self) -> PassRate:
        """The pass rate."""
        return PassRate(self.good, self.ran)


@dataclass(frozen=True, slots=True)
class Summary(Totals):
    """A run summed up: all cases, and those of each op.

    ``views`` count expected failures, ``numberless`` cases ran on a mock board, which computes
    nothing to compare.
    """

    views: dict[str, int]
    causes: tuple[Cause, ...]
    ops: dict[str, Totals]
    measured: dict[str, Spread]
    numberless: int


def summed(run: RunResults) -> Summary:
    """Return the summary of a run; ops with most failures come first."""
    results = run.results
    views = Counter(each.view for each in results if each.xfail and each.ran)
    names = dict.fromkeys(each.name for one in results for each in one.attempt.measurements)
    groups: dict[str, tuple[list[AttemptedCase], list[PlannedCase]]] = defaultdict(lambda: ([], []))
    for each in results:
        groups[each.op][0].append(each)
    for waiting in run.waiting:
        groups[waiting.op][1].append(waiting)
    ops = {op: _totals(Totals, *group) for op, group in groups.items()}
    return _totals(
        Summary,
        results,
        run.waiting,
        views={name: views[name] for name in (XFAILED, XPASSED) if views[name]},
        causes=causes(results),
        ops=dict(sorted(ops.items(), key=_most_failing)),
        measured={name: found for name in names if (found := spread(measured(results, name)))},
        numberless=sum(
            each.ran and each.attempt.device_kind is DeviceKind.MOCK for each in results
        ),
    )


def _totals(
    kind: type[_Totals],
    results: Sequence[AttemptedCase],
    waiting: Sequence[PlannedCase],
    **more: Any,
) -> _Totals:
    return kind(
        counts=counts_of((each.attempt for each in results), len(waiting)),
        calls=sum(each.calls or 0 for each in results) + sum(each.calls for each in waiting),
        good=sum(each.passed for each in results),
        ran=sum(each.ran for each in results),
        pcc=spread(measured(results, "pcc")),
        times=times(results),
        **more,
    )


def _most_failing(item: tuple[str, Totals]) -> tuple[int, int, int, str]:
    """Return the sort key: most failures first, then unanswered cases, then calls."""
    op, total = item
    return total.good - total.ran, total.ran - total.planned, -total.calls, op


def numberless_text(summary: Summary) -> str | None:
    """Return the note about cases whose numbers were not compared; None if all were."""
    if not summary.numberless:
        return None
    whose = "" if summary.numberless == summary.ran else f" of {summary.numberless:,} of them"
    return f"no numbers{whose} were compared (mock): --device shadow compares them"


def measured(results: Iterable[AttemptedCase], name: str) -> list[float]:
    """Return all measured values with a name."""
    return [each.value for one in results for each in one.attempt.measurements if each.name == name]


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of numbers, None without any."""
    known = [value for value in values if not math.isnan(value)]
    if not values:
        return None
    if not known:
        return Spread(len(values), math.nan, math.nan, math.nan, len(values))
    mean = fmean(known) if all(map(math.isfinite, known)) else math.nan
    return Spread(len(values), min(known), mean, max(known), len(values) - len(known))


def took(attempt: Attempt) -> int | None:
    """Return the duration of a case: the measured one, or else that of the whole attempt."""
    timed = [each.value for each in attempt.measurements if each.name == E2E_NS]
    return time_of(timed, attempt.duration_ns)


def times(results: Iterable[AttemptedCase]) -> Times | None:
    """Return the durations of the cases that ran, None if none is known."""
    found = [ns for each in results if each.ran and (ns := took(each.attempt)) is not None]
    return Times(sum(found), round(median(found)), max(found)) if found else None


def slowest(results: Iterable[AttemptedCase], most: int) -> list[AttemptedCase]:
    """Return the slowest cases, the slowest first."""
    timed = [each for each in results if each.ran and took(each.attempt) is not None]
    return sorted(timed, key=lambda each: -(took(each.attempt) or 0))[:most]


_MAX_SLOW: Final = 5
_MAX_CAUSES: Final = 5
_MAX_OPS: Final = 25
_OPS: Final = (
    Column("op", flexible=True, code=True),
    Column("result", optional=True),
    *(Column(name, right=True) for name in ("cases", "passed")),
    *(
        Column(name, right=True, optional=True)
        for name in ("failed", "no answer", "PCC min", "PCC mean", "calls", "time")
    ),
)
_CASES: Final = (
    Column("op", flexible=True, code=True),
    Column("case", code=True),
    Column("verdict"),
    *(Column(name, right=True, optional=True) for name in ("PCC", "time", "calls")),
)


_TIMED_ON_HOST: Final = (DeviceKind.MOCK, DeviceKind.SHADOW, DeviceKind.SIMULATOR)


def title(run: Run) -> str:
    """Return a run in a line: its source, device, version of ttnn or torch, and time."""
    environment = run.environment
    place = place_text(environment.device_kind.value, environment.board)
    if environment.device_kind is DeviceKind.HOST:
        framework, version = "torch", environment.torch_version
    else:
        framework, version = "ttnn", environment.ttnn_version
    software = [] if version is None else [f"{framework} {version}"]
    facts = [place, *software, moment(run.started_at)]
    return f"run {run.id[:SHORT_ID]}: {run.source} ({', '.join(facts)})"


def counted(summary: Summary) -> str:
    """Return the counts of a run: ``5 cases: 3 passed, 2 rejected``."""
    return f"{plural(summary.planned, 'case')}: {counts_text(summary.counts)}"


def results_document(found: RunResults, store: str | None) -> Iterator[Node]:
    """Yield the results of a run; ``store`` is the trove that commands name."""
    summary = summed(found)
    yield from state_paragraph(found.progress, found.run)
    yield Paragraph(counted(summary))
    nothing = "" if summary.ran else ", so nothing is known about any operation"
    yield Paragraph(f"{rate_text(summary.pass_rate)}{nothing}")
    yield from paragraphs(summary_notes(summary))
    yield from paragraphs(left_out_by_reason(found.left_out))
    yield from paragraphs(spread_text(name, each) for name, each in summary.measured.items())
    if summary.times is not None:
        of_host = " (host time)" if found.run.environment.device_kind in _TIMED_ON_HOST else ""
        yield Paragraph(f"durations{of_host}: {times_text(summary.times)}")
    yield from cause_sections(
        summary.causes, lambda each: rerun_command(each, found.modules, store)
    )
    yield from note_section(found.results)
    if len(summary.ops) > 1:
        yield ops_table(summary, _MAX_OPS)
    slow = slowest(found.results, _MAX_SLOW)
    if len(found.results) > 1 and slow:
        yield Section("slowest", (cases_table(slow),))


def state_paragraph(progress: RunProgress, run: Run | None) -> Iterator[Paragraph]:
    """Yield the state of a run that is not complete, and the command that continues it.

    ``run`` is None if it is not in a trove.
    """
    if progress.complete:
        return
    advice = ""
    if run is not None and progress.planned and progress.state is not RunState.RUNNING:
        board = run.environment.board if kind_of(run) == CHECK_BOARD else None
        words = ("optrove", kind_of(run), *([] if board is None else [board]), "--resume")
        advice = f"; continue with: {' '.join(words)}"
    yield Paragraph(f"{progress_text(progress)}{advice}")


def totals_document(found: RunResults, store: str | None) -> Iterator[Node]:
    """Yield the totals of a run, those of each op, why cases failed, and notes.

    Every row adds up. ``store`` is the trove that the command at the end names.
    """
    summary = summed(found)
    yield table(
        (Column("op", flexible=True), Column("cases", right=True), Column("of which")),
        [(op, each.planned, counts_text(each.counts)) for op, each in summary.ops.items()],
    )
    yield from state_paragraph(found.progress, found.run)
    yield Paragraph(counted(summary))
    yield from paragraphs(summary_notes(summary))
    yield from paragraphs(left_out_by_reason(found.left_out))
    if summary.causes:
        items = [
            Item(each.count, f"{each.op} {WORDS[each.outcome.value]}: {each.text}")
            for each in sorted(summary.causes, key=lambda each: -each.count)
        ]
        words = ["optrove", "results", found.run.id[:SHORT_ID]]
        words += [] if store is None else ["--store", store]
        yield Section(
            "why",
            (
                first_items(items, _MAX_CAUSES, "causes"),
                Command(f"every cause with a command that replays it: {shlex.join(words)}"),
            ),
        )
    yield from note_section(found.results)


def counts_text(counts: dict[str, int]) -> str:
    """Return counts by outcome in words: ``3 passed, 2 rejected``."""
    return ", ".join(f"{count:,} {WORDS[name]}" for name, count in counts.items())


def summary_notes(summary: Summary) -> Iterator[str]:
    """Yield sentences about expected failures, and about cases without numerics."""
    if summary.ran and summary.views:
        yield f"expected failures: {counts_text(summary.views)}"
    if summary.ran:
        yield from filter(None, (numberless_text(summary),))


def ops_table(summary: Summary, most: int | None = None) -> Table:
    """Return the table of ops; all columns and a search unless ``most`` cuts it."""
    rows = [_op_row(op, each, full=most is None) for op, each in islice(summary.ops.items(), most)]
    more = len(summary.ops) - len(rows)
    rest = f"{more:,} more ops (--json, or optrove report)" if more else ""
    return table(_OPS, rows, more=rest, search=most is None)


def _op_row(op: str, row: Totals, *, full: bool) -> tuple[str | Cell, ...]:
    failed, idle = row.ran - row.good, row.planned - row.ran
    shares = (
        Share("passed", row.good, GOOD),
        Share("failed", failed, BAD),
        Share("no answer", idle, IDLE),
    )
    total = None if row.times is None else row.times.total
    return (
        op,
        Cell("", row.pass_rate.share, shares) if full else "",
        Cell(f"{row.planned:,}", row.planned),
        Cell(f"{row.good:,}", row.good),
        count_cell(failed),
        count_cell(idle),
        _number_cell(None if row.pcc is None else row.pcc.least),
        _number_cell(None if row.pcc is None or not full else row.pcc.mean),
        count_cell(row.calls) if full else "",
        Cell("" if total is None else duration(total), total),
    )


def cases_table(results: Iterable[AttemptedCase]) -> Table:
    """Return a table of cases."""
    return table(
        _CASES,
        [
            (
                each.op,
                each.attempt.case_id[:SHORT_ID],
                WORDS[each.view],
                _number_cell(lowest_pcc(each.attempt)),
                Cell(duration(took(each.attempt) or 0), took(each.attempt) or 0),
                count_cell(each.calls or 0),
            )
            for each in results
        ],
    )


def _number_cell(value: float | None) -> Cell:
    return Cell("" if value is None else number(value), value)


def spread_text(name: str, found: Spread) -> str:
    """Return a spread in words: ``pcc: min 0.98, mean 0.999, max 1 (30 measured)``."""
    undefined = f", {found.undefined:,} not a number" if found.undefined else ""
    least, mean, most = (
        measurement_text(name, each) for each in (found.least, found.mean, found.most)
    )
    return f"{name}: min {least}, mean {mean}, max {most} ({found.count:,} measured{undefined})"


def measurement_text(name: str, value: float) -> str:
    """Return a measured number in the unit of its name."""
    timed = name.endswith("_ns") and math.isfinite(value)
    return duration(value) if timed else number(value)


def times_text(found: Times) -> str:
    """Return durations in words."""
    return (
        f"median {duration(found.median)}, longest {duration(found.longest)}, "
        f"{duration(found.total)} in all"
    )


def results_data(found: RunResults, store: str | None) -> dict[str, Json]:
    """Return the results of a run; ``docs/command-line.md`` describes the keys."""
    summary = summed(found)
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
        "complete": found.progress.complete,
        "state": found.progress.state.value,
        "counts": dict(summary.counts),
        "views": dict(summary.views),
        "left_out": dict(found.left_out),
        "good": summary.good,
        "ran": summary.ran,
        "pass_share": summary.pass_rate.share,
        "measurements": {name: spread_data(each) for name, each in summary.measured.items()},
        "durations": times_data(summary.times),
        "ops": [_op_data(op, each) for op, each in summary.ops.items()],
        "causes": [
            cause_data(each, rerun_command(each.example, found.modules, store))
            for each in summary.causes
        ],
        "cases": [_result_data(each) for each in found.results],
        "not_attempted": [
            {"op": each.op, "case_id": each.case_id, "suite": each.suite} for each in found.waiting
        ],
    }


def exit_paragraph(ending: Exit) -> tuple[Paragraph, ...]:
    """Return the exit code and its reasons, unless all is simply good."""
    return () if ending.text is None else (Paragraph(ending.text),)


def exit_data(ending: Exit) -> dict[str, Json]:
    """Return the exit code of a command for cases, and the number of cases by reason."""
    return {
        "exit_code": ending.code,
        "reasons": {reason.value: count for reason, count in ending.reasons.items()},
    }


def spread_data(found: Spread | None) -> Json:
    """Return a spread as data."""
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
    """Return durations as data."""
    if found is None:
        return None
    return {"total_ns": found.total, "median_ns": found.median, "longest_ns": found.longest}


def _op_data(op: str, row: Totals) -> Json:
    return {
        "op": op,
        "planned": row.planned,
        "counts": dict(row.counts),
        "good": row.good,
        "ran": row.ran,
        "calls": row.calls,
        "pcc": spread_data(row.pcc),
        "durations": times_data(row.times),
    }


def _result_data(result: AttemptedCase) -> Json:
    return {
        **attempt_data(result),
        "calls": result.calls,
        "suite": result.suite,
        "xfail": result.xfail,
        "view": result.view,
        "took_ns": took(result.attempt),
    }

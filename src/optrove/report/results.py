"""The results of a run: each case with its verdict, summed up, as text and data."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from optrove.model.records import DeviceKind, Outcome
from optrove.model.values import Float
from optrove.report.attempts import VERDICTS, again_command, attempt_data, number, tally
from optrove.report.boards import cause_lines, percent
from optrove.report.causes import cause_data, causes
from optrove.report.runs import SHORT_ID, moment
from optrove.report.tables import Column, duration, plural, table_lines
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from optrove.model.records import Attempt, Counts, Run, SweepModule
    from optrove.report.causes import Cause
    from optrove.serializer.text import Json


NOT_ATTEMPTED: Final = "not_attempted"
"""How cases are counted that were planned, and that the run has not come to."""
XFAILED: Final = "xfailed"
XPASSED: Final = "xpassed"

_EXPECTED_TO_FAIL: Final = "xfail_"
TIME: Final = "e2e_ns"
"""What is called how long a case took where that was measured for the purpose."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case; ``content`` is the case as canonical JSON."""

    op: str
    attempt: Attempt
    content: str
    calls: int = 0
    suite: str | None = None

    @property
    def xfail(self) -> bool:
        """Tell whether its suite is one of those that have to fail."""
        return fails_as_expected(self.suite)

    @property
    def view(self) -> str:
        """The outcome, or ``xfailed`` and ``xpassed`` where a failure was expected."""
        outcome = self.attempt.outcome
        if not self.xfail or outcome is Outcome.NOT_RUN:
            return outcome.value
        return XPASSED if outcome is Outcome.PASSED else XFAILED

    @property
    def passed(self) -> bool:
        """Tell whether all is well: it passed, or belongs to those that may fail."""
        return self.attempt.outcome is Outcome.PASSED or (self.xfail and self.ran)

    @property
    def ran(self) -> bool:
        """Tell whether the operation has answered, whatever it said."""
        return self.attempt.outcome is not Outcome.NOT_RUN


@dataclass(frozen=True, slots=True)
class Waiting:
    """A case that was planned, and that the run has not come to."""

    op: str
    case_id: str
    calls: int = 0
    suite: str | None = None


@dataclass(frozen=True, slots=True)
class RunResults:
    """What came of a run: of each case the last attempt; ``repeated`` are those before it."""

    run: Run
    results: tuple[Result, ...]
    waiting: tuple[Waiting, ...] = ()
    repeated: int = 0
    left_out: Counts = ()
    modules: tuple[SweepModule, ...] = ()

    @property
    def planned(self) -> int:
        """How many cases there are to tell of."""
        return len(self.results) + len(self.waiting)


@dataclass(frozen=True, slots=True)
class Spread:
    """How some measured numbers are spread; ``undefined`` of them are no numbers."""

    count: int
    least: float
    mean: float
    most: float
    undefined: int = 0


@dataclass(frozen=True, slots=True)
class Times:
    """How long cases took, in nanoseconds."""

    total: int
    median: int
    longest: int


@dataclass(frozen=True, slots=True)
class OpResults:
    """What came of the cases of one op; ``counts`` add up to ``planned``."""

    op: str
    counts: dict[str, int]
    calls: int
    good: int
    ran: int
    pcc: Spread | None
    times: Times | None

    @property
    def planned(self) -> int:
        """How many cases there are of this op."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True)
class Summary:
    """A run summed up.

    ``counts`` are outcomes and what was not attempted, and add up to what was planned; ``views``
    count expected failures. ``share`` is how many of those that ran went well, None if none ran.
    ``numberless`` ran on a mock board, where no kernel computes anything that could be compared.
    """

    counts: dict[str, int]
    good: int
    ran: int
    views: dict[str, int]
    pcc: Spread | None
    times: Times | None
    causes: tuple[Cause[Result], ...] = ()
    ops: tuple[OpResults, ...] = ()
    measured: dict[str, Spread] = field(default_factory=dict)
    numberless: int = 0

    @property
    def planned(self) -> int:
        """How many cases were planned."""
        return sum(self.counts.values())

    @property
    def share(self) -> float | None:
        """How many of the cases that ran went well."""
        return self.good / self.ran if self.ran else None

    @property
    def all_well(self) -> bool:
        """Tell whether there was something to do, and all of it went well."""
        return 0 < self.planned == self.good


def summed(run: RunResults) -> Summary:
    """Sum up what came of a run."""
    results = run.results
    views = Counter(each.view for each in results if each.xfail and each.ran)
    names = dict.fromkeys(each.name for one in results for each in one.attempt.measurements)
    return Summary(
        counts=_counts(results, len(run.waiting)),
        good=sum(each.passed for each in results),
        ran=sum(each.ran for each in results),
        views={name: views[name] for name in (XFAILED, XPASSED) if views[name]},
        pcc=spread(measured(results, "pcc")),
        times=times(results),
        causes=causes(results),
        ops=_by_op(run),
        measured={name: found for name in names if (found := spread(measured(results, name)))},
        numberless=sum(
            each.ran and each.attempt.device_kind is DeviceKind.MOCK for each in results
        ),
    )


def numberless_text(summary: Summary) -> str | None:
    """Return what passing means where no numbers were compared; None if they were everywhere."""
    if not summary.numberless:
        return None
    whose = "" if summary.numberless == summary.ran else f" of {summary.numberless:,} of them"
    return f"no numbers{whose} were compared (mock): --device shadow compares them"


def _counts(results: Iterable[Result], waiting: int) -> dict[str, int]:
    more = {NOT_ATTEMPTED: waiting} if waiting else {}
    return {**tally(each.attempt.outcome for each in results), **more}


def _by_op(run: RunResults) -> tuple[OpResults, ...]:
    groups: dict[str, list[Result]] = {}
    for each in run.results:
        groups.setdefault(each.op, []).append(each)
    waiting: dict[str, list[Waiting]] = {}
    for one in run.waiting:
        waiting.setdefault(one.op, []).append(one)
        groups.setdefault(one.op, [])
    found = [_of_op(op, each, waiting.get(op, ())) for op, each in groups.items()]
    return tuple(sorted(found, key=_most_failing))


def _most_failing(row: OpResults) -> tuple[int, int, int, str]:
    """Return what puts first what failed, then what is not known, then what is called most."""
    return row.good - row.ran, row.ran - row.planned, -row.calls, row.op


def _of_op(op: str, results: Sequence[Result], waiting: Sequence[Waiting]) -> OpResults:
    return OpResults(
        op=op,
        counts=_counts(results, len(waiting)),
        calls=sum(each.calls for each in results) + sum(each.calls for each in waiting),
        good=sum(each.passed for each in results),
        ran=sum(each.ran for each in results),
        pcc=spread(measured(results, "pcc")),
        times=times(results),
    )


def measured(results: Iterable[Result], name: str) -> list[float]:
    """Return all that was measured under a name."""
    return [each.value for one in results for each in one.attempt.measurements if each.name == name]


def spread(values: Sequence[float]) -> Spread | None:
    """Return how numbers are spread, None if there are none at all."""
    known = [value for value in values if not math.isnan(value)]
    if not values:
        return None
    if not known:
        return Spread(len(values), math.nan, math.nan, math.nan, len(values))
    mean = fmean(known) if all(map(math.isfinite, known)) else math.nan
    return Spread(len(values), min(known), mean, max(known), len(values) - len(known))


def fails_as_expected(suite: str | None) -> bool:
    """Tell whether the cases of a suite have to fail."""
    return suite is not None and suite.startswith(_EXPECTED_TO_FAIL)


def took(attempt: Attempt) -> int | None:
    """Return how long a case took: as it was measured for the purpose, or else all in all."""
    timed = [each.value for each in attempt.measurements if each.name == TIME]
    return time_of(timed, attempt.duration_ns)


def time_of(timed: Sequence[float], duration_ns: int | None) -> int | None:
    """Return how long something took by what was measured, or else by how long it took in all."""
    return round(timed[0]) if timed and math.isfinite(timed[0]) else duration_ns


def times(results: Iterable[Result]) -> Times | None:
    """Return how long the cases took that ran, None if that is known of none."""
    found = [ns for each in results if each.ran and (ns := took(each.attempt)) is not None]
    return Times(sum(found), round(median(found)), max(found)) if found else None


def slowest(results: Iterable[Result], most: int) -> list[Result]:
    """Return the cases that took longest, the longest first."""
    timed = [each for each in results if each.ran and took(each.attempt) is not None]
    return sorted(timed, key=lambda each: -(took(each.attempt) or 0))[:most]


def lowest_pcc(result: Result) -> float | None:
    """Return the worst PCC of a case; what is no number is the worst that can be found."""
    found = [each.value for each in result.attempt.measurements if each.name == "pcc"]
    return next((value for value in found if math.isnan(value)), min(found, default=None))


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
    """Return what came of a run for machines; see ``optrove.cli.sweep`` for the keys."""
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

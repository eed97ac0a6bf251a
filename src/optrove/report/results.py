"""What came of a run: every case with its verdict, and all of it summed up."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from optrove.model.records import DeviceKind, Outcome
from optrove.report.attempted import tally
from optrove.report.causes import causes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Attempt, Counts, Run, SweepModule
    from optrove.report.causes import Cause

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

"""Find the releases between which results of cases, or of a command, changed.

Each case has an interval: the last release that answers like the good one, and the first that does
not. Each step tests the release that divides most intervals best, for all cases whose intervals
contain it, until no interval contains a release that can be tested. Then both ends of each interval
are tested once more in new processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import NotFound, UnusableRelease
from optrove.model.records import AttemptedCase, Outcome
from optrove.replay.environments import run_in
from optrove.replay.planning import cases_named, planned_by_id
from optrove.replay.runner import Workers, run_jobs
from optrove.report.bisection import Bisection, Boundary
from optrove.report.releases import Judged, change_of, judged
from optrove.trove.query import CaseFilters

if TYPE_CHECKING:
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.environments import Environments
    from optrove.replay.planning import PlannedJob
    from optrove.trove.reader import TroveReader

Evaluate: TypeAlias = Callable[[str, Sequence[str]], Mapping[str, Judged]]
"""Returns the results of some cases, by id, with a release."""

Log: TypeAlias = Callable[[str], object]

_OPAQUE: Final = '"$opaque"'

COMMAND: Final = "command"
SKIP: Final = 125
"""The exit code of a command that cannot judge a release, as with ``git bisect run``."""


@dataclass(slots=True)
class _Interval:
    """The last release that answers like the good one, and the first that does not."""

    low: int
    high: int
    untested: set[int] = field(default_factory=set)

    def weight(self, index: int) -> int:
        """Return how well a release divides the interval; 0 if it does not."""
        if index in self.untested:
            return 0
        return max(0, min(index - self.low, self.high - index))


def bisect(
    package: str, ids: Sequence[str], releases: Sequence[str], evaluate: Evaluate, log: Log
) -> Bisection:
    """Return where the results of cases changed between the first release and the last."""
    search = _Search(releases, evaluate, log)
    last = len(releases) - 1
    good, bad = search.test(0, ids), search.test(last, ids)
    intervals: dict[str, _Interval] = {}
    not_run: list[Judged] = []
    for case_id in ids:
        kind, _, _ = _change(good[case_id], bad[case_id])
        if kind == "not_run":
            lost = bad if bad[case_id].outcome is Outcome.NOT_RUN else good
            not_run.append(lost[case_id])
        elif kind is not None:
            intervals[case_id] = _Interval(0, last)
    search.narrow(intervals)
    boundaries = search.confirmed(
        search.boundary(case_id, each) for case_id, each in intervals.items()
    )
    return Bisection(
        package=package,
        releases=tuple(releases),
        tested=tuple((releases[index], count) for index, count in sorted(search.counts.items())),
        boundaries=tuple(boundaries),
        unchanged=len(ids) - len(intervals) - len(not_run),
        not_run=tuple(not_run),
    )


class _Search:
    """The results of all releases that have been tested."""

    def __init__(self, releases: Sequence[str], evaluate: Evaluate, log: Log) -> None:
        self._releases = releases
        self._evaluate = evaluate
        self._log = log
        self._results: dict[int, dict[str, Judged]] = {}
        self.counts: dict[int, int] = {}

    def test(self, index: int, ids: Sequence[str]) -> Mapping[str, Judged]:
        """Return the results of cases with a release."""
        release = self._releases[index]
        self._log(f"{release}: {len(ids):,} to test")
        found = self._evaluate(release, ids)
        self._results.setdefault(index, {}).update(found)
        self.counts[index] = self.counts.get(index, 0) + len(ids)
        return found

    def narrow(self, intervals: Mapping[str, _Interval]) -> None:
        """Make the intervals as small as possible with few releases."""
        while True:
            weights = {
                index: sum(each.weight(index) for each in intervals.values())
                for index in range(1, len(self._releases) - 1)
            }
            best = max(weights, key=lambda index: weights[index], default=None)
            if best is None or not weights[best]:
                return
            ids = [case_id for case_id, each in intervals.items() if each.weight(best)]
            found = self.test(best, ids)
            for case_id in ids:
                self._move(intervals[case_id], best, case_id, found[case_id])

    def _move(self, interval: _Interval, index: int, case_id: str, result: Judged) -> None:
        kind, _, _ = _change(self._results[0][case_id], result)
        if kind == "not_run":
            interval.untested.add(index)
        elif kind is None:
            interval.low = index
        else:
            interval.high = index

    def boundary(self, case_id: str, interval: _Interval) -> Boundary:
        """Return the change of a case whose interval cannot be smaller."""
        before = self._results[interval.low][case_id]
        after = self._results[interval.high][case_id]
        kind, text, worse = _change(before, after)
        between = self._releases[interval.low + 1 : interval.high]
        ends = (self._releases[interval.low], self._releases[interval.high])
        return Boundary(*ends, before, after, str(kind), text, worse=worse, untested=tuple(between))

    def confirmed(self, boundaries: Iterable[Boundary]) -> list[Boundary]:
        """Return the changes with whether a second test of both ends shows the same."""
        groups: dict[tuple[str, str], list[Boundary]] = {}
        for each in boundaries:
            groups.setdefault((each.last_good, each.first_bad), []).append(each)
        found = []
        for ends, group in groups.items():
            ids = [each.case_id for each in group]
            again = [self.test(self._releases.index(release), ids) for release in ends]
            for each in group:
                firsts = (each.before, each.after)
                same = all(
                    _change(first, results[each.case_id])[0] is None
                    for first, results in zip(firsts, again, strict=True)
                )
                found.append(replace(each, confirmed=same))
        return found


def _change(before: Judged, after: Judged) -> tuple[str | None, str, bool]:
    """Return the kind of change, its text, and whether it is a regression; durations are ignored.

    Outputs are not compared where this optrove cannot describe the tensors of a release.
    """
    if _OPAQUE in before.outputs or _OPAQUE in after.outputs:
        before, after = replace(before, outputs="[]"), replace(after, outputs="[]")
    return change_of(before, after, timed=False)


def cases_of(
    reader: TroveReader, name: str, *, seed: int, timeout_ns: int | None
) -> tuple[PlannedJob, ...]:
    """Return the cases that a name means: a case, a run, or all cases of an op."""
    runs = reader.find_run(name)
    if len(runs) == 1 and not reader.find_case(name):
        ids = reader.attempted(runs[0])
        found = tuple(planned_by_id(reader, ids, seed=seed, timeout_ns=timeout_ns))
        if found:
            return found
        asked = CaseFilters(name="*", run=runs[0], nested=True, all_ops=True)
        return cases_named(reader, asked, every=True, seed=seed, timeout_ns=timeout_ns)[0]
    cases, _ = cases_named(
        reader, CaseFilters(name=name), every=True, seed=seed, timeout_ns=timeout_ns
    )
    return cases


def case_evaluation(
    groups: Mapping[TargetDevice, Sequence[PlannedJob]],
    environments: Environments,
    *,
    jobs: int = 1,
    log: Log = lambda _: None,
) -> Evaluate:
    """Return the function that executes cases with a release, in worker processes."""

    def evaluate(release: str, ids: Sequence[str]) -> dict[str, Judged]:
        wanted = set(ids)
        found: dict[str, Judged] = {}
        cases = [each for planned in groups.values() for each in planned]
        ops = {planned.case_id: planned.op for planned in cases}
        try:
            python = environments.python(release)
        except UnusableRelease as error:
            return {each: Judged(ops[each], each, Outcome.NOT_RUN, str(error)) for each in ids}
        workers = Workers(jobs, (str(python), "-m", "optrove.replay.worker"))
        for target, planned in groups.items():
            # What the release of the recording returned does not matter.
            chosen = [
                replace(each.job, device_kind=target.device_kind, outputs=None)
                for each in planned
                if each.case_id in wanted
            ]
            attempts = run_jobs(chosen, board=target.board, workers=workers, log=log)
            for attempt in attempts:
                result = AttemptedCase(ops[attempt.case_id], attempt)
                found[attempt.case_id] = judged(result)
        return found

    return evaluate


def command_evaluation(
    command: str, environments: Environments, *, seconds: float | None
) -> Evaluate:
    """Return the function that runs a command with a release: it passes with exit code 0."""

    def evaluate(release: str, _: Sequence[str]) -> dict[str, Judged]:
        try:
            code, output = run_in(environments.python(release), command, seconds)
        except UnusableRelease as error:
            return {COMMAND: Judged(COMMAND, COMMAND, Outcome.NOT_RUN, str(error))}
        last = (output.strip().splitlines() or [""])[-1]
        outcome = Outcome.PASSED if code == 0 else Outcome.RAISED
        cause = None if code == 0 else f"exit code {code}: {last}"
        if code is None:
            outcome, cause = Outcome.HUNG, f"no end within {seconds:g} s" if seconds else "no end"
        if code == SKIP:
            outcome = Outcome.NOT_RUN
        return {COMMAND: Judged(COMMAND, COMMAND, outcome, cause)}

    return evaluate


def check_ends(found: Bisection) -> None:
    """Raise NotFound if nothing could be compared."""
    if not found.boundaries and not found.unchanged:
        why = found.not_run[0].cause if found.not_run else "there is no case"
        first, last = found.releases[0], found.releases[-1]
        raise NotFound(f"no case ran with both {first} and {last} of {found.package}: {why}")

"""Find the releases between which results of cases, or of a command, changed.

Each case has an interval: the last release with the result of the good one, and the first with
another. Each step tests the release that divides most intervals best, for all cases whose intervals
contain it, until no interval contains a release that can be tested. Then both ends of each interval
are tested twice more, in new processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import NotFound, UnusableRelease
from optrove.model.case import rewrite
from optrove.model.records import Attempt, AttemptedCase, DeviceKind, Outcome
from optrove.model.values import Opaque, TensorSpec, Value, walk
from optrove.replay.environments import run_in
from optrove.replay.planning import cases_named, planned_by_id
from optrove.replay.runner import Workers, run_jobs
from optrove.report.attempts import is_as_recorded
from optrove.report.document import Item, Items, Paragraph, Section
from optrove.report.releases import change_of
from optrove.report.wording import SHORT_ID, plural
from optrove.trove.query import CaseFilters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.environments import Environments
    from optrove.replay.planning import PlannedJob
    from optrove.report.document import Node
    from optrove.report.releases import ResultChange
    from optrove.serializer.text import Json
    from optrove.trove.reader import TroveReader

Evaluate: TypeAlias = Callable[[str, Sequence[str]], Mapping[str, AttemptedCase]]
"""Returns the results of some cases, by id, with a release."""

Log: TypeAlias = Callable[[str], object]

CONFIRMATIONS: Final = 2
"""How often both ends of a change are tested again."""

COMMAND: Final = "command"
SKIP: Final = 125
"""The exit code of a command that cannot judge a release, as with ``git bisect run``."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The two releases between which the result of a case changed.

    ``untested`` are releases between them with which the case could not run. ``confirmed`` says
    whether further tests of both showed the same.
    """

    last_good: str
    first_bad: str
    change: ResultChange
    untested: tuple[str, ...] = ()
    confirmed: bool | None = None

    @property
    def case_id(self) -> str:
        """The id of the case."""
        return self.change.after.attempt.case_id


@dataclass(frozen=True, slots=True)
class Bisection:
    """The result of a bisection: ``tested`` counts the executions with each release."""

    package: str
    releases: tuple[str, ...]
    tested: tuple[tuple[str, int], ...]
    boundaries: tuple[Boundary, ...]
    unchanged: int
    not_run: tuple[AttemptedCase, ...]


@dataclass(slots=True)
class _Interval:
    """The last release with the result of the good one, and the first with another result."""

    low: int
    high: int
    untested: set[int] = field(default_factory=set)

    def weight(self, index: int) -> int:
        """Return the size of the smaller part that a release makes of the interval, or 0."""
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
    not_run: list[AttemptedCase] = []
    for case_id in ids:
        change = _change(good[case_id], bad[case_id])
        if change is not None and change.kind == "not_run":
            not_run.append(change.before if change.after.ran else change.after)
        elif change is not None:
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
        self._results: dict[int, dict[str, AttemptedCase]] = {}
        self.counts: dict[int, int] = {}

    def test(self, index: int, ids: Sequence[str]) -> Mapping[str, AttemptedCase]:
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

    def _move(self, interval: _Interval, index: int, case_id: str, result: AttemptedCase) -> None:
        change = _change(self._results[0][case_id], result)
        if change is None:
            interval.low = index
        elif change.kind == "not_run":
            interval.untested.add(index)
        else:
            interval.high = index

    def boundary(self, case_id: str, interval: _Interval) -> Boundary:
        """Return the change of a case whose interval cannot be smaller."""
        low, high = interval.low, interval.high
        change = _change(self._results[low][case_id], self._results[high][case_id])
        assert change is not None  # noqa: S101 - the ends of an interval differ; narrows the type
        between = tuple(self._releases[low + 1 : high])
        return Boundary(self._releases[low], self._releases[high], change, between)

    def confirmed(self, boundaries: Iterable[Boundary]) -> list[Boundary]:
        """Return the changes with whether further tests of both ends show the same."""
        groups: dict[tuple[str, str], list[Boundary]] = {}
        for each in boundaries:
            groups.setdefault((each.last_good, each.first_bad), []).append(each)
        found = []
        for ends, group in groups.items():
            ids = [each.case_id for each in group]
            again = [
                [self.test(self._releases.index(release), ids) for release in ends]
                for _ in range(CONFIRMATIONS)
            ]
            for each in group:
                same = all(
                    _change(each.change.before, low[each.case_id]) is None
                    and _change(each.change.after, high[each.case_id]) is None
                    for low, high in again
                )
                found.append(replace(each, confirmed=same))
        return found


def _change(before: AttemptedCase, after: AttemptedCase) -> ResultChange | None:
    """Return the change of a result, without its duration.

    Outputs are not compared where this optrove cannot describe the tensors of a release. The
    numbers of tensors are compared if both calls were the recorded one: they count the arguments.
    """
    both = (before, after)
    parts = (part for each in both for output in each.attempt.outputs for _, part in walk(output))
    compared = both
    if any(isinstance(part, Opaque) for part in parts):
        compared = _with_outputs(before, ()), _with_outputs(after, ())
    elif not all(is_as_recorded(each.attempt) for each in both):
        compared = _unnumbered(before), _unnumbered(after)
    change = change_of(*compared)
    return None if change is None else replace(change, before=before, after=after)


def _with_outputs(result: AttemptedCase, outputs: tuple[Value, ...]) -> AttemptedCase:
    return replace(result, attempt=replace(result.attempt, outputs=outputs))


def _unnumbered(result: AttemptedCase) -> AttemptedCase:
    def unnumbered(part: Value) -> Value:
        return replace(part, identity=0, storage=0) if isinstance(part, TensorSpec) else part

    outputs = (rewrite(output, unnumbered) for output in result.attempt.outputs)
    return _with_outputs(result, tuple(outputs))


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
    count: int = 1,
    log: Log = lambda _: None,
) -> Evaluate:
    """Return the function that executes cases with a release, in worker processes."""

    def evaluate(release: str, ids: Sequence[str]) -> dict[str, AttemptedCase]:
        wanted = set(ids)
        found: dict[str, AttemptedCase] = {}
        try:
            python = environments.python(release)
        except UnusableRelease as error:
            return {
                each.case_id: _result(
                    each.op, each.case_id, Outcome.NOT_RUN, str(error), target.device_kind
                )
                for target, planned in groups.items()
                for each in planned
                if each.case_id in wanted
            }
        workers = Workers(count, (str(python), "-m", "optrove.replay.worker"))
        for target, planned in groups.items():
            chosen = {each.case_id: each.job for each in planned if each.case_id in wanted}
            # What the release of the recording returned does not matter.
            jobs = [
                replace(job, device_kind=target.device_kind, outputs=None)
                for job in chosen.values()
            ]
            for attempt in run_jobs(jobs, board=target.board, workers=workers, log=log):
                op = chosen[attempt.case_id].case.op
                found[attempt.case_id] = AttemptedCase(op, attempt)
        return found

    return evaluate


def command_evaluation(
    command: str, environments: Environments, *, seconds: float | None
) -> Evaluate:
    """Return the function that runs a command with a release: it passes with exit code 0."""

    def evaluate(release: str, _: Sequence[str]) -> dict[str, AttemptedCase]:
        try:
            code, output = run_in(environments.python(release), command, seconds)
        except UnusableRelease as error:
            return {COMMAND: _result(COMMAND, COMMAND, Outcome.NOT_RUN, str(error))}
        last = (output.strip().splitlines() or [""])[-1]
        outcome = Outcome.PASSED if code == 0 else Outcome.RAISED
        cause = None if code == 0 else f"exit code {code}: {last}"
        if code is None:
            outcome, cause = Outcome.HUNG, f"no end within {seconds:g} s" if seconds else "no end"
        if code == SKIP:
            outcome = Outcome.NOT_RUN
        return {COMMAND: _result(COMMAND, COMMAND, outcome, cause)}

    return evaluate


def _result(
    op: str, case_id: str, outcome: Outcome, cause: str | None, kind: DeviceKind = DeviceKind.HOST
) -> AttemptedCase:
    return AttemptedCase(op, Attempt("", case_id, outcome, kind, detail=cause))


def check_ends(found: Bisection) -> None:
    """Raise NotFound if nothing could be compared."""
    if not found.boundaries and not found.unchanged:
        why = found.not_run[0].attempt.cause if found.not_run else "there is no case"
        first, last = found.releases[0], found.releases[-1]
        raise NotFound(f"no case ran with both {first} and {last} of {found.package}: {why}")


def bisection_document(found: Bisection) -> Iterator[Node]:
    """Yield the changes, by the pair of releases."""
    first, last = found.releases[0], found.releases[-1]
    changed = len(found.boundaries)
    parts = [f"{changed:,} changed", f"{found.unchanged:,} unchanged"]
    if found.not_run:
        parts.append(f"{len(found.not_run):,} did not run with both")
    total = plural(changed + found.unchanged + len(found.not_run), "case")
    yield Paragraph(f"{found.package} {first} to {last}: {total}, {', '.join(parts)}")
    order = {version: place for place, version in enumerate(found.releases)}
    ranked = sorted(
        found.boundaries,
        key=lambda each: (order[each.first_bad], order[each.last_good], _summary(each)),
    )
    for (good, bad), group in groupby(ranked, key=lambda each: (each.last_good, each.first_bad)):
        items = []
        for text, alike in groupby(group, key=_summary):
            cases = [each.case_id for each in alike]
            example = "" if cases == [COMMAND] else f" (such as {cases[0][:SHORT_ID]})"
            items.append(Item(len(cases), text + example))
        yield Section(f"{found.package} {good} -> {bad}", (Items(tuple(items)),))
    causes = sorted({each.attempt.cause or "" for each in found.not_run})
    for cause in causes[:3]:
        yield Paragraph(f"did not run: {cause.splitlines()[0] if cause else 'no reason recorded'}")
    tested = ", ".join(version for version, _ in found.tested)
    yield Paragraph(f"tested {len(found.tested):,} of {len(found.releases):,} releases: {tested}")


def _summary(boundary: Boundary) -> str:
    change = boundary.change
    text = f"{change.after.op} {change.kind}: {change.text}"
    if boundary.untested:
        text += f" (not testable: {', '.join(boundary.untested)})"
    return text if boundary.confirmed else f"{text}; a further test differed"


def bisection_data(found: Bisection) -> dict[str, Json]:
    """Return a bisection; ``docs/command-line.md`` describes the keys."""
    return {
        "package": found.package,
        "releases": list(found.releases),
        "tested": dict(found.tested),
        "unchanged": found.unchanged,
        "changed": [
            {
                "op": each.change.after.op,
                "case_id": each.case_id,
                "last_good": each.last_good,
                "first_bad": each.first_bad,
                "untested": list(each.untested),
                "before": _result_data(each.change.before),
                "after": _result_data(each.change.after),
                "change": each.change.text,
                "kind": each.change.kind,
                "worse": each.change.worse,
                "confirmed": each.confirmed,
            }
            for each in found.boundaries
        ],
        "not_run": [
            {"op": each.op, "case_id": each.attempt.case_id, "cause": each.attempt.cause}
            for each in found.not_run
        ],
    }


def _result_data(one: AttemptedCase) -> Json:
    return {"outcome": one.attempt.outcome.value, "cause": one.attempt.cause}

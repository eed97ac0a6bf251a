"""Find the smallest change of a failing case that still fails in the same way.

Reductions are tried in rounds. Those of a round are executed together, each in isolation; then as
many of the successful ones as still fail together are applied, and the next round begins.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from optrove.codec.identity import placement_hash
from optrove.errors import NotReplayable
from optrove.model.records import Attempt, Outcome
from optrove.plan.reducing import reductions
from optrove.report.attempted import said
from optrove.report.causes import without_numbers
from optrove.run.runner import run_jobs

if TYPE_CHECKING:
    from optrove.flows.grounds import Where
    from optrove.flows.planning import Planned
    from optrove.model.case import Case
    from optrove.plan.reducing import Reduction
    from optrove.run.runner import Workers

_ROW: Final = re.compile(r"N(?:(?:,\s*|x)N)+")

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a case fails; two that are equal fail in the same way, whatever the numbers."""

    outcome: Outcome
    text: str


def failure_of(attempt: Attempt) -> Failure:
    """Return how an execution failed, without the numbers and shapes in it."""
    cause = said(attempt).cause or ""
    return Failure(attempt.outcome, _ROW.sub("N", without_numbers(cause)))


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be tried: executions in all, and seconds in all."""

    trials: int = 200
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What a failing case was shrunk to: ``steps`` are the reductions that were left standing.

    ``finished`` says that nothing simpler fails in the same way; else a limit was reached.
    """

    original: Case
    case: Case
    attempt: Attempt
    steps: tuple[str, ...]
    trials: int
    finished: bool


def shrink(
    planned: Planned,
    where: Where,
    limits: Limits,
    tell: Tell = lambda _: None,
    workers: int | Workers = 1,
) -> Shrunk:
    """Return the simplest case that fails like a given one.

    NotReplayable when it does not fail, or not by the operation's own doing.
    """
    search = _Search(planned, where, limits, workers, tell)
    first = search.execute([planned.job.case])[planned.job.case]
    _check(planned, first, where)
    return search.run(first)


def _check(planned: Planned, attempt: Attempt, where: Where) -> None:
    """Raise NotReplayable for a case that there is no failure of to shrink."""
    name = f"case {planned.case_id[:12]} of {planned.op}"
    cause = said(attempt).cause or "no reason is told"
    if attempt.outcome is Outcome.PASSED:
        raise NotReplayable(
            f"{name} passes on {where}: there is no failure to shrink; name the board or the kind "
            f"of device on which it fails, with --board and --device"
        )
    if attempt.outcome is Outcome.NOT_RUN:
        raise NotReplayable(f"{name} could not be run on {where}: {cause}")
    if attempt.outcome is Outcome.WRONG_SPEC:
        raise NotReplayable(
            f"{name} gives another output than recorded on {where}: {cause}; what a smaller call "
            f"would have given was not recorded, so that there is nothing to shrink it by"
        )


@dataclass(slots=True)
class _Search:
    """One search; it counts what was tried."""

    planned: Planned
    where: Where
    limits: Limits
    workers: int | Workers
    tell: Tell
    trials: int = 0
    known: dict[Case, Attempt] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def run(self, first: Attempt) -> Shrunk:
        """Reduce the case until nothing simpler fails in the same way."""
        wanted = failure_of(first)
        original = case = self.planned.job.case
        attempt = first
        steps: list[str] = []
        finished = False
        while not self._is_over():
            good = self._successful(case, wanted)
            if not good:
                finished = not self._is_over()
                break
            applied, case, attempt = self._together(case, good, wanted)
            steps += [each.words for each in applied]
            self.tell(f"{self.trials:,} tried, {len(steps):,} steps: {steps[-1]}")
        return Shrunk(original, case, attempt, tuple(steps), self.trials, finished)

    def _successful(self, case: Case, wanted: Failure) -> list[tuple[Reduction, Attempt]]:
        """Return the reductions of a case that leave it failing in the same way."""
        offered = {each.apply(case): each for each in reductions(case)}
        attempts = self.execute(list(offered))
        return [
            (each, attempts[simpler])
            for simpler, each in offered.items()
            if simpler in attempts and failure_of(attempts[simpler]) == wanted
        ]

    def _together(
        self, case: Case, good: Sequence[tuple[Reduction, Attempt]], wanted: Failure
    ) -> tuple[list[Reduction], Case, Attempt]:
        """Apply as many reductions as still fail together: all, three quarters, ..., or one."""
        chains: dict[Case, list[Reduction]] = {}
        for share in (4, 3, 2, 1):
            count = max(1, len(good) * share // 4)
            simpler, applied = _applied(case, [each for each, _ in good[:count]])
            chains.setdefault(simpler, applied)
        alone, known = good[0]
        attempts = self.execute([each for each in chains if each != alone.apply(case)])
        for simpler, applied in chains.items():
            attempt = attempts.get(simpler)
            if attempt is not None and failure_of(attempt) == wanted:
                return applied, simpler, attempt
        return [alone], alone.apply(case), known

    def execute(self, cases: Sequence[Case]) -> dict[Case, Attempt]:
        """Execute cases, each once in a search, as far as the limits allow."""
        room = max(0, self.limits.trials - self.trials)
        found = {case: self.known[case] for case in cases if case in self.known}
        new = [case for case in cases if case not in found]
        by_id = {placement_hash(case): case for case in new[:room]}
        # What a smaller call would give was not recorded.
        pattern = replace(self.planned.job, device_kind=self.where.device_kind, outputs=None)
        own = self.planned.job.case
        jobs = [
            replace(pattern, case=case, outputs=self.planned.job.outputs if case == own else None)
            for case in by_id.values()
        ]
        if not jobs:
            return found
        attempts = run_jobs(jobs, board=self.where.board, workers=self.workers)
        for attempt in attempts:
            self.trials += 1
            found[by_id[attempt.case_id]] = self.known[by_id[attempt.case_id]] = attempt
            if self._is_late():
                break
        close = getattr(attempts, "close", None)
        if close is not None:
            close()
        return found

    def _is_over(self) -> bool:
        return self.trials >= self.limits.trials or self._is_late()

    def _is_late(self) -> bool:
        seconds = self.limits.seconds
        return seconds is not None and time.monotonic() - self.began > seconds


def _applied(case: Case, several: Sequence[Reduction]) -> tuple[Case, list[Reduction]]:
    """Return a case after several reductions, and those that did something."""
    applied = []
    for each in several:
        simpler = each.apply(case)
        if simpler != case:
            applied.append(each)
            case = simpler
    return case, applied

"""Execute a sweep: keep its plan, then every result as it comes, and continue after any end."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from optrove.flows.grounds import Where
from optrove.flows.keeping import AttemptWriter
from optrove.flows.outcomes import results_of
from optrove.flows.planning import on_device
from optrove.flows.replaying import run_on, usual_workers
from optrove.flows.runs import now
from optrove.flows.sweep_plans import HERE, LOCAL, RAY, filters_of, sweep_of
from optrove.model.opnames import ANY
from optrove.model.records import RunKind
from optrove.plan.schedule import portions
from optrove.report.results import summed
from optrove.run.judge import MEASURES
from optrove.run.runner import Workers, run_jobs
from optrove.store.trove import open_trove

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from optrove.flows.sweep_plans import Means, Placed, SweepPlan, Wanted
    from optrove.model.records import Attempt, Job, Run, Sweep
    from optrove.report.results import RunResults
    from optrove.store.place import Place

    Engine = Callable[..., Generator[Attempt, None, None]]

_NS: Final = 1e9


class RunJobs(Protocol):
    """What an engine does."""

    def __call__(
        self,
        jobs: Iterable[Job],
        *,
        board: str | None,
        workers: int | Workers,
        tell: Callable[[str], object],
        run_id: str | None,
    ) -> Iterator[Attempt]:
        """Yield an Attempt for each Job."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A sweep whose plan is in a trove, and what is left of it; ``done`` were executed before."""

    run: Run
    sweep: Sweep
    left: tuple[Placed, ...]
    done: int = 0


def begin(place: Place, wanted: Wanted, means: Means, plan: SweepPlan) -> Begun:
    """Put the plan of a sweep into the trove, which is made if need be; nothing is executed yet."""
    whole = ANY if wanted.file is None else wanted.file.name
    given = filters_of(wanted)
    filters = [name if value == str(True) else f"{name}={value}" for name, value in given]
    source = " ".join(("sweep", *(wanted.targets or (whole,)), *filters))
    run = run_on(_common(plan.cases), source, RunKind.SWEEP)
    sweep = sweep_of(wanted, means, plan)
    cases = {each.planned.case_id: each.planned.job.case for each in plan.cases}
    with open_trove(place, create=True) as trove:
        trove.add_sweep(run, sweep, plan.rows, cases)
    return Begun(run, sweep, plan.cases)


def swept(
    begun: Begun,
    place: Place,
    execute: RunJobs,
    *,
    jobs: int | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Generator[tuple[Placed, Attempt], None, None]:
    """Execute what is left of a sweep on an engine, and yield each case as soon as it is done.

    All that was yielded is in the trove when the iterator ends or is closed; of what is killed,
    all but the last second. The sweep's budget begins now; when it is over, nothing new begins.
    """
    budget = begun.sweep.budget_ns
    until = None if budget is None else time.monotonic() + budget / _NS
    by_id = {each.planned.case_id: each for each in begun.left}
    with open_trove(place, create=False) as trove:
        writer = AttemptWriter(trove, begun.run)
        # Every engine's iterator can be closed, which ends its workers.
        told = cast("Engine", partial(execute, tell=tell, run_id=begun.run.id))
        work = _Work(begun, told, jobs, until)
        try:
            for attempt in work.attempts():
                placed = by_id[attempt.case_id]
                noted = replace(attempt, notes=(*attempt.notes, *placed.planned.notes))
                writer.take(noted)
                yield placed, noted
        finally:
            writer.write()


def finished(place: Place, run: Run) -> RunResults:
    """Return what came of a sweep; if nothing is left of it, it counts as finished from now on."""
    with open_trove(place, create=False) as trove:
        with trove.reader() as reader:
            found = results_of(reader, run)
        if found.waiting or found.run.finished_at is not None:
            return found
        code = int(not summed(found).all_well)
        ended = replace(run, finished_at=now(), exit_code=code)
        trove.add_attempts(ended, ())
    return replace(found, run=ended)


@dataclass(frozen=True, slots=True)
class _Work:
    """What an engine is given, portion by portion."""

    begun: Begun
    execute: Engine
    jobs: int | None
    until: float | None

    def attempts(self) -> Iterator[Attempt]:
        left = self.begun.left
        # With a budget, what matters most is done before anything else is begun.
        for part in [left] if self.until is None else portions(left):
            for where, cases in _by_place(part).items():
                if self._is_over():
                    return
                yield from self._on(where, cases)

    def _on(self, where: Where, cases: Sequence[Placed]) -> Iterator[Attempt]:
        jobs = [self._job(each) for each in cases]
        is_local = self.begun.sweep.engine == LOCAL
        usual = usual_workers(len(jobs)) if is_local else len(jobs)
        workers = Workers(self.jobs or usual, until=self.until)
        with closing(self.execute(jobs, board=where.board, workers=workers)) as attempts:
            for attempt in attempts:
                yield attempt
                # Workers of this machine end in order what they have begun.
                if not is_local and self._is_over():
                    return

    def _job(self, placed: Placed) -> Job:
        job = on_device(placed.planned, placed.where.device_kind).job
        measured = self.begun.sweep.measured
        return replace(job, metrics=(*MEASURES, *measured)) if measured else job

    def _is_over(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until


@contextmanager
def engine_named(name: str) -> Iterator[RunJobs]:
    """Give what executes Jobs; FrameworkMissing or UnusableCluster where that cannot be had."""
    if name == RAY:
        from optrove.run.ray_engine import ray_engine

        with ray_engine() as engine:
            yield engine.run_jobs
    elif name == HERE:
        from optrove.run.here import run_here

        yield run_here
    else:
        yield run_jobs


def _by_place(cases: Iterable[Placed]) -> dict[Where, list[Placed]]:
    groups: dict[Where, list[Placed]] = {}
    for each in cases:
        groups.setdefault(replace(each.where, why=None), []).append(each)
    return groups


def _common(cases: Sequence[Placed]) -> Where:
    """Return on what most cases run, without a board where there are several."""
    groups = _by_place(cases)
    most = max(groups, key=lambda where: len(groups[where]))
    boards = {where.board for where in groups if where.board is not None}
    return most if len(boards) < 2 else Where(most.device_kind)  # noqa: PLR2004 - one board, or several

"""Run a sweep, resume an interrupted one, and write its result files."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from optrove.errors import BadTarget, UnusableResults
from optrove.model.ops import ANY, VECTORS
from optrove.model.records import DeviceKind, Job, RunKind, Sweep, now
from optrove.replay.device_choice import Where
from optrove.replay.judge import MEASURES
from optrove.replay.planning import How, Planned, on_device, planned_by_id, timeout_ns
from optrove.replay.replay import AttemptWriter, run_on, usual_workers
from optrove.replay.runner import Workers, run_jobs
from optrove.report.outcomes import results_of
from optrove.report.results import summed
from optrove.report.results_files import exported
from optrove.serializer.described import case_of
from optrove.sweep.grouping import file_stem, portions
from optrove.sweep.planning import (
    FILE,
    HERE,
    LOCAL,
    RAY,
    VECTOR_ID,
    Means,
    Placed,
    SweepPlan,
    Wanted,
    filters_of,
    plan_sweep,
    sweep_of,
)
from optrove.sweep.vector_files import EXPORT
from optrove.sweep.vectors import file_digest
from optrove.trove.trove import open_trove

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from optrove.model.records import Attempt, Run
    from optrove.model.trove import PlannedCase, RunRow
    from optrove.report.results import RunResults
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader

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
        from optrove.replay.ray_engine import ray_engine

        with ray_engine() as engine:
            yield engine.run_jobs
    elif name == HERE:
        from optrove.replay.worker import run_here

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


_NOTHING: Final = SweepPlan(())


def resumed(reader: TroveReader, wanted: Wanted, means: Means) -> Begun | None:
    """Return the newest sweep that was asked for in the same words, the unfinished ones first.

    Where nothing is said at all, it is the newest that is unfinished, whatever its words. The
    budget, the engine and the workers are those of now. None if there is no such sweep.
    """
    asked = _said(sweep_of(wanted, means, _NOTHING))
    every = [
        (row, sweep)
        for row in reader.runs()
        if row.run.kind is RunKind.SWEEP and (sweep := reader.sweep(row.run.id)) is not None
    ]
    same = [each for each in every if _said(each[1]) == asked]
    unfinished = [each for each in every if not each[0].complete and not _is_single(each[1])]
    bare = asked == _said(Sweep())
    found = [
        *(each for each in same if not each[0].complete),
        *(unfinished if bare else ()),
        *same,
    ]
    for row, sweep in found:
        return _begun(reader, row, sweep, means)
    return None


def _begun(reader: TroveReader, row: RunRow, sweep: Sweep, means: Means) -> Begun:
    again = replace(sweep, engine=means.engine, budget_ns=timeout_ns(How(timeout=means.budget)))
    done = reader.attempted(row.run.id)
    left = [each for each in reader.planned(row.run.id) if each.case_id not in done]
    return Begun(row.run, again, tuple(_placed(reader, row.run, sweep, left)), len(done))


def _said(sweep: Sweep) -> Sweep:
    """Return the words of a sweep, without what may change and what has come of them."""
    return replace(sweep, modules=(), engine="local", budget_ns=None, left_out=())


def _is_single(sweep: Sweep) -> bool:
    return any(name == VECTOR_ID for name, _ in sweep.filters)


def _placed(
    reader: TroveReader, run: Run, sweep: Sweep, left: Sequence[PlannedCase]
) -> Iterator[Placed]:
    """Yield what is left with the Jobs that it had; BadTarget if these cannot be had any more."""
    if sweep.source in (EXPORT, FILE):
        jobs = _from_files(sweep)
    else:
        recorded = [each.case_id for each in left if each.suite is None]
        vectors = [each for each in left if each.suite is not None]
        how = How(sweep.seed, None if sweep.timeout_ns is None else sweep.timeout_ns / _NS)
        jobs = {each.case_id: each for each in planned_by_id(reader, recorded, how)}
        jobs |= {each.case_id: each for each in _vectors(reader, sweep, vectors)}
    gone = [each for each in left if each.case_id not in jobs]
    if gone:
        raise BadTarget(
            f"{len(gone):,} cases of run {run.id[:12]} are not where they came from any more; "
            f"begin a new sweep: leave out --resume"
        )
    for each in left:
        yield Placed(Where(each.device_kind, each.board), jobs[each.case_id])


def _from_files(sweep: Sweep) -> dict[str, Planned]:
    wanted = Wanted(
        targets=sweep.targets,
        suite=sweep.suite,
        source=sweep.source,
        file=None if sweep.file is None else Path(sweep.file),
    )
    seconds = None if sweep.timeout_ns is None else sweep.timeout_ns / _NS
    device = None if sweep.device_kind is None else sweep.device_kind.value
    means = Means(device, sweep.board, sweep.engine, How(sweep.seed, seconds))
    plan = plan_sweep(wanted, means, _no_trove, None)
    return {each.planned.case_id: each.planned for each in plan.cases}


def _no_trove() -> TroveReader:
    raise BadTarget("vectors of files do not come from a trove")


def _vectors(reader: TroveReader, sweep: Sweep, left: Iterable[PlannedCase]) -> Iterator[Planned]:
    """Yield the vectors of modules that are left; BadTarget if a module is another by now."""
    suites = {each.case_id: each.suite for each in left}
    checked: set[str] = set()
    for row in reader.cases_by_id(suites):
        name = row.op.removeprefix(VECTORS)
        module = next((each for each in sweep.modules if name.startswith(f"{each.name}.")), None)
        if module is None:
            continue
        if module.path not in checked:
            checked.add(module.path)
            file = Path(module.path)
            if not file.is_file() or file_digest(file) != module.digest:
                raise BadTarget(
                    f"module {module.path} has changed since the sweep began, or is gone; "
                    f"begin a new sweep: leave out --resume"
                )
        job = Job(
            case=case_of(row.content),
            device_kind=DeviceKind.HOST,
            seed=sweep.seed,
            timeout_ns=module.timeout_ns,
            module=module.path,
        )
        yield Planned(job, row.case_id, suite=suites[row.case_id])


_ID_SHOWN: Final = 12


def export_results(found: RunResults, destination: Path) -> tuple[Path, ...]:
    """Write results to a file of JSON, or to a directory: a file for each module or op.

    What does not end in .json is a directory. UnusableResults when it cannot be written.
    """
    rows: list[Any] = exported(found)
    if destination.suffix == ".json":
        _write(destination, rows)
        return (destination,)
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row["sweep_name"], []).append(row)
    files = []
    for name, some in by_name.items():
        files.append(destination / f"{file_stem(name)}_{found.run.id[:_ID_SHOWN]}.json")
        _write(files[-1], some)
    return tuple(files)


def _write(path: Path, rows: list[Any]) -> None:
    """Write a file; it gets its name only when all of it is written."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(json.dumps(rows, indent=2), encoding="ascii")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UnusableResults(f"{path} cannot be written: {error}; choose another place") from error

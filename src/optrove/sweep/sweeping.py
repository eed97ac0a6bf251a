"""Run a sweep, resume an interrupted one, and write its result files."""

from __future__ import annotations

import json
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from optrove.errors import BadTarget
from optrove.model.ops import ANY, VECTORS
from optrove.model.records import OUT_OF_BUDGET, DeviceKind, Job, RunKind, Sweep, now
from optrove.model.trove import PlannedCase
from optrove.replay.capsules import with_values
from optrove.replay.device_choice import TargetDevice
from optrove.replay.judge import MEASURES
from optrove.replay.planning import PlannedJob, planned_by_id
from optrove.replay.replay import AttemptWriter, default_workers, exit_code, new_replay_run
from optrove.replay.runner import Workers, run_jobs
from optrove.report.results import results_of
from optrove.report.results_files import exported
from optrove.report.wording import SHORT_ID
from optrove.serializer.described import case_of
from optrove.sweep.planning import FILE, IN_PROCESS, LOCAL, RAY, VECTOR_ID, plan_sweep
from optrove.sweep.vector_files import EXPORT, write_file
from optrove.sweep.vectors import SweepPlan, file_digest, file_stem, planned_vector
from optrove.trove.query import CaseFilters
from optrove.trove.trove import open_trove

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Attempt, AttemptedCase, Run
    from optrove.model.trove import RunRow
    from optrove.report.results import RunResults
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader

    Engine: TypeAlias = Callable[..., Iterator[Attempt]]

_NS: Final = 1e9
_FIRST_PORTION: Final = 100
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A sweep whose plan is in a trove: what is left of the plan, and how many cases are done."""

    run: Run
    sweep: Sweep
    left: SweepPlan
    done: int = 0


def begin(place: Place, sweep: Sweep, plan: SweepPlan) -> SweepRun:
    """Store the plan of a sweep in the trove, which is created if needed; execute nothing yet."""
    whole = ANY if sweep.file is None else Path(sweep.file).name
    filters = [name if value == str(True) else f"{name}={value}" for name, value in sweep.filters]
    source = " ".join(("sweep", *(sweep.targets or (whole,)), *filters))
    run = new_replay_run(_common_device(plan), source, RunKind.SWEEP)
    sweep = replace(sweep, modules=plan.modules, left_out=plan.left_out)
    rows = []
    for each in plan.vectors:
        where = plan.where[each.case_id]
        rows.append(PlannedCase(each.case_id, where.device_kind, where.board, each.suite))
    with open_trove(place, create=True) as trove:
        cases = {each.case_id: each.job.case for each in plan.vectors}
        trove.add_sweep(run, sweep, rows, cases)
    return SweepRun(run, sweep, plan)


def _common_device(plan: SweepPlan) -> TargetDevice:
    """Return the device of most cases, without a board if there are several boards."""
    groups = _by_device(plan.vectors, plan.where)
    most = max(groups, key=lambda where: len(groups[where]))
    boards = {where.board for where in groups if where.board is not None}
    return most if len(boards) <= 1 else TargetDevice(most.device_kind)


def _by_device(
    cases: Iterable[PlannedJob], places: Mapping[str, TargetDevice]
) -> dict[TargetDevice, list[PlannedJob]]:
    groups: dict[TargetDevice, list[PlannedJob]] = {}
    for each in cases:
        groups.setdefault(replace(places[each.case_id], reason=None), []).append(each)
    return groups


def swept(
    begun: SweepRun,
    place: Place,
    execute: Engine,
    *,
    jobs: int | None = None,
    log: Callable[[str], object] = lambda _: None,
) -> Generator[AttemptedCase, None, None]:
    """Execute what is left of a sweep on an engine, and yield each case as soon as it is done.

    Everything yielded is in the trove when the iterator ends or is closed; if the process is
    killed, all but the last second. The sweep's budget begins now; when it is used up, no new case
    begins, and one that goes on is interrupted.
    """
    with (
        with_values(place, begun.left.vectors, begun.sweep.values) as cases,
        open_trove(place, create=False) as trove,
    ):
        begun = replace(begun, left=replace(begun.left, vectors=cases))
        by_id = {each.case_id: each for each in cases}
        writer = AttemptWriter(trove, begun.run)
        engine = partial(execute, log=log, run_id=begun.run.id)
        try:
            for attempt in _attempts(begun, engine, jobs):
                attempted = by_id[attempt.case_id].attempted(attempt)
                writer.add(attempted)
                yield attempted
        finally:
            writer.flush()


def _attempts(begun: SweepRun, execute: Engine, jobs: int | None) -> Iterator[Attempt]:
    """Yield the Attempts of what is left, portion by portion and device by device."""
    sweep, plan = begun.sweep, begun.left
    until = None if sweep.budget_ns is None else time.monotonic() + sweep.budget_ns / _NS
    is_local = sweep.engine == LOCAL
    # With a budget, the most important cases are done before any other begins.
    for portion in [plan.vectors] if until is None else portions(plan.vectors):
        for where, cases in _by_device(portion, plan.where).items():
            if _is_over(until):
                return
            count = jobs or (default_workers(len(cases)) if is_local else len(cases))
            attempts = execute(
                [_job(each, where, sweep) for each in cases],
                board=where.board,
                workers=Workers(count, until=until),
            )
            # Every engine's iterator can be closed, which ends its workers.
            with closing(cast("Generator[Attempt, None, None]", attempts)):
                for attempt in attempts:
                    yield attempt
                    # Other engines stop by themselves.
                    if sweep.engine == IN_PROCESS and _is_over(until):
                        return


def _is_over(until: float | None) -> bool:
    return until is not None and time.monotonic() >= until


def _job(planned: PlannedJob, where: TargetDevice, sweep: Sweep) -> Job:
    job = replace(planned.job, device_kind=where.device_kind)
    return replace(job, metrics=(*MEASURES, *sweep.measured)) if sweep.measured else job


def portions(
    cases: Sequence[PlannedJob], first: int = _FIRST_PORTION
) -> Iterator[Sequence[PlannedJob]]:
    """Yield the cases in portions that grow; each is done before the next begins.

    Within a portion cases run in any order, so that those that share a device are together:
    opening devices and starting processes costs more than most cases.
    """
    start, size = 0, first
    while start < len(cases):
        yield cases[start : start + size]
        start, size = start + size, size * _GROWTH


@contextmanager
def engine_named(name: str) -> Iterator[Engine]:
    """Yield the function that executes Jobs; FrameworkMissing or UnusableCluster without one."""
    if name == RAY:
        from optrove.replay.ray_engine import ray_engine

        with ray_engine() as engine:
            yield engine.run_jobs
    elif name == IN_PROCESS:
        from optrove.replay.worker import run_in_process

        yield run_in_process
    else:
        yield run_jobs


def finished(place: Place, run: Run) -> RunResults:
    """Return the results of a sweep; mark it finished if nothing is left of it."""
    with open_trove(place, create=False) as trove:
        with trove.reader() as reader:
            found = results_of(reader, run)
        interrupted = any(
            (each.attempt.detail or "").startswith(OUT_OF_BUDGET) for each in found.results
        )
        if found.waiting or interrupted or found.run.finished_at is not None:
            return found
        ended = replace(run, finished_at=now(), exit_code=sweep_exit_code(found))
        trove.add_attempts(ended, ())
    return replace(found, run=ended)


def sweep_exit_code(found: RunResults) -> int:
    """Return the exit code of a sweep: cases that are skipped by intention do not matter."""
    return exit_code(
        ran=any(each.ran for each in found.results),
        well=all(each.passed or each.skipped for each in found.results),
    )


def resumed(reader: TroveReader, sweep: Sweep) -> SweepRun | None:
    """Return the newest sweep with the same options, an unfinished one first; None without one.

    Without any options it is the newest unfinished sweep, whatever its options. Budget and engine
    are those of ``sweep``.
    """
    asked = _options(sweep)
    every = [
        (row, stored)
        for row in reader.runs()
        if row.run.kind is RunKind.SWEEP and (stored := reader.sweep(row.run.id)) is not None
    ]
    same = [each for each in every if _options(each[1]) == asked]
    unfinished = [each for each in same if _is_unfinished(each[0])]
    if asked == Sweep():
        unfinished += [
            (row, stored)
            for row, stored in every
            if _is_unfinished(row) and VECTOR_ID not in dict(stored.filters)
        ]
    for row, stored in (*unfinished, *same):
        return _resumed(reader, row, stored, sweep)
    return None


def _is_unfinished(row: RunRow) -> bool:
    return not row.complete or row.run.finished_at is None


def _options(sweep: Sweep) -> Sweep:
    """Return the options of a sweep that identify it."""
    return replace(sweep, modules=(), engine=LOCAL, budget_ns=None, left_out=())


def _resumed(reader: TroveReader, row: RunRow, stored: Sweep, sweep: Sweep) -> SweepRun:
    """Return the rest of a sweep with its Jobs; BadTarget if these cannot be made any more."""
    done = reader.attempted(row.run.id)
    left = [each for each in reader.planned(row.run.id) if each.case_id not in done]
    if stored.source in (EXPORT, FILE):
        plan = plan_sweep(replace(stored, filters=()), CaseFilters(), _no_trove)
        jobs = {each.case_id: each for each in plan.vectors}
    else:
        recorded = [each.case_id for each in left if each.suite is None]
        found = planned_by_id(reader, recorded, seed=stored.seed, timeout_ns=stored.timeout_ns)
        jobs = {each.case_id: each for each in found}
        jobs |= {each.case_id: each for each in _module_vectors(reader, stored, left)}
    gone = sum(each.case_id not in jobs for each in left)
    if gone:
        raise BadTarget(
            f"{gone:,} cases of run {row.run.id[:SHORT_ID]} are no longer in their trove or file; "
            f"begin a new sweep: leave out --resume"
        )
    plan = SweepPlan(
        tuple(jobs[each.case_id] for each in left),
        where={each.case_id: TargetDevice(each.device_kind, each.board) for each in left},
    )
    sweep = replace(stored, engine=sweep.engine, budget_ns=sweep.budget_ns)
    return SweepRun(row.run, sweep, plan, len(done))


def _no_trove() -> TroveReader:
    raise BadTarget("vectors of files do not come from a trove")


def _module_vectors(
    reader: TroveReader, sweep: Sweep, left: Iterable[PlannedCase]
) -> Iterator[PlannedJob]:
    """Yield the vectors of modules that are left; BadTarget if a module has changed."""
    suites = {each.case_id: each.suite for each in left if each.suite is not None}
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
        yield planned_vector(row.case_id, suites[row.case_id], job)


def export_results(found: RunResults, destination: Path) -> tuple[Path, ...]:
    """Write results to a JSON file, or to a directory: a file for each module or op.

    A destination that does not end in .json is a directory. UnusableResults if it cannot be
    written.
    """
    rows: list[Any] = exported(found)
    files: dict[Path, list[Any]] = {destination: rows}
    if destination.suffix != ".json":
        files = {}
        for row in rows:
            name = f"{file_stem(row['sweep_name'])}_{found.run.id[:SHORT_ID]}.json"
            files.setdefault(destination / name, []).append(row)
    for file, some in files.items():
        write_file(file, json.dumps(some, indent=2))
    return tuple(files)

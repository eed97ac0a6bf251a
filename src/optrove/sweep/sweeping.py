"""Execute Runs of cases whose plan is in a trove, and resume those that ended early."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from optrove.errors import BadTarget
from optrove.model.exit_codes import FAIL_ON
from optrove.model.ops import ANY, VECTORS
from optrove.model.records import DeviceKind, Job, RunKind, Sweep, now
from optrove.model.trove import PlannedCase, RunState
from optrove.replay.capsules import SEED, check_values, with_values
from optrove.replay.device_choice import TargetDevice
from optrove.replay.judge import MEASURES
from optrove.replay.planning import PlannedJob, planned_by_id
from optrove.replay.replay import attempt_writer, default_workers, new_replay_run
from optrove.replay.runner import Workers, run_jobs
from optrove.report.results import results_of
from optrove.report.results_files import exported
from optrove.report.wording import SHORT_ID
from optrove.serializer.described import case_of
from optrove.sweep.planning import FILE, IN_PROCESS, LOCAL, RAY, VECTOR_ID, plan_sweep
from optrove.sweep.vector_files import EXPORT, write_file
from optrove.sweep.vectors import SweepPlan, file_digest, file_stem, planned_vector
from optrove.trove.query import CaseFilters
from optrove.trove.sessions import new_session, running_elsewhere
from optrove.trove.trove import open_trove

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from optrove.model.exit_codes import Reason
    from optrove.model.records import Attempt, AttemptedCase, Run
    from optrove.model.trove import RunRow, Session
    from optrove.report.results import RunResults
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader

    Engine: TypeAlias = Callable[..., Iterator[Attempt]]

_NS: Final = 1e9
_FIRST_PORTION: Final = 100
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A Run whose plan is in a trove: what is left of the plan, and how many cases are done."""

    run: Run
    sweep: Sweep
    left: SweepPlan
    done: int = 0
    session: Session = field(default_factory=new_session)


def sweep_source(sweep: Sweep) -> str:
    """Return the words that name a sweep: its targets and filters."""
    whole = ANY if sweep.file is None else Path(sweep.file).name
    filters = [name if value == str(True) else f"{name}={value}" for name, value in sweep.filters]
    return " ".join(("sweep", *(sweep.targets or (whole,)), *filters))


def begin(
    place: Place, sweep: Sweep, plan: SweepPlan, source: str, kind: RunKind = RunKind.SWEEP
) -> SweepRun:
    """Store a Run and its plan in the trove, which is created if needed; execute nothing yet.

    ``source`` names the Run.
    """
    run = new_replay_run(_common_device(plan), source, kind)
    sweep = replace(sweep, modules=plan.modules, left_out=plan.left_out)
    rows = []
    for each in plan.vectors:
        where = plan.where[each.case_id]
        rows.append(PlannedCase(each.case_id, where.device_kind, where.board, each.suite))
    if sweep.values != SEED:
        # Before there is a Run.
        check_values(place, plan.vectors)
    with open_trove(place, create=True) as trove:
        cases = {each.case_id: each.job.case for each in plan.vectors}
        begun = SweepRun(run, sweep, plan)
        trove.add_sweep(run, sweep, rows, cases, begun.session)
    return begun


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


def unstored(
    groups: Mapping[TargetDevice, Sequence[PlannedJob]], source: str, sweep: Sweep
) -> list[SweepRun]:
    """Return a Run for each device whose cases are executed without a trove."""
    return [
        SweepRun(
            new_replay_run(target, source),
            sweep,
            SweepPlan(tuple(cases), where={each.case_id: target for each in cases}),
        )
        for target, cases in groups.items()
    ]


def swept(
    begun: SweepRun,
    place: Place | None,
    execute: Engine,
    *,
    jobs: int | None = None,
    log: Callable[[str], object] = lambda _: None,
) -> Generator[AttemptedCase, None, None]:
    """Execute what is left of a Run on an engine, and yield each case as soon as it is done.

    Everything yielded is in the trove when the iterator ends or is closed, and how it ended; if the
    process is killed, all but the last second. The budget begins now; when it is used up, no new
    case begins, and one that goes on is interrupted. With None as ``place`` nothing is stored.
    """
    engine = partial(execute, log=log, run_id=begun.run.id)
    with ExitStack() as stack:
        cases = begun.left.vectors
        store: Callable[[Attempt], None] = _forget
        if place is not None:
            cases = stack.enter_context(with_values(place, cases, begun.sweep.values))
            trove = stack.enter_context(open_trove(place, create=False))
            store = stack.enter_context(attempt_writer(trove, begun.run, begun.session, len(cases)))
        begun = replace(begun, left=replace(begun.left, vectors=cases))
        by_id = {each.case_id: each for each in cases}
        for attempt in _attempts(begun, engine, jobs):
            attempted = by_id[attempt.case_id].attempted(attempt)
            store(attempted.attempt)
            yield attempted


def _forget(_: Attempt) -> None:
    """Take the place of a function that stores an Attempt."""


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
    job = replace(planned.job, device_kind=where.device_kind, inputs=sweep.inputs)
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


def finished(place: Place, run: Run, fail_on: frozenset[Reason] = FAIL_ON) -> RunResults:
    """Return the results of a Run; mark it finished if nothing is left of it.

    The exit code that is stored with it is that of a command with these Reasons.
    """
    with open_trove(place, create=False) as trove:
        with trove.reader() as reader:
            found = results_of(reader, run)
        if not found.progress.complete or found.run.finished_at is not None:
            return found
        ended = replace(run, finished_at=now(), exit_code=found.exit(fail_on).code)
        trove.add_attempts(ended, ())
    return replace(found, run=ended)


def resumed(reader: TroveReader, sweep: Sweep, kind: str = "sweep") -> SweepRun | None:
    """Return the newest Run with the same options, an unfinished one first; None without one.

    Without any options it is the newest unfinished Run of its kind, whatever its options. Budget
    and engine are those of ``sweep``. BadTarget while another process executes the Run.
    """
    asked = _options(sweep)
    every = [
        (row, stored)
        for row in reader.runs(chosen={"kind": kind})
        if (stored := reader.sweep(row.run.id)) is not None
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


def resumed_text(begun: SweepRun) -> str:
    """Return what is resumed, in words."""
    left = len(begun.left.vectors)
    name = f"run {begun.run.id[:SHORT_ID]} ({begun.run.source})"
    return f"resuming {name}: {left:,} of {left + begun.done:,} cases are left"


def _is_unfinished(row: RunRow) -> bool:
    return not row.complete


def _options(sweep: Sweep) -> Sweep:
    """Return the options of a sweep that identify it."""
    return replace(sweep, modules=(), engine=LOCAL, budget_ns=None, left_out=())


def _resumed(reader: TroveReader, row: RunRow, stored: Sweep, sweep: Sweep) -> SweepRun:
    """Return the rest of a Run with its Jobs; BadTarget if these cannot be made any more."""
    if row.progress.state is RunState.RUNNING:
        raise running_elsewhere(row.run)
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
            name = file_stem(f"{row['sweep_name']}_{found.run.id[:SHORT_ID]}") + ".json"
            files.setdefault(destination / name, []).append(row)
    for file, some in files.items():
        write_file(file, json.dumps(some, indent=2))
    return tuple(files)

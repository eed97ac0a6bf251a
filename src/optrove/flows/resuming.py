"""Find the sweep that was interrupted, and what is left of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.codec.described import case_of
from optrove.errors import BadTarget
from optrove.flows.grounds import Where
from optrove.flows.planning import How, Planned, planned_by_id, timeout_ns
from optrove.flows.sweep_plans import (
    FILE,
    VECTOR_ID,
    Means,
    Placed,
    SweepPlan,
    Wanted,
    plan_sweep,
    sweep_of,
)
from optrove.flows.sweeping import Begun
from optrove.flows.vector_files import EXPORT
from optrove.flows.vectors import file_digest
from optrove.model.hidden import VECTORS
from optrove.model.records import DeviceKind, Job, RunKind, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.records import Run
    from optrove.model.trove import PlannedCase, RunRow
    from optrove.store.reader import TroveReader

_NS: Final = 1e9
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

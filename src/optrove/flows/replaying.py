"""Execute recorded cases again, and keep what comes of them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.backends.ttnn.boards import BOARDS
from optrove.flows.grounds import is_mock
from optrove.flows.keeping import keeping
from optrove.flows.planning import on_device
from optrove.flows.runs import new_run
from optrove.model.records import Attempt, Outcome, RunKind
from optrove.report.attempted import Attempted
from optrove.run.runner import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from optrove.flows.grounds import Where
    from optrove.flows.planning import Planned
    from optrove.model.records import Run
    from optrove.run.runner import Workers
    from optrove.store.place import Place

CASES_PER_WORKER: Final = 60
"""For how many cases a further worker process pays, which takes seconds to start."""


NO_RUN: Final = "none"
"""The run of what was not even tried."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Where the results go, and as what: ``source`` names the Run; no place keeps nothing."""

    place: Place | None
    source: str


def replayed(
    groups: Mapping[Where, Sequence[Planned]],
    keep: Keep,
    workers: int | Workers | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> Generator[Attempted, None, None]:
    """Execute all cases, and yield each as soon as it is done; a Run for each kind of place.

    What has been done is in the trove even when the iterator is closed early. ``tell`` is given
    a line when a worker process is lost, and when results cannot be kept.
    """
    for where, cases in groups.items():
        count = usual_workers(len(cases)) if workers is None else workers
        yield from _on(where, cases, keep, count, tell)


def usual_workers(cases: int) -> int:
    """Return how many worker processes are worth their start for a number of cases."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, -(-cases // CASES_PER_WORKER)))


def unattempted(
    groups: Mapping[Where, Sequence[Planned]], done: Iterable[Attempted]
) -> Iterator[Attempted]:
    """Yield the cases that an interrupt has left, as not run; nothing is kept of them."""
    known = {each.attempt.case_id for each in done}
    for where, cases in groups.items():
        for planned in cases:
            if planned.case_id not in known:
                attempt = Attempt(
                    run_id=NO_RUN,
                    case_id=planned.case_id,
                    outcome=Outcome.NOT_RUN,
                    device_kind=where.device_kind,
                    seed=planned.job.seed,
                    board=where.board,
                    detail="interrupted before it was tried",
                )
                yield _attempted(planned, attempt)


def runs_kept(keep: Keep, done: Iterable[Attempted]) -> list[str]:
    """Return the ids of the Runs of some results that are in the trove."""
    from optrove.store.reader import open_reader

    ids = dict.fromkeys(each.attempt.run_id for each in done)
    if keep.place is None:
        return []
    with open_reader(keep.place) as reader:
        return [run_id for run_id in ids if reader.find_run(run_id)]


def _on(
    where: Where,
    cases: Sequence[Planned],
    keep: Keep,
    workers: int | Workers,
    tell: Callable[[str], object],
) -> Iterator[Attempted]:
    by_id = {planned.case_id: planned for planned in cases}
    jobs = [on_device(planned, where.device_kind).job for planned in cases]
    run = run_on(where, keep.source)
    with keeping(keep.place, run, tell) as keep_it:
        attempts = run_jobs(jobs, board=where.board, workers=workers, tell=tell, run_id=run.id)
        for attempt in attempts:
            planned = by_id[attempt.case_id]
            noted = replace(attempt, notes=(*attempt.notes, *planned.notes))
            keep_it(noted)
            yield _attempted(planned, noted)


def _attempted(planned: Planned, attempt: Attempt) -> Attempted:
    return Attempted(
        case=planned.job.case,
        attempt=attempt,
        calls=planned.calls,
        recorded_on=planned.board,
        raised=planned.raised,
    )


def run_on(where: Where, source: str, kind: RunKind = RunKind.REPLAY) -> Run:
    """Return the Run that begins, with where it takes place."""
    run = new_run(source, tuple(sys.argv))
    environment = replace(run.environment, device_kind=where.device_kind, board=where.board)
    if is_mock(where) and where.board is not None:
        board = BOARDS[where.board]
        environment = replace(
            environment, arch=board.arch, device_series=board.name, device_count=board.chips
        )
    # HF_MODEL names what is traced, which this is not.
    return replace(run, kind=kind, source=source, model=None, environment=environment)

"""Execute recorded cases and store the attempts as they arrive."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.capture.runs import new_run
from optrove.errors import UnusableTrove
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import Attempt, Outcome, RunKind, now
from optrove.replay.device_choice import is_mock
from optrove.replay.planning import on_device
from optrove.replay.runner import run_jobs
from optrove.report.attempts import Attempted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Run
    from optrove.replay.device_choice import Where
    from optrove.replay.planning import Planned
    from optrove.replay.runner import Workers
    from optrove.trove.place import Place
    from optrove.trove.trove import Trove

    Tell = Callable[[str], object]

_MOST: Final = 500
_SECONDS: Final = 1.0
"""How many Attempts wait to be written, and for how long at most: writing each costs more."""


@contextmanager
def keeping(place: Place | None, run: Run, tell: Tell) -> Iterator[Callable[[Attempt], None]]:
    """Give a function that keeps the Attempts of a Run in the trove at ``place``.

    At the end of the block all are in the trove, whatever has ended it; the Run counts as
    finished when nothing went wrong. A trove that cannot be written to (or None) keeps nothing,
    which ``tell`` hears of.
    """
    if place is None:
        yield lambda _: None
        return
    from optrove.trove.trove import open_trove

    with ExitStack() as stack:
        try:
            trove = stack.enter_context(open_trove(place, create=False))
            trove.add_attempts(run, ())
        except UnusableTrove as error:
            tell(f"the results are not kept: {error}")
            yield lambda _: None
            return
        writer = AttemptWriter(trove, run)
        try:
            yield writer.take
        finally:
            writer.write()
        trove.add_attempts(writer.ended(), ())


class AttemptWriter:
    """The Attempts of a Run that are on their way into a trove."""

    def __init__(self, trove: Trove, run: Run) -> None:
        self._trove = trove
        self._run = run
        self._waiting: list[Attempt] = []
        self._written = time.monotonic()
        self._failed = False

    def take(self, attempt: Attempt) -> None:
        """Keep an Attempt."""
        self._failed = self._failed or attempt.outcome is not Outcome.PASSED
        self._waiting.append(attempt)
        if len(self._waiting) >= _MOST or time.monotonic() - self._written >= _SECONDS:
            self.write()

    def write(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        self._trove.add_attempts(self._run, waiting)
        self._written = time.monotonic()

    def ended(self) -> Run:
        """Return the Run as it is when all has been done."""
        return replace(self._run, finished_at=now(), exit_code=int(self._failed))


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
    from optrove.trove.reader import open_reader

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

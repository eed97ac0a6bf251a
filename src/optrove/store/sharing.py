"""Send what another trove lacks, in transactions of bounded size, each all or nothing.

A Run that fits into one transaction arrives as a whole. A larger one is there without the time of
its end until all of it has arrived, as a Run that is going on. So whatever interrupts the sending,
every trove is a good one, and sending again sends the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.codec.text import write
from optrove.store.merging import Lacking, TakeAttempts, TakeRecording, TakeRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.store.merging import Step, Written
    from optrove.store.parts import Parts
    from optrove.store.stored import StoredRun
    from optrove.store.trove import Trove

MOST_AT_ONCE: Final = 200_000
"""How much one transaction is about, in what ``weight`` counts."""
_PER_STEP: Final = 500
_PER_ATTEMPT: Final = 20


@dataclass(frozen=True, slots=True)
class Shared:
    """What was sent so far, or is to be sent: Runs that are concerned, and what they hold.

    ``cases`` are those that were new to the other trove, None where that is not known yet.
    """

    runs: int = 0
    recordings: int = 0
    calls: int = 0
    attempts: int = 0
    cases: int | None = None


def total_of(missing: Iterable[Lacking]) -> Shared:
    """Return how much is lacking."""
    every = tuple(missing)
    steps = [step for each in every for step in each.steps]
    recordings = [step for step in steps if isinstance(step, TakeRecording)]
    return Shared(
        runs=len(every),
        recordings=len(recordings),
        calls=sum(step.size for step in recordings),
        attempts=sum(step.size for step in steps if isinstance(step, TakeAttempts)),
    )


def send(
    trove: Trove, parts: Parts, missing: Iterable[Lacking], most: int = MOST_AT_ONCE
) -> Iterator[Shared]:
    """Add to ``trove`` what is lacking, and yield after each transaction what is there by now."""
    shared = Shared(cases=0)
    for batch in _transactions(missing, most):
        written = trove.take(parts, batch)
        # A Run is counted by its last part, which is not there twice.
        ended = sum(any(isinstance(step, TakeRun) for step in each.steps) for each in batch)
        shared = _and(shared, written, ended)
        yield shared


def weight(step: Step) -> int:
    """Return how much there is to do for a step, about as many as rows."""
    return _PER_STEP + step.size * (_PER_ATTEMPT if isinstance(step, TakeAttempts) else 1)


def _transactions(missing: Iterable[Lacking], most: int) -> Iterator[list[Lacking]]:
    """Yield what is written together: several small Runs, or a part of a large one."""
    pending: list[Lacking] = []
    waiting = 0
    for each in missing:
        heavy = sum(map(weight, each.steps))
        if pending and waiting + heavy > most:
            yield pending
            pending, waiting = [], 0
        if heavy > most:
            yield from ([part] for part in _pieces(each, most))
        else:
            # Its last step, so that every Run is counted once.
            pending.append(replace(each, steps=(*each.steps, TakeRun())))
            waiting += heavy
    if pending:
        yield pending


def _pieces(large: Lacking, most: int) -> Iterator[Lacking]:
    """Yield the parts of a Run, which is not said to have ended before the last."""
    going_on = _unfinished(large.run)
    piece: list[Step] = []
    for step in large.steps:
        if piece and sum(map(weight, piece)) + weight(step) > most:
            yield Lacking(going_on, tuple(piece))
            piece = []
        # The Run comes with every step; by itself it is told at the end.
        if not isinstance(step, TakeRun):
            piece.append(step)
    if piece:
        yield Lacking(going_on, tuple(piece))
    yield Lacking(large.run, (TakeRun(),))


def _unfinished(run: StoredRun) -> StoredRun:
    content = json.loads(run.content)
    for name in ("finished_at", "exit_code"):
        content.pop(name, None)
    return run._replace(finished_at=None, content=write(content))


def _and(shared: Shared, written: Written, ended: int) -> Shared:
    return Shared(
        runs=shared.runs + ended,
        recordings=shared.recordings + written.recordings,
        calls=shared.calls + written.calls,
        attempts=shared.attempts + written.attempts,
        cases=(shared.cases or 0) + written.cases_new,
    )

"""Push and pull what another trove lacks, and the SQL of its roles.

A Run that fits into one transaction arrives as a whole. A larger one is there without the time of
its end until all of it has arrived, as a Run that is going on. So whatever interrupts the sending,
every trove is a good one, and sending again sends the rest.

A reader may ask for all that is there. A writer may also add and remove Runs, but cannot change or
drop a table, nor what the trove says about itself. Only the owner of the tables can bring a trove
to a new version; after that new tables need their rights, so the same SQL is run again.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import BadSetting
from optrove.serializer.text import write
from optrove.trove.merging import Lacking, TakeAttempts, TakeRecording, TakeRun
from optrove.trove.opening import located, reading, writing
from optrove.trove.schema import table_comments
from optrove.trove.scrubbing import scrubbed_parts
from optrove.trove.views import VIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from optrove.trove.merging import Parts, Step, Written
    from optrove.trove.opening import Recovered
    from optrove.trove.recordings import StoredRun
    from optrove.trove.trove import Trove


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


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")

_SCRIPT: Final = """\
-- The roles {reader} and {writer} of an optrove trove. Run this as the owner of its tables who may
-- create roles, in the database and with the search_path of the trove; again after an upgrade.
BEGIN;
DO $$ BEGIN
  IF to_regrole('{reader}') IS NULL THEN CREATE ROLE {reader} NOLOGIN; END IF;
  IF to_regrole('{writer}') IS NULL THEN CREATE ROLE {writer} NOLOGIN; END IF;
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO {reader}, {writer}', current_schema());
END $$;
GRANT SELECT ON {tables}
  TO {reader}, {writer};
GRANT INSERT, UPDATE, DELETE ON {changed}
  TO {writer};
{views}
COMMIT;
"""
_VIEW: Final = """\
DO $$ BEGIN IF to_regclass('{view}') IS NOT NULL THEN
  GRANT SELECT ON {view} TO {reader}, {writer}; END IF; END $$;"""


def grants(reader: str, writer: str) -> str:
    """Return the SQL that makes the two roles, where they are not there, and gives them rights.

    It can be run again. BadSetting for a name that would not do in SQL as it is.
    """
    names = {"reader": _quoted(reader), "writer": _quoted(writer)}
    tables = list(table_comments())
    return _SCRIPT.format(
        **names,
        tables=", ".join(tables),
        changed=", ".join(name for name in tables if name != "trove"),
        views="\n".join(_VIEW.format(view=view.name, **names) for view in VIEWS),
    )


def _quoted(role: str) -> str:
    if not _NAME.fullmatch(role):
        raise BadSetting(
            f"{role!r} cannot be the name of a role here; "
            f"use letters, digits, _ and -, a letter first, and at most 63 of them"
        )
    return f'"{role}"'


@dataclass(frozen=True, slots=True)
class Transfer:
    """From where to where something is sent; None is the trove that is meant without a name."""

    source: str | None
    target: str | None
    scrub: bool = False


@dataclass(frozen=True, slots=True)
class Transferred:
    """Where it went from and to, and what was new there."""

    source: str
    target: str
    sent: Shared


def share(
    transfer: Transfer,
    tell: Callable[[Recovered], object],
    watch: Callable[[Shared, Shared], object] = lambda _, __: None,
) -> Transferred:
    """Send what is lacking; ``watch`` hears what is there by now, and how much there will be.

    Whatever interrupts it, what was sent stays, and the next time the rest is sent.
    """
    from optrove.trove.merging import TroveParts

    with ExitStack() as stack:
        reader = stack.enter_context(reading(transfer.source, tell))
        trove = stack.enter_context(writing(transfer.target, tell))
        parts = scrubbed_parts(reader) if transfer.scrub else TroveParts(reader.source)
        stack.enter_context(parts.snapshot())
        missing = trove.lacking(parts)
        total, sent = total_of(missing), Shared(cases=0)
        for sent in send(trove, parts, missing):
            watch(sent, total)
    return Transferred(str(located(transfer.source)), str(located(transfer.target)), sent)

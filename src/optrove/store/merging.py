"""Take in another trove, step by step, within the transaction of the caller.

What is kept of two that are the same part of the same Run is decided by their ranks alone. So it
does not matter in which order, how often and in which groups troves are merged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sqlalchemy import select

from optrove.model.trove import Added
from optrove.store import schema
from optrove.store.attempts import write_attempts
from optrove.store.rows import batches, keys_of
from optrove.store.stored import Head, StoredSweep
from optrove.store.sweeps import write_sweep
from optrove.store.writing import write_cases, write_recording, write_run, write_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from optrove.store.parts import Parts
    from optrove.store.stored import StoredPlanned, StoredRun

ATTEMPTS_AT_ONCE: Final = 2_000
_RUNS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Written:
    """What a step has added; ``case_ids`` are the Cases that it is about."""

    runs: int = 0
    recordings: int = 0
    calls: int = 0
    attempts: int = 0
    cases_new: int = 0
    case_ids: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TakeRun:
    """The Run itself, which comes with every other step, too."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class TakeRecording:
    """A Recording."""

    key: int
    head: Head

    @property
    def size(self) -> int:
        """How many calls it has."""
        return self.head.calls

    def take(self, connection: Connection, parts: Parts, run: StoredRun) -> Written:
        """Add it, or put it in the place of a lesser one."""
        prepared = parts.recording(self.key, self.head, run)
        added = write_recording(connection, prepared)
        return Written(
            runs=added.runs,
            recordings=added.recordings,
            calls=added.calls,
            cases_new=added.cases_new,
            case_ids=frozenset(group.case_id for group, _ in prepared.executions),
        )


@dataclass(frozen=True, slots=True)
class TakeSweep:
    """What a sweep was asked for, and its plan."""

    sweep: StoredSweep
    planned: tuple[StoredPlanned, ...]

    @property
    def size(self) -> int:
        """How many Cases are planned."""
        return len(self.planned)

    def take(self, connection: Connection, parts: Parts, run: StoredRun) -> Written:
        """Add it unless a greater one is there."""
        ids = {each.case_id for each in self.planned}
        cases_new = _write_cases(connection, parts, ids)
        run_key, runs = write_run(connection, run)
        write_sweep(connection, run_key, self.sweep, self.planned)
        return Written(runs=runs, cases_new=cases_new, case_ids=frozenset(ids))


@dataclass(frozen=True, slots=True)
class TakeAttempts:
    """Some Attempts of a Run."""

    ids: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.ids)


Step: TypeAlias = TakeRun | TakeRecording | TakeSweep | TakeAttempts
"""A part of another trove that this one lacks, or has less of; it can be taken twice.

``size`` is how much it is about, in calls and attempts.
"""


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a trove lacks of one Run of another, in the order in which it is to be taken."""

    run: StoredRun
    steps: tuple[Step, ...]


def merge(connection: Connection, parts: Parts) -> Added:
    """Add all that another trove holds and that is not there yet, or less of it."""
    with parts.snapshot():
        held = Held(connection)
        seen: set[str] = set()
        runs = batches(lacking(connection, parts, held), _RUNS_AT_ONCE)
        written = [take(connection, parts, some) for some in runs]
        for key, head in parts.heads():
            if held.rank(head) == head.rank:
                seen.update(parts.case_ids(key))
    total = _summed(written)
    seen |= total.case_ids
    return Added(
        runs=total.runs,
        recordings=total.recordings,
        calls=total.calls,
        cases_new=total.cases_new,
        cases_known=len(seen) - total.cases_new,
    )


def take(connection: Connection, parts: Parts, taken: Sequence[Lacking]) -> Written:
    """Add what is lacking of some Runs: all Runs, what is recorded and planned, then Attempts.

    Attempts of several Runs are written together: most Runs have few.
    """
    keys, runs = write_runs(connection, [each.run for each in taken])
    written = [Written(runs=runs)]
    tried: dict[str, int] = {}
    for each in taken:
        for step in each.steps:
            if isinstance(step, TakeAttempts):
                tried.update(dict.fromkeys(step.ids, keys[each.run.run_id]))
            elif not isinstance(step, TakeRun):
                written.append(step.take(connection, parts, each.run))
    pieces = batches(tried.items(), ATTEMPTS_AT_ONCE)
    written += [_take_attempts(connection, parts, dict(piece)) for piece in pieces]
    return _summed(written)


def _take_attempts(connection: Connection, parts: Parts, runs: Mapping[str, int]) -> Written:
    """Add those Attempts that are not there yet; the keys of their Runs are given by their ids."""
    attempts = list(parts.attempts(runs))
    ids = {attempt.case_id for attempt in attempts}
    cases_new = _write_cases(connection, parts, ids)
    added = write_attempts(connection, ((runs[each.attempt_id], each) for each in attempts))
    return Written(attempts=added, cases_new=cases_new, case_ids=frozenset(ids))


def _summed(written: Sequence[Written]) -> Written:
    return Written(
        runs=sum(each.runs for each in written),
        recordings=sum(each.recordings for each in written),
        calls=sum(each.calls for each in written),
        attempts=sum(each.attempts for each in written),
        cases_new=sum(each.cases_new for each in written),
        case_ids=frozenset().union(*(each.case_ids for each in written)),
    )


class Held:
    """What a trove has of Runs, Recordings and sweeps, by the ranks that decide what is kept."""

    def __init__(self, connection: Connection) -> None:
        self._runs = _run_ranks(connection)
        self._recordings = _recording_ranks(connection)
        self._sweeps = _sweeps(connection)

    def knows(self, run: StoredRun) -> bool:
        """Tell whether anything is known about a Run."""
        return run.run_id in self._runs

    def has_run(self, run: StoredRun) -> bool:
        """Tell whether as much is known about a Run."""
        return run.run_id in self._runs and self._runs[run.run_id] >= run.rank

    def rank(self, head: Head) -> tuple[bool, int, int, str] | None:
        """Return the rank of what is there as the same part of the same Run."""
        return self._recordings.get((head.run_id, head.process))

    def has_recording(self, head: Head) -> bool:
        """Tell whether a Recording is there, or a greater one."""
        rank = self.rank(head)
        return rank is not None and rank >= head.rank

    def has_sweep(self, run_id: str, sweep: StoredSweep) -> bool:
        """Tell whether a sweep is there, or a greater one."""
        return run_id in self._sweeps and self._sweeps[run_id] >= sweep


def lacking(connection: Connection, parts: Parts, held: Held) -> Iterator[Lacking]:
    """Yield what of another trove is not there, or less of it, Run by Run."""
    recordings: dict[str, list[Step]] = {}
    for key, head in parts.heads():
        if not held.has_recording(head):
            recordings.setdefault(head.run_id, []).append(TakeRecording(key, head))
    planned = parts.planned_runs()
    for run in list(parts.runs()):
        steps: list[Step] = [] if held.has_run(run) else [TakeRun()]
        steps += recordings.get(run.run_id, ())
        asked = parts.sweep(run.run_id) if run.run_id in planned else None
        # In the Run of a sweep a Case has one Attempt, so the sweep has to be there before.
        if asked is not None and not held.has_sweep(run.run_id, asked[0]):
            steps.append(TakeSweep(asked[0], tuple(asked[1])))
        steps += _attempts(connection, parts, run, held)
        if steps:
            yield Lacking(run, tuple(steps))


def _attempts(connection: Connection, parts: Parts, run: StoredRun, held: Held) -> Iterator[Step]:
    offered = parts.attempt_ids(run.run_id)
    # The id of an Attempt is made from that of its Run, too.
    column = schema.ATTEMPTS.c.attempt_id
    known = keys_of(connection, column, offered) if held.knows(run) else {}
    missing = (each for each in offered if each not in known)
    for batch in batches(missing, ATTEMPTS_AT_ONCE):
        yield TakeAttempts(tuple(batch))


def _write_cases(connection: Connection, parts: Parts, ids: set[str]) -> int:
    """Add those of some Cases that are not there yet, and return how many they are."""
    known = keys_of(connection, schema.CASES.c.case_id, ids)
    missing = sorted(ids - known.keys())
    write_cases(connection, missing, parts.described)
    return len(missing)


def _run_ranks(connection: Connection) -> dict[str, tuple[Any, ...]]:
    runs, environments = schema.RUNS.c, schema.ENVIRONMENTS.c
    rows = connection.execute(
        select(runs.run_id, runs.finished_at, runs.content, runs.machine)
        .add_columns(environments.content)
        .join_from(schema.RUNS, schema.ENVIRONMENTS)
    )
    return {
        run_id: (finished_at is not None, content, environment, machine)
        for run_id, finished_at, content, machine, environment in rows
    }


def _recording_ranks(
    connection: Connection,
) -> dict[tuple[str, int], tuple[bool, int, int, str]]:
    table = schema.RECORDINGS.c
    rows = connection.execute(
        select(schema.RUNS.c.run_id, table.process, table.complete)
        .add_columns(table.calls, table.size, table.digest)
        .join_from(schema.RECORDINGS, schema.RUNS)
    )
    heads = [Head(*row) for row in rows]
    return {(head.run_id, head.process): head.rank for head in heads}


def _sweeps(connection: Connection) -> dict[str, StoredSweep]:
    table = schema.SWEEPS.c
    rows = connection.execute(
        select(schema.RUNS.c.run_id, table.plan_id, table.content).join_from(
            schema.SWEEPS, schema.RUNS
        )
    )
    return {run_id: StoredSweep(plan_id, content) for run_id, plan_id, content in rows}

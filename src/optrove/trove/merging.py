"""Merge troves, and remove runs.

What is kept of two that are the same part of the same Run is decided by their ranks alone. So it
does not matter in which order, how often and in which groups troves are merged.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from sqlalchemy import select

from optrove.model.trove import Added, CallBlock, DescribedCase, TensorFacts
from optrove.trove import reader as queries
from optrove.trove import schema
from optrove.trove.opening import reading, sum_of, writing
from optrove.trove.query import run_named
from optrove.trove.reader import batches
from optrove.trove.stored import (
    Counted,
    Grouped,
    Head,
    Prepared,
    StoredConfigCalls,
    StoredEnding,
    StoredEnvironment,
    StoredPlanned,
    StoredRun,
    StoredScope,
    StoredSweep,
    StoredTest,
)
from optrove.trove.writing import (
    StoredAttempt,
    StoredMeasurement,
    keys_of,
    write_attempts,
    write_cases,
    write_recording,
    write_run,
    write_runs,
    write_sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import Connection

    from optrove.model.trove import Removed
    from optrove.trove.opening import Recovered
    from optrove.trove.source import Source


_AT_ONCE: Final = 500

_RUNS: Final = """
SELECT r.run_id, r.kind, r.source, r.model, r.started_at, r.finished_at, r.machine, r.content,
    e.environment_id, e.device_kind, e.board, e.arch, e.ttnn_version, e.torch_version, e.git_sha,
    e.content
FROM runs r JOIN environments e ON e.key = r.environment_key
ORDER BY r.run_id
"""
_EXECUTIONS: Final = """
SELECT c.case_id, s.scope_id, d.ending_id, x.outcome, x.outermost,
    x.calls, x.total_ns, x.shortest_ns, x.longest_ns
FROM executions x
JOIN cases c ON c.key = x.case_key
LEFT JOIN scopes s ON s.key = x.scope_key
LEFT JOIN endings d ON d.key = x.ending_key
WHERE x.recording_key = :key
ORDER BY x.place
"""
_CONFIG_CALLS: Final = """
SELECT f.path, c.case_id, f.calls FROM config_calls f JOIN cases c ON c.key = f.case_key
WHERE f.recording_key = :key
ORDER BY f.place
"""
_SCOPES: Final = """
SELECT scope_id, test_id, phase, module, mode, device FROM scopes
WHERE key IN (SELECT scope_key FROM executions WHERE recording_key = :key)
"""
_ENDINGS: Final = """
SELECT ending_id, raised, content FROM endings
WHERE key IN (SELECT ending_key FROM executions WHERE recording_key = :key)
"""
_TESTS: Final = """
SELECT test_id, outcome, content FROM tests WHERE recording_key = :key ORDER BY place
"""
_CASES: Final = """
SELECT c.case_id, c.semantic_id, c.family_id, c.op, c.replayable, t.content
FROM cases c JOIN contents t ON t.case_key = c.key
WHERE c.case_id IN :ids
"""
_CASE_IDS: Final = """
SELECT DISTINCT c.case_id FROM executions x JOIN cases c ON c.key = x.case_key
WHERE x.recording_key = :key
"""
_PLANNED_RUNS: Final = "SELECT r.run_id FROM sweeps s JOIN runs r ON r.key = s.run_key"
_ATTEMPT_IDS: Final = """
SELECT a.attempt_id FROM attempts a JOIN runs r ON r.key = a.run_key
WHERE r.run_id = :run_id
ORDER BY a.key
"""
_ATTEMPTS: Final = """
SELECT a.key, a.attempt_id, c.case_id, a.outcome, a.device_kind, a.board, a.seed, a.detail,
    a.notes, a.started_at, a.duration_ns, a.replayed_case_id, a.content
FROM attempts a JOIN cases c ON c.key = a.case_key
WHERE a.attempt_id IN :ids
"""
_MEASUREMENTS: Final = """
SELECT attempt_key, name, value, threshold, passed, output FROM measurements
WHERE attempt_key IN :keys
ORDER BY attempt_key, place
"""


class Parts(Protocol):
    """What another trove holds, of one and the same state of it within a snapshot."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Tell all inside the block from one and the same state of the trove."""

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""

    def heads(self) -> list[tuple[int, Head]]:
        """Return what identifies the Recordings, each with a key to ask for it."""

    def recording(self, key: int, head: Head, run: StoredRun) -> Prepared:
        """Return a Recording as a whole."""

    def case_ids(self, key: int) -> Iterator[str]:
        """Yield the ids of the Cases of a Recording."""

    def described(self, ids: Sequence[str]) -> Iterator[DescribedCase]:
        """Yield Cases by their ids."""

    def planned_runs(self) -> frozenset[str]:
        """Return the ids of the Runs that are sweeps with a plan."""

    def sweep(self, run_id: str) -> tuple[StoredSweep, list[StoredPlanned]] | None:
        """Return what a sweep was asked for and its plan; None when the Run is none."""

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""


class TroveParts:
    """The parts of a trove as they are."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def snapshot(self) -> AbstractContextManager[None]:
        """Tell all inside the block from one and the same state of the trove."""
        return self._source.snapshot()

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""
        for run_id, kind, what, model, *rest in self._source.rows(_RUNS, {}):
            started_at, finished_at, machine, content, *environment = rest
            yield StoredRun(
                *(run_id, kind, what, model, StoredEnvironment(*environment)),
                *(started_at, finished_at, machine, content),
            )

    def heads(self) -> list[tuple[int, Head]]:
        """Return what identifies the Recordings, each with a key to ask for it."""
        return [
            (key, Head(run_id, process, bool(complete), *rest))
            for key, run_id, process, complete, *rest in self._source.rows(queries.RECORDINGS, {})
        ]

    def recording(self, key: int, head: Head, run: StoredRun) -> Prepared:
        """Return a Recording as a whole."""
        scopes = [StoredScope(*row) for row in self._of(_SCOPES, key)]
        endings = [
            StoredEnding(ending_id, bool(raised), content)
            for ending_id, raised, content in self._of(_ENDINGS, key)
        ]
        ((dictionary,),) = self._of(queries.DICTIONARY, key)
        return Prepared(
            head=head,
            run=run,
            executions=[_execution(row) for row in self._of(_EXECUTIONS, key)],
            described=self.described,
            scopes={scope.scope_id: scope for scope in scopes},
            endings={ending.ending_id: ending for ending in endings},
            tests=[StoredTest(*row) for row in self._of(_TESTS, key)],
            dictionary=None if dictionary is None else bytes(dictionary),
            blocks=(
                CallBlock(first, calls, bytes(content))
                for first, calls, content in self._of(queries.BLOCKS, key)
            ),
            config_calls=[StoredConfigCalls(*row) for row in self._of(_CONFIG_CALLS, key)],
        )

    def case_ids(self, key: int) -> Iterator[str]:
        """Yield the ids of the Cases of a Recording."""
        return (case_id for (case_id,) in self._of(_CASE_IDS, key))

    def described(self, ids: Sequence[str]) -> Iterator[DescribedCase]:
        """Yield Cases by their ids."""
        for batch in batches(ids, _AT_ONCE):
            tensors: dict[str, list[TensorFacts]] = {}
            for case_id, *facts in self._source.rows(queries.TENSORS, {"ids": batch}):
                tensors.setdefault(case_id, []).append(TensorFacts(*facts))
            rows = self._source.rows(_CASES, {"ids": batch})
            for case_id, semantic_id, family_id, op, replayable, content in rows:
                yield DescribedCase(
                    *(case_id, semantic_id, family_id, op, bool(replayable), content),
                    tensors=tuple(tensors.get(case_id, ())),
                )

    def planned_runs(self) -> frozenset[str]:
        """Return the ids of the Runs that are sweeps with a plan."""
        return frozenset(run_id for (run_id,) in self._source.rows(_PLANNED_RUNS, {}))

    def sweep(self, run_id: str) -> tuple[StoredSweep, list[StoredPlanned]] | None:
        """Return what a sweep was asked for and its plan; None when the Run is none."""
        asked = {"run_id": run_id}
        found = list(self._source.rows(queries.SWEEP, asked))
        if not found:
            return None
        ((content, plan_id),) = found
        planned = [
            StoredPlanned(case_id, suite, device_kind, board)
            for case_id, device_kind, board, suite in self._source.rows(queries.PLANNED, asked)
        ]
        return StoredSweep(plan_id, content), planned

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""
        return [found for (found,) in self._source.rows(_ATTEMPT_IDS, {"run_id": run_id})]

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""
        for batch in batches(ids, _AT_ONCE):
            rows = list(self._source.rows(_ATTEMPTS, {"ids": batch}))
            measured: dict[int, list[StoredMeasurement]] = {}
            asked = {"keys": [row[0] for row in rows]}
            for key, name, value, threshold, passed, output in self._source.rows(
                _MEASUREMENTS, asked
            ):
                kept = None if passed is None else bool(passed)
                each = StoredMeasurement(name, value, threshold, kept, output)
                measured.setdefault(key, []).append(each)
            for row in rows:
                facts = (*row[1:], tuple(measured.get(row[0], ())))
                yield StoredAttempt._make(facts)

    def _of(self, sql: str, key: int) -> Iterator[tuple[Any, ...]]:
        """Yield what a Recording has of something."""
        return self._source.rows(sql, {"key": key})


def _execution(row: tuple[Any, ...]) -> tuple[Grouped, Counted]:
    case_id, scope_id, ending_id, outcome, outermost, *counted = row
    return Grouped(case_id, scope_id, ending_id, outcome, bool(outermost)), Counted(*counted)


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


@dataclass(frozen=True, slots=True)
class Merged:
    """The trove that has everything now, and what that has changed in it."""

    store: str
    added: Added


def merge_into(output: str, troves: Sequence[str], tell: Callable[[Recovered], object]) -> Merged:
    """Add all that these troves hold to ``output``, or nothing if one cannot be read."""
    with ExitStack() as stack:
        readers = [stack.enter_context(reading(each, tell)) for each in troves]
        trove = stack.enter_context(writing(output, tell))
        with trove.together():
            added = sum_of(map(trove.merge, readers))
    return Merged(output, added)


def remove_runs(
    store: str | None, names: Sequence[str], tell: Callable[[Recovered], object]
) -> tuple[tuple[str, Removed], ...]:
    """Remove these runs, or none if one of them is not found; return what went with each."""
    with writing(store, tell, create=False) as trove:
        with trove.reader() as reader:
            ids = tuple(dict.fromkeys(run_named(reader, name) for name in names))
        with trove.together():
            return tuple((run_id, trove.remove_run(run_id)) for run_id in ids)

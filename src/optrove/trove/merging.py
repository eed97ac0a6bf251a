"""Merge troves, find the parts of a trove that another one lacks, and remove runs.

Of two versions of the same part of the same Run, their ranks alone decide which one is kept. So
the order, number and grouping of merges do not matter.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from optrove.model.trove import Added, CallBlock, CallGroup, DescribedCase, TensorFacts
from optrove.trove import reader as queries
from optrove.trove.capsules import copy_capsules, remove_capsules
from optrove.trove.database import batches, keys_of
from optrove.trove.opening import reading, writing
from optrove.trove.query import run_named
from optrove.trove.recordings import (
    CallEnding,
    Recording,
    RecordingHead,
    StoredAttempt,
    StoredEnvironment,
    StoredRun,
    StoredSweep,
)
from optrove.trove.sessions import session_from, write_sessions
from optrove.trove.writing import (
    write_attempts,
    write_missing_cases,
    write_recording,
    write_runs,
    write_sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from optrove.model.trove import Removed, Session
    from optrove.trove.database import Connection
    from optrove.trove.opening import Recovered


_BATCH_SIZE: Final = 500

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
_CASE_IDS: Final = """
SELECT DISTINCT c.case_id FROM executions x JOIN cases c ON c.key = x.case_key
WHERE x.recording_key = :key
"""
_SWEEP_RANKS: Final = """
SELECT r.run_id, s.plan_id, s.content FROM sweeps s JOIN runs r ON r.key = s.run_key
"""
_SESSIONS: Final = """
SELECT r.run_id, s.begun_at, s.process, s.alive_at, s.ending
FROM sessions s JOIN runs r ON r.key = s.run_key
ORDER BY r.run_id, s.begun_at, s.process
"""
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


class TroveParts:
    """The content of a trove, to be added to another; a snapshot shows one state of all of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer everything inside the block from one state of the trove."""
        return self._connection.snapshot()

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""
        for run_id, kind, source, model, *rest in self._connection.rows(_RUNS):
            started_at, finished_at, machine, content, *environment = rest
            yield StoredRun(
                *(run_id, kind, source, model, StoredEnvironment(*environment)),
                *(started_at, finished_at, machine, content),
            )

    def heads(self) -> list[tuple[int, RecordingHead]]:
        """Return the heads of all Recordings, each with its key."""
        return [
            (key, RecordingHead(run_id, process, bool(complete), *rest))
            for key, run_id, process, complete, *rest in self._connection.rows(queries.RECORDINGS)
        ]

    def recording(self, key: int, head: RecordingHead, run: StoredRun) -> Recording:
        """Return a whole Recording."""
        ((dictionary,),) = self._of(queries.DICTIONARY, key)
        return Recording(
            head=head,
            run=run,
            executions=[
                CallGroup(case_id, scope_id, ending_id, outcome, bool(outermost), *counted)
                for case_id, scope_id, ending_id, outcome, outermost, *counted in self._of(
                    _EXECUTIONS, key
                )
            ],
            described=self.described,
            scopes={name: tuple(row) for name, *row in self._of(_SCOPES, key)},
            endings={
                name: CallEnding(bool(raised), content)
                for name, raised, content in self._of(_ENDINGS, key)
            },
            tests=[(test, outcome, content) for test, outcome, content in self._of(_TESTS, key)],
            dictionary=None if dictionary is None else bytes(dictionary),
            blocks=(
                CallBlock(first, calls, bytes(content))
                for first, calls, content in self._of(queries.BLOCKS, key)
            ),
            config_calls=[
                (path, name, calls) for path, name, calls in self._of(_CONFIG_CALLS, key)
            ],
        )

    def case_ids(self, key: int) -> Iterator[str]:
        """Yield the ids of the Cases of a Recording."""
        return (case_id for (case_id,) in self._of(_CASE_IDS, key))

    def described(self, ids: Sequence[str]) -> Iterator[DescribedCase]:
        """Yield Cases by their ids."""
        for batch in batches(ids, _BATCH_SIZE):
            tensors: dict[str, list[TensorFacts]] = {}
            for case_id, *facts in self._connection.rows(queries.TENSORS, {"ids": batch}):
                tensors.setdefault(case_id, []).append(TensorFacts(*facts))
            rows = self._connection.rows(queries.CASES_BY_ID, {"ids": batch})
            for _, case_id, semantic_id, family_id, op, replayable, content, _ in rows:
                yield DescribedCase(
                    *(case_id, semantic_id, family_id, op, bool(replayable), content),
                    tensors=tuple(tensors.get(case_id, ())),
                )

    def sweep_ranks(self) -> dict[str, tuple[str, str]]:
        """Return the ranks of all sweeps, by the ids of their Runs."""
        rows = self._connection.rows(_SWEEP_RANKS)
        return {run_id: (plan_id, content) for run_id, plan_id, content in rows}

    def sweep(self, run_id: str) -> StoredSweep | None:
        """Return the request and the plan of a sweep; None when the Run is not a sweep."""
        asked = {"run_id": run_id}
        for content, plan_id in self._connection.fetch(queries.SWEEP, asked):
            planned = map(queries.planned_case, self._connection.rows(queries.PLANNED, asked))
            return StoredSweep(plan_id, content, tuple(planned))
        return None

    def sessions(self) -> dict[str, list[Session]]:
        """Return the Sessions of all Runs, by the ids of these."""
        found: dict[str, list[Session]] = {}
        for run_id, *session in self._connection.rows(_SESSIONS):
            found.setdefault(run_id, []).append(session_from(session))
        return found

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""
        return [found for (found,) in self._connection.rows(_ATTEMPT_IDS, {"run_id": run_id})]

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""
        for batch in batches(ids, _BATCH_SIZE):
            rows = self._connection.fetch(_ATTEMPTS, {"ids": batch})
            measured: dict[int, list[tuple[Any, ...]]] = {}
            asked = {"keys": [row[0] for row in rows]}
            for key, name, value, threshold, passed, output in self._connection.rows(
                _MEASUREMENTS, asked
            ):
                each = (name, value, threshold, None if passed is None else bool(passed), output)
                measured.setdefault(key, []).append(each)
            for row in rows:
                yield StoredAttempt._make((*row[1:], tuple(measured.get(row[0], ()))))

    def _of(self, sql: str, key: int) -> Iterator[tuple[Any, ...]]:
        """Yield rows that belong to a Recording."""
        return self._connection.rows(sql, {"key": key})


ATTEMPTS_PER_BATCH: Final = 2_000
_RUNS_PER_BATCH: Final = 500
_PER_PART: Final = 500
_PER_ATTEMPT: Final = 20


@dataclass(frozen=True, slots=True)
class MissingParts:
    """The parts of one Run that a trove lacks, or holds with a lower rank.

    Recordings are given by their keys and heads. Parts can be added twice.
    """

    run: StoredRun
    recordings: tuple[tuple[int, RecordingHead], ...] = ()
    sweep: StoredSweep | None = None
    attempt_ids: tuple[str, ...] = ()
    sessions: tuple[Session, ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls of the Recordings."""
        return sum(head.calls for _, head in self.recordings)

    @property
    def weight(self) -> int:
        """How much there is to write, in rows of a table."""
        rows = self.calls + len(self.attempt_ids) * _PER_ATTEMPT
        parts = 1 + len(self.recordings)
        if self.sweep is not None:
            parts, rows = parts + 1, rows + len(self.sweep.planned)
        return _PER_PART * parts + rows

    def pieces(self) -> Iterator[MissingParts]:
        """Yield the parts one by one, in the order in which to add them; Sessions come last."""
        for each in self.recordings:
            yield MissingParts(self.run, recordings=(each,))
        if self.sweep is not None:
            yield MissingParts(self.run, sweep=self.sweep)
        for batch in batches(self.attempt_ids, ATTEMPTS_PER_BATCH):
            yield MissingParts(self.run, attempt_ids=tuple(batch))
        if self.sessions:
            yield MissingParts(self.run, sessions=self.sessions)


def merge(connection: Connection, parts: TroveParts) -> Added:
    """Add everything of another trove that is missing here, or here of a lower rank."""
    added = Added()
    seen: set[str] = set()
    with parts.snapshot():
        held = Held(connection)
        for some in batches(missing_parts(connection, parts, held), _RUNS_PER_BATCH):
            piece, case_ids = add_parts(connection, parts, some)
            added += piece
            seen |= case_ids
        for key, head in parts.heads():
            if held.recordings.get((head.run_id, head.process)) == head.rank:
                seen.update(parts.case_ids(key))
    return replace(added, cases_known=len(seen) - added.cases_new)


def add_parts(
    connection: Connection, parts: TroveParts, missing: Sequence[MissingParts]
) -> tuple[Added, set[str]]:
    """Add missing parts of some Runs: all Runs, Recordings and plans, then Attempts.

    Return how much was added, and the ids of the Cases that the parts refer to.

    Attempts of several Runs are written together: most Runs have few. In the Run of a sweep a Case
    has one Attempt, so the sweep comes before the Attempts.
    """
    keys, runs = write_runs(connection, [each.run for each in missing])
    added, case_ids = Added(runs=runs), set[str]()
    run_keys: dict[str, int] = {}
    for each in missing:
        write_sessions(connection, keys[each.run.run_id], each.sessions)
        for key, head in each.recordings:
            recording = parts.recording(key, head, each.run)
            added += write_recording(connection, recording)
            case_ids.update(group.case_id for group in recording.executions)
        if each.sweep is not None:
            planned = {case.case_id for case in each.sweep.planned}
            added += Added(cases_new=write_missing_cases(connection, planned, parts.described))
            write_sweep(connection, keys[each.run.run_id], each.sweep)
            case_ids |= planned
        run_keys.update(dict.fromkeys(each.attempt_ids, keys[each.run.run_id]))
    for ids in batches(run_keys, ATTEMPTS_PER_BATCH):
        attempts = list(parts.attempts(ids))
        attempted = {attempt.case_id for attempt in attempts}
        cases_new = write_missing_cases(connection, attempted, parts.described)
        new = write_attempts(connection, ((run_keys[each.attempt_id], each) for each in attempts))
        added += Added(cases_new=cases_new, attempts=new)
        case_ids |= attempted
    return added, case_ids


class Held:
    """The ranks of the Runs, Recordings and sweeps that a trove holds."""

    def __init__(self, connection: Connection) -> None:
        parts = TroveParts(connection)
        self.runs = {run.run_id: run.rank for run in parts.runs()}
        self.recordings = {(head.run_id, head.process): head.rank for _, head in parts.heads()}
        self.sweeps = parts.sweep_ranks()
        self.sessions = parts.sessions()


def missing_parts(connection: Connection, parts: TroveParts, held: Held) -> Iterator[MissingParts]:
    """Yield the parts of another trove that are missing here, or of a lower rank, Run by Run."""
    recordings: dict[str, list[tuple[int, RecordingHead]]] = {}
    for key, head in parts.heads():
        rank = held.recordings.get((head.run_id, head.process))
        if rank is None or rank < head.rank:
            recordings.setdefault(head.run_id, []).append((key, head))
    sweeps, sessions = parts.sweep_ranks(), parts.sessions()
    for run in list(parts.runs()):
        known = held.runs.get(run.run_id)
        sweep = parts.sweep(run.run_id) if run.run_id in sweeps else None
        if sweep is not None and held.sweeps.get(run.run_id, ("", "")) >= sweep.rank:
            sweep = None
        offered = parts.attempt_ids(run.run_id)
        # The id of an Attempt is also made from that of its Run.
        attempted = {} if known is None else keys_of(connection, "attempts", offered)
        ranks = {each.key: each.rank for each in held.sessions.get(run.run_id, ())}
        missing = MissingParts(
            run=run,
            recordings=tuple(recordings.get(run.run_id, ())),
            sweep=sweep,
            attempt_ids=tuple(each for each in offered if each not in attempted),
            sessions=tuple(
                each
                for each in sessions.get(run.run_id, ())
                if each.key not in ranks or ranks[each.key] < each.rank
            ),
        )
        if known is None or known < run.rank or missing != MissingParts(run):
            yield missing


def merge_into(
    output: str, troves: Sequence[str], on_recovered: Callable[[Recovered], object]
) -> Added:
    """Add the content of these troves to ``output``, or nothing if one cannot be read."""
    with ExitStack() as stack:
        readers = [stack.enter_context(reading(each, on_recovered)) for each in troves]
        trove = stack.enter_context(writing(output, on_recovered))
        with trove.together():
            added = sum(map(trove.merge, readers), Added())
        for reader in readers:
            copy_capsules(reader.place, trove.place)
    return added


def remove_runs(
    store: str | None, names: Sequence[str], on_recovered: Callable[[Recovered], object]
) -> tuple[tuple[str, Removed], ...]:
    """Remove these runs, or none if one is not found; return the removed rows of each."""
    with writing(store, on_recovered, create=False) as trove:
        with trove.reader() as reader:
            ids = tuple(dict.fromkeys(run_named(reader, name) for name in names))
        with trove.together():
            removed = tuple((run_id, trove.remove_run(run_id)) for run_id in ids)
    remove_capsules(trove.place, ids)
    return removed

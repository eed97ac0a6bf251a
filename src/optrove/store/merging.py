"""Take in another trove, Recording by Recording, within the transaction of the caller.

What is kept of two that are the same part of the same Run is decided by their ranks alone. So it
does not matter in which order, how often and in which groups troves are merged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from optrove.model.trove import Added, CallBlock, DescribedCase, TensorFacts
from optrove.store import queries, schema
from optrove.store.answers import listed
from optrove.store.attempts import StoredAttempt, StoredMeasurement, write_attempts
from optrove.store.rows import batches, keys_of
from optrove.store.stored import (
    Counted,
    Grouped,
    Head,
    Prepared,
    StoredEnding,
    StoredEnvironment,
    StoredRun,
    StoredScope,
    StoredTest,
)
from optrove.store.writing import write_cases, write_recording, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from optrove.store.source import Source

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
_ATTEMPTS: Final = """
SELECT a.key, a.attempt_id, c.case_id, a.outcome, a.device_kind, a.board, a.seed, a.detail,
    a.started_at, a.duration_ns, a.replayed_case_id, a.content
FROM attempts a
JOIN cases c ON c.key = a.case_key
JOIN runs r ON r.key = a.run_key
WHERE r.run_id = :run_id
"""
_MEASUREMENTS: Final = """
SELECT attempt_key, name, value, threshold, passed, output FROM measurements
WHERE attempt_key IN :keys
ORDER BY attempt_key, place
"""


def merge(connection: Connection, source: Source) -> Added:
    """Add all that another trove holds and that is not there yet, or less of it."""
    with source.snapshot():
        return _Merge(connection, source).all()


class _Merge:
    """One trove being merged into another."""

    def __init__(self, connection: Connection, source: Source) -> None:
        self._connection = connection
        self._source = source
        self._seen: set[str] = set()
        self._new = 0

    def all(self) -> Added:
        runs = {run.run_id: run for run in _runs(self._source)}
        runs_new = sum(write_run(self._connection, run)[1] for run in runs.values())
        written = list(self._recordings(runs))
        for run in runs.values():
            self._attempts(run)
        return Added(
            runs=runs_new,
            recordings=len(written),
            calls=sum(each.calls for each in written),
            cases_new=self._new,
            cases_known=len(self._seen) - self._new,
        )

    def _recordings(self, runs: Mapping[str, StoredRun]) -> Iterator[Added]:
        """Write the Recordings that are greater than what is there, and yield what that did."""
        held = _ranks(self._connection)
        for key, head in _heads(self._source):
            rank = held.get((head.run_id, head.process))
            if rank is None or rank < head.rank:
                prepared = _prepared(self._source, key, head, runs[head.run_id])
                added = write_recording(self._connection, prepared)
                self._new += added.cases_new
                self._seen.update(group.case_id for group, _ in prepared.executions)
                yield added
            elif rank == head.rank:
                self._seen.update(_case_ids(self._source, key))

    def _attempts(self, run: StoredRun) -> None:
        for batch in batches(_attempts(self._source, run.run_id), _AT_ONCE):
            ids = {attempt.case_id for attempt in batch}
            known = keys_of(self._connection, schema.CASES.c.case_id, ids)
            missing = sorted(ids - known.keys())
            write_cases(self._connection, missing, lambda ids: _described(self._source, ids))
            run_key, _ = write_run(self._connection, run)
            write_attempts(self._connection, run_key, batch)
            self._new += len(missing)
            self._seen |= ids


def _ranks(connection: Connection) -> dict[tuple[str, int], tuple[bool, int, int, str]]:
    """Return the ranks of all Recordings that are there, by what they are parts of."""
    table = schema.RECORDINGS.c
    rows = connection.execute(
        select(schema.RUNS.c.run_id, table.process, table.complete)
        .add_columns(table.calls, table.size, table.digest)
        .join_from(schema.RECORDINGS, schema.RUNS)
    )
    heads = [Head(*row) for row in rows]
    return {(head.run_id, head.process): head.rank for head in heads}


def _heads(source: Source) -> list[tuple[int, Head]]:
    return [
        (key, Head(run_id, process, bool(complete), *rest))
        for key, run_id, process, complete, *rest in source.rows(queries.RECORDINGS, {})
    ]


def _runs(source: Source) -> Iterator[StoredRun]:
    for run_id, kind, what, model, *rest in source.rows(_RUNS, {}):
        started_at, finished_at, machine, content, *environment = rest
        yield StoredRun(
            *(run_id, kind, what, model, StoredEnvironment(*environment)),
            *(started_at, finished_at, machine, content),
        )


def _prepared(source: Source, key: int, head: Head, run: StoredRun) -> Prepared:
    """Return a Recording of another trove, as it is there."""
    asked = {"key": key}
    scopes = [StoredScope(*row) for row in source.rows(_SCOPES, asked)]
    endings = [
        StoredEnding(ending_id, bool(raised), content)
        for ending_id, raised, content in source.rows(_ENDINGS, asked)
    ]
    ((dictionary,),) = source.rows(queries.DICTIONARY, asked)
    return Prepared(
        head=head,
        run=run,
        executions=[_execution(row) for row in source.rows(_EXECUTIONS, asked)],
        described=lambda ids: _described(source, ids),
        scopes={scope.scope_id: scope for scope in scopes},
        endings={ending.ending_id: ending for ending in endings},
        tests=[StoredTest(*row) for row in source.rows(_TESTS, asked)],
        dictionary=None if dictionary is None else bytes(dictionary),
        blocks=(
            CallBlock(first, calls, bytes(content))
            for first, calls, content in source.rows(queries.BLOCKS, asked)
        ),
    )


def _execution(row: tuple[Any, ...]) -> tuple[Grouped, Counted]:
    case_id, scope_id, ending_id, outcome, outermost, *counted = row
    return Grouped(case_id, scope_id, ending_id, outcome, bool(outermost)), Counted(*counted)


def _case_ids(source: Source, key: int) -> Iterator[str]:
    return (case_id for (case_id,) in source.rows(_CASE_IDS, {"key": key}))


def _described(source: Source, ids: Sequence[str]) -> Iterator[DescribedCase]:
    for batch in batches(ids, _AT_ONCE):
        tensors: dict[str, list[TensorFacts]] = {}
        for case_id, *facts in source.rows(*listed(queries.TENSORS, "ids", batch)):
            tensors.setdefault(case_id, []).append(TensorFacts(*facts))
        rows = source.rows(*listed(_CASES, "ids", batch))
        for case_id, semantic_id, family_id, op, replayable, content in rows:
            yield DescribedCase(
                *(case_id, semantic_id, family_id, op, bool(replayable), content),
                tensors=tuple(tensors.get(case_id, ())),
            )


def _attempts(source: Source, run_id: str) -> Iterator[StoredAttempt]:
    for batch in batches(source.rows(_ATTEMPTS, {"run_id": run_id}), _AT_ONCE):
        measured: dict[int, list[StoredMeasurement]] = {}
        asked = listed(_MEASUREMENTS, "keys", [row[0] for row in batch])
        for key, name, value, threshold, passed, output in source.rows(*asked):
            kept = None if passed is None else bool(passed)
            each = StoredMeasurement(name, value, threshold, kept, output)
            measured.setdefault(key, []).append(each)
        for row in batch:
            facts = (*row[1:], tuple(measured.get(row[0], ())))
            yield StoredAttempt._make(facts)

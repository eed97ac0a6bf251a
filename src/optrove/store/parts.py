"""What a trove holds, part by part, as other troves take it in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from optrove.model.trove import CallBlock, DescribedCase, TensorFacts
from optrove.store import queries
from optrove.store.answers import batches
from optrove.store.attempts import StoredAttempt, StoredMeasurement
from optrove.store.stored import (
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

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

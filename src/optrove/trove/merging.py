"""Merge troves, find the parts of a trove that another one lacks, and remove runs.

Of two versions of the same part of the same Run, their ranks alone decide which one is kept. So
the order, number and grouping of merges do not matter.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from optrove.model.trove import Added, CallBlock, DescribedCase, TensorFacts
from optrove.trove import reader as queries
from optrove.trove.database import batches
from optrove.trove.opening import reading, sum_of, writing
from optrove.trove.query import run_named
from optrove.trove.recordings import (
    Ending,
    Execution,
    Recording,
    RecordingHead,
    StoredAttempt,
    StoredEnvironment,
    StoredRun,
    StoredSweep,
)
from optrove.trove.writing import (
    keys_of,
    write_attempts,
    write_missing_cases,
    write_recording,
    write_run,
    write_runs,
    write_sweep,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from optrove.model.trove import Removed
    from optrove.trove.database import Connection
    from optrove.trove.opening import Recovered


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
_SWEEP_RANKS: Final = """
SELECT r.run_id, s.plan_id, s.content FROM sweeps s JOIN runs r ON r.key = s.run_key
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


class Parts(Protocol):
    """The content of another trove; within a snapshot all of it is of one state."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer everything inside the block from one state of the trove."""

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""

    def heads(self) -> list[tuple[int, RecordingHead]]:
        """Return the heads of all Recordings, each with its key."""

    def recording(self, key: int, head: RecordingHead, run: StoredRun) -> Recording:
        """Return a whole Recording."""

    def case_ids(self, key: int) -> Iterator[str]:
        """Yield the ids of the Cases of a Recording."""

    def described(self, ids: Sequence[str]) -> Iterator[DescribedCase]:
        """Yield Cases by their ids."""

    def planned_runs(self) -> frozenset[str]:
        """Return the ids of the Runs that are sweeps."""

    def sweep(self, run_id: str) -> StoredSweep | None:
        """Return the request and the plan of a sweep; None when the Run is not a sweep."""

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""


class TroveParts:
    """The content of a trove, unchanged."""

    def __init__(self, source: Connection) -> None:
        self._source = source

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer everything inside the block from one state of the trove."""
        return self._source.snapshot()

    def runs(self) -> Iterator[StoredRun]:
        """Yield all Runs, by their ids."""
        for run_id, kind, what, model, *rest in self._source.rows(_RUNS):
            started_at, finished_at, machine, content, *environment = rest
            yield StoredRun(
                *(run_id, kind, what, model, StoredEnvironment(*environment)),
                *(started_at, finished_at, machine, content),
            )

    def heads(self) -> list[tuple[int, RecordingHead]]:
        """Return the heads of all Recordings, each with its key."""
        return [
            (key, RecordingHead(run_id, process, bool(complete), *rest))
            for key, run_id, process, complete, *rest in self._source.rows(queries.RECORDINGS)
        ]

    def recording(self, key: int, head: RecordingHead, run: StoredRun) -> Recording:
        """Return a whole Recording."""
        ((dictionary,),) = self._of(queries.DICTIONARY, key)
        return Recording(
            head=head,
            run=run,
            executions=[
                Execution(case_id, scope_id, ending_id, outcome, bool(outermost), *counted)
                for case_id, scope_id, ending_id, outcome, outermost, *counted in self._of(
                    _EXECUTIONS, key
                )
            ],
            described=self.described,
            scopes={name: tuple(row) for name, *row in self._of(_SCOPES, key)},
            endings={
                name: Ending(bool(raised), content)
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
        """Return the ids of the Runs that are sweeps."""
        return frozenset(run_id for (run_id,) in self._source.rows(_PLANNED_RUNS))

    def sweep(self, run_id: str) -> StoredSweep | None:
        """Return the request and the plan of a sweep; None when the Run is not a sweep."""
        asked = {"run_id": run_id}
        for content, plan_id in self._source.fetch(queries.SWEEP, asked):
            planned = map(queries.planned_case, self._source.rows(queries.PLANNED, asked))
            return StoredSweep(plan_id, content, tuple(planned))
        return None

    def attempt_ids(self, run_id: str) -> list[str]:
        """Return the ids of the Attempts of a Run."""
        return [found for (found,) in self._source.rows(_ATTEMPT_IDS, {"run_id": run_id})]

    def attempts(self, ids: Iterable[str]) -> Iterator[StoredAttempt]:
        """Yield Attempts by their ids."""
        for batch in batches(ids, _AT_ONCE):
            rows = self._source.fetch(_ATTEMPTS, {"ids": batch})
            measured: dict[int, list[tuple[Any, ...]]] = {}
            asked = {"keys": [row[0] for row in rows]}
            for key, name, value, threshold, passed, output in self._source.rows(
                _MEASUREMENTS, asked
            ):
                each = (name, value, threshold, None if passed is None else bool(passed), output)
                measured.setdefault(key, []).append(each)
            for row in rows:
                yield StoredAttempt._make((*row[1:], tuple(measured.get(row[0], ()))))

    def _of(self, sql: str, key: int) -> Iterator[tuple[Any, ...]]:
        """Yield rows that belong to a Recording."""
        return self._source.rows(sql, {"key": key})


ATTEMPTS_AT_ONCE: Final = 2_000
_RUNS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Written:
    """Numbers of rows that were added; ``case_ids`` are the Cases that were involved."""

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
    head: RecordingHead

    @property
    def size(self) -> int:
        """Return the number of its calls."""
        return self.head.calls

    def take(self, connection: Connection, parts: Parts, run: StoredRun) -> Written:
        """Add it, or replace one of a lower rank."""
        recording = parts.recording(self.key, self.head, run)
        added = write_recording(connection, recording)
        return Written(
            runs=added.runs,
            recordings=added.recordings,
            calls=added.calls,
            cases_new=added.cases_new,
            case_ids=frozenset(each.case_id for each in recording.executions),
        )


@dataclass(frozen=True, slots=True)
class TakeSweep:
    """The request of a sweep, and its plan."""

    sweep: StoredSweep

    @property
    def size(self) -> int:
        """Return the number of planned Cases."""
        return len(self.sweep.planned)

    def take(self, connection: Connection, parts: Parts, run: StoredRun) -> Written:
        """Add it unless one of a higher rank is there."""
        ids = frozenset(each.case_id for each in self.sweep.planned)
        cases_new = write_missing_cases(connection, ids, parts.described)
        run_key, runs = write_run(connection, run)
        write_sweep(connection, run_key, self.sweep)
        return Written(runs=runs, cases_new=cases_new, case_ids=ids)


@dataclass(frozen=True, slots=True)
class TakeAttempts:
    """Some Attempts of a Run."""

    ids: tuple[str, ...]

    @property
    def size(self) -> int:
        """Return the number of Attempts."""
        return len(self.ids)


Step: TypeAlias = TakeRun | TakeRecording | TakeSweep | TakeAttempts
"""A part of another trove that is missing here, or of a lower rank; it can be taken twice.

``size`` is the number of calls, planned Cases or attempts.
"""


@dataclass(frozen=True, slots=True)
class Lacking:
    """The parts of one Run that a trove lacks, in the order in which to take them."""

    run: StoredRun
    steps: tuple[Step, ...]


def merge(connection: Connection, parts: Parts) -> Added:
    """Add everything of another trove that is missing here, or here of a lower rank."""
    with parts.snapshot():
        held = Held(connection)
        seen: set[str] = set()
        runs = batches(lacking(connection, parts, held), _RUNS_AT_ONCE)
        written = [take(connection, parts, some) for some in runs]
        for key, head in parts.heads():
            if held.recordings.get((head.run_id, head.process)) == head.rank:
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
    """Add missing parts of some Runs: all Runs, recordings and plans, then Attempts.

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
    """Add those Attempts that are not there yet; ``runs`` has the keys of their Runs by id."""
    attempts = list(parts.attempts(runs))
    ids = frozenset(attempt.case_id for attempt in attempts)
    cases_new = write_missing_cases(connection, ids, parts.described)
    added = write_attempts(connection, ((runs[each.attempt_id], each) for each in attempts))
    return Written(attempts=added, cases_new=cases_new, case_ids=ids)


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
    """The ranks of the Runs, Recordings and sweeps that a trove holds."""

    def __init__(self, connection: Connection) -> None:
        parts = TroveParts(connection)
        self.runs = {run.run_id: run.rank for run in parts.runs()}
        self.recordings = {(head.run_id, head.process): head.rank for _, head in parts.heads()}
        self.sweeps = {
            run_id: (plan_id, content)
            for run_id, plan_id, content in connection.fetch(_SWEEP_RANKS)
        }


def lacking(connection: Connection, parts: Parts, held: Held) -> Iterator[Lacking]:
    """Yield the parts of another trove that are missing here, or of a lower rank, Run by Run."""
    recordings: dict[str, list[Step]] = {}
    for key, head in parts.heads():
        rank = held.recordings.get((head.run_id, head.process))
        if rank is None or rank < head.rank:
            recordings.setdefault(head.run_id, []).append(TakeRecording(key, head))
    planned = parts.planned_runs()
    for run in list(parts.runs()):
        known = held.runs.get(run.run_id)
        steps: list[Step] = [TakeRun()] if known is None or known < run.rank else []
        steps += recordings.get(run.run_id, ())
        # In the Run of a sweep a Case has one Attempt, so the sweep comes before the Attempts.
        sweep = parts.sweep(run.run_id) if run.run_id in planned else None
        if sweep is not None:
            rank_here = held.sweeps.get(run.run_id)
            if rank_here is None or rank_here < sweep.rank:
                steps.append(TakeSweep(sweep))
        offered = parts.attempt_ids(run.run_id)
        # The id of an Attempt is also made from that of its Run.
        tried = {} if known is None else keys_of(connection, "attempts", offered)
        missing = (each for each in offered if each not in tried)
        steps += [TakeAttempts(tuple(batch)) for batch in batches(missing, ATTEMPTS_AT_ONCE)]
        if steps:
            yield Lacking(run, tuple(steps))


@dataclass(frozen=True, slots=True)
class Merged:
    """The trove that was merged into, and the numbers of rows that were added."""

    store: str
    added: Added


def merge_into(output: str, troves: Sequence[str], tell: Callable[[Recovered], object]) -> Merged:
    """Add the content of these troves to ``output``, or nothing if one cannot be read."""
    with ExitStack() as stack:
        readers = [stack.enter_context(reading(each, tell)) for each in troves]
        trove = stack.enter_context(writing(output, tell))
        with trove.together():
            added = sum_of(map(trove.merge, readers))
    return Merged(output, added)


def remove_runs(
    store: str | None, names: Sequence[str], tell: Callable[[Recovered], object]
) -> tuple[tuple[str, Removed], ...]:
    """Remove these runs, or none if one is not found; return the removed rows of each."""
    with writing(store, tell, create=False) as trove:
        with trove.reader() as reader:
            ids = tuple(dict.fromkeys(run_named(reader, name) for name in names))
        with trove.together():
            return tuple((run_id, trove.remove_run(run_id)) for run_id in ids)

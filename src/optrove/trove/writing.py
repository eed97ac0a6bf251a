"""Write recordings, attempts and sweeps, and remove runs, within the caller's transaction.

Only one process writes at a time, so a writer numbers the rows that it adds by itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from optrove.errors import BadData, Fault
from optrove.model.records import OUT_OF_BUDGET
from optrove.model.trove import Added, Removed
from optrove.trove import derived
from optrove.trove.database import batches, insert_new, keys_of, next_key, storable
from optrove.trove.recordings import RecordingHead
from optrove.trove.sessions import write_sessions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optrove.model.trove import DescribedCase
    from optrove.trove.database import Connection
    from optrove.trove.recordings import (
        Describe,
        Recording,
        StoredAttempt,
        StoredEnvironment,
        StoredRun,
        StoredSweep,
    )

_BATCH_SIZE: Final = 2_000


def write_recording(connection: Connection, recording: Recording) -> Added:
    """Add a Recording, or replace one of a lower rank; change nothing otherwise."""
    run_key, runs_new = write_run(connection, recording.run)
    write_sessions(connection, run_key, recording.sessions)
    ids = {each.case_id for each in recording.executions}
    held = _held_recording(connection, run_key, recording.head)
    if held is not None and held[1].rank >= recording.head.rank:
        return Added(runs=runs_new, cases_known=len(ids))
    candidates = (
        _UnusedCandidates() if held is None else _remove_recording(connection, run_key, held[0])
    )
    known = keys_of(connection, "cases", ids)
    missing = sorted(ids - known.keys())
    first_new = next_key(connection, "cases")
    usage = _usage(connection, run_key, recording) if missing else {}
    cases = {**known, **write_cases(connection, missing, recording.described, usage)}
    recording_key = _write_parts(connection, run_key, recording)
    _write_executions(connection, recording_key, recording, cases)
    derived.count_calls(connection, recording_key, 1, first_new)
    derived.sum_ops(connection, run_key)
    derived.add_origin(connection, run_key, recording_key)
    if held is not None:
        derived.recount_origins(connection, candidates.cases)
        _remove_unused(connection, candidates)
    before = 0 if held is None else held[1].calls
    return Added(
        runs=runs_new,
        recordings=1,
        calls=recording.head.calls - before,
        cases_new=len(missing),
        cases_known=len(known),
    )


class _Usage(NamedTuple):
    """The derived columns of a new Case that only one Recording calls."""

    calls: int = 0
    outermost_calls: int = 0
    origin_set_key: int | None = None


def _usage(connection: Connection, run_key: int, recording: Recording) -> dict[str, _Usage]:
    """Return the usage of Cases by a Recording, as ``derived`` computes it for known Cases."""
    calls: Counter[str] = Counter()
    outermost: Counter[str] = Counter()
    for each in recording.executions:
        calls[each.case_id] += each.calls
        if each.outermost:
            outermost[each.case_id] += each.calls
    origins = derived.origin_set_key(connection, run_key)
    return {
        name: _Usage(count, outermost[name], origins if name in outermost else None)
        for name, count in calls.items()
    }


_HELD_RECORDING: Final = """
SELECT key, complete, calls, size, digest FROM recordings
WHERE run_key = :run_key AND process = :process
"""


def _held_recording(
    connection: Connection, run_key: int, head: RecordingHead
) -> tuple[int, RecordingHead] | None:
    """Return the key and head of the Recording of the same process of the same Run, if any."""
    asked = {"run_key": run_key, "process": head.process}
    for key, complete, *facts in connection.fetch(_HELD_RECORDING, asked):
        return key, RecordingHead(head.run_id, head.process, bool(complete), *facts)
    return None


def _write_parts(connection: Connection, run_key: int, recording: Recording) -> int:
    """Add the row of a Recording with its calls and tests, and return its key."""
    head, key = recording.head, next_key(connection, "recordings")
    connection.insert(
        "recordings (key, run_key, process, complete, calls, size, digest, dictionary)",
        [(key, run_key, *head[1:], recording.dictionary)],
    )
    connection.insert(
        "call_blocks (recording_key, first, calls, content)",
        ((key, block.first, block.count, block.content) for block in recording.blocks),
    )
    connection.insert(
        "tests (recording_key, place, test_id, outcome, content)",
        ((key, place, *test) for place, test in enumerate(recording.tests)),
    )
    return key


def _write_executions(
    connection: Connection, key: int, recording: Recording, cases: Mapping[str, int]
) -> None:
    scopes: dict[str | None, int | None] = {None: None}
    facts = {name: (name, *row) for name, row in recording.scopes.items()}
    columns = "scope_id, test_id, phase, module, mode, device"
    scopes.update(insert_new(connection, "scopes", columns, facts))
    endings: dict[str | None, int | None] = {None: None}
    contents = {name: (name, *each) for name, each in recording.endings.items()}
    endings.update(insert_new(connection, "endings", "ending_id, raised, content", contents))
    connection.insert(
        "executions (recording_key, place, case_key, scope_key, ending_key, outcome, outermost, "
        "calls, total_ns, shortest_ns, longest_ns)",
        (
            (
                *(key, place, cases[each.case_id]),
                *(scopes[each.scope_id], endings[each.ending_id], *each[3:]),
            )
            for place, each in enumerate(recording.executions)
        ),
    )
    connection.insert(
        "config_calls (recording_key, place, path, case_key, calls)",
        (
            (key, place, path, cases[case_id], calls)
            for place, (path, case_id, calls) in enumerate(recording.config_calls)
        ),
    )


def write_cases(
    connection: Connection,
    missing: Sequence[str],
    describe: Describe,
    usage: Mapping[str, _Usage] = MappingProxyType({}),
) -> dict[str, int]:
    """Add Cases that are not there, with their usage, and return their keys."""
    keys: dict[str, int] = {}
    for batch in batches(missing, _BATCH_SIZE):
        cases = list(describe(batch))
        first = next_key(connection, "cases")
        new = {case.case_id: key for key, case in enumerate(cases, first)}
        _write_cases(connection, cases, new, usage)
        keys.update(new)
    return keys


def _write_cases(
    connection: Connection,
    cases: Sequence[DescribedCase],
    keys: Mapping[str, int],
    usage: Mapping[str, _Usage],
) -> None:
    tensor_sets = derived.tensor_set_keys(
        connection,
        (
            ((each.dtype, each.layout, each.memory, each.mesh) for each in case.tensors)
            for case in cases
        ),
    )
    connection.insert(
        "cases (key, case_id, semantic_id, family_id, op, replayable, tensor_set_key, calls, "
        "outermost_calls, origin_set_key)",
        (
            (
                *(keys[case.case_id], case.case_id, case.semantic_id, case.family_id),
                *(storable(case.op), case.replayable, tensor_set_key),
                *usage.get(case.case_id, _Usage()),
            )
            for case, tensor_set_key in zip(cases, tensor_sets, strict=True)
        ),
    )
    connection.insert(
        "contents (case_key, content)", ((keys[case.case_id], case.content) for case in cases)
    )
    connection.insert(
        "case_tensors (case_key, place, argument, shape, dtype, layout, memory, mesh)",
        (
            (
                *(keys[case.case_id], each.place, each.argument, each.shape),
                *(each.dtype, each.layout, each.memory, each.mesh),
            )
            for case in cases
            for each in case.tensors
        ),
    )


def write_missing_cases(connection: Connection, ids: Iterable[str], describe: Describe) -> int:
    """Add those Cases that are not there yet, and return how many they are."""
    wanted = set(ids)
    missing = sorted(wanted - keys_of(connection, "cases", wanted).keys())
    write_cases(connection, missing, describe)
    return len(missing)


def write_run(connection: Connection, run: StoredRun) -> tuple[int, int]:
    """Add or update a Run; return its key, and one if it is new."""
    keys, new = write_runs(connection, [run])
    return keys[run.run_id], new


_HELD_RUNS: Final = """
SELECT r.run_id, r.key, r.environment_key, r.finished_at, r.content, e.content, r.machine
FROM runs r JOIN environments e ON e.key = r.environment_key
WHERE r.run_id IN :ids
"""
_REPLACE_RUN: Final = """
UPDATE runs SET kind = :kind, source = :source, model = :model, environment_key = :environment_key,
    started_at = :started_at, finished_at = :finished_at, machine = :machine, content = :content
WHERE run_id = :run_id
"""
_ORIGIN: Final = """
SELECT coalesce(r.model, r.source), e.board
FROM runs r JOIN environments e ON e.key = r.environment_key WHERE r.key = :run_key
"""
_CALLED: Final = "SELECT case_key FROM usage WHERE run_key = :run_key AND outermost_calls > 0"
_ENVIRONMENT: Final = (
    "environment_id, device_kind, board, arch, ttnn_version, torch_version, git_sha, content"
)


def write_runs(connection: Connection, runs: Sequence[StoredRun]) -> tuple[dict[str, int], int]:
    """Add or update Runs; return their keys by id, and how many are new.

    Of two accounts of the same Run, the one of the higher rank is kept.
    """
    keys: dict[str, int] = {}
    missing: dict[str, StoredRun] = {}
    for batch in batches(runs, _BATCH_SIZE):
        rows = connection.fetch(_HELD_RUNS, {"ids": [run.run_id for run in batch]})
        held = {run_id: row for run_id, *row in rows}
        for run in batch:
            if run.run_id not in held:
                missing[run.run_id] = run
                continue
            key, environment_key, finished_at, *rest = held[run.run_id]
            keys[run.run_id] = key
            if (finished_at is not None, *rest) < run.rank:
                _replace_run(connection, key, environment_key, run)
    if missing:
        keys.update(_add_runs(connection, missing))
    return keys, len(missing)


def _add_runs(connection: Connection, runs: Mapping[str, StoredRun]) -> dict[str, int]:
    environments = _write_environments(connection, (run.environment for run in runs.values()))
    keys = {run_id: key for key, run_id in enumerate(runs, next_key(connection, "runs"))}
    connection.insert(
        "runs (key, run_id, kind, source, model, environment_key, started_at, finished_at, "
        "machine, content)",
        (
            (
                *(keys[run.run_id], run.run_id, run.kind, run.source, run.model),
                environments[run.environment.environment_id],
                *(run.started_at, run.finished_at, run.machine, run.content),
            )
            for run in runs.values()
        ),
    )
    return keys


def _replace_run(connection: Connection, key: int, old_environment: int, run: StoredRun) -> None:
    before = connection.fetch(_ORIGIN, {"run_key": key})
    environments = _write_environments(connection, [run.environment])
    values = run._asdict()
    values["environment_key"] = environments[values.pop("environment").environment_id]
    connection.execute(_REPLACE_RUN, values)
    if values["environment_key"] != old_environment:
        _remove(connection, "environments", [old_environment])
    if connection.fetch(_ORIGIN, {"run_key": key}) != before:
        called = connection.fetch(_CALLED, {"run_key": key})
        derived.recount_origins(connection, chain(*called))
        derived.remove_unused(connection)


def _write_environments(
    connection: Connection, environments: Iterable[StoredEnvironment]
) -> dict[str, int]:
    rows = {each.environment_id: each for each in environments}
    return insert_new(connection, "environments", _ENVIRONMENT, rows)


def write_attempts(connection: Connection, attempts: Iterable[tuple[int, StoredAttempt]]) -> int:
    """Add those Attempts that are not there yet, and return how many they are.

    Each comes with the key of its Run. BadData when the trove does not hold a Case that was
    attempted. In the Run of a sweep a Case has one Attempt, the earliest of all that were ever
    added.
    """
    by_id = {attempt.attempt_id: (run_key, attempt) for run_key, attempt in attempts}
    known = keys_of(connection, "attempts", by_id)
    new = [by_id[name] for name in sorted(by_id.keys() - known.keys())]
    new, replaced = _first_of_sweeps(connection, new)
    cases = keys_of(connection, "cases", (each.case_id for _, each in new))
    check_known(each.case_id for _, each in new if each.case_id not in cases)
    first = next_key(connection, "attempts")
    connection.insert(
        "attempts (key, run_key, attempt_id, case_key, outcome, device_kind, board, seed, detail, "
        "notes, started_at, duration_ns, replayed_case_id, content)",
        (
            (key, run_key, each.attempt_id, cases[each.case_id], *each[2:-1])
            for key, (run_key, each) in enumerate(new, first)
        ),
    )
    connection.insert(
        "measurements (attempt_key, place, name, value, threshold, passed, output)",
        (
            (key, place, *measurement)
            for key, (_, each) in enumerate(new, first)
            for place, measurement in enumerate(each.measurements)
        ),
    )
    derived.count_attempts(connection, first)
    for run_key, case_keys in replaced.items():
        derived.recount_run(connection, run_key)
        derived.recount_cases(connection, case_keys)
    return len(new)


_SWEEPS_AMONG: Final = "SELECT run_key FROM sweeps WHERE run_key IN :keys"
_HELD_ATTEMPTS: Final = """
SELECT c.key, c.case_id, a.detail, a.started_at, a.attempt_id
FROM attempts a JOIN cases c ON c.key = a.case_key
WHERE a.run_key = :run_key AND c.case_id IN :ids
"""
_REMOVE_ATTEMPTS: Final = "DELETE FROM attempts WHERE attempt_id IN :ids"


def _first_of_sweeps(
    connection: Connection, found: Sequence[tuple[int, StoredAttempt]]
) -> tuple[list[tuple[int, StoredAttempt]], dict[int, set[int]]]:
    """Return the Attempts to add: in the Run of a sweep, the first for each Case.

    Remove those that they replace, and return the keys of their Cases by the keys of Runs.
    """
    keys = sorted({run_key for run_key, _ in found})
    sweeps = {key for (key,) in connection.fetch(_SWEEPS_AMONG, {"keys": keys})}
    kept: set[str] = set()
    replaced: dict[int, set[int]] = {}
    for sweep in sorted(sweeps):
        first, cases = _first(connection, sweep, [each for key, each in found if key == sweep])
        kept |= first
        if cases:
            replaced[sweep] = cases
    new = [(key, each) for key, each in found if key not in sweeps or each.attempt_id in kept]
    return new, replaced


def _first(
    connection: Connection, run_key: int, found: Sequence[StoredAttempt]
) -> tuple[set[str], set[int]]:
    """Return the ids of those that are the first for their Cases; remove later ones.

    The keys of the Cases of which some were removed come with them.
    """
    first: dict[str, tuple[bool, str, str]] = {}
    for each in found:
        rank = _rank(each.detail, each.started_at, each.attempt_id)
        first[each.case_id] = min(rank, first.get(each.case_id, rank))
    later: list[str] = []
    replaced: set[int] = set()
    for batch in batches(sorted(first), _BATCH_SIZE):
        held = connection.fetch(_HELD_ATTEMPTS, {"run_key": run_key, "ids": batch})
        for case_key, case_id, *facts in held:
            if _rank(*facts) < first[case_id]:
                del first[case_id]
            else:
                later.append(facts[-1])
                replaced.add(case_key)
    for batch in batches(later, _BATCH_SIZE):
        connection.execute(_REMOVE_ATTEMPTS, {"ids": batch})
    return {attempt_id for _, _, attempt_id in first.values()}, replaced


def _rank(detail: str | None, started_at: str | None, attempt_id: str) -> tuple[bool, str, str]:
    """Return the order of Attempts: one that a budget interrupted comes after all others."""
    return (detail or "").startswith(OUT_OF_BUDGET), started_at or "", attempt_id


def check_known(unknown: Iterable[str]) -> None:
    """Raise BadData when there are Cases that a trove does not hold."""
    problem = "was attempted or planned, but is not in the trove; add it first"
    faults = [Fault(f"case {case_id}", problem) for case_id in dict.fromkeys(unknown)]
    if faults:
        raise BadData(tuple(faults))


_ANY_ATTEMPT: Final = "SELECT 1 FROM attempts WHERE run_key = :run_key LIMIT 1"
_HELD_SWEEP: Final = "SELECT plan_id, content FROM sweeps WHERE run_key = :run_key"
_REMOVE_SWEEP: Final = (
    "DELETE FROM planned WHERE run_key = :run_key",
    "DELETE FROM sweeps WHERE run_key = :run_key",
)


def write_sweep(connection: Connection, run_key: int, sweep: StoredSweep) -> None:
    """Add a sweep and its plan, whose Cases are there; nothing if one of a higher rank is there."""
    for plan_id, content in connection.fetch(_HELD_SWEEP, {"run_key": run_key}):
        if (plan_id, content) >= sweep.rank:
            return
        for statement in _REMOVE_SWEEP:
            connection.execute(statement, {"run_key": run_key})
    keys = keys_of(connection, "cases", (each.case_id for each in sweep.planned))
    connection.insert("sweeps (run_key, plan_id, content)", [(run_key, *sweep.rank)])
    connection.insert(
        "planned (run_key, place, case_key, suite, device_kind, board)",
        (
            (run_key, place, keys[each.case_id], each.suite, each.device_kind.value, each.board)
            for place, each in enumerate(sweep.planned)
        ),
    )
    # The suites of its Attempts are those of the plan.
    if connection.fetch(_ANY_ATTEMPT, {"run_key": run_key}):
        derived.recount_run(connection, run_key)
        derived.remove_unused(connection)


@dataclass(slots=True)
class _UnusedCandidates:
    """The keys of rows that may have become unused, because a row that used them is gone."""

    cases: set[int] = field(default_factory=set)
    scopes: set[int] = field(default_factory=set)
    endings: set[int] = field(default_factory=set)


_RUN: Final = "SELECT key, environment_key FROM runs WHERE run_id = :run_id"
_RUN_RECORDINGS: Final = "SELECT key, calls FROM recordings WHERE run_key = :run_key"
_TRIED_OR_PLANNED: Final = """
SELECT case_key FROM attempts WHERE run_key = :run_key
UNION SELECT case_key FROM planned WHERE run_key = :run_key
"""
_REMOVE_RUN: Final = (
    "DELETE FROM attempts WHERE run_key = :run_key",
    "DELETE FROM runs WHERE key = :run_key",
)
_USED: Final = """
SELECT DISTINCT case_key, scope_key, ending_key FROM executions WHERE recording_key = :key
"""
_REMOVE_RECORDING: Final = "DELETE FROM recordings WHERE key = :key"
_REMOVE_USAGE: Final = """
DELETE FROM usage WHERE run_key = :run_key AND NOT EXISTS (
    SELECT 1 FROM executions x JOIN recordings g ON g.key = x.recording_key
    WHERE g.run_key = :run_key AND g.key <> :key AND x.case_key = usage.case_key)
"""
_REMOVE_UNUSED: Final = {
    "scopes": """
DELETE FROM scopes WHERE key IN :keys
    AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.scope_key = scopes.key)
""",
    "endings": """
DELETE FROM endings WHERE key IN :keys
    AND NOT EXISTS (SELECT 1 FROM executions x WHERE x.ending_key = endings.key)
""",
    "cases": """
DELETE FROM cases WHERE key IN :keys
    AND NOT EXISTS (SELECT 1 FROM usage x WHERE x.case_key = cases.key)
    AND NOT EXISTS (SELECT 1 FROM attempts x WHERE x.case_key = cases.key)
    AND NOT EXISTS (SELECT 1 FROM planned x WHERE x.case_key = cases.key)
    AND NOT EXISTS (SELECT 1 FROM config_calls x WHERE x.case_key = cases.key)
""",
    "environments": """
DELETE FROM environments WHERE key IN :keys
    AND NOT EXISTS (SELECT 1 FROM runs x WHERE x.environment_key = environments.key)
""",
}


def remove_run(connection: Connection, run_id: str) -> Removed:
    """Remove a Run and all rows that nothing else uses; nothing when there is no such Run."""
    for run_key, environment_key in connection.fetch(_RUN, {"run_id": run_id}):
        asked = {"run_key": run_key}
        recordings = connection.fetch(_RUN_RECORDINGS, asked)
        tried = set(chain(*connection.fetch(_TRIED_OR_PLANNED, asked)))
        called = set(chain(*connection.fetch(_CALLED, asked)))
        candidates = _UnusedCandidates(cases=set(tried))
        for key, _ in recordings:
            other = _remove_recording(connection, run_key, key)
            candidates.cases |= other.cases
            candidates.scopes |= other.scopes
            candidates.endings |= other.endings
        for statement in _REMOVE_RUN:
            connection.execute(statement, asked)
        _remove(connection, "environments", [environment_key])
        derived.recount_cases(connection, tried)
        derived.recount_origins(connection, called)
        cases = _remove_unused(connection, candidates)
        return Removed(1, len(recordings), sum(calls for _, calls in recordings), cases)
    return Removed(0, 0, 0, 0)


def _remove_recording(connection: Connection, run_key: int, key: int) -> _UnusedCandidates:
    """Remove a Recording and its calls from the derived counts; return the rows that it used."""
    used: Any = list(zip(*connection.fetch(_USED, {"key": key}), strict=True)) or ((), (), ())
    cases, scopes, endings = map(set, used)
    derived.count_calls(connection, key, -1)
    connection.execute(_REMOVE_USAGE, {"run_key": run_key, "key": key})
    connection.execute(_REMOVE_RECORDING, {"key": key})
    return _UnusedCandidates(cases, scopes - {None}, endings - {None})


def _remove_unused(connection: Connection, candidates: _UnusedCandidates) -> int:
    """Remove those rows that nothing refers to any more; return how many Cases that were."""
    _remove(connection, "scopes", candidates.scopes)
    _remove(connection, "endings", candidates.endings)
    cases = _remove(connection, "cases", candidates.cases)
    derived.remove_unused(connection)
    return cases


def _remove(connection: Connection, table: str, keys: Iterable[int]) -> int:
    """Remove rows by their keys unless other rows refer to them; return how many."""
    statement = _REMOVE_UNUSED[table]
    return sum(
        connection.execute(statement, {"keys": batch})
        for batch in batches(sorted(keys), _BATCH_SIZE)
    )

"""Answer what whoever looks through a trove asks: facts to count by, and single cases.

Everything is bounded: lists go on after the last row that was seen, by its key. Whole tables are
read only to make an index of them, which is kept as long as the trove does not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from optrove.trove.database import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.trove.database import Connection

_HARVEST: Final = """
SELECT count(*), coalesce(max(key), 0), coalesce(sum(calls), 0), coalesce(sum(size), 0)
FROM recordings
"""
_CASES: Final = """
SELECT key, case_id, op, family_id, outermost_calls, replayable FROM cases
ORDER BY op, outermost_calls DESC, case_id
"""
_TENSORS: Final = """
SELECT case_key, dtype, layout, memory, mesh FROM case_tensors
"""
_ORIGINS: Final = """
SELECT r.key, coalesce(r.model, r.source), e.board
FROM runs r JOIN environments e ON e.key = r.environment_key
"""
_USES: Final = "SELECT run_key, case_key, outermost_calls FROM usage WHERE outermost_calls > 0"
_TRIED: Final = """
SELECT key, run_key, case_key, board, device_kind, outcome, duration_ns FROM attempts
WHERE key > :seen ORDER BY key
"""
_PCC: Final = """
SELECT attempt_key, value FROM measurements
WHERE attempt_key > :seen AND name = 'pcc' AND value IS NOT NULL ORDER BY attempt_key
"""
_TIMES: Final = """
SELECT c.op, g.run_key, sum(x.calls), sum(x.total_ns)
FROM executions x JOIN cases c ON c.key = x.case_key JOIN recordings g ON g.key = x.recording_key
WHERE x.outermost AND x.total_ns IS NOT NULL GROUP BY c.op, g.run_key
"""
_RUN_FACTS: Final = """
SELECT r.key, r.run_id, r.kind, r.started_at, e.board, coalesce(r.model, r.source)
FROM runs r JOIN environments e ON e.key = r.environment_key
"""
_PLANS: Final = "SELECT count(*), coalesce(max(run_key), 0) FROM sweeps"
_OUTCOMES: Final = "SELECT run_key, outcome, count(*) FROM attempts GROUP BY run_key, outcome"
_OPS: Final = """
SELECT op, count(*), sum(outermost_calls) FROM cases WHERE outermost_calls > 0 GROUP BY op
"""
_LAST_TRIED: Final = "SELECT coalesce(max(key), 0), count(*) FROM attempts"
_LISTED: Final = """
SELECT c.key, c.case_id, c.replayable, c.outermost_calls, t.content
FROM cases c JOIN contents t ON t.case_key = c.key WHERE c.key IN :keys
"""
_FACTS: Final = """
SELECT case_key, argument, shape, dtype, layout, memory, mesh FROM case_tensors
WHERE case_key IN :keys ORDER BY case_key, place
"""
_CALLED: Final = """
SELECT u.case_key, sum(u.outermost_calls) FROM usage u
JOIN runs r ON r.key = u.run_key JOIN environments e ON e.key = r.environment_key
WHERE u.case_key IN :keys
    AND (CAST(:model AS text) IS NULL OR coalesce(r.model, r.source) = :model)
    AND (CAST(:board AS text) IS NULL OR e.board = :board)
GROUP BY u.case_key
"""
_CASE: Final = """
SELECT c.key, c.case_id, c.semantic_id, c.family_id, c.op, c.replayable, c.calls,
    c.outermost_calls, t.content
FROM cases c JOIN contents t ON t.case_key = c.key WHERE c.case_id = :case_id
"""
_BEGINNING: Final = """
SELECT case_id FROM cases WHERE case_id >= :first AND case_id < :last ORDER BY case_id LIMIT :most
"""
_EXECUTIONS: Final = """
SELECT r.run_id, r.source, r.model, e.board, r.started_at, s.test_id, s.module, s.mode, x.outcome,
    x.outermost, x.calls, x.total_ns, x.shortest_ns, x.longest_ns, d.raised, d.content
FROM executions x
JOIN recordings g ON g.key = x.recording_key
JOIN runs r ON r.key = g.run_key
JOIN environments e ON e.key = r.environment_key
LEFT JOIN scopes s ON s.key = x.scope_key
LEFT JOIN endings d ON d.key = x.ending_key
WHERE x.case_key = :case_key
ORDER BY x.calls DESC, x.recording_key, x.place
LIMIT :most
"""
_ATTEMPTS: Final = """
SELECT a.key, r.run_id, a.outcome, a.device_kind, a.board, a.seed, a.detail, a.started_at,
    a.duration_ns, a.replayed_case_id
FROM attempts a JOIN runs r ON r.key = a.run_key
WHERE a.case_key = :case_key AND a.key < :before ORDER BY a.key DESC LIMIT :most
"""
_MEASURED: Final = """
SELECT attempt_key, name, value, threshold, passed, output FROM measurements
WHERE attempt_key IN :keys ORDER BY attempt_key, place
"""
_DETAILS: Final = """
SELECT a.key, r.run_id, a.outcome, a.board, a.detail FROM attempts a
JOIN runs r ON r.key = a.run_key WHERE a.key IN :keys
"""
_AT_ONCE: Final = 500
_MANY: Final = 2**62


@dataclass(frozen=True, slots=True)
class CaseFact:
    """What a Case is listed by."""

    key: int
    case_id: str
    op: str
    family_id: str
    calls: int
    replayable: bool


class Tried(NamedTuple):
    """The bare facts of an Attempt."""

    key: int
    run_key: int
    case_key: int
    board: str | None
    device: str
    outcome: str
    duration_ns: int | None


class RunFact(NamedTuple):
    """What a Run is named and sorted by."""

    run_id: str
    kind: str
    started_at: str
    board: str | None
    model: str
    """The model, or else the source."""


def harvest(source: Connection) -> tuple[int, ...]:
    """Return numbers that change whenever Recordings are added, replaced or removed."""
    ((*numbers,),) = source.rows(_HARVEST, {})
    return tuple(map(int, numbers))


def case_facts(source: Connection) -> Iterator[CaseFact]:
    """Yield all Cases, op by op, most calls first, then by their ids."""
    for key, case_id, op, family_id, calls, replayable in source.rows(_CASES, {}):
        yield CaseFact(key, case_id, op, family_id, calls, bool(replayable))


def tensor_facts(source: Connection) -> Iterator[tuple[int, str, str, str, str | None]]:
    """Yield the tensors of all Cases: key of the Case, dtype, layout, memory and mesh."""
    for row in source.rows(_TENSORS, {}):
        yield row[0], row[1], row[2], row[3], row[4]


def origins(source: Connection) -> dict[int, tuple[str, str | None]]:
    """Return the model (or else the source) and the board of every Run, by its key."""
    return {key: (label, board) for key, label, board in source.rows(_ORIGINS, {})}


def uses(source: Connection) -> Iterator[tuple[int, int, int]]:
    """Yield how often Runs have called Cases: both keys, and the outermost calls."""
    for row in source.rows(_USES, {}):
        yield row[0], row[1], row[2]


def tried_since(source: Connection, seen: int) -> Iterator[Tried]:
    """Yield the Attempts that came after the one with this key."""
    return map(Tried._make, source.rows(_TRIED, {"seen": seen}))


def pcc_since(source: Connection, seen: int) -> Iterator[tuple[int, float]]:
    """Yield the PCC of the outputs of Attempts that came after one, with the Attempt's key."""
    return ((key, value) for key, value in source.rows(_PCC, {"seen": seen}))


def op_times(source: Connection) -> Iterator[tuple[str, int, int, int]]:
    """Yield how often and how long in all Runs have called ops: op, key of the Run, both."""
    for op, run_key, calls, total_ns in source.rows(_TIMES, {}):
        yield op, run_key, int(calls), int(total_ns)


def run_facts(source: Connection) -> dict[int, RunFact]:
    """Return what all Runs are named and sorted by, by their keys."""
    return {key: RunFact(*facts) for key, *facts in source.rows(_RUN_FACTS, {})}


def plans(source: Connection) -> tuple[int, ...]:
    """Return numbers that change whenever a plan is added or removed."""
    ((*numbers,),) = source.rows(_PLANS, {})
    return tuple(map(int, numbers))


def outcome_counts(source: Connection) -> Iterator[tuple[int, str, int]]:
    """Yield how many Attempts of Runs ended how: key of the Run, outcome, count."""
    for run_key, outcome, count in source.rows(_OUTCOMES, {}):
        yield run_key, outcome, int(count)


def op_counts(source: Connection) -> Iterator[tuple[str, int, int]]:
    """Yield ops with their Cases and calls, those that only other calls make left out."""
    for op, cases, calls in source.rows(_OPS, {}):
        yield op, int(cases), int(calls)


def last_tried(source: Connection) -> tuple[int, int]:
    """Return the key of the last Attempt, and how many there are."""
    ((key, count),) = source.rows(_LAST_TRIED, {})
    return int(key), int(count)


def listed_cases(source: Connection, keys: Iterable[int]) -> dict[int, tuple[Any, ...]]:
    """Return key, id, replayable, calls and content of Cases by their keys."""
    return {row[0]: row for row in _by_keys(source, _LISTED, keys)}


def facts_of(source: Connection, keys: Iterable[int]) -> dict[int, list[tuple[Any, ...]]]:
    """Return argument, shape, dtype, layout, memory and mesh of each tensor, by Case."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for key, *facts in _by_keys(source, _FACTS, keys):
        found.setdefault(key, []).append(tuple(facts))
    return found


def calls_by(
    source: Connection, keys: Iterable[int], model: str | None, board: str | None
) -> dict[int, int]:
    """Return how often Cases were called by a model and on a board, by their keys."""
    chosen = {"model": model, "board": board}
    return {key: int(calls) for key, calls in _by_keys(source, _CALLED, keys, chosen)}


def case_named(source: Connection, case_id: str) -> tuple[Any, ...] | None:
    """Return a Case by its whole id, with all that its row says."""
    return next(iter(source.rows(_CASE, {"case_id": case_id})), None)


def cases_beginning(source: Connection, prefix: str, most: int) -> tuple[str, ...]:
    """Return the ids of Cases that begin so, a few of them; only hexadecimal digits fit."""
    asked = {"first": prefix, "last": f"{prefix}g", "most": most}
    return tuple(case_id for (case_id,) in source.rows(_BEGINNING, asked))


def executions_of(source: Connection, case_key: int, most: int) -> list[tuple[Any, ...]]:
    """Return who has executed a Case, most calls first, and no more than asked for."""
    return list(source.rows(_EXECUTIONS, {"case_key": case_key, "most": most}))


def attempts_of(
    source: Connection, case_key: int, before: int | None, most: int
) -> list[tuple[Any, ...]]:
    """Return the Attempts at a Case, the last one first, from before one on."""
    asked = {"case_key": case_key, "before": before or _MANY, "most": most}
    return list(source.rows(_ATTEMPTS, asked))


def measured(source: Connection, keys: Iterable[int]) -> dict[int, list[tuple[Any, ...]]]:
    """Return name, value, threshold, passed and output of what was measured, by Attempt."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for key, *values in _by_keys(source, _MEASURED, keys):
        found.setdefault(key, []).append(tuple(values))
    return found


def attempt_details(source: Connection, keys: Iterable[int]) -> dict[int, tuple[Any, ...]]:
    """Return Run, outcome, board and words of Attempts by their keys."""
    return {key: tuple(rest) for key, *rest in _by_keys(source, _DETAILS, keys)}


def _by_keys(
    source: Connection, sql: str, keys: Iterable[int], more: dict[str, Any] | None = None
) -> Iterator[tuple[Any, ...]]:
    for batch in batches(keys, _AT_ONCE):
        yield from source.rows(sql, {"keys": batch, **(more or {})})

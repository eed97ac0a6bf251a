"""Queries about runs: lists, tests, calls, results, comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from optrove.model.ops import HIDDEN_OPS
from optrove.model.records import DeviceKind
from optrove.trove import reader as answers
from optrove.trove.database import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.records import Attempt
    from optrove.trove.database import Connection
    from optrove.trove.reader import TroveReader


# Runs of check-board are stored as replays, and say by their source what they are.
_KIND: Final = """
CASE WHEN r.kind = 'replay' AND substr(r.source, 1, 12) = 'check-board ' THEN 'check-board'
    ELSE r.kind END
"""
_RUNS: Final = f"""
SELECT r.key, r.run_id, {_KIND}, r.source, r.model, e.board, e.device_kind, e.ttnn_version,
    r.started_at, r.finished_at, r.content
FROM runs r JOIN environments e ON e.key = r.environment_key
WHERE (CAST(:kind AS text) IS NULL OR {_KIND} = :kind)
    AND (CAST(:model AS text) IS NULL OR coalesce(r.model, r.source) = :model)
    AND (CAST(:board AS text) IS NULL OR e.board = :board)
    AND (CAST(:day AS text) IS NULL OR r.started_at < :day
        OR (r.started_at = :day AND r.key < :key))
ORDER BY r.started_at DESC, r.key DESC LIMIT :most
"""  # noqa: S608 - our own text
_RUN: Final = f"""
SELECT r.key, r.run_id, {_KIND}, r.source, r.model, e.board, e.device_kind, e.ttnn_version,
    r.started_at, r.finished_at, r.content, e.content
FROM runs r JOIN environments e ON e.key = r.environment_key WHERE r.run_id = :run_id
"""  # noqa: S608 - our own text
_BEGINNING: Final = """
SELECT run_id FROM runs WHERE substr(run_id, 1, :length) = :prefix ORDER BY run_id LIMIT :most
"""
_CALLED: Final = """
SELECT run_key, op, cases, calls, outermost_cases, outermost_calls FROM op_usage
WHERE run_key IN :keys
"""
_PLANNED: Final = "SELECT run_key, count(*) FROM planned WHERE run_key IN :keys GROUP BY run_key"
_TESTED: Final = """
SELECT g.run_key, t.outcome, count(*) FROM recordings g
JOIN tests t ON t.recording_key = g.key WHERE g.run_key IN :keys GROUP BY g.run_key, t.outcome
"""
_COMPLETE: Final = """
SELECT run_key, min(CASE WHEN complete THEN 1 ELSE 0 END) FROM recordings
WHERE run_key IN :keys GROUP BY run_key
"""
_COUNTS: Final = f"SELECT {_KIND}, count(*) FROM runs r GROUP BY 1 ORDER BY 1"  # noqa: S608 - our own
_OPS: Final = """
SELECT op, outermost_cases, outermost_calls FROM op_usage
WHERE run_key = :run_key AND outermost_calls > 0 AND NOT op IN :moving
ORDER BY outermost_calls DESC, op LIMIT :most
"""
_TESTS: Final = """
SELECT t.recording_key, t.place, t.test_id, t.outcome, t.content FROM recordings g
JOIN tests t ON t.recording_key = g.key
WHERE g.run_key = :run_key AND (CAST(:outcome AS text) IS NULL OR t.outcome = :outcome)
    AND (t.recording_key > :recording OR (t.recording_key = :recording AND t.place > :place))
ORDER BY t.recording_key, t.place LIMIT :most
"""
_ATTEMPTS: Final = """
SELECT a.key, c.case_id, c.op, a.outcome, a.board, a.detail, a.started_at, a.duration_ns
FROM attempts a JOIN cases c ON c.key = a.case_key
WHERE a.run_key = :run_key AND a.outcome = :outcome AND a.key > :after
ORDER BY a.key LIMIT :most
"""
_RECORDINGS: Final = """
SELECT key, process, complete, calls FROM recordings WHERE run_key = :run_key
ORDER BY process LIMIT :most
"""
_DICTIONARY: Final = "SELECT dictionary FROM recordings WHERE key = :key"
_BLOCK: Final = """
SELECT first, calls, content FROM call_blocks
WHERE recording_key = :key AND first <= :first ORDER BY first DESC LIMIT 1
"""
_NAMES: Final = "SELECT case_id, op FROM cases WHERE case_id IN :ids"
_OUTPUTS: Final = {
    "sqlite": "json_extract(a.content, '$.outputs')",
    "postgresql": "CAST(a.content AS json) ->> 'outputs'",
}
_JUDGED: Final = """
SELECT a.key, a.case_key, a.outcome, a.device_kind, a.duration_ns, a.detail, p.suite,
    CASE WHEN a.outcome = 'passed' THEN :outputs: END, m.name, m.value, m.output
FROM attempts a
LEFT JOIN planned p ON p.run_key = a.run_key AND p.case_key = a.case_key
LEFT JOIN measurements m ON m.attempt_key = a.key AND m.name IN ('pcc', :time)
"""
_JUDGED_RUN: Final = f"""{_JUDGED}
WHERE a.run_key = :run_key ORDER BY a.outcome, a.key LIMIT :most
"""
# The sign keeps SQLite from going through the whole run.
_JUDGED_CASES: Final = f"""{_JUDGED}
WHERE +a.run_key = :run_key AND a.case_key IN :keys ORDER BY a.key, m.place
"""
_CALLED_KIND: Final = """
    CASE WHEN b.case_key IS NULL THEN 'only_a'
        WHEN b.outermost_calls = a.outermost_calls THEN 'same'
        WHEN b.outermost_calls > a.outermost_calls THEN 'called_more'
        ELSE 'called_less' END
"""
_CALLED_BOTH: Final = """
FROM usage a
LEFT JOIN usage b ON b.run_key = :b AND b.case_key = a.case_key AND b.outermost_calls > 0
WHERE a.run_key = :a AND a.outermost_calls > 0
    AND a.case_key NOT IN (SELECT key FROM cases WHERE op IN :moving)
"""
_CALLED_ONLY_B: Final = """
FROM usage b WHERE b.run_key = :b AND b.outermost_calls > 0
    AND b.case_key NOT IN (SELECT key FROM cases WHERE op IN :moving) AND NOT EXISTS (
    SELECT 1 FROM usage a
    WHERE a.run_key = :a AND a.case_key = b.case_key AND a.outermost_calls > 0)
"""
_CALL_COUNTS: Final = f"SELECT {_CALLED_KIND}, count(*) {_CALLED_BOTH} GROUP BY 1"
_ONLY_B_COUNT: Final = f"SELECT count(*) {_CALLED_ONLY_B}"
_CALL_CHANGES: Final = f"""
SELECT a.case_key, a.outermost_calls, b.outermost_calls {_CALLED_BOTH}
    AND a.case_key > :after AND {_CALLED_KIND} = :kind ORDER BY a.case_key LIMIT :most
"""
_ONLY_B: Final = f"""
SELECT b.case_key, NULL, b.outermost_calls {_CALLED_ONLY_B}
    AND b.case_key > :after ORDER BY b.case_key LIMIT :most
"""
_PREVIOUS: Final = """
SELECT p.run_id FROM runs r JOIN runs p ON p.kind = r.kind AND p.started_at < r.started_at
    AND coalesce(p.model, p.source) = coalesce(r.model, r.source)
JOIN environments f ON f.key = p.environment_key JOIN environments e ON e.key = r.environment_key
WHERE r.key = :run_key AND coalesce(f.board, '') = coalesce(e.board, '')
    AND f.device_kind = e.device_kind
ORDER BY p.started_at DESC LIMIT 1
"""
_AT_ONCE: Final = 500
_FACTS: Final = 8
"""How many columns of a judged row are about the Attempt itself."""


class JudgedRow(NamedTuple):
    """What came of a Case in a Run; ``outputs`` are JSON, told of what passed only."""

    key: int
    case_key: int
    outcome: str
    device: str
    duration_ns: int | None
    detail: str | None
    suite: str | None
    outputs: str | None
    measured: tuple[tuple[str, float, int | None], ...]


def runs(
    source: Connection,
    most: int,
    after: tuple[str, int] | None = None,
    **chosen: str | None,
) -> list[tuple[Any, ...]]:
    """Return Runs, the newest first; ``chosen`` are kind, model and board, None is any.

    ``after`` is the moment and the key of the last one that was seen.
    """
    day, key = after or (None, 0)
    asked = {"kind": None, "model": None, "board": None, **chosen}
    return list(source.rows(_RUNS, {**asked, "day": day, "key": key, "most": most}))


def run_named(source: Connection, run_id: str) -> tuple[Any, ...] | None:
    """Return a Run by its whole id, and the content of its environment."""
    return next(iter(source.rows(_RUN, {"run_id": run_id})), None)


def runs_beginning(source: Connection, prefix: str, most: int) -> tuple[str, ...]:
    """Return the ids of Runs that begin so, a few of them."""
    asked = {"prefix": prefix, "length": len(prefix), "most": most}
    return tuple(run_id for (run_id,) in source.rows(_BEGINNING, asked))


def run_counts(source: Connection) -> dict[str, int]:
    """Return how many Runs there are of each kind."""
    return {kind: int(count) for kind, count in source.rows(_COUNTS, {})}


def totals(source: Connection, keys: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return what was called, planned and tested in Runs, by their keys."""
    every = list(keys)
    found = {key: _nothing() for key in every}
    for key, told in answers.counted_calls(_by_keys(source, _CALLED, every), None).items():
        amount = told.amount
        found[key].update(cases=amount.cases, calls=amount.calls, ops=amount.ops)
    for key, outcome, count in _by_keys(source, _TESTED, every):
        found[key]["tests"][outcome] = int(count)
    for key, count in _by_keys(source, _PLANNED, every):
        found[key]["planned"] = int(count)
    for key, complete in _by_keys(source, _COMPLETE, every):
        found[key]["complete"] = bool(complete)
    return found


def _nothing() -> dict[str, Any]:
    return {
        "cases": 0,
        "calls": 0,
        "ops": 0,
        "planned": None,
        "complete": True,
        "tests": {},
    }


def ops_of_run(source: Connection, run_key: int, most: int) -> list[tuple[Any, ...]]:
    """Return op, cases and calls of what a Run has called, most calls first.

    Ops that only move data are left out, as they are of what Runs are said to have called.
    """
    asked = {"run_key": run_key, "most": most, "moving": sorted(HIDDEN_OPS)}
    return list(source.rows(_OPS, asked))


def tests_of_run(
    source: Connection, run_key: int, after: tuple[int, int] | None, outcome: str | None, most: int
) -> list[tuple[Any, ...]]:
    """Return the tests of a Run in their order, from after one on."""
    recording, place = after or (-1, -1)
    asked = {"run_key": run_key, "recording": recording, "place": place, "outcome": outcome}
    return list(source.rows(_TESTS, {**asked, "most": most}))


def attempts_of_run(
    source: Connection, run_key: int, after: int, outcomes: Iterable[str], most: int
) -> list[tuple[Any, ...]]:
    """Return the Attempts of a Run that ended so, as they were added, from after one on."""
    asked = {"run_key": run_key, "after": after, "most": most}
    # Of each outcome by itself an index has them in order; all of them would have to be sorted.
    found = [
        row for outcome in outcomes for row in source.rows(_ATTEMPTS, {**asked, "outcome": outcome})
    ]
    return sorted(found, key=lambda row: int(row[0]))[:most]


def recordings_of_run(source: Connection, run_key: int, most: int) -> list[tuple[Any, ...]]:
    """Return key, process, completeness and calls of the processes of a Run."""
    return list(source.rows(_RECORDINGS, {"run_key": run_key, "most": most}))


def dictionary_of(source: Connection, recording_key: int) -> bytes | None:
    """Return what the calls of a Recording refer to, packed; imports have none."""
    ((content,),) = source.rows(_DICTIONARY, {"key": recording_key})
    return None if content is None else bytes(content)


def block_at(source: Connection, recording_key: int, first: int) -> tuple[int, int, bytes] | None:
    """Return the block of calls in which the one with this op_index is."""
    for begins, calls, content in source.rows(_BLOCK, {"key": recording_key, "first": first}):
        return int(begins), int(calls), bytes(content)
    return None


def op_names(source: Connection, case_ids: Iterable[str]) -> dict[str, str]:
    """Return the ops of Cases by their ids."""
    found: dict[str, str] = {}
    for batch in batches(case_ids, _AT_ONCE):
        found.update((row[0], row[1]) for row in source.rows(_NAMES, {"ids": batch}))
    return found


def judged(source: Connection, run_key: int, time: str, most: int) -> Iterator[JudgedRow]:
    """Yield what came of the Cases of a Run, outcome by outcome.

    ``time`` is the name of the measurement of how long it took.
    """
    sql = _in_dialect(source, _JUDGED_RUN)
    return _judged(source.rows(sql, {"run_key": run_key, "time": time, "most": most}))


def judged_cases(
    source: Connection, run_key: int, time: str, case_keys: Iterable[int]
) -> Iterator[JudgedRow]:
    """Yield what came of some Cases in a Run; the last Attempt at one comes last."""
    for batch in batches(case_keys, _AT_ONCE):
        asked = {"run_key": run_key, "time": time, "keys": batch}
        yield from _judged(source.rows(_in_dialect(source, _JUDGED_CASES), asked))


def _in_dialect(source: Connection, sql: str) -> str:
    dialect = "sqlite" if source.place.path is not None else "postgresql"
    return sql.replace(":outputs:", _OUTPUTS[dialect])


def _judged(rows: Iterator[tuple[Any, ...]]) -> Iterator[JudgedRow]:
    for facts, group in groupby(rows, key=itemgetter(*range(_FACTS))):
        # What is no number has none in its column.
        measured = tuple(
            (name, math.nan if value is None else value, output)
            for *_, name, value, output in group
            if name is not None
        )
        yield JudgedRow._make((*facts, measured))


def call_counts(source: Connection, a: int, b: int) -> dict[str, int]:
    """Return how many Cases two Runs call alike, more or less often, or only one of them."""
    keys = {"a": a, "b": b, "moving": sorted(HIDDEN_OPS)}
    counts = {kind: int(count) for kind, count in source.rows(_CALL_COUNTS, keys)}
    ((only_b,),) = source.rows(_ONLY_B_COUNT, keys)
    return {**counts, "only_b": int(only_b)}


def call_changes(
    source: Connection, runs: tuple[int, int], kind: str, after: int, most: int
) -> list[tuple[int, int | None, int | None]]:
    """Return Cases that two Runs call so, by their keys, and how often each calls them."""
    asked: dict[str, object] = {"a": runs[0], "b": runs[1], "after": after, "most": most}
    asked["moving"] = sorted(HIDDEN_OPS)
    if kind == "only_b":
        rows = source.rows(_ONLY_B, asked)
    else:
        rows = source.rows(_CALL_CHANGES, {**asked, "kind": kind})
    return [(row[0], row[1], row[2]) for row in rows]


def previous(source: Connection, run_key: int) -> str | None:
    """Return the Run before this one that did the same on the same kind of the same board."""
    return next((run_id for (run_id,) in source.rows(_PREVIOUS, {"run_key": run_key})), None)


def _by_keys(source: Connection, sql: str, keys: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    for batch in batches(keys, _AT_ONCE):
        yield from source.rows(sql, {"keys": batch})


_CALLS: Final = "CASE WHEN c.outermost_calls > 0 THEN c.outermost_calls ELSE c.calls END"

_EXECUTED: Final = f"""
SELECT c.op, {_CALLS}, t.content, p.suite, a.content
FROM runs r
JOIN attempts a ON a.run_key = r.key
JOIN cases c ON c.key = a.case_key
JOIN contents t ON t.case_key = c.key
LEFT JOIN planned p ON p.run_key = r.key AND p.case_key = c.key
WHERE r.run_id = :run_id ORDER BY a.started_at, a.attempt_id
"""  # noqa: S608 - made of constants

_WAITING: Final = f"""
SELECT c.op, c.case_id, {_CALLS}, p.suite, p.device_kind, p.board
FROM runs r
JOIN planned p ON p.run_key = r.key
JOIN cases c ON c.key = p.case_key
LEFT JOIN attempts a ON a.run_key = p.run_key AND a.case_key = p.case_key
WHERE r.run_id = :run_id AND a.key IS NULL ORDER BY p.place
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class ExecutedRow:
    """An Attempt with the Case that was executed; ``content`` is its canonical JSON."""

    op: str
    calls: int
    content: str
    suite: str | None
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A Case of a plan for which there is no Attempt."""

    op: str
    case_id: str
    calls: int
    suite: str | None
    device_kind: DeviceKind
    board: str | None


def executed(reader: TroveReader, run_id: str) -> Iterator[ExecutedRow]:
    """Yield the Attempts of a Run with their Cases, in the order in which they were made."""
    for op, calls, content, suite, attempt in reader.source.rows(_EXECUTED, {"run_id": run_id}):
        yield ExecutedRow(op, int(calls), content, suite, answers.attempt_from(attempt))


def waiting(reader: TroveReader, run_id: str) -> Iterator[WaitingRow]:
    """Yield the Cases that a Run has planned and not attempted, in the order of the plan."""
    for op, case_id, calls, suite, kind, board in reader.source.rows(_WAITING, {"run_id": run_id}):
        yield WaitingRow(op, case_id, int(calls), suite, DeviceKind(kind), board)

"""Derive the counts, sets and results that lists and pages read from the other tables.

Every function works within the caller's transaction. Code that adds or removes recordings, runs,
attempts or plans calls the one for its change; ``rebuild`` derives everything from scratch.
"""

from __future__ import annotations

import json
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.model.causes import cause_in, without_numbers
from optrove.model.records import E2E_NS, Outcome, time_of
from optrove.serializer.hashes import fingerprint
from optrove.serializer.text import write
from optrove.trove.database import batches, insert_new, next_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.trove.database import Connection

Tensor: TypeAlias = "tuple[str, str, str, str | None]"
"""Dtype, layout, memory and mesh of a tensor."""

NONE: Final = "none"
"""Stands for a board or a mesh that is not there."""

_BATCH_SIZE: Final = 2_000
_ATTEMPTS_PER_BATCH: Final = 10_000


_COUNT_USAGE: Final = """
INSERT INTO usage (run_key, case_key, calls, outermost_calls, timed_calls, total_ns)
SELECT g.run_key, x.case_key, :sign * sum(x.calls),
    :sign * sum(CASE WHEN x.outermost THEN x.calls ELSE 0 END),
    :sign * sum(CASE WHEN x.outermost AND x.total_ns IS NOT NULL THEN x.calls ELSE 0 END),
    :sign * sum(CASE WHEN x.outermost AND x.total_ns IS NOT NULL THEN x.total_ns ELSE 0 END)
FROM recordings g JOIN executions x ON x.recording_key = g.key
WHERE g.key = :recording_key GROUP BY g.run_key, x.case_key
ON CONFLICT (run_key, case_key) DO UPDATE SET
    calls = usage.calls + excluded.calls,
    outermost_calls = usage.outermost_calls + excluded.outermost_calls,
    timed_calls = usage.timed_calls + excluded.timed_calls,
    total_ns = usage.total_ns + excluded.total_ns
"""
_COUNT_CASES: Final = {
    # Case by Case: SQLite has UPDATE FROM since 3.33 only.
    "sqlite": """
UPDATE cases SET
    calls = calls + :sign * (
        SELECT sum(x.calls) FROM executions x
        WHERE x.recording_key = :recording_key AND x.case_key = cases.key),
    outermost_calls = outermost_calls + :sign * (
        SELECT sum(CASE WHEN x.outermost THEN x.calls ELSE 0 END) FROM executions x
        WHERE x.recording_key = :recording_key AND x.case_key = cases.key)
WHERE key IN (
    SELECT case_key FROM executions WHERE recording_key = :recording_key AND case_key < :beyond)
""",
    # By one join: PostgreSQL would not use the index for the statement above.
    "postgresql": """
UPDATE cases SET calls = cases.calls + :sign * x.calls,
    outermost_calls = cases.outermost_calls + :sign * x.outermost_calls
FROM (
    SELECT case_key, sum(calls) AS calls,
        sum(CASE WHEN outermost THEN calls ELSE 0 END) AS outermost_calls
    FROM executions WHERE recording_key = :recording_key AND case_key < :beyond GROUP BY case_key
) x
WHERE cases.key = x.case_key
""",
}
_REMOVE_OP_USAGE: Final = "DELETE FROM op_usage WHERE run_key = :run_key"
_SUM_OPS: Final = """
INSERT INTO op_usage (run_key, op, cases, outermost_cases, calls, outermost_calls, timed_calls,
    total_ns)
SELECT u.run_key, c.op, count(*), sum(CASE WHEN u.outermost_calls > 0 THEN 1 ELSE 0 END),
    sum(u.calls), sum(u.outermost_calls), sum(u.timed_calls), sum(u.total_ns)
FROM usage u JOIN cases c ON c.key = u.case_key
WHERE u.run_key = :run_key GROUP BY u.run_key, c.op
"""


def count_calls(
    connection: Connection, recording_key: int, sign: int, first_new: int | None = None
) -> None:
    """Add the calls of a Recording to its Run and Cases, or subtract them: ``sign`` is 1 or -1.

    Cases from the key ``first_new`` on were added with their counts.
    """
    beyond = next_key(connection, "cases") if first_new is None else first_new
    asked = {"recording_key": recording_key, "sign": sign}
    connection.execute(_COUNT_USAGE, asked)
    connection.execute(_COUNT_CASES[connection.dialect], {**asked, "beyond": beyond})


def sum_ops(connection: Connection, run_key: int) -> None:
    """Sum up the calls of a Run by operation."""
    connection.execute(_REMOVE_OP_USAGE, {"run_key": run_key})
    connection.execute(_SUM_OPS, {"run_key": run_key})


def tensor_set_keys(connection: Connection, cases: Iterable[Iterable[Tensor]]) -> list[int | None]:
    """Return for the tensors of each Case the key of the set of their kinds."""
    kinds = (
        {(dtype, layout, memory, mesh or NONE) for dtype, layout, memory, mesh in tensors}
        for tensors in cases
    )
    return _set_keys(connection, "tensor_sets", kinds)


def _set_keys(
    connection: Connection, table: str, sets: Iterable[Iterable[Any]]
) -> list[int | None]:
    """Return the keys of sets, None for an empty one; those that are not there are added."""
    members = [write(sorted(each)) for each in sets]
    ids = {text: fingerprint(text) for text in set(members) if text != "[]"}
    rows = {name: (name, text) for text, name in ids.items()}
    keys = insert_new(connection, table, f"{table.removesuffix('s')}_id, members", rows)
    return [keys[ids[text]] if text in ids else None for text in members]


_ORIGIN: Final = """
SELECT coalesce(r.model, r.source), coalesce(e.board, 'none')
FROM runs r JOIN environments e ON e.key = r.environment_key WHERE r.key = :run_key
"""
_CALLED: Final = (
    "SELECT case_key FROM executions WHERE recording_key = :recording_key AND outermost"
)
_SETS_CALLED: Final = f"""
SELECT DISTINCT c.origin_set_key, s.members
FROM cases c LEFT JOIN origin_sets s ON s.key = c.origin_set_key WHERE c.key IN ({_CALLED})
"""  # noqa: S608 - made of constants
_ADD_ORIGIN: Final = f"""
UPDATE cases SET origin_set_key = :new
WHERE key IN ({_CALLED}) AND coalesce(origin_set_key, 0) = :old
"""  # noqa: S608 - made of constants
_ORIGINS_OF: Final = """
SELECT DISTINCT u.case_key, coalesce(r.model, r.source), coalesce(e.board, 'none')
FROM usage u JOIN runs r ON r.key = u.run_key JOIN environments e ON e.key = r.environment_key
WHERE u.case_key IN :keys AND u.outermost_calls > 0
"""
_SET_ORIGINS: Final = "UPDATE cases SET origin_set_key = :new WHERE key IN :keys"
_REMOVE_REPLACED: Final = """
DELETE FROM origin_sets WHERE key IN :keys AND key NOT IN (
    SELECT origin_set_key FROM cases WHERE origin_set_key IS NOT NULL)
"""
_REMOVE_UNUSED: Final = (
    """
DELETE FROM tensor_sets WHERE key NOT IN (
    SELECT tensor_set_key FROM cases WHERE tensor_set_key IS NOT NULL)
""",
    """
DELETE FROM origin_sets WHERE key NOT IN (
    SELECT origin_set_key FROM cases WHERE origin_set_key IS NOT NULL)
""",
    """
DELETE FROM origins WHERE (model, board) NOT IN (
    SELECT coalesce(r.model, r.source), coalesce(e.board, 'none')
    FROM runs r JOIN environments e ON e.key = r.environment_key)
""",
    "DELETE FROM verdicts WHERE key NOT IN (SELECT verdict_key FROM results)",
)


def origin_set_key(connection: Connection, run_key: int) -> int | None:
    """Return the key of the set of origins of Cases that only this Run calls."""
    origins = _origin_keys(connection, connection.fetch(_ORIGIN, {"run_key": run_key}))
    return _set_keys(connection, "origin_sets", [origins.values()])[0]


def add_origin(connection: Connection, run_key: int, recording_key: int) -> None:
    """Add the origin of a Run to the Cases that one of its Recordings calls outermost."""
    asked = {"recording_key": recording_key}
    called = connection.fetch(_SETS_CALLED, asked)
    if not called:
        return
    (origin,) = _origin_keys(connection, connection.fetch(_ORIGIN, {"run_key": run_key})).values()
    replaced = []
    for old, members in called:
        before = [] if members is None else json.loads(members)
        if origin not in before:
            (new,) = _set_keys(connection, "origin_sets", [(*before, origin)])
            connection.execute(_ADD_ORIGIN, {**asked, "old": old or 0, "new": new})
            replaced.append(old or 0)
    if any(replaced):
        connection.execute(_REMOVE_REPLACED, {"keys": replaced})


def recount_origins(connection: Connection, case_keys: Iterable[int]) -> None:
    """Derive the origins of Cases again, after a Run that calls them has changed or is gone."""
    for batch in batches(sorted(case_keys), _BATCH_SIZE):
        found: dict[int, set[tuple[str, str]]] = {key: set() for key in batch}
        for key, *origin in connection.fetch(_ORIGINS_OF, {"keys": batch}):
            found[key].add(tuple(origin))
        origins = _origin_keys(connection, set(chain(*found.values())))
        sets: dict[tuple[int, ...], list[int]] = {}
        for key, own in found.items():
            sets.setdefault(tuple(sorted(origins[each] for each in own)), []).append(key)
        new_keys = _set_keys(connection, "origin_sets", sets)
        for new, keys in zip(new_keys, sets.values(), strict=True):
            connection.execute(_SET_ORIGINS, {"new": new, "keys": keys})


def remove_unused(connection: Connection) -> None:
    """Remove sets, origins and verdicts that nothing refers to."""
    for statement in _REMOVE_UNUSED:
        connection.execute(statement)


def _origin_keys(
    connection: Connection, origins: Iterable[Sequence[str]]
) -> dict[tuple[str, str], int]:
    ids = {(model, board): fingerprint([model, board]) for model, board in origins}
    rows = {name: (name, *origin) for origin, name in ids.items()}
    keys = insert_new(connection, "origins", "origin_id, model, board", rows)
    return {origin: keys[name] for origin, name in ids.items()}


# In these statements, {which} selects Attempts.
_COUNT_LAST: Final = """
INSERT INTO last_attempts (case_key, board, device_kind, op, attempt_key, outcome)
SELECT a.case_key, coalesce(a.board, 'none'), a.device_kind, c.op, a.key, a.outcome
FROM attempts a JOIN cases c ON c.key = a.case_key
WHERE a.key IN (
    SELECT max(a.key) FROM attempts a WHERE {which}
    GROUP BY a.case_key, coalesce(a.board, 'none'), a.device_kind)
ON CONFLICT (case_key, board, device_kind) DO UPDATE SET
    attempt_key = excluded.attempt_key, outcome = excluded.outcome
"""
_SET_LAST_OUTCOME: Final = """
UPDATE cases SET last_outcome = (
    SELECT l.outcome FROM last_attempts l WHERE l.case_key = cases.key
    ORDER BY l.attempt_key DESC LIMIT 1)
WHERE key IN :keys
"""
# The signs keep SQLite from grouping by an index of runs, for which it reads all Attempts.
# Infinite values are left out, because their sum is not a number.
_COUNT_OPS: Final = """
INSERT INTO op_attempts (run_key, op, outcome, attempts, board, timed, total_ns, outputs,
    total_pcc, least_pcc, most_pcc)
SELECT +a.run_key, c.op, a.outcome, count(*), min(a.board), count(a.duration_ns),
    coalesce(sum(a.duration_ns), 0), coalesce(sum(m.outputs), 0), coalesce(sum(m.total), 0),
    min(m.least), max(m.most)
FROM attempts a JOIN cases c ON c.key = a.case_key
LEFT JOIN (
    SELECT m.attempt_key, count(*) AS outputs, sum(m.value) AS total, min(m.value) AS least,
        max(m.value) AS most
    FROM measurements m JOIN attempts a ON a.key = m.attempt_key
    WHERE {which} AND m.name = 'pcc' AND abs(m.value) < 1e300 GROUP BY m.attempt_key
) m ON m.attempt_key = a.key
WHERE {which} GROUP BY +a.run_key, c.op, a.outcome
ON CONFLICT (run_key, op, outcome) DO UPDATE SET
    attempts = op_attempts.attempts + excluded.attempts,
    board = CASE WHEN op_attempts.board IS NULL OR excluded.board < op_attempts.board
        THEN excluded.board ELSE op_attempts.board END,
    timed = op_attempts.timed + excluded.timed,
    total_ns = op_attempts.total_ns + excluded.total_ns,
    outputs = op_attempts.outputs + excluded.outputs,
    total_pcc = op_attempts.total_pcc + excluded.total_pcc,
    least_pcc = CASE WHEN op_attempts.least_pcc IS NULL
        OR excluded.least_pcc < op_attempts.least_pcc
        THEN excluded.least_pcc ELSE op_attempts.least_pcc END,
    most_pcc = CASE WHEN op_attempts.most_pcc IS NULL OR excluded.most_pcc > op_attempts.most_pcc
        THEN excluded.most_pcc ELSE op_attempts.most_pcc END
"""
_JUDGED: Final = """
SELECT a.run_key, a.case_key, a.key, a.outcome, a.device_kind,
    CASE WHEN a.outcome <> 'passed' THEN a.detail END, p.suite,
    CASE WHEN a.outcome = 'passed' THEN a.content END, a.duration_ns, m.name, m.value
FROM attempts a
LEFT JOIN planned p ON p.run_key = a.run_key AND p.case_key = a.case_key
LEFT JOIN measurements m ON m.attempt_key = a.key AND m.name IN ('pcc', :time)
WHERE {which} ORDER BY a.run_key, a.case_key, a.key, m.place
"""
_REMOVE_RESULTS: Final = """
DELETE FROM results WHERE (run_key, case_key) IN (
    SELECT a.run_key, a.case_key FROM attempts a WHERE {which})
"""
_SINCE: Final = "a.key >= :first AND a.key < :beyond"
_OF_RUN: Final = "a.run_key = :run_key"
_OF_CASES: Final = "a.case_key IN :keys"
_TRIED_SINCE: Final = f"SELECT DISTINCT a.case_key FROM attempts a WHERE {_SINCE}"  # noqa: S608
_REMOVE_LAST: Final = "DELETE FROM last_attempts WHERE case_key IN :keys"
_REMOVE_OPS: Final = "DELETE FROM op_attempts WHERE run_key = :run_key"


def count_attempts(connection: Connection, first: int) -> None:
    """Count the Attempts from this key on, which are new."""
    beyond = next_key(connection, "attempts")
    for begin in range(first, beyond, _ATTEMPTS_PER_BATCH):
        asked = {"first": begin, "beyond": min(begin + _ATTEMPTS_PER_BATCH, beyond)}
        connection.execute(_COUNT_LAST.format(which=_SINCE), asked)
        _set_last_outcome(connection, chain(*connection.fetch(_TRIED_SINCE, asked)))
        connection.execute(_COUNT_OPS.format(which=_SINCE), asked)
        _judge(connection, _SINCE, asked)


def recount_run(connection: Connection, run_key: int) -> None:
    """Derive the counts and results of a Run again, after its plan or its Attempts changed."""
    asked = {"run_key": run_key}
    connection.execute(_REMOVE_OPS, asked)
    connection.execute(_COUNT_OPS.format(which=_OF_RUN), asked)
    _judge(connection, _OF_RUN, asked)


def recount_cases(connection: Connection, case_keys: Iterable[int]) -> None:
    """Derive the last Attempts at Cases again, after some were removed."""
    for batch in batches(sorted(case_keys), _BATCH_SIZE):
        connection.execute(_REMOVE_LAST, {"keys": batch})
        connection.execute(_COUNT_LAST.format(which=_OF_CASES), {"keys": batch})
        _set_last_outcome(connection, batch)


def _set_last_outcome(connection: Connection, case_keys: Iterable[int]) -> None:
    for batch in batches(case_keys, _BATCH_SIZE):
        connection.execute(_SET_LAST_OUTCOME, {"keys": batch})


def _judge(connection: Connection, which: str, asked: Mapping[str, object]) -> None:
    """Derive the results of Attempts: of each Run and Case, that of the last."""
    attempts = connection.fetch(_JUDGED.format(which=which), {**asked, "time": E2E_NS})
    judged = list(_judged(attempts))
    connection.execute(_REMOVE_RESULTS.format(which=which), asked)
    ids = {each[3]: fingerprint(list(each[3])) for each in judged}
    rows = {name: (name, *verdict) for verdict, name in ids.items()}
    columns = "verdict_id, outcome, device_kind, cause, suite, outputs"
    keys = insert_new(connection, "verdicts", columns, rows)
    # The last Attempt at a Case comes last.
    last = {(run_key, case_key): each for run_key, case_key, *each in judged}
    connection.insert(
        "results (run_key, case_key, attempt_key, verdict_key, took_ns, outputs, pcc)",
        (
            (*place, attempt_key, keys[ids[verdict]], *numbers)
            for place, (attempt_key, verdict, *numbers) in last.items()
        ),
    )


def _judged(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield keys of Run, Case and Attempt, the verdict, duration, number of PCC and the lowest."""
    causes: dict[str | None, str | None] = {}
    for facts, group in groupby(rows, key=itemgetter(*range(9))):
        *keys, outcome, device_kind, detail, suite, passed, duration_ns = facts
        measured = [row[-2:] for row in group]
        pcc = [value for name, value in measured if name == "pcc"]
        # What is not a number has none in its column.
        times = [value for name, value in measured if name == E2E_NS and value is not None]
        if outcome != Outcome.PASSED.value and detail not in causes:
            cause = cause_in(detail)
            causes[detail] = None if cause is None else without_numbers(cause)
        # Not in SQL: PostgreSQL refuses JSON whose texts it cannot store.
        outputs = None if passed is None else json.loads(passed).get("outputs")
        verdict = (
            *(outcome, device_kind, causes.get(detail), suite),
            None if outputs is None else write(outputs),
        )
        known = pcc if None not in pcc else ()
        yield *keys, verdict, time_of(times, duration_ns), len(pcc), min(known, default=None)


_DERIVED: Final = (
    *("usage", "op_usage", "last_attempts", "op_attempts", "results", "verdicts"),
    *("tensor_sets", "origin_sets", "origins"),
)
_CLEAR_CASES: Final = """
UPDATE cases SET calls = 0, outermost_calls = 0, tensor_set_key = NULL, origin_set_key = NULL,
    last_outcome = NULL
"""
_TENSORS: Final = """
SELECT case_key, dtype, layout, memory, mesh FROM case_tensors WHERE case_key IN :keys
"""
_SET_TENSORS: Final = "UPDATE cases SET tensor_set_key = :new WHERE key IN :keys"


def rebuild(connection: Connection) -> None:
    """Derive everything from scratch."""
    for table in _DERIVED:
        connection.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours
    connection.execute(_CLEAR_CASES)
    for (key,) in connection.fetch("SELECT key FROM recordings"):
        count_calls(connection, key, 1)
    for (key,) in connection.fetch("SELECT key FROM runs"):
        sum_ops(connection, key)
    cases = [key for (key,) in connection.fetch("SELECT key FROM cases")]
    for batch in batches(cases, _BATCH_SIZE):
        tensors: dict[int, list[Tensor]] = {key: [] for key in batch}
        for key, *tensor in connection.fetch(_TENSORS, {"keys": batch}):
            tensors[key].append(tuple(tensor))
        found = tensor_set_keys(connection, tensors.values())
        for new in set(found):
            keys = [key for key, each in zip(tensors, found, strict=True) if each == new]
            connection.execute(_SET_TENSORS, {"new": new, "keys": keys})
    recount_origins(connection, cases)
    count_attempts(connection, 0)

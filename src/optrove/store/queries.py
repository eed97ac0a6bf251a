"""The questions that readers ask a trove, in SQL that SQLite and PostgreSQL both understand.

``:ids`` and ``:keys`` stand for lists, which the reader binds item by item.
"""

from __future__ import annotations

from typing import Final

OP_NAMES: Final = "SELECT DISTINCT op FROM op_usage"

VECTOR_OPS: Final = "SELECT DISTINCT op FROM cases WHERE op >= :first AND op < :beyond"

CASES_BY_ID: Final = """
SELECT c.calls, c.case_id, c.semantic_id, c.family_id, c.op, c.replayable, t.content
FROM cases c JOIN contents t ON t.case_key = c.key
WHERE c.case_id IN :ids
"""

CASES: Final = """
SELECT c.key, c.case_id, c.semantic_id, c.family_id, c.op, c.replayable, t.content
FROM cases c JOIN contents t ON t.case_key = c.key
WHERE c.key IN :keys
"""

EXECUTIONS: Final = """
SELECT c.case_id, r.run_id, r.source, r.model, r.machine, e.board,
    s.test_id, s.phase, s.module, s.mode, x.outermost, x.outcome, x.calls, x.total_ns,
    d.raised, d.content, s.device
FROM cases c
JOIN executions x ON x.case_key = c.key
JOIN recordings g ON g.key = x.recording_key
JOIN runs r ON r.key = g.run_key
JOIN environments e ON e.key = r.environment_key
LEFT JOIN scopes s ON s.key = x.scope_key
LEFT JOIN endings d ON d.key = x.ending_key
WHERE c.case_id IN :ids
ORDER BY x.calls DESC, r.run_id, g.process, x.place
"""

EXECUTIONS_BY_RUN: Final = """
SELECT c.case_id, r.run_id, r.source, r.model, r.machine, e.board,
    NULL, NULL, NULL, NULL, x.outermost, x.outcome, x.calls, x.total_ns, NULL, NULL, NULL
FROM (
    SELECT x.case_key, g.run_key, x.outermost, x.outcome,
        SUM(x.calls) AS calls, SUM(x.total_ns) AS total_ns
    FROM cases c
    JOIN executions x ON x.case_key = c.key
    JOIN recordings g ON g.key = x.recording_key
    WHERE c.case_id IN :ids
    GROUP BY x.case_key, g.run_key, x.outermost, x.outcome
) x
JOIN cases c ON c.key = x.case_key
JOIN runs r ON r.key = x.run_key
JOIN environments e ON e.key = r.environment_key
ORDER BY x.calls DESC, r.run_id, x.outermost DESC, x.outcome
"""

TENSORS: Final = """
SELECT c.case_id, t.place, t.argument, t.shape, t.dtype, t.layout, t.memory, t.mesh
FROM cases c JOIN case_tensors t ON t.case_key = c.key
WHERE c.case_id IN :ids
ORDER BY t.place
"""

CONFIG_CALLS: Final = """
SELECT c.case_id, r.run_id, f.path, SUM(f.calls)
FROM cases c
JOIN config_calls f ON f.case_key = c.key
JOIN recordings g ON g.key = f.recording_key
JOIN runs r ON r.key = g.run_key
WHERE c.case_id IN :ids
GROUP BY c.case_id, r.run_id, f.path
ORDER BY c.case_id, r.run_id, f.path
"""

RUNS: Final = """
SELECT r.key, r.run_id, r.content, e.content, r.machine
FROM runs r JOIN environments e ON e.key = r.environment_key
ORDER BY r.started_at DESC, r.run_id
"""

RUN: Final = """
SELECT r.key, r.run_id, r.content, e.content, r.machine
FROM runs r JOIN environments e ON e.key = r.environment_key
WHERE r.run_id = :run_id
"""

OP_CALLS: Final = """
SELECT run_key, op, cases, calls, outermost_cases, outermost_calls FROM op_usage
"""

RUN_OP_CALLS: Final = """
SELECT run_key, op, cases, calls, outermost_cases, outermost_calls FROM op_usage
WHERE run_key IN (SELECT key FROM runs WHERE run_id = :run_id)
"""

RUN_COMPLETE: Final = """
SELECT run_key, min(CASE WHEN complete THEN 1 ELSE 0 END) FROM recordings GROUP BY run_key
"""

RUN_TESTS: Final = """
SELECT g.run_key, t.outcome, count(*)
FROM tests t JOIN recordings g ON g.key = t.recording_key
GROUP BY g.run_key, t.outcome
"""

RUN_ATTEMPTS: Final = "SELECT run_key, outcome, count(*) FROM attempts GROUP BY run_key, outcome"

RUN_PLANNED: Final = """
SELECT s.run_key, count(p.place) FROM sweeps s LEFT JOIN planned p ON p.run_key = s.run_key
GROUP BY s.run_key
"""

SWEEP: Final = """
SELECT s.content, s.plan_id FROM sweeps s JOIN runs r ON r.key = s.run_key
WHERE r.run_id = :run_id
"""

PLANNED: Final = """
SELECT c.case_id, p.device_kind, p.board, p.suite
FROM runs r JOIN planned p ON p.run_key = r.key JOIN cases c ON c.key = p.case_key
WHERE r.run_id = :run_id ORDER BY p.place
"""

ATTEMPTED: Final = """
SELECT DISTINCT c.case_id
FROM runs r JOIN attempts a ON a.run_key = r.key JOIN cases c ON c.key = a.case_key
WHERE r.run_id = :run_id
"""

MODEL_RUNS: Final = """
SELECT coalesce(r.model, r.source), count(*), max(r.started_at)
FROM runs r WHERE r.kind NOT IN ('replay', 'sweep') GROUP BY coalesce(r.model, r.source)
"""

MODEL_OP_CALLS: Final = """
SELECT coalesce(r.model, r.source), c.op, count(DISTINCT u.case_key), sum(u.calls),
    count(DISTINCT CASE WHEN u.outermost_calls > 0 THEN u.case_key END), sum(u.outermost_calls)
FROM usage u JOIN runs r ON r.key = u.run_key JOIN cases c ON c.key = u.case_key
GROUP BY coalesce(r.model, r.source), c.op
"""

MODEL_BOARDS: Final = """
SELECT DISTINCT coalesce(r.model, r.source), e.board
FROM runs r JOIN environments e ON e.key = r.environment_key WHERE e.board IS NOT NULL
"""

KNOWN: Final = "SELECT case_id FROM cases WHERE case_id IN :ids"

FIND_CASE: Final = """
SELECT case_id FROM cases WHERE substr(case_id, 1, :length) = :prefix ORDER BY case_id
"""

FIND_RUN: Final = """
SELECT run_id FROM runs WHERE substr(run_id, 1, :length) = :prefix ORDER BY run_id
"""

RECORDINGS: Final = """
SELECT g.key, r.run_id, g.process, g.complete, g.calls, g.size, g.digest
FROM recordings g JOIN runs r ON r.key = g.run_key
ORDER BY r.run_id, g.process
"""

HOLDS: Final = """
SELECT g.size, g.calls FROM recordings g JOIN runs r ON r.key = g.run_key
WHERE r.run_id = :run_id AND g.process = :process
"""

DICTIONARIES: Final = """
SELECT g.key, g.dictionary FROM recordings g JOIN runs r ON r.key = g.run_key
WHERE r.run_id = :run_id ORDER BY g.process
"""

DICTIONARY: Final = "SELECT dictionary FROM recordings WHERE key = :key"

BLOCKS: Final = """
SELECT first, calls, content FROM call_blocks WHERE recording_key = :key ORDER BY first
"""

TESTS: Final = """
SELECT t.content FROM tests t
JOIN recordings g ON g.key = t.recording_key
JOIN runs r ON r.key = g.run_key
WHERE r.run_id = :run_id ORDER BY g.process, t.place
"""

ATTEMPTS: Final = """
SELECT a.content FROM attempts a JOIN runs r ON r.key = a.run_key
WHERE r.run_id = :run_id ORDER BY a.started_at, a.attempt_id
"""

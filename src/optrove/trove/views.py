"""The views of a trove for BI tools, which stay the same when tables change.

Columns are added, never removed or given another meaning. Flags are 0 or 1, durations are
milliseconds, times without a zone are UTC. A trove has views only after ``optrove export
--format superset --install``; they cost nothing until they are used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.model.trove import ColumnKind, SqlView, ViewColumn

if TYPE_CHECKING:
    from optrove.trove.database import Connection


UNUSUAL: Final = "(unusual characters)"
"""Stands for errors with characters that JSON can hold and a text of a database cannot."""

_MARK: Final = re.compile(r"\[(\w+) ([\w.]+)\]")

_BOTH: Final = {
    "run": "r.run_id, r.kind AS run_kind, COALESCE(r.model, r.source) AS model, ? AS board, "
    "e.ttnn_version, [moment r.started_at] AS run_started",
    "flag": "CASE WHEN ? THEN 1 WHEN NOT ? THEN 0 END",
    "passed": "CASE WHEN ? = 'passed' THEN 1 ELSE 0 END",
    "ran": "CASE WHEN ? IN ('not_run', 'skipped') THEN 0 ELSE 1 END",
    "count": "CAST(COALESCE(?, 0) AS BIGINT)",
    "milliseconds": "CAST(? AS DOUBLE PRECISION) / 1000000",
}

_DIALECT_SQL: Final = {
    "sqlite": {
        **_BOTH,
        "moment": "datetime(?)",
        "first_line": "substr(?, 1, instr(? || char(10), char(10)) - 1)",
        "call_ns": "json_extract(?, '$.call_ns')",
        "error": "CASE WHEN instr(?, '\\ud') = 0 AND instr(?, '\\u0000') = 0 THEN "
        "substr(json_extract(?, '$.error'), 1, "
        "instr(json_extract(?, '$.error') || char(10), char(10)) - 1) "
        f"WHEN instr(?, '\"error\":') > 0 THEN '{UNUSUAL}' END",
    },
    "postgresql": {
        **_BOTH,
        # Not by a cast, which would refuse the whole answer for one invalid time.
        "moment": "CASE WHEN ? ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}' THEN "
        "TIMESTAMP '2000-01-01' + make_interval("
        "CAST(substr(?, 1, 4) AS INTEGER) - 2000, CAST(substr(?, 6, 2) AS INTEGER) - 1, 0, "
        "CAST(substr(?, 9, 2) AS INTEGER) - 1, CAST(substr(?, 12, 2) AS INTEGER), "
        "CAST(substr(?, 15, 2) AS INTEGER), CAST(substr(?, 18, 2) AS INTEGER)) END",
        "first_line": "split_part(?, chr(10), 1)",
        "call_ns": "CAST(substring(? FROM '^[{]\"call_ns\":([0-9]{1,18})[,}]') AS BIGINT)",
        "error": "CASE WHEN strpos(?, '\\ud') = 0 AND strpos(?, '\\u0000') = 0 THEN "
        "split_part(CAST(? AS json) ->> 'error', chr(10), 1) "
        f"WHEN strpos(?, '\"error\":') > 0 THEN '{UNUSUAL}' END",
    },
}

_TEXTS: Final = {
    "v_runs": """
SELECT [run e.board], r.source, e.arch, e.device_kind, e.torch_version, e.git_sha,
    [moment r.finished_at] AS run_finished,
    [count u.cases] AS cases,
    [count u.calls] AS calls,
    [count t.tests] AS tests,
    [count t.passed] AS tests_passed,
    [count a.attempts] AS attempts,
    [count a.passed] AS attempts_passed,
    [count t.ran] AS tests_ran,
    [count a.ran] AS attempts_ran
FROM runs r
JOIN environments e ON e.key = r.environment_key
LEFT JOIN (
    SELECT run_key, SUM(cases) AS cases, SUM(calls) AS calls FROM op_usage GROUP BY run_key
) u ON u.run_key = r.key
LEFT JOIN (
    SELECT g.run_key, COUNT(*) AS tests, SUM([passed x.outcome]) AS passed,
        SUM([ran x.outcome]) AS ran
    FROM tests x JOIN recordings g ON g.key = x.recording_key GROUP BY g.run_key
) t ON t.run_key = r.key
LEFT JOIN (
    SELECT run_key, COUNT(*) AS attempts, SUM([passed outcome]) AS passed,
        SUM([ran outcome]) AS ran
    FROM attempts GROUP BY run_key
) a ON a.run_key = r.key
""",
    "v_ops": """
SELECT c.op, c.cases,
    [count c.replayable] AS replayable_cases,
    [count c.calls] AS calls,
    [count c.outermost_calls] AS outermost_calls,
    [count u.runs] AS runs,
    [count u.models] AS models,
    [count a.attempts] AS attempts,
    [count a.passed] AS attempts_passed,
    [count a.ran] AS attempts_ran
FROM (
    SELECT op, COUNT(*) AS cases, SUM([flag replayable]) AS replayable, SUM(calls) AS calls,
        SUM(outermost_calls) AS outermost_calls
    FROM cases GROUP BY op
) c
LEFT JOIN (
    SELECT x.op, COUNT(DISTINCT x.run_key) AS runs,
        COUNT(DISTINCT COALESCE(r.model, r.source)) AS models
    FROM op_usage x JOIN runs r ON r.key = x.run_key GROUP BY x.op
) u ON u.op = c.op
LEFT JOIN (
    SELECT y.op, COUNT(*) AS attempts, SUM([passed x.outcome]) AS passed,
        SUM([ran x.outcome]) AS ran
    FROM attempts x JOIN cases y ON y.key = x.case_key GROUP BY y.op
) a ON a.op = c.op
""",
    "v_cases": """
SELECT c.case_id, c.op, c.semantic_id, c.family_id, [flag c.replayable] AS replayable,
    c.calls, c.outermost_calls,
    [count u.runs] AS runs,
    [count a.attempts] AS attempts,
    [count a.passed] AS attempts_passed,
    [count a.ran] AS attempts_ran
FROM cases c
LEFT JOIN (
    SELECT case_key, COUNT(*) AS runs FROM usage GROUP BY case_key
) u ON u.case_key = c.key
LEFT JOIN (
    SELECT case_key, COUNT(*) AS attempts, SUM([passed outcome]) AS passed,
        SUM([ran outcome]) AS ran
    FROM attempts GROUP BY case_key
) a ON a.case_key = c.key
""",
    "v_tensors": """
SELECT c.case_id, c.op, t.place, t.argument, t.shape, t.dtype, t.layout, t.memory, t.mesh, c.calls
FROM case_tensors t JOIN cases c ON c.key = t.case_key
""",
    "v_executions": """
SELECT [run e.board], c.case_id, c.op, g.process, s.test_id, s.phase, s.module, s.mode, x.outcome,
    [flag x.outermost] AS outermost, x.calls,
    [milliseconds x.total_ns] AS total_ms,
    [milliseconds x.shortest_ns] AS shortest_ms,
    [milliseconds x.longest_ns] AS longest_ms
FROM executions x
JOIN cases c ON c.key = x.case_key
JOIN recordings g ON g.key = x.recording_key
JOIN runs r ON r.key = g.run_key
JOIN environments e ON e.key = r.environment_key
LEFT JOIN scopes s ON s.key = x.scope_key
""",
    "v_tests": """
SELECT [run e.board], t.test_id, t.outcome, [passed t.outcome] AS passed,
    CAST([call_ns t.content] AS DOUBLE PRECISION) / 1000000 AS duration_ms,
    [error t.content] AS error, [ran t.outcome] AS ran,
    CASE WHEN t.outcome IN ('passed', 'xfailed', 'xpassed') THEN 1 ELSE 0 END AS good
FROM tests t
JOIN recordings g ON g.key = t.recording_key
JOIN runs r ON r.key = g.run_key
JOIN environments e ON e.key = r.environment_key
""",
    "v_attempts": """
SELECT a.attempt_id, [run a.board], c.case_id, c.op, a.outcome, [passed a.outcome] AS passed,
    a.device_kind, a.seed, [moment a.started_at] AS started,
    [milliseconds a.duration_ns] AS duration_ms,
    (SELECT MIN(m.value) FROM measurements m WHERE m.attempt_key = a.key AND m.name = 'pcc') AS pcc,
    CASE WHEN a.replayed_case_id = c.case_id THEN 1 WHEN a.replayed_case_id IS NOT NULL THEN 0 END
        AS true_replay,
    a.detail, a.notes, [ran a.outcome] AS ran,
    CASE WHEN a.outcome = 'passed' OR (lower(p.suite) LIKE 'xfail%' AND a.outcome <> 'not_run')
        THEN 1 ELSE 0 END AS good
FROM attempts a
JOIN cases c ON c.key = a.case_key
JOIN runs r ON r.key = a.run_key
JOIN environments e ON e.key = r.environment_key
LEFT JOIN planned p ON p.run_key = a.run_key AND p.case_key = a.case_key
""",
    "v_failures": """
SELECT a.attempt_id, [run a.board], c.case_id, c.op, a.outcome, a.device_kind,
    [moment a.started_at] AS started, [first_line a.detail] AS cause, a.detail
FROM attempts a
JOIN cases c ON c.key = a.case_key
JOIN runs r ON r.key = a.run_key
JOIN environments e ON e.key = r.environment_key
WHERE a.outcome NOT IN ('passed', 'not_run')
""",
    "v_pcc": """
SELECT a.attempt_id, [run a.board], c.case_id, c.op, a.device_kind,
    [moment a.started_at] AS started, m.output, m.value AS pcc, m.threshold,
    [flag m.passed] AS passed
FROM measurements m
JOIN attempts a ON a.key = m.attempt_key
JOIN cases c ON c.key = a.case_key
JOIN runs r ON r.key = a.run_key
JOIN environments e ON e.key = r.environment_key
WHERE m.name = 'pcc'
""",
}


def view_text(view: str, dialect: str) -> str:
    """Return the SELECT of a view, for ``sqlite`` or ``postgresql``."""
    dialect_sql = _DIALECT_SQL[dialect]
    text = _TEXTS[view]
    while (mark := _MARK.search(text)) is not None:
        sql = dialect_sql[mark[1]].replace("?", mark[2])
        text = text[: mark.start()] + sql + text[mark.end() :]
    return text


_TEXT, _NUMBER, _FLAG, _TIME = ColumnKind.TEXT, ColumnKind.NUMBER, ColumnKind.FLAG, ColumnKind.TIME

_RUN: Final = (
    ("run_id", _TEXT, "the run"),
    ("run_kind", _TEXT, "trace, replay, sweep or import"),
    ("model", _TEXT, "its model, or its source if no model is known"),
    ("board", _TEXT, "its board"),
    ("ttnn_version", _TEXT, "version of ttnn"),
    ("run_started", _TIME, "when the run began"),
)
_CASE: Final = (
    ("case_id", _TEXT, "the case"),
    ("op", _TEXT, "its op"),
)


def _view(name: str, row: str, *columns: tuple[str, ColumnKind, str]) -> SqlView:
    return SqlView(name, row, tuple(ViewColumn(*column) for column in columns))


VIEWS: Final = (
    _view(
        *("v_runs", "A run: a trace, replay, sweep or import."),
        *_RUN,
        ("source", _TEXT, "what it ran or imported, such as a test or a file"),
        ("arch", _TEXT, "architecture of its chips"),
        ("device_kind", _TEXT, "hw, mock, shadow or host"),
        ("torch_version", _TEXT, "version of torch"),
        ("git_sha", _TEXT, "git commit of its working directory"),
        ("run_finished", _TIME, "when it ended; NULL if it was interrupted or is running"),
        ("cases", _NUMBER, "distinct cases that it called"),
        ("calls", _NUMBER, "its calls, including those made by other ops"),
        ("tests", _NUMBER, "its tests"),
        ("tests_passed", _NUMBER, "its tests that passed"),
        ("attempts", _NUMBER, "cases that it executed, counting repetitions"),
        ("attempts_passed", _NUMBER, "those that passed"),
        ("tests_ran", _NUMBER, "its tests that were not skipped"),
        ("attempts_ran", _NUMBER, "its attempts that ran"),
    ),
    _view(
        *("v_ops", "An op with recorded cases."),
        ("op", _TEXT, "its name"),
        ("cases", _NUMBER, "distinct cases"),
        ("replayable_cases", _NUMBER, "cases whose recording has everything that a replay needs"),
        ("calls", _NUMBER, "calls, including those made by other ops"),
        ("outermost_calls", _NUMBER, "calls that no other op made"),
        ("runs", _NUMBER, "runs that called it"),
        ("models", _NUMBER, "models that called it"),
        ("attempts", _NUMBER, "executions of its cases by replays and sweeps"),
        ("attempts_passed", _NUMBER, "those that passed"),
        ("attempts_ran", _NUMBER, "those that ran"),
    ),
    _view(
        *("v_cases", "A case: an op with its arguments."),
        *_CASE,
        ("semantic_id", _TEXT, "equal for cases with the same computation"),
        ("family_id", _TEXT, "equal for cases that differ only in scalar arguments"),
        ("replayable", _FLAG, "whether the recording has everything that a replay needs"),
        ("calls", _NUMBER, "calls, including those made by other ops"),
        ("outermost_calls", _NUMBER, "calls that no other op made"),
        ("runs", _NUMBER, "runs that called it"),
        ("attempts", _NUMBER, "executions by replays and sweeps"),
        ("attempts_passed", _NUMBER, "those that passed"),
        ("attempts_ran", _NUMBER, "those that ran"),
    ),
    _view(
        *("v_tensors", "A tensor among the arguments of a case."),
        *_CASE,
        ("place", _NUMBER, "index among the tensors of the case, from 0"),
        ("argument", _TEXT, "name of its parameter"),
        ("shape", _TEXT, "1x1x32x64"),
        ("dtype", _TEXT, "bfloat16, bfloat8_b, float32, ..."),
        ("layout", _TEXT, "TILE, ROW_MAJOR, strided, ..."),
        ("memory", _TEXT, "DRAM_INTERLEAVED, L1_WIDTH_SHARDED, HOST, ..."),
        ("mesh", _TEXT, "shape of its mesh, such as 2x4"),
        ("calls", _NUMBER, "calls of the case"),
    ),
    _view(
        *("v_executions", "Calls of a case in a run that differ only in time."),
        *_RUN,
        *_CASE,
        ("process", _NUMBER, "number of the process within the run"),
        ("test_id", _TEXT, "pytest's node id"),
        ("phase", _TEXT, "setup, call or teardown"),
        ("module", _TEXT, "path of the module of the model"),
        ("mode", _TEXT, "prefill or decode"),
        ("outcome", _TEXT, "returned, raised or unfinished"),
        ("outermost", _FLAG, "1 if no other op made these calls"),
        ("calls", _NUMBER, "number of these calls"),
        ("total_ms", _NUMBER, "total duration; NULL if unknown"),
        ("shortest_ms", _NUMBER, "duration of the shortest call"),
        ("longest_ms", _NUMBER, "duration of the longest call"),
    ),
    _view(
        *("v_tests", "A test of a run."),
        *_RUN,
        ("test_id", _TEXT, "pytest's node id"),
        ("outcome", _TEXT, "passed, failed, skipped, xfailed, xpassed, error or unfinished"),
        ("passed", _FLAG, "whether it passed"),
        ("duration_ms", _NUMBER, "duration of the test function"),
        ("error", _TEXT, "first line of its error"),
        ("ran", _FLAG, "whether it was not skipped"),
        ("good", _FLAG, "whether it passed, or failed as expected"),
    ),
    _view(
        *("v_attempts", "An attempt: one execution of a case by a replay or a sweep."),
        ("attempt_id", _TEXT, "the attempt"),
        *_RUN,
        *_CASE,
        ("outcome", _TEXT, "passed, numerics, wrong_spec, rejected, ..., not_run"),
        ("passed", _FLAG, "whether it passed"),
        ("device_kind", _TEXT, "hw, mock, shadow or host"),
        ("seed", _TEXT, "seed of the inputs"),
        ("started", _TIME, "when it began"),
        ("duration_ms", _NUMBER, "its duration"),
        ("pcc", _NUMBER, "the lowest PCC of its outputs; NULL if not measured, or NaN"),
        ("true_replay", _FLAG, "whether the replayed call has the hash of the recorded case"),
        ("detail", _TEXT, "message of the op or of the machine"),
        ("notes", _TEXT, "notes of the replay"),
        ("ran", _FLAG, "whether the op ran, with any outcome"),
        ("good", _FLAG, "whether it passed, or failed as expected"),
    ),
    _view(
        *("v_failures", "A failed attempt."),
        ("attempt_id", _TEXT, "the attempt"),
        *_RUN,
        *_CASE,
        ("outcome", _TEXT, "numerics, wrong_spec, rejected, out_of_memory, raised, hung, crashed"),
        ("device_kind", _TEXT, "hw, mock or shadow"),
        ("started", _TIME, "when it began"),
        ("cause", _TEXT, "first line of the message"),
        ("detail", _TEXT, "the whole message"),
    ),
    _view(
        *("v_pcc", "A measured PCC."),
        ("attempt_id", _TEXT, "the attempt"),
        *_RUN,
        *_CASE,
        ("device_kind", _TEXT, "hw, shadow or host"),
        ("started", _TIME, "when it began"),
        ("output", _NUMBER, "index of the output"),
        ("pcc", _NUMBER, "the PCC; NULL if it is NaN"),
        ("threshold", _NUMBER, "its threshold"),
        ("passed", _FLAG, "whether it reached the threshold"),
    ),
)
"""In the order in which they can be created."""


def view_statements(dialect: str) -> tuple[str, ...]:
    """Return the SQL that creates or replaces the views: for ``sqlite`` or ``postgresql``."""
    made = (f"CREATE VIEW {each.name} AS{view_text(each.name, dialect)}" for each in VIEWS)
    return (*_drops(), *made)


def drop_views(connection: Connection) -> bool:
    """Drop the views within the caller's transaction; return whether there were any."""
    if connection.tables().isdisjoint(each.name for each in VIEWS):
        return False
    for statement in _drops():
        connection.execute(statement)
    return True


def make_views(connection: Connection) -> None:
    """Create or replace the views, within the caller's transaction."""
    for statement in view_statements(connection.dialect):
        connection.execute(statement)


def _drops() -> tuple[str, ...]:
    return tuple(f"DROP VIEW IF EXISTS {each.name}" for each in reversed(VIEWS))

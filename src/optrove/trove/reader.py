"""Open a trove for reading, and answer queries.

All SQL is written in this module; the values of a Query are bound as parameters. ``:ids`` and
``:keys`` are lists. In the SQL, ``c`` is a Case, ``u`` the number of its calls in a Run, ``r`` that
Run, and ``t`` a tensor of the Case.
"""

from __future__ import annotations

import json
from collections import defaultdict
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from optrove.errors import UnusableTrove
from optrove.model.ops import (
    BEYOND_VECTORS,
    DATA_MOVEMENT_OPS,
    VECTORS,
    Counted,
    OpCalls,
    add_up,
    is_vector,
)
from optrove.model.records import (
    CHECK_BOARD,
    NOT_ATTEMPTED,
    OUT_OF_BUDGET,
    Attempt,
    AttemptedCase,
    CallOutcome,
    DeviceKind,
    Outcome,
    Phase,
    Run,
    Sweep,
    TestResult,
)
from optrove.model.trove import (
    CallBlock,
    CaseFamily,
    CaseRow,
    ConfigCalls,
    ExecutionRow,
    Machine,
    ModelRow,
    ModelRuns,
    OpRow,
    OpRunRow,
    PlannedCase,
    RunRow,
    TensorFacts,
    Verdict,
    VerdictChange,
)
from optrove.trove import schema
from optrove.trove.database import OpenedTrove, batches, connect, keys_of
from optrove.trove.faults import foreign, newer, no_trove
from optrove.trove.sessions import progress_of, session_from

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.journal.calls import TimelineCall
    from optrove.model.flow import Flow
    from optrove.model.ops import Counting
    from optrove.model.records import Call, Counts, Query
    from optrove.model.trove import Session
    from optrove.trove.database import Connection
    from optrove.trove.place import Place


R = TypeVar("R", TestResult, Attempt, Sweep, Run)

OP_NAMES: Final = "SELECT DISTINCT op FROM op_usage"

VECTOR_OPS: Final = "SELECT DISTINCT op FROM cases WHERE op >= :first AND op < :beyond"

CASES_BY_ID: Final = """
SELECT c.calls, c.case_id, c.semantic_id, c.family_id, c.op, c.replayable, t.content,
    c.outermost_calls
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
    d.raised, d.content, s.device, r.started_at, x.shortest_ns, x.longest_ns
FROM cases c
JOIN executions x ON x.case_key = c.key
JOIN recordings g ON g.key = x.recording_key
JOIN runs r ON r.key = g.run_key
JOIN environments e ON e.key = r.environment_key
LEFT JOIN scopes s ON s.key = x.scope_key
LEFT JOIN endings d ON d.key = x.ending_key
WHERE c.case_id IN :ids
ORDER BY x.calls DESC, r.run_id, g.process, x.place
LIMIT :most
"""

EXECUTIONS_BY_RUN: Final = """
SELECT c.case_id, r.run_id, r.source, r.model, r.machine, e.board,
    NULL, NULL, NULL, NULL, x.outermost, x.outcome, x.calls, x.total_ns, NULL, NULL, x.device,
    r.started_at, NULL, NULL
FROM (
    SELECT x.case_key, g.run_key, x.outermost, x.outcome, s.device,
        SUM(x.calls) AS calls, SUM(x.total_ns) AS total_ns
    FROM cases c
    JOIN executions x ON x.case_key = c.key
    JOIN recordings g ON g.key = x.recording_key
    LEFT JOIN scopes s ON s.key = x.scope_key
    WHERE c.case_id IN :ids
    GROUP BY x.case_key, g.run_key, x.outermost, x.outcome, s.device
) x
JOIN cases c ON c.key = x.case_key
JOIN runs r ON r.key = x.run_key
JOIN environments e ON e.key = r.environment_key
ORDER BY x.calls DESC, r.run_id, x.outermost DESC, x.outcome, x.device
LIMIT :most
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

# Runs of check-board are stored as replays; their source distinguishes them.
_KIND: Final = f"""
CASE WHEN r.kind = 'replay' AND substr(r.source, 1, {len(CHECK_BOARD) + 1}) = '{CHECK_BOARD} '
    THEN '{CHECK_BOARD}' ELSE r.kind END
"""

RUNS: Final = f"""
SELECT r.key, r.content, e.content, r.machine
FROM runs r JOIN environments e ON e.key = r.environment_key
WHERE (CAST(:kind AS text) IS NULL OR {_KIND} = :kind)
    AND (CAST(:model AS text) IS NULL OR coalesce(r.model, r.source) = :model)
    AND (CAST(:board AS text) IS NULL OR e.board = :board)
    AND (CAST(:before AS text) IS NULL OR r.started_at < :before
        OR (r.started_at = :before AND r.run_id > :after))
ORDER BY r.started_at DESC, r.run_id LIMIT :most
"""  # noqa: S608 - made of constants

RUN: Final = """
SELECT r.key, r.content, e.content, r.machine
FROM runs r JOIN environments e ON e.key = r.environment_key
WHERE r.run_id = :run_id
"""

RUN_KINDS: Final = f"SELECT {_KIND}, count(*) FROM runs r GROUP BY 1 ORDER BY 1"  # noqa: S608 - likewise

PREVIOUS_RUN: Final = """
SELECT p.run_id FROM runs r JOIN runs p ON p.kind = r.kind AND p.started_at < r.started_at
    AND coalesce(p.model, p.source) = coalesce(r.model, r.source)
JOIN environments f ON f.key = p.environment_key JOIN environments e ON e.key = r.environment_key
WHERE r.run_id = :run_id AND coalesce(f.board, '') = coalesce(e.board, '')
    AND f.device_kind = e.device_kind
ORDER BY p.started_at DESC LIMIT 1
"""

OP_CALLS: Final = """
SELECT run_key, op, cases, calls, outermost_cases, outermost_calls FROM op_usage
WHERE run_key IN :keys
"""

RUN_COMPLETE: Final = """
SELECT run_key, min(CASE WHEN complete THEN 1 ELSE 0 END) FROM recordings
WHERE run_key IN :keys GROUP BY run_key
"""

RUN_TESTS: Final = """
SELECT g.run_key, t.outcome, count(*)
FROM recordings g JOIN tests t ON t.recording_key = g.key
WHERE g.run_key IN :keys GROUP BY g.run_key, t.outcome
"""

RUN_ATTEMPTS: Final = """
SELECT run_key, outcome, sum(attempts) FROM op_attempts
WHERE run_key IN :keys GROUP BY run_key, outcome
"""

RUN_INTERRUPTED: Final = """
SELECT run_key, count(*) FROM attempts
WHERE run_key IN :keys AND outcome = 'not_run' AND detail LIKE :interrupted
GROUP BY run_key
"""

# Only vectors, of modules or of files, have suites.
RUNS_OF_VECTORS: Final = """
SELECT run_key FROM sweeps
WHERE run_key IN :keys AND (content LIKE '%"modules":%' OR content LIKE '%"file":%')
"""

RUN_XFAILED: Final = """
SELECT x.run_key, count(*) FROM results x JOIN verdicts v ON v.key = x.verdict_key
WHERE x.run_key IN :keys AND lower(v.suite) LIKE 'xfail%'
    AND v.outcome NOT IN ('passed', 'not_run')
GROUP BY x.run_key
"""

# Places are numbered from zero, so that the last one tells how many there are.
RUN_PLANNED: Final = """
SELECT s.run_key, coalesce((
    SELECT max(p.place) + 1 FROM planned p WHERE p.run_key = s.run_key), 0)
FROM sweeps s WHERE s.run_key IN :keys
"""

SESSIONS: Final = """
SELECT run_key, begun_at, process, alive_at, ending FROM sessions WHERE run_key IN :keys
"""

UNENDED: Final = """
SELECT begun_at, process, alive_at, ending FROM sessions WHERE ending IS NULL
"""

SWEEP: Final = """
SELECT s.content, s.plan_id FROM sweeps s JOIN runs r ON r.key = s.run_key
WHERE r.run_id = :run_id
"""

_CALLS: Final = "CASE WHEN c.outermost_calls > 0 THEN c.outermost_calls ELSE c.calls END"

PLANNED: Final = f"""
SELECT c.case_id, p.device_kind, p.board, p.suite, c.op, {_CALLS}
FROM runs r JOIN planned p ON p.run_key = r.key JOIN cases c ON c.key = p.case_key
WHERE r.run_id = :run_id ORDER BY p.place
"""  # noqa: S608 - made of constants

WAITING: Final = PLANNED.replace(
    "ORDER BY",
    """AND NOT EXISTS (
    SELECT 1 FROM results x WHERE x.run_key = p.run_key AND x.case_key = p.case_key) ORDER BY""",
)

ATTEMPTED_CASES: Final = f"""
SELECT c.op, a.content, {_CALLS}, t.content, p.suite
FROM runs r
JOIN attempts a ON a.run_key = r.key
JOIN cases c ON c.key = a.case_key
JOIN contents t ON t.case_key = c.key
LEFT JOIN planned p ON p.run_key = r.key AND p.case_key = c.key
WHERE r.run_id = :run_id ORDER BY a.started_at, a.attempt_id
"""  # noqa: S608 - made of constants

ATTEMPTED: Final = """
SELECT DISTINCT c.case_id
FROM runs r JOIN attempts a ON a.run_key = r.key JOIN cases c ON c.key = a.case_key
WHERE r.run_id = :run_id AND coalesce(a.detail, '') NOT LIKE :interrupted
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

FIND_CASE: Final = """
SELECT case_id FROM cases WHERE case_id >= :prefix AND case_id < :beyond ORDER BY case_id
"""

FIND_RUN: Final = """
SELECT run_id FROM runs
WHERE substr(run_id, 1, length(CAST(:prefix AS text))) = :prefix ORDER BY run_id
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

# Calls that count as those of another case have no outputs there.
FAMILY_DICTIONARIES: Final = """
SELECT g.dictionary FROM recordings g JOIN runs r ON r.key = g.run_key
WHERE r.kind = 'trace' AND g.dictionary IS NOT NULL AND g.key IN (
    SELECT x.recording_key FROM executions x JOIN cases c ON c.key = x.case_key
    WHERE c.op = :op AND x.ending_key IS NULL AND x.outcome = 'returned')
ORDER BY g.key
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

TESTS_AFTER: Final = """
SELECT t.recording_key, t.place, t.content FROM recordings g
JOIN tests t ON t.recording_key = g.key
WHERE g.run_key = :run_key AND (CAST(:outcome AS text) IS NULL OR t.outcome = :outcome)
    AND (t.recording_key > :recording OR (t.recording_key = :recording AND t.place > :place))
ORDER BY t.recording_key, t.place LIMIT :most
"""

RUN_OPS: Final = """
SELECT op, outermost_cases, outermost_calls FROM op_usage
WHERE run_key = :run_key AND outermost_calls > 0 AND NOT op IN :moving
ORDER BY outermost_calls DESC, op LIMIT :most
"""

RUN_ATTEMPTS_AFTER: Final = """
SELECT a.key, c.op, a.content FROM attempts a JOIN cases c ON c.key = a.case_key
WHERE a.run_key = :run_key AND a.outcome = :outcome AND a.key > :after
ORDER BY a.key LIMIT :most
"""

CASE_ATTEMPTS: Final = """
SELECT a.key, a.content FROM cases c JOIN attempts a ON a.case_key = c.key
WHERE c.case_id = :case_id AND a.key < :before ORDER BY a.key DESC LIMIT :most
"""

PROCESSES: Final = """
SELECT key, process, calls FROM recordings WHERE run_key = :run_key ORDER BY process LIMIT :most
"""

BLOCK_AT: Final = """
SELECT first, calls, content FROM call_blocks
WHERE recording_key = :key AND first <= :first ORDER BY first DESC LIMIT 1
"""

OP_RUNS: Final = """
SELECT r.run_id, r.kind, r.started_at, coalesce(a.board, e.board), e.device_kind, u.timed_calls,
    coalesce(u.total_ns, 0), coalesce(a.attempts, 0), coalesce(a.ran, 0), coalesce(a.passed, 0),
    coalesce(a.timed, 0),
    coalesce(a.total_ns, 0), coalesce(a.outputs, 0), coalesce(a.total_pcc, 0), a.least_pcc,
    a.most_pcc
FROM (
    SELECT run_key FROM op_usage WHERE op = :op AND timed_calls > 0
    UNION SELECT run_key FROM op_attempts WHERE op = :op
) k
JOIN runs r ON r.key = k.run_key JOIN environments e ON e.key = r.environment_key
LEFT JOIN op_usage u ON u.run_key = r.key AND u.op = :op AND u.timed_calls > 0
LEFT JOIN (
    SELECT run_key, min(board) AS board, sum(attempts) AS attempts,
        sum(CASE WHEN outcome = 'not_run' THEN 0 ELSE attempts END) AS ran,
        sum(CASE WHEN outcome = 'passed' THEN attempts ELSE 0 END) AS passed, sum(timed) AS timed,
        sum(total_ns) AS total_ns, sum(outputs) AS outputs, sum(total_pcc) AS total_pcc,
        min(least_pcc) AS least_pcc, max(most_pcc) AS most_pcc
    FROM op_attempts WHERE op = :op GROUP BY run_key
) a ON a.run_key = r.key
ORDER BY r.started_at DESC, r.run_id DESC LIMIT :most
"""

_BOTH_CALLED: Final = """
FROM usage a
LEFT JOIN usage b ON b.run_key = :b AND b.case_key = a.case_key AND b.outermost_calls > 0
WHERE a.run_key = :a AND a.outermost_calls > 0
    AND a.case_key NOT IN (SELECT key FROM cases WHERE op IN :moving)
"""
_CALL_CHANGE: Final = """
CASE WHEN b.case_key IS NULL THEN 'only_a'
    WHEN b.outermost_calls = a.outermost_calls THEN 'same'
    WHEN b.outermost_calls > a.outermost_calls THEN 'called_more'
    ELSE 'called_less' END
"""
CALL_COUNTS: Final = f"SELECT {_CALL_CHANGE}, count(*) {_BOTH_CALLED} GROUP BY 1"
CALL_CHANGES: Final = f"""
SELECT a.case_key, a.outermost_calls, b.outermost_calls {_BOTH_CALLED}
    AND a.case_key > :after AND {_CALL_CHANGE} = :kind ORDER BY a.case_key LIMIT :most
"""
_ONLY_B_CALLED: Final = """
FROM usage b WHERE b.run_key = :b AND b.outermost_calls > 0
    AND b.case_key NOT IN (SELECT key FROM cases WHERE op IN :moving) AND NOT EXISTS (
    SELECT 1 FROM usage a
    WHERE a.run_key = :a AND a.case_key = b.case_key AND a.outermost_calls > 0)
"""
ONLY_B_CALLED_COUNT: Final = f"SELECT 'only_b', count(*) {_ONLY_B_CALLED}"
ONLY_B_CALLED: Final = f"""
SELECT b.case_key, NULL, b.outermost_calls {_ONLY_B_CALLED}
    AND b.case_key > :after ORDER BY b.case_key LIMIT :most
"""

# A number for the verdicts in both runs, whether a PCC moved, and whether B took longer.
_MOVED: Final = """
CASE WHEN {one} IS NULL THEN {other} IS NOT NULL WHEN {other} IS NULL THEN 1 = 1
    ELSE NOT coalesce(abs({one} - {other}) <= :pcc_moved, 1 = 0) END
"""
_CHANGE: Final = f"""
(a.verdict_key * 536870912 + b.verdict_key) * 4
+ CASE WHEN a.outputs = 0 OR b.outputs = 0 THEN 0
    WHEN a.outputs = 1 AND b.outputs = 1 THEN
        CASE WHEN {_MOVED.format(one="a.pcc", other="b.pcc")} THEN 2 ELSE 0 END
    WHEN EXISTS (
        SELECT 1 FROM measurements m JOIN measurements n
            ON n.attempt_key = b.attempt_key AND n.name = 'pcc'
            AND coalesce(n.output, -1) = coalesce(m.output, -1)
        WHERE m.attempt_key = a.attempt_key AND m.name = 'pcc'
            AND {_MOVED.format(one="m.value", other="n.value")}) THEN 2
    ELSE 0 END
+ CASE WHEN b.took_ns - a.took_ns >= :longer_ns AND b.took_ns >= :slower * a.took_ns THEN 1
    ELSE 0 END
"""  # noqa: S608 - made of constants
RESULT_COUNTS: Final = f"""
SELECT {_CHANGE}, count(*) FROM results a
JOIN results b ON b.run_key = :b AND b.case_key = a.case_key
WHERE a.run_key = :a GROUP BY 1
"""  # noqa: S608 - made of constants
RESULT_CHANGES: Final = f"""
SELECT a.case_key FROM results a JOIN results b ON b.run_key = :b AND b.case_key = a.case_key
WHERE a.run_key = :a AND a.case_key > :after AND ({_CHANGE}) IN :changes
ORDER BY a.case_key LIMIT :most
"""  # noqa: S608 - made of constants
_ONLY_ONE: Final = """
FROM results a WHERE a.run_key = :a AND NOT EXISTS (
    SELECT 1 FROM results b WHERE b.run_key = :b AND b.case_key = a.case_key)
"""
COUNT_TRIED: Final = "SELECT count(*) FROM results WHERE run_key = :run_key"
ONLY_ONE: Final = f"""
SELECT a.case_key {_ONLY_ONE} AND a.case_key > :after ORDER BY a.case_key LIMIT :most
"""

VERDICTS: Final = """
SELECT key, outcome, device_kind, cause, suite, outputs FROM verdicts WHERE key IN :keys
"""

CASE_IDS: Final = "SELECT key, case_id, op FROM cases WHERE key IN :keys"

MODEL_BOARD_RUNS: Final = """
SELECT coalesce(r.model, r.source), e.board, count(*), max(r.started_at)
FROM runs r JOIN environments e ON e.key = r.environment_key
WHERE r.kind NOT IN ('replay', 'sweep') GROUP BY coalesce(r.model, r.source), e.board
"""

COUNT_ATTEMPTS: Final = "SELECT coalesce(sum(attempts), 0) FROM op_attempts"

LAST_ATTEMPTS: Final = """
SELECT op, board, device_kind, outcome, count(*) FROM last_attempts
GROUP BY op, board, device_kind, outcome
"""

LAST_ATTEMPTS_AT: Final = """
SELECT c.case_id, l.board, l.device_kind, a.content
FROM cases c JOIN last_attempts l ON l.case_key = c.key JOIN attempts a ON a.key = l.attempt_key
WHERE c.case_id IN :ids
"""

CONTENTS: Final = """
SELECT c.case_id, t.content FROM cases c JOIN contents t ON t.case_key = c.key
WHERE c.case_id IN :ids
"""

OPS_OF: Final = "SELECT case_id, op FROM cases WHERE case_id IN :ids"

RESULTS: Final = """
SELECT c.key, c.op, a.content, p.suite
FROM results x JOIN cases c ON c.key = x.case_key JOIN attempts a ON a.key = x.attempt_key
LEFT JOIN planned p ON p.run_key = x.run_key AND p.case_key = x.case_key
WHERE x.run_key = :run_key AND x.case_key IN :keys
"""


def case_row(row: tuple[Any, ...], calls: int) -> CaseRow:
    """Return a Case from a row of CASES or CASES_BY_ID."""
    _, case_id, semantic_id, family_id, op, replayable, content, *outermost = row
    return CaseRow(
        case_id, semantic_id, family_id, op, bool(replayable), calls, content, *outermost
    )


def execution_row(row: tuple[Any, ...]) -> ExecutionRow:
    """Return an execution from a row of EXECUTIONS."""
    case_id, run_id, source, model, machine, board, *rest = row
    test_id, phase, module, mode, outermost, outcome, calls, total_ns, raised, ending, *rest = rest
    device, started_at, shortest_ns, longest_ns = rest
    return ExecutionRow(
        case_id=case_id,
        run_id=run_id,
        source=source,
        model=model,
        machine=machine_from(machine),
        board=board,
        test_id=test_id,
        phase=None if phase is None else Phase(phase),
        module=module,
        mode=mode,
        outermost=bool(outermost),
        outcome=CallOutcome(outcome),
        count=calls,
        total_ns=total_ns,
        outputs=None if ending is None or raised else ending,
        error=json.loads(ending) if raised else None,
        device=device,
        started_at=started_at,
        shortest_ns=shortest_ns,
        longest_ns=longest_ns,
    )


@lru_cache(maxsize=256)
def machine_from(text: str) -> Machine:
    """Return the machine of a Run's row."""
    return Machine.of(json.loads(text))


def counted_calls(
    rows: Iterable[tuple[Any, ...]], counting: Counting | None
) -> defaultdict[Any, Counted]:
    """Return the counted calls by the first column of rows; the others are an op and its counts."""
    found: defaultdict[Any, list[OpCalls]] = defaultdict(list)
    for key, op, *numbers in rows:
        every, calls, cases, outermost = numbers
        found[key].append(OpCalls(op, cases, outermost, every - cases, calls - outermost))
    return defaultdict(Counted, {key: add_up(ops, counting) for key, ops in found.items()})


def planned_case(row: tuple[Any, ...]) -> PlannedCase:
    """Return a Case of a plan from a row of PLANNED or WAITING."""
    case_id, device_kind, board, suite, op, calls = row
    return PlannedCase(case_id, DeviceKind(device_kind), board, suite, op, calls)


def counted(rows: Iterable[tuple[Any, ...]]) -> dict[int, Counts]:
    """Return counts by Run, the largest first, from rows of (key, name, count)."""
    found: dict[int, list[tuple[str, int]]] = {}
    for key, name, count in rows:
        found.setdefault(key, []).append((name, count))
    order = {key: sorted(each, key=lambda item: (-item[1], item[0])) for key, each in found.items()}
    return {key: tuple(each) for key, each in order.items()}


def run_from(content: str, environment: str) -> Run:
    """Return a Run from its row and that of its environment."""
    return _record({**json.loads(content), "environment": json.loads(environment)}, Run)


def record_from(content: str, kind: type[R]) -> R:
    """Return a TestResult, an Attempt or a Sweep from its row."""
    return _record(json.loads(content), kind)


def _record(data: Any, kind: type[R]) -> R:
    # Imported when needed: most queries read no whole records.
    from optrove.serializer.records import record_from_builtins

    return record_from_builtins(data, kind)


ANY_SIZE: Final = -1
"""Stands for any size in a shape."""

_ENVIRONMENT: Final = "JOIN environments e ON e.key = r.environment_key"
_USES: Final = """
    SELECT g.run_key, x.case_key, sum(x.calls) AS calls,
        sum(CASE WHEN x.outermost THEN x.calls ELSE 0 END) AS outermost_calls
    FROM executions x
    JOIN recordings g ON g.key = x.recording_key
    LEFT JOIN scopes s ON s.key = x.scope_key
"""
_REPLAYABLE: Final = "sum(CASE WHEN c.replayable THEN 1 ELSE 0 END)"
_RUN_KEYS: Final = "SELECT r.key FROM runs r"
_TENSORS: Final = "SELECT 1 FROM case_tensors t WHERE t.case_key = c.key"
_VECTORS: Final = f"(c.op >= '{VECTORS}' AND c.op < '{BEYOND_VECTORS}')"
_LABELS: Final = "SELECT DISTINCT c.op, coalesce(r.model, r.source)"


class QuerySql:
    """The SQL of a Query: the Cases that match, and the calls of each."""

    def __init__(self, query: Query, ops: Sequence[str] | None = None) -> None:
        """Translate a Query; ``ops`` are the names that its pattern matches, if it has one."""
        self.parameters: dict[str, object] = {}
        self._uses = "usage"
        executions = list(self._execution_conditions(query))
        if executions:
            self._uses = f"({_USES} {_where(executions)} GROUP BY g.run_key, x.case_key)"
        self._counted = "outermost_calls" if query.outermost_only else "calls"
        self._of_runs = list(self._run_conditions(query))
        self._of_ops = list(self._op_conditions(query, ops))
        self._of_cases = list(self._case_conditions(query))
        self._outermost_only = query.outermost_only
        self._vectors = _means_vectors(query)
        self._limit = query.limit

    def keys(self) -> str:
        """Return the SQL for the keys of the Cases and their calls, most calls first."""
        calls, selected = self._selected()
        limit = ""
        if self._limit is not None:
            self.parameters["limit"] = self._limit
            limit = "LIMIT :limit"
        return f"SELECT c.key, {calls} {selected} ORDER BY {calls} DESC, c.case_id {limit}"

    def count(self) -> str:
        """Return the SQL for the number of Cases."""
        _, selected = self._selected()
        return f"SELECT count(*) {selected}"

    def ops(self) -> str:
        """Return the SQL for ops with their cases, calls and replayable cases."""
        calls, selected = self._selected()
        return f"SELECT c.op, count(*), sum({calls}), {_REPLAYABLE} {selected} GROUP BY c.op"

    def models(self) -> str:
        """Return the SQL for ops, each with a model (or source) that called it."""
        conditions = [*self._of_ops, *self._of_cases, *self._of_runs]
        if self._of_cases or self._uses != "usage":
            uses = f"{self._uses} u JOIN cases c ON c.key = u.case_key"
            conditions.append(f"u.{self._counted} > 0")
            runs = "JOIN runs r ON r.key = u.run_key"
        else:
            uses = "op_usage c"
            conditions.append(f"c.{self._counted} > 0")
            runs = "JOIN runs r ON r.key = c.run_key"
        return f"{_LABELS} FROM {uses} {runs} {_ENVIRONMENT} {_where(conditions)}"

    def _selected(self) -> tuple[str, str]:
        """Return the SQL for the calls of a Case, and for the Cases from FROM on."""
        conditions = [*self._of_ops, *self._of_cases]
        if self._of_runs or self._uses != "usage":
            calls, cases = "k.calls", f"({self._sums()}) k JOIN cases c ON c.key = k.case_key"
        else:
            calls, cases = f"c.{self._counted}", "cases c"
        if self._outermost_only:
            called = f"{calls} > 0"
            conditions.append(f"({called} OR {_VECTORS})" if self._vectors else called)
        return calls, f"FROM {cases} {_where(conditions)}"

    def _sums(self) -> str:
        """Return the SQL for Cases and their calls in the Runs that match."""
        runs = " ".join((_RUN_KEYS, _ENVIRONMENT, _where(self._of_runs)))
        what = f"u.case_key, sum(u.{self._counted}) AS calls FROM {self._uses} u"
        return f"SELECT {what} WHERE u.run_key IN ({runs}) GROUP BY u.case_key"

    def _run_conditions(self, query: Query) -> Iterator[str]:
        if query.run_id is not None:
            yield f"r.run_id = {self._bound(query.run_id)}"
        if query.model is not None:
            yield f"lower(coalesce(r.model, r.source)) = {self._bound(query.model.lower())}"
        if query.board is not None:
            yield f"lower(e.board) = {self._bound(query.board.lower())}"

    def _execution_conditions(self, query: Query) -> Iterator[str]:
        if query.test_id is not None:
            yield f"s.test_id = {self._bound(query.test_id)}"
        if query.raised:
            yield "x.outcome = 'raised'"

    def _op_conditions(self, query: Query, ops: Sequence[str] | None) -> Iterator[str]:
        if ops is not None:
            yield f"c.op IN {self._bound_list(ops)}" if ops else "1 = 0"
        elif query.op is not None:
            yield f"c.op = {self._bound(query.op)}"
        if not query.data_movement:
            yield f"c.op NOT IN {self._bound_list(sorted(DATA_MOVEMENT_OPS))}"
        if not _means_vectors(query):
            yield f"NOT {_VECTORS}"

    def _case_conditions(self, query: Query) -> Iterator[str]:
        if query.case_id is not None:
            yield f"c.case_id = {self._bound(query.case_id)}"
        if query.replayable is not None:
            yield "c.replayable" if query.replayable else "NOT c.replayable"
        tensor = list(self._tensor_conditions(query))
        if tensor:
            yield f"EXISTS ({_TENSORS} AND {' AND '.join(tensor)})"

    def _tensor_conditions(self, query: Query) -> Iterator[str]:
        if query.argument is not None:
            yield f"t.argument = {self._bound(query.argument)}"
        if query.dtype is not None:
            yield f"lower(t.dtype) = {self._bound(query.dtype.lower())}"
        if query.layout is not None:
            yield f"lower(t.layout) = {self._bound(query.layout.lower())}"
        if query.memory is not None:
            part = f"%~_{_literally(query.memory.lower())}~_%"
            yield f"lower('_' || t.memory || '_') LIKE {self._bound(part)} ESCAPE '~'"
        if query.shape is not None:
            yield self._sizes("t.shape", query.shape)
        if query.mesh is not None:
            yield self._sizes("t.mesh", query.mesh)

    def _sizes(self, column: str, sizes: Sequence[int]) -> str:
        if ANY_SIZE not in sizes:
            return f"{column} = {self._bound('x'.join(map(str, sizes)))}"
        # With as many separators as there are in the pattern, no size can hold one.
        pattern = "x".join("%" if size == ANY_SIZE else str(size) for size in sizes)
        separators = f"length({column}) - length(replace({column}, 'x', ''))"
        many = self._bound(len(sizes) - 1)
        return f"({column} LIKE {self._bound(pattern)} AND {separators} = {many})"

    def _bound(self, value: object) -> str:
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f":{name}"

    def _bound_list(self, values: Iterable[object]) -> str:
        return f"({', '.join(map(self._bound, values))})"


def _means_vectors(query: Query) -> bool:
    """Return whether the query includes vectors of sweep modules."""
    named = query.op is not None and is_vector(query.op)
    return query.vectors or named or query.case_id is not None


def _where(conditions: Iterable[str]) -> str:
    joined = " AND ".join(conditions)
    return f"WHERE {joined}" if joined else ""


def _literally(text: str) -> str:
    """Return ``text`` escaped for a pattern of LIKE."""
    return text.replace("~", "~~").replace("%", "~%").replace("_", "~_")


_BATCH_SIZE: Final = 500
"""The number of ids in one query."""
_CASES_PER_BATCH: Final = 100
_ALL: Final = 2**62
"""More rows than any table has."""


def open_reader(place: Place) -> TroveReader:
    """Open a trove for reading; one of an older version is migrated first.

    NoTrove when it does not exist, NotATrove when something else is there, NewerTrove when a later
    optrove wrote it, UnusableTrove when it cannot be read.
    """
    connection = connect(place)
    try:
        version = _readable_version(connection)
    except BaseException:
        connection.close()
        raise
    if version < schema.VERSION:
        connection.close()
        _migrate(place, version)
        connection = connect(place)
    return TroveReader(connection)


def _readable_version(connection: Connection) -> int:
    version, place = schema.version_of(connection), connection.place
    if version is None:
        empty = foreign(place, "it is an empty database")
        raise no_trove(place) if place.path is None else empty
    if version > schema.VERSION:
        raise newer(place, version, schema.VERSION)
    return version


def _migrate(place: Place, version: int) -> None:
    from optrove.trove.trove import open_trove

    try:
        open_trove(place, create=False).close()
    except UnusableTrove as error:
        raise UnusableTrove(
            f"the trove has version {version} and has to be migrated to version "
            f"{schema.VERSION} before it can be read, which failed: {error}"
        ) from error


class TroveReader(OpenedTrove):
    """A trove that is open for reading.

    Each answer shows one state of the trove; the next answer may show a later one.
    """

    def ops(self, query: Query) -> tuple[OpRow, ...]:
        """Return the ops of the Cases that match, most calls first."""
        with self.connection.snapshot():
            selection = self._selection(query)
            rows = self.connection.fetch(selection.ops(), selection.parameters)
            models: dict[str, list[str]] = {}
            for op, model in self.connection.fetch(selection.models(), selection.parameters):
                models.setdefault(op, []).append(model)
        found = [
            OpRow(
                op=op,
                cases=cases,
                calls=calls,
                models=tuple(sorted(models.get(op, ()))),
                replayable=replayable / cases,
            )
            for op, cases, calls, replayable in rows
        ]
        return tuple(sorted(found, key=lambda row: (-row.calls, row.op)))

    def cases(self, query: Query) -> Iterator[CaseRow]:
        """Yield the Cases that match, most calls first, then by their ids."""
        with self.connection.snapshot():
            selection = self._selection(query)
            found = self.connection.rows(selection.keys(), selection.parameters)
            for batch in batches(found, _CASES_PER_BATCH):
                by_key = {row[0]: row for row in self._by_keys(CASES, [key for key, _ in batch])}
                for key, calls in batch:
                    yield case_row(by_key[key], calls)

    def cases_by_id(self, case_ids: Iterable[str]) -> Iterator[CaseRow]:
        """Yield the Cases that the trove has, in the order of the ids, with all of their calls."""
        with self.connection.snapshot():
            for batch in batches(case_ids, _CASES_PER_BATCH):
                rows = {row[1]: row for row in self._all(CASES_BY_ID, ids=batch)}
                for case_id in batch:
                    if case_id in rows:
                        yield case_row(rows[case_id], rows[case_id][0])

    def count(self, query: Query) -> int:
        """Return the number of Cases that match, without the limit of the query."""
        with self.connection.snapshot():
            selection = self._selection(query)
            return self._number(selection.count(), **selection.parameters)

    def executions(
        self, case_ids: Iterable[str], *, by_run: bool = False, limit: int | None = None
    ) -> Iterator[ExecutionRow]:
        """Yield the executions of Cases, in the order of the ids; most calls first for each.

        With ``by_run`` they are summed up for each Run and device, without tests and outputs.
        """
        question = EXECUTIONS_BY_RUN if by_run else EXECUTIONS
        with self.connection.snapshot():
            for batch in batches(case_ids, _BATCH_SIZE):
                by_case: dict[str, list[ExecutionRow]] = {case_id: [] for case_id in batch}
                for row in self._all(question, ids=batch, most=limit or _ALL):
                    by_case[row[0]].append(execution_row(row))
                for rows in by_case.values():
                    yield from rows

    def tensors(self, case_ids: Iterable[str]) -> dict[str, tuple[TensorFacts, ...]]:
        """Return the tensors of each Case that the trove has, in the order of its arguments."""
        found: dict[str, tuple[TensorFacts, ...]] = {}
        with self.connection.snapshot():
            for batch in batches(case_ids, _BATCH_SIZE):
                found.update(dict.fromkeys(keys_of(self.connection, "cases", batch), ()))
                for case_id, *facts in self._all(TENSORS, ids=batch):
                    found[case_id] += (TensorFacts(*facts),)
        return found

    def config_calls(self, case_ids: Iterable[str]) -> dict[str, tuple[ConfigCalls, ...]]:
        """Return the entries of run configurations that Cases were called with, by case id."""
        found: dict[str, tuple[ConfigCalls, ...]] = {}
        with self.connection.snapshot():
            for batch in batches(case_ids, _BATCH_SIZE):
                for case_id, run_id, path, calls in self._all(CONFIG_CALLS, ids=batch):
                    found[case_id] = (*found.get(case_id, ()), ConfigCalls(run_id, path, calls))
        return found

    def runs(
        self,
        run_id: str | None = None,
        counting: Counting | None = None,
        *,
        chosen: Mapping[str, str | None] | None = None,
        after: Run | None = None,
        limit: int | None = None,
    ) -> tuple[RunRow, ...]:
        """Return all Runs, or the one that is named; the newest first.

        ``chosen`` may have a ``kind``, a ``model`` and a ``board``; lists go on after a Run.
        """
        with self.connection.snapshot():
            if run_id is not None:
                rows = list(self._all(RUN, run_id=run_id))
            else:
                asked = dict.fromkeys(("kind", "model", "board", "before", "after"))
                if after is not None:
                    asked |= {"before": after.started_at, "after": after.id}
                rows = list(self._all(RUNS, **asked | dict(chosen or {}), most=limit or _ALL))
            keys = [key for key, *_ in rows]
            totals = counted_calls(self._by_keys(OP_CALLS, keys), counting)
            ended = dict(self._by_keys(RUN_COMPLETE, keys))
            planned = dict(self._by_keys(RUN_PLANNED, keys))
            tests = counted(self._by_keys(RUN_TESTS, keys))
            attempts = counted(self._by_keys(RUN_ATTEMPTS, keys))
            cut = {"interrupted": f"{OUT_OF_BUDGET}%"}
            interrupted = dict(self._by_keys(RUN_INTERRUPTED, keys, **cut))
            of_vectors = [key for (key,) in self._by_keys(RUNS_OF_VECTORS, keys)]
            xfailed = dict(self._by_keys(RUN_XFAILED, of_vectors))
            sessions: dict[int, list[Session]] = {}
            for key, *session in self._by_keys(SESSIONS, keys):
                sessions.setdefault(key, []).append(session_from(session))
        runs = {key: run_from(content, environment) for key, content, environment, _ in rows}
        return tuple(
            RunRow(
                run=runs[key],
                machine=machine_from(machine),
                cases=totals[key].amount.cases,
                calls=totals[key].amount.calls,
                ops=totals[key].amount.ops,
                tests=tests.get(key, ()),
                attempts=_counts(attempts.get(key, ()), interrupted.get(key, 0)),
                xfailed=xfailed.get(key, 0),
                left=totals[key].left,
                progress=progress_of(
                    runs[key],
                    sessions.get(key, ()),
                    ended=bool(ended.get(key, 1)),
                    done=sum(count for _, count in attempts.get(key, ())) - interrupted.get(key, 0),
                    planned=planned.get(key),
                ),
                key=key,
            )
            for key, _, _, machine in rows
        )

    def unended(self) -> tuple[Session, ...]:
        """Return the Sessions that have no ending: they go on, or were killed."""
        return tuple(map(session_from, self._all(UNENDED)))

    def run_kinds(self) -> dict[str, int]:
        """Return the number of Runs of each kind."""
        return dict(self._all(RUN_KINDS))

    def previous_run(self, run_id: str) -> str | None:
        """Return the Run before this one that did the same on the same kind of the same board."""
        return next((found for (found,) in self._all(PREVIOUS_RUN, run_id=run_id)), None)

    def model_names(self) -> tuple[str, ...]:
        """Return the names of all models, or sources where no model is known; sorted."""
        return tuple(sorted(model for model, *_ in self._all(MODEL_RUNS)))

    def models(self, counting: Counting | None = None) -> tuple[ModelRow, ...]:
        """Return all models, or sources where no model is known; most calls first."""
        with self.connection.snapshot():
            runs = list(self._all(MODEL_RUNS))
            totals = counted_calls(self._all(MODEL_OP_CALLS), counting)
            boards: dict[str, list[str]] = {}
            for model, board in self._all(MODEL_BOARDS):
                boards.setdefault(model, []).append(board)
        found = [
            ModelRow(
                model=model,
                runs=count,
                ops=totals[model].amount.ops,
                cases=totals[model].amount.cases,
                calls=totals[model].amount.calls,
                boards=tuple(sorted(boards.get(model, ()))),
                last_run_at=last,
                left=totals[model].left,
            )
            for model, count, last in runs
        ]
        return tuple(sorted(found, key=lambda row: (-row.calls, row.model)))

    def op_names(self) -> tuple[str, ...]:
        """Return the names of all operations, sorted."""
        vectors = self._all(VECTOR_OPS, first=VECTORS, beyond=BEYOND_VECTORS)
        found = {name for (name,) in chain(self._all(OP_NAMES), vectors)}
        return tuple(sorted(found))

    def find_case(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of the Cases that begin so, sorted."""
        # Ids have no letters beyond f.
        found = self._all(FIND_CASE, prefix=prefix, beyond=f"{prefix}g")
        return tuple(case_id for (case_id,) in found)

    def find_run(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of the Runs that begin so, sorted."""
        return tuple(run_id for (run_id,) in self._all(FIND_RUN, prefix=prefix))

    def known(self, case_ids: Iterable[str]) -> set[str]:
        """Return the ids of those Cases that the trove has."""
        return set(keys_of(self.connection, "cases", case_ids))

    def holds(self, run_id: str, process: int) -> tuple[int, int] | None:
        """Return the size in bytes and the calls of a stored journal; None if it is not stored."""
        rows = self._all(HOLDS, run_id=run_id, process=process)
        return next(((size, calls) for size, calls in rows), None)

    def calls(self, run_id: str) -> Iterator[Call]:
        """Yield every call of a Run in its order, one process after another; none for imports."""
        from optrove.journal.calls import calls_of

        with self.connection.snapshot():
            for key, dictionary in list(self._all(DICTIONARIES, run_id=run_id)):
                if dictionary is not None:
                    rows = self._all(BLOCKS, key=key)
                    blocks = (CallBlock(first, calls, bytes(each)) for first, calls, each in rows)
                    yield from calls_of(bytes(dictionary), blocks, run_id)

    def flows(self, run_id: str) -> dict[int, Flow]:
        """Return the flow of tensors in the processes of a Run, where it was recorded."""
        from optrove.journal.calls import Dictionary, flow_in

        found = {}
        for _, dictionary in list(self._all(DICTIONARIES, run_id=run_id)):
            flow = None if dictionary is None else flow_in(bytes(dictionary))
            if flow is not None:
                found[Dictionary(bytes(dictionary)).numbers["process"]] = flow
        return found

    def configurations(self, run_id: str) -> Iterator[tuple[str, int, str]]:
        """Yield the configurations of an imported Run: case id, count and text of each."""
        from optrove.journal.calls import configurations_of

        for _, dictionary in list(self._all(DICTIONARIES, run_id=run_id)):
            if dictionary is not None:
                yield from configurations_of(bytes(dictionary))

    def places(self, run_id: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the cases of a traced Run with the arguments that were passed by place."""
        from optrove.journal.calls import places_of

        for _, dictionary in list(self._all(DICTIONARIES, run_id=run_id)):
            if dictionary is not None:
                yield from places_of(bytes(dictionary))

    def families(self, op: str) -> dict[str, CaseFamily]:
        """Return the cases of an op that others count as, which differ in numbers only.

        Where several processes had such cases, calls are added up; the number of cases and values
        is that of the process that had most.
        """
        from optrove.journal.calls import families_of

        found: dict[str, CaseFamily] = {}
        for (dictionary,) in self._all(FAMILY_DICTIONARIES, op=op):
            for case_id, family in families_of(bytes(dictionary)):
                found[case_id] = family if case_id not in found else found[case_id] | family
        return found

    def tests(self, run_id: str) -> Iterator[TestResult]:
        """Yield the results of the tests of a Run, in their order."""
        for (content,) in self._all(TESTS, run_id=run_id):
            yield record_from(content, TestResult)

    def attempts(self, run_id: str) -> Iterator[Attempt]:
        """Yield the Attempts of a Run, in their order."""
        return (each.attempt for each in self.attempted_cases(run_id))

    def tests_after(
        self, run_key: int, after: tuple[int, int], outcome: str | None, limit: int
    ) -> list[tuple[tuple[int, int], TestResult]]:
        """Return results of tests of a Run in their order, each with its place, after a place."""
        asked = {"run_key": run_key, "recording": after[0], "place": after[1], "outcome": outcome}
        rows = self._all(TESTS_AFTER, **asked, most=limit)
        return [
            ((recording, place), record_from(content, TestResult))
            for recording, place, content in rows
        ]

    def run_ops(self, run_key: int, limit: int) -> list[tuple[str, int, int]]:
        """Return op, cases and calls of the ops that a Run calls most, but for data movement."""
        asked = {"run_key": run_key, "moving": sorted(DATA_MOVEMENT_OPS), "most": limit}
        return [(op, cases, calls) for op, cases, calls in self._all(RUN_OPS, **asked)]

    def run_attempts_after(
        self, run_key: int, after: int, outcomes: Iterable[str], limit: int
    ) -> list[tuple[int, AttemptedCase]]:
        """Return Attempts of a Run with these outcomes as they were added, each with its key."""
        asked = {"run_key": run_key, "after": after, "most": limit}
        # An index has those of one outcome in their order; those of several have to be sorted.
        rows = [
            row for each in outcomes for row in self._all(RUN_ATTEMPTS_AFTER, **asked, outcome=each)
        ]
        rows.sort(key=itemgetter(0))
        return [
            (key, AttemptedCase(op, record_from(content, Attempt)))
            for key, op, content in rows[:limit]
        ]

    def case_attempts(
        self, case_id: str, before: int | None, limit: int
    ) -> list[tuple[int, Attempt]]:
        """Return Attempts at a Case, the last one first, each with its key, before a key."""
        rows = self._all(CASE_ATTEMPTS, case_id=case_id, before=before or _ALL, most=limit)
        return [(key, record_from(content, Attempt)) for key, content in rows]

    def processes(self, run_key: int, limit: int) -> list[tuple[int, int, int]]:
        """Return the key of the Recording, number and calls of processes of a Run."""
        rows = self._all(PROCESSES, run_key=run_key, most=limit)
        return [(key, process, calls) for key, process, calls in rows]

    def calls_from(
        self, recording_key: int, first: int, limit: int
    ) -> tuple[Sequence[TimelineCall], int]:
        """Return some calls of a Recording from an op_index on, and the op_index to go on with."""
        from optrove.journal.calls import calls_within

        ((dictionary,),) = self._all(DICTIONARY, key=recording_key)
        for begin, calls, content in self._all(BLOCK_AT, key=recording_key, first=first):
            if dictionary is not None:
                block = CallBlock(begin, calls, bytes(content))
                found = calls_within(bytes(dictionary), block, first, limit)
                # Calls that were filtered are not shown; a block may have no others.
                return found, found[-1].op_index + 1 if len(found) == limit else begin + calls
        return (), _ALL

    def op_runs(self, op: str, limit: int) -> list[OpRunRow]:
        """Return the last Runs that call an op or attempt its Cases, the newest first."""
        return [OpRunRow._make(row) for row in self._all(OP_RUNS, op=op, most=limit)]

    def model_runs(self) -> dict[str, ModelRuns]:
        """Return the Runs of each model, or of each source where no model is known."""
        found: dict[str, ModelRuns] = {}
        for model, board, count, last in self._all(MODEL_BOARD_RUNS):
            before = found.get(model, ModelRuns(0, last, ()))
            boards = {*before.boards, *([] if board is None else [board])}
            last_run_at = max(last, before.last_run_at)
            found[model] = ModelRuns(before.runs + count, last_run_at, tuple(sorted(boards)))
        return found

    def count_attempts(self) -> int:
        """Return the number of all Attempts."""
        return self._number(COUNT_ATTEMPTS)

    def last_attempts(self) -> list[tuple[str, str, str, str, int]]:
        """Return op, board, kind of device, outcome and number of the last Attempts at Cases."""
        rows = self._all(LAST_ATTEMPTS)
        return [(op, board, kind, outcome, count) for op, board, kind, outcome, count in rows]

    def last_attempts_at(self, case_ids: Iterable[str]) -> dict[tuple[str, str, str], Attempt]:
        """Return the last Attempts at Cases, by case id, board and kind of device."""
        return {
            (case_id, board, kind): record_from(content, Attempt)
            for batch in batches(case_ids, _BATCH_SIZE)
            for case_id, board, kind, content in self._all(LAST_ATTEMPTS_AT, ids=batch)
        }

    def contents(self, case_ids: Iterable[str]) -> dict[str, str]:
        """Return the canonical JSON of Cases by their ids."""
        found = (self._all(CONTENTS, ids=each) for each in batches(case_ids, _BATCH_SIZE))
        return dict(chain(*found))

    def ops_of(self, case_ids: Iterable[str]) -> dict[str, str]:
        """Return the ops of Cases by their ids."""
        found = (self._all(OPS_OF, ids=each) for each in batches(case_ids, _BATCH_SIZE))
        return dict(chain(*found))

    def call_counts(self, a: int, b: int) -> dict[str, int]:
        """Return the number of Cases that two Runs call equally, more, less, or only one calls."""
        asked = {"a": a, "b": b, "moving": sorted(DATA_MOVEMENT_OPS)}
        return dict(chain(self._all(CALL_COUNTS, **asked), self._all(ONLY_B_CALLED_COUNT, **asked)))

    def call_changes(
        self, a: int, b: int, kind: str, after: int, limit: int
    ) -> list[tuple[int, int | None, int | None]]:
        """Return Cases with this change of calls, by their keys, and the calls in both Runs."""
        asked: dict[str, object] = {"moving": sorted(DATA_MOVEMENT_OPS), "kind": kind}
        sql = ONLY_B_CALLED if kind == "only_b" else CALL_CHANGES
        rows = self._all(sql, a=a, b=b, after=after, most=limit, **asked)
        return [(key, before, now) for key, before, now in rows]

    def result_counts(
        self, a: int, b: int, bounds: Mapping[str, float]
    ) -> dict[VerdictChange, int]:
        """Return the number of Cases with each change of results between two Runs.

        ``bounds`` are ``pcc_moved``, ``longer_ns`` and ``slower``.
        """
        rows = self._all(RESULT_COUNTS, a=a, b=b, **bounds)
        return {VerdictChange.of(code): count for code, count in rows}

    def result_changes(
        self,
        a: int,
        b: int,
        bounds: Mapping[str, float],
        changes: Iterable[VerdictChange],
        after: int,
        limit: int,
    ) -> list[int]:
        """Return the keys of Cases with one of these changes, in their order."""
        codes = [change.code for change in changes]
        asked = {"a": a, "b": b, **bounds, "changes": codes, "after": after, "most": limit}
        return [key for (key,) in self._all(RESULT_CHANGES, **asked)]

    def only_tried(self, a: int, b: int, after: int, limit: int) -> list[int]:
        """Return the keys of Cases that Run ``a`` has tried and Run ``b`` has not."""
        asked = {"a": a, "b": b, "after": after, "most": limit}
        return [key for (key,) in self._all(ONLY_ONE, **asked)]

    def count_tried(self, run_key: int) -> int:
        """Return the number of Cases that a Run has tried."""
        return self._number(COUNT_TRIED, run_key=run_key)

    def verdicts(self, keys: Iterable[int]) -> dict[int, Verdict]:
        """Return verdicts by their keys."""
        return {key: Verdict(*columns) for key, *columns in self._by_keys(VERDICTS, keys)}

    def case_names(self, keys: Iterable[int]) -> dict[int, tuple[str, str]]:
        """Return the ids and ops of Cases by their keys."""
        return {key: (case_id, op) for key, case_id, op in self._by_keys(CASE_IDS, keys)}

    def results(self, run_key: int, case_keys: Iterable[int]) -> dict[int, AttemptedCase]:
        """Return the last Attempts of a Run at Cases, by the keys of the Cases."""
        return {
            key: AttemptedCase(op, record_from(content, Attempt), suite=suite)
            for key, op, content, suite in self._by_keys(RESULTS, case_keys, run_key=run_key)
        }

    def sweep(self, run_id: str) -> Sweep | None:
        """Return the request of a sweep; None if the Run is not a sweep."""
        asked = self._all(SWEEP, run_id=run_id)
        return next((record_from(content, Sweep) for content, _ in asked), None)

    def planned(self, run_id: str) -> Iterator[PlannedCase]:
        """Yield the plan of a sweep, in its order."""
        return map(planned_case, self._all(PLANNED, run_id=run_id))

    def waiting(self, run_id: str) -> Iterator[PlannedCase]:
        """Yield the Cases that a sweep has planned and not attempted, in the order of the plan."""
        return map(planned_case, self._all(WAITING, run_id=run_id))

    def attempted_cases(self, run_id: str) -> Iterator[AttemptedCase]:
        """Yield the Attempts of a Run with their Cases, in the order in which they were made."""
        for op, attempt, calls, content, suite in self._all(ATTEMPTED_CASES, run_id=run_id):
            yield AttemptedCase(op, record_from(attempt, Attempt), calls, content, suite)

    def attempted(self, run_id: str) -> frozenset[str]:
        """Return the ids of the Cases that a Run has attempted, without interrupting them."""
        asked = {"run_id": run_id, "interrupted": f"{OUT_OF_BUDGET}%"}
        return frozenset(case_id for (case_id,) in self._all(ATTEMPTED, **asked))

    def _selection(self, query: Query) -> QuerySql:
        if query.op is None or "*" not in query.op:
            return QuerySql(query)
        return QuerySql(query, [name for name in self.op_names() if _fits(name, query.op)])

    def _all(self, sql: str, **parameters: object) -> Iterator[tuple[Any, ...]]:
        return self.connection.rows(sql, parameters)

    def _by_keys(
        self, sql: str, keys: Iterable[int], **parameters: object
    ) -> Iterator[tuple[Any, ...]]:
        for batch in batches(keys, _BATCH_SIZE):
            yield from self.connection.rows(sql, {**parameters, "keys": batch})

    def _number(self, sql: str, **parameters: object) -> int:
        ((number,),) = self.connection.fetch(sql, parameters)
        return cast("int", number)


def _counts(attempts: Counts, interrupted: int) -> Counts:
    """Return counts by outcome, in which those that the budget ended are ``not_attempted``."""
    if not interrupted:
        return attempts
    found = dict(attempts)
    left = found.pop(Outcome.NOT_RUN.value) - interrupted
    return (
        *found.items(),
        *([(Outcome.NOT_RUN.value, left)] if left else []),
        (NOT_ATTEMPTED, interrupted),
    )


def _fits(name: str, pattern: str) -> bool:
    """Return whether a pattern stands for a name; nothing but ``*`` has a meaning in it."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))

"""Open a trove for reading, and answer queries.

``:ids`` and ``:keys`` stand for lists, which the reader binds item by item.

Every part of the text is written here; what the query says is only ever bound to it. In the texts
``c`` is a Case, ``u`` how often a Run has called it, ``r`` that Run and ``t`` a tensor of the Case.
"""

from __future__ import annotations

import json
from collections import defaultdict
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import UnusableTrove
from optrove.model.ops import (
    BEYOND_VECTORS,
    HIDDEN_OPS,
    VECTORS,
    Counted,
    OpCalls,
    add_up,
    is_hidden,
)
from optrove.model.records import CallOutcome, DeviceKind, Phase
from optrove.model.trove import (
    CallBlock,
    CaseRow,
    ConfigCalls,
    ExecutionRow,
    Machine,
    ModelRow,
    OpRow,
    PlannedCase,
    RunRow,
    TensorFacts,
)
from optrove.trove import schema
from optrove.trove.database import batches, connect
from optrove.trove.faults import foreign, newer, no_trove

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from optrove.model.ops import Counting
    from optrove.model.records import Attempt, Call, Counts, Query, Run, Sweep, TestResult
    from optrove.trove.database import Connection
    from optrove.trove.place import Place


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


def case_row(row: tuple[Any, ...], calls: int) -> CaseRow:
    """Return a Case from a row of CASES."""
    _, case_id, semantic_id, family_id, op, replayable, content = row
    return CaseRow(case_id, semantic_id, family_id, op, bool(replayable), calls, content)


def execution_row(row: tuple[Any, ...]) -> ExecutionRow:
    """Return an execution from a row of EXECUTIONS."""
    case_id, run_id, source, model, machine, board, *rest = row
    test_id, phase, module, mode, outermost, outcome, calls, total_ns, raised, ending, device = rest
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
        count=int(calls),
        total_ns=None if total_ns is None else int(total_ns),
        outputs=None if ending is None or raised else ending,
        error=json.loads(ending) if raised else None,
        device=device,
    )


@lru_cache(maxsize=256)
def machine_from(text: str) -> Machine:
    """Return the machine that a Run's row tells."""
    told: dict[str, Any] = json.loads(text)
    for name in ("mesh_device_shape", "device_ids"):
        if name in told:
            told[name] = tuple(told[name])
    return Machine(**told)


def counted_calls(
    rows: Iterable[tuple[Any, ...]], counting: Counting | None
) -> defaultdict[Any, Counted]:
    """Count what was called, by what rows begin with; they go on with an op and its counts."""
    found: defaultdict[Any, list[OpCalls]] = defaultdict(list)
    for key, op, *numbers in rows:
        found[key].append(OpCalls(op, *map(int, numbers)))
    return defaultdict(Counted, {key: add_up(ops, counting) for key, ops in found.items()})


def planned_case(row: tuple[Any, ...]) -> PlannedCase:
    """Return a Case of a plan from a row of PLANNED."""
    case_id, device_kind, board, suite = row
    return PlannedCase(case_id, DeviceKind(device_kind), board, suite)


def counted(rows: Iterable[tuple[Any, ...]]) -> dict[int, Counts]:
    """Return how often a Run has had what, most often first, from (key, what, count)."""
    found: dict[int, list[tuple[str, int]]] = {}
    for key, what, count in rows:
        found.setdefault(key, []).append((what, int(count)))
    order = {key: sorted(each, key=lambda item: (-item[1], item[0])) for key, each in found.items()}
    return {key: tuple(each) for key, each in order.items()}


# Imported when needed: most queries read no whole records.


def run_from(content: str, environment: str) -> Run:
    """Return a Run from its row and that of its environment."""
    from optrove.model.records import Run
    from optrove.serializer.records import record_from_builtins

    return record_from_builtins(
        {**json.loads(content), "environment": json.loads(environment)}, Run
    )


def test_from(content: str) -> TestResult:
    """Return the result of a test from its row."""
    from optrove.model.records import TestResult
    from optrove.serializer.records import record_from_builtins

    return record_from_builtins(json.loads(content), TestResult)


def attempt_from(content: str) -> Attempt:
    """Return an Attempt from its row."""
    from optrove.model.records import Attempt
    from optrove.serializer.records import record_from_builtins

    return record_from_builtins(json.loads(content), Attempt)


def sweep_from(content: str) -> Sweep:
    """Return what a sweep was asked for from its row."""
    from optrove.model.records import Sweep
    from optrove.serializer.records import record_from_builtins

    return record_from_builtins(json.loads(content), Sweep)


ANY_SIZE: Final = -1
"""Stands for any size in a shape."""

_ENVIRONMENT: Final = "JOIN environments e ON e.key = r.environment_key"
_WITHIN_TEST: Final = """(
    SELECT g.run_key, x.case_key, sum(x.calls) AS calls,
        sum(CASE WHEN x.outermost THEN x.calls ELSE 0 END) AS outermost_calls
    FROM executions x
    JOIN recordings g ON g.key = x.recording_key
    JOIN scopes s ON s.key = x.scope_key
    WHERE s.test_id = :test_id
    GROUP BY g.run_key, x.case_key
)"""
_REPLAYABLE: Final = "sum(CASE WHEN c.replayable THEN 1 ELSE 0 END)"
_RUN_KEYS: Final = "SELECT r.key FROM runs r"
_TENSORS: Final = "SELECT 1 FROM case_tensors t WHERE t.case_key = c.key"
_VECTORS: Final = f"(c.op >= '{VECTORS}' AND c.op < '{BEYOND_VECTORS}')"
_LABELS: Final = "SELECT DISTINCT c.op, coalesce(r.model, r.source)"


class Selection:
    """A query as SQL: which Cases are meant, and how often each was called."""

    def __init__(self, query: Query, ops: Sequence[str] | None = None) -> None:
        """Take a query; ``ops`` are the names that its pattern stands for, if it has one."""
        self.parameters: dict[str, object] = {}
        self._uses = "usage"
        if query.test_id is not None:
            self.parameters["test_id"] = query.test_id
            self._uses = _WITHIN_TEST
        self._counted = "outermost_calls" if query.outermost_only else "calls"
        self._of_runs = list(self._run_conditions(query))
        self._of_ops = list(self._op_conditions(query, ops))
        self._of_cases = list(self._case_conditions(query))
        self._outermost_only = query.outermost_only
        self._vectors = _means_vectors(query)
        self._limit = query.limit

    def keys(self) -> str:
        """Return the question for the keys of the Cases and their calls, most calls first."""
        calls, selected = self._selected()
        limit = ""
        if self._limit is not None:
            self.parameters["limit"] = self._limit
            limit = "LIMIT :limit"
        return f"SELECT c.key, {calls} {selected} ORDER BY {calls} DESC, c.case_id {limit}"

    def count(self) -> str:
        """Return the question for the number of Cases."""
        _, selected = self._selected()
        return f"SELECT count(*) {selected}"

    def ops(self) -> str:
        """Return the question for operations with their cases, calls and replayable cases."""
        calls, selected = self._selected()
        return f"SELECT c.op, count(*), sum({calls}), {_REPLAYABLE} {selected} GROUP BY c.op"

    def models(self) -> str:
        """Return the question for operations and what they were called by: model or source."""
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
        """Return what counts the calls of a Case, and the Cases from FROM on."""
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
        """Return the question for Cases and their calls by the Runs that are meant."""
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

    def _op_conditions(self, query: Query, ops: Sequence[str] | None) -> Iterator[str]:
        if ops is not None:
            yield f"c.op IN {self._bound_list(ops)}" if ops else "1 = 0"
        elif query.op is not None:
            yield f"c.op = {self._bound(query.op)}"
        if not query.hidden_ops:
            yield f"c.op NOT IN {self._bound_list(sorted(HIDDEN_OPS))}"
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
        if query.mesh_shape is not None:
            yield self._sizes("t.mesh", query.mesh_shape)

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
    """Tell whether vectors of sweep modules are meant; whoever names one wants to see it."""
    named = query.op is not None and query.op.startswith(VECTORS)
    return query.vectors or named or query.case_id is not None


def _where(conditions: Iterable[str]) -> str:
    joined = " AND ".join(conditions)
    return f"WHERE {joined}" if joined else ""


def _literally(text: str) -> str:
    """Return ``text`` as a part of a pattern in which nothing stands for something else."""
    return text.replace("~", "~~").replace("%", "~%").replace("_", "~_")


_AT_ONCE: Final = 500
"""How many ids are asked for at once: within what every SQLite takes as parameters."""
_CASES_AT_ONCE: Final = 100


def open_reader(place: Place) -> TroveReader:
    """Open a trove for reading; one of an older version is migrated first.

    NoTrove when there is none, NotATrove when something else is there, NewerTrove when a later
    optrove wrote it, UnusableTrove when it cannot be read.
    """
    source = connect(place)
    try:
        version = _readable_version(source)
    except BaseException:
        source.close()
        raise
    if version < schema.VERSION:
        source.close()
        _migrate(place, version)
        source = connect(place)
    return TroveReader(source)


def _readable_version(source: Connection) -> int:
    version, place = schema.version_of(source), source.place
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


class TroveReader:
    """A trove that is open for reading.

    Every answer is of one state of the trove; the next answer may be of a later one.
    """

    def __init__(self, source: Connection) -> None:
        self.source = source

    @property
    def place(self) -> Place:
        """Where the trove is."""
        return self.source.place

    def __enter__(self) -> TroveReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the trove."""
        self.source.close()

    def ops(self, query: Query) -> tuple[OpRow, ...]:
        """Return the operations of the Cases that are meant, most calls first."""
        with self.source.snapshot():
            selection = self._selection(query)
            rows = list(self.source.rows(selection.ops(), selection.parameters))
            models: dict[str, list[str]] = {}
            for op, model in self.source.rows(selection.models(), selection.parameters):
                models.setdefault(op, []).append(model)
        found = [
            OpRow(
                op=op,
                cases=cases,
                calls=int(calls),
                models=tuple(sorted(models.get(op, ()))),
                replayable=int(replayable) / cases,
                hidden=is_hidden(op),
            )
            for op, cases, calls, replayable in rows
        ]
        return tuple(sorted(found, key=lambda row: (-row.calls, row.op)))

    def cases(self, query: Query) -> Iterator[CaseRow]:
        """Yield the Cases that are meant, most calls first, then by their ids."""
        with self.source.snapshot():
            selection = self._selection(query)
            found = self.source.rows(selection.keys(), selection.parameters)
            for batch in batches(found, _CASES_AT_ONCE):
                rows = self._rows(CASES, "keys", [key for key, _ in batch])
                by_key = {row[0]: row for row in rows}
                for key, calls in batch:
                    yield case_row(by_key[key], int(calls))

    def cases_by_id(self, case_ids: Iterable[str]) -> Iterator[CaseRow]:
        """Yield those Cases that are there, in the order of the ids; ``calls`` are all of them."""
        with self.source.snapshot():
            for batch in batches(case_ids, _CASES_AT_ONCE):
                rows = {row[1]: row for row in self._rows(CASES_BY_ID, "ids", batch)}
                for case_id in batch:
                    if case_id in rows:
                        yield case_row(rows[case_id], int(rows[case_id][0]))

    def count(self, query: Query) -> int:
        """Return how many Cases are meant, whatever the limit."""
        with self.source.snapshot():
            selection = self._selection(query)
            ((count,),) = self.source.rows(selection.count(), selection.parameters)
        return int(count)

    def executions(
        self, case_ids: Iterable[str], *, by_run: bool = False
    ) -> Iterator[ExecutionRow]:
        """Yield how Cases were executed, in the order of the ids; most calls first for each.

        With ``by_run`` they are summed up for each Run, and tell nothing of tests and outputs.
        """
        question = EXECUTIONS_BY_RUN if by_run else EXECUTIONS
        with self.source.snapshot():
            for batch in batches(case_ids, _AT_ONCE):
                by_case: dict[str, list[ExecutionRow]] = {case_id: [] for case_id in batch}
                for row in self._rows(question, "ids", batch):
                    by_case[row[0]].append(execution_row(row))
                for rows in by_case.values():
                    yield from rows

    def tensors(self, case_ids: Iterable[str]) -> dict[str, tuple[TensorFacts, ...]]:
        """Return the tensors of each Case that is there, in the order of its arguments."""
        found: dict[str, tuple[TensorFacts, ...]] = {}
        with self.source.snapshot():
            for batch in batches(case_ids, _AT_ONCE):
                found.update((case_id, ()) for (case_id,) in self._rows(KNOWN, "ids", batch))
                for case_id, *facts in self._rows(TENSORS, "ids", batch):
                    found[case_id] += (TensorFacts(*facts),)
        return found

    def config_calls(self, case_ids: Iterable[str]) -> dict[str, tuple[ConfigCalls, ...]]:
        """Return which entries of run configurations each Case was called with, if any."""
        found: dict[str, tuple[ConfigCalls, ...]] = {}
        with self.source.snapshot():
            for batch in batches(case_ids, _AT_ONCE):
                for case_id, run_id, path, calls in self._rows(CONFIG_CALLS, "ids", batch):
                    row = ConfigCalls(run_id, path, int(calls))
                    found[case_id] = (*found.get(case_id, ()), row)
        return found

    def runs(
        self, run_id: str | None = None, counting: Counting | None = None
    ) -> tuple[RunRow, ...]:
        """Return all Runs, or the one that is named; the newest first."""
        with self.source.snapshot():
            if run_id is None:
                rows = list(self._all(RUNS))
                called = self._all(OP_CALLS)
            else:
                rows = list(self._all(RUN, run_id=run_id))
                called = self._all(RUN_OP_CALLS, run_id=run_id)
            totals = counted_calls(called, counting)
            complete = dict(self._all(RUN_COMPLETE))
            planned = dict(self._all(RUN_PLANNED))
            tests = counted(self._all(RUN_TESTS))
            attempts = counted(self._all(RUN_ATTEMPTS))
        return tuple(
            RunRow(
                run=run_from(content, environment),
                machine=machine_from(machine),
                cases=totals[key].amount.cases,
                calls=totals[key].amount.calls,
                tests=tests.get(key, ()),
                complete=bool(complete.get(key, 1))
                and planned.get(key, 0) <= sum(count for _, count in attempts.get(key, ())),
                attempts=attempts.get(key, ()),
                planned=planned.get(key),
                left=totals[key].left,
            )
            for key, _, content, environment, machine in rows
        )

    def model_names(self) -> tuple[str, ...]:
        """Return the names of all models, or sources where no model is known; sorted."""
        return tuple(sorted(model for model, *_ in self._all(MODEL_RUNS)))

    def models(self, counting: Counting | None = None) -> tuple[ModelRow, ...]:
        """Return all models, or sources where no model is known; most calls first."""
        with self.source.snapshot():
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
        return self._beginning(FIND_CASE, prefix)

    def find_run(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of the Runs that begin so, sorted."""
        return self._beginning(FIND_RUN, prefix)

    def known(self, case_ids: Iterable[str]) -> set[str]:
        """Return those of the Cases that are there."""
        found: set[str] = set()
        for batch in batches(case_ids, _AT_ONCE):
            found.update(case_id for (case_id,) in self._rows(KNOWN, "ids", batch))
        return found

    def holds(self, run_id: str, process: int) -> tuple[int, int] | None:
        """Return size in bytes and calls of a process's journal that is there; None: it is not."""
        asked = {"run_id": run_id, "process": process}
        return next(((size, calls) for size, calls in self.source.rows(HOLDS, asked)), None)

    def calls(self, run_id: str) -> Iterator[Call]:
        """Yield every call of a Run in its order, one process after another; imports have none."""
        from optrove.journal.calls import calls_of

        with self.source.snapshot():
            for key, dictionary in list(self._all(DICTIONARIES, run_id=run_id)):
                if dictionary is not None:
                    rows = self._all(BLOCKS, key=key)
                    blocks = (CallBlock(first, calls, bytes(each)) for first, calls, each in rows)
                    yield from calls_of(bytes(dictionary), blocks, run_id)

    def tests(self, run_id: str) -> Iterator[TestResult]:
        """Yield the results of the tests of a Run, in their order."""
        for (content,) in self._all(TESTS, run_id=run_id):
            yield test_from(content)

    def attempts(self, run_id: str) -> Iterator[Attempt]:
        """Yield the Attempts of a Run, in their order."""
        for (content,) in self._all(ATTEMPTS, run_id=run_id):
            yield attempt_from(content)

    def sweep(self, run_id: str) -> Sweep | None:
        """Return what a sweep was asked for; None when the Run is none."""
        asked = self._all(SWEEP, run_id=run_id)
        return next((sweep_from(content) for content, _ in asked), None)

    def planned(self, run_id: str) -> Iterator[PlannedCase]:
        """Yield the plan of a sweep, in its order."""
        for row in self._all(PLANNED, run_id=run_id):
            yield planned_case(row)

    def attempted(self, run_id: str) -> frozenset[str]:
        """Return the ids of the Cases of which a Run has Attempts."""
        return frozenset(case_id for (case_id,) in self._all(ATTEMPTED, run_id=run_id))

    def _selection(self, query: Query) -> Selection:
        if query.op is None or "*" not in query.op:
            return Selection(query)
        return Selection(query, [name for name in self.op_names() if _fits(name, query.op)])

    def _beginning(self, sql: str, prefix: str) -> tuple[str, ...]:
        asked = {"prefix": prefix, "length": len(prefix)}
        return tuple(found for (found,) in self.source.rows(sql, asked))

    def _all(self, sql: str, **parameters: object) -> Iterator[tuple[Any, ...]]:
        return self.source.rows(sql, parameters)

    def _rows(self, sql: str, name: str, items: Iterable[object]) -> Iterator[tuple[Any, ...]]:
        return self.source.rows(sql, {name: list(items)})


def _fits(name: str, pattern: str) -> bool:
    """Tell whether a pattern stands for a name; nothing but ``*`` has a meaning in it."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))

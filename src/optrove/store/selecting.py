"""Put a Query into SQL that SQLite and PostgreSQL both understand.

Every part of the text is written here; what the query says is only ever bound to it. In the texts
``c`` is a Case, ``u`` how often a Run has called it, ``r`` that Run and ``t`` a tensor of the Case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.model.hidden import BEYOND_VECTORS, HIDDEN_OPS, VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.records import Query

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

"""Select cases by the filters that a user gives, and explain why none matches."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from optrove.errors import NotFound
from optrove.model.ops import (
    ANY,
    Counting,
    LeftOut,
    OpCalls,
    add_up,
    full_pattern,
    is_vector,
    meant_ops,
)
from optrove.model.records import CallOutcome, Query, matches_filter
from optrove.model.trove import board_text
from optrove.trove.database import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from optrove.model.trove import (
        CaseRow,
        ConfigCalls,
        ExecutionRow,
        ModelRow,
        OpRow,
        RunRow,
        TensorFacts,
    )
    from optrove.trove.reader import TroveReader


_MAX_EXAMPLES: Final = 5
_ALIKE: Final = 0.55
_LESS_ALIKE: Final = 0.2


def model_named(reader: TroveReader, name: str) -> str:
    """Return the model with this name, or with this part of a name; NotFound unless it is one."""
    known = reader.model_names()
    found = models_meant(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise ambiguous(f"{len(found)} models have {name!r} in their names", found, "give more")
    raise unknown(f"no model here is called {name!r}", name, known, "optrove models")


def models_meant(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the model with exactly this name, or else all models whose names contain it."""
    every = tuple(known)
    if name in every:
        return (name,)
    return tuple(model for model in every if name and name.casefold() in model.casefold())


def near(name: str, known: Iterable[str]) -> str:
    """Return the most similar names, as a list to read; empty if no name is similar.

    A name is compared as a whole and by as many of its parts at a time as were asked for.
    """
    from difflib import SequenceMatcher

    def likeness(other: str) -> float:
        whole = _dotted(other)
        parts = whole.split(".")
        runs = {".".join(parts[n : n + length]) for n in range(len(parts) - length + 1)}
        return max(SequenceMatcher(None, asked, each).ratio() for each in {whole, *runs})

    asked = _dotted(name)
    length = asked.count(".") + 1
    ranked = sorted(((likeness(other), other) for other in known), reverse=True)
    # Names of one library have much in common, so that all are like a name that is nearly right.
    least = max(_ALIKE, ranked[0][0] - _LESS_ALIKE) if ranked else _ALIKE
    return ", ".join(other for ratio, other in ranked[:_MAX_EXAMPLES] if ratio >= least)


def _dotted(name: str) -> str:
    return name.casefold().replace("::", ".").replace("/", ".")


def unknown(problem: str, name: str, known: Iterable[str], listing: str) -> NotFound:
    """Return the error for an unknown name, with the nearest names."""
    nearest = near(name, known)
    about = f"; the nearest: {nearest}" if nearest else ""
    return NotFound(f"{problem}{about}; list them with: {listing}")


def ambiguous(problem: str, found: Sequence[str], advice: str) -> NotFound:
    """Return the error for a name that means several things."""
    more = ", ..." if len(found) > _MAX_EXAMPLES else ""
    return NotFound(f"{problem}: {', '.join(found[:_MAX_EXAMPLES])}{more}; {advice}")


def run_named(reader: TroveReader, name: str) -> str:
    """Return the id of the run whose id begins so; NotFound unless there is exactly one."""
    found = reader.find_run(name)
    if len(found) == 1:
        return found[0]
    if found:
        shown = [each[:16] for each in found]
        raise ambiguous(f"{len(found)} runs begin with {name!r}", shown, "give more of the id")
    raise NotFound(f"no run begins with {name!r}; list the runs with: optrove runs")


@dataclass(frozen=True, slots=True)
class Configuration:
    """One Case of a list: its number in the list, and the executions that the list counts."""

    number: int
    row: CaseRow
    executions: tuple[ExecutionRow, ...]


def model_label(execution: ExecutionRow) -> str:
    """Return the model, or the source where no model is known."""
    return execution.model or execution.source


def calls_of(executions: Iterable[ExecutionRow]) -> Counter[tuple[str, str]]:
    """Return the number of calls by model and board."""
    calls: Counter[tuple[str, str]] = Counter()
    for each in executions:
        calls[model_label(each), board_text(each.board, each.machine)] += each.count
    return calls


def recorded_error(executions: Iterable[ExecutionRow]) -> str | None:
    """Return an error of calls of which none returned; None for others."""
    every = tuple(executions)
    errors = [each.error for each in every if each.error is not None]
    returned = any(each.outcome is CallOutcome.RETURNED for each in every)
    return errors[0] if errors and not returned else None


def ranked_models(calls: Counter[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the models, most calls first, each with its boards."""
    totals: Counter[str] = Counter()
    for (label, _), count in calls.items():
        totals[label] += count
    order = sorted(totals, key=lambda label: (-totals[label], label))
    return tuple(
        (label, tuple(sorted(board for name, board in calls if name == label and board)))
        for label in order
    )


EMPTY: Final = "the trove is empty; fill it with: optrove trace, optrove import"

_FILTERS: Final = {
    "run_id": "--run",
    "model": "--model",
    "board": "--board",
    "argument": "--argument",
    "dtype": "--dtype",
    "layout": "--layout",
    "memory": "--memory",
    "shape": "--shape",
    "mesh": "--mesh",
    "raised": "--raised",
}
_NO_MATCH: Final = "no case matches: "
_ANY_SIZE: Final = -1
_EXAMINED: Final = 1000
_LISTED: Final = 8


def explain_empty(reader: TroveReader, bases: Sequence[Query], filters: Query) -> NotFound:
    """Return the error for ``filters`` that match no case of ``bases``; it names the filter."""
    left = sum(map(reader.count, bases))
    if not left:
        return _nothing_at_all(reader, bases)
    steps = [f"{left:,} case{'s' if left != 1 else ''} of {_names(bases)}"]
    current = tuple(bases)
    for field, option in _FILTERS.items():
        value = getattr(filters, field)
        if value is None or value is False:
            continue
        narrowed = tuple(replace(base, **{field: value}) for base in current)
        count = sum(map(reader.count, narrowed))
        name = option if value is True else f"{option} {_spelled(value)}"
        if not count:
            steps.append(f"none with {name}{_found(reader, current, field)}")
            return NotFound(_NO_MATCH + ", ".join(steps))
        steps.append(f"{count:,} with {name}")
        current = narrowed
    return NotFound(_NO_MATCH + ", ".join([*steps, _other_switches(filters)]))


def _nothing_at_all(reader: TroveReader, bases: Sequence[Query]) -> NotFound:
    if not reader.op_names():
        return NotFound(EMPTY)
    names = _names(bases)
    nested = [replace(base, outermost_only=False) for base in bases]
    if sum(map(reader.count, nested)):
        return NotFound(f"{names}: only called by other ops; add --nested to see these calls")
    every = [replace(base, data_movement=True, outermost_only=False) for base in bases]
    if sum(map(reader.count, every)):
        return NotFound(f"{names}: it only moves data; add --all-ops to include it")
    return NotFound(f"{names}: has no cases here; list the ops that have: optrove ops --all-ops")


def _other_switches(filters: Query) -> str:
    missing = "--nested" if filters.outermost_only else "--all-ops"
    return f"all of which are made by other ops or only move data; add {missing}"


def _names(bases: Sequence[Query]) -> str:
    names = [base.op or "the trove" for base in bases]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _spelled(value: str | tuple[int, ...]) -> str:
    if isinstance(value, str):
        return value
    return "x".join("*" if size == _ANY_SIZE else str(size) for size in value)


def _found(reader: TroveReader, bases: Sequence[Query], field: str) -> str:
    """Return the values that exist instead, among the cases that the earlier filters left."""
    cases = [row.case_id for base in bases for row in islice(reader.cases(base), _EXAMINED)]
    if field in ("run_id", "model", "raised"):
        return ""
    if field == "board":
        executions = reader.executions(cases[:_EXAMINED])
        values = {board_text(each.board, each.machine) for each in executions}
    else:
        tensors = reader.tensors(cases[:_EXAMINED])
        facts = (each for own in tensors.values() for each in own)
        values = {getattr(each, field) or "" for each in facts if _satisfies(each, bases[0])}
    listed = _listed(values - {""})
    if field in ("argument", "memory"):
        # A memory config may also be an argument itself, which these filters do not see.
        listed += " (of tensors; optrove show lists all arguments)"
    return listed


def _listed(values: Iterable[str]) -> str:
    found = sorted(values)
    more = ", ..." if len(found) > _LISTED else ""
    return f"; there are: {', '.join(found[:_LISTED])}{more}" if found else ""


def _satisfies(facts: TensorFacts, query: Query) -> bool:
    """Return whether a tensor matches the filters of a query that are words."""
    if query.argument is not None and facts.argument != query.argument:
        return False
    return all(
        matches_filter(name, getattr(query, name), getattr(facts, name))
        for name in ("dtype", "layout", "memory")
    )


_Row = TypeVar("_Row")

_CASE: Final = re.compile(r"[0-9a-f]{6,64}")
_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class CaseFilters:
    """Filters of cases as a user writes them; None does not restrict the cases.

    ``name`` is an op, a pattern of ops, or the beginning of a case's id; -1 in a shape is any size.
    """

    name: str | None = None
    model: str | None = None
    board: str | None = None
    run: str | None = None
    argument: str | None = None
    dtype: str | None = None
    layout: str | None = None
    memory: str | None = None
    shape: tuple[int, ...] | None = None
    mesh: tuple[int, ...] | None = None
    raised: bool = False
    nested: bool = False
    all_ops: bool = False


@dataclass(frozen=True, slots=True)
class OpCases:
    """The cases of one op that match: their number, and the number of all cases of the op."""

    op: str
    query: Query
    cases: int
    every: int


def matching_ops(reader: TroveReader, asked: CaseFilters) -> tuple[tuple[OpRow, ...], LeftOut]:
    """Return the ops that match, also those that only move data, and the calls left out.

    NotFound if no op matches.
    """
    query = replace(query_of(reader, asked), data_movement=True)
    rows = reader.ops(query)
    if not rows:
        raise explain_empty(reader, (Query(outermost_only=False, data_movement=True),), query)
    return rows, _left_out(reader, query, rows, Counting(asked.all_ops, asked.nested))


def left_out_of(reader: TroveReader, answers: Iterable[OpCases]) -> LeftOut:
    """Return the calls of the selected cases that are not counted."""
    found = LeftOut()
    for answer in answers:
        # An op that only moves data is among the answers only if it was asked for.
        counting = Counting(all_ops=True, nested=not answer.query.outermost_only)
        found += _left_out(reader, answer.query, reader.ops(answer.query), counting)
    return found


def _left_out(
    reader: TroveReader, query: Query, rows: Sequence[OpRow], counting: Counting
) -> LeftOut:
    outermost = {row.op: (row.cases, row.calls) for row in rows}
    every = rows if counting.nested else reader.ops(replace(query, outermost_only=False))
    found = []
    for row in every:
        cases, calls = outermost.get(row.op, (0, 0))
        found.append(OpCalls(row.op, cases, calls, row.cases - cases, row.calls - calls))
    return add_up(found, counting).left


def select(reader: TroveReader, asked: CaseFilters) -> tuple[OpCases, ...]:
    """Return the cases that match, op by op; NotFound if no case matches."""
    if asked.name is None:
        raise NotFound("no op is given; list the ops with: optrove ops")
    filters = query_of(reader, asked)
    bases = _bases(reader, asked.name, asked)
    answers = []
    for base in bases:
        query = replace(
            filters,
            op=base.op,
            case_id=base.case_id,
            outermost_only=base.outermost_only,
            data_movement=base.data_movement,
        )
        cases = reader.count(query)
        if cases:
            every = cases if query == base else reader.count(base)
            answers.append(OpCases(base.op or "", query, cases, every))
    if not answers:
        raise explain_empty(reader, bases, filters)
    return tuple(answers)


def select_recorded(reader: TroveReader, asked: CaseFilters) -> tuple[OpCases, ...]:
    """Return the selected cases without the vectors of sweep modules, which need their module.

    If only vectors were asked for, return these.
    """
    answers = select(reader, asked)
    return tuple(each for each in answers if not is_vector(each.op)) or answers


def recorded_runs(reader: TroveReader, counting: Counting) -> tuple[RunRow, ...]:
    """Return all runs, newest first; NotFound for an empty trove."""
    return _some(reader.runs(counting=counting))


def recorded_models(reader: TroveReader, counting: Counting) -> tuple[ModelRow, ...]:
    """Return all models; NotFound for an empty trove."""
    return _some(reader.models(counting))


def full_name(reader: TroveReader, name: str) -> str:
    """Return the full name, or one pattern, of the ops that a name means; NotFound if unknown."""
    found = ops_named(reader, name)
    pattern = full_pattern(name, reader.op_names())
    if pattern is None or (len(found) > 1 and ANY not in name):
        raise ambiguous(f"{name!r} means {len(found)} ops", found, "give the name in full")
    return pattern


def ops_named(reader: TroveReader, name: str) -> tuple[str, ...]:
    """Return the ops of a trove that a name means; NotFound, with similar names, if unknown."""
    known = reader.op_names()
    found = meant_ops(name, known)
    if not found:
        raise unknown(f"no op here is called {name!r}", name, known, "optrove ops --all-ops")
    return found


def configurations(
    reader: TroveReader, query: Query, *, by_run: bool = False
) -> Iterator[Configuration]:
    """Yield the cases of a query, numbered from one, with the executions that it counts.

    ``by_run`` sums these up for each run. Rows are read on demand:
    a caller that stops early does not read the rest.
    """
    for batch in batches(enumerate(reader.cases(query), start=1), _BATCH):
        executions = _executions(reader, [row for _, row in batch], query, by_run=by_run)
        for number, row in batch:
            yield Configuration(number, row, tuple(executions[row.case_id]))


def configuration(reader: TroveReader, answer: OpCases, number: int) -> Configuration:
    """Return the case with this number; NotFound if there are fewer."""
    rows = islice(reader.cases(answer.query), number - 1, number)
    row = next(rows, None)
    if row is None:
        raise NotFound(
            f"{answer.op} has no configuration {number:,} here: there are {answer.cases:,}; "
            f"choose from 1 to {answer.cases:,}"
        )
    return Configuration(number, row, tuple(_executions(reader, [row], answer.query)[row.case_id]))


def several_ops(answers: Sequence[OpCases]) -> NotFound:
    """Return the error for a number that could be of any of several ops."""
    names = [answer.op for answer in answers]
    return ambiguous(f"there are {len(names)} ops to take that number of", names, "name one")


def with_tensors(
    reader: TroveReader, cases: Iterable[Configuration]
) -> Iterator[tuple[Configuration, tuple[TensorFacts, ...]]]:
    """Yield cases with the searchable facts about their tensors."""
    return _with_facts(cases, reader.tensors)


def with_configs(
    reader: TroveReader, cases: Iterable[Configuration]
) -> Iterator[tuple[Configuration, tuple[ConfigCalls, ...]]]:
    """Yield cases with the entries of run configurations that they were called with."""
    return _with_facts(cases, reader.config_calls)


def _with_facts(
    cases: Iterable[Configuration], read: Callable[[list[str]], dict[str, tuple[_Row, ...]]]
) -> Iterator[tuple[Configuration, tuple[_Row, ...]]]:
    for batch in batches(cases, _BATCH):
        facts = read([case.row.case_id for case in batch])
        for case in batch:
            yield case, facts.get(case.row.case_id, ())


def _some(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
    if not rows:
        raise NotFound(EMPTY)
    return rows


def query_of(reader: TroveReader, asked: CaseFilters) -> Query:
    """Return the filters as a query for all ops."""
    return Query(
        run_id=None if asked.run is None else run_named(reader, asked.run),
        model=None if asked.model is None else model_named(reader, asked.model),
        board=asked.board,
        argument=asked.argument,
        dtype=asked.dtype,
        layout=asked.layout,
        memory=asked.memory,
        shape=asked.shape,
        mesh=asked.mesh,
        raised=asked.raised,
        outermost_only=not asked.nested,
        data_movement=asked.all_ops,
        vectors=asked.all_ops,
    )


def _bases(reader: TroveReader, name: str, asked: CaseFilters) -> tuple[Query, ...]:
    """Return a query for each op that a name means, or for the one case, without filters."""
    known = reader.op_names()
    ops = meant_ops(name, known)
    if ops:
        # An op that only moves data, or a vector, is shown if it is named; "*" names none.
        named = asked.all_ops or ANY not in name
        called = tuple(op for op in ops if named or not is_vector(op))
        base = Query(outermost_only=not asked.nested, data_movement=named)
        return tuple(replace(base, op=op) for op in called or ops)
    if _CASE.fullmatch(name.lower()):
        return (_case_query(reader, name.lower(), asked),)
    raise unknown(f"no op here is called {name!r}", name, known, "optrove ops --all-ops")


def _case_query(reader: TroveReader, prefix: str, asked: CaseFilters) -> Query:
    found = reader.find_case(prefix)
    if len(found) > 1:
        raise ambiguous(f"{len(found)} cases begin with {prefix!r}", found, "give more digits")
    if not found:
        known = reader.op_names()
        about = "" if not near(prefix, known) else f"; ops like it: {near(prefix, known)}"
        raise NotFound(f"no case begins with {prefix!r}, and no op has that name{about}")
    query = Query(case_id=found[0], outermost_only=not asked.nested, data_movement=True)
    if not reader.count(query):
        # Other ops made all of its calls; it is shown all the same.
        query = replace(query, outermost_only=False)
    (row,) = reader.cases(query)
    return replace(query, op=row.op)


def _executions(
    reader: TroveReader, rows: Sequence[CaseRow], query: Query, *, by_run: bool = False
) -> defaultdict[str, list[ExecutionRow]]:
    found: defaultdict[str, list[ExecutionRow]] = defaultdict(list)
    for execution in reader.executions([row.case_id for row in rows], by_run=by_run):
        if counts_for(execution, query):
            found[execution.case_id].append(execution)
    return found


def counts_for(execution: ExecutionRow, query: Query) -> bool:
    """Return whether a query counts these calls."""
    return (
        (query.run_id is None or execution.run_id == query.run_id)
        and matches_filter("model", query.model, model_label(execution))
        and matches_filter("board", query.board, execution.board)
        and (execution.outermost or not query.outermost_only)
        and (execution.outcome is CallOutcome.RAISED or not query.raised)
    )

"""Say why a question has no answer: which filter took the last case away, and what there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.report.runs_text import board_text
from optrove.report.tables import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Query
    from optrove.model.trove import TensorFacts
    from optrove.store.reader import TroveReader

EMPTY: Final = "the trove holds nothing yet; fill it with: optrove trace, optrove import"

_FILTERS: Final = {
    "run_id": "--run",
    "model": "--model",
    "board": "--board",
    "argument": "--argument",
    "dtype": "--dtype",
    "layout": "--layout",
    "memory": "--memory",
    "shape": "--shape",
    "mesh_shape": "--mesh",
}
_FACTS: Final = {"mesh_shape": "mesh"}
_ANY_SIZE: Final = -1
_EXAMINED: Final = 1000
_SHOWN: Final = 8


def nothing_left(reader: TroveReader, bases: Sequence[Query], filters: Query) -> NotFound:
    """Return the error for ``filters`` that leave nothing of what ``bases`` ask for."""
    left = sum(map(reader.count, bases))
    if not left:
        return _nothing_at_all(reader, bases)
    steps = [f"{plural(left, 'case')} of {_names(bases)}"]
    current = tuple(bases)
    for field, option in _FILTERS.items():
        value = getattr(filters, field)
        if value is None:
            continue
        narrowed = tuple(replace(base, **{field: value}) for base in current)
        count = sum(map(reader.count, narrowed))
        name = f"{option} {_spelled(value)}"
        if not count:
            found = _found(reader, current, field)
            steps.append(f"{name} leaves none of {'it' if left == 1 else 'them'}{found}")
            return NotFound("nothing is left: " + ", ".join(steps))
        steps.append(f"{name} leaves {count:,}")
        current, left = narrowed, count
    return NotFound("nothing is left: " + ", ".join([*steps, _other_switches(filters)]))


def _nothing_at_all(reader: TroveReader, bases: Sequence[Query]) -> NotFound:
    if not reader.op_names():
        return NotFound(EMPTY)
    names = _names(bases)
    nested = [replace(base, outermost_only=False) for base in bases]
    if sum(map(reader.count, nested)):
        return NotFound(f"{names}: only called by other ops; add --nested to see these calls")
    hidden = [replace(base, hidden_ops=True, outermost_only=False) for base in bases]
    if sum(map(reader.count, hidden)):
        return NotFound(f"{names}: moves data only, which is hidden; add --all-ops to see it")
    return NotFound(f"{names}: has no cases here; list the ops that have: optrove ops --all-ops")


def _other_switches(filters: Query) -> str:
    missing = "--nested" if filters.outermost_only else "--all-ops"
    return f"all of which are made by other ops or hidden; add {missing}"


def _names(bases: Sequence[Query]) -> str:
    names = [base.op or "the trove" for base in bases]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _spelled(value: str | tuple[int, ...]) -> str:
    if isinstance(value, str):
        return value
    return "x".join("*" if size == _ANY_SIZE else str(size) for size in value)


def _found(reader: TroveReader, bases: Sequence[Query], field: str) -> str:
    """Return what there is instead, among the cases that the filters before have left."""
    cases = [row.case_id for base in bases for row in islice(reader.cases(base), _EXAMINED)]
    if field in ("run_id", "model"):
        return ""
    if field == "board":
        executions = reader.executions(cases[:_EXAMINED])
        values = {board_text(each.board, each.machine) for each in executions}
    else:
        tensors = reader.tensors(cases[:_EXAMINED])
        facts = (each for own in tensors.values() for each in own)
        name = _FACTS.get(field, field)
        values = {getattr(each, name) or "" for each in facts if _satisfies(each, bases[0])}
    return _listed(values - {""})


def _listed(values: Iterable[str]) -> str:
    found = sorted(values)
    more = ", ..." if len(found) > _SHOWN else ""
    return f"; there are: {', '.join(found[:_SHOWN])}{more}" if found else ""


def _satisfies(facts: TensorFacts, query: Query) -> bool:
    """Tell whether a tensor has what the query asks of one, as far as it is said in words."""
    if query.argument is not None and facts.argument != query.argument:
        return False
    words = ((query.dtype, facts.dtype), (query.layout, facts.layout))
    if any(wanted and wanted.lower() != found.lower() for wanted, found in words):
        return False
    return query.memory is None or f"_{query.memory}_".lower() in f"_{facts.memory}_".lower()

"""Audit the golden checks of the ops in a trove."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from optrove.errors import NotFound
from optrove.flows.grounds import Choice, grouped
from optrove.flows.planning import planned_cases
from optrove.flows.query import ops_named
from optrove.flows.replaying import usual_workers
from optrove.model.records import DeviceKind, Query
from optrove.run.auditing import COMMAND
from optrove.run.runner import Workers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.flows.grounds import Where
    from optrove.flows.planning import How, Planned
    from optrove.store.reader import TroveReader

_OURS = "ttnn."


def cases_to_audit(
    reader: TroveReader, names: Iterable[str], each: int, how: How
) -> tuple[Planned, ...]:
    """Return the most called cases of each op, ``each`` of them at most; of all without a name."""
    given = tuple(names)
    meant = {op for name in given for op in ops_named(reader, name)} or set(reader.op_names())
    ops = sorted(op for op in meant if op.startswith(_OURS))
    query = Query(outermost_only=False, hidden_ops=bool(given), limit=each)
    found = tuple(
        planned for op in ops for planned in planned_cases(reader, replace(query, op=op), how)
    )
    if not found:
        raise NotFound("the trove holds no case of an op of ttnn; list its ops: optrove ops")
    return found


def grounds_of(cases: Iterable[Planned], board: str | None) -> dict[Where, list[Planned]]:
    """Return the cases by the mock boards with numbers on which they are audited."""
    return grouped(cases, Choice(DeviceKind.SHADOW, board))


def auditors(jobs: int | None, cases: int) -> Workers:
    """Return the worker processes that audit."""
    return Workers(jobs or usual_workers(cases), COMMAND)

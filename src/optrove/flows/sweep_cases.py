"""Choose the recorded cases of a sweep, and count what the choice leaves out.

The rule is that of lists: ``*``, which is also meant where nothing is named, stands for the ops
that compute and for the cases that models have called themselves. Whatever else there is, is left
out unless it is asked for. Vectors that modules have left in a trove are not recorded cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.flows.planning import planned_cases
from optrove.flows.query import query_of, select_recorded
from optrove.model.opnames import ANY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.flows.planning import How, Planned
    from optrove.flows.query import Asked
    from optrove.model.records import Counts, Query
    from optrove.store.reader import TroveReader

MOVING: Final = "of data-movement ops (--all-ops adds them)"
NESTED: Final = "called by other ops only (--nested adds them)"
MOVING_AND_NESTED: Final = "of data-movement ops (--all-ops --nested adds them)"
"""The reason in place of MOVING where some of these are called by other ops only."""


@dataclass(frozen=True, slots=True)
class RecordedCases:
    """The recorded cases of a sweep, and how many are not among them, by the reason."""

    cases: tuple[Planned, ...]
    left_out: Counts = ()


def recorded_cases(
    reader: TroveReader, names: Sequence[str], asked: Asked, how: How
) -> RecordedCases:
    """Return the cases of the ops that are named, of ``*`` if none is; NotFound if there are none.

    ``asked`` are the filters, which hold for what is left out, too.
    """
    wanted = names or (ANY,)
    queries = [query for name in wanted for query in _queries(reader, name, asked)]
    found = tuple(each for query in queries for each in planned_cases(reader, query, how))
    left_out = _left_out(reader, wanted, asked)
    if not found:
        others = "".join(f"; there are {count:,} {reason}" for reason, count in left_out)
        raise NotFound(
            f"the trove holds no such case{others}; list what there is with: optrove ops"
        )
    return RecordedCases(found, left_out)


def _queries(reader: TroveReader, name: str, asked: Asked) -> Iterator[Query]:
    if name == ANY:
        # One question for all ops: the most called case of all comes first.
        yield replace(query_of(reader, asked), vectors=False)
        return
    for answer in select_recorded(reader, replace(asked, name=name)):
        yield answer.query


def _left_out(reader: TroveReader, names: Sequence[str], asked: Asked) -> Counts:
    def cases(*, all_ops: bool = asked.all_ops, nested: bool = asked.nested) -> int:
        return _count(reader, names, replace(asked, all_ops=all_ops, nested=nested))

    chosen = cases()
    moving, nested = cases(all_ops=True) - chosen, cases(nested=True) - chosen
    both = cases(all_ops=True, nested=True) - chosen - moving - nested
    counts = ((MOVING_AND_NESTED if both else MOVING, moving + both), (NESTED, nested))
    return tuple((reason, count) for reason, count in counts if count)


def _count(reader: TroveReader, names: Iterable[str], asked: Asked) -> int:
    """Return how many cases are meant; those of an op that several names mean count once."""
    found: dict[str, int] = {}
    for name in names:
        for op, cases in _by_op(reader, name, asked):
            found[op] = max(cases, found.get(op, 0))
    return sum(found.values())


def _by_op(reader: TroveReader, name: str, asked: Asked) -> Iterator[tuple[str, int]]:
    for query in _queries(reader, name, asked):
        if query.op is not None:
            yield query.op, reader.count(query)
        else:
            yield from ((row.op, row.cases) for row in reader.ops(query))

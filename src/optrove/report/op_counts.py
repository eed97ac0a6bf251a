"""Count the calls and cases of each op in a trace, those that other ops made by themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optrove.model.counted import OpCalls, add_up
from optrove.model.hidden import is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.model.counted import Counted, Counting


@dataclass(frozen=True, slots=True)
class OpCount:
    """How often an op was called, with how many different cases, and how often it raised.

    ``nested_calls`` other ops made, and ``nested_cases`` only these; they are not in the others.
    """

    op: str
    cases: int
    calls: int
    raised: int
    hidden: bool
    nested_cases: int = 0
    nested_calls: int = 0


@dataclass(slots=True)
class OpTally:
    """Counts of one op that grow while its calls are read."""

    calls: int = 0
    nested_calls: int = 0
    raised: int = 0
    cases: set[str] = field(default_factory=set)
    nested_cases: set[str] = field(default_factory=set)

    def add(self, case_id: str, *, nested: bool, raised: bool) -> None:
        """Count a call."""
        if nested:
            self.nested_calls += 1
            self.nested_cases.add(case_id)
            return
        self.calls += 1
        self.raised += raised
        self.cases.add(case_id)


def op_counts(tallies: Mapping[str, OpTally]) -> tuple[OpCount, ...]:
    """Return the counts of all ops, most called first."""
    found = [
        OpCount(
            op=op,
            cases=len(tally.cases),
            calls=tally.calls,
            raised=tally.raised,
            hidden=is_hidden(op),
            nested_cases=len(tally.nested_cases - tally.cases),
            nested_calls=tally.nested_calls,
        )
        for op, tally in tallies.items()
    ]
    return tuple(sorted(found, key=lambda count: (-count.calls, count.op)))


def counted(ops: Iterable[OpCount], counting: Counting | None = None) -> Counted:
    """Return what is counted of these ops, and what is left out."""
    calls = (
        OpCalls(
            op=each.op,
            cases=each.cases + each.nested_cases,
            calls=each.calls + each.nested_calls,
            outermost_cases=each.cases,
            outermost_calls=each.calls,
        )
        for each in ops
    )
    return add_up(calls, counting)


def counted_cases(tallies: Mapping[str, OpTally]) -> set[str]:
    """Return the ids of the cases that are counted unless more is asked for."""
    return {each for op, tally in tallies.items() if not is_hidden(op) for each in tally.cases}

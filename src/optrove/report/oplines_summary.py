"""Sum up a file of op lines as a trace is summed up from its journals.

A call's case is that of its ``case_id``. A line without one, as other writers leave it, counts by
its op and arguments as they were spelled; a line that cannot be read counts as untraceable.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from optrove.codec.identity import placement_hash
from optrove.codec.lines import BadLine
from optrove.model.case import Case
from optrove.model.records import Accounting
from optrove.report.op_counts import OpTally, counted, counted_cases, op_counts
from optrove.report.summary import TraceSummary

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from optrove.codec.oplines import OpLine

UNREADABLE = "a line that cannot be read"


def summarize_lines(lines: Iterable[OpLine | BadLine], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these lines; ``known`` are the cases that were there before."""
    tallies: dict[str, OpTally] = {}
    found: set[str] = set()
    calls = 0
    faults: Counter[str] = Counter()
    processes = set()
    for line in lines:
        if isinstance(line, BadLine):
            faults[f"line {line.number}: {line.faults[0]}"] += 1
            continue
        processes.add((line.run_id, line.process))
        calls += 1
        case_id = _case_id(line)
        found.add(case_id)
        tally = tallies.get(line.op) or tallies.setdefault(line.op, OpTally())
        tally.add(case_id, nested=line.depth > 0, raised=line.error is not None)
    new = [case_id for case_id in found if case_id not in known]
    unreadable = faults.total()
    ops, cases = op_counts(tallies), counted_cases(tallies)
    total = counted(ops)
    return TraceSummary(
        run=None,
        accounting=Accounting(
            observed=calls + unreadable,
            stored=len(new),
            deduplicated=calls - len(new),
            untraceable=((UNREADABLE, unreadable),) if unreadable else (),
        ),
        calls=total.amount.calls,
        cases=total.amount.cases,
        known_cases=len(cases.difference(new)),
        ops=ops,
        in_flight=(),
        tests=(),
        faults=tuple(faults.most_common()),
        lost=0,
        processes=len(processes),
        unclosed=0,
        left=total.left,
    )


def _case_id(line: OpLine) -> str:
    if line.case_id is not None:
        return line.case_id
    inputs = tuple((f"args[{place}]", value) for place, value in enumerate(line.inputs))
    return placement_hash(Case(line.op, inputs + line.keywords))

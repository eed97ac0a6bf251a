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
from optrove.model.hidden import is_hidden
from optrove.model.records import Accounting
from optrove.report.summary import OpCount, TraceSummary

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from optrove.codec.oplines import OpLine

UNREADABLE = "a line that cannot be read"


def summarize_lines(lines: Iterable[OpLine | BadLine], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these lines; ``known`` are the cases that were there before."""
    calls: Counter[str] = Counter()
    raised: Counter[str] = Counter()
    cases: dict[str, set[str]] = {}
    faults: Counter[str] = Counter()
    processes = set()
    for line in lines:
        if isinstance(line, BadLine):
            faults[f"line {line.number}: {line.faults[0]}"] += 1
            continue
        processes.add((line.run_id, line.process))
        calls[line.op] += 1
        raised[line.op] += line.error is not None
        cases.setdefault(line.op, set()).add(_case_id(line))
    found = set().union(*cases.values())
    new = [case_id for case_id in found if case_id not in known]
    unreadable = faults.total()
    return TraceSummary(
        run=None,
        accounting=Accounting(
            observed=calls.total() + unreadable,
            stored=len(new),
            deduplicated=calls.total() - len(new),
            untraceable=((UNREADABLE, unreadable),) if unreadable else (),
        ),
        calls=calls.total() + unreadable,
        cases=len(found),
        known_cases=len(found) - len(new),
        ops=tuple(
            OpCount(op, len(cases[op]), count, raised[op], is_hidden(op))
            for op, count in sorted(calls.items(), key=lambda entry: (-entry[1], entry[0]))
        ),
        in_flight=(),
        tests=(),
        faults=tuple(faults.most_common()),
        lost=0,
        processes=len(processes),
        unclosed=0,
    )


def _case_id(line: OpLine) -> str:
    if line.case_id is not None:
        return line.case_id
    inputs = tuple((f"args[{place}]", value) for place, value in enumerate(line.inputs))
    return placement_hash(Case(line.op, inputs + line.keywords))

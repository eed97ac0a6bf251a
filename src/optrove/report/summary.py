"""Summarize a trace from its journals or op lines.

Every observed call is accounted for exactly once: as the first of a new case, as one more of a
case, as filtered, or as untraceable. ``TraceSummary.accounting`` says which, and adds up. Calls and
cases are counted as everywhere (``model.counted``), and ``left`` is what that leaves out.

A call's case is that of its ``case_id``. A line without one, as other writers leave it, counts by
its op and arguments as they were spelled; a line that cannot be read counts as untraceable.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.journal import format as layout
from optrove.model.case import Case
from optrove.model.ops import LeftOut, OpCalls, add_up, is_listed
from optrove.model.records import Accounting, Call, Counts, Run, TestOutcome
from optrove.serializer.described import case_of
from optrove.serializer.hashes import placement_hash
from optrove.serializer.op_lines import BadLine

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from optrove.journal.reader import JournalReader
    from optrove.serializer.op_lines import OpLine


@dataclass(slots=True)
class _OpSums:
    """Counts of one op that grow while its calls are read."""

    calls: int = 0
    nested_calls: int = 0
    raised: int = 0
    cases: set[str] = field(default_factory=set)
    nested_cases: set[str] = field(default_factory=set)

    def add(self, case_id: str, *, nested: bool, raised: bool, calls: int = 1) -> None:
        """Count calls of one case."""
        if nested:
            self.nested_calls += calls
            self.nested_cases.add(case_id)
            return
        self.calls += calls
        self.raised += calls if raised else 0
        self.cases.add(case_id)


def _op_calls(sums: Mapping[str, _OpSums]) -> tuple[OpCalls, ...]:
    """Return the calls of all ops, most called first."""
    found = [
        OpCalls(
            op=op,
            cases=len(own.cases),
            calls=own.calls,
            nested_cases=len(own.nested_cases - own.cases),
            nested_calls=own.nested_calls,
            raised=own.raised,
        )
        for op, own in sums.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.calls, each.op)))


def _counted_cases(sums: Mapping[str, _OpSums]) -> set[str]:
    """Return the ids of the cases that are counted by default."""
    return {each for op, own in sums.items() if is_listed(op) for each in own.cases}


LOST = "the journal could not be written"

# As pytest words it, with or without a place in front.
_ASSERTION: Final = re.compile(r"(^|: )(AssertionError\b|assert\b)")


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What a trace has found, over all of its processes.

    ``calls``, ``cases`` and ``known_cases`` do not count what is ``left``; ``ops`` are all.
    """

    run: Run | None
    accounting: Accounting
    calls: int
    cases: int
    known_cases: int
    ops: tuple[OpCalls, ...]
    in_flight: tuple[tuple[Call, Case], ...]
    """The calls that had begun and not ended when their processes did."""
    tests: Counts
    faults: Counts
    lost: int
    processes: int
    unclosed: int
    """How many processes did not end in order."""
    asserted: int = 0
    """How many tests failed in an assertion."""
    left: LeftOut = field(default_factory=LeftOut)


@dataclass(slots=True)
class _Sums:
    """Counts that grow while journals are read."""

    known: Container[str]
    observed: int = 0
    lost: int = 0
    unclosed: int = 0
    seen: set[str] = field(default_factory=set)
    first: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    untraceable: Counter[str] = field(default_factory=Counter)
    ops: dict[str, _OpSums] = field(default_factory=dict)
    tests: Counter[str] = field(default_factory=Counter)
    asserted: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    in_flight: list[tuple[Call, Case]] = field(default_factory=list)
    run: Run | None = None


def summarize(journals: Iterable[JournalReader], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these journals; ``known`` are the cases that were there before."""
    sums = _Sums(known)
    processes = 0
    for journal in journals:
        processes += 1
        _add(sums, journal)
    deduplicated = sums.observed - sums.first - sums.lost
    deduplicated -= sums.filtered.total() + sums.untraceable.total()
    untraceable = sums.untraceable + Counter({LOST: sums.lost})
    ops, cases = _op_calls(sums.ops), _counted_cases(sums.ops)
    total = add_up(ops)
    return TraceSummary(
        run=sums.run,
        accounting=Accounting(
            observed=sums.observed,
            stored=sums.first,
            deduplicated=deduplicated,
            filtered=_counts(sums.filtered),
            untraceable=_counts(untraceable),
        ),
        calls=total.amount.calls,
        cases=total.amount.cases,
        known_cases=sum(case_id in sums.known for case_id in cases),
        ops=ops,
        in_flight=tuple(sums.in_flight),
        tests=_counts(sums.tests),
        faults=_counts(sums.faults),
        lost=sums.lost,
        processes=processes,
        unclosed=sums.unclosed,
        asserted=sums.asserted,
        left=total.left,
    )


def is_assertion(error: str) -> bool:
    """Return whether the words about a test that failed are those of a failed assertion."""
    return _ASSERTION.search(error.partition("\n")[0]) is not None


def _add(sums: _Sums, journal: JournalReader) -> None:
    sums.run = journal.run or sums.run
    if journal.ending is None:
        sums.unclosed += 1
    else:
        sums.faults.update(dict(journal.ending.faults))
    sums.lost += journal.lost
    sums.observed += journal.lost + journal.calls
    for result in journal.tests:
        if result.outcome is not TestOutcome.UNFINISHED:
            sums.tests[result.outcome.value] += 1
        if result.outcome is TestOutcome.FAILED and is_assertion(result.error or ""):
            sums.asserted += 1
    ids = journal.case_ids()
    for (word, _, _, outcome), counted in journal.tallies.items():
        number, kind = layout.number_of(word), layout.kind_of(word)
        if kind == layout.FILTERED:
            sums.filtered[journal.reason(number)] += counted.calls
            continue
        if kind == layout.UNTRACEABLE:
            sums.untraceable[journal.reason(number)] += counted.calls
            continue
        op, case_id = journal.op(number), ids[number]
        nested, raised = layout.depth_of(word) > 0, outcome == layout.RAISED
        own = sums.ops.get(op) or sums.ops.setdefault(op, _OpSums())
        own.add(case_id, nested=nested, raised=raised, calls=counted.calls)
        if kind == layout.OPAQUE:
            opaque = ", ".join(sorted(set(journal.opaque(number))))
            sums.untraceable[f"{op} holds {opaque}"] += counted.calls
        elif case_id not in sums.seen and case_id not in sums.known:
            sums.first += 1
        sums.seen.add(case_id)
    sums.in_flight += _in_flight(journal)


def _in_flight(journal: JournalReader) -> Iterator[tuple[Call, Case]]:
    numbers = {case_id: number for number, case_id in journal.case_ids().items()}
    for call in journal.in_flight():
        yield call, case_of(journal.case(numbers[call.case_id]).content)


def _counts(counter: Counter[str]) -> Counts:
    return tuple((name, count) for name, count in counter.most_common() if count)


UNREADABLE = "a line that cannot be read"


def summarize_lines(lines: Iterable[OpLine | BadLine], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these lines; ``known`` are the cases that were there before."""
    sums: dict[str, _OpSums] = {}
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
        own = sums.get(line.op) or sums.setdefault(line.op, _OpSums())
        own.add(case_id, nested=line.depth > 0, raised=line.error is not None)
    new = [case_id for case_id in found if case_id not in known]
    unreadable = faults.total()
    ops, cases = _op_calls(sums), _counted_cases(sums)
    total = add_up(ops)
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

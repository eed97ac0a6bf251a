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
from optrove.model.ops import LeftOut, OpCalls, add_up, is_hidden
from optrove.model.records import Accounting, CallSite, Counts, Run, TestOutcome
from optrove.serializer.described import case_of
from optrove.serializer.hashes import placement_hash
from optrove.serializer.op_lines import BadLine

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from optrove.journal.reader import JournalReader
    from optrove.model.ops import Counted, Counting
    from optrove.serializer.op_lines import OpLine


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

    def add(self, case_id: str, *, nested: bool, raised: bool, calls: int = 1) -> None:
        """Count calls of one case."""
        if nested:
            self.nested_calls += calls
            self.nested_cases.add(case_id)
            return
        self.calls += calls
        self.raised += calls if raised else 0
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


LOST = "the journal could not be written"

# As pytest words it, with or without a place in front.
_ASSERTION: Final = re.compile(r"(^|: )(AssertionError\b|assert\b)")


@dataclass(frozen=True, slots=True)
class InFlight:
    """A call that had begun and not ended when its process did."""

    op: str
    case: Case | None
    call_site: CallSite | None
    test_id: str | None
    process: int
    op_index: int


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
    ops: tuple[OpCount, ...]
    in_flight: tuple[InFlight, ...]
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
class _Tally:
    """Counts that grow while journals are read."""

    known: Container[str]
    observed: int = 0
    lost: int = 0
    unclosed: int = 0
    seen: set[str] = field(default_factory=set)
    first: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    untraceable: Counter[str] = field(default_factory=Counter)
    ops: dict[str, OpTally] = field(default_factory=dict)
    tests: Counter[str] = field(default_factory=Counter)
    asserted: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    in_flight: list[InFlight] = field(default_factory=list)
    run: Run | None = None


def summarize(journals: Iterable[JournalReader], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these journals; ``known`` are the cases that were there before."""
    tally = _Tally(known)
    processes = 0
    for journal in journals:
        processes += 1
        _add(tally, journal)
    deduplicated = tally.observed - tally.first - tally.lost
    deduplicated -= tally.filtered.total() + tally.untraceable.total()
    untraceable = tally.untraceable + Counter({LOST: tally.lost})
    ops, cases = op_counts(tally.ops), counted_cases(tally.ops)
    total = counted(ops)
    return TraceSummary(
        run=tally.run,
        accounting=Accounting(
            observed=tally.observed,
            stored=tally.first,
            deduplicated=deduplicated,
            filtered=_counts(tally.filtered),
            untraceable=_counts(untraceable),
        ),
        calls=total.amount.calls,
        cases=total.amount.cases,
        known_cases=sum(case_id in tally.known for case_id in cases),
        ops=ops,
        in_flight=tuple(tally.in_flight),
        tests=_counts(tally.tests),
        faults=_counts(tally.faults),
        lost=tally.lost,
        processes=processes,
        unclosed=tally.unclosed,
        asserted=tally.asserted,
        left=total.left,
    )


def is_assertion(error: str) -> bool:
    """Tell whether the words about a test that failed are those of a failed assertion."""
    return _ASSERTION.search(error.partition("\n")[0]) is not None


def _add(tally: _Tally, journal: JournalReader) -> None:
    tally.run = journal.run or tally.run
    if journal.ending is None:
        tally.unclosed += 1
    else:
        tally.faults.update(dict(journal.ending.faults))
    tally.lost += journal.lost
    tally.observed += journal.lost + journal.calls
    for result in journal.tests:
        if result.outcome is not TestOutcome.UNFINISHED:
            tally.tests[result.outcome.value] += 1
        if result.outcome is TestOutcome.FAILED and is_assertion(result.error or ""):
            tally.asserted += 1
    ids = journal.case_ids()
    for (word, _, _, outcome), counted in journal.tallies.items():
        number, kind = layout.number_of(word), layout.kind_of(word)
        if kind == layout.FILTERED:
            tally.filtered[journal.reason(number)] += counted.calls
            continue
        if kind == layout.UNTRACEABLE:
            tally.untraceable[journal.reason(number)] += counted.calls
            continue
        op, case_id = journal.op(number), ids[number]
        nested, raised = layout.depth_of(word) > 0, outcome == layout.RAISED
        own = tally.ops.get(op) or tally.ops.setdefault(op, OpTally())
        own.add(case_id, nested=nested, raised=raised, calls=counted.calls)
        if kind == layout.OPAQUE:
            opaque = ", ".join(sorted(set(journal.opaque(number))))
            tally.untraceable[f"{op} holds {opaque}"] += counted.calls
        elif case_id not in tally.seen and case_id not in tally.known:
            tally.first += 1
        tally.seen.add(case_id)
    tally.in_flight += _in_flight(journal)


def _in_flight(journal: JournalReader) -> Iterator[InFlight]:
    numbers = {case_id: number for number, case_id in journal.case_ids().items()}
    for call in journal.in_flight():
        case = case_of(journal.case(numbers[call.case_id]).content)
        yield InFlight(case.op, case, call.call_site, call.test_id, call.process, call.op_index)


def _counts(counter: Counter[str]) -> Counts:
    return tuple((name, count) for name, count in counter.most_common() if count)


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

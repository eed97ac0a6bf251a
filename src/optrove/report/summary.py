"""Sum up a trace from its journals: calls, cases, what was left out, and what was going on.

Every observed call is accounted for exactly once: as the first of a new case, as one more of a
case, as filtered, or as untraceable. ``TraceSummary.accounting`` says which, and adds up. Calls and
cases are counted as everywhere (``model.counted``), and ``left`` is what that leaves out.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.codec import journal as layout
from optrove.codec.identity import placement_hash
from optrove.model.counted import LeftOut
from optrove.model.records import Accounting, CallOutcome, CallSite, Counts, Run, TestOutcome
from optrove.report.op_counts import OpCount, OpTally, counted, counted_cases, op_counts

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from optrove.codec.journal_reader import JournalReader, RawCall
    from optrove.model.case import Case

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
    new: set[str] = field(default_factory=set)
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
    for reader in journals:
        processes += 1
        _add(tally, reader)
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


def _add(tally: _Tally, reader: JournalReader) -> None:
    tally.run = reader.run or tally.run
    if reader.ending is None:
        tally.unclosed += 1
    else:
        tally.faults.update(dict(reader.ending.faults))
    lost = reader.lost()
    tally.lost += lost
    tally.observed += lost
    for result in reader.tests:
        if result.outcome is not TestOutcome.UNFINISHED:
            tally.tests[result.outcome.value] += 1
        if result.outcome is TestOutcome.FAILED and is_assertion(result.error or ""):
            tally.asserted += 1
    hashes: dict[int, str] = {}
    for raw in reader.raw_calls():
        tally.observed += 1
        _add_call(tally, reader, raw, hashes)


def _add_call(tally: _Tally, reader: JournalReader, raw: RawCall, hashes: dict[int, str]) -> None:
    if raw.kind == layout.FILTERED:
        tally.filtered[reader.reason(raw.number)] += 1
        return
    if raw.kind == layout.UNTRACEABLE:
        tally.untraceable[reader.reason(raw.number)] += 1
        return
    op = reader.op(raw.number)
    if raw.outcome is CallOutcome.UNFINISHED:
        tally.in_flight.append(_in_flight(reader, raw))
    case_id = hashes.get(raw.number)
    if case_id is None:
        case_id = hashes[raw.number] = placement_hash(reader.case(raw.number))
    own = tally.ops.get(op) or tally.ops.setdefault(op, OpTally())
    own.add(case_id, nested=raw.depth > 0, raised=raw.outcome is CallOutcome.RAISED)
    if raw.kind == layout.OPAQUE:
        opaque = ", ".join(sorted(set(reader.opaque(raw.number))))
        tally.untraceable[f"{op} holds {opaque}"] += 1
    elif case_id not in tally.seen and case_id not in tally.known:
        tally.first += 1
        tally.new.add(case_id)
    tally.seen.add(case_id)


def _in_flight(reader: JournalReader, raw: RawCall) -> InFlight:
    call = reader.call(raw, "", "")
    case = reader.case(raw.number)
    return InFlight(case.op, case, call.call_site, call.test_id, reader.process, raw.op_index)


def _counts(counter: Counter[str]) -> Counts:
    return tuple((name, count) for name, count in counter.most_common() if count)

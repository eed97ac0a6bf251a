"""Sum up a trace from its journals: calls, cases, what was left out, and what was going on.

Every observed call is counted exactly once: as the first of a new case, as one more of a case, as
filtered, or as untraceable. ``TraceSummary.accounting`` says which, and adds up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optrove.codec import journal as layout
from optrove.codec.identity import placement_hash
from optrove.model.hidden import is_hidden
from optrove.model.records import Accounting, CallOutcome, CallSite, Counts, Run, TestOutcome

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from optrove.codec.journal_reader import JournalReader, RawCall
    from optrove.model.case import Case

LOST = "the journal could not be written"


@dataclass(frozen=True, slots=True)
class OpCount:
    """How often an op was called, and with how many different cases."""

    op: str
    cases: int
    calls: int
    raised: int
    hidden: bool


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
    """What a trace has found, over all of its processes."""

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
    calls: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)
    cases: dict[str, set[str]] = field(default_factory=dict)
    tests: Counter[str] = field(default_factory=Counter)
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
    return TraceSummary(
        run=tally.run,
        accounting=Accounting(
            observed=tally.observed,
            stored=tally.first,
            deduplicated=deduplicated,
            filtered=_counts(tally.filtered),
            untraceable=_counts(untraceable),
        ),
        calls=tally.observed,
        cases=len(tally.seen),
        known_cases=sum(case_id in tally.known for case_id in tally.seen),
        ops=_ops(tally),
        in_flight=tuple(tally.in_flight),
        tests=_counts(tally.tests),
        faults=_counts(tally.faults),
        lost=tally.lost,
        processes=processes,
        unclosed=tally.unclosed,
    )


def _ops(tally: _Tally) -> tuple[OpCount, ...]:
    found = [
        OpCount(op, len(tally.cases.get(op, ())), calls, tally.raised[op], is_hidden(op))
        for op, calls in tally.calls.items()
    ]
    return tuple(sorted(found, key=lambda count: (-count.calls, count.op)))


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
    tally.calls[op] += 1
    if raw.outcome is CallOutcome.RAISED:
        tally.raised[op] += 1
    if raw.outcome is CallOutcome.UNFINISHED:
        tally.in_flight.append(_in_flight(reader, raw))
    case_id = hashes.get(raw.number)
    if case_id is None:
        case_id = hashes[raw.number] = placement_hash(reader.case(raw.number))
        tally.cases.setdefault(op, set()).add(case_id)
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

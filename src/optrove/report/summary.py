"""Summarize a trace from its journals or op lines, as a document and as data.

Every observed call is accounted for exactly once: as the first of a new case, as one more of a
case, as filtered, or as untraceable. ``TraceSummary.accounting`` has the counts, and adds up. Calls
and cases are counted as everywhere (``model.ops``), and ``left`` counts the others.

The case of a call is that of its ``case_id``. A line without one, as other writers leave it, counts
by its op and arguments as they are written; a line that cannot be read counts as untraceable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.journal import format as layout
from optrove.model.case import Case
from optrove.model.causes import error_line
from optrove.model.ops import Counting, LeftOut, OpCalls, add_up, is_listed
from optrove.model.records import (
    NOT_COMPARED,
    NOT_MODELED,
    Accounting,
    Call,
    Counts,
    Run,
    TestOutcome,
    hardware_texts,
)
from optrove.report.describe import argument_fields, argument_texts
from optrove.report.document import (
    Column,
    Item,
    Paragraph,
    Section,
    count_cell,
    first_items,
    paragraphs,
    table,
)
from optrove.report.listings import left_out_data, left_out_texts
from optrove.report.wording import plural
from optrove.serializer.hashes import case_data, placement_hash
from optrove.serializer.op_lines import BadLine

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from optrove.journal.reader import JournalReader
    from optrove.report.document import Cell, Node
    from optrove.serializer.op_lines import OpError, OpLine
    from optrove.serializer.text import Json

LOST: Final = "the journal could not be written"
UNREADABLE: Final = "a line that cannot be read"

# As pytest words it, with or without a place in front.
_ASSERTION: Final = re.compile(r"(^|: )(AssertionError\b|assert\b)")
_MAX_IN_FLIGHT: Final = 8
_MAX_FAULTS: Final = 8
_REST: Final = "(--json lists all)"
_COLUMNS: Final = (
    Column("op"),
    *(Column(name, right=True) for name in ("cases", "calls", "raised")),
)


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """The sums of a trace over all of its processes.

    ``calls``, ``cases`` and ``known_cases`` are without those that are ``left``; ``ops`` are all.
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
    """The number of processes that did not end normally."""
    asserted: int = 0
    """The number of tests that failed in an assertion."""
    left: LeftOut = field(default_factory=LeftOut)
    not_modeled: Counts = ()
    """The calls that hardware numerics computed without a model, by op."""
    not_compared: Counts = ()
    """The calls in forms that were not compared with kernels, or did not agree, by op."""
    errors: Counts = ()
    """The errors that calls raised, each with the op that raised it, in one line."""


@dataclass(slots=True)
class _OpSums:
    """Counts of one op that grow while its calls are read."""

    calls: int = 0
    nested_calls: int = 0
    raised: int = 0
    cases: set[str] = field(default_factory=set)
    nested_cases: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Sums:
    """Counts that grow while journals or lines are read; ``known`` cases are not new."""

    known: Container[str]
    run: Run | None = None
    observed: int = 0
    lost: int = 0
    processes: int = 0
    unclosed: int = 0
    asserted: int = 0
    new: int = 0
    seen: set[str] = field(default_factory=set)
    ops: dict[str, _OpSums] = field(default_factory=dict)
    filtered: Counter[str] = field(default_factory=Counter)
    untraceable: Counter[str] = field(default_factory=Counter)
    tests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    not_modeled: Counter[str] = field(default_factory=Counter)
    not_compared: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    in_flight: list[tuple[Call, Case]] = field(default_factory=list)

    def add(
        self, op: str, case_id: str, *, nested: bool, error: str | None = None, calls: int = 1
    ) -> None:
        """Count calls of one case; ``error`` is what they raised, None if they did not."""
        own = self.ops.get(op) or self.ops.setdefault(op, _OpSums())
        if nested:
            own.nested_calls += calls
            own.nested_cases.add(case_id)
            return
        own.calls += calls
        own.cases.add(case_id)
        if error is not None:
            own.raised += calls
            self.errors[f"{op}: {error_line(error) or 'an error without a text'}"] += calls

    def see(self, case_id: str) -> None:
        """Count a case that is described completely: the first of a new one is stored."""
        self.new += case_id not in self.seen and case_id not in self.known
        self.seen.add(case_id)

    def summary(self) -> TraceSummary:
        """Return the sums of everything that was read."""
        untraceable = self.untraceable + Counter({LOST: self.lost})
        ops = tuple(
            OpCalls(
                op=op,
                cases=len(own.cases),
                calls=own.calls,
                nested_cases=len(own.nested_cases - own.cases),
                nested_calls=own.nested_calls,
                raised=own.raised,
            )
            for op, own in self.ops.items()
        )
        ops = tuple(sorted(ops, key=lambda each: (-each.calls, each.op)))
        listed = {each for op, own in self.ops.items() if is_listed(op) for each in own.cases}
        total = add_up(ops)
        rest = self.filtered.total() + untraceable.total()
        return TraceSummary(
            run=self.run,
            accounting=Accounting(
                observed=self.observed,
                stored=self.new,
                deduplicated=self.observed - self.new - rest,
                filtered=_counts(self.filtered),
                untraceable=_counts(untraceable),
            ),
            calls=total.amount.calls,
            cases=total.amount.cases,
            known_cases=sum(case_id in self.known for case_id in listed),
            ops=ops,
            in_flight=tuple(self.in_flight),
            tests=_counts(self.tests),
            faults=_counts(self.faults),
            lost=self.lost,
            processes=self.processes,
            unclosed=self.unclosed,
            asserted=self.asserted,
            left=total.left,
            not_modeled=_counts(self.not_modeled),
            not_compared=_counts(self.not_compared),
            errors=_counts(self.errors),
        )


def _counts(counter: Counter[str]) -> Counts:
    return tuple((name, count) for name, count in counter.most_common() if count)


def summarize(journals: Iterable[JournalReader], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these journals; ``known`` are the cases that were there before."""
    sums = _Sums(known)
    for journal in journals:
        _add_journal(sums, journal)
    return sums.summary()


def is_assertion(error: str) -> bool:
    """Return whether the error of a failed test is a failed assertion."""
    return _ASSERTION.search(error.partition("\n")[0]) is not None


def _add_journal(sums: _Sums, journal: JournalReader) -> None:
    sums.processes += 1
    sums.run = journal.run or sums.run
    facts = {} if journal.run is None else dict(journal.run.provenance)
    sums.not_modeled.update(json.loads(facts.get(NOT_MODELED, "{}")))
    sums.not_compared.update(json.loads(facts.get(NOT_COMPARED, "{}")))
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
    for (word, _, ending, outcome), counted in journal.tallies.items():
        number, kind = layout.number_of(word), layout.kind_of(word)
        if kind == layout.FILTERED:
            sums.filtered[journal.reason(number)] += counted.calls
            continue
        if kind == layout.UNTRACEABLE:
            sums.untraceable[journal.reason(number)] += counted.calls
            continue
        op, case_id = journal.op(number), ids[number]
        nested = layout.depth_of(word) > 0
        error = journal.error(ending) if outcome == layout.RAISED else None
        sums.add(op, case_id, nested=nested, error=error, calls=counted.calls)
        if kind == layout.OPAQUE:
            opaque = ", ".join(sorted(set(journal.opaque(number))))
            sums.untraceable[f"{op} holds {opaque}"] += counted.calls
            sums.seen.add(case_id)
        else:
            sums.see(case_id)
    sums.in_flight += journal.in_flight()


def summarize_lines(lines: Iterable[OpLine | BadLine], known: Container[str] = ()) -> TraceSummary:
    """Return the sum of these lines; ``known`` are the cases that were there before."""
    sums = _Sums(known)
    processes = set()
    for line in lines:
        sums.observed += 1
        if isinstance(line, BadLine):
            sums.faults[f"line {line.number}: {line.faults[0]}"] += 1
            sums.untraceable[UNREADABLE] += 1
            continue
        processes.add((line.run_id, line.process))
        case_id = _case_id(line)
        sums.add(line.op, case_id, nested=line.depth > 0, error=_error_text(line.error))
        sums.see(case_id)
    sums.processes = len(processes)
    return sums.summary()


def _error_text(error: OpError | None) -> str | None:
    return None if error is None else f"{error.type}: {error.message}"


def _case_id(line: OpLine) -> str:
    if line.case_id is not None:
        return line.case_id
    inputs = tuple((f"args[{place}]", value) for place, value in enumerate(line.inputs))
    return placement_hash(Case(line.op, inputs + line.keywords))


def summary_document(summary: TraceSummary, counting: Counting | None = None) -> Iterator[Node]:
    """Yield the totals of a trace, its ops, the calls that are left out, and the accounting."""
    asked = counting or Counting()
    found = add_up(summary.ops, asked)
    processes = f" in {summary.processes} processes" if summary.processes > 1 else ""
    cases = plural(found.amount.cases, "case")
    if asked == Counting():
        new = summary.cases - summary.known_cases
        cases += f" ({new:,} new, {summary.known_cases:,} known)"
    yield Paragraph(f"{plural(found.amount.calls, 'call')}, {cases}{processes}")
    rows = [_row(each, asked) for each in summary.ops if asked.all_ops or is_listed(each.op)]
    called = [row for row in rows if row[2]]
    if called:
        yield table(_COLUMNS, called)
    yield from paragraphs(left_out_texts(found.left))
    if summary.errors:
        errors = [Item(count, text) for text, count in summary.errors]
        yield Section("errors that calls raised", (first_items(errors, _MAX_FAULTS, _REST),))
    accounting = summary.accounting
    for title, reasons in (
        ("filtered", accounting.filtered),
        ("untraceable", accounting.untraceable),
    ):
        yield from paragraphs(f"{title}: {count:,}x {reason}" for reason, count in reasons)
    yield Paragraph(accounting_text(accounting))
    yield from paragraphs(hardware_texts(dict(summary.not_modeled), dict(summary.not_compared)))
    if summary.faults:
        items = [Item(count, text.splitlines()[0]) for text, count in summary.faults]
        yield Section(
            f"tracer faults, which the target did not notice: {_total(summary.faults):,}",
            (first_items(items, _MAX_FAULTS, _REST),),
        )


def _row(each: OpCalls, counting: Counting) -> tuple[str, int, int, Cell]:
    cases, calls = each.cases, each.calls
    if counting.nested:
        cases, calls = cases + each.nested_cases, calls + each.nested_calls
    return each.op, cases, calls, count_cell(each.raised)


def in_flight_document(calls: Sequence[tuple[Call, Case]]) -> Iterator[Node]:
    """Yield the calls that had not ended when their processes did, with their arguments."""
    for call, case in calls[:_MAX_IN_FLIGHT]:
        site, parts = call.call_site, []
        if site is not None:
            parts.append(Paragraph(f"at {site.file}:{site.line}"))
        if call.test_id is not None:
            parts.append(Paragraph(f"in {call.test_id}"))
        yield Section(f"in flight: {case.op}", (*parts, argument_fields(case)))
    if len(calls) > _MAX_IN_FLIGHT:
        yield Paragraph(f"in flight: {len(calls) - _MAX_IN_FLIGHT} more (--json lists all)")


def accounting_text(accounting: Accounting) -> str:
    """Return the accounting of every observed call as a sum, and whether it does not add up."""
    text = (
        f"{accounting.observed:,} observed = {accounting.stored:,} new"
        f" + {accounting.deduplicated:,} repeated + {_total(accounting.filtered):,} filtered"
        f" + {_total(accounting.untraceable):,} untraceable"
    )
    return text if accounting.adds_up() else f"{text}, which does not add up: report this"


def summary_data(summary: TraceSummary, counting: Counting | None = None) -> dict[str, Json]:
    """Return the summary of a trace; ``docs/command-line.md`` describes the keys.

    ``new_cases`` and ``known_cases`` are those that are counted by default.
    """
    accounting, asked = summary.accounting, counting or Counting()
    found = add_up(summary.ops, asked)
    return {
        "calls": found.amount.calls,
        "cases": found.amount.cases,
        "new_cases": summary.cases - summary.known_cases,
        "known_cases": summary.known_cases,
        "left_out": left_out_data(found.left),
        "tests": dict(summary.tests),
        "accounting": {
            "observed": accounting.observed,
            "new": accounting.stored,
            "repeated": accounting.deduplicated,
            "filtered": dict(accounting.filtered),
            "untraceable": dict(accounting.untraceable),
        },
        "ops": [
            {
                "op": each.op,
                "unique": _row(each, asked)[1],
                "executed": _row(each, asked)[2],
                "nested": each.nested_calls,
                "raised": each.raised,
                "hidden": each.hidden,
            }
            for each in summary.ops
        ],
        "in_flight": [_in_flight_data(*each) for each in summary.in_flight],
        "errors": dict(summary.errors),
        "faults": dict(summary.faults),
        "not_modeled": dict(summary.not_modeled),
        "not_compared": dict(summary.not_compared),
        "lost": summary.lost,
        "processes": summary.processes,
        "unclosed": summary.unclosed,
    }


def _in_flight_data(call: Call, case: Case) -> dict[str, Json]:
    site = call.call_site
    return {
        "op": case.op,
        "arguments": dict(argument_texts(case)),
        "case": case_data(case),
        "case_id": call.case_id,
        "call_site": None if site is None else f"{site.file}:{site.line}",
        "test": call.test_id,
        "process": call.process,
        "op_index": call.op_index,
    }


def _total(counts: Counts) -> int:
    return sum(count for _, count in counts)

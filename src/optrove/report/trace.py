"""The summary of a trace, as a document and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.model.ops import Counting, add_up, is_listed
from optrove.report.describe import argument_fields, value_text
from optrove.report.document import (
    Column,
    Item,
    Items,
    Paragraph,
    Section,
    count_cell,
    paragraphs,
    table,
)
from optrove.report.listings import left_out_data, left_out_texts
from optrove.report.wording import plural
from optrove.serializer.hashes import case_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.case import Case
    from optrove.model.ops import OpCalls
    from optrove.model.records import Accounting, Call, Counts
    from optrove.report.document import Cell, Node
    from optrove.report.summary import TraceSummary
    from optrove.serializer.text import Json

_MAX_IN_FLIGHT: Final = 8
_MAX_FAULTS: Final = 8
_COLUMNS: Final = (
    Column("op"),
    Column("cases", right=True),
    Column("calls", right=True),
    Column("raised", right=True),
)


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
    accounting = summary.accounting
    for title, reasons in (
        ("filtered", accounting.filtered),
        ("untraceable", accounting.untraceable),
    ):
        yield from paragraphs(f"{title}: {count:,}x {reason}" for reason, count in reasons)
    yield Paragraph(accounting_text(accounting))
    if summary.faults:
        items = tuple(
            Item(count, text.splitlines()[0]) for text, count in summary.faults[:_MAX_FAULTS]
        )
        more = len(summary.faults) - _MAX_FAULTS
        total = _total(summary.faults)
        yield Section(
            f"tracer faults, which the target did not notice: {total:,}",
            (Items(items, f"{more} more (--json lists all)" if more > 0 else ""),),
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
    """Return the summary of a trace; ``optrove.cli.record`` describes the keys.

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
        "faults": dict(summary.faults),
        "lost": summary.lost,
        "processes": summary.processes,
        "unclosed": summary.unclosed,
    }


def _in_flight_data(call: Call, case: Case) -> dict[str, Json]:
    site = call.call_site
    return {
        "op": case.op,
        "arguments": {name: value_text(value) for name, value in case.arguments},
        "case": case_data(case),
        "case_id": call.case_id,
        "call_site": None if site is None else f"{site.file}:{site.line}",
        "test": call.test_id,
        "process": call.process,
        "op_index": call.op_index,
    }


def _total(counts: Counts) -> int:
    return sum(count for _, count in counts)

"""Draw the summary of a trace as text of 80 columns, and as data for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.model.ops import Counting
from optrove.report.describe import drawn, drawn_arguments
from optrove.report.ops import left_out_data, left_out_lines
from optrove.report.summary import counted
from optrove.report.tables import Column, plural, table_lines
from optrove.serializer.hashes import case_data, placement_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.records import Accounting, Counts
    from optrove.report.summary import InFlight, OpCount, TraceSummary
    from optrove.serializer.text import Json

WIDTH: Final = 80
_MOST_IN_FLIGHT: Final = 8
_MOST_FAULTS: Final = 8
_COLUMNS: Final = (
    Column("op"),
    Column("cases", right=True),
    Column("calls", right=True),
    Column("raised", right=True),
)


def summary_lines(summary: TraceSummary, counting: Counting | None = None) -> list[str]:
    """Return what a trace has found as lines: ops, what was left out, and the accounting."""
    asked = counting or Counting()
    left = counted(summary.ops, asked).left
    return [
        _totals(summary, asked),
        *_table(summary.ops, asked),
        *left_out_lines(left),
        *_reasons("filtered", summary.accounting.filtered),
        *_reasons("untraceable", summary.accounting.untraceable),
        accounting_line(summary.accounting),
        *_faults(summary.faults),
    ]


def in_flight_lines(calls: tuple[InFlight, ...]) -> list[str]:
    """Return the calls that had not ended when their processes did, with their arguments."""
    lines = []
    for call in calls[:_MOST_IN_FLIGHT]:
        lines.append(f"in flight: {call.op}")
        if call.call_site is not None:
            lines.append(f"    at {call.call_site.file}:{call.call_site.line}")
        if call.test_id is not None:
            lines.append(f"    in {call.test_id}")
        if call.case is not None:
            lines += [f"    {line}" for line in drawn_arguments(call.case, WIDTH - 6)]
    if len(calls) > _MOST_IN_FLIGHT:
        lines.append(f"in flight: {len(calls) - _MOST_IN_FLIGHT} more (--json tells all)")
    return lines


def accounting_line(accounting: Accounting) -> str:
    """Return what became of every observed call; a sum, which is said to be wrong if it is."""
    text = (
        f"{accounting.observed:,} observed = {accounting.stored:,} new"
        f" + {accounting.deduplicated:,} repeated + {_total(accounting.filtered):,} filtered"
        f" + {_total(accounting.untraceable):,} untraceable"
    )
    return text if accounting.adds_up() else f"{text}, which does not add up: report this"


def summary_data(summary: TraceSummary) -> dict[str, Json]:
    """Return what a trace has found for machines; see ``optrove.cli.record`` for the keys."""
    accounting = summary.accounting
    return {
        "calls": summary.calls,
        "cases": summary.cases,
        "new_cases": summary.cases - summary.known_cases,
        "known_cases": summary.known_cases,
        "left_out": left_out_data(summary.left),
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
                "op": count.op,
                "unique": count.cases,
                "executed": count.calls,
                "nested": count.nested_calls,
                "raised": count.raised,
                "hidden": count.hidden,
            }
            for count in summary.ops
        ],
        "in_flight": [_in_flight_data(call) for call in summary.in_flight],
        "faults": dict(summary.faults),
        "lost": summary.lost,
        "processes": summary.processes,
        "unclosed": summary.unclosed,
    }


def _in_flight_data(call: InFlight) -> dict[str, Json]:
    site, case = call.call_site, call.case
    return {
        "op": call.op,
        "arguments": {} if case is None else {name: drawn(value) for name, value in case.arguments},
        "case": None if case is None else case_data(case),
        "case_id": None if case is None else placement_hash(case),
        "call_site": None if site is None else f"{site.file}:{site.line}",
        "test": call.test_id,
        "process": call.process,
        "op_index": call.op_index,
    }


def _totals(summary: TraceSummary, counting: Counting) -> str:
    processes = f" in {summary.processes} processes" if summary.processes > 1 else ""
    amount = counted(summary.ops, counting).amount
    cases = plural(amount.cases, "case")
    if counting == Counting():
        new = summary.cases - summary.known_cases
        cases += f" ({new:,} new, {summary.known_cases:,} known)"
    return f"{plural(amount.calls, 'call')}, {cases}{processes}"


def _table(ops: Iterable[OpCount], counting: Counting) -> list[str]:
    shown = [count for count in ops if counting.all_ops or not count.hidden]
    rows = [row for row in (_row(count, counting) for count in shown) if row[2] != "0"]
    return ["", *table_lines(_COLUMNS, rows), ""] if rows else []


def _row(count: OpCount, counting: Counting) -> tuple[str, str, str, str]:
    cases, calls = count.cases, count.calls
    if counting.nested:
        cases, calls = cases + count.nested_cases, calls + count.nested_calls
    return count.op, f"{cases:,}", f"{calls:,}", f"{count.raised:,}" if count.raised else ""


def _reasons(title: str, counts: Counts) -> list[str]:
    return [f"{title}: {count:,}x {reason}" for reason, count in counts]


def _faults(faults: Counts) -> list[str]:
    if not faults:
        return []
    lines = [f"tracer faults, which the target did not notice: {_total(faults):,}"]
    lines += [f"    {count:,}x {text.splitlines()[0]}" for text, count in faults[:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        lines.append(f"    {len(faults) - _MOST_FAULTS} more (--json tells all)")
    return lines


def _total(counts: Counts) -> int:
    return sum(count for _, count in counts)

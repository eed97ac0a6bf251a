"""Draw the plan of a sweep, and a short account of what came of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.report.results import NOT_ATTEMPTED, numberless_text, summed
from optrove.report.results_text import WORDS, counted, title
from optrove.report.tables import Column, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.codec.text import Json
    from optrove.model.records import Counts
    from optrove.report.results import RunResults

_SUITE: Final = Column("suite")
_COLUMNS: Final = (
    Column("op", flexible=True),
    _SUITE,
    Column("on"),
    Column("cases", right=True),
    Column("calls", right=True),
)
_SUMMARY: Final = (Column("op", flexible=True), Column("cases", right=True), Column("of which"))


@dataclass(frozen=True, slots=True)
class DrawnCase:
    """A planned case, as far as it is shown; ``device`` and ``board`` are where it is executed."""

    op: str
    case_id: str
    device: str
    board: str | None = None
    suite: str | None = None
    calls: int | None = None


def plan_lines(cases: Sequence[DrawnCase], left_out: Counts, width: int | None = None) -> list[str]:
    """Return a plan as a table of ops, the most called first as in results, and its sum.

    Suites have a column where there are any: recorded cases of ops have none.
    """
    groups: dict[tuple[str, str, str], list[DrawnCase]] = {}
    for each in cases:
        place = " ".join(filter(None, (each.device, each.board)))
        groups.setdefault((each.op, each.suite or "", place), []).append(each)
    calls: Counter[str] = Counter()
    for each in cases:
        calls[each.op] += each.calls or 0
    rows = [
        (*key, f"{len(some):,}", f"{sum(each.calls or 0 for each in some):,}")
        for key, some in sorted(groups.items(), key=lambda item: (-calls[item[0][0]], item[0][0]))
    ]
    shown = [place for place, column in enumerate(_COLUMNS) if column is not _SUITE]
    if any(each.suite for each in cases):
        shown = list(range(len(_COLUMNS)))
    columns = [_COLUMNS[place] for place in shown]
    return [
        *table_lines(columns, [[row[place] for place in shown] for row in rows], width),
        "",
        f"{plural(len(cases), 'case')} planned, nothing executed",
        *(f"left out: {count:,} {reason}" for reason, count in left_out),
    ]


def plan_data(cases: Sequence[DrawnCase], left_out: Counts) -> dict[str, Json]:
    """Return a plan for machines; see ``optrove.cli_sweep`` for the keys."""
    return {
        "planned": len(cases),
        "counts": {NOT_ATTEMPTED: len(cases)},
        "left_out": dict(left_out),
        "cases": [
            {
                "op": each.op,
                "case_id": each.case_id,
                "suite": each.suite,
                "device": each.device,
                "board": each.board,
                "calls": each.calls,
            }
            for each in cases
        ],
    }


def summary_lines(found: RunResults, width: int | None = None) -> list[str]:
    """Return the totals of a run, and those of each op: every row adds up."""
    summary = summed(found)
    rows = [
        (
            each.op,
            f"{each.planned:,}",
            ", ".join(f"{count:,} {WORDS[name]}" for name, count in each.counts.items()),
        )
        for each in summary.ops
    ]
    return [
        title(found.run),
        *table_lines(_SUMMARY, rows, width),
        "",
        counted(summary),
        *filter(None, (numberless_text(summary),)),
        *(f"left out: {count:,} {reason}" for reason, count in found.left_out),
    ]

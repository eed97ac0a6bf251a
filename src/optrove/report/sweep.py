"""Sweeps and vectors as text, and as data for machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from optrove.report.describe import drawn, in_reading_order
from optrove.report.results import NOT_ATTEMPTED, WORDS, counted, numberless_text, summed, title
from optrove.report.tables import Column, clipped, plural, table_lines
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.case import Case
    from optrove.model.records import Counts
    from optrove.report.results import RunResults
    from optrove.serializer.text import Json


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
    """Return a plan for machines; see ``optrove.cli.sweep`` for the keys."""
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


_ID: Final = 12


@dataclass(frozen=True, slots=True)
class DrawnVector:
    """A vector as it is shown."""

    case_id: str
    case: Case
    suite: str | None
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """What vectors need, how many do, and the file that they are in, if any."""

    hardware: str | None
    mesh: str | None
    vectors: int
    file: str | None = None


@dataclass(frozen=True, slots=True)
class DrawnVectors:
    """Vectors of a module or of ops, with their groups and what was left out."""

    name: str
    vectors: Sequence[DrawnVector]
    groups: Sequence[DrawnGroup]
    left_out: Counts = ()
    shown: bool = True
    """Whether the vectors themselves are listed for people."""


def vector_lines(drawing: DrawnVectors, width: int | None = None) -> Iterator[str]:
    """Yield the lines that tell of vectors; those of vectors are cut at ``width``."""
    for vector in drawing.vectors if drawing.shown else ():
        suite = "" if vector.suite is None else f"{vector.suite}  "
        line = f"{vector.case_id[:_ID]}  {suite}{_arguments(vector.case)}"
        yield line if width is None else clipped(line, width)
    if drawing.shown and drawing.vectors:
        yield ""
    groups = drawing.groups
    if len(groups) > 1 or any(each.file or each.hardware or each.mesh for each in groups):
        yield from _group_lines(groups)
    suites = Counter(each.suite for each in drawing.vectors if each.suite is not None)
    listed = ", ".join(f"{suite} {count:,}" for suite, count in suites.items())
    yield f"{drawing.name}: {plural(len(drawing.vectors), 'vector')}" + (
        f" ({listed})" * bool(listed)
    )
    for reason, count in drawing.left_out:
        yield f"left out: {count:,} {reason}"


def _group_lines(groups: Sequence[DrawnGroup]) -> list[str]:
    columns = [Column("vectors", right=True), Column("hardware"), Column("mesh")]
    rows = [[f"{each.vectors:,}", each.hardware or "any", each.mesh or "1x1"] for each in groups]
    if any(each.file for each in groups):
        columns.append(Column("file"))
        for row, each in zip(rows, groups, strict=True):
            row.append(each.file or "")
    return table_lines(columns, rows)


def _arguments(case: Case) -> str:
    return ", ".join(f"{name}={drawn(value)}" for name, value in in_reading_order(case))


def vector_data(drawing: DrawnVectors) -> dict[str, Any]:
    """Return the same for machines."""
    return {
        "name": drawing.name,
        "planned": len(drawing.vectors),
        "left_out": [{"reason": reason, "count": count} for reason, count in drawing.left_out],
        "groups": [
            {
                "hardware": each.hardware,
                "mesh": each.mesh,
                "vectors": each.vectors,
                "file": each.file,
            }
            for each in drawing.groups
        ],
        "vectors": [
            {
                "id": each.case_id,
                "op": each.case.op,
                "suite": each.suite,
                "calls": each.calls,
                "arguments": {name: encode(value) for name, value in each.case.arguments},
            }
            for each in drawing.vectors
        ],
    }

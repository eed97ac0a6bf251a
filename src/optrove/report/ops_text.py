"""Draw the ops of a trove as a table, and as data for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.report.left_out import left_out_lines
from optrove.report.tables import Column, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.codec.text import Json
    from optrove.model.counted import LeftOut
    from optrove.model.trove import OpRow

_COLUMNS: Final = (
    Column("op", flexible=True),
    Column("cases", right=True),
    Column("calls", right=True),
    Column("complete", right=True),
    Column("models", flexible=True),
)


def ops_lines(
    rows: Sequence[OpRow], left: LeftOut, *, all_ops: bool, width: int | None = None
) -> list[str]:
    """Return a table of the ops, a line with their totals, and what these leave out."""
    shown = [row for row in rows if all_ops or not row.hidden]
    cells = [
        (row.op, f"{row.cases:,}", f"{row.calls:,}", percent(row.replayable), _models(row.models))
        for row in shown
    ]
    table = [*table_lines(_COLUMNS, cells, width), ""] if shown else []
    return [*table, _totals(shown), *left_out_lines(left)]


def ops_data(rows: Sequence[OpRow], *, all_ops: bool) -> list[Json]:
    """Return the ops for machines; ``models`` are names, ``replayable`` goes from 0 to 1."""
    return [
        {
            "op": row.op,
            "cases": row.cases,
            "calls": row.calls,
            "models": list(row.models),
            "replayable": row.replayable,
        }
        for row in rows
        if all_ops or not row.hidden
    ]


def percent(share: float) -> str:
    """Return a share as a percentage; only all is 100%, and only nothing is 0%."""
    if 0 < share < 1:
        return f"{min(max(round(share * 100), 1), 99)}%"
    return f"{share:.0%}"


def _models(models: tuple[str, ...]) -> str:
    return models[0] if len(models) == 1 else plural(len(models), "model")


def _totals(rows: Sequence[OpRow]) -> str:
    cases, calls = sum(row.cases for row in rows), sum(row.calls for row in rows)
    models = {model for row in rows for model in row.models}
    counts = (plural(len(rows), "op"), plural(cases, "case"), plural(calls, "call"))
    return f"{', '.join(counts)} from {plural(len(models), 'model')}"

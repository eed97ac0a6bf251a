"""The table of ops, and what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.report.tables import Column, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.ops import Amount, LeftOut
    from optrove.model.trove import OpRow
    from optrove.serializer.text import Json


def left_out_lines(left: LeftOut, *, options: bool = True) -> list[str]:
    """Return a line for each kind of call that is left out; none where all is counted.

    Without ``options`` it is not said which option counts them: there is none.
    """
    lines = []
    if left.moving.calls:
        ops = plural(left.moving.ops, "data-movement op")
        hint = " (--all-ops counts them)" if options else ""
        lines.append(f"left out: {_amount(left.moving)} of {ops}{hint}")
    if left.nested.calls:
        hint = f" ({_nested_options(left)} counts them)" if options else ""
        lines.append(f"left out: {_amount(left.nested)} made by other ops{hint}")
    return lines


def left_out_calls_lines(left: LeftOut) -> list[str]:
    """Return the same for several runs or models, which may share cases and ops: calls only."""
    lines = []
    if left.moving.calls:
        calls = plural(left.moving.calls, "call")
        lines.append(f"left out: {calls} of data-movement ops (--all-ops counts them)")
    if left.nested.calls:
        calls = plural(left.nested.calls, "call")
        hint = f"({_nested_options(left)} counts them)"
        lines.append(f"left out: {calls} made by other ops {hint}")
    return lines


def left_out_data(left: LeftOut) -> dict[str, Json]:
    """Return what is left out for machines."""
    return {
        name: {"ops": amount.ops, "cases": amount.cases, "calls": amount.calls}
        for name, amount in (("data_movement", left.moving), ("nested", left.nested))
    }


def _nested_options(left: LeftOut) -> str:
    # Where ops that only move data are left out, calls of them may be among the nested ones.
    return "--all-ops --nested" if left.moving.calls else "--nested"


def _amount(amount: Amount) -> str:
    cases = f", {plural(amount.cases, 'case')}" if amount.cases else ""
    return f"{plural(amount.calls, 'call')}{cases}"


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

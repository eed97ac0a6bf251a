"""Say what was recorded and is not counted, and which option counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optrove.report.tables import plural

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.model.counted import Amount, LeftOut


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

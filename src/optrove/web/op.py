"""The page of one op: its cases or families, what can be chosen among them, and its runs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound
from optrove.flows.naming import unknown
from optrove.model.opnames import ANY, meant_ops
from optrove.report.facets import numbers_in
from optrove.store import browsing, browsing_runs
from optrove.web.case_rows import case_rows, families_of
from optrove.web.choosing import CHOICES, NESTED, choice_of, chosen_data, facets_data
from optrove.web.looking import PAGE_ROWS, Page, View
from optrove.web.ops import op_data
from optrove.web.parameters import Parameter
from optrove.web.plots import pcc_plot, time_plot
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from optrove.web.catalog import Index, Op
    from optrove.web.looking import Look

PARAMETERS: Final = (
    Parameter("name", "name of the op: ttnn.add, ttnn::add or add", required=True),
    *CHOICES,
    NESTED,
    Parameter(
        "view", "cases, or families of those that differ in scalars", choices=("cases", "families")
    ),
    Parameter("after", "the last case of the page before", pattern="[0-9a-f]{64}"),
)
_LONGEST_NAME: Final = 200


def op_page(look: Look) -> View:
    """Make the page of an op."""
    op = op_named(look.index, look.text("name") or "")
    choice, nested = choice_of(look), look.text("nested") == "yes"
    cases = op.cases.chosen(choice, nested=nested)
    after = _number_after(look, op)
    families = look.text("view") == "families"
    if families:
        rows, following = families_of(look, op, cases, after)
    else:
        numbers = list(islice(numbers_in(cases, after), PAGE_ROWS + 1))
        rows = case_rows(look, op, numbers[:PAGE_ROWS], choice)
        following = rows[-1]["case_id"] if len(numbers) > PAGE_ROWS else None
    runs = runs_of(look, op.name)
    return View(
        {
            **op_data(op, choice, nested=nested),
            "op": cut(op.name),
            "every": len(op.cases),
            "hidden": op.hidden,
            "chosen": chosen_data(choice),
            "nested": nested,
            "view": "families" if families else "cases",
            "facets": facets_data((op,), choice, nested=nested),
            "rows": rows,
            "next": following,
            "runs": runs,
        },
        {"pcc": pcc_plot(runs), "time": time_plot(runs)},
    )


def op_named(index: Index, name: str) -> Op:
    """Return the op that is meant; NotFound with the nearest if there is none."""
    if name in index.ops:
        return index.ops[name]
    known = [each for each in index.ops if len(each) <= _LONGEST_NAME]
    found = () if ANY in name else meant_ops(name, known)
    if len(found) == 1:
        return index.ops[found[0]]
    raise _unknown(name, known)


def _unknown(name: str, known: list[str]) -> NotFound:
    return unknown(f"no op here is called {name[:_LONGEST_NAME]!r}", name, known, "the page of ops")


def _number_after(look: Look, op: Op) -> int:
    """Return the number of the case to go on after; -1 at the beginning."""
    after = look.text("after")
    if after is None:
        return -1
    row = browsing.case_named(look.source, after)
    if row is None or look.index.op_of.get(row[0]) is not op:
        raise NotFound("the case to go on after is not in this list; go back to its beginning")
    return look.index.numbers[row[0]]


def runs_of(look: Look, name: str) -> list[dict[str, Any]]:
    """Return what runs have made of an op, the oldest first: calls, attempts, PCC, durations."""
    remembered = look.index.remembered
    if name not in remembered:
        remembered[name] = _runs_of(look, name)
    return remembered[name]


def _runs_of(look: Look, name: str) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for run_id, started_at, kind, board, calls, total in browsing_runs.op_times(look.source, name):
        row = found.setdefault(run_id, _run(run_id, started_at, board))
        row.update(kind=kind, calls=int(calls), mean_ns=int(total) / max(int(calls), 1))
    pcc = browsing_runs.op_pcc(look.source, name)
    for row_of in browsing_runs.op_tried(look.source, name):
        run_id, started_at, _, board, count, passed, total, timed = row_of
        row = found.setdefault(run_id, _run(run_id, started_at, board))
        row["tried"] += int(count)
        row["passed"] += int(passed or 0)
        if timed:
            row["mean_ns"] = int(total) / int(timed)
        if run_id in pcc:
            least, mean, most, _ = pcc[run_id]
            row.update(least_pcc=finite(least), mean_pcc=finite(mean), most_pcc=finite(most))
    return sorted(found.values(), key=lambda row: (row["started_at"] or "", row["run_id"]))


def _run(run_id: str, started_at: str | None, board: str | None) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "started_at": started_at,
        "board": board,
        "kind": None,
        "calls": None,
        "mean_ns": None,
        "tried": 0,
        "passed": 0,
        "least_pcc": None,
        "mean_pcc": None,
        "most_pcc": None,
    }


OP: Final = Page("/op", "op", "One op: its cases, families and runs", op_page, PARAMETERS)

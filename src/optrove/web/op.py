"""The page of one op: its cases or families, what can be chosen among them, and its runs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.flows.naming import unknown
from optrove.model.opnames import ANY, meant_ops
from optrove.report.facets import numbers_in
from optrove.report.tallies import Tally
from optrove.store import browsing
from optrove.web.case_rows import case_rows, families_of
from optrove.web.choosing import CHOICES, NESTED, choice_of, chosen_data, facets_data
from optrove.web.looking import PAGE_ROWS, Page, View, not_listed
from optrove.web.ops import op_data
from optrove.web.parameters import AFTER_CASE, Parameter
from optrove.web.plots import pcc_plot, time_plot
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from optrove.errors import NotFound
    from optrove.store.browsing import RunFact
    from optrove.web.catalog import Index, Op
    from optrove.web.looking import Look

PARAMETERS: Final = (
    Parameter("name", "name of the op: ttnn.add, ttnn::add or add", required=True),
    *CHOICES,
    NESTED,
    Parameter(
        "view", "cases, or families of those that differ in scalars", choices=("cases", "families")
    ),
    AFTER_CASE,
)
_LONGEST_NAME: Final = 200
_RUNS: Final = 200


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
    runs = runs_of(look.index, op)
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
    return unknown(f"no op here is called {name[:_LONGEST_NAME]!r}", name, known, "/ops")


def _number_after(look: Look, op: Op) -> int:
    """Return the number of the case to go on after; -1 at the beginning."""
    after = look.text("after")
    if after is None:
        return -1
    row = browsing.case_named(look.source, after)
    if row is None or look.index.op_of.get(row[0]) is not op:
        raise not_listed("case", after)
    return look.index.numbers[row[0]]


def runs_of(index: Index, op: Op) -> list[dict[str, Any]]:
    """Return what the last runs have made of an op, the oldest first."""
    tallies = index.tallies.of_op(op.name)
    facts = [(key, index.runs[key]) for key in {*op.times, *tallies} if key in index.runs]
    facts.sort(key=lambda each: (each[1].started_at, each[1].run_id))
    return [
        _run(fact, op.times.get(key), tallies.get(key, Tally())) for key, fact in facts[-_RUNS:]
    ]


def _run(fact: RunFact, times: tuple[int, int] | None, tally: Tally) -> dict[str, Any]:
    calls, total_ns = times or (None, 0)
    called_ns = total_ns / calls if calls else None
    return {
        "run_id": cut(fact.run_id),
        "started_at": fact.started_at,
        "board": cut(tally.board or fact.board),
        "kind": fact.kind,
        "calls": calls,
        "mean_ns": called_ns if tally.mean_ns is None else tally.mean_ns,
        "tried": tally.tried,
        "passed": tally.passed,
        "least_pcc": finite(tally.least_pcc),
        "mean_pcc": finite(tally.mean_pcc),
        "most_pcc": finite(tally.most_pcc),
    }


OP: Final = Page("/op", "op", "One op: its cases, families and runs", op_page, PARAMETERS)

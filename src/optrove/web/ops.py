"""The page of all ops: search, facets, most called first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.model.records import Outcome
from optrove.report.facets import FACETS, NONE, Choice
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import LONGEST, Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.web import responses
    from optrove.web.catalog import Op
    from optrove.web.page_request import PageRequest


_MOST_VALUES: Final = 40
_OUTCOMES: Final = (*(outcome.value for outcome in Outcome), NONE)

CHOICES: Final = (
    Parameter("model", "called by this model, or else by this source"),
    Parameter("board", "called on this board"),
    Parameter("dtype", "with a tensor of this dtype"),
    Parameter("layout", "with a tensor of this layout"),
    Parameter("memory", "with a tensor in this memory"),
    Parameter("mesh", "with a tensor on a mesh of this shape"),
    Parameter("outcome", "whose last attempt ended so; none: never tried", choices=_OUTCOMES),
)
ALL_OPS: Final = Parameter("all_ops", "yes: ops that only move data, too", choices=("yes", "no"))
NESTED: Final = Parameter(
    "nested", "yes: cases that only other ops call, too", choices=("yes", "no")
)


def choice_of(request: PageRequest) -> Choice:
    """Return what cases were chosen by."""
    return Choice(**{name: request.text(name) for name in FACETS})


def chosen_data(choice: Choice) -> dict[str, str]:
    """Return what was chosen, by facet."""
    found = {name: getattr(choice, name) for name in FACETS}
    return {name: value for name, value in found.items() if value is not None}


def facets_data(ops: Iterable[Op], choice: Choice, *, nested: bool) -> responses.Facets:
    """Return the values of every facet with the cases that each would leave, most first."""
    totals: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    for op in ops:
        for name, found in totals.items():
            found.update(op.cases.values(name, choice, nested=nested))
    return {name: _facet(found, getattr(choice, name)) for name, found in totals.items()}


def _facet(found: Counter[str], chosen: str | None) -> list[responses.FacetValue]:
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MOST_VALUES]
    if chosen is not None and all(value != chosen for value, _ in ranked):
        ranked.append((chosen, found.get(chosen, 0)))
    return [{"value": cut(value), "cases": cases} for value, cases in ranked]


PARAMETERS: Final = (
    Parameter("search", "part of the name of an op", may_be_empty=True),
    *CHOICES,
    ALL_OPS,
    NESTED,
    Parameter("after", "the last op of the page before"),
)


def ops_page(request: PageRequest) -> View:
    """Make the page of ops."""
    choice, search = choice_of(request), request.text("search")
    nested = request.text("nested") == "yes"
    shown = list(request.index.shown(all_ops=request.text("all_ops") == "yes"))
    if search is not None:
        shown = [op for op in shown if matches(op.name, search)]
    rows = [row for row in (op_data(op, choice, nested=nested) for op in shown) if row["cases"]]
    rows.sort(key=lambda row: (-row["calls"], row["op"]))
    page, following = _page(rows, request.text("after"))
    data: responses.OpsPage = {
        "search": search,
        "chosen": chosen_data(choice),
        "all_ops": request.text("all_ops") == "yes",
        "nested": nested,
        "totals": {
            "ops": len(rows),
            "cases": sum(row["cases"] for row in rows),
            "calls": sum(row["calls"] for row in rows),
        },
        "facets": facets_data(shown, choice, nested=nested),
        "ops": [cut_op(row) for row in page],
        "next": following,
    }
    return View(data, {"hidden": sum(op.hidden for op in request.index.ops.values())})


def op_data(op: Op, choice: Choice, *, nested: bool = False) -> responses.Op:
    """Return an op: its selected cases and their last outcomes."""
    cases = op.cases.chosen(choice, nested=nested)
    outcomes = {
        outcome: (found & cases).bit_count()
        for outcome, found in op.cases.outcomes.items()
        if found & cases
    }
    return {
        "op": op.name,
        "cases": cases.bit_count(),
        "calls": op.cases.calls_of(cases, choice),
        "models": len(op.cases.models(cases)),
        "replayable": (op.cases.replayable & cases).bit_count(),
        "tried": sum(outcomes.values()),
        "passed": outcomes.get("passed", 0),
        "outcomes": outcomes,
    }


def cut_op(row: responses.Op) -> responses.Op:
    """Return an op with its name shortened if it is very long."""
    return {**row, "op": cut(row["op"])}


def matches(name: str, search: str) -> bool:
    """Tell whether a name has all words of a search in it."""
    lowered = name.casefold()
    return all(word in lowered for word in search.casefold().replace("::", ".").split())


def _page(rows: list[responses.Op], after: str | None) -> tuple[list[responses.Op], str | None]:
    """Return the rows after one, and the name that the page after them begins after."""
    begin = 0
    if after is not None:
        places = (place for place, row in enumerate(rows) if row["op"][:LONGEST] == after)
        begin = next(places, -1) + 1
        if not begin:
            raise not_listed("op", after)
    page = rows[begin : begin + PAGE_ROWS]
    more = begin + PAGE_ROWS < len(rows)
    return page, page[-1]["op"][:LONGEST] if more else None


OPS: Final = Page("/ops", "ops", "All ops, by search and facets", ops_page, PARAMETERS)

"""The page of all ops: searched, chosen by facets, most called first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from optrove.web.choosing import ALL_OPS, CHOICES, NESTED, choice_of, chosen_data, facets_data
from optrove.web.looking import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import LONGEST, Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from optrove.report.facets import Choice
    from optrove.web.catalog import Op
    from optrove.web.looking import Look

PARAMETERS: Final = (
    Parameter("search", "part of the name of an op", may_be_empty=True),
    *CHOICES,
    ALL_OPS,
    NESTED,
    Parameter("after", "the last op of the page before"),
)


def ops_page(look: Look) -> View:
    """Make the page of ops."""
    choice, search = choice_of(look), look.text("search")
    nested = look.text("nested") == "yes"
    shown = list(look.index.shown(all_ops=look.text("all_ops") == "yes"))
    if search is not None:
        shown = [op for op in shown if matches(op.name, search)]
    rows = [row for row in (op_data(op, choice, nested=nested) for op in shown) if row["cases"]]
    rows.sort(key=lambda row: (-row["calls"], row["op"]))
    page, following = _page(rows, look.text("after"))
    return View(
        {
            "search": search,
            "chosen": chosen_data(choice),
            "all_ops": look.text("all_ops") == "yes",
            "nested": nested,
            "totals": {
                "ops": len(rows),
                "cases": sum(row["cases"] for row in rows),
                "calls": sum(row["calls"] for row in rows),
            },
            "facets": facets_data(shown, choice, nested=nested),
            "ops": [{**row, "op": cut(row["op"])} for row in page],
            "next": following,
        },
        {"hidden": sum(op.hidden for op in look.index.ops.values())},
    )


def op_data(op: Op, choice: Choice, *, nested: bool = False) -> dict[str, Any]:
    """Return one op for machines: what is chosen of its cases, and what came of them."""
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


def matches(name: str, search: str) -> bool:
    """Tell whether a name has all words of a search in it."""
    lowered = name.casefold()
    return all(word in lowered for word in search.casefold().replace("::", ".").split())


def _page(rows: list[dict[str, Any]], after: str | None) -> tuple[list[dict[str, Any]], str | None]:
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

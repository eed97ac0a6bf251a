"""The page of all ops: search, facets, most called first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.model.ops import is_listed
from optrove.model.records import Outcome, matches_filter
from optrove.trove.derived import NONE
from optrove.trove.facets import FACETS, CaseList, FacetFilters
from optrove.web.page_request import Page, PageView, rows_after
from optrove.web.parameters import Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.trove.facets import CaseGroups
    from optrove.web import responses
    from optrove.web.page_request import PageRequest


_MAX_VALUES: Final = 40
_OUTCOMES: Final = (*(outcome.value for outcome in Outcome), NONE)

CHOICES: Final = (
    Parameter("model", "called by this model, or by this source"),
    Parameter("board", "called on this board"),
    Parameter("dtype", "with a tensor of this dtype"),
    Parameter("layout", "with a tensor of this layout"),
    Parameter("memory", "with a tensor in this memory; a part of its name is enough"),
    Parameter("mesh", "with a tensor on a mesh of this shape"),
    Parameter(
        "outcome", "with this outcome of the last attempt; none: no attempts", choices=_OUTCOMES
    ),
)
ALL_OPS: Final = Parameter("all_ops", "yes: also data-movement ops", choices=("yes", "no"))
NESTED: Final = Parameter(
    "nested", "yes: also cases that only other ops call", choices=("yes", "no")
)


def choice_of(request: PageRequest) -> FacetFilters:
    """Return the filters of the chosen cases."""
    return FacetFilters(**{name: request.text(name) for name in FACETS})


def chosen_data(choice: FacetFilters) -> dict[str, str]:
    """Return the chosen values, by facet."""
    found = {name: getattr(choice, name) for name in FACETS}
    return {name: value for name, value in found.items() if value is not None}


def facets_data(
    groups: CaseGroups, ops: Iterable[str], choice: FacetFilters, *, nested: bool
) -> responses.Facets:
    """Return the values of every facet with the cases that each would leave, most first."""
    found = groups.facets(ops, choice, nested=nested)
    return {name: _facet(name, counts, getattr(choice, name)) for name, counts in found.items()}


def _facet(name: str, found: Counter[str], chosen: str | None) -> list[responses.FacetValue]:
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MAX_VALUES]
    if chosen is not None and not any(matches_filter(name, chosen, each) for each, _ in ranked):
        ranked.append((chosen, found.get(chosen, 0)))
    return [{"value": cut(value), "cases": cases} for value, cases in ranked]


PARAMETERS: Final = (
    Parameter("search", "part of the name of an op", may_be_empty=True),
    *CHOICES,
    ALL_OPS,
    NESTED,
    Parameter("after", "the last op of the previous page"),
)


def ops_page(request: PageRequest) -> PageView:
    """Make the page of ops."""
    choice, search = choice_of(request), request.text("search")
    nested = request.text("nested") == "yes"
    groups = request.groups
    shown = list(groups.shown(all_ops=request.text("all_ops") == "yes"))
    if search is not None:
        shown = [op for op in shown if matches(op, search)]
    rows = op_rows(request, shown, choice, nested=nested)
    page, following = rows_after(rows, request.text("after"), "op", lambda row: row["op"])
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
        "facets": facets_data(groups, shown, choice, nested=nested),
        "ops": [cut_op(row) for row in page],
        "next": following,
    }
    return PageView(data, {"unlisted": sum(not is_listed(op) for op in groups.ops)})


def op_rows(
    request: PageRequest, ops: Iterable[str], choice: FacetFilters, *, nested: bool = False
) -> list[responses.Op]:
    """Return those ops of which some cases are selected, most called first."""
    found = (op_data(request, op, choice, nested=nested) for op in ops)
    rows = [row for row in found if row["cases"]]
    return sorted(rows, key=lambda row: (-row["calls"], row["op"]))


def op_data(
    request: PageRequest, op: str, choice: FacetFilters, *, nested: bool = False
) -> responses.Op:
    """Return an op: its selected cases and their last outcomes."""
    groups = request.groups
    chosen = groups.chosen(op, choice, nested=nested)
    counts: Counter[str] = Counter()
    for group in chosen:
        counts[group.outcome] += group.cases
    outcomes = {each.value: counts[each.value] for each in Outcome if counts[each.value]}
    if choice.model is None and choice.board is None:
        calls = sum(group.calls for group in chosen)
    elif choice == FacetFilters(model=choice.model, board=choice.board):
        calls = groups.calls(op, choice)
    else:
        # Runs are counted by op only; with a choice among tensors or outcomes, case by case.
        cases = CaseList(request.reader, groups, op, choice, nested=nested)
        calls = cases.total_calls() if chosen else 0
    return {
        "op": op,
        "cases": sum(group.cases for group in chosen),
        "calls": calls,
        "models": len(groups.models(chosen)),
        "replayable": sum(group.replayable for group in chosen),
        "tried": sum(outcomes.values()),
        "passed": outcomes.get("passed", 0),
        "outcomes": outcomes,
    }


def cut_op(row: responses.Op) -> responses.Op:
    """Return an op with its name shortened if it is very long."""
    return {**row, "op": cut(row["op"])}


def matches(name: str, search: str) -> bool:
    """Return whether a name has all words of a search in it."""
    lowered = name.casefold()
    return all(word in lowered for word in search.casefold().replace("::", ".").split())


OPS: Final = Page("/ops", "ops", "All ops, by search and facets", ops_page, PARAMETERS)

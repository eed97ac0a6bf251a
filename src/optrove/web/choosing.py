"""Read from parameters which cases are meant, and count what else could be chosen."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from optrove.model.records import Outcome
from optrove.report.facets import FACETS, NONE, Choice
from optrove.web.parameters import Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.web.catalog import Op
    from optrove.web.looking import Look

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


def choice_of(look: Look) -> Choice:
    """Return what cases were chosen by."""
    return Choice(**{name: look.text(name) for name in FACETS})


def chosen_data(choice: Choice) -> dict[str, str]:
    """Return what was chosen, by facet."""
    found = {name: getattr(choice, name) for name in FACETS}
    return {name: value for name, value in found.items() if value is not None}


def facets_data(ops: Iterable[Op], choice: Choice, *, nested: bool) -> dict[str, Any]:
    """Return the values of every facet with the cases that each would leave, most first."""
    totals: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
    for op in ops:
        for name, found in totals.items():
            found.update(op.cases.values(name, choice, nested=nested))
    return {name: _facet(found, getattr(choice, name)) for name, found in totals.items()}


def _facet(found: Counter[str], chosen: str | None) -> list[dict[str, Any]]:
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MOST_VALUES]
    if chosen is not None and all(value != chosen for value, _ in ranked):
        ranked.append((chosen, found.get(chosen, 0)))
    return [{"value": cut(value), "cases": cases} for value, cases in ranked]

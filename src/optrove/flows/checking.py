"""Plan what ``check-board`` executes: every case as it was recorded, and what fails adapted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optrove.backends.ttnn.boards import find_board
from optrove.errors import NotFound
from optrove.flows.adapting import adaptations
from optrove.flows.chosen import every_case
from optrove.flows.grounds import Choice, grouped
from optrove.model.records import DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.flows.adapting import Adaptation
    from optrove.flows.grounds import Where
    from optrove.flows.planning import How, Planned
    from optrove.flows.query import Asked
    from optrove.model.records import Counts
    from optrove.store.reader import TroveReader

NEED_NO_BOARD = "cases of other frameworks, which need no board"


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """The cases that are executed on a mock board, and why others are not."""

    groups: dict[Where, list[Planned]]
    left_out: Counts = ()


def plan_for_board(reader: TroveReader, asked: Asked, how: How, board: str) -> BoardPlan:
    """Return all cases of ttnn that are meant, for a board; NotFound if there are none.

    Calls made by other ops count, and so do ops that only move data.
    """
    cases = every_case(reader, replace(asked, nested=True, all_ops=True), how)
    groups = grouped(cases, Choice(DeviceKind.MOCK, board))
    others = sum(len(groups.pop(where)) for where in list(groups) if where.board is None)
    if not groups:
        raise NotFound(
            f"of the {others:,} cases that are meant, none is of ttnn; a board has nothing to say "
            f"about them"
        )
    return BoardPlan(groups, ((NEED_NO_BOARD, others),) if others else ())


@dataclass(frozen=True, slots=True)
class AdaptedPlan:
    """Adapted cases, in what they differ, and how many had nothing to adapt, by op."""

    groups: dict[Where, list[Planned]]
    adaptations: tuple[Adaptation, ...]
    unadapted: Counts


def plan_adapted(failed: Iterable[Planned], board: str) -> AdaptedPlan:
    """Return the cases that a board does not take, adapted to it where that is known."""
    cases = tuple(failed)
    found = adaptations(cases, find_board(board))
    groups = grouped((each.planned for each in found), Choice(DeviceKind.MOCK, board))
    known = {case_id for each in found for case_id in each.recorded}
    rest = Counter(each.op for each in cases if each.case_id not in known)
    return AdaptedPlan(groups, found, tuple(rest.most_common()))

"""The first page: contents of the trove, runs in progress, and recent results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.trove.derived import NONE
from optrove.trove.facets import FacetFilters
from optrove.web.models import origins
from optrove.web.ops import cut_op, op_rows
from optrove.web.page_request import Page, PageView
from optrove.web.runs import EXECUTED, in_order, run_data
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.trove.facets import CaseGroups
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

_MAX_ROWS: Final = 10
_LATELY: Final = 6


def overview_page(request: PageRequest) -> PageView:
    """Make the first page."""
    reader, groups = request.reader, request.groups
    executed = [
        row for kind in EXECUTED for row in reader.runs(chosen={"kind": kind}, limit=_LATELY)
    ]
    executed.sort(key=lambda row: row.run.started_at, reverse=True)
    lately = [(run_data(row), reader.previous_run(row.run.id)) for row in executed[:_LATELY]]
    tried = request.last_attempts
    ops = op_rows(request, groups.shown(), FacetFilters())
    models = origins(groups, "model")
    response: responses.Overview = {
        "counting": False,
        "totals": {
            "ops": len(ops),
            "cases": sum(row["cases"] for row in ops),
            "calls": sum(row["calls"] for row in ops),
            "models": len(models),
            "runs": sum(reader.run_kinds().values()),
            "attempts": reader.count_attempts(),
        },
        "running": [row for row, _ in lately if row["state"] == "running"],
        "recent": [run_data(row) for row in reader.runs(limit=_MAX_ROWS)],
        "lately": [{**row, "previous": cut(previous)} for row, previous in lately],
        "ops": [cut_op(row) for row in ops[:_MAX_ROWS]],
        "models": [{**origin, "model": cut(model)} for model, origin in models[:_MAX_ROWS]],
        "boards": _boards(groups, tried),
    }
    return PageView(response)


def _boards(
    groups: CaseGroups, tried: Iterable[tuple[str, str, str, str, int]]
) -> list[responses.BoardUse]:
    """Return the boards: the calls that were made on them, and the last outcomes."""
    outcomes: dict[tuple[str, str], Counter[str]] = {}
    for _, board, device, outcome, count in tried:
        outcomes.setdefault((board, device), Counter())[outcome] += count
    rows = origins(groups, "board")
    called = {board for board, _ in rows}
    silent = sorted({board for board, _ in outcomes} - called - {NONE})
    rows += [(board, {"ops": 0, "cases": 0, "calls": 0}) for board in silent]
    return [
        {
            **origin,
            "board": cut(name),
            "tried": [
                {"device": device, "outcomes": in_order(counts)}
                for (board, device), counts in sorted(outcomes.items())
                if board == name
            ],
        }
        for name, origin in rows
    ]


OVERVIEW: Final = Page("/", "overview", "Contents of the trove, and recent results", overview_page)

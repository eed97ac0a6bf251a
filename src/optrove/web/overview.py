"""The first page: what a trove holds, runs in progress, and recent results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypedDict

from optrove.report.facets import NONE, Choice
from optrove.trove import browsing, browsing_runs
from optrove.web.catalog import is_left_out
from optrove.web.models import origins
from optrove.web.ops import cut_op, op_data
from optrove.web.page_request import Page, View
from optrove.web.runs import EXECUTED, run_rows
from optrove.web.wording import cut

if TYPE_CHECKING:
    from optrove.report.facets import Ground
    from optrove.web import responses
    from optrove.web.catalog import Index
    from optrove.web.page_request import PageRequest

_SHOWN: Final = 10
_LATELY: Final = 6


class _MostCalled(TypedDict):
    ops: list[responses.Op]
    models: list[responses.CalledModel]
    boards: list[responses.BoardUse]


def overview_page(request: PageRequest) -> View:
    """Make the first page; while cases are being counted, with what is known without."""
    source, index = request.source, request.index
    recent = run_rows(request, browsing_runs.runs(source, _SHOWN))
    executed = [row for kind in EXECUTED for row in browsing_runs.runs(source, _LATELY, kind=kind)]
    executed.sort(key=lambda row: row[8], reverse=True)
    previous = {row[1]: browsing_runs.previous(source, row[0]) for row in executed[:_LATELY]}
    lately = run_rows(request, executed[:_LATELY])
    totals, counted = _counted(index) if index.whole else _uncounted(request)
    response: responses.Overview = {
        "counting": not index.whole,
        "totals": {
            **totals,
            "runs": sum(browsing_runs.run_counts(source).values()),
            "attempts": index.attempts,
        },
        "running": [row for row in lately if row["state"] == "running"],
        "recent": recent,
        "lately": [{**row, "previous": cut(previous[row["run_id"]])} for row in lately],
        **counted,
    }
    return View(response)


def _counted(index: Index) -> tuple[dict[str, int], _MostCalled]:
    """Return the totals, and the ops, models and boards that are called most."""
    ops = [op_data(op, Choice()) for op in index.shown(all_ops=False)]
    ops.sort(key=lambda row: (-row["calls"], row["op"]))
    shown = [op for op in ops if op["cases"]]
    models = origins(index, "model")
    totals = {
        "ops": len(shown),
        "cases": sum(row["cases"] for row in shown),
        "calls": sum(row["calls"] for row in shown),
        "models": len(models),
    }
    return totals, {
        "ops": [cut_op(row) for row in shown[:_SHOWN]],
        "models": [{**origin, "model": cut(model)} for model, origin in models[:_SHOWN]],
        "boards": _boards(index),
    }


def _uncounted(request: PageRequest) -> tuple[dict[str, int], _MostCalled]:
    """Return the totals that the trove stores, and nothing else."""
    counts = [row for row in browsing.op_counts(request.source) if not is_left_out(row[0])]
    models = {fact.model for fact in request.index.runs.values() if fact.kind not in EXECUTED}
    totals = {
        "ops": len(counts),
        "cases": sum(cases for _, cases, _ in counts),
        "calls": sum(calls for *_, calls in counts),
        "models": len(models),
    }
    return totals, {"ops": [], "models": [], "boards": []}


def _boards(index: Index) -> list[responses.BoardUse]:
    """Return the boards: the calls that were made on them, and the last outcomes."""
    rows = origins(index, "board")
    called = {board for board, _ in rows}
    silent = sorted({board for board, _ in index.grounds} - called - {NONE})
    rows += [(board, {"ops": 0, "cases": 0, "calls": 0}) for board in silent]
    return [
        {
            **origin,
            "board": cut(name),
            "tried": [
                {"device": device, "outcomes": _outcomes(index, (board, device))}
                for board, device in sorted(index.grounds)
                if board == name
            ],
        }
        for name, origin in rows
    ]


def _outcomes(index: Index, ground: Ground) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for op in index.ops.values():
        for outcome, cases in op.last.outcomes(ground).items():
            counts[outcome] += cases.bit_count()
    return dict(counts)


OVERVIEW: Final = Page(
    *("/", "overview", "What the trove holds, and recent results", overview_page), early=True
)

"""The first page: what a trove holds, what is going on in it, and what came of it lately."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from optrove.report.facets import NONE, Choice
from optrove.store import browsing_runs
from optrove.web.looking import Page, View
from optrove.web.ops import op_data
from optrove.web.run_rows import run_rows
from optrove.web.wording import cut

if TYPE_CHECKING:
    from optrove.web.catalog import Index
    from optrove.web.looking import Look

_SHOWN: Final = 10
_LATELY: Final = 6


def overview_page(look: Look) -> View:
    """Make the first page."""
    source, index = look.source, look.index
    ops = [op_data(op, Choice()) for op in index.shown(all_ops=False)]
    ops.sort(key=lambda row: (-row["calls"], row["op"]))
    models, boards = _origins(index)
    recent = run_rows(look, browsing_runs.runs(source, _SHOWN))
    executed = [
        row
        for kind in ("sweep", "replay")
        for row in browsing_runs.runs(source, _LATELY, kind=kind)
    ]
    executed.sort(key=lambda row: row[8], reverse=True)
    previous = {row[1]: browsing_runs.previous(source, row[0]) for row in executed[:_LATELY]}
    lately = run_rows(look, executed[:_LATELY])
    shown = [op for op in ops if op["cases"]]
    return View(
        {
            "totals": {
                "ops": len(shown),
                "cases": sum(row["cases"] for row in shown),
                "calls": sum(row["calls"] for row in shown),
                "models": len(models),
                "runs": sum(browsing_runs.run_counts(source).values()),
                "attempts": index.attempts,
            },
            "running": [row for row in lately if row["state"] == "running"],
            "recent": recent,
            "lately": [{**row, "previous": cut(previous[row["run_id"]])} for row in lately],
            "ops": [{**row, "op": cut(row["op"])} for row in shown[:_SHOWN]],
            "models": models[:_SHOWN],
            "boards": boards,
        }
    )


def _origins(index: Index) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the models and the boards with their ops, cases and calls, most calls first."""
    totals: dict[tuple[str, str], Counter[str]] = {}
    for op in index.shown(all_ops=False):
        for place, name in enumerate(("model", "board")):
            for value in {origin[place] for origin in op.cases.origins()}:
                choice = Choice(**{name: value})
                cases = op.cases.chosen(choice)
                counts = totals.setdefault((name, value), Counter())
                counts["ops"] += bool(cases)
                counts["cases"] += cases.bit_count()
                counts["calls"] += op.cases.calls_of(cases, choice)
    for board in index.boards - {NONE}:
        totals.setdefault(("board", board), Counter())
    order = sorted(totals.items(), key=lambda item: (-item[1]["calls"], item[0]))
    found: dict[str, list[dict[str, Any]]] = {"model": [], "board": []}
    for (name, value), counts in order:
        if value != NONE:
            told = {each: counts[each] for each in ("ops", "cases", "calls")}
            found[name].append({name: cut(value), **told})
    for row in found["board"]:
        row["outcomes"] = _outcomes(index, row["board"])
    return found["model"], found["board"]


def _outcomes(index: Index, board: str) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for op in index.ops.values():
        for outcome, cases in op.last.outcomes(board).items():
            counts[outcome] += cases.bit_count()
    return dict(counts)


OVERVIEW: Final = Page(
    "/", "overview", "What the trove holds, and what happened lately", overview_page
)

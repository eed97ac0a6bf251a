"""The pages of all runs and of a run's progress, and rows of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound
from optrove.model.records import Outcome, RunKind
from optrove.trove import browsing_runs
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed, several
from optrove.web.parameters import Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.trove.database import Connection
    from optrove.web.page_request import Look


CHECK_BOARD: Final = "check-board"
"""The kind of what is stored as a replay, but was to find out what a board makes of all cases."""
EXECUTED: Final = ("sweep", "replay", CHECK_BOARD)
"""The kinds of runs that try cases."""
_SHOWN: Final = 5


def run_rows(look: Look, rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Return runs for machines, with their totals."""
    known = look.index.totals
    missing = [row[0] for row in rows if row[0] not in known]
    known.update(browsing_runs.totals(look.source, missing))
    outcomes = look.index.tallies.outcomes
    return [_run(row, {**known[row[0]], "attempts": outcomes(row[0])}) for row in rows]


def _run(row: tuple[Any, ...], totals: dict[str, Any]) -> dict[str, Any]:
    _, run_id, kind, source, model, board, device, ttnn, started_at, finished_at, content, *_ = row
    told = json.loads(content)
    exit_code = told.get("exit_code") if isinstance(told, dict) else None
    return {
        "run_id": cut(run_id),
        "kind": kind,
        "source": cut(source),
        "model": cut(model),
        "board": cut(board),
        "device": device,
        "ttnn_version": cut(ttnn),
        "started_at": started_at,
        "finished_at": finished_at,
        "exit_code": exit_code,
        "state": _state(kind, finished_at, exit_code, totals),
        **totals,
        "attempts": _in_order(totals["attempts"]),
        "tried": sum(totals["attempts"].values()),
    }


def _in_order(outcomes: dict[str, int]) -> dict[str, int]:
    """Return outcomes in the order of their kinds."""
    return {each.value: outcomes[each.value] for each in Outcome if each.value in outcomes}


def named_run(source: Connection, name: str) -> tuple[Any, ...]:
    """Return the run that is meant by an id or its beginning; NotFound if there is none."""
    row = browsing_runs.run_named(source, name)
    if row is None:
        found = browsing_runs.runs_beginning(source, name, _SHOWN)
        if len(found) > 1:
            raise several("run", name, found)
        row = browsing_runs.run_named(source, found[0]) if found else None
    if row is None:
        raise NotFound(f"no run here has the id {name[:80]!r}; those there are: /runs")
    return row


def _state(kind: str, finished_at: str | None, exit_code: object, totals: dict[str, Any]) -> str:
    """Return whether a run is running, done, failed or was broken off."""
    if kind in EXECUTED and finished_at is None:
        return "running"
    if not totals["complete"]:
        return "incomplete"
    return "failed" if exit_code not in (None, 0) else "done"


KINDS: Final = (*(kind.value for kind in RunKind), CHECK_BOARD)
RUN_ID: Final = "the run's id, or its beginning"
PARAMETERS: Final = (
    Parameter("kind", "runs of this kind", choices=KINDS),
    Parameter("model", "runs of this model, or else of this source"),
    Parameter("board", "runs on this board"),
    Parameter("after", "the last run of the page before"),
)


def runs_page(look: Look) -> View:
    """Make the page of runs, the newest first."""
    chosen = {name: look.text(name) for name in ("kind", "model", "board")}
    after = look.text("after")
    last = None if after is None else browsing_runs.run_named(look.source, after)
    if after is not None and last is None:
        raise not_listed("run", after)
    begin = None if last is None else (last[8], last[0])
    rows = browsing_runs.runs(look.source, PAGE_ROWS + 1, begin, **chosen)
    page = rows[:PAGE_ROWS]
    runs = run_rows(look, page)
    return View(
        {
            "chosen": {name: value for name, value in chosen.items() if value is not None},
            "kinds": browsing_runs.run_counts(look.source),
            "runs": runs,
            "next": page[-1][1] if len(rows) > PAGE_ROWS else None,
        },
        {"before": _place_before(runs)},
    )


def _place_before(runs: Sequence[dict[str, Any]]) -> int:
    """Return the place of the run that the first is best compared with: the last one like it."""
    alike = ("kind", "source", "board", "device")
    places = (
        place
        for place, run in enumerate(runs[1:], 1)
        if all(run[name] == runs[0][name] for name in alike)
    )
    return next(places, 1)


def progress_page(look: Look) -> View:
    """Tell how far a run is: what was planned, and what came of it so far."""
    row = named_run(look.source, look.text("run") or "")
    (data,) = run_rows(look, [row])
    names = ("run_id", "kind", "state", "started_at", "finished_at", "planned", "tried", "attempts")
    return View({name: data[name] for name in names})


RUNS: Final = Page(
    *("/runs", "runs", "All runs, the newest first", runs_page), PARAMETERS, early=True
)
PROGRESS: Final = Page(
    *("/progress", "progress", "How far a run is", progress_page),
    (Parameter("run", RUN_ID, required=True),),
    early=True,
)

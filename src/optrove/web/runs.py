"""The pages of all runs and of a run's progress, and rows of runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from optrove.errors import NotFound
from optrove.model.records import Outcome, RunKind
from optrove.trove import browsing_runs
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed, several
from optrove.web.parameters import Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.trove.database import Connection
    from optrove.web import responses
    from optrove.web.page_request import PageRequest


CHECK_BOARD: Final = "check-board"
"""The kind of a run of ``optrove check-board``, which is stored as a replay."""
EXECUTED: Final = ("sweep", "replay", CHECK_BOARD)
"""The kinds of runs that try cases."""
_SHOWN: Final = 5
_State: TypeAlias = Literal["running", "incomplete", "failed", "done"]


def run_rows(request: PageRequest, rows: Sequence[tuple[Any, ...]]) -> list[responses.Run]:
    """Return runs with their totals."""
    known = request.index.totals
    missing = [row[0] for row in rows if row[0] not in known]
    known.update(browsing_runs.totals(request.source, missing))
    outcomes = request.index.tallies.outcomes
    return [_run(row, {**known[row[0]], "attempts": outcomes(row[0])}) for row in rows]


def _run(row: tuple[Any, ...], totals: dict[str, Any]) -> responses.Run:
    _, run_id, kind, source, model, board, device, ttnn, started_at, finished_at, content, *_ = row
    stored = json.loads(content)
    exit_code = stored.get("exit_code") if isinstance(stored, dict) else None
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
        "cases": totals["cases"],
        "calls": totals["calls"],
        "ops": totals["ops"],
        "planned": totals["planned"],
        "complete": totals["complete"],
        "tests": totals["tests"],
        "attempts": _in_order(totals["attempts"]),
        "tried": sum(totals["attempts"].values()),
    }


def _in_order(outcomes: dict[str, int]) -> dict[str, int]:
    """Return outcomes in the order of their kinds."""
    return {each.value: outcomes[each.value] for each in Outcome if each.value in outcomes}


def named_run(source: Connection, name: str) -> tuple[Any, ...]:
    """Return the run with this id or prefix of an id; NotFound if there is no such run."""
    row = browsing_runs.run_named(source, name)
    if row is None:
        found = browsing_runs.runs_beginning(source, name, _SHOWN)
        if len(found) > 1:
            raise several("run", name, found)
        row = browsing_runs.run_named(source, found[0]) if found else None
    if row is None:
        raise NotFound(f"no run here has the id {name[:80]!r}; those there are: /runs")
    return row


def _state(kind: str, finished_at: str | None, exit_code: object, totals: dict[str, Any]) -> _State:
    """Return the state of a run."""
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


def runs_page(request: PageRequest) -> View:
    """Make the page of runs, the newest first."""
    chosen = {name: request.text(name) for name in ("kind", "model", "board")}
    after = request.text("after")
    last = None if after is None else browsing_runs.run_named(request.source, after)
    if after is not None and last is None:
        raise not_listed("run", after)
    begin = None if last is None else (last[8], last[0])
    rows = browsing_runs.runs(request.source, PAGE_ROWS + 1, begin, **chosen)
    page = rows[:PAGE_ROWS]
    runs = run_rows(request, page)
    response: responses.RunsPage = {
        "chosen": {name: value for name, value in chosen.items() if value is not None},
        "kinds": browsing_runs.run_counts(request.source),
        "runs": runs,
        "next": page[-1][1] if len(rows) > PAGE_ROWS else None,
    }
    return View(response, {"before": _place_before(runs)})


def _place_before(runs: Sequence[responses.Run]) -> int:
    """Return the place of the run to compare the first with: the one before it that is like it."""
    alike = [(run["kind"], run["source"], run["board"], run["device"]) for run in runs]
    return next((place for place in range(1, len(alike)) if alike[place] == alike[0]), 1)


def progress_page(request: PageRequest) -> View:
    """Make the page of a run's progress: what was planned, and the results so far."""
    row = named_run(request.source, request.text("run") or "")
    (data,) = run_rows(request, [row])
    response: responses.Progress = {
        "run_id": data["run_id"],
        "kind": data["kind"],
        "state": data["state"],
        "started_at": data["started_at"],
        "finished_at": data["finished_at"],
        "planned": data["planned"],
        "tried": data["tried"],
        "attempts": data["attempts"],
    }
    return View(response)


RUNS: Final = Page(
    *("/runs", "runs", "All runs, the newest first", runs_page), PARAMETERS, early=True
)
PROGRESS: Final = Page(
    *("/progress", "progress", "How far a run is", progress_page),
    (Parameter("run", RUN_ID, required=True),),
    early=True,
)

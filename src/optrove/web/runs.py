"""The pages of all runs, and of how far one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.model.records import RunKind
from optrove.store import browsing_runs
from optrove.web.looking import PAGE_ROWS, Page, View
from optrove.web.parameters import Parameter
from optrove.web.run_rows import named_run, run_rows

if TYPE_CHECKING:
    from optrove.web.looking import Look

RUN_ID: Final = "the run's id, or its beginning"
PARAMETERS: Final = (
    Parameter("kind", "runs of this kind", choices=tuple(kind.value for kind in RunKind)),
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
        raise NotFound("the run to go on after is not there; go back to the beginning")
    begin = None if last is None else (last[8], last[0])
    rows = browsing_runs.runs(look.source, PAGE_ROWS + 1, begin, **chosen)
    page = rows[:PAGE_ROWS]
    return View(
        {
            "chosen": {name: value for name, value in chosen.items() if value is not None},
            "kinds": browsing_runs.run_counts(look.source),
            "runs": run_rows(look, page),
            "next": page[-1][1] if len(rows) > PAGE_ROWS else None,
        }
    )


def progress_page(look: Look) -> View:
    """Tell how far a run is: what was planned, and what came of it so far."""
    row = named_run(look.source, look.text("run") or "")
    (data,) = run_rows(look, [row])
    names = ("run_id", "kind", "state", "started_at", "finished_at", "planned", "tried", "attempts")
    return View({name: data[name] for name in names})


RUNS: Final = Page("/runs", "runs", "All runs, the newest first", runs_page, PARAMETERS)
PROGRESS: Final = Page(
    *("/progress", "progress", "How far a run is", progress_page),
    (Parameter("run", RUN_ID, required=True),),
)

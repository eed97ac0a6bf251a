"""The pages of all runs, and of how far one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from optrove.model.records import RunKind
from optrove.store import browsing_runs
from optrove.web.looking import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import Parameter
from optrove.web.run_rows import CHECK_BOARD, named_run, run_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.web.looking import Look

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

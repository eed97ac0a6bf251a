"""The pages of all runs and of a run's progress, and rows of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from optrove.errors import NotFound
from optrove.model.records import CHECK_BOARD, Outcome, RunKind
from optrove.trove.database import storable
from optrove.web.page_request import PAGE_ROWS, Page, PageView, not_listed, several
from optrove.web.parameters import Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optrove.model.records import Run
    from optrove.model.trove import RunRow
    from optrove.trove.reader import TroveReader
    from optrove.web import responses
    from optrove.web.page_request import PageRequest


EXECUTED: Final = ("sweep", "replay", CHECK_BOARD)
"""The kinds of runs that try cases."""
_MAX_EXAMPLES: Final = 5
_State: TypeAlias = Literal["running", "incomplete", "failed", "done"]


def run_data(row: RunRow) -> responses.Run:
    """Return a run with its totals."""
    run, environment, attempts = row.run, row.run.environment, dict(row.attempts)
    return {
        "run_id": cut(storable(run.id)),
        "kind": kind_of(run),
        "source": cut(storable(run.source)),
        "model": cut(run.model and storable(run.model)),
        "board": cut(environment.board and storable(environment.board)),
        "device": environment.device_kind.value,
        "ttnn_version": cut(environment.ttnn_version and storable(environment.ttnn_version)),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "exit_code": run.exit_code,
        "state": _state(row),
        "cases": row.cases,
        "calls": row.calls,
        "ops": row.ops,
        "planned": row.planned,
        "complete": row.ended,
        "tests": dict(sorted(row.tests)),
        "attempts": in_order(attempts),
        "tried": sum(attempts.values()),
    }


def kind_of(run: Run) -> str:
    """Return the kind of a run; one of ``optrove check-board`` is stored as a replay."""
    checks = run.kind is RunKind.REPLAY and run.source.startswith(f"{CHECK_BOARD} ")
    return CHECK_BOARD if checks else run.kind.value


def in_order(outcomes: Mapping[str, int]) -> dict[str, int]:
    """Return outcomes in the order of their kinds."""
    return {each.value: outcomes[each.value] for each in Outcome if each.value in outcomes}


def named_run(reader: TroveReader, name: str) -> RunRow:
    """Return the run with this id or prefix of an id; NotFound if there is no such run."""
    row = next(iter(reader.runs(name)), None)
    if row is None:
        found = reader.find_run(name)
        if len(found) > 1:
            raise several("run", name, found[:_MAX_EXAMPLES])
        row = next((row for each in found for row in reader.runs(each)), None)
    if row is None:
        raise NotFound(f"no run here has the id {name[:80]!r}; those there are: /runs")
    return row


def _state(row: RunRow) -> _State:
    """Return the state of a run."""
    if row.run.finished_at is None and kind_of(row.run) in EXECUTED:
        return "running"
    if not row.ended:
        return "incomplete"
    return "failed" if row.run.exit_code not in (None, 0) else "done"


KINDS: Final = (*(kind.value for kind in RunKind), CHECK_BOARD)
RUN_ID: Final = "the run's id, or its beginning"
PARAMETERS: Final = (
    Parameter("kind", "runs of this kind", choices=KINDS),
    Parameter("model", "runs of this model, or of this source"),
    Parameter("board", "runs on this board"),
    Parameter("after", "the last run of the previous page"),
)


def runs_page(request: PageRequest) -> PageView:
    """Make the page of runs, the newest first."""
    chosen = {name: request.text(name) for name in ("kind", "model", "board")}
    after = request.text("after")
    last = None if after is None else next(iter(request.reader.runs(after)), None)
    if after is not None and last is None:
        raise not_listed("run", after)
    begin = None if last is None else last.run
    rows = request.reader.runs(chosen=chosen, after=begin, limit=PAGE_ROWS + 1)
    runs = [run_data(row) for row in rows[:PAGE_ROWS]]
    response: responses.RunsPage = {
        "chosen": {name: value for name, value in chosen.items() if value is not None},
        "kinds": request.reader.run_kinds(),
        "runs": runs,
        "next": storable(rows[PAGE_ROWS - 1].run.id) if len(rows) > PAGE_ROWS else None,
    }
    return PageView(response, {"before": _place_before(runs)})


def _place_before(runs: Sequence[responses.Run]) -> int:
    """Return the place of the run to compare the first with: the one before it that is like it."""
    alike = [(run["kind"], run["source"], run["board"], run["device"]) for run in runs]
    return next((place for place in range(1, len(alike)) if alike[place] == alike[0]), 1)


def progress_page(request: PageRequest) -> PageView:
    """Make the page of a run's progress: what was planned, and the results so far."""
    data = run_data(named_run(request.reader, request.text("run") or ""))
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
    return PageView(response)


RUNS: Final = Page(*("/runs", "runs", "All runs, the newest first", runs_page), PARAMETERS)
PROGRESS: Final = Page(
    *("/progress", "progress", "Progress of a run", progress_page),
    (Parameter("run", RUN_ID, required=True),),
)

"""The pages of runs: all of them, one with its tests, attempts and calls, and its progress."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, NotFound
from optrove.model.records import CHECK_BOARD, NOT_ATTEMPTED, Outcome, RunKind, TestOutcome, kind_of
from optrove.report.results import took
from optrove.report.wording import duration, progress_text
from optrove.serializer.records import record_to_builtins
from optrove.serializer.text import read, write
from optrove.trove.database import storable
from optrove.web.page_request import PAGE_ROWS, Page, PageView, Parameter, not_listed, several
from optrove.web.wording import address, cut, finite, plain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optrove.model.records import AttemptedCase, TestResult
    from optrove.model.trove import RunRow
    from optrove.trove.reader import TroveReader
    from optrove.web import responses
    from optrove.web.page_request import PageRequest


EXECUTED: Final = ("sweep", "replay", CHECK_BOARD)
"""The kinds of runs that try cases."""
_MAX_EXAMPLES: Final = 5


def run_data(row: RunRow) -> responses.Run:
    """Return a run with its totals."""
    run, environment, attempts = row.run, row.run.environment, dict(row.attempts)
    return {
        "run_id": cut(run.id),
        "kind": kind_of(run),
        "source": cut(run.source),
        "model": cut(run.model),
        "board": cut(environment.board),
        "device": environment.device_kind.value,
        "ttnn_version": cut(environment.ttnn_version),
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "exit_code": run.exit_code,
        "state": row.progress.state.value,
        "state_text": progress_text(row.progress),
        "cases": row.cases,
        "calls": row.calls,
        "ops": row.ops,
        "planned": row.planned,
        "complete": row.complete,
        "tests": dict(sorted(row.tests)),
        "attempts": in_order(attempts),
        "tried": row.progress.done,
        "passed": row.pass_rate.passed,
        "ran": row.pass_rate.ran,
    }


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
        raise NotFound(f"no run here has the id {name[:80]!r}; all runs: /runs")
    return row


_KINDS: Final = (*(kind.value for kind in RunKind), CHECK_BOARD)
RUN_ID: Final = "the run's id, or its beginning"
_PARAMETERS: Final = (
    Parameter("kind", "runs of this kind", choices=_KINDS),
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
    """Make the page of a run's progress: the size of its plan, and the results so far."""
    data = run_data(named_run(request.reader, request.text("run") or ""))
    response: responses.Progress = {
        "run_id": data["run_id"],
        "kind": data["kind"],
        "state": data["state"],
        "state_text": data["state_text"],
        "started_at": data["started_at"],
        "finished_at": data["finished_at"],
        "planned": data["planned"],
        "tried": data["tried"],
        "passed": data["passed"],
        "ran": data["ran"],
        "attempts": data["attempts"],
    }
    return PageView(response)


_WIDTH: Final = 1000
_ROW: Final = 18
_GAP: Final = 4
_AXIS: Final = 20
_DEEPEST: Final = 8
_NARROWEST: Final = 1.5
_HUES: Final = 8
_TICKS: Final = 5


def timeline(calls: Sequence[responses.Call]) -> str | None:
    """Return the picture; None where there is nothing to draw."""
    if not calls:
        return None
    end = max(call["began_ns"] + call["took_ns"] for call in calls) or 1
    rows = min(max(call["depth"] for call in calls), _DEEPEST) + 1
    height = rows * (_ROW + _GAP) + _AXIS
    # The last color is that of all the others.
    hues = {op: min(place, _HUES - 1) for place, op in enumerate(_times(calls))}
    size = f'viewBox="0 0 {_WIDTH} {height}" xmlns="http://www.w3.org/2000/svg"'
    parts = [f'<svg class="timeline" role="img" {size}><title>Calls along time</title>']
    for call in calls:
        x = _WIDTH * call["began_ns"] / end
        width = max(_WIDTH * call["took_ns"] / end, _NARROWEST)
        y = min(call["depth"], _DEEPEST) * (_ROW + _GAP)
        about = f"{call['op_index']}: {plain(call['op'], 80)}, {duration(call['took_ns'])}"
        shown = "" if call["outcome"] == "returned" else f", {call['outcome']}"
        link = escape(address("/case", id=call["case_id"]))
        parts.append(
            f'<a href="{link}"><rect class="hue{hues[call["op"]]} {call["outcome"]}" x="{x:.2f}" '
            f'y="{y}" width="{width:.2f}" height="{_ROW}">'
            f"<title>{escape(about + shown)}</title></rect></a>"
        )
    for tick in range(_TICKS):
        share = tick / (_TICKS - 1)
        anchor = ("start", "middle", "end")[(tick > 0) + (tick == _TICKS - 1)]
        parts.append(
            f'<text class="tick" text-anchor="{anchor}" x="{_WIDTH * share:.0f}" '
            f'y="{height - 4}">{escape(duration(end * share))}</text>'
        )
    return "".join([*parts, "</svg>"])


def legend(calls: Sequence[responses.Call]) -> list[dict[str, Any]]:
    """Return the ops that have a color of their own, and how long their calls took."""
    ranked = list(_times(calls).items())[: _HUES - 1]
    return [{"hue": hue, "op": op, "took_ns": took} for hue, (op, took) in enumerate(ranked)]


def _times(calls: Sequence[responses.Call]) -> dict[str | None, int]:
    """Return how long the calls of each op took, the longest first."""
    took: Counter[str | None] = Counter()
    for call in calls:
        took[call["op"]] += call["took_ns"]
    return dict(sorted(took.items(), key=lambda item: (-item[1], str(item[0]))))


_RUN_PARAMETERS: Final = (
    Parameter("id", RUN_ID, required=True),
    Parameter(
        "tests", "tests with this outcome", choices=tuple(each.value for each in TestOutcome)
    ),
    Parameter(
        *("tests_after", "the last test of the previous page"),
        pattern="[0-9]{1,15}-[0-9]{1,15}",
        form="two integers joined by a minus sign, as in next_test",
    ),
    Parameter(
        "outcome", "attempts with this outcome", choices=tuple(each.value for each in Outcome)
    ),
    Parameter("attempts_after", "the last attempt of the previous page", number=True),
    Parameter("process", "timeline of this process", number=True),
    Parameter("first", "start the timeline at this call", number=True),
)
_WINDOW: Final = 200
_MAX_OPS: Final = 50
_MAX_PROCESSES: Final = 64
_MAX_METRICS: Final = 10


def run_page(request: PageRequest) -> PageView:
    """Make the page of a run."""
    row = named_run(request.reader, request.text("id") or "")
    stored = read(write(record_to_builtins(row.run)))
    tests, next_test = _tests(request, row)
    attempts, next_attempt = _attempts(request, row)
    calls = _calls(request, row)
    ops = request.reader.run_ops(row.key, _MAX_OPS)
    data: responses.RunPage = {
        **run_data(row),
        "previous": cut(request.reader.previous_run(row.run.id)),
        "accounting": stored.get("accounting"),
        "environment": _cut_all(stored["environment"]),
        "ops_listed": [{"op": cut(op), "cases": cases, "calls": count} for op, cases, count in ops],
        "tests_listed": tests,
        "next_test": next_test,
        "attempts_listed": attempts,
        "next_attempt": next_attempt,
        "timeline": calls,
    }
    drawn = {"timeline": timeline(calls["calls"]), "legend": legend(calls["calls"])}
    return PageView(data, drawn)


def _tests(request: PageRequest, run: RunRow) -> tuple[list[responses.Test], str | None]:
    recording, _, place = (request.text("tests_after") or "0-0").partition("-")
    begin = (int(recording), int(place))
    asked = request.text("tests")
    rows = request.reader.tests_after(run.key, begin, asked, PAGE_ROWS + 1)
    page = rows[:PAGE_ROWS]
    following = "{}-{}".format(*page[-1][0]) if len(rows) > PAGE_ROWS else None
    return [_test(result) for _, result in page], following


def _test(result: TestResult) -> responses.Test:
    return {
        "test": cut(result.test_id),
        "outcome": result.outcome.value,
        "mode": result.mode,
        "call_ns": result.call_ns,
        "metrics": [
            {"name": cut(each.name), "value": finite(each.value), "passed": each.passed}
            for each in result.metrics[:_MAX_METRICS]
        ],
        "error": cut(result.error),
    }


def _attempts(request: PageRequest, run: RunRow) -> tuple[list[responses.RunAttempt], int | None]:
    after = request.number("attempts_after") or 0
    asked = request.text("outcome")
    # Those that the budget interrupted are stored as not run.
    held = {Outcome.NOT_RUN.value if name == NOT_ATTEMPTED else name for name, _ in run.attempts}
    outcomes = sorted(held) if asked is None else (asked,)
    rows = request.reader.run_attempts_after(run.key, after, outcomes, PAGE_ROWS + 1)
    found = [_attempt(each) for _, each in rows[:PAGE_ROWS]]
    return found, rows[PAGE_ROWS - 1][0] if len(rows) > PAGE_ROWS else None


def _attempt(attempted: AttemptedCase) -> responses.RunAttempt:
    attempt = attempted.attempt
    return {
        "case_id": attempt.case_id,
        "op": cut(attempted.op),
        "outcome": attempt.outcome.value,
        "board": cut(attempt.board),
        "detail": cut(attempt.detail),
        "started_at": attempt.started_at,
        "duration_ns": attempt.duration_ns,
        "took_ns": took(attempt),
    }


def _calls(request: PageRequest, run: RunRow) -> responses.Timeline:
    """Return some calls of one process, in their order."""
    processes = request.reader.processes(run.key, _MAX_PROCESSES)
    asked, first = request.number("process"), request.number("first") or 0
    chosen = [row for row in processes if asked is None or row[1] == asked][:1]
    found: responses.Timeline = {
        "processes": [{"process": process, "calls": calls} for _, process, calls in processes],
        "process": chosen[0][1] if chosen else None,
        "first": first,
        "next": None,
        "calls": [],
        "problem": None,
    }
    if not chosen or not chosen[0][2]:
        return found
    recording, _, total = chosen[0]
    try:
        found["calls"], following = _window(request, recording, first)
    except BadData as error:
        return {**found, "problem": cut(str(error))}
    found["next"] = following if following < total else None
    return found


def _window(request: PageRequest, recording: int, first: int) -> tuple[list[responses.Call], int]:
    """Return some calls from ``first`` on, and the number of the call to continue with."""
    seen, following = request.reader.calls_from(recording, first, _WINDOW)
    ops = request.reader.ops_of({call.case_id for call in seen})
    found: list[responses.Call] = [
        {
            "op_index": call.op_index,
            "op": cut(ops.get(call.case_id)),
            "case_id": call.case_id,
            "depth": call.depth,
            "began_ns": call.entered_ns - seen[0].entered_ns,
            "took_ns": call.took_ns,
            "outcome": call.outcome.value,
        }
        for call in seen
    ]
    return found, following


def _cut_all(data: Any) -> Any:
    """Return data of an environment with its texts and lists bounded."""
    if isinstance(data, str):
        return cut(data)
    if isinstance(data, list):
        return [_cut_all(each) for each in data[:200]]
    if isinstance(data, dict):
        return {name: _cut_all(each) for name, each in data.items()}
    return data


RUNS: Final = Page(*("/runs", "runs", "All runs, the newest first", runs_page), _PARAMETERS)
PROGRESS: Final = Page(
    *("/progress", "progress", "Progress of a run", progress_page),
    (Parameter("run", RUN_ID, required=True),),
)
RUN: Final = Page(
    *("/run", "run", "One run: tests, attempts, calls, environment", run_page),
    _RUN_PARAMETERS,
)

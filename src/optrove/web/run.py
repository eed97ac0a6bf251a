"""The page of one run: tests, attempts, ops, timeline and environment."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.journal.calls import calls_within
from optrove.model.records import Outcome, TestOutcome
from optrove.model.trove import CallBlock
from optrove.trove import browsing_runs
from optrove.web import responses
from optrove.web.page_request import PAGE_ROWS, Page, View
from optrove.web.parameters import Parameter
from optrove.web.runs import RUN_ID, named_run, run_rows
from optrove.web.wording import address, cut, duration, finite, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.web import responses
from optrove.web.page_request import PageRequest

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
    # The last colour is that of all the others.
    hues = {op: min(place, _HUES - 1) for place, op in enumerate(_ranked(calls))}
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
    """Return the ops that have a colour of their own, and how long their calls took."""
    took: dict[str | None, int] = {}
    for call in calls:
        took[call["op"]] = took.get(call["op"], 0) + call["took_ns"]
    names = _ranked(calls)[: _HUES - 1]
    return [{"hue": hue, "op": op, "took_ns": took[op]} for hue, op in enumerate(names)]


def _ranked(calls: Sequence[responses.Call]) -> list[str | None]:
    """Return the ops, those first that took longest."""
    took: dict[str | None, int] = {}
    for call in calls:
        took[call["op"]] = took.get(call["op"], 0) + call["took_ns"]
    return sorted(took, key=lambda op: (-took[op], str(op)))


PARAMETERS: Final = (
    Parameter("id", RUN_ID, required=True),
    Parameter("tests", "tests that ended so", choices=tuple(each.value for each in TestOutcome)),
    Parameter(
        *("tests_after", "the last test of the page before"),
        pattern="[0-9]{1,15}-[0-9]{1,15}",
        form="two whole numbers with a minus sign between them, as next_test has them",
    ),
    Parameter("outcome", "attempts that ended so", choices=tuple(each.value for each in Outcome)),
    Parameter("attempts_after", "the last attempt of the page before", number=True),
    Parameter("process", "timeline of this process", number=True),
    Parameter("first", "timeline from this call on", number=True),
)
_WINDOW: Final = 200
_NO_MORE: Final = 2**62
_MOST_OPS: Final = 50
_MOST_PROCESSES: Final = 64
_MOST_METRICS: Final = 10


def run_page(request: PageRequest) -> View:
    """Make the page of a run."""
    row = named_run(request.source, request.text("id") or "")
    key, (run,) = row[0], run_rows(request, [row])
    content, environment = json.loads(row[10]), json.loads(row[11])
    tests, next_test = _tests(request, key)
    attempts, next_attempt = _attempts(request, key)
    calls = _calls(request, key)
    ops = browsing_runs.ops_of_run(request.source, key, _MOST_OPS)
    data: responses.RunPage = {
        **run,
        "previous": cut(browsing_runs.previous(request.source, key)),
        "accounting": content.get("accounting"),
        "environment": _cut_all(environment),
        "ops_listed": [{"op": cut(op), "cases": cases, "calls": count} for op, cases, count in ops],
        "tests_listed": tests,
        "next_test": next_test,
        "attempts_listed": attempts,
        "next_attempt": next_attempt,
        "timeline": calls,
    }
    drawn = {"timeline": timeline(calls["calls"]), "legend": legend(calls["calls"])}
    return View(data, drawn)


def _tests(request: PageRequest, key: int) -> tuple[list[responses.Test], str | None]:
    after = request.text("tests_after")
    recording, _, place = (after or "").partition("-")
    begin = None if after is None else (int(recording), int(place))
    asked = request.text("tests")
    rows = browsing_runs.tests_of_run(request.source, key, begin, asked, PAGE_ROWS + 1)
    page = rows[:PAGE_ROWS]
    following = f"{page[-1][0]}-{page[-1][1]}" if len(rows) > PAGE_ROWS else None
    return [_test(*row[2:]) for row in page], following


def _test(test_id: str, outcome: str, content: str) -> responses.Test:
    stored = json.loads(content)
    durations = [stored.get(name) for name in ("setup_ns", "call_ns", "teardown_ns")]
    known = [each for each in durations if isinstance(each, int)]
    metrics = stored.get("metrics") or []
    return {
        "test": cut(test_id),
        "outcome": outcome,
        "mode": stored.get("mode"),
        "total_ns": sum(known) if known else None,
        "metrics": [_metric(each) for each in metrics[:_MOST_METRICS]],
        "error": cut(stored.get("error")),
    }


def _metric(stored: dict[str, Any]) -> responses.Metric:
    value = stored.get("value")
    return {
        "name": cut(str(stored.get("name"))),
        "value": finite(value) if isinstance(value, int | float) else None,
        "passed": stored.get("passed"),
    }


def _attempts(request: PageRequest, key: int) -> tuple[list[responses.RunAttempt], int | None]:
    after = request.number("attempts_after") or 0
    asked = request.text("outcome")
    outcomes = tuple(request.index.tallies.outcomes(key)) if asked is None else (asked,)
    rows = browsing_runs.attempts_of_run(request.source, key, after, outcomes, PAGE_ROWS + 1)
    found: list[responses.RunAttempt] = [
        {
            "case_id": case_id,
            "op": cut(op),
            "outcome": outcome,
            "board": cut(board),
            "detail": cut(detail),
            "started_at": started_at,
            "duration_ns": duration_ns,
        }
        for _, case_id, op, outcome, board, detail, started_at, duration_ns in rows[:PAGE_ROWS]
    ]
    return found, rows[PAGE_ROWS - 1][0] if len(rows) > PAGE_ROWS else None


def _calls(request: PageRequest, key: int) -> responses.Timeline:
    """Return some calls of one process, in their order."""
    processes = browsing_runs.recordings_of_run(request.source, key, _MOST_PROCESSES)
    asked, first = request.number("process"), request.number("first") or 0
    chosen = [row for row in processes if asked is None or row[1] == asked][:1]
    found: responses.Timeline = {
        "processes": [{"process": row[1], "calls": row[3]} for row in processes],
        "process": chosen[0][1] if chosen else None,
        "first": first,
        "next": None,
        "calls": [],
        "problem": None,
    }
    if not chosen or not chosen[0][3]:
        return found
    recording, _, _, total = chosen[0]
    try:
        found["calls"], following = _window(request, recording, first)
    except BadData as error:
        return {**found, "problem": cut(str(error))}
    found["next"] = following if following < total else None
    return found


def _window(request: PageRequest, recording: int, first: int) -> tuple[list[responses.Call], int]:
    """Return some calls from ``first`` on, and the number of the call to continue with."""
    block = browsing_runs.block_at(request.source, recording, first)
    dictionary = browsing_runs.dictionary_of(request.source, recording)
    if block is None or dictionary is None:
        return [], _NO_MORE
    seen = calls_within(dictionary, CallBlock(*block), first, _WINDOW)
    ops = browsing_runs.op_names(request.source, {call.case_id for call in seen})
    # Calls that were filtered are not shown; a block may have no others.
    following = seen[-1].op_index + 1 if len(seen) == _WINDOW else block[0] + block[1]
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


RUN: Final = Page(
    *("/run", "run", "One run: tests, attempts, calls, environment", run_page),
    PARAMETERS,
    early=True,
)

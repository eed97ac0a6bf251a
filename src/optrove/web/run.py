"""The page of one run: tests, attempts, ops, a timeline of its calls, and its environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.call_window import calls_within
from optrove.errors import BadData
from optrove.model.records import Outcome, TestOutcome
from optrove.model.trove import CallBlock
from optrove.store import browsing_runs
from optrove.web.looking import PAGE_ROWS, Page, View
from optrove.web.parameters import Parameter
from optrove.web.run_rows import named_run, run_rows
from optrove.web.runs import RUN_ID
from optrove.web.timeline import legend, timeline
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from optrove.web.looking import Look

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


def run_page(look: Look) -> View:
    """Make the page of a run."""
    row = named_run(look.source, look.text("id") or "")
    key, (told,) = row[0], run_rows(look, [row])
    content, environment = json.loads(row[10]), json.loads(row[11])
    tests, next_test = _tests(look, key)
    attempts, next_attempt = _attempts(look, key)
    calls = _calls(look, key)
    ops = browsing_runs.ops_of_run(look.source, key, _MOST_OPS)
    data = {
        **told,
        "previous": cut(browsing_runs.previous(look.source, key)),
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


def _tests(look: Look, key: int) -> tuple[list[dict[str, Any]], str | None]:
    after = look.text("tests_after")
    recording, _, place = (after or "").partition("-")
    begin = None if after is None else (int(recording), int(place))
    asked = look.text("tests")
    rows = browsing_runs.tests_of_run(look.source, key, begin, asked, PAGE_ROWS + 1)
    page = rows[:PAGE_ROWS]
    following = f"{page[-1][0]}-{page[-1][1]}" if len(rows) > PAGE_ROWS else None
    return [_test(*row[2:]) for row in page], following


def _test(test_id: str, outcome: str, content: str) -> dict[str, Any]:
    told = json.loads(content)
    durations = [told.get(name) for name in ("setup_ns", "call_ns", "teardown_ns")]
    known = [each for each in durations if isinstance(each, int)]
    metrics = told.get("metrics") or []
    return {
        "test": cut(test_id),
        "outcome": outcome,
        "mode": told.get("mode"),
        "total_ns": sum(known) if known else None,
        "metrics": [_metric(each) for each in metrics[:_MOST_METRICS]],
        "error": cut(told.get("error")),
    }


def _metric(told: dict[str, Any]) -> dict[str, Any]:
    value = told.get("value")
    return {
        "name": cut(str(told.get("name"))),
        "value": finite(value) if isinstance(value, int | float) else None,
        "passed": told.get("passed"),
    }


def _attempts(look: Look, key: int) -> tuple[list[dict[str, Any]], int | None]:
    after = look.number("attempts_after") or 0
    asked = look.text("outcome")
    outcomes = tuple(look.index.tallies.outcomes(key)) if asked is None else (asked,)
    rows = browsing_runs.attempts_of_run(look.source, key, after, outcomes, PAGE_ROWS + 1)
    found = [
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


def _calls(look: Look, key: int) -> dict[str, Any]:
    """Return a stretch of the calls of one process, in their order."""
    processes = browsing_runs.recordings_of_run(look.source, key, _MOST_PROCESSES)
    asked, first = look.number("process"), look.number("first") or 0
    chosen = [row for row in processes if asked is None or row[1] == asked][:1]
    found: dict[str, Any] = {
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
        found["calls"], following = _window(look, recording, first)
    except BadData as error:
        return {**found, "problem": cut(str(error))}
    found["next"] = following if following < total else None
    return found


def _window(look: Look, recording: int, first: int) -> tuple[list[dict[str, Any]], int]:
    """Return some calls from one on, and the number of the one to go on with."""
    block = browsing_runs.block_at(look.source, recording, first)
    dictionary = browsing_runs.dictionary_of(look.source, recording)
    if block is None or dictionary is None:
        return [], _NO_MORE
    seen = calls_within(dictionary, CallBlock(*block), first, _WINDOW)
    ops = browsing_runs.op_names(look.source, {call.case_id for call in seen})
    # Calls that were filtered are not shown; a block may have no others.
    following = seen[-1].op_index + 1 if len(seen) == _WINDOW else block[0] + block[1]
    found = [
        {
            "op_index": call.op_index,
            "op": cut(ops.get(call.case_id)),
            "case_id": call.case_id,
            "depth": call.depth,
            "began_ns": call.entered_ns - seen[0].entered_ns,
            "took_ns": call.took_ns,
            "outcome": call.outcome,
        }
        for call in seen
    ]
    return found, following


def _cut_all(told: Any) -> Any:
    """Return data of an environment with its texts and lists bounded."""
    if isinstance(told, str):
        return cut(told)
    if isinstance(told, list):
        return [_cut_all(each) for each in told[:200]]
    if isinstance(told, dict):
        return {name: _cut_all(each) for name, each in told.items()}
    return told


RUN: Final = Page(
    *("/run", "run", "One run: tests, attempts, calls, environment", run_page),
    PARAMETERS,
    early=True,
)

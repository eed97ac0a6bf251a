"""The page of one case: its arguments, who uses it, its results, and how to run it."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, NotFound
from optrove.model.case import obstacles
from optrove.model.values import TensorSpec, walk
from optrove.report.describe import in_reading_order, value_text
from optrove.report.draw_text import folded
from optrove.report.shards import shard_svg
from optrove.serializer.described import case_of
from optrove.serializer.text import read
from optrove.trove import browsing
from optrove.web.page_request import PAGE_ROWS, Page, View, several
from optrove.web.parameters import Parameter
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.case import Case
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

PARAMETERS: Final = (
    Parameter(
        *("id", "the case's id, or its beginning"),
        required=True,
        pattern="[0-9a-f]{6,64}",
        form="6 to 64 digits 0-9 and a-f",
    ),
    Parameter("before", "the last attempt of the page before", number=True),
)
_WHOLE: Final = 64
_WIDTH: Final = 88
_SHORT: Final = 12
_SHOWN: Final = 5
_LONGEST: Final = 400_000
_LONGEST_DRAWN: Final = 6_000
_MOST_PICTURES: Final = 8


def case_page(request: PageRequest) -> View:
    """Make the page of a case."""
    row = _row(request, request.text("id") or "")
    key, case_id, semantic_id, family_id, op, replayable, calls, outermost, content = row
    executions = browsing.executions_of(request.source, key, PAGE_ROWS + 1)
    attempts = browsing.attempts_of(request.source, key, request.number("before"), PAGE_ROWS + 1)
    data: responses.CasePage = {
        "case_id": case_id,
        "semantic_id": semantic_id,
        "family_id": family_id,
        "op": cut(op),
        "replayable": bool(replayable),
        "calls": int(outermost),
        "nested_calls": int(calls) - int(outermost),
        "arguments": read(content)["arguments"] if len(content) <= _LONGEST else None,
        "commands": commands(case_id, request.store),
        "executions": [_execution(each) for each in executions[:PAGE_ROWS]],
        "more_executions": len(executions) > PAGE_ROWS,
        "attempts": _attempts(request, attempts[:PAGE_ROWS]),
        "next": attempts[PAGE_ROWS - 1][0] if len(attempts) > PAGE_ROWS else None,
    }
    return View(data, _drawn(content))


def commands(case_id: str, store: str | None) -> dict[str, str]:
    """Return the commands that run, test and show a case."""
    about = "" if store is None else f" --store {shlex.quote(store)}"
    name = case_id[:_SHORT]
    return {
        "replay": f"optrove replay {name}{about}",
        "testgen": f"optrove testgen {name} -o tests/generated{about}",
        "show": f"optrove show {name}{about}",
    }


def _row(request: PageRequest, name: str) -> tuple[Any, ...]:
    if len(name) < _WHOLE:
        found = browsing.cases_beginning(request.source, name, _SHOWN)
        if len(found) > 1:
            raise several("case", name, found)
        name = found[0] if found else name
    row = browsing.case_named(request.source, name)
    if row is None:
        raise NotFound(f"no case here has the id {name!r}; find it among the cases of its op: /ops")
    return row


def _execution(row: tuple[Any, ...]) -> responses.Execution:
    run_id, source, model, board, started_at, test_id, module, mode, outcome, *rest = row
    outermost, calls, total_ns, shortest_ns, longest_ns, raised, ending = rest
    return {
        "run_id": cut(run_id),
        "source": cut(source),
        "model": cut(model),
        "board": cut(board),
        "started_at": started_at,
        "test": cut(test_id),
        "module": cut(module),
        "mode": cut(mode),
        "outcome": outcome,
        "outermost": bool(outermost),
        "calls": calls,
        "total_ns": total_ns,
        "shortest_ns": shortest_ns,
        "longest_ns": longest_ns,
        "error": cut(str(json.loads(ending))) if raised else None,
    }


def _attempts(request: PageRequest, rows: list[tuple[Any, ...]]) -> list[responses.Attempt]:
    measured = browsing.measured(request.source, (row[0] for row in rows))
    return [_attempt(row, measured.get(row[0], ())) for row in rows]


def _attempt(row: tuple[Any, ...], measured: Iterable[tuple[Any, ...]]) -> responses.Attempt:
    _, run_id, outcome, device, board, seed, detail, started_at, duration_ns, replayed = row
    return {
        "run_id": cut(run_id),
        "outcome": outcome,
        "device": device,
        "board": cut(board),
        "seed": cut(seed),
        "detail": cut(detail),
        "started_at": started_at,
        "duration_ns": duration_ns,
        "replayed_case_id": replayed,
        "measurements": [_measurement(each) for each in measured],
    }


def _measurement(row: tuple[Any, ...]) -> responses.Measurement:
    name, value, threshold, passed, output = row
    return {
        "name": cut(name),
        "value": finite(value),
        "threshold": finite(threshold),
        "passed": None if passed is None else bool(passed),
        "output": output,
    }


def _drawn(content: str) -> dict[str, Any]:
    """Return the arguments as people read them, with a picture of each that is sharded."""
    if len(content) > _LONGEST:
        return {"arguments": [], "problem": f"too large to be drawn: {len(content):,} letters"}
    try:
        case = case_of(content)
        found = {
            "arguments": _arguments(case),
            "obstacles": [(each.path, each.type, each.reason) for each in obstacles(case)],
            "problem": None,
        }
    except (BadData, RecursionError) as error:
        return {"arguments": [], "problem": f"it cannot be read: {error}"}
    return found


def _arguments(case: Case) -> list[dict[str, Any]]:
    """Return the arguments of a case, those with tensors first."""
    found = []
    pictures = 0
    for name, value in in_reading_order(case):
        text = value_text(value)
        own = []
        tensors = [part for _, part in walk(value, "") if isinstance(part, TensorSpec)]
        for part in tensors:
            picture = shard_svg(part)
            if picture is not None and pictures < _MOST_PICTURES:
                own.append(picture)
                pictures += 1
        shown = text if len(text) <= _LONGEST_DRAWN else f"{text[:_LONGEST_DRAWN]}..."
        lines = folded("", shown, _WIDTH)
        row = {"name": name, "text": "\n".join(lines), "pictures": own, "plain": not tensors}
        found.append(row)
    return sorted(found, key=lambda row: bool(row["plain"]))


CASE: Final = Page(
    *("/case", "case", "One case: arguments, uses, attempts", case_page), PARAMETERS, early=True
)

"""The page of one case: its arguments, who uses it, its results, and how to run it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, NotFound
from optrove.model.case import obstacles
from optrove.model.values import TensorSpec, walk
from optrove.report.describe import argument_texts, in_reading_order
from optrove.report.draw_text import folded
from optrove.report.results import took
from optrove.report.shards import shard_svg
from optrove.report.wording import SHORT_ID
from optrove.serializer.described import case_of
from optrove.serializer.text import read
from optrove.web.page_request import PAGE_ROWS, Page, PageView, Parameter, several
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from optrove.model.case import Case
    from optrove.model.records import Attempt
    from optrove.model.trove import CaseRow, ExecutionRow
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

PARAMETERS: Final = (
    Parameter(
        *("id", "the id of the case, or its beginning"),
        required=True,
        pattern="[0-9a-f]{6,64}",
        form="6 to 64 digits 0-9 and a-f",
    ),
    Parameter("before", "the last attempt of the previous page", number=True),
)
_WIDTH: Final = 88
_MAX_EXAMPLES: Final = 5
_MAX_CONTENT_CHARS: Final = 400_000
_MAX_VALUE_CHARS: Final = 6_000
_MAX_PICTURES: Final = 8


def case_page(request: PageRequest) -> PageView:
    """Make the page of a case."""
    row = _row(request, request.text("id") or "")
    case_id, content = row.case_id, row.content
    executions = list(request.reader.executions([case_id], limit=PAGE_ROWS + 1))
    attempts = request.reader.case_attempts(case_id, request.number("before"), PAGE_ROWS + 1)
    data: responses.CasePage = {
        "case_id": case_id,
        "semantic_id": row.semantic_id,
        "family_id": row.family_id,
        "op": cut(row.op),
        "replayable": row.replayable,
        "calls": row.outermost_calls,
        "nested_calls": row.calls - row.outermost_calls,
        "arguments": read(content)["arguments"] if len(content) <= _MAX_CONTENT_CHARS else None,
        "commands": commands(case_id, request.store),
        "executions": [_execution(each) for each in executions[:PAGE_ROWS]],
        "more_executions": len(executions) > PAGE_ROWS,
        "attempts": [_attempt(each) for _, each in attempts[:PAGE_ROWS]],
        "next": attempts[PAGE_ROWS - 1][0] if len(attempts) > PAGE_ROWS else None,
    }
    return PageView(data, _drawn(content))


def commands(case_id: str, store: str | None) -> dict[str, str]:
    """Return the commands that run, test and show a case."""
    about = "" if store is None else f" --store {shlex.quote(store)}"
    name = case_id[:SHORT_ID]
    return {
        "replay": f"optrove replay {name}{about}",
        "testgen": f"optrove testgen {name} -o tests/generated{about}",
        "show": f"optrove show {name}{about}",
    }


def _row(request: PageRequest, name: str) -> CaseRow:
    found = request.reader.find_case(name)
    if len(found) > 1:
        raise several("case", name, found[:_MAX_EXAMPLES])
    for row in request.reader.cases_by_id(found):
        return row
    raise NotFound(f"no case here has the id {name!r}; find it among the cases of its op: /ops")


def _execution(row: ExecutionRow) -> responses.Execution:
    return {
        "run_id": cut(row.run_id),
        "source": cut(row.source),
        "model": cut(row.model),
        "board": cut(row.board),
        "started_at": row.started_at or "",
        "test": cut(row.test_id),
        "module": cut(row.module),
        "mode": cut(row.mode),
        "outcome": row.outcome.value,
        "outermost": row.outermost,
        "calls": row.count,
        "total_ns": row.total_ns,
        "shortest_ns": row.shortest_ns,
        "longest_ns": row.longest_ns,
        "error": cut(row.error),
    }


def _attempt(attempt: Attempt) -> responses.Attempt:
    return {
        "run_id": cut(attempt.run_id),
        "outcome": attempt.outcome.value,
        "device": attempt.device_kind.value,
        "board": cut(attempt.board),
        "seed": cut(str(attempt.seed)),
        "detail": cut(attempt.detail),
        "started_at": attempt.started_at,
        "duration_ns": attempt.duration_ns,
        "took_ns": took(attempt),
        "replayed_case_id": attempt.replayed_case_id,
        "measurements": [
            {
                "name": cut(each.name),
                "value": finite(each.value),
                "threshold": finite(each.threshold),
                "passed": each.passed,
                "output": each.output,
            }
            for each in attempt.measurements
        ],
    }


def _drawn(content: str) -> dict[str, Any]:
    """Return the arguments as people read them, with a picture of each that is sharded."""
    if len(content) > _MAX_CONTENT_CHARS:
        return {"arguments": [], "problem": f"too large to be drawn: {len(content):,} characters"}
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
    texts = dict(argument_texts(case))
    for name, value in in_reading_order(case):
        text = texts[name]
        own = []
        tensors = [part for _, part in walk(value, "") if isinstance(part, TensorSpec)]
        for part in tensors:
            picture = shard_svg(part)
            if picture is not None and pictures < _MAX_PICTURES:
                own.append(picture)
                pictures += 1
        shown = text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}..."
        lines = folded("", shown, _WIDTH)
        row = {"name": name, "text": "\n".join(lines), "pictures": own, "plain": not tensors}
        found.append(row)
    return sorted(found, key=lambda row: bool(row["plain"]))


CASE: Final = Page(*("/case", "case", "One case: arguments, uses, attempts", case_page), PARAMETERS)

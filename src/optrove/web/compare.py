"""The page that compares two runs: broken, fixed, slower and moved cases, and their calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.report.releases import ReleaseSide, RunChanges, change_of, have_one_clock
from optrove.report.results import took
from optrove.web.page_request import AFTER_CASE, PAGE_ROWS, Page, PageView, Parameter
from optrove.web.runs import named_run, run_data
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.model.records import AttemptedCase
    from optrove.model.trove import RunRow
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

KINDS: Final = (
    *("broken", "fixed", "moved", "slower", "not_run", "unlike"),
    *("only_a", "only_b", "called_more", "called_less", "same"),
)
PARAMETERS: Final = (
    Parameter("a", "the earlier run: its id, or the beginning", required=True),
    Parameter("b", "the later run", required=True),
    Parameter("kind", "list the cases with this kind of change", choices=KINDS),
    AFTER_CASE,
)
_MAX_DETAIL_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class _Compared:
    """How many cases changed in which way, and some of those that changed in one."""

    counts: Mapping[str, int]
    kind: str
    keys: list[int]
    sides: Callable[[int], tuple[responses.Side | None, responses.Side | None, str | None]]
    """Returns both sides of one of these cases, and the change as text."""


def compare_page(request: PageRequest) -> PageView:
    """Make the page of two runs: of results if both have any, else of calls."""
    a, b = (named_run(request.reader, request.text(name) or "") for name in ("a", "b"))
    compare = _results if a.attempts and b.attempts else _calls
    after = request.case_after()
    found = compare(request, a, b, -1 if after is None else after.key)
    page = found.keys[:PAGE_ROWS]
    names = request.reader.case_names(page)
    cases: list[responses.ComparedCase] = []
    for key in page:
        (case_id, op), (one, other, change) = names[key], found.sides(key)
        cases.append({"case_id": case_id, "op": cut(op), "a": one, "b": other, "change": change})
    response: responses.ComparePage = {
        "a": run_data(a),
        "b": run_data(b),
        "counts": {name: found.counts.get(name, 0) for name in KINDS},
        "kind": found.kind,
        "cases": cases,
        "next": cases[-1]["case_id"] if len(found.keys) > PAGE_ROWS and cases else None,
    }
    # For broken cases, the message of B says it all.
    return PageView(response, {"changes": found.kind in ("moved", "slower")})


def _first(counts: Mapping[str, int]) -> str:
    return next((name for name in KINDS if counts.get(name)), KINDS[0])


def _calls(request: PageRequest, a: RunRow, b: RunRow, after: int) -> _Compared:
    """Compare how often two runs call cases."""
    counts = request.counts.get(
        ("calls", a.key, b.key), lambda: request.reader.call_counts(a.key, b.key)
    )
    kind = request.text("kind") or _first(counts)
    rows = request.reader.call_changes(a.key, b.key, kind, after, PAGE_ROWS + 1)
    calls = {key: (_called(before), _called(now)) for key, before, now in rows}
    return _Compared(counts, kind, list(calls), lambda key: (*calls[key], None))


def _called(calls: int | None) -> responses.Side | None:
    if calls is None:
        return None
    return {
        "outcome": None,
        "device": None,
        "duration_ns": None,
        "pcc": None,
        "calls": calls,
        "detail": None,
    }


def _results(request: PageRequest, a: RunRow, b: RunRow, after: int) -> _Compared:
    """Compare the results of two runs."""
    timed = have_one_clock(*(ReleaseSide.of(row.run) for row in (a, b)))
    keys = (a.key, b.key)
    counted = request.counts.get(
        ("results", *keys), lambda: RunChanges.counted(request.reader, *keys)
    )
    changes = RunChanges(request.reader, *keys, counted, timed=timed)
    counts = changes.counts()
    kind = request.text("kind") or _first(counts)
    cases = changes.cases(kind, after, PAGE_ROWS + 1)
    before, now = (request.reader.results(key, cases) for key in keys)

    def sides(
        key: int,
    ) -> tuple[responses.Side | None, responses.Side | None, str | None]:
        one, other = before.get(key), now.get(key)
        change = one and other and change_of(one, other, timed=timed)
        return _side(one), _side(other), cut(change.text) if change else None

    return _Compared(counts, kind, cases, sides)


def _side(attempted: AttemptedCase | None) -> responses.Side | None:
    if attempted is None:
        return None
    attempt = attempted.attempt
    pcc = (each.value for each in attempt.measurements if each.name == "pcc")
    return {
        "outcome": attempt.outcome.value,
        "device": attempt.device_kind.value,
        "duration_ns": took(attempt),
        "pcc": finite(min(pcc, default=None)),
        "calls": 0,
        "detail": cut(attempt.detail, _MAX_DETAIL_CHARS),
    }


COMPARE: Final = Page(
    *("/compare", "compare", "Two runs: broken, fixed, slower, moved", compare_page), PARAMETERS
)

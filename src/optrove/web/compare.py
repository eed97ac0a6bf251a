"""The page that compares two runs: what broke, was fixed, got slower, moved, or is called more."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.report.releases import Side, change_of, have_one_clock, judged_of
from optrove.report.results import TIME
from optrove.trove import browsing, browsing_runs
from optrove.web import responses
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import AFTER_CASE, Parameter
from optrove.web.runs import named_run, run_rows
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Mapping, Sequence
    from threading import Event

    from optrove.trove.browsing_runs import JudgedRow
    from optrove.trove.database import Connection
    from optrove.web import responses
    from optrove.web.catalog import Index
from optrove.web.page_request import PageRequest

KINDS: Final = (
    *("broken", "fixed", "moved", "slower", "not_run", "unlike"),
    *("only_a", "only_b", "called_more", "called_less", "same"),
)
PARAMETERS: Final = (
    Parameter("a", "the earlier run, by its id or its beginning", required=True),
    Parameter("b", "the later run", required=True),
    Parameter("kind", "list the cases that changed so", choices=KINDS),
    AFTER_CASE,
)
_LONGEST: Final = 500
_PREPARED: Final = 500_000
"""How many attempts are compared before the first page is asked for, at most."""
_PREPARED_RUNS: Final = 6


@dataclass(frozen=True, slots=True)
class _Compared:
    """How many cases changed in which way, and some of those that changed in one."""

    counts: Mapping[str, int]
    kind: str
    keys: list[int]
    sides: Callable[[int], tuple[responses.Side | None, responses.Side | None, str | None]]
    """Return both sides of one of these cases, and what changed."""


def compare_page(request: PageRequest) -> View:
    """Make the page of two runs: of results if both have any, else of calls."""
    rows = [named_run(request.source, request.text(name) or "") for name in ("a", "b")]
    a, b = run_rows(request, rows)
    compare = _attempts if a["tried"] and b["tried"] else _calls
    found = compare(request, rows, _key_after(request))
    page = found.keys[:PAGE_ROWS]
    listed = browsing.listed_cases(request.source, page)
    cases = [_case(request, listed[key], *found.sides(key)) for key in page if key in listed]
    response: responses.ComparePage = {
        "a": a,
        "b": b,
        "counts": {name: found.counts.get(name, 0) for name in KINDS},
        "kind": found.kind,
        "cases": cases,
        "next": cases[-1]["case_id"] if len(found.keys) > PAGE_ROWS and cases else None,
    }
    # For broken cases, the message of B says it all.
    return View(response, {"changes": found.kind in ("moved", "slower")})


def prepare_comparisons(source: Connection, index: Index, leaving: Event) -> None:
    """Compare the last runs with those before them, so that their pages do not wait for it."""
    latest = sorted(index.runs.items(), key=lambda each: each[1].started_at, reverse=True)
    tried = (key for key, _ in latest if index.tallies.outcomes(key))
    keys = {fact.run_id: key for key, fact in index.runs.items()}
    rest = _PREPARED
    for key in islice(tried, _PREPARED_RUNS):
        rest -= _attempts_of(index, key)
        if rest < 0 or leaving.is_set():
            break
        index.comparisons.read(source, (key, _attempts_of(index, key)))
        before = keys.get(browsing_runs.previous(source, key) or "")
        if before is not None and _attempts_of(index, before) <= rest:
            rows = (
                browsing_runs.run_named(source, index.runs[each].run_id) for each in (before, key)
            )
            _kinds(source, index, [row for row in rows if row is not None])


def _attempts_of(index: Index, run_key: int) -> int:
    return sum(index.tallies.outcomes(run_key).values())


def _case(
    request: PageRequest,
    row: tuple[Any, ...],
    a: responses.Side | None,
    b: responses.Side | None,
    change: str | None,
) -> responses.ComparedCase:
    op = request.index.op_of.get(row[0])
    name = cut(op.name) if op else None
    return {"case_id": row[1], "op": name, "a": a, "b": b, "change": change}


def _key_after(request: PageRequest) -> int:
    after = request.text("after")
    if after is None:
        return -1
    row = browsing.case_named(request.source, after)
    if row is None:
        raise not_listed("case", after)
    return int(row[0])


def _first(counts: Mapping[str, int]) -> str:
    return next((name for name in KINDS if counts.get(name)), KINDS[0])


def _calls(request: PageRequest, runs: Sequence[tuple[Any, ...]], after: int) -> _Compared:
    """Compare how often two runs call cases."""
    keys = runs[0][0], runs[1][0]
    counts = request.index.comparisons.counted(request.source, *keys)
    kind = request.text("kind") or _first(counts)
    rows = browsing_runs.call_changes(request.source, keys, kind, after, PAGE_ROWS + 1)
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


def _attempts(request: PageRequest, runs: Sequence[tuple[Any, ...]], after: int) -> _Compared:
    """Compare the results of two runs."""
    timed, kinds = _kinds(request.source, request.index, runs)
    counts = {kind: len(keys) for kind, keys in kinds.items()}
    kind = request.text("kind") or _first(counts)
    every = kinds.get(kind, ())
    begin = bisect_right(every, after)
    page = list(every[begin : begin + PAGE_ROWS + 1])
    a, b = (
        {row.case_key: row for row in browsing_runs.judged_cases(request.source, key, TIME, page)}
        for key in (row[0] for row in runs)
    )

    def sides(
        key: int,
    ) -> tuple[responses.Side | None, responses.Side | None, str | None]:
        before, now = (
            None if each is None else judged_of(each) for each in (a.get(key), b.get(key))
        )
        changed = before and now and change_of(before, now, timed=timed)[1]
        change = cut(changed) if changed else None
        return _side(a.get(key)), _side(b.get(key)), change

    return _Compared(counts, kind, page, sides)


def _kinds(
    source: Connection, index: Index, runs: Sequence[tuple[Any, ...]]
) -> tuple[bool, Mapping[str, array[int]]]:
    """Return whether it matters how long cases took, and the cases by how they have changed."""
    timed = have_one_clock(*(Side("", {}, board=row[5], device=row[6]) for row in runs))
    a, b = ((row[0], _attempts_of(index, row[0])) for row in runs)
    return timed, index.comparisons.compared(source, a, b, timed=timed)


def _side(row: JudgedRow | None) -> responses.Side | None:
    if row is None:
        return None
    judged = judged_of(row)
    pcc = [value for _, value in judged.pcc]
    return {
        "outcome": row.outcome,
        "device": row.device,
        "duration_ns": judged.took_ns,
        "pcc": finite(min(pcc, default=None)),
        "calls": 0,
        "detail": cut(row.detail, _LONGEST),
    }


COMPARE: Final = Page(
    *("/compare", "compare", "Two runs: broken, fixed, slower, moved", compare_page), PARAMETERS
)

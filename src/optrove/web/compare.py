"""The page that compares two runs: what broke, was fixed, got slower, moved, or is called more."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.report.releases import Side, change_of, have_one_clock, judged_of
from optrove.report.results import TIME
from optrove.trove import browsing, browsing_runs
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
    from optrove.web.catalog import Index
    from optrove.web.page_request import Look

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
    told: Callable[[int], dict[str, Any]]
    """Returns what to tell of one of these cases: both sides, and what has changed."""


def compare_page(look: Look) -> View:
    """Make the page of two runs: of what came of cases if both have tried some, else of calls."""
    rows = [named_run(look.source, look.text(name) or "") for name in ("a", "b")]
    a, b = run_rows(look, rows)
    compare = _attempts if a["tried"] and b["tried"] else _calls
    found = compare(look, rows, _key_after(look))
    page = found.keys[:PAGE_ROWS]
    listed = browsing.listed_cases(look.source, page)
    cases = [_case(look, listed[key], found.told(key)) for key in page if key in listed]
    return View(
        {
            "a": a,
            "b": b,
            "counts": {name: found.counts.get(name, 0) for name in KINDS},
            "kind": found.kind,
            "cases": cases,
            "next": cases[-1]["case_id"] if len(found.keys) > PAGE_ROWS and cases else None,
        },
        # Of what broke, the words of B say it all.
        {"changes": found.kind in ("moved", "slower")},
    )


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


def _case(look: Look, row: tuple[Any, ...], told: dict[str, Any]) -> dict[str, Any]:
    op = look.index.op_of.get(row[0])
    return {"case_id": row[1], "op": cut(op.name) if op else None, **told}


def _key_after(look: Look) -> int:
    after = look.text("after")
    if after is None:
        return -1
    row = browsing.case_named(look.source, after)
    if row is None:
        raise not_listed("case", after)
    return int(row[0])


def _first(counts: Mapping[str, int]) -> str:
    return next((name for name in KINDS if counts.get(name)), KINDS[0])


def _calls(look: Look, runs: Sequence[tuple[Any, ...]], after: int) -> _Compared:
    """Compare how often two runs call cases."""
    keys = runs[0][0], runs[1][0]
    counts = look.index.comparisons.counted(look.source, *keys)
    kind = look.text("kind") or _first(counts)
    rows = browsing_runs.call_changes(look.source, keys, kind, after, PAGE_ROWS + 1)
    calls = {key: (_called(before), _called(now)) for key, before, now in rows}

    def told(key: int) -> dict[str, Any]:
        return {"a": calls[key][0], "b": calls[key][1], "change": None}

    return _Compared(counts, kind, list(calls), told)


def _called(calls: int | None) -> dict[str, Any] | None:
    if calls is None:
        return None
    return dict.fromkeys(("outcome", "device", "duration_ns", "pcc", "detail")) | {"calls": calls}


def _attempts(look: Look, runs: Sequence[tuple[Any, ...]], after: int) -> _Compared:
    """Compare what came of cases in two runs."""
    timed, kinds = _kinds(look.source, look.index, runs)
    counts = {kind: len(keys) for kind, keys in kinds.items()}
    kind = look.text("kind") or _first(counts)
    every = kinds.get(kind, ())
    begin = bisect_right(every, after)
    page = list(every[begin : begin + PAGE_ROWS + 1])
    a, b = (
        {row.case_key: row for row in browsing_runs.judged_cases(look.source, key, TIME, page)}
        for key in (row[0] for row in runs)
    )

    def told(key: int) -> dict[str, Any]:
        before, now = (
            None if each is None else judged_of(each) for each in (a.get(key), b.get(key))
        )
        changed = before and now and change_of(before, now, timed=timed)[1]
        return {"a": _side(a.get(key)), "b": _side(b.get(key)), "change": cut(changed or None)}

    return _Compared(counts, kind, page, told)


def _kinds(
    source: Connection, index: Index, runs: Sequence[tuple[Any, ...]]
) -> tuple[bool, Mapping[str, array[int]]]:
    """Return whether it matters how long cases took, and the cases by how they have changed."""
    timed = have_one_clock(*(Side("", {}, board=row[5], device=row[6]) for row in runs))
    a, b = ((row[0], _attempts_of(index, row[0])) for row in runs)
    return timed, index.comparisons.compared(source, a, b, timed=timed)


def _side(told: JudgedRow | None) -> dict[str, Any] | None:
    if told is None:
        return None
    judged = judged_of(told)
    pcc = [value for _, value in judged.pcc]
    return {
        "outcome": told.outcome,
        "device": told.device,
        "duration_ns": judged.took_ns,
        "pcc": finite(min(pcc, default=None)),
        "calls": 0,
        "detail": cut(told.detail, _LONGEST),
    }


COMPARE: Final = Page(
    *("/compare", "compare", "Two runs: broken, fixed, slower, moved", compare_page), PARAMETERS
)

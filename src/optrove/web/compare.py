"""The page that compares two runs: what broke, was fixed, got slower, moved, or is called more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound
from optrove.report.releases import PCC_MOVED
from optrove.store import browsing, browsing_runs
from optrove.web.looking import PAGE_ROWS, Page, View
from optrove.web.parameters import Parameter
from optrove.web.run_rows import named_run, run_data
from optrove.web.wording import cut, finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.web.looking import Look

SLOWER: Final = 1.5
"""How many times as long something must have taken to be slower."""
SLOWER_NS: Final = 100_000
"""And by how much at least: less is noise."""

KINDS: Final = (
    *("broken", "fixed", "moved", "slower", "faster", "not_run"),
    *("only_a", "only_b", "called_more", "called_less", "same"),
)
PARAMETERS: Final = (
    Parameter("a", "the earlier run, by its id or its beginning", required=True),
    Parameter("b", "the later run", required=True),
    Parameter("kind", "list the cases that changed so", choices=KINDS),
    Parameter("after", "the last case of the page before", pattern="[0-9a-f]{64}"),
)
_MOST: Final = 200_000


@dataclass(frozen=True, slots=True)
class _Judged:
    """What came of a case in one run, or how often it was called there."""

    attempt: int | None = None
    outcome: str | None = None
    duration_ns: int | None = None
    pcc: float | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True)
class _Compared:
    """How many cases changed in which way, and some of those that changed in one."""

    counts: Mapping[str, int]
    kind: str
    keys: list[int]
    a: Mapping[int, _Judged]
    b: Mapping[int, _Judged]


def compare_page(look: Look) -> View:
    """Make the page of two runs: of what came of cases if both have tried some, else of calls."""
    rows = [named_run(look.source, look.text(name) or "") for name in ("a", "b")]
    totals = browsing_runs.totals(look.source, [row[0] for row in rows])
    keys = rows[0][0], rows[1][0]
    after = _key_after(look)
    tried = all(totals[key]["attempts"] for key in keys)
    found = _attempts(look, keys, after) if tried else _calls(look, keys, after)
    page = found.keys[:PAGE_ROWS]
    cases = _cases(look, page, found.a, found.b)
    return View(
        {
            "a": run_data(rows[0], totals[keys[0]]),
            "b": run_data(rows[1], totals[keys[1]]),
            "counts": {name: found.counts.get(name, 0) for name in KINDS},
            "kind": found.kind,
            "cases": cases,
            "next": cases[-1]["case_id"] if len(found.keys) > PAGE_ROWS and cases else None,
        }
    )


def _key_after(look: Look) -> int:
    after = look.text("after")
    if after is None:
        return -1
    row = browsing.case_named(look.source, after)
    if row is None:
        raise NotFound("the case to go on after is not there; go to the beginning of the list")
    return int(row[0])


def _first(counts: Mapping[str, int]) -> str:
    return next((name for name in KINDS if counts.get(name)), KINDS[0])


def _calls(look: Look, runs: tuple[int, int], after: int) -> _Compared:
    """Compare how often two runs call cases."""
    counts = browsing_runs.call_counts(look.source, *runs)
    kind = look.text("kind") or _first(counts)
    rows = browsing_runs.call_changes(look.source, runs, kind, after, PAGE_ROWS + 1)
    return _Compared(
        counts,
        kind,
        [key for key, _, _ in rows],
        {key: _Judged(calls=calls) for key, calls, _ in rows if calls is not None},
        {key: _Judged(calls=calls) for key, _, calls in rows if calls is not None},
    )


def _attempts(look: Look, runs: tuple[int, int], after: int) -> _Compared:
    """Compare what came of cases in two runs."""
    a, b = (_judged(look, run_key) for run_key in runs)
    kinds: dict[str, list[int]] = {}
    for key in sorted(a.keys() | b.keys()):
        kinds.setdefault(_kind(a.get(key), b.get(key)), []).append(key)
    counts = {kind: len(keys) for kind, keys in kinds.items()}
    kind = look.text("kind") or _first(counts)
    rest = [key for key in kinds.get(kind, ()) if key > after]
    return _Compared(counts, kind, rest[: PAGE_ROWS + 1], a, b)


def _judged(look: Look, run_key: int) -> dict[int, _Judged]:
    """Return what a run made of each case; the last of several attempts counts."""
    pcc = browsing_runs.least_pcc(look.source, run_key)
    return {
        key: _Judged(attempt, outcome, took, pcc.get(attempt))
        for key, attempt, outcome, took in browsing_runs.judged(look.source, run_key, _MOST)
    }


def _kind(before: _Judged | None, after: _Judged | None) -> str:
    if before is None or after is None:
        return "only_a" if after is None else "only_b"
    if "not_run" in (before.outcome, after.outcome):
        return "not_run"
    if before.outcome != after.outcome:
        if after.outcome == "passed":
            return "fixed"
        return "broken" if before.outcome == "passed" else "moved"
    if _moved(before.pcc, after.pcc):
        return "moved"
    return _speed(before.duration_ns, after.duration_ns)


def _moved(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return not abs(before - after) <= PCC_MOVED


def _speed(before: int | None, after: int | None) -> str:
    if before is None or after is None or abs(before - after) < SLOWER_NS:
        return "same"
    if after > before * SLOWER:
        return "slower"
    return "faster" if before > after * SLOWER else "same"


def _cases(
    look: Look, keys: list[int], a: Mapping[int, _Judged], b: Mapping[int, _Judged]
) -> list[dict[str, Any]]:
    listed = browsing.listed_cases(look.source, keys)
    sides = (a, b)
    attempts = [side[key].attempt for side in sides for key in keys if key in side]
    words = browsing.attempt_details(look.source, [each for each in attempts if each is not None])
    found = []
    for key in keys:
        if key in listed:
            op = look.index.op_of.get(key)
            told = [_side(side.get(key), words) for side in sides]
            names = {"case_id": listed[key][1], "op": cut(op.name) if op else None}
            found.append({**names, "a": told[0], "b": told[1]})
    return found


def _side(judged: _Judged | None, words: Mapping[int, tuple[Any, ...]]) -> dict[str, Any] | None:
    if judged is None:
        return None
    told = None if judged.attempt is None else words.get(judged.attempt)
    return {
        "outcome": judged.outcome,
        "duration_ns": judged.duration_ns,
        "pcc": finite(judged.pcc),
        "calls": judged.calls,
        "detail": None if told is None else cut(told[3], 500),
    }


COMPARE: Final = Page(
    *("/compare", "compare", "Two runs: broken, fixed, slower, moved", compare_page), PARAMETERS
)

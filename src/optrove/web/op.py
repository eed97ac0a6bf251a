"""The page of one op: its cases or families, facets, runs and plots."""

from __future__ import annotations

import json
from html import escape
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.model.ops import ANY, meant_ops
from optrove.report.cases import Varied, differing, varied_text
from optrove.report.facets import Tally, numbers_in
from optrove.trove import browsing
from optrove.trove.query import unknown
from optrove.web.ops import CHOICES, NESTED, choice_of, chosen_data, facets_data, op_data
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import AFTER_CASE, Parameter
from optrove.web.wording import cut, duration, finite, moment, pcc, plain, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from optrove.errors import NotFound
    from optrove.report.facets import Choice
    from optrove.serializer.text import Json
    from optrove.trove.browsing import RunFact
    from optrove.web import responses
    from optrove.web.catalog import Index, Op
    from optrove.web.page_request import PageRequest


_MOST_TENSORS: Final = 12
_MOST_SCALARS: Final = 24
_LONGEST: Final = 200_000
"""Contents of more letters are not looked into for a list."""
_MEMBERS: Final = 8
"""How many cases of a family are looked into to tell what varies."""
_MOST_VALUES: Final = 50


def case_rows(
    request: PageRequest, op: Op, numbers: Sequence[int], choice: Choice | None = None
) -> list[responses.CaseRow]:
    """Return cases by their numbers, with their tensors, scalars and last outcome."""
    keys = [op.cases.keys[number] for number in numbers]
    listed = browsing.listed_cases(request.source, keys)
    facts = browsing.facts_of(request.source, keys)
    restricted = choice is not None and (choice.model is not None or choice.board is not None)
    calls = (
        browsing.calls_by(request.source, keys, choice.model, choice.board)
        if choice is not None and restricted
        else {}
    )
    found: list[responses.CaseRow] = []
    for number, key in zip(numbers, keys, strict=True):
        if key not in listed:
            # Removed since the index was made.
            continue
        _, case_id, replayable, every, content = listed[key]
        last = op.last.last(number)
        found.append(
            {
                "case_id": case_id,
                "calls": calls.get(key, 0) if restricted else every,
                "replayable": bool(replayable),
                "outcome": None if last is None else last[0],
                "tensors": [_tensor(each) for each in facts.get(key, ())[:_MOST_TENSORS]],
                "scalars": scalars_in(content),
            }
        )
    return found


def _tensor(facts: tuple[Any, ...]) -> responses.Tensor:
    argument, shape, dtype, layout, memory, mesh = facts
    return {
        "argument": cut(argument),
        "shape": cut(shape),
        "dtype": cut(dtype),
        "layout": cut(layout),
        "memory": cut(memory),
        "mesh": cut(mesh),
    }


def scalars_in(content: str) -> dict[str, Any]:
    """Return the arguments of a case that are plain numbers, texts, true or false."""
    found: dict[str, Any] = {}
    for name, value in _arguments(content).items():
        if isinstance(value, str | int | float) and len(found) < _MOST_SCALARS:
            found[name[:100]] = value[:100] if isinstance(value, str) else value
    return found


def _arguments(content: str) -> dict[str, Json]:
    if len(content) > _LONGEST:
        return {}
    arguments = json.loads(content).get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def families_of(
    request: PageRequest, op: Op, cases: int, after: int
) -> tuple[list[responses.FamilyRow], str | None]:
    """Return families, most called first, and the case that the next page begins after."""
    last = op.cases.families[after] if after >= 0 else None
    groups = list(islice(op.families.after(last, cases), PAGE_ROWS + 1))
    page = groups[:PAGE_ROWS]
    listed = browsing.listed_cases(
        request.source,
        (op.cases.keys[number] for group in page for number in group[:_MEMBERS]),
    )
    rows = {row["case_id"]: row for row in case_rows(request, op, [group[0] for group in page])}
    found = [_family(op, group, listed, rows) for group in page]
    kept = [row for row in found if row]
    return kept, kept[-1]["case_id"] if len(groups) > PAGE_ROWS and kept else None


def _family(
    op: Op,
    group: list[int],
    listed: dict[int, tuple[Any, ...]],
    rows: dict[str, responses.CaseRow],
) -> responses.FamilyRow | None:
    keys = (op.cases.keys[number] for number in group[:_MEMBERS])
    members = [listed[key] for key in keys if key in listed]
    if not members or members[0][1] not in rows:
        return None
    return {
        **rows[members[0][1]],
        "cases": len(group),
        "calls": sum(op.cases.calls[number] for number in group),
        "varies": _varies([member[4] for member in members], every=len(group)),
    }


def _varies(contents: Iterable[str], *, every: int) -> dict[str, str]:
    """Return what differs among cases, as text; of large families, by the most called."""
    first, *others = [_arguments(content) for content in contents]
    values: dict[str, dict[str, Json]] = {}
    for other in others:
        for path, one, another in differing(first, other):
            own = values.setdefault(path, {json.dumps(one): one})
            if len(own) < _MOST_VALUES:
                own[json.dumps(another)] = another
    about = "" if every <= _MEMBERS else "at least "
    found = {}
    for path, own in sorted(values.items()):
        try:
            text = varied_text(Varied(path, tuple(own.values())))
        except BadData:
            text = f"{len(own)} values"
        found[path[:100]] = about + text[:300]
    return found


_WIDTH: Final = 560
_HEIGHT: Final = 170
_LEFT: Final = 78
_RIGHT: Final = 12
_TOP: Final = 12
_BOTTOM: Final = 26
_MOST: Final = 120
_TICKS: Final = 3
_FEWEST: Final = 2
_LEAST_SPAN: Final = 1e-3
"""How far values must be apart to be seen so, as a share of the largest."""
_OPENING: Final = (
    f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'xmlns="http://www.w3.org/2000/svg">'
)


def pcc_plot(runs: Sequence[responses.OpRun]) -> str | None:
    """Return least and mean PCC of an op, run by run; None if fewer than two measured it."""
    found = [run for run in runs if None not in (run["mean_pcc"], run["least_pcc"])][-_MOST:]
    lines = {
        "mean": [run["mean_pcc"] or 0.0 for run in found],
        "least": [run["least_pcc"] or 0.0 for run in found],
    }
    return _plot("PCC by run: mean and least", found, lines, pcc, most=1.0)


def time_plot(runs: Sequence[responses.OpRun]) -> str | None:
    """Return the mean time of a call by run; None if fewer than two runs know it."""
    found = [run for run in runs if run["mean_ns"] is not None][-_MOST:]
    lines = {"mean": [run["mean_ns"] or 0.0 for run in found]}
    return _plot("Mean time of a call by run", found, lines, duration)


def _plot(
    title: str,
    runs: Sequence[responses.OpRun],
    lines: dict[str, list[float]],
    spell: Callable[[float | None], str],
    most: float = inf,
) -> str | None:
    """Draw lines over runs; ``most`` is what no value can be above."""
    if len(runs) < _FEWEST:
        return None
    every = [value for line in lines.values() for value in line]
    low, high = _bounds(every, most)
    parts = [f"{_OPENING}<title>{escape(title)}</title>"]
    for tick in range(_TICKS):
        value = low + (high - low) * tick / (_TICKS - 1)
        y = _y(value, low, high)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 3}">{escape(spell(value))}</text>'
        )
    for name, values in lines.items():
        parts += _line(name, values, runs, (low, high), spell)
    parts.append(_label(runs[0], _LEFT, "first"))
    if len(runs) > 1:
        parts.append(_label(runs[-1], _WIDTH - _RIGHT, "last"))
    return "".join([*parts, "</svg>"])


def _line(
    name: str,
    values: list[float],
    runs: Sequence[responses.OpRun],
    bounds: tuple[float, float],
    spell: Callable[[float | None], str],
) -> list[str]:
    points = [(_x(place, len(values)), _y(value, *bounds)) for place, value in enumerate(values)]
    path = " ".join(f"{x},{y}" for x, y in points)
    parts = [f'<polyline class="{name}" points="{path}"/>']
    for (x, y), value, run in zip(points, values, runs, strict=True):
        about = f"{short(run['run_id'])}, {moment(run['started_at'])}: {name} {spell(value)}"
        if run["board"]:
            about += f" on {plain(run['board'], 40)}"
        title = f"<title>{escape(about)}</title>"
        parts.append(f'<circle class="{name}" cx="{x}" cy="{y}" r="3">{title}</circle>')
    return parts


def _label(run: responses.OpRun, x: float, place: str) -> str:
    day = moment(run["started_at"]).partition(",")[0]
    return f'<text class="day {place}" x="{x}" y="{_HEIGHT - 8}">{escape(day)}</text>'


def _bounds(values: Sequence[float], most: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    least = max(abs(low), abs(high)) * _LEAST_SPAN or 1.0
    if high - low >= least:
        return low, high
    # What differs by rounding only is a line in the middle.
    middle = min((low + high) / 2, most - least)
    return middle - least, middle + least


def _x(place: int, count: int) -> float:
    across = _WIDTH - _LEFT - _RIGHT
    return round(_LEFT + (across * place / (count - 1) if count > 1 else across / 2), 1)


def _y(value: float, low: float, high: float) -> float:
    down = _HEIGHT - _TOP - _BOTTOM
    return round(_TOP + down * (high - value) / (high - low), 1)


PARAMETERS: Final = (
    Parameter("name", "name of the op: ttnn.add, ttnn::add or add", required=True),
    *CHOICES,
    NESTED,
    Parameter(
        "view", "cases, or families of those that differ in scalars", choices=("cases", "families")
    ),
    AFTER_CASE,
)
_LONGEST_NAME: Final = 200
_RUNS: Final = 200


def op_page(request: PageRequest) -> View:
    """Make the page of an op."""
    op = op_named(request.index, request.text("name") or "")
    choice, nested = choice_of(request), request.text("nested") == "yes"
    cases = op.cases.chosen(choice, nested=nested)
    after = _number_after(request, op)
    families = request.text("view") == "families"
    rows: Sequence[responses.CaseRow]
    if families:
        rows, following = families_of(request, op, cases, after)
    else:
        numbers = list(islice(numbers_in(cases, after), PAGE_ROWS + 1))
        rows = case_rows(request, op, numbers[:PAGE_ROWS], choice)
        following = rows[-1]["case_id"] if len(numbers) > PAGE_ROWS else None
    runs = runs_of(request.index, op)
    response: responses.OpPage = {
        **op_data(op, choice, nested=nested),
        "op": cut(op.name),
        "every": len(op.cases),
        "hidden": op.hidden,
        "chosen": chosen_data(choice),
        "nested": nested,
        "view": "families" if families else "cases",
        "facets": facets_data((op,), choice, nested=nested),
        "rows": list(rows),
        "next": following,
        "runs": runs,
    }
    return View(response, {"pcc": pcc_plot(runs), "time": time_plot(runs)})


def op_named(index: Index, name: str) -> Op:
    """Return the op of this name; NotFound with the nearest names otherwise."""
    if name in index.ops:
        return index.ops[name]
    known = [each for each in index.ops if len(each) <= _LONGEST_NAME]
    found = () if ANY in name else meant_ops(name, known)
    if len(found) == 1:
        return index.ops[found[0]]
    raise _unknown(name, known)


def _unknown(name: str, known: list[str]) -> NotFound:
    return unknown(f"no op here is called {name[:_LONGEST_NAME]!r}", name, known, "/ops")


def _number_after(request: PageRequest, op: Op) -> int:
    """Return the number of the case to go on after; -1 at the beginning."""
    after = request.text("after")
    if after is None:
        return -1
    row = browsing.case_named(request.source, after)
    if row is None or request.index.op_of.get(row[0]) is not op:
        raise not_listed("case", after)
    return request.index.numbers[row[0]]


def runs_of(index: Index, op: Op) -> list[responses.OpRun]:
    """Return the attempts and calls of an op in the last runs, the oldest first."""
    tallies = index.tallies.of_op(op.name)
    facts = [(key, index.runs[key]) for key in {*op.times, *tallies} if key in index.runs]
    facts.sort(key=lambda each: (each[1].started_at, each[1].run_id))
    return [
        _run(fact, op.times.get(key), tallies.get(key, Tally())) for key, fact in facts[-_RUNS:]
    ]


def _run(fact: RunFact, times: tuple[int, int] | None, tally: Tally) -> responses.OpRun:
    calls, total_ns = times or (None, 0)
    called_ns = total_ns / calls if calls else None
    return {
        "run_id": cut(fact.run_id),
        "started_at": fact.started_at,
        "board": cut(tally.board or fact.board),
        "kind": fact.kind,
        "calls": calls,
        "mean_ns": called_ns if tally.mean_ns is None else tally.mean_ns,
        "tried": tally.tried,
        "passed": tally.passed,
        "least_pcc": finite(tally.least_pcc),
        "mean_pcc": finite(tally.mean_pcc),
        "most_pcc": finite(tally.most_pcc),
    }


OP: Final = Page("/op", "op", "One op: its cases, families and runs", op_page, PARAMETERS)

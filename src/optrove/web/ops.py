"""The pages of ops: all of them by search and facets, and one with its cases, runs and plots."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from math import inf
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData
from optrove.model.ops import ANY, is_listed, meant_ops
from optrove.model.pass_rates import PassRate
from optrove.model.records import Outcome, RunKind, matches_filter
from optrove.report.cases import Varied, differing, varied_text
from optrove.report.wording import duration, number
from optrove.trove.derived import NONE
from optrove.trove.facets import FACETS, CaseList, FacetFilters
from optrove.trove.query import unknown
from optrove.web.page_request import AFTER_CASE, PAGE_ROWS, Page, PageView, Parameter, rows_after
from optrove.web.wording import cut, finite, moment, plain, short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from optrove.model.trove import OpRunRow, TensorFacts
    from optrove.serializer.text import Json
    from optrove.trove.facets import CaseGroups, ListedCase, ListedFamily
    from optrove.web import responses
    from optrove.web.page_request import PageRequest


_MAX_VALUES: Final = 40
_OUTCOMES: Final = (*(outcome.value for outcome in Outcome), NONE)

_CHOICES: Final = (
    Parameter("model", "called by this model, or by this source"),
    Parameter("board", "called on this board"),
    Parameter("dtype", "with a tensor of this dtype"),
    Parameter("layout", "with a tensor of this layout"),
    Parameter("memory", "with a tensor in this memory; a part of its name is enough"),
    Parameter("mesh", "with a tensor on a mesh of this shape"),
    Parameter(
        "outcome", "with this outcome of the last attempt; none: no attempts", choices=_OUTCOMES
    ),
)
_ALL_OPS: Final = Parameter("all_ops", "yes: also ops that only move data", choices=("yes", "no"))
_NESTED: Final = Parameter(
    "nested", "yes: also cases that only other ops call", choices=("yes", "no")
)


def choice_of(request: PageRequest) -> FacetFilters:
    """Return the filters of the chosen cases."""
    return FacetFilters(**{name: request.text(name) for name in FACETS})


def chosen_data(choice: FacetFilters) -> dict[str, str]:
    """Return the chosen values, by facet."""
    found = {name: getattr(choice, name) for name in FACETS}
    return {name: value for name, value in found.items() if value is not None}


def facets_data(
    groups: CaseGroups, ops: Iterable[str], choice: FacetFilters, *, nested: bool
) -> responses.Facets:
    """Return the values of every facet with the cases that each would leave, most first."""
    found = groups.facets(ops, choice, nested=nested)
    return {name: _facet(name, counts, getattr(choice, name)) for name, counts in found.items()}


def _facet(name: str, found: Counter[str], chosen: str | None) -> list[responses.FacetValue]:
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_MAX_VALUES]
    if chosen is not None and not any(matches_filter(name, chosen, each) for each, _ in ranked):
        ranked.append((chosen, found.get(chosen, 0)))
    return [{"value": cut(value), "cases": cases} for value, cases in ranked]


_PARAMETERS: Final = (
    Parameter("search", "part of the name of an op", may_be_empty=True),
    *_CHOICES,
    _ALL_OPS,
    _NESTED,
    Parameter("after", "the last op of the previous page"),
)


def ops_page(request: PageRequest) -> PageView:
    """Make the page of ops."""
    choice, search = choice_of(request), request.text("search")
    nested = request.text("nested") == "yes"
    groups = request.groups
    shown = list(groups.shown(all_ops=request.text("all_ops") == "yes"))
    if search is not None:
        shown = [op for op in shown if matches(op, search)]
    rows = op_rows(request, shown, choice, nested=nested)
    page, following = rows_after(rows, request.text("after"), "op", lambda row: row["op"])
    data: responses.OpsPage = {
        "search": search,
        "chosen": chosen_data(choice),
        "all_ops": request.text("all_ops") == "yes",
        "nested": nested,
        "totals": {
            "ops": len(rows),
            "cases": sum(row["cases"] for row in rows),
            "calls": sum(row["calls"] for row in rows),
        },
        "facets": facets_data(groups, shown, choice, nested=nested),
        "ops": [cut_op(row) for row in page],
        "next": following,
    }
    unlisted = [op for op in groups.ops if not is_listed(op)]
    if search is not None:
        unlisted = [op for op in unlisted if matches(op, search)]
    return PageView(data, {"unlisted": len(op_rows(request, unlisted, choice, nested=nested))})


def op_rows(
    request: PageRequest, ops: Iterable[str], choice: FacetFilters, *, nested: bool = False
) -> list[responses.Op]:
    """Return those ops of which some cases are selected, most called first."""
    found = (op_data(request, op, choice, nested=nested) for op in ops)
    rows = [row for row in found if row["cases"]]
    return sorted(rows, key=lambda row: (-row["calls"], row["op"]))


def op_data(
    request: PageRequest, op: str, choice: FacetFilters, *, nested: bool = False
) -> responses.Op:
    """Return an op: its selected cases and their last outcomes."""
    groups = request.groups
    chosen = groups.chosen(op, choice, nested=nested)
    counts: Counter[str] = Counter()
    for group in chosen:
        counts[group.outcome] += group.cases
    outcomes = {each.value: counts[each.value] for each in Outcome if counts[each.value]}
    rate = PassRate.of(outcomes)
    if choice.model is None and choice.board is None:
        calls = sum(group.calls for group in chosen)
    elif choice == FacetFilters(model=choice.model, board=choice.board):
        calls = groups.calls(op, choice)
    else:
        # Runs are counted by op only; with a choice among tensors or outcomes, case by case.
        cases = CaseList(request.reader, groups, op, choice, nested=nested)
        calls = cases.total_calls() if chosen else 0
    return {
        "op": op,
        "cases": sum(group.cases for group in chosen),
        "calls": calls,
        "models": len(groups.models(chosen)),
        "replayable": sum(group.replayable for group in chosen),
        "tried": sum(outcomes.values()),
        "ran": rate.ran,
        "passed": rate.passed,
        "outcomes": outcomes,
    }


def cut_op(row: responses.Op) -> responses.Op:
    """Return an op with its name shortened if it is very long."""
    return {**row, "op": cut(row["op"])}


def matches(name: str, search: str) -> bool:
    """Return whether a name has all words of a search in it."""
    lowered = name.casefold()
    return all(word in lowered for word in search.casefold().replace("::", ".").split())


_MAX_TENSORS: Final = 12
_MAX_SCALARS: Final = 24
_MAX_CONTENT_CHARS: Final = 200_000
"""Lists do not parse cases that are longer than this."""
_MAX_VARIED: Final = 50


def case_rows(
    request: PageRequest, cases: Sequence[ListedCase], calls: Mapping[int, int] | None = None
) -> list[responses.CaseRow]:
    """Return cases with their tensors, scalars and last outcome; ``calls`` may restrict them."""
    ids = [case.case_id for case in cases]
    tensors, contents = request.reader.tensors(ids), request.reader.contents(ids)
    return [
        {
            "case_id": case.case_id,
            "calls": case.calls if calls is None else calls.get(case.key, 0),
            "replayable": bool(case.replayable),
            "outcome": case.last_outcome,
            "tensors": [_tensor(each) for each in tensors[case.case_id][:_MAX_TENSORS]],
            "scalars": scalars_in(contents[case.case_id]),
        }
        for case in cases
    ]


def _tensor(facts: TensorFacts) -> responses.Tensor:
    return {
        "argument": cut(facts.argument),
        "shape": cut(facts.shape),
        "dtype": cut(facts.dtype),
        "layout": cut(facts.layout),
        "memory": cut(facts.memory),
        "mesh": cut(facts.mesh),
    }


def scalars_in(content: str) -> dict[str, Any]:
    """Return the arguments of a case that are plain numbers, texts, true or false."""
    found: dict[str, Any] = {}
    for name, value in _arguments(content).items():
        if isinstance(value, str | int | float) and len(found) < _MAX_SCALARS:
            found[name[:100]] = value[:100] if isinstance(value, str) else value
    return found


def _arguments(content: str) -> dict[str, Json]:
    if len(content) > _MAX_CONTENT_CHARS:
        return {}
    arguments = json.loads(content).get("arguments")
    return arguments if isinstance(arguments, dict) else {}


def family_rows(
    request: PageRequest, families: Sequence[ListedFamily]
) -> list[responses.FamilyRow]:
    """Return families, each by its most called case."""
    rows = case_rows(request, [family.members[0] for family in families])
    members = [case.case_id for family in families for case in family.members]
    contents = request.reader.contents(members)
    return [
        {
            **row,
            "cases": family.cases,
            "calls": family.calls,
            "varies": _varies([contents[case.case_id] for case in family.members], family.cases),
        }
        for family, row in zip(families, rows, strict=True)
    ]


def _varies(contents: Sequence[str], every: int) -> dict[str, str]:
    """Return the differences among cases as text; for large families, among the most called."""
    first, *others = [_arguments(content) for content in contents]
    values: dict[str, dict[str, Json]] = {}
    for other in others:
        for path, one, another in differing(first, other):
            own = values.setdefault(path, {json.dumps(one): one})
            if len(own) < _MAX_VARIED:
                own[json.dumps(another)] = another
    about = "" if every == len(contents) else "at least "
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
_MAX_POINTS: Final = 120
_TICKS: Final = 3
_MIN_POINTS: Final = 2
_TRACED: Final = (RunKind.TRACE.value, RunKind.IMPORT.value)
"""Kinds of runs whose times are those of calls, not of attempts."""
_MIN_SPAN: Final = 1e-3
"""How far values must be apart to be seen so, as a share of the largest."""
_OPENING: Final = (
    f'<svg class="plot" role="img" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
    'xmlns="http://www.w3.org/2000/svg">'
)


def pcc_plot(runs: Sequence[responses.OpRun]) -> str | None:
    """Return least and mean PCC of an op, run by run; None if fewer than two measured it.

    As in the plot of times, a line joins only runs of one kind on one device.
    """
    found = [run for run in runs if None not in (run["mean_pcc"], run["least_pcc"])][-_MAX_POINTS:]
    lines = {
        "mean": [run["mean_pcc"] or 0.0 for run in found],
        "least": [run["least_pcc"] or 0.0 for run in found],
    }
    return _plot("PCC by run: mean and least", found, lines, number, most=1.0)


def time_plot(runs: Sequence[responses.OpRun]) -> str | None:
    """Return the mean time of a call by run; None if fewer than two runs know it."""
    found = [run for run in runs if run["mean_ns"] is not None][-_MAX_POINTS:]
    lines = {"mean": [run["mean_ns"] or 0.0 for run in found]}
    return _plot("Mean host time of a call by run", found, lines, duration)


def _plot(
    title: str,
    runs: Sequence[responses.OpRun],
    lines: dict[str, list[float]],
    format_value: Callable[[float], str],
    most: float = inf,
) -> str | None:
    """Draw lines over runs; ``most`` is an upper bound of all values."""
    if len(runs) < _MIN_POINTS:
        return None
    every = [value for line in lines.values() for value in line]
    low, high = _bounds(every, most)
    parts = [f"{_OPENING}<title>{escape(title)}</title>"]
    for tick in range(_TICKS):
        value = low + (high - low) * tick / (_TICKS - 1)
        y = _y(value, low, high)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 3}">{escape(format_value(value))}</text>'
        )
    for name, values in lines.items():
        parts += _line(name, values, runs, (low, high), format_value)
    times = [moment(run["started_at"]) for run in (runs[0], runs[-1])]
    days = [time.partition(" ")[0] for time in times]
    # Of one day, the times of day say more.
    first, last = times if days[0] == days[1] else days
    parts.append(_label(first, _LEFT, "first"))
    if len(runs) > 1:
        parts.append(_label(last, _WIDTH - _RIGHT, "last"))
    return "".join([*parts, "</svg>"])


def _line(
    name: str,
    values: list[float],
    runs: Sequence[responses.OpRun],
    bounds: tuple[float, float],
    format_value: Callable[[float], str],
) -> list[str]:
    points = [(_x(place, len(values)), _y(value, *bounds)) for place, value in enumerate(values)]
    lines: dict[tuple[object, ...], list[str]] = {}
    for (x, y), run in zip(points, runs, strict=True):
        lines.setdefault(_comparable(run), []).append(f"{x},{y}")
    parts = [
        f'<polyline class="{name}" points="{" ".join(line)}"/>'
        for line in lines.values()
        if len(line) >= _MIN_POINTS
    ]
    for (x, y), value, run in zip(points, values, runs, strict=True):
        about = f"{short(run['run_id'])}, {moment(run['started_at'])}: {name} {format_value(value)}"
        where = " ".join(filter(None, (plain(run["device"], 12), plain(run["board"], 40))))
        about += f" on {where}, {plain(run['kind'], 12)}"
        title = f"<title>{escape(about)}</title>"
        parts.append(f'<circle class="{name}" cx="{x}" cy="{y}" r="3">{title}</circle>')
    return parts


def _comparable(run: responses.OpRun) -> tuple[object, ...]:
    """Return the facts in which two runs agree if their numbers can be compared."""
    return run["kind"] in _TRACED, run["device"], run["board"]


def _label(text: str, x: float, place: str) -> str:
    return f'<text class="day {place}" x="{x}" y="{_HEIGHT - 8}">{escape(text)}</text>'


def _bounds(values: Sequence[float], most: float) -> tuple[float, float]:
    low, high = min(values), max(values)
    least = max(abs(low), abs(high)) * _MIN_SPAN or 1.0
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


_OP_PARAMETERS: Final = (
    Parameter("name", "name of the op: ttnn.add, ttnn::add or add", required=True),
    *_CHOICES,
    _NESTED,
    Parameter(
        "view",
        "cases, or families of cases that differ in scalars only",
        choices=("cases", "families"),
    ),
    AFTER_CASE,
)
_MAX_NAME_CHARS: Final = 200
_RUNS: Final = 200


def op_page(request: PageRequest) -> PageView:
    """Make the page of an op."""
    groups = request.groups
    op = op_named(groups.ops, request.text("name") or "")
    choice, nested = choice_of(request), request.text("nested") == "yes"
    cases = CaseList(request.reader, groups, op, choice, nested=nested)
    after = request.case_after(op)
    families = request.text("view") == "families"
    rows: Sequence[responses.CaseRow]
    if families:
        found = cases.families(after, PAGE_ROWS + 1)
        rows = family_rows(request, found[:PAGE_ROWS])
    else:
        listed = cases.page(after, PAGE_ROWS + 1)
        restricted = choice.model is not None or choice.board is not None
        calls = cases.calls([case.key for case in listed]) if restricted else None
        rows = case_rows(request, listed[:PAGE_ROWS], calls)
    more = len(found if families else listed) > PAGE_ROWS
    runs = [_run(row) for row in reversed(request.reader.op_runs(op, _RUNS))]
    response: responses.OpPage = {
        **op_data(request, op, choice, nested=nested),
        "op": cut(op),
        "every": sum(group.cases for group in groups.ops[op]),
        "hidden": not is_listed(op),
        "chosen": chosen_data(choice),
        "nested": nested,
        "view": "families" if families else "cases",
        "facets": facets_data(groups, (op,), choice, nested=nested),
        "rows": list(rows),
        "next": rows[-1]["case_id"] if more else None,
        "runs": runs,
    }
    return PageView(response, {"pcc": pcc_plot(runs), "time": time_plot(runs)})


def op_named(ops: Iterable[str], name: str) -> str:
    """Return the op of this name; NotFound with the nearest names otherwise."""
    if name in ops:
        return name
    known = [each for each in ops if len(each) <= _MAX_NAME_CHARS]
    found = () if ANY in name else meant_ops(name, known)
    if len(found) == 1:
        return found[0]
    raise unknown(f"no op here is called {name[:_MAX_NAME_CHARS]!r}", name, known, "/ops")


def _run(row: OpRunRow) -> responses.OpRun:
    """Return the attempts and calls of an op in a run."""
    mean_ns = row.attempts_ns / row.timed_attempts if row.timed_attempts else None
    called_ns = row.calls_ns / row.timed_calls if row.timed_calls else None
    return {
        "run_id": cut(row.run_id),
        "started_at": row.started_at,
        "board": cut(row.board),
        "device": row.device,
        "kind": row.kind,
        "calls": row.timed_calls,
        "mean_ns": called_ns if mean_ns is None else mean_ns,
        "tried": row.attempts,
        "ran": row.ran,
        "passed": row.passed,
        "least_pcc": finite(row.least_pcc),
        "mean_pcc": finite(row.total_pcc / row.outputs if row.outputs else None),
        "most_pcc": finite(row.most_pcc),
    }


OPS: Final = Page("/ops", "ops", "All ops, by search and facets", ops_page, _PARAMETERS)
OP: Final = Page("/op", "op", "One op: its cases, families and runs", op_page, _OP_PARAMETERS)

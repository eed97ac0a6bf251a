"""The board matrix: which ops, and which cases of one op, run on which board."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypedDict

from optrove.model.records import DeviceKind, Outcome
from optrove.report.facets import numbers_in
from optrove.trove import browsing
from optrove.web import responses
from optrove.web.op import op_named
from optrove.web.page_request import PAGE_ROWS, Page, View, not_listed
from optrove.web.parameters import LONGEST, Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from optrove.report.facets import Ground
    from optrove.web import responses
    from optrove.web.catalog import Op
from optrove.web.page_request import PageRequest

PARAMETERS: Final = (
    Parameter("op", "cases of this op"),
    Parameter("board", "cases that ended so on this board"),
    Parameter(
        "device",
        "results on this kind of device only",
        choices=tuple(each.value for each in DeviceKind),
    ),
    Parameter(
        "outcome",
        "cases that ended so on some board",
        choices=tuple(each.value for each in Outcome),
    ),
    Parameter("after", "the last op or case of the page before"),
)
_LONGEST: Final = 500


class _Rows(TypedDict):
    rows: list[dict[str, Any]]
    next: str | None


def boards_page(request: PageRequest) -> View:
    """Make the board matrix: of all ops, or of the cases of one."""
    name, device = request.text("op"), request.text("device")
    grounds = sorted(request.index.grounds)
    shown = [ground for ground in grounds if device in (None, ground[1])]
    data: responses.BoardsPage = {
        "boards": [_ground(ground) for ground in shown],
        "devices": sorted({ground[1] for ground in grounds}),
        "totals": {_name(ground): _total(request, ground) for ground in shown},
        "op": None,
        "board": request.text("board"),
        "device": device,
        "outcome": request.text("outcome"),
        "rows": [],
        "next": None,
    }
    if name is None:
        return View({**data, **_ops(request, shown)})
    op = op_named(request.index, name)
    return View({**data, "op": cut(op.name), **_cases(request, op, shown)})


def _name(ground: Ground) -> str:
    return f"{ground[0]} {ground[1]}"


def _ground(ground: Ground) -> responses.BoardDevice:
    return {"name": _name(ground), "board": ground[0], "device": ground[1]}


def _total(request: PageRequest, ground: Ground) -> dict[str, int]:
    counts: dict[str, int] = {}
    for op in request.index.ops.values():
        for outcome, cases in op.last.outcomes(ground).items():
            counts[outcome] = counts.get(outcome, 0) + cases.bit_count()
    return counts


def _ops(request: PageRequest, shown: list[Ground]) -> _Rows:
    tried = sorted(op.name for op in request.index.ops.values() if _kept(request, op, shown))
    after, begin = request.text("after"), 0
    if after is not None:
        begin = next((n for n, name in enumerate(tried, 1) if name[:LONGEST] == after), 0)
        if not begin:
            raise not_listed("op", after)
    page = tried[begin : begin + PAGE_ROWS]
    rows = [
        {
            "op": cut(name),
            "boards": {_name(each): _counts(request.index.ops[name], each) for each in shown},
        }
        for name in page
    ]
    more = begin + PAGE_ROWS < len(tried)
    return {"rows": rows, "next": page[-1][:LONGEST] if more else None}


def _counts(op: Op, ground: Ground) -> dict[str, int]:
    found = op.last.outcomes(ground).items()
    return {outcome: cases.bit_count() for outcome, cases in found if cases}


def _kept(request: PageRequest, op: Op, shown: list[Ground]) -> int:
    """Return the cases of an op that were tried, and ended so if that was asked for."""
    outcome, board = request.text("outcome"), request.text("board")
    found = 0
    for ground in shown:
        if board in (None, ground[0]):
            ended = op.last.outcomes(ground)
            found |= op.last.tried(ground) if outcome is None else ended.get(outcome, 0)
    return found


def _cases(request: PageRequest, op: Op, shown: list[Ground]) -> _Rows:
    cases = _kept(request, op, shown)
    after, last = request.text("after"), -1
    if after is not None:
        row = browsing.case_named(request.source, after)
        if row is None or request.index.op_of.get(row[0]) is not op:
            raise not_listed("case", after)
        last = request.index.numbers[row[0]]
    numbers = list(islice(numbers_in(cases, last), PAGE_ROWS + 1))
    page = numbers[:PAGE_ROWS]
    listed = browsing.listed_cases(request.source, (op.cases.keys[number] for number in page))
    cells = {(number, each): op.last.last(number, each) for number in page for each in shown}
    words = browsing.attempt_details(request.source, (cell[1] for cell in cells.values() if cell))
    rows = []
    for number in page:
        key = op.cases.keys[number]
        if key in listed:
            own = {_name(each): _cell(cells[number, each], words) for each in shown}
            rows.append({"case_id": listed[key][1], "calls": listed[key][3], "boards": own})
    more = len(numbers) > PAGE_ROWS and rows
    return {"rows": rows, "next": rows[-1]["case_id"] if more else None}


def _cell(last: tuple[str, int] | None, words: dict[int, tuple[Any, ...]]) -> dict[str, Any] | None:
    if last is None or last[1] not in words:
        return None
    run_id, outcome, _, detail = words[last[1]]
    return {"outcome": outcome, "run_id": cut(run_id), "detail": cut(detail, _LONGEST)}


BOARDS: Final = Page(
    *("/boards", "boards", "Which ops and cases run on which board", boards_page), PARAMETERS
)

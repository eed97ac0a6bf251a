"""The board matrix: which ops, and which cases of one op, run on which board."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound
from optrove.model.records import Outcome
from optrove.report.facets import numbers_in
from optrove.store import browsing
from optrove.web.looking import PAGE_ROWS, Page, View
from optrove.web.op import op_named
from optrove.web.parameters import LONGEST, Parameter
from optrove.web.wording import cut

if TYPE_CHECKING:
    from optrove.web.catalog import Op
    from optrove.web.looking import Look

PARAMETERS: Final = (
    Parameter("op", "cases of this op"),
    Parameter("board", "cases that ended so on this board"),
    Parameter(
        "outcome",
        "cases that ended so on some board",
        choices=tuple(each.value for each in Outcome),
    ),
    Parameter("after", "the last op or case of the page before"),
)
_LONGEST: Final = 500


def boards_page(look: Look) -> View:
    """Make the board matrix: of all ops, or of the cases of one."""
    boards = sorted(look.index.boards)
    name = look.text("op")
    data: dict[str, Any] = {
        "boards": boards,
        "totals": {board: _total(look, board) for board in boards},
        "op": None,
        "board": look.text("board"),
        "outcome": look.text("outcome"),
        "rows": [],
        "next": None,
    }
    if name is None:
        return View({**data, **_ops(look, boards)})
    op = op_named(look.index, name)
    return View({**data, "op": cut(op.name), **_cases(look, op, boards)})


def _total(look: Look, board: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for op in look.index.ops.values():
        for outcome, cases in op.last.outcomes(board).items():
            counts[outcome] = counts.get(outcome, 0) + cases.bit_count()
    return counts


def _ops(look: Look, boards: list[str]) -> dict[str, Any]:
    asked = look.text("outcome"), look.text("board")
    tried = sorted(op.name for op in look.index.ops.values() if _kept(op, *asked))
    after, begin = look.text("after"), 0
    if after is not None:
        begin = next((n for n, name in enumerate(tried, 1) if name[:LONGEST] == after), 0)
        if not begin:
            raise NotFound("the op to go on after is not in this list; go to its beginning")
    page = tried[begin : begin + PAGE_ROWS]
    rows = [
        {
            "op": cut(name),
            "boards": {board: _counts(look.index.ops[name], board) for board in boards},
        }
        for name in page
    ]
    more = begin + PAGE_ROWS < len(tried)
    return {"rows": rows, "next": page[-1][:LONGEST] if more else None}


def _counts(op: Op, board: str) -> dict[str, int]:
    found = op.last.outcomes(board).items()
    return {outcome: cases.bit_count() for outcome, cases in found if cases}


def _kept(op: Op, outcome: str | None, board: str | None) -> int:
    """Return the cases of an op that were tried, and ended so if that was asked for."""
    boards = op.last.boards() if board is None else (board,)
    found = 0
    for name in boards:
        found |= op.last.tried(name) if outcome is None else op.last.outcomes(name).get(outcome, 0)
    return found


def _cases(look: Look, op: Op, boards: list[str]) -> dict[str, Any]:
    cases = _kept(op, look.text("outcome"), look.text("board"))
    after, last = look.text("after"), -1
    if after is not None:
        row = browsing.case_named(look.source, after)
        if row is None or look.index.op_of.get(row[0]) is not op:
            raise NotFound("the case to go on after is not in this list; go to its beginning")
        last = look.index.numbers[row[0]]
    numbers = list(islice(numbers_in(cases, last), PAGE_ROWS + 1))
    page = numbers[:PAGE_ROWS]
    listed = browsing.listed_cases(look.source, (op.cases.keys[number] for number in page))
    cells = {(number, board): op.last.last(number, board) for number in page for board in boards}
    words = browsing.attempt_details(look.source, (cell[1] for cell in cells.values() if cell))
    rows = []
    for number in page:
        key = op.cases.keys[number]
        if key in listed:
            own = {board: _cell(cells[number, board], words) for board in boards}
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

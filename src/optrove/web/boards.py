"""The board matrix: which ops, and which cases of one op, run on which board."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from optrove.model.records import DeviceKind, Outcome
from optrove.trove.facets import tried_cases
from optrove.web.ops import op_named
from optrove.web.page_request import PAGE_ROWS, Page, PageView, Parameter, rows_after
from optrove.web.runs import in_order
from optrove.web.wording import cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.records import Attempt
    from optrove.web import responses
    from optrove.web.page_request import PageRequest

BoardDevice: TypeAlias = tuple[str, str]
"""A board, and the kind of device that it was: hw, mock, shadow."""

PARAMETERS: Final = (
    Parameter("op", "cases of this op"),
    Parameter("board", "cases with the given outcome on this board"),
    Parameter(
        "device",
        "only results on this kind of device",
        choices=tuple(each.value for each in DeviceKind),
    ),
    Parameter(
        "outcome",
        "cases with this outcome on any board",
        choices=tuple(each.value for each in Outcome),
    ),
    Parameter("after", "the last op or case of the previous page"),
)
_MAX_DETAIL_CHARS: Final = 500


class _Rows(TypedDict):
    rows: list[dict[str, Any]]
    next: str | None


def boards_page(request: PageRequest) -> PageView:
    """Make the board matrix: of all ops, or of the cases of one."""
    name, device = request.text("op"), request.text("device")
    counts = request.last_attempts
    board_devices = sorted({(board, kind) for _, board, kind, _, _ in counts})
    shown = [board_device for board_device in board_devices if device in (None, board_device[1])]
    totals: dict[BoardDevice, Counter[str]] = {
        board_device: Counter() for board_device in board_devices
    }
    for _, board, kind, outcome, count in counts:
        totals[board, kind][outcome] += count
    data: responses.BoardsPage = {
        "boards": [
            {"name": _name(board_device), "board": board_device[0], "device": board_device[1]}
            for board_device in shown
        ],
        "devices": sorted({board_device[1] for board_device in board_devices}),
        "totals": {_name(board_device): in_order(totals[board_device]) for board_device in shown},
        "op": None,
        "board": request.text("board"),
        "device": device,
        "outcome": request.text("outcome"),
        "rows": [],
        "next": None,
    }
    if name is None:
        return PageView({**data, **_ops(request, counts, shown)})
    op = op_named(request.groups.ops, name)
    return PageView({**data, "op": cut(op), **_cases(request, op, shown)})


def _name(board_device: BoardDevice) -> str:
    return f"{board_device[0]} {board_device[1]}"


def _ops(
    request: PageRequest, counts: Iterable[tuple[str, str, str, str, int]], shown: list[BoardDevice]
) -> _Rows:
    ops: dict[str, dict[BoardDevice, dict[str, int]]] = {}
    tried: set[str] = set()
    outcome_asked, board_asked = request.text("outcome"), request.text("board")
    for op, board, kind, outcome, count in counts:
        if (board, kind) in shown:
            ops.setdefault(op, {}).setdefault((board, kind), {})[outcome] = count
            if outcome_asked in (None, outcome) and board_asked in (None, board):
                tried.add(op)
    page, following = rows_after(sorted(tried), request.text("after"), "op", str)
    rows = [
        {
            "op": cut(name),
            "boards": {
                _name(board_device): in_order(ops[name].get(board_device, {}))
                for board_device in shown
            },
        }
        for name in page
    ]
    return {"rows": rows, "next": following}


def _cases(request: PageRequest, op: str, shown: list[BoardDevice]) -> _Rows:
    asked = {name: request.text(name) for name in ("board", "device", "outcome")}
    found = tried_cases(request.reader, op, asked, request.case_after(op), PAGE_ROWS + 1)
    page = found[:PAGE_ROWS]
    attempts = request.reader.last_attempts_at(case.case_id for case in page)
    rows = [
        {
            "case_id": case.case_id,
            "calls": case.calls,
            "boards": {
                _name(board_device): _cell(attempts.get((case.case_id, *board_device)))
                for board_device in shown
            },
        }
        for case in page
    ]
    more = len(found) > PAGE_ROWS
    return {"rows": rows, "next": page[-1].case_id if more else None}


def _cell(attempt: Attempt | None) -> dict[str, Any] | None:
    if attempt is None:
        return None
    return {
        "outcome": attempt.outcome.value,
        "run_id": cut(attempt.run_id),
        "detail": cut(attempt.detail, _MAX_DETAIL_CHARS),
    }


BOARDS: Final = Page(
    *("/boards", "boards", "Results of ops and cases by board", boards_page), PARAMETERS
)

"""Draw a stretch of calls along time, as SVG: those within others below them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

from optrove.web.wording import address, duration, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 1000
_ROW: Final = 18
_GAP: Final = 4
_AXIS: Final = 20
_DEEPEST: Final = 8
_NARROWEST: Final = 1.5
_HUES: Final = 8
_TICKS: Final = 5


def timeline(calls: Sequence[dict[str, Any]]) -> str | None:
    """Return the picture; None where there is nothing to draw."""
    if not calls:
        return None
    end = max(call["began_ns"] + call["took_ns"] for call in calls) or 1
    rows = min(max(call["depth"] for call in calls), _DEEPEST) + 1
    height = rows * (_ROW + _GAP) + _AXIS
    # The last colour is that of all the others.
    hues = {op: min(place, _HUES - 1) for place, op in enumerate(_ranked(calls))}
    size = f'viewBox="0 0 {_WIDTH} {height}" xmlns="http://www.w3.org/2000/svg"'
    parts = [f'<svg class="timeline" role="img" {size}><title>Calls along time</title>']
    for call in calls:
        x = _WIDTH * call["began_ns"] / end
        width = max(_WIDTH * call["took_ns"] / end, _NARROWEST)
        y = min(call["depth"], _DEEPEST) * (_ROW + _GAP)
        about = f"{call['op_index']}: {plain(call['op'], 80)}, {duration(call['took_ns'])}"
        shown = "" if call["outcome"] == "returned" else f", {call['outcome']}"
        link = escape(address("/case", id=call["case_id"]))
        parts.append(
            f'<a href="{link}"><rect class="hue{hues[call["op"]]} {call["outcome"]}" x="{x:.2f}" '
            f'y="{y}" width="{width:.2f}" height="{_ROW}">'
            f"<title>{escape(about + shown)}</title></rect></a>"
        )
    for tick in range(_TICKS):
        share = tick / (_TICKS - 1)
        anchor = ("start", "middle", "end")[(tick > 0) + (tick == _TICKS - 1)]
        parts.append(
            f'<text class="tick" text-anchor="{anchor}" x="{_WIDTH * share:.0f}" '
            f'y="{height - 4}">{escape(duration(end * share))}</text>'
        )
    return "".join([*parts, "</svg>"])


def legend(calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ops that have a colour of their own, and how long their calls took."""
    took: dict[str, int] = {}
    for call in calls:
        took[call["op"]] = took.get(call["op"], 0) + call["took_ns"]
    names = _ranked(calls)[: _HUES - 1]
    return [{"hue": hue, "op": op, "took_ns": took[op]} for hue, op in enumerate(names)]


def _ranked(calls: Sequence[dict[str, Any]]) -> list[str]:
    """Return the ops, those first that took longest."""
    took: dict[str, int] = {}
    for call in calls:
        took[call["op"]] = took.get(call["op"], 0) + call["took_ns"]
    return sorted(took, key=lambda op: (-took[op], str(op)))

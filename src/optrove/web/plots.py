"""Plots of an op over its runs, as SVG that takes the colours of the page."""

from __future__ import annotations

from html import escape
from math import inf
from typing import TYPE_CHECKING, Any, Final

from optrove.web.wording import duration, moment, pcc, plain, short

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def pcc_plot(runs: Sequence[dict[str, Any]]) -> str | None:
    """Return least and mean PCC of an op, run by run; None if fewer than two measured it."""
    found = [run for run in runs if None not in (run["mean_pcc"], run["least_pcc"])][-_MOST:]
    lines = {
        "mean": [run["mean_pcc"] for run in found],
        "least": [run["least_pcc"] for run in found],
    }
    return _plot("PCC by run: mean and least", found, lines, pcc, most=1.0)


def time_plot(runs: Sequence[dict[str, Any]]) -> str | None:
    """Return how long a call of an op took on average; None if fewer than two runs know it."""
    found = [run for run in runs if run["mean_ns"] is not None][-_MOST:]
    return _plot(
        "Mean time of a call by run", found, {"mean": [r["mean_ns"] for r in found]}, duration
    )


def _plot(
    title: str,
    runs: Sequence[dict[str, Any]],
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
    runs: Sequence[dict[str, Any]],
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
        told = f"<title>{escape(about)}</title>"
        parts.append(f'<circle class="{name}" cx="{x}" cy="{y}" r="3">{told}</circle>')
    return parts


def _label(run: dict[str, Any], x: float, place: str) -> str:
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

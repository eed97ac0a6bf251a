"""Sort measured numbers into the bars of a chart: PCC by its nines, durations by powers of ten."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from optrove.report.page import Bar, Chart
from optrove.report.results import took
from optrove.report.tables import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Measurement
    from optrove.report.results import Result

_EDGES: Final = (0.0, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9999, 0.99999)
"""Where PCC is cut: what matters are its distance from 1 and the usual thresholds."""
_FASTEST: Final = 10_000


def pcc_chart(measurements: Iterable[Measurement]) -> Chart | None:
    """Return how PCC is spread; bad is what missed its threshold. None where none was measured."""
    found = [each for each in measurements if each.name == "pcc"]
    if not found:
        return None
    labels = ["not a number", "below 0", *map(_from_to, _EDGES, (*_EDGES[1:], None))]
    bars = {label: [0, 0] for label in labels}
    for each in found:
        bars[labels[_place(each.value)]][each.passed is False] += 1
    shown = _trimmed([Bar(label, *counts) for label, counts in bars.items()])
    missed = sum(bar.bad for bar in shown)
    note = f"{plural(len(found), 'result')} compared with golden functions"
    return Chart("PCC", f"{note}, {missed:,} below the threshold" if missed else note, shown)


def _place(value: float) -> int:
    if math.isnan(value):
        return 0
    return 1 + sum(value >= edge for edge in _EDGES)


def _from_to(low: float, high: float | None) -> str:
    return f"{low:g} to {'1' if high is None else f'{high:g}'}"


def time_chart(results: Iterable[Result]) -> Chart | None:
    """Return how long cases took; bad are those that did not pass. None where none is known."""
    found = [
        (ns, each.passed) for each in results if each.ran and (ns := took(each.attempt)) is not None
    ]
    if not found:
        return None
    edges = [_FASTEST]
    while edges[-1] <= max(ns for ns, _ in found):
        edges.append(edges[-1] * 10)
    bars = {edge: [0, 0] for edge in edges}
    for ns, passed in found:
        bars[next(edge for edge in edges if ns < edge)][not passed] += 1
    shown = _trimmed([Bar(f"under {duration(edge)}", *counts) for edge, counts in bars.items()])
    return Chart("Duration", f"{plural(len(found), 'case')}, each as long as its call took", shown)


def _trimmed(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """Return the bars from the first to the last that count something."""
    filled = [place for place, bar in enumerate(bars) if bar.count]
    return tuple(bars[filled[0] : filled[-1] + 1]) if filled else ()

"""Numbers, times, ids and shares as people read them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from optrove.model.records import DeviceKind
from optrove.model.torch_target import TorchTarget
from optrove.model.trove import RunState

if TYPE_CHECKING:
    from optrove.model.pass_rates import PassRate
    from optrove.model.records import Counts
    from optrove.model.trove import RunProgress

SHORT_ID: Final = 12
"""The number of shown digits of an id; commands take any unique beginning."""

MORE: Final = " ..."
"""The end of a text that was cut."""

_US: Final = 1_000
_MS: Final = 1_000_000
_S: Final = 1_000_000_000
_PRECISE: Final = 100
_HOUR: Final = 60
_MAX_OPS: Final = 4
_MINUTE: Final = len("2026-01-02T03:04")


_CONTROL: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]"
)


def printable(text: str) -> str:
    """Return text in which what a terminal would act on is shown as an escape.

    Names, sources and messages come from troves of other people: such characters could rewrite the
    screen, turn the direction of text, or reach the clipboard.
    """
    return _CONTROL.sub(lambda each: ascii(each[0])[1:-1], text)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 case``, ``1,200 cases``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def place_text(kind: str, board: str | None) -> str:
    """Return where cases ran: ``mock n150``, ``hw``, or the target of torch."""
    if kind == DeviceKind.HOST.value:
        return TorchTarget.parse(board).words
    return kind if board is None else f"{kind} {board}"


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent; only all is 100%, and only nothing is 0%."""
    if not 0 < share < 1:
        return f"{share:.{digits}%}"
    step = 10**-digits
    return f"{min(max(100 * share, step), 100 - step):.{digits}f}%"


def rate_text(rate: PassRate, verb: str = "passed") -> str:
    """Return a pass rate in words: ``98.2% passed of 709 cases that ran``."""
    if rate.share is None:
        return "no case ran"
    return f"{percent(rate.share)} {verb} of {plural(rate.ran, 'case')} that ran"


def number(value: float) -> str:
    """Return a measured number; only 1 itself is shown as 1."""
    for digits in range(5, 18):
        text = f"{value:.{digits}g}"
        if float(text) != 1 or value == 1 or math.isnan(value):
            return text
    return repr(value)


def duration(ns: float) -> str:
    """Return a duration: ``340 us``, ``4.2 ms``, ``3:07 min``."""
    if ns < _US:
        return f"{ns:.0f} ns"
    for unit, name in ((_US, "us"), (_MS, "ms"), (_S, "s")):
        if ns < unit * (60 if unit == _S else 1000):
            return f"{ns / unit:.3g} {name}" if ns / unit < _PRECISE else f"{ns / unit:.0f} {name}"
    minutes, seconds = divmod(round(ns / _S), 60)
    if minutes < _HOUR:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // _HOUR}:{minutes % _HOUR:02} h"


def progress_text(progress: RunProgress) -> str:
    """Return the state of a run in words: ``incomplete, 14 of 355, interrupted``."""
    state = progress.state
    if progress.complete:
        return "complete"
    begin = "running" if state is RunState.RUNNING else "incomplete"
    counts = [] if progress.planned is None else [f"{progress.done:,} of {progress.planned:,}"]
    why = [] if begin == state.value else [state.value.replace("_", " ")]
    if state is RunState.UNKNOWN and progress.alive_at is not None:
        why.append(f"last sign of life {moment(progress.alive_at)} UTC")
    return ", ".join([begin, *counts, *why])


def moment(text: str) -> str:
    """Return a recorded time to the minute."""
    return text[:_MINUTE].replace("T", " ")


def clipped(text: str, longest: int) -> str:
    """Return ``text``, or as many of its first words as fit into ``longest``, and ``...``."""
    if len(text) <= longest:
        return text
    most = max(longest - len(MORE), 1)
    begin = text[:most]
    if not text[most].isspace():
        # A long word, such as a path, is cut too where little would be left without it.
        words = begin.rpartition(" ")[0]
        begin = words if 2 * len(words) >= most else begin
    return begin.rstrip() + MORE


def ops_text(counts: Counts) -> str:
    """Return some ops with their counts; a single one needs none."""
    if len(counts) == 1:
        return counts[0][0]
    shown = ", ".join(f"{count:,}x {op}" for op, count in counts[:_MAX_OPS])
    more = len(counts) - _MAX_OPS
    return f"{shown}, {more:,} more ops" if more > 0 else shown

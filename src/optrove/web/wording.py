"""How pages format counts, times, durations and texts."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, Final, overload
from urllib.parse import urlencode

_CUT: Final = 240
_SHORT_ID: Final = 12
_BASE: Final = 1000.0
_UNITS: Final = ("ns", "µs", "ms", "s")
_MINUTE: Final = 60
_HOUR: Final = 3600
# What draws nothing, or turns the text around it: control characters and marks of direction.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)


def plain(text: object, most: int = _CUT) -> str:
    """Return a text with visible escapes for what would not be seen, cut if it is long."""
    whole = "" if text is None else str(text)
    cut = whole if len(whole) <= most else f"{whole[:most]}\N{HORIZONTAL ELLIPSIS}"
    return _UNSEEN.sub(lambda found: f"\\x{ord(found.group()):02x}", cut)


@overload
def cut(text: str, most: int = 2000) -> str: ...


@overload
def cut(text: None, most: int = 2000) -> None: ...


def cut(text: str | None, most: int = 2000) -> str | None:
    """Return a text for JSON, shortened if it is very long."""
    if text is None or len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text):,} letters)"


def finite(number: float | None) -> float | None:
    """Return a number that JSON can express; None for infinities and NaN."""
    return number if number is not None and math.isfinite(number) else None


def count(number: float | None) -> str:
    """Return a whole number with its thousands apart."""
    return "" if number is None else f"{int(number):,}"


def short(text: str | None) -> str:
    """Return the beginning of an id."""
    return plain(text, 10_000)[:_SHORT_ID]


def moment(text: str | None) -> str:
    """Return a moment of a record as ``16 Nov 2026, 06:40``, and any other text unchanged."""
    try:
        then = datetime.fromisoformat((text or "").replace("Z", "+00:00"))
    except ValueError:
        return plain(text, 40)
    return f"{then.day} {_MONTHS[then.month - 1]} {then.year}, {then:%H:%M}"


def duration(nanoseconds: float | None) -> str:
    """Return how long something took, in the unit that fits: ``12.5 ms``."""
    if nanoseconds is None:
        return ""
    number = float(nanoseconds)
    for unit in _UNITS:
        if number < _BASE and unit != "s":
            return f"{_digits(number)} {unit}"
        if unit != "s":
            number /= _BASE
    if number < _MINUTE:
        return f"{_digits(number)} s"
    whole = int(number)
    if number < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


def share(part: float, whole: float) -> str:
    """Return a share as a percentage; only all is 100%, and only nothing is 0%."""
    if not whole:
        return ""
    if 0 < part < whole:
        return f"{min(max(round(part / whole * 100), 1), 99)}%"
    return f"{part / whole:.0%}"


def sizes(text: str | None) -> str:
    """Return ``1x1x32x64`` with proper signs between the sizes."""
    return plain(text, 80).replace("x", "\N{MULTIPLICATION SIGN}")


def pcc(number: float | None) -> str:
    """Return a PCC with five digits, without trailing zeros."""
    return "" if number is None else f"{number:.5f}".rstrip("0").rstrip(".")


def words(text: str) -> str:
    """Return a name of the data as words: ``out_of_memory`` is ``out of memory``."""
    return plain(text).replace("_", " ")


def address(path: str, **parameters: Any) -> str:
    """Return the address of a page with those parameters that are given."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


FILTERS: Final = {
    "plain": plain,
    "count": count,
    "short": short,
    "moment": moment,
    "duration": duration,
    "sizes": sizes,
    "pcc": pcc,
    "words": words,
}


def _digits(number: float) -> str:
    if number >= 100 or number == int(number):  # noqa: PLR2004 - three digits are enough
        return f"{number:.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"  # noqa: PLR2004 - likewise

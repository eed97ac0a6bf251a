"""How pages write texts: escaped, cut, and empty where nothing is known."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, overload
from urllib.parse import urlencode

from optrove.model.torch_target import TorchTarget
from optrove.report import wording
from optrove.report.attempts import TEST_TONES, TONES, WORDS
from optrove.report.document import IDLE
from optrove.trove.database import storable
from optrove.trove.derived import NONE

if TYPE_CHECKING:
    from collections.abc import Callable

_CUT: Final = 240
# What draws nothing, or turns the text around it: control characters and marks of direction.
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: object, most: int = _CUT) -> str:
    """Return a text with visible escapes for invisible characters, cut if it is long."""
    whole = "" if text is None else str(text)
    cut = whole if len(whole) <= most else f"{whole[:most]}\N{HORIZONTAL ELLIPSIS}"
    return _UNSEEN.sub(lambda found: f"\\x{ord(found.group()):02x}", cut)


@overload
def cut(text: str, most: int = 2000) -> str: ...


@overload
def cut(text: None, most: int = 2000) -> None: ...


def cut(text: str | None, most: int = 2000) -> str | None:
    """Return a text for JSON: without invalid characters, and shortened if it is very long."""
    if text is None:
        return None
    valid = storable(text)
    return valid if len(valid) <= most else f"{valid[:most]}... ({len(valid):,} characters)"


def finite(number: float | None) -> float | None:
    """Return a number that JSON can express; None for infinities and NaN."""
    return number if number is not None and math.isfinite(number) else None


def count(number: float | None) -> str:
    """Return a whole number with its thousands apart."""
    return "" if number is None else f"{int(number):,}"


def short(text: str | None) -> str:
    """Return the beginning of an id."""
    return plain(text, 10_000)[: wording.SHORT_ID]


def moment(text: str | None) -> str:
    """Return a recorded time to the minute."""
    return wording.moment(plain(text, 40))


def share(part: float, whole: float) -> str:
    """Return a share as a percentage, or an empty text for a share of nothing."""
    return wording.percent(part / whole, 0) if whole else ""


def sizes(text: str | None) -> str:
    """Return ``1x1x32x64`` with proper signs between the sizes."""
    return plain(text, 80).replace("x", "\N{MULTIPLICATION SIGN}")


def words(text: str) -> str:
    """Return a name of the data as words: ``numerics`` is ``wrong numbers``."""
    return plain(WORDS.get(text, text)).replace("_", " ")


def tone(outcome: str) -> str:
    """Return the tone of an outcome, which gives its color."""
    return (TONES | TEST_TONES).get(outcome, IDLE)


def torch_target(board: str | None) -> str:
    """Return where cases of torch ran; this is stored in the place of a board."""
    return plain(TorchTarget.parse(None if board in (None, NONE) else board).words, 48)


def address(path: str, **parameters: Any) -> str:
    """Return the address of a page with those parameters that are given."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _known(write: Callable[[float], str]) -> Callable[[float | None], str]:
    """Return a filter that writes a number, or an empty text for None."""
    return lambda number: "" if number is None else write(number)


FILTERS: Final = {
    "plain": plain,
    "count": count,
    "short": short,
    "moment": moment,
    "duration": _known(wording.duration),
    "sizes": sizes,
    "number": _known(wording.number),
    "torch_target": torch_target,
    "words": words,
    "tone": tone,
}

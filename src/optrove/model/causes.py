"""The cause of a failure: the line of a detail that states it, and its text without numbers."""

from __future__ import annotations

import re
from typing import Final

DIFFERS: Final = "not as recorded: "
"""The beginning of a line about a difference between the replayed and the recorded call."""

LOST_OBJECT: Final = "an object of "
"""The beginning of the text of a value that was not recorded, in such a line."""

_INFORMATION: Final = re.compile(r"^info:\s*$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last):"
_NUMBER: Final = re.compile(
    r"0x[0-9a-fA-F]+|-?\d{1,3}(?:,\d{3})+\b|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|-?\b(?:nan|inf)\b"
)
_INDEX: Final = re.compile(r"\(N(?:, N)*,?\)")
_PCC: Final = re.compile(rf"(\bPCC\b)\W{{1,3}}(?:{_NUMBER.pattern})", re.IGNORECASE)


def cause_in(detail: str | None) -> str | None:
    """Return the line of a failure's detail that states its cause."""
    given = (detail or "").splitlines()
    lines = [line.strip() for line in given if line.strip() and not line.startswith(DIFFERS)]
    if len(lines) > 1 and lines[1] == _TRACEBACK:
        # The last line of a Python traceback states the error.
        return f"{lines[0]} {lines[-1]}"
    return lines[0] if lines else None


def ttnn_problem(text: str) -> str | None:
    """Return the line of a ttnn exception that states the problem, below ``info:``.

    Above it is a place in ttnn's source, and a backtrace follows. None for other texts.
    """
    _, *message = _INFORMATION.split(text, maxsplit=1)
    lines = (line.strip() for part in message for line in part.splitlines())
    return next(filter(None, lines), None)


def error_line(text: str) -> str:
    """Return a recorded error as one line: the problem, then the place in ttnn that reports it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    problem = ttnn_problem(text)
    if problem is not None and problem not in lines[0]:
        kind, _, place = lines[0].partition(": ")
        return f"{kind}: {problem} ({place})"
    # The text of an exception may begin in a new line.
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def without_numbers(text: str) -> str:
    """Return a text with its numbers and indices replaced: the same for the same cause."""
    return _INDEX.sub("N", _NUMBER.sub("N", text))


def without_pcc(text: str) -> str:
    """Return a text without the values of PCC in it, which differ from case to case."""
    return _PCC.sub(r"\1", text)

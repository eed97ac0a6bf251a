"""Draw what a failing case was shrunk to, beside the original."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from optrove.report.attempts import VERDICTS, said
from optrove.report.describe import drawn_arguments
from optrove.report.runs import SHORT_ID
from optrove.report.tables import plural
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.case import Case
    from optrove.model.records import Attempt
    from optrove.serializer.text import Json

WIDTH: Final = 80
_INDENT: Final = "  "
_LINES: Final = 4


def shrunk_lines(original: Case, shrunk: Case, attempt: Attempt, steps: Sequence[str]) -> list[str]:
    """Return the original, the shrunk case, and the steps between them as lines."""
    cause = said(attempt).cause or "nothing was said"
    lines = [
        f"Operation: {original.op}",
        *textwrap.wrap(f"Fails: {VERDICTS[attempt.outcome]}: {cause}", WIDTH, max_lines=_LINES),
        "",
        *_case_lines("Original", original),
        "",
    ]
    if not steps:
        return [*lines, "Nothing simpler fails in the same way."]
    return [
        *lines,
        *_case_lines("Shrunk", shrunk),
        "",
        f"{plural(len(steps), 'step')} that mattered:",
        *(f"{_INDENT}{step}" for step in steps),
    ]


def _case_lines(title: str, case: Case) -> list[str]:
    arguments = drawn_arguments(case, WIDTH - len(_INDENT))
    return [
        f"{title}: case {placement_hash(case)[:SHORT_ID]}",
        *(_INDENT + line for line in arguments),
    ]


def shrunk_data(
    original: Case, shrunk: Case, attempt: Attempt, steps: Sequence[str]
) -> dict[str, Json]:
    """Return the same for machines; see ``optrove.cli.test`` for the keys."""
    return {
        "op": original.op,
        "case_id": placement_hash(original),
        "outcome": attempt.outcome.value,
        "cause": said(attempt).cause,
        "steps": list(steps),
        "original": _case_data(original),
        "shrunk": _case_data(shrunk),
    }


def _case_data(case: Case) -> dict[str, Json]:
    return {
        "case_id": placement_hash(case),
        "arguments": {name: encode(value) for name, value in case.arguments},
    }

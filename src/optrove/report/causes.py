"""Group what failed by its cause: the same op, outcome and first line of what was said."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.records import Outcome
from optrove.report.attempted import Attempted, said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json
    from optrove.model.records import Counts

# Sizes and addresses differ from case to case where the cause is one.
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")

UNSAID: Final = "nothing was said"


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases of one op that failed in the same way; ``example`` is the one with most calls."""

    op: str
    outcome: Outcome
    text: str
    count: int
    calls: int
    example: Attempted


def without_numbers(text: str) -> str:
    """Return what is said whatever the numbers in it: the same for the same cause."""
    return _NUMBER.sub("N", text)


def causes(attempts: Iterable[Attempted]) -> tuple[Cause, ...]:
    """Return why cases failed, by outcome, those with most cases first."""
    groups: dict[tuple[str, Outcome, str], list[Attempted]] = {}
    for each in attempts:
        if not each.passed:
            text = said(each.attempt).cause or UNSAID
            key = (each.case.op, each.attempt.outcome, without_numbers(text))
            groups.setdefault(key, []).append(each)
    found = [_cause(op, outcome, each) for (op, outcome, _), each in groups.items()]
    order = list(Outcome)
    return tuple(
        sorted(found, key=lambda one: (order.index(one.outcome), -one.count, one.op, one.text))
    )


def _cause(op: str, outcome: Outcome, group: list[Attempted]) -> Cause:
    example = max(group, key=lambda each: (each.calls or 0, each.attempt.case_id))
    return Cause(
        op=op,
        outcome=outcome,
        text=said(example.attempt).cause or UNSAID,
        count=len(group),
        calls=sum(each.calls or 0 for each in group),
        example=example,
    )


def cause_data(cause: Cause, command: str | None) -> dict[str, Json]:
    """Return a cause for machines; ``command`` replays the example, if any does."""
    return {
        "op": cause.op,
        "outcome": cause.outcome.value,
        "cause": cause.text,
        "cases": cause.count,
        "calls": cause.calls,
        "example": cause.example.attempt.case_id,
        "command": command,
    }


def supplied(attempts: Iterable[Attempted]) -> Counts:
    """Return what was supplied or left uncompared in cases that ran, and how often."""
    counted: Counter[str] = Counter()
    for each in attempts:
        counted.update(set(said(each.attempt).notes))
    return tuple(counted.most_common())


def differing(attempts: Iterable[Attempted]) -> int:
    """Return how many calls that ran were not quite the recorded ones."""
    return sum(bool(said(each.attempt).differences) for each in attempts)

"""Group what failed by its cause: the same op, outcome and first line of what was said."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from optrove.model.records import Outcome
from optrove.report.attempts import said

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Attempt, Counts
    from optrove.serializer.text import Json

# Sizes and addresses differ from case to case where the cause is one.
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")

UNSAID: Final = "nothing was said"


class Tried(Protocol):
    """A case that was executed, in whatever form."""

    @property
    def op(self) -> str:
        """The operation."""

    @property
    def attempt(self) -> Attempt:
        """What came of it."""

    @property
    def calls(self) -> int | None:
        """How often it was called where it was recorded."""

    @property
    def passed(self) -> bool:
        """Tell whether all is well."""


T = TypeVar("T", bound=Tried)


@dataclass(frozen=True, slots=True)
class Cause(Generic[T]):
    """Cases of one op that failed in the same way; ``example`` is the one with most calls.

    ``case_ids`` are all of them, those with most calls first.
    """

    op: str
    outcome: Outcome
    text: str
    calls: int
    example: T
    case_ids: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many cases there are."""
        return len(self.case_ids)


def without_numbers(text: str) -> str:
    """Return what is said whatever the numbers in it: the same for the same cause."""
    return _NUMBER.sub("N", text)


def causes(attempts: Iterable[T]) -> tuple[Cause[T], ...]:
    """Return why cases failed, by outcome, those with most cases first."""
    groups: dict[tuple[str, Outcome, str], list[T]] = {}
    for each in attempts:
        if not each.passed:
            text = said(each.attempt).cause or UNSAID
            key = (each.op, each.attempt.outcome, without_numbers(text))
            groups.setdefault(key, []).append(each)
    found = [_cause(op, outcome, each) for (op, outcome, _), each in groups.items()]
    order = list(Outcome)
    return tuple(
        sorted(found, key=lambda one: (order.index(one.outcome), -one.count, one.op, one.text))
    )


def _cause(op: str, outcome: Outcome, group: list[T]) -> Cause[T]:
    ranked = sorted(group, key=lambda each: (each.calls or 0, each.attempt.case_id), reverse=True)
    return Cause(
        op=op,
        outcome=outcome,
        text=said(ranked[0].attempt).cause or UNSAID,
        calls=sum(each.calls or 0 for each in group),
        example=ranked[0],
        case_ids=tuple(each.attempt.case_id for each in ranked),
    )


def by_text(found: Sequence[Cause[T]]) -> list[list[Cause[T]]]:
    """Return the causes with those together that say the same of several ops."""
    groups: dict[tuple[Outcome, str], list[Cause[T]]] = {}
    for cause in found:
        groups.setdefault((cause.outcome, without_numbers(cause.text)), []).append(cause)
    order = list(Outcome)
    return sorted(
        groups.values(),
        key=lambda group: (
            order.index(group[0].outcome),
            -sum(each.count for each in group),
            group[0].text,
        ),
    )


def cause_data(cause: Cause[T], command: str | None) -> dict[str, Json]:
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


def supplied(attempts: Iterable[Tried]) -> Counts:
    """Return what was supplied or left uncompared in cases that ran, and how often."""
    counted: Counter[str] = Counter()
    for each in attempts:
        counted.update(set(said(each.attempt).notes))
    return tuple(counted.most_common())


def differing(attempts: Iterable[Tried]) -> int:
    """Return how many calls that ran were not quite the recorded ones."""
    return sum(bool(said(each.attempt).differences) for each in attempts)

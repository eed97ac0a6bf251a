"""A case that was executed, with what is known of it, and the parts of what is said about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.codec.wire import encode
from optrove.model.records import Outcome
from optrove.model.values import Float

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json
    from optrove.model.case import Case
    from optrove.model.records import Attempt, Measurement

DIFFERS: Final = "not as recorded: "
"""How a line begins that tells in what a replayed call differs from the recorded one."""

_WORDS: Final = (Outcome.PASSED, Outcome.NUMERICS, Outcome.WRONG_SPEC)
"""Outcomes about which nothing but whole lines of our own is said."""


@dataclass(frozen=True, slots=True)
class Attempted:
    """One execution of a recorded case; ``raised`` is what it raised when it was recorded."""

    case: Case
    attempt: Attempt
    calls: int | None = None
    recorded_on: str | None = None
    raised: str | None = None

    @property
    def passed(self) -> bool:
        """Tell whether all is well."""
        return self.attempt.outcome is Outcome.PASSED


@dataclass(frozen=True, slots=True)
class Said:
    """What an Attempt says: what is wrong in a line, all of it, what was supplied, what differs.

    What failed in the words of ttnn is followed by what was supplied, and not taken apart:
    ``notes`` is then empty, and ``words`` has both.
    """

    cause: str | None = None
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def said(attempt: Attempt) -> Said:
    """Return what an Attempt says, by its parts."""
    lines = (attempt.detail or "").splitlines()
    differences = tuple(line[len(DIFFERS) :] for line in lines if line.startswith(DIFFERS))
    rest = tuple(line for line in lines if not line.startswith(DIFFERS))
    if attempt.outcome is Outcome.PASSED:
        return Said(notes=rest, differences=differences)
    cause = next((line.strip() for line in rest if line.strip()), None)
    if attempt.outcome in _WORDS:
        return Said(cause, notes=rest[1:], differences=differences)
    return Said(cause, words=rest[1:], differences=differences)


def is_as_recorded(attempt: Attempt) -> bool:
    """Tell whether the call, as it was traced while it ran, was the recorded one.

    An argument that was recorded by its place only has got its name, and with it another hash.
    """
    return attempt.replayed_case_id is not None and not said(attempt).differences


def counts_of(attempts: Iterable[Attempted]) -> dict[str, int]:
    """Return how many had which outcome, in the order of outcomes; their sum is all of them."""
    counted = Counter(each.attempt.outcome for each in attempts)
    return {outcome.value: counted[outcome] for outcome in Outcome if counted[outcome]}


def attempted_data(attempted: Attempted) -> dict[str, Json]:
    """Return an execution for machines; see ``optrove.cli_replay`` for the keys."""
    attempt, parts = attempted.attempt, said(attempted.attempt)
    return {
        "op": attempted.case.op,
        "case_id": attempt.case_id,
        "outcome": attempt.outcome.value,
        "cause": parts.cause,
        "detail": attempt.detail,
        "outputs": [encode(value) for value in attempt.outputs],
        "measurements": [measurement_data(each) for each in attempt.measurements],
        "as_recorded": is_as_recorded(attempt),
        "replayed_case_id": attempt.replayed_case_id,
        "differences": list(parts.differences),
        "device": attempt.device_kind.value,
        "board": attempt.board,
        "seed": attempt.seed,
        "run_id": attempt.run_id,
        "started_at": attempt.started_at,
        "duration_ns": attempt.duration_ns,
        "calls": attempted.calls,
        "recorded_on": attempted.recorded_on,
        "recorded_error": attempted.raised,
    }


def measurement_data(measurement: Measurement) -> dict[str, Json]:
    """Return a measurement for machines; what JSON has no number for is {"$float": name}."""
    threshold = measurement.threshold
    return {
        "name": measurement.name,
        "value": encode(Float(measurement.value)),
        "threshold": None if threshold is None else encode(Float(threshold)),
        "passed": measurement.passed,
        "output": measurement.output,
    }

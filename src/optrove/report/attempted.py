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

BACKTRACE: Final = "backtrace:"
"""The line after which ttnn tells where in its own code it was."""

_TRACEBACK: Final = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class Attempted:
    """One execution of a recorded case; ``raised`` is what it raised when it was recorded."""

    case: Case
    attempt: Attempt
    calls: int | None = None
    recorded_on: str | None = None
    raised: str | None = None

    @property
    def op(self) -> str:
        """The operation."""
        return self.case.op

    @property
    def passed(self) -> bool:
        """Tell whether all is well."""
        return self.attempt.outcome is Outcome.PASSED


@dataclass(frozen=True, slots=True)
class Said:
    """What an Attempt says: what is wrong in a line, the rest, what was supplied, what differs."""

    cause: str | None = None
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def said(attempt: Attempt) -> Said:
    """Return what an Attempt says, by its parts.

    Those that troves of version 1 have kept have their notes among the lines of their detail.
    """
    lines = (attempt.detail or "").splitlines()
    every = (*lines, *attempt.notes)
    differences = tuple(line[len(DIFFERS) :] for line in every if line.startswith(DIFFERS))
    words = tuple(line for line in lines if not line.startswith(DIFFERS))
    notes = tuple(dict.fromkeys(each for each in attempt.notes if not each.startswith(DIFFERS)))
    if attempt.outcome is Outcome.PASSED:
        return Said(notes=(*words, *notes), differences=differences)
    return Said(cause_in(attempt.detail), words[1:], notes, differences)


def cause_in(detail: str | None) -> str | None:
    """Return what is wrong in a line, from what was said when something failed."""
    told = (detail or "").splitlines()
    lines = [line.strip() for line in told if line.strip() and not line.startswith(DIFFERS)]
    if len(lines) > 1 and lines[1] == _TRACEBACK:
        # What Python says about a fault comes last.
        return f"{lines[0]} {lines[-1]}"
    return lines[0] if lines else None


def is_as_recorded(attempt: Attempt) -> bool:
    """Tell whether the call, as it was traced while it ran, was the recorded one.

    An argument that was recorded by its place only has got its name, and with it another hash.
    """
    return attempt.replayed_case_id is not None and not said(attempt).differences


def counts_of(attempts: Iterable[Attempted]) -> dict[str, int]:
    """Return how many had which outcome, in the order of outcomes; their sum is all of them."""
    return tally(each.attempt.outcome for each in attempts)


def tally(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return how many there are of each outcome, in their order; none has no entry."""
    counted = Counter(outcomes)
    return {outcome.value: counted[outcome] for outcome in Outcome if counted[outcome]}


def attempted_data(attempted: Attempted) -> dict[str, Json]:
    """Return an execution for machines; see ``optrove.cli_replay`` for the keys."""
    return {
        **attempt_data(attempted.op, attempted.attempt),
        "calls": attempted.calls,
        "recorded_on": attempted.recorded_on,
        "recorded_error": attempted.raised,
    }


def attempt_data(op: str, attempt: Attempt) -> dict[str, Json]:
    """Return what came of a case for machines, without what is known of its recording."""
    parts = said(attempt)
    return {
        "op": op,
        "case_id": attempt.case_id,
        "outcome": attempt.outcome.value,
        "cause": parts.cause,
        "detail": attempt.detail,
        "notes": list(parts.notes),
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

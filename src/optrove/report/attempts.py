"""Executed cases: their verdicts, remarks and causes, and the commands that rerun them."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from optrove.model.ops import VECTORS
from optrove.model.records import DeviceKind, Outcome
from optrove.model.values import Float
from optrove.report.wording import SHORT_ID
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.case import Case
    from optrove.model.records import Attempt, Counts, Measurement, SweepModule
    from optrove.serializer.text import Json


VERDICTS: Final = {
    Outcome.PASSED: "passed",
    Outcome.NUMERICS: "wrong numbers",
    Outcome.WRONG_SPEC: "other output than recorded",
    Outcome.REJECTED: "rejected",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.RAISED: "raised",
    Outcome.HUNG: "hung",
    Outcome.CRASHED: "crashed",
    Outcome.NOT_RUN: "not run",
}
"""Outcomes in words."""


DIFFERS: Final = "not as recorded: "
"""The beginning of a line about a difference between the replayed and the recorded call."""

BACKTRACE: Final = "backtrace:"
"""The line before the backtrace of ttnn."""

_TRACEBACK: Final = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True)
class Attempted:
    """One execution of a recorded case; ``raised`` is the error that was recorded with it."""

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
        """Whether the case passed."""
        return self.attempt.outcome is Outcome.PASSED


@dataclass(frozen=True, slots=True)
class Remarks:
    """The parts of an Attempt's detail: the cause in a line, further words, notes, differences."""

    cause: str | None = None
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def remarks_of(attempt: Attempt) -> Remarks:
    """Return the remarks of an Attempt; of one that passed, the detail is notes."""
    lines = (attempt.detail or "").splitlines()
    every = (*lines, *attempt.notes)
    differences = tuple(line[len(DIFFERS) :] for line in every if line.startswith(DIFFERS))
    words = tuple(line for line in lines if not line.startswith(DIFFERS))
    notes = tuple(dict.fromkeys(each for each in attempt.notes if not each.startswith(DIFFERS)))
    if attempt.outcome is Outcome.PASSED:
        return Remarks(notes=(*words, *notes), differences=differences)
    return Remarks(cause_in(attempt.detail), words[1:], notes, differences)


def cause_in(detail: str | None) -> str | None:
    """Return the line of a failure's detail that states its cause."""
    given = (detail or "").splitlines()
    lines = [line.strip() for line in given if line.strip() and not line.startswith(DIFFERS)]
    if len(lines) > 1 and lines[1] == _TRACEBACK:
        # The last line of a Python traceback states the error.
        return f"{lines[0]} {lines[-1]}"
    return lines[0] if lines else None


def is_as_recorded(attempt: Attempt) -> bool:
    """Return whether the call, as traced while it ran, was the recorded one.

    A replay names positional arguments, which changes the hash and is no difference.
    """
    return attempt.replayed_case_id is not None and not remarks_of(attempt).differences


def counts_of(attempts: Iterable[Attempted]) -> dict[str, int]:
    """Return the number of attempts by outcome, in the order of outcomes."""
    return tally(each.attempt.outcome for each in attempts)


def tally(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """Return the count of each outcome, in their order; zeros are left out."""
    counted = Counter(outcomes)
    return {outcome.value: counted[outcome] for outcome in Outcome if counted[outcome]}


def attempted_data(attempted: Attempted) -> dict[str, Json]:
    """Return an execution; ``optrove.cli.replay`` describes the keys."""
    return {
        **attempt_data(attempted.op, attempted.attempt),
        "calls": attempted.calls,
        "recorded_on": attempted.recorded_on,
        "recorded_error": attempted.raised,
    }


def attempt_data(op: str, attempt: Attempt) -> dict[str, Json]:
    """Return the result of a case, without the facts of its recording."""
    remarks = remarks_of(attempt)
    return {
        "op": op,
        "case_id": attempt.case_id,
        "outcome": attempt.outcome.value,
        "cause": remarks.cause,
        "detail": attempt.detail,
        "notes": list(remarks.notes),
        "outputs": [encode(value) for value in attempt.outputs],
        "measurements": [measurement_data(each) for each in attempt.measurements],
        "as_recorded": is_as_recorded(attempt),
        "replayed_case_id": attempt.replayed_case_id,
        "differences": list(remarks.differences),
        "device": attempt.device_kind.value,
        "board": attempt.board,
        "seed": attempt.seed,
        "run_id": attempt.run_id,
        "started_at": attempt.started_at,
        "duration_ns": attempt.duration_ns,
    }


def measurement_data(measurement: Measurement) -> dict[str, Json]:
    """Return a measurement; a float that JSON cannot hold is {"$float": name}."""
    threshold = measurement.threshold
    return {
        "name": measurement.name,
        "value": encode(Float(measurement.value)),
        "threshold": None if threshold is None else encode(Float(threshold)),
        "passed": measurement.passed,
        "output": measurement.output,
    }


# Sizes and addresses differ between cases with the same cause.
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")

UNSAID: Final = "nothing was said"


class Executed(Protocol):
    """An executed case."""

    @property
    def op(self) -> str:
        """The operation."""

    @property
    def attempt(self) -> Attempt:
        """The attempt."""

    @property
    def calls(self) -> int | None:
        """The number of recorded calls."""

    @property
    def passed(self) -> bool:
        """Whether it passed, or failed as expected."""


T = TypeVar("T", bound=Executed)


@dataclass(frozen=True, slots=True)
class Cause(Generic[T]):
    """Cases of one op that failed in the same way; ``example`` has the most calls.

    ``case_ids`` are all of them, most calls first.
    """

    op: str
    outcome: Outcome
    text: str
    calls: int
    example: T
    case_ids: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of cases."""
        return len(self.case_ids)


def without_numbers(text: str) -> str:
    """Return a text with its numbers replaced: the same for the same cause."""
    return _NUMBER.sub("N", text)


def causes(attempts: Iterable[T]) -> tuple[Cause[T], ...]:
    """Return the causes of failures, by outcome, those with most cases first."""
    groups: dict[tuple[str, Outcome, str], list[T]] = {}
    for each in attempts:
        if not each.passed:
            text = remarks_of(each.attempt).cause or UNSAID
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
        text=remarks_of(ranked[0].attempt).cause or UNSAID,
        calls=sum(each.calls or 0 for each in group),
        example=ranked[0],
        case_ids=tuple(each.attempt.case_id for each in ranked),
    )


def by_text(found: Sequence[Cause[T]]) -> list[list[Cause[T]]]:
    """Return the causes, grouped where several ops fail with the same text."""
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
    """Return a cause; ``command`` replays the example."""
    return {
        "op": cause.op,
        "outcome": cause.outcome.value,
        "cause": cause.text,
        "cases": cause.count,
        "calls": cause.calls,
        "example": cause.example.attempt.case_id,
        "command": command,
    }


def supplied(attempts: Iterable[Executed]) -> Counts:
    """Return the notes about supplied or uncompared parts, with the number of cases."""
    counted: Counter[str] = Counter()
    for each in attempts:
        counted.update(set(remarks_of(each.attempt).notes))
    return tuple(counted.most_common())


def differing(attempts: Iterable[Executed]) -> int:
    """Return the number of calls that differed from the recorded ones."""
    return sum(bool(remarks_of(each.attempt).differences) for each in attempts)


def replay_command(attempt: Attempt, store: str | None = None) -> str:
    """Return the command that replays a case of a trove on the same device."""
    return shlex.join(
        ["optrove", "replay", attempt.case_id[:SHORT_ID], *_device_options(attempt, store)]
    )


def rerun_command(
    op: str, attempt: Attempt, modules: Iterable[SweepModule] = (), store: str | None = None
) -> str:
    """Return the command that reruns a case or a vector; ``modules`` are those of the sweep."""
    if not op.startswith(VECTORS):
        return replay_command(attempt, store)
    name = op.removeprefix(VECTORS)
    paths = [each.path for each in modules if name.startswith(f"{each.name}.")]
    module = paths[0] if paths else name.rpartition(".")[0]
    words = ["optrove", "sweep", module, "--vector-id", attempt.case_id[:SHORT_ID]]
    return shlex.join([*words, *_device_options(attempt, store)])


def _device_options(attempt: Attempt, store: str | None) -> list[str]:
    words: list[str] = []
    if attempt.device_kind in (DeviceKind.SHADOW, DeviceKind.HARDWARE):
        words += ["--device", attempt.device_kind.value]
    if attempt.board is not None:
        words += ["--board", attempt.board]
    return words if store is None else [*words, "--store", store]

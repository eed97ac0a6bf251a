"""Executed cases: their verdicts, remarks and causes, and the commands that rerun them."""

from __future__ import annotations

import math
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.causes import DIFFERS, LOST_OBJECT, without_numbers, without_pcc
from optrove.model.ops import VECTORS, is_vector
from optrove.model.records import (
    BESIDE,
    HARMLESS,
    NOT_ATTEMPTED,
    REFUSED,
    VALUES_OF,
    DeviceKind,
    Outcome,
    TestOutcome,
)
from optrove.model.torch_target import TorchTarget
from optrove.model.values import Float
from optrove.report.document import BAD, GOOD, IDLE, ODD
from optrove.report.wording import SHORT_ID
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Attempt, AttemptedCase, Counts, Measurement, SweepModule
    from optrove.serializer.text import Json


VERDICTS: Final = {
    Outcome.PASSED: "passed",
    Outcome.NUMERICS: "wrong numbers",
    Outcome.WRONG_SPEC: "other output than recorded",
    Outcome.REJECTED: "rejected",
    Outcome.COMPILE_FAILED: "kernel does not compile",
    Outcome.OUT_OF_MEMORY: "out of memory",
    Outcome.RAISED: "raised",
    Outcome.HUNG: "hung",
    Outcome.CRASHED: "crashed",
    Outcome.NOT_RUN: "not run",
}
"""Outcomes in words."""

XFAILED: Final = TestOutcome.XFAILED.value
XPASSED: Final = TestOutcome.XPASSED.value
WORDS: Final = {
    **{outcome.value: words for outcome, words in VERDICTS.items()},
    NOT_ATTEMPTED: "not attempted",
    XFAILED: "failed as expected",
    XPASSED: "passed unexpectedly",
}
"""Outcomes and other states of cases, in words."""

TONES: Final = {
    Outcome.PASSED.value: GOOD,
    XFAILED: GOOD,
    XPASSED: ODD,
    **{each.value: BAD for each in Outcome if each not in (Outcome.PASSED, Outcome.NOT_RUN)},
    Outcome.NOT_RUN.value: IDLE,
    NOT_ATTEMPTED: IDLE,
}
TEST_TONES: Final = {
    TestOutcome.PASSED.value: GOOD,
    TestOutcome.FAILED.value: BAD,
    TestOutcome.ERROR.value: BAD,
    TestOutcome.UNFINISHED.value: BAD,
    XPASSED: ODD,
    XFAILED: GOOD,
    TestOutcome.SKIPPED.value: IDLE,
}
"""The tones of outcomes of cases and of tests, which give their colors in reports and on pages."""

BACKTRACE: Final = "backtrace:"
"""The line before the backtrace of ttnn."""


@dataclass(frozen=True, slots=True)
class Remarks:
    """An Attempt's detail besides its cause: further words, notes, and differences."""

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
    return Remarks(words[1:], notes, differences)


def is_as_recorded(attempt: Attempt) -> bool:
    """Return whether the call, as traced while it ran, was the recorded one.

    A replay names positional arguments, which changes the hash but is not a difference.
    """
    return attempt.replayed_case_id is not None and not remarks_of(attempt).differences


def lowest_pcc(attempt: Attempt) -> float | None:
    """Return the worst PCC of an Attempt; NaN is the worst."""
    found = [each.value for each in attempt.measurements if each.name == "pcc"]
    return next((value for value in found if math.isnan(value)), min(found, default=None))


def counts_of(attempts: Iterable[Attempt], waiting: int = 0) -> dict[str, int]:
    """Return the number of attempts by outcome, in the order of outcomes; zeros are left out.

    ``waiting`` cases were not attempted, besides those whose attempt came to no end.
    """
    counted = Counter(each.counted_as for each in attempts)
    counted[NOT_ATTEMPTED] += waiting
    names = (*(outcome.value for outcome in Outcome), NOT_ATTEMPTED)
    return {name: counted[name] for name in names if counted[name]}


def attempted_data(attempted: AttemptedCase) -> dict[str, Json]:
    """Return the result of a replayed case; ``docs/command-line.md`` describes the keys."""
    data = {
        **attempt_data(attempted),
        "calls": attempted.calls,
        "recorded_on": attempted.recorded_on,
        "recorded_error": attempted.raised,
    }
    if attempted.scaled_from:
        data |= {"as_recorded": False, "scaled_from": list(attempted.scaled_from)}
    return data


def attempt_data(attempted: AttemptedCase) -> dict[str, Json]:
    """Return the result of a case, without the facts of its recording."""
    attempt = attempted.attempt
    remarks = remarks_of(attempt)
    return {
        "op": attempted.op,
        "case_id": attempt.case_id,
        "outcome": attempt.outcome.value,
        "cause": attempt.cause,
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


UNSAID: Final = "no message"
"""The cause of a failure without a message."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Cases of one op that failed in the same way; ``example`` has the most calls.

    ``case_ids`` are all of them, most calls first. ``text`` is the cause of the example, without
    its PCC, which differs from case to case.
    """

    op: str
    outcome: Outcome
    text: str
    calls: int
    example: AttemptedCase
    case_ids: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of cases."""
        return len(self.case_ids)


def causes(attempts: Iterable[AttemptedCase]) -> tuple[Cause, ...]:
    """Return the causes of failures, by outcome, those with most cases first."""
    groups: dict[tuple[str, Outcome, str], list[AttemptedCase]] = {}
    for each in attempts:
        if not each.passed and each.attempt.is_whole:
            text = each.attempt.cause or UNSAID
            key = (each.op, each.attempt.outcome, without_numbers(text))
            groups.setdefault(key, []).append(each)
    found = [_cause(op, outcome, each) for (op, outcome, _), each in groups.items()]
    order = list(Outcome)
    return tuple(
        sorted(found, key=lambda one: (order.index(one.outcome), -one.count, one.op, one.text))
    )


def _cause(op: str, outcome: Outcome, group: list[AttemptedCase]) -> Cause:
    ranked = sorted(group, key=lambda each: (each.calls or 0, each.attempt.case_id), reverse=True)
    return Cause(
        op=op,
        outcome=outcome,
        text=without_pcc(ranked[0].attempt.cause or UNSAID),
        calls=sum(each.calls or 0 for each in group),
        example=ranked[0],
        case_ids=tuple(each.attempt.case_id for each in ranked),
    )


def by_text(found: Sequence[Cause]) -> list[list[Cause]]:
    """Return the causes, grouped where several ops fail with the same text."""
    groups: dict[tuple[Outcome, str], list[Cause]] = {}
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


def cause_data(cause: Cause, command: str | None) -> dict[str, Json]:
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


_KINDS: Final = {
    VALUES_OF: "recorded values",
    BESIDE: "beside the other tensors of a run, when they took the most L1",
}
"""By its beginning, the words for all notes of a kind."""


def supplied(attempts: Iterable[AttemptedCase]) -> Counts:
    """Return the notes about supplied or uncompared parts, with the number of cases."""
    counted: Counter[str] = Counter()
    for each in attempts:
        counted.update(set(remarks_of(each.attempt).notes))
    return tuple(counted.most_common())


def worth_telling(attempts: Iterable[AttemptedCase]) -> Counts:
    """Return the notes of ``supplied`` that are neither harmless nor part of a rejection.

    Recorded values of different calls count together, and so do the tensors of other calls.
    """
    counted: Counter[str] = Counter()
    for text, count in supplied(attempts):
        if not text.startswith((HARMLESS, REFUSED)):
            kinds = (kind for beginning, kind in _KINDS.items() if text.startswith(beginning))
            counted[next(kinds, text)] += count
    return tuple(counted.most_common())


def refusals(group: Iterable[Cause]) -> tuple[str, ...]:
    """Return the notes about tensors that were refused, of the examples of some causes."""
    notes = (note for each in group for note in remarks_of(each.example.attempt).notes)
    return tuple(dict.fromkeys(note for note in notes if note.startswith(REFUSED)))


def told_differences(attempts: Iterable[AttemptedCase]) -> Counts:
    """Return the differences between replayed and recorded calls, each with a number of cases.

    They are grouped by argument, with one example. The notes tell about values that were not
    recorded, and about arguments that were left out.
    """
    counted: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for each in attempts:
        for line in remarks_of(each.attempt).differences:
            place, _, values = line.partition(_RECORDED)
            if not values.startswith(LOST_OBJECT) and not _LEFT_OUT.search(line):
                counted[place] += 1
                examples.setdefault(place, line)
    return tuple((DIFFERS + examples[place], count) for place, count in counted.most_common())


_RECORDED: Final = ": recorded "
_LEFT_OUT: Final = re.compile(r"^argument arg\d+: .*, replayed without$")


def is_beside(attempt: Attempt) -> bool:
    """Return whether a case ran beside the other tensors of a run."""
    return any(note.startswith(BESIDE) for note in attempt.notes)


def replay_command(attempt: Attempt, store: str | None = None) -> str:
    """Return the command that replays a case of a trove on the same device, with such values."""
    words = ["optrove", "replay", attempt.case_id[:SHORT_ID]]
    if any(note.startswith(VALUES_OF) for note in attempt.notes):
        words += ["--values", "capsule"]
    if is_beside(attempt):
        words.append("--residency")
    return shlex.join([*words, *_device_options(attempt, store)])


def rerun_command(
    attempted: AttemptedCase, modules: Iterable[SweepModule] = (), store: str | None = None
) -> str:
    """Return the command that reruns a case or a vector; ``modules`` are those of the sweep."""
    attempt = attempted.attempt
    if not is_vector(attempted.op):
        return replay_command(attempt, store)
    name = attempted.op.removeprefix(VECTORS)
    paths = [each.path for each in modules if name.startswith(f"{each.name}.")]
    module = paths[0] if paths else name.rpartition(".")[0]
    words = ["optrove", "sweep", module, "--vector-id", attempt.case_id[:SHORT_ID]]
    return shlex.join([*words, *_device_options(attempt, store)])


def _device_options(attempt: Attempt, store: str | None) -> list[str]:
    words: list[str] = []
    if attempt.device_kind not in (DeviceKind.MOCK, DeviceKind.HOST):
        words += ["--device", attempt.device_kind.value]
    if attempt.device_kind is DeviceKind.HOST:
        words += TorchTarget.parse(attempt.board).options()
    elif attempt.board is not None:
        words += ["--board", attempt.board]
    return words if store is None else [*words, "--store", store]

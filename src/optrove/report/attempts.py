"""Executed cases: their results as blocks and tables, and commands to rerun them."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from optrove.model.ops import VECTORS
from optrove.model.records import DeviceKind, Outcome
from optrove.model.values import Float
from optrove.report.describe import drawn, drawn_arguments, folded
from optrove.report.runs import SHORT_ID
from optrove.report.tables import MORE, Column, clipped, plural, table_lines, wrapped
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.case import Case
    from optrove.model.records import Attempt, Measurement, SweepModule
    from optrove.serializer.text import Json


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
    """Return an execution for machines; see ``optrove.cli.replay`` for the keys."""
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


WIDTH: Final = 80
_INDENT: Final = "  "
_MOST_WORDS: Final = 12
_INFO: Final = "info:"
_COLUMNS: Final = (
    Column("op", flexible=True),
    Column("case"),
    Column("calls", right=True),
    Column("verdict"),
    Column("pcc", right=True),
    Column("as recorded"),
    Column("why", flexible=True, prose=True),
)
_LONGEST_CAUSE: Final = 100
_WHOLE: Final = 'reasons that end in "..." are whole in "optrove replay CASE" and in --json'

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


def attempt_lines(attempted: Attempted) -> list[str]:
    """Return one execution as a block of lines."""
    attempt = attempted.attempt
    calls = "" if attempted.calls is None else f", {plural(attempted.calls, 'call')} recorded"
    body = [
        *drawn_arguments(attempted.case, WIDTH - len(_INDENT)),
        *_output_lines(attempt),
        f"verdict: {VERDICTS[attempt.outcome]}{_duration(attempt)}{_seed(attempt)}",
        *_measurement_lines(attempt.measurements),
        *_said_lines(attempt),
        *_replay_lines(attempt),
    ]
    if attempted.raised is not None:
        body += _wrapped("when it was recorded, it raised: ", attempted.raised.splitlines()[0])
    heading = f"{attempted.case.op}: case {attempt.case_id[:SHORT_ID]}{calls}"
    return [heading, *(_INDENT + line for line in body)]


def attempts_lines(attempts: Sequence[Attempted], width: int | None = None) -> list[str]:
    """Return many executions as a table, what failed first, and a line that sums them up."""
    order = list(Outcome)
    ranked = sorted(
        attempts,
        key=lambda each: (-order.index(each.attempt.outcome), -(each.calls or 0), each.case.op),
    )
    lines = table_lines(_COLUMNS, map(_cells, ranked), width)
    whole = [_WHOLE] if any(line.endswith(MORE) for line in lines) else []
    return [*lines, "", counts_line(attempts), *whole]


def counts_line(attempts: Iterable[Attempted]) -> str:
    """Return how many executions ended how: ``5 cases: 3 passed, 2 rejected``."""
    counts = counts_of(attempts)
    told = ", ".join(f"{count:,} {VERDICTS[Outcome(name)]}" for name, count in counts.items())
    return f"{plural(sum(counts.values()), 'case')}: {told}"


def _cells(attempted: Attempted) -> tuple[str, ...]:
    attempt = attempted.attempt
    ran = attempt.replayed_case_id is not None
    cause = said(attempt).cause or ""
    return (
        attempted.case.op,
        attempt.case_id[:SHORT_ID],
        "" if attempted.calls is None else f"{attempted.calls:,}",
        VERDICTS[attempt.outcome],
        _lowest_pcc(attempt.measurements),
        ("yes" if is_as_recorded(attempt) else "no") if ran else "",
        clipped(cause, _LONGEST_CAUSE),
    )


def _lowest_pcc(measurements: Iterable[Measurement]) -> str:
    found = [each.value for each in measurements if each.name == "pcc"]
    # A NaN is the worst that can be found, and compares as nothing.
    worst = next((value for value in found if math.isnan(value)), min(found, default=None))
    return "" if worst is None else number(worst)


def number(value: float) -> str:
    """Return a measured number as people read it; one that is not 1 never looks like it."""
    for digits in range(5, 18):
        text = f"{value:.{digits}g}"
        if float(text) != 1 or value == 1 or math.isnan(value):
            return text
    return repr(value)


def _output_lines(attempt: Attempt) -> list[str]:
    lines: list[str] = []
    for place, value in enumerate(attempt.outputs):
        label = "output: " if len(attempt.outputs) == 1 else f"output {place}: "
        lines += folded(label, drawn(value), WIDTH - len(_INDENT))
    return lines


def _duration(attempt: Attempt) -> str:
    return "" if attempt.duration_ns is None else f", {attempt.duration_ns / 1e6:.1f} ms"


def _seed(attempt: Attempt) -> str:
    filled = attempt.device_kind is not DeviceKind.MOCK
    return f", seed {attempt.seed}" if filled and attempt.outcome is not Outcome.NOT_RUN else ""


def _measurement_lines(measurements: Sequence[Measurement]) -> list[str]:
    several = len({each.output for each in measurements}) > 1
    return [
        f"{each.name}{f' of output {each.output}' if several else ''}: {number(each.value)}"
        f"{_bound(each)}"
        for each in measurements
    ]


def _bound(measurement: Measurement) -> str:
    if measurement.threshold is None:
        return ""
    return f" ({'' if measurement.passed else 'not '}at least {measurement.threshold:g})"


def _said_lines(attempt: Attempt) -> list[str]:
    parts = said(attempt)
    lines = [] if parts.cause is None else _wrapped("because: ", parts.cause)
    lines += _word_lines([line.strip() for line in parts.words if line.strip()], parts.cause)
    for line in parts.notes:
        lines += _wrapped("note: ", line)
    return lines


def _word_lines(words: Sequence[str], cause: str | None) -> list[str]:
    """Return what people read of what was said: no backtrace, and the cause not once more."""
    told = list(takewhile(lambda line: line != BACKTRACE, words))
    news = [line for line in told if line not in (cause, _INFO)]
    lines = [part for line in news[:_MOST_WORDS] for part in _wrapped(_INDENT, line)]
    more = len(news[_MOST_WORDS:]) + len(words) - len(told)
    if more:
        trace = " with a backtrace" if len(words) > len(told) else ""
        lines.append(f"{_INDENT}({plural(more, 'more line')}{trace}: --json)")
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    return wrapped(label, text, WIDTH - len(_INDENT))


def _replay_lines(attempt: Attempt) -> list[str]:
    if attempt.replayed_case_id is None:
        return []
    differences = said(attempt).differences
    if attempt.replayed_case_id == attempt.case_id:
        return ["the traced replay is the recorded case: equal hash"]
    if not differences:
        return ["the traced replay is the recorded case, with names for its arguments"]
    return [part for line in differences for part in _wrapped("differs: ", line)]


def replay_command(attempt: Attempt, store: str | None = None) -> str:
    """Return the command that replays a case of a trove as it was executed."""
    return shlex.join(["optrove", "replay", attempt.case_id[:SHORT_ID], *_where(attempt, store)])


def again_command(
    op: str, attempt: Attempt, modules: Iterable[SweepModule] = (), store: str | None = None
) -> str:
    """Return the command for a case or a vector; ``modules`` are those of the sweep."""
    if not op.startswith(VECTORS):
        return replay_command(attempt, store)
    name = op.removeprefix(VECTORS)
    paths = [each.path for each in modules if name.startswith(f"{each.name}.")]
    module = paths[0] if paths else name.rpartition(".")[0]
    words = ["optrove", "sweep", module, "--vector-id", attempt.case_id[:SHORT_ID]]
    return shlex.join([*words, *_where(attempt, store)])


def _where(attempt: Attempt, store: str | None) -> list[str]:
    words: list[str] = []
    if attempt.device_kind in (DeviceKind.SHADOW, DeviceKind.HARDWARE):
        words += ["--device", attempt.device_kind.value]
    if attempt.board is not None:
        words += ["--board", attempt.board]
    return words if store is None else [*words, "--store", store]

"""Draw executions of recorded cases: a readable block for one, a table for many."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from optrove.model.records import DeviceKind, Outcome
from optrove.report.attempted import BACKTRACE, counts_of, is_as_recorded, said
from optrove.report.describe import drawn, drawn_arguments, folded
from optrove.report.runs_text import SHORT_ID
from optrove.report.tables import MORE, Column, clipped, plural, table_lines, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Attempt, Measurement
    from optrove.report.attempted import Attempted

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

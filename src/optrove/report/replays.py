"""The results of replay, check-board and audit-goldens, as documents and as data."""

from __future__ import annotations

from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final

from optrove.model.causes import error_line
from optrove.model.ops import is_data_movement
from optrove.model.pass_rates import PassRate
from optrove.model.records import DeviceKind, Outcome
from optrove.report.attempts import (
    BACKTRACE,
    VERDICTS,
    WORDS,
    attempted_data,
    by_text,
    cause_data,
    causes,
    counts_of,
    is_as_recorded,
    lowest_pcc,
    refusals,
    remarks_of,
    supplied,
    told_differences,
    worth_telling,
)
from optrove.report.describe import argument_fields, value_text
from optrove.report.document import (
    Column,
    Command,
    Field,
    Fields,
    Item,
    Items,
    Paragraph,
    Section,
    first_items,
    paragraphs,
    table,
)
from optrove.report.wording import SHORT_ID, clipped, number, plural, rate_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from optrove.model.case import Case
    from optrove.model.records import Attempt, AttemptedCase, Counts, Measurement
    from optrove.report.attempts import Cause
    from optrove.report.document import Node
    from optrove.serializer.text import Json

    Rerun = Callable[[AttemptedCase], str | None]

_MAX_LINES: Final = 12
_MAX_NOTES: Final = 8
_MAX_CAUSE_CHARS: Final = 100
_INFO: Final = "info:"
_ATTEMPTS: Final = (
    Column("op", flexible=True),
    Column("case"),
    Column("calls", right=True),
    Column("verdict"),
    Column("pcc", right=True),
    Column("as recorded"),
    Column("why", flexible=True, prose=True),
)
_SCALED: Final = Column("scaled", flexible=True, prose=True)
ANSWERS: Final = {**VERDICTS, Outcome.PASSED: "accepted", Outcome.REJECTED: "rejected by ttnn"}
"""Outcomes in words, as answers of a board."""
_ANSWER_WORDS: Final = {**WORDS, **{outcome.value: words for outcome, words in ANSWERS.items()}}


def replay_document(
    attempts: Sequence[AttemptedCase], case: Case, command: Rerun = lambda _: None
) -> Iterator[Node]:
    """Yield one execution in full, or many as a table, failures first, with their counts.

    Cases that did not run are grouped by reason below the table. ``case`` is the case of the first;
    ``command`` returns what reruns one of them.
    """
    if len(attempts) == 1:
        yield _attempt_section(attempts[0], case)
        return
    order = list(Outcome)
    ranked = sorted(
        attempts,
        key=lambda each: (-order.index(each.attempt.outcome), -(each.calls or 0), each.op),
    )
    scaled = any(each.scaled_from for each in attempts)
    columns = (*_ATTEMPTS, _SCALED) if scaled else _ATTEMPTS
    rows = [_attempt_row(each)[: len(columns)] for each in ranked if each.ran]
    if rows:
        yield table(columns, rows)
    # Many cases do not run for one reason, such as too few chips.
    yield from cause_sections(causes(each for each in attempts if not each.ran), command)
    yield from note_section(attempts)
    yield Paragraph(_counted(attempts, WORDS))
    if scaled:
        yield Paragraph("scaled cases are not the recorded ones, and are not stored")


def _counted(attempts: Sequence[AttemptedCase], words: Mapping[str, str]) -> str:
    counts = counts_of(each.attempt for each in attempts)
    parts = ", ".join(f"{count:,} {words[name]}" for name, count in counts.items())
    return f"{plural(len(attempts), 'case')}: {parts}"


def _attempt_row(attempted: AttemptedCase) -> tuple[str, ...]:
    attempt = attempted.attempt
    ran = attempt.replayed_case_id is not None
    worst = lowest_pcc(attempt)
    return (
        attempted.op,
        attempt.case_id[:SHORT_ID],
        "" if attempted.calls is None else f"{attempted.calls:,}",
        VERDICTS[attempt.outcome],
        "" if worst is None else number(worst),
        ("yes" if is_as_recorded(attempt) and not attempted.scaled_from else "no") if ran else "",
        clipped(attempt.cause or "", _MAX_CAUSE_CHARS),
        "; ".join(note for note in attempt.notes if "scaled" in note),
    )


def _attempt_section(attempted: AttemptedCase, case: Case) -> Section:
    attempt = attempted.attempt
    calls = "" if attempted.calls is None else f", {plural(attempted.calls, 'call')} recorded"
    facts = [*_output_fields(attempt), Field("verdict", _verdict_text(attempt))]
    facts += [_measurement_field(each, attempt.measurements) for each in attempt.measurements]
    facts += _remark_fields(attempt)
    parts: list[Node] = [argument_fields(case), Fields(tuple(facts))]
    remarks = remarks_of(attempt)
    if attempt.replayed_case_id is not None and not remarks.differences:
        same = attempt.replayed_case_id == attempt.case_id
        how = ": equal hash" if same else ", with names for its arguments"
        kind = "scaled" if attempted.scaled_from else "recorded"
        parts.append(Paragraph(f"the traced replay is the {kind} case{how}"))
    if attempted.raised is not None:
        error = error_line(attempted.raised)
        parts.append(Fields((Field("when it was recorded, it raised", error),)))
    return Section(f"{attempted.op}: case {attempt.case_id[:SHORT_ID]}{calls}", tuple(parts))


def _output_fields(attempt: Attempt) -> Iterator[Field]:
    for place, value in enumerate(attempt.outputs):
        name = "output" if len(attempt.outputs) == 1 else f"output {place}"
        yield Field(name, value_text(value), code=True)


def _verdict_text(attempt: Attempt) -> str:
    took = "" if attempt.duration_ns is None else f", {attempt.duration_ns / 1e6:.1f} ms"
    is_mock = attempt.device_kind is DeviceKind.MOCK
    seed = "" if is_mock or attempt.outcome is Outcome.NOT_RUN else f", seed {attempt.seed}"
    more = (
        "; a mock board computes no numbers to compare"
        if is_mock and attempt.outcome is Outcome.PASSED
        else ""
    )
    return f"{VERDICTS[attempt.outcome]}{took}{seed}{more}"


def _measurement_field(measurement: Measurement, every: Sequence[Measurement]) -> Field:
    several = len({each.output for each in every}) > 1
    bound = ""
    if measurement.threshold is not None:
        missed = "" if measurement.passed else "not "
        bound = f" ({missed}at least {measurement.threshold:g})"
    name = f"{measurement.name} of output {measurement.output}" if several else measurement.name
    return Field(name, number(measurement.value) + bound)


def _remark_fields(attempt: Attempt) -> Iterator[Field]:
    remarks = remarks_of(attempt)
    words = [line.strip() for line in remarks.words if line.strip()]
    below = paragraphs(_readable_words(words, attempt.cause))
    if attempt.cause is not None:
        lines = Fields(tuple(Field("", each.text) for each in below))
        yield Field("because", attempt.cause, parts=(lines,) if below else ())
    yield from (Field("note", line) for line in remarks.notes)
    if attempt.replayed_case_id is not None and attempt.replayed_case_id != attempt.case_id:
        yield from (Field("differs", line) for line in remarks.differences)


def _readable_words(words: Sequence[str], cause: str | None) -> list[str]:
    """Return the further words without the backtrace and without a repetition of the cause."""
    before_trace = list(takewhile(lambda line: line != BACKTRACE, words))
    news = [line for line in before_trace if line not in (cause, _INFO)]
    more = len(news[_MAX_LINES:]) + len(words) - len(before_trace)
    if not more:
        return news
    trace = " with a backtrace" if len(words) > len(before_trace) else ""
    return [*news[:_MAX_LINES], f"({plural(more, 'more line')}{trace}: --json)"]


def board_document(
    attempts: Sequence[AttemptedCase], left_out: Counts, command: Rerun
) -> Iterator[Node]:
    """Yield the answer of a board for all cases; ``command`` returns what reruns one of them."""
    yield Paragraph(f"{_counted(attempts, _ANSWER_WORDS)} ({_accepted(attempts)})")
    moving = sum(is_data_movement(each.op) for each in attempts)
    if moving:
        words = 'only move data; "optrove ops --all-ops --nested" counts them'
        yield Paragraph(f"{moving:,} of them {words}")
    yield from paragraphs(left_out_by_reason(left_out))
    yield from cause_sections(causes(attempts), command)
    yield from note_section(attempts)


def _accepted(attempts: Sequence[AttemptedCase]) -> str:
    """Return the share of accepted cases among those that ran: others say nothing of the board."""
    counts = counts_of(each.attempt for each in attempts)
    return rate_text(PassRate.of(counts), "accepted")


def left_out_by_reason(left_out: Counts) -> Iterator[str]:
    """Yield a sentence for each reason why cases were left out."""
    yield from (f"left out: {count:,} {reason}" for reason, count in left_out)


def cause_sections(found: Sequence[Cause], command: Rerun) -> Iterator[Section]:
    """Yield the causes of failures by outcome; ``command`` returns what reruns a case."""
    for outcome, groups in groupby(by_text(found), key=lambda group: group[0].outcome):
        yield Section(ANSWERS[outcome], (Items(tuple(_item(each, command) for each in groups)),))


def _item(group: Sequence[Cause], command: Rerun) -> Item:
    words = command(group[0].example)
    return Item(
        count=sum(each.count for each in group),
        text=group[0].text,
        ops=tuple((each.op, each.count) for each in group),
        parts=(*paragraphs(refusals(group)), *(() if words is None else (Command(words),))),
    )


def note_section(attempts: Sequence[AttemptedCase]) -> Iterator[Section]:
    """Yield what was supplied or changed for cases, or not compared, with counts; or nothing."""
    told = (*told_differences(attempts), *worth_telling(attempts))
    if told:
        items = [Item(count, text) for text, count in told]
        yield Section("supplied, changed, or not compared", (first_items(items, _MAX_NOTES),))


def board_data(
    attempts: Sequence[AttemptedCase], left_out: Counts, command: Rerun
) -> dict[str, Json]:
    """Return the answer of a board; ``docs/command-line.md`` describes the keys."""
    return {
        "planned": len(attempts),
        "counts": counts_of(each.attempt for each in attempts),
        "left_out": dict(left_out),
        "causes": [cause_data(each, command(each.example)) for each in causes(attempts)],
        "notes": dict(supplied(attempts)),
        "cases": [attempted_data(each) for each in attempts],
    }

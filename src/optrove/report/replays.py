"""The results of replay, check-board and audit-goldens, as documents and as data."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final

from optrove.model.causes import without_numbers
from optrove.model.ops import is_data_movement
from optrove.model.records import HARMLESS, DeviceKind, Outcome
from optrove.report.attempts import (
    BACKTRACE,
    UNSAID,
    VERDICTS,
    attempted_data,
    by_text,
    cause_data,
    causes,
    counts_of,
    differing,
    is_as_recorded,
    lowest_pcc,
    measurement_data,
    remarks_of,
    supplied,
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
    count_cell,
    paragraphs,
    table,
)
from optrove.report.wording import SHORT_ID, clipped, number, ops_text, percent, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from optrove.model.case import Case
    from optrove.model.records import Attempt, AttemptedCase, Counts, Measurement
    from optrove.report.attempts import Cause
    from optrove.report.document import Node, Row
    from optrove.serializer.text import Json

    Adaptations = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]

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
_AUDIT: Final = (
    Column("op"),
    *(Column(name, right=True) for name in ("cases", "sound", "wrong", "cannot fail", "unchecked")),
)
_ANSWERS: Final = {**VERDICTS, Outcome.PASSED: "accepted", Outcome.REJECTED: "rejected by ttnn"}
_AUDITED: Final = {
    Outcome.PASSED: "sound",
    Outcome.WRONG_SPEC: "wrong",
    Outcome.NUMERICS: "cannot_fail",
}
_UNCHECKED: Final = "unchecked"


def replay_document(attempts: Sequence[AttemptedCase], case: Case) -> Iterator[Node]:
    """Yield one execution in full, or many as a table, failures first, with their counts.

    ``case`` is the case of the first.
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
    yield table(columns, (_attempt_row(each)[: len(columns)] for each in ranked))
    yield Paragraph(_counted(attempts, VERDICTS))
    if scaled:
        yield Paragraph("scaled cases are not the recorded ones, and are not stored")


def _counted(attempts: Sequence[AttemptedCase], words: Mapping[Outcome, str]) -> str:
    counts = counts_of(attempts)
    parts = ", ".join(f"{count:,} {words[Outcome(name)]}" for name, count in counts.items())
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
        first = attempted.raised.splitlines()[0]
        parts.append(Fields((Field("when it was recorded, it raised", first),)))
    return Section(f"{attempted.op}: case {attempt.case_id[:SHORT_ID]}{calls}", tuple(parts))


def _output_fields(attempt: Attempt) -> Iterator[Field]:
    for place, value in enumerate(attempt.outputs):
        name = "output" if len(attempt.outputs) == 1 else f"output {place}"
        yield Field(name, value_text(value), code=True)


def _verdict_text(attempt: Attempt) -> str:
    took = "" if attempt.duration_ns is None else f", {attempt.duration_ns / 1e6:.1f} ms"
    filled = attempt.device_kind is not DeviceKind.MOCK and attempt.outcome is not Outcome.NOT_RUN
    return f"{VERDICTS[attempt.outcome]}{took}{f', seed {attempt.seed}' if filled else ''}"


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
    attempts: Sequence[AttemptedCase], left_out: Counts, command: Callable[[str], str | None]
) -> Iterator[Node]:
    """Yield the answer of a board for all cases; ``command`` returns the replay of a case id."""
    share = counts_of(attempts).get(Outcome.PASSED.value, 0) / max(len(attempts), 1)
    yield Paragraph(f"{_counted(attempts, _ANSWERS)} ({percent(share)} accepted)")
    moving = sum(is_data_movement(each.op) for each in attempts)
    if moving:
        words = 'only move data; "optrove ops --all-ops --nested" counts them'
        yield Paragraph(f"{moving:,} of them {words}")
    yield from paragraphs(left_out_by_reason(left_out))
    yield from cause_sections(causes(attempts), command)
    yield from _note_section(attempts)


def left_out_by_reason(left_out: Counts) -> Iterator[str]:
    """Yield a sentence for each reason why cases were left out."""
    yield from (f"left out: {count:,} {reason}" for reason, count in left_out)


def cause_sections(
    found: Sequence[Cause], command: Callable[[str], str | None]
) -> Iterator[Section]:
    """Yield the causes of failures by outcome; ``command`` returns the replay of a case id."""
    for outcome, groups in groupby(by_text(found), key=lambda group: group[0].outcome):
        yield Section(_ANSWERS[outcome], (Items(tuple(_item(each, command) for each in groups)),))


def _item(group: Sequence[Cause], command: Callable[[str], str | None]) -> Item:
    words = command(group[0].example.attempt.case_id)
    return Item(
        count=sum(each.count for each in group),
        text=group[0].text,
        ops=tuple((each.op, each.count) for each in group),
        parts=() if words is None else (Command(words),),
    )


def _note_section(attempts: Sequence[AttemptedCase]) -> Iterator[Section]:
    notes = [(text, count) for text, count in supplied(attempts) if not text.endswith(HARMLESS)]
    items = [Item(count, text) for text, count in notes[:_MAX_NOTES]]
    other = differing(attempts)
    if other:
        words = "the call differs from the recorded one in some part (--json shows it)"
        items.insert(0, Item(other, words))
    more = len(notes) - _MAX_NOTES
    if items:
        rest = f"{more:,} more kinds (--json)" if more > 0 else ""
        yield Section("supplied, changed, or not compared", (Items(tuple(items), rest),))


def board_data(
    attempts: Sequence[AttemptedCase], left_out: Counts, command: Callable[[str], str | None]
) -> dict[str, Json]:
    """Return the answer of a board; ``optrove.cli.replay`` describes the keys."""
    return {
        "planned": len(attempts),
        "counts": counts_of(attempts),
        "left_out": dict(left_out),
        "causes": [
            cause_data(each, command(each.example.attempt.case_id)) for each in causes(attempts)
        ],
        "notes": dict(supplied(attempts)),
        "cases": [attempted_data(each) for each in attempts],
    }


def adapted_document(
    attempts: Sequence[AttemptedCase], adaptations: Adaptations, unadapted: Counts
) -> Iterator[Node]:
    """Yield the results of adapted cases.

    ``adaptations`` has the changes and the recorded ids of each case id; ``unadapted`` counts the
    cases of each op that have nothing to adapt. All counts are of recorded cases: adaptation may
    turn several into one.
    """
    outcomes: Counter[Outcome] = Counter()
    for each in attempts:
        outcomes[each.attempt.outcome] += len(adaptations[each.attempt.case_id][1])
    parts = [f"{outcomes[one]:,} {_ANSWERS[one]}" for one in Outcome if outcomes[one]]
    rest = sum(count for _, count in unadapted)
    if rest:
        parts.append(f"{rest:,} cannot be adapted ({ops_text(unadapted)})")
    planned = outcomes.total() + rest
    title = f"of {plural(planned, 'case')} not accepted, after adaptation: {', '.join(parts)}"
    if not planned:
        title = "after adaptation: no case to try, all were accepted"
    changes = Counter(
        change for texts, ids in adaptations.values() for change in texts for _ in ids
    )
    yield Section(title, (Items(tuple(Item(n, text) for text, n in changes.most_common())),))
    yield from cause_sections(causes(attempts), lambda _: None)


def adapted_data(
    attempts: Sequence[AttemptedCase], adaptations: Adaptations, unadapted: Counts
) -> dict[str, Json]:
    """Return the results of adapted cases; ``optrove.cli.replay`` describes the keys."""
    cases = []
    for each in attempts:
        changes, recorded = adaptations[each.attempt.case_id]
        more = {"adaptations": list(changes), "recorded_case_ids": list(recorded)}
        cases.append({**attempted_data(each), **more})
    return {
        "planned": len(attempts),
        "counts": counts_of(attempts),
        "unadapted": sum(count for _, count in unadapted),
        "cases": cases,
    }


def audit_counts(attempts: Sequence[AttemptedCase]) -> dict[str, int]:
    """Return the number of cases with sound checks, wrong ones, ones that cannot fail, and none."""
    counted = Counter(map(_audited, attempts))
    return {name: counted[name] for name in (*_AUDITED.values(), _UNCHECKED)}


def _audited(attempted: AttemptedCase) -> str:
    return _AUDITED.get(attempted.attempt.outcome, _UNCHECKED)


def audit_document(
    attempts: Sequence[AttemptedCase], replaced: Mapping[str, str]
) -> Iterator[Node]:
    """Yield an audit of golden checks by op, and the reasons of those that are not sound.

    ``replaced`` says of ops why their golden function is not the one of ttnn.
    """
    rows: list[Row] = []
    for op in sorted({each.op for each in attempts}):
        own = audit_counts([each for each in attempts if each.op == op])
        rows.append((op, sum(own.values()), *map(count_cell, own.values())))
    yield table(_AUDIT, rows)
    counts = audit_counts(attempts)
    parts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    yield Paragraph(f"{plural(len(attempts), 'case')}: {parts}")
    scaled = sum(bool(each.scaled_from) for each in attempts)
    if scaled:
        yield Paragraph(f"{scaled:,} of them scaled down; the ids are those of recorded cases")
    yield from _audit_reasons("golden functions that differ from the kernel", "wrong", attempts)
    yield from _audit_reasons("checks that cannot fail", "cannot_fail", attempts)
    yield from _audit_reasons("without a check", _UNCHECKED, attempts)
    cases = Counter(each.op for each in attempts if each.op in replaced)
    items = tuple(Item(count, f"{op}: {replaced[op]}") for op, count in sorted(cases.items()))
    if items:
        yield Section("computed by optrove instead of ttnn's golden function", (Items(items),))


def _audit_reasons(title: str, wanted: str, attempts: Sequence[AttemptedCase]) -> Iterator[Section]:
    groups: dict[tuple[str, str], list[AttemptedCase]] = {}
    for each in attempts:
        if _audited(each) == wanted:
            groups.setdefault((each.op, without_numbers(_reason(each))), []).append(each)
    items = tuple(
        Item(
            len(group),
            f"{op} (such as {_recorded_id(group[0])[:SHORT_ID]}): {_reason(group[0])}",
        )
        for (op, _), group in sorted(groups.items())
    )
    if items:
        yield Section(title, (Items(items),))


def _recorded_id(attempted: AttemptedCase) -> str:
    return next(iter(attempted.scaled_from), attempted.attempt.case_id)


def _reason(attempted: AttemptedCase) -> str:
    return (attempted.attempt.detail or UNSAID).splitlines()[0]


def audit_data(attempts: Sequence[AttemptedCase], replaced: Mapping[str, str]) -> dict[str, Json]:
    """Return an audit; ``optrove.cli.replay`` describes the keys."""
    return {
        "planned": len(attempts),
        "counts": audit_counts(attempts),
        "replaced_goldens": {
            op: replaced[op] for op in sorted({each.op for each in attempts} & replaced.keys())
        },
        "cases": [
            {
                "op": each.op,
                "case_id": each.attempt.case_id,
                "verdict": _audited(each),
                "detail": each.attempt.detail,
                "perturbed": [measurement_data(one) for one in each.attempt.measurements],
                "scaled_from": list(each.scaled_from),
            }
            for each in attempts
        ],
    }

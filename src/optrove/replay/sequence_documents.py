"""The results of a stretch of calls that was executed as one program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.model.records import VALUES_OF, DeviceKind, Outcome
from optrove.replay.sequence import WITH_VALUES
from optrove.report.attempts import VERDICTS, counts_of, lowest_pcc, remarks_of
from optrove.report.describe import call_line
from optrove.report.document import Column, Paragraph, paragraphs, table
from optrove.report.wording import SHORT_ID, clipped, number, plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.records import Attempt
    from optrove.replay.sequence import ReplayedSequence, SequenceCall
    from optrove.report.document import Node
    from optrove.serializer.text import Json

_COLUMNS: Final = (
    Column("call", right=True),
    Column("op", flexible=True),
    Column("case"),
    Column("verdict"),
    Column("pcc", right=True),
    Column("line", flexible=True),
    Column("why", flexible=True, prose=True),
)
_MAX_CAUSE_CHARS: Final = 100
_MAX_NOTES: Final = 8


def sequence_document(done: ReplayedSequence) -> Iterator[Node]:
    """Yield each call in its order, then where it first failed, and what differs."""
    yield table(_COLUMNS, (_row(*pair) for pair in done.pairs))
    counts = counts_of(done.attempts)
    parts = ", ".join(f"{count:,} {VERDICTS[Outcome(name)]}" for name, count in counts.items())
    calls = plural(len(done.attempts), "call")
    yield Paragraph(f"{calls} as one program on {done.target}: {parts}")
    if done.failure is not None:
        each, attempt = done.failure
        where = f" ({call_line(each.call)})" if each.call.call_site else ""
        verdict = VERDICTS[attempt.outcome]
        yield Paragraph(f"first failure: call {each.call.op_index}, {each.op}{where}: {verdict}")
    same = "the same cases as recorded, in their order"
    differing = [
        str(each.call.op_index)
        for each, attempt in done.pairs
        if attempt.replayed_case_id != attempt.case_id
    ]
    if differing:
        shown = ", ".join(differing[:_MAX_NOTES])
        more = ", ..." if len(differing) > _MAX_NOTES else ""
        same = f"not the recorded cases: calls {shown}{more}"
    yield Paragraph(same)
    kept = sum(each.planned.job.capsules != () for each in done.sequence.calls)
    if kept:
        yield Paragraph(
            f"tensors from outside have recorded values ({kept:,} of {calls} have some)"
        )
    elif done.target.device_kind is not DeviceKind.MOCK:
        yield Paragraph(f"tensors from outside have values of a seed; for real ones: {WITH_VALUES}")
    notes = {
        note: each.call.op_index
        for each, attempt in reversed(list(done.pairs))
        for note in remarks_of(attempt).notes
        if not note.startswith(VALUES_OF)
    }
    listed = [f"call {call}: {note}" for note, call in sorted(notes.items(), key=lambda n: n[1])]
    yield from paragraphs(listed[:_MAX_NOTES])
    if len(listed) > _MAX_NOTES:
        yield Paragraph(f"... and {plural(len(listed) - _MAX_NOTES, 'more note')} (--json)")


def _row(each: SequenceCall, attempt: Attempt) -> tuple[str, ...]:
    pcc = lowest_pcc(attempt)
    return (
        str(each.call.op_index),
        each.op,
        attempt.case_id[:SHORT_ID],
        VERDICTS[attempt.outcome],
        "" if pcc is None else number(pcc),
        call_line(each.call),
        clipped(attempt.cause or "", _MAX_CAUSE_CHARS),
    )


def sequence_data(done: ReplayedSequence) -> dict[str, Json]:
    """Return a replayed sequence; ``docs/command-line.md`` describes the keys."""
    failure = done.failure
    return {
        "run": done.sequence.run.id,
        "process": done.sequence.process,
        "device": done.target.device_kind.value,
        "board": done.target.board,
        "counts": counts_of(done.attempts),
        "passed": done.passed,
        "same_cases": done.same_cases,
        "first_failure": None if failure is None else failure[0].call.op_index,
        "calls": [_data(*pair) for pair in done.pairs],
    }


def _data(each: SequenceCall, attempt: Attempt) -> dict[str, Json]:
    site = each.call.call_site
    return {
        "call": each.call.op_index,
        "op": each.op,
        "case_id": attempt.case_id,
        "replayed_case_id": attempt.replayed_case_id,
        "outcome": attempt.outcome.value,
        "cause": attempt.cause,
        "pcc": lowest_pcc(attempt),
        "file": None if site is None else site.file,
        "line": None if site is None else site.line,
        "test": each.call.test_id,
        "values": "capsule" if each.planned.job.capsules else "seed",
        "notes": list(attempt.notes),
    }

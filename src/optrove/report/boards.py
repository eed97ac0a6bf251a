"""Draw what a board makes of the cases of a trove: how many run, and why the others do not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.model.ops import is_hidden
from optrove.model.records import HARMLESS, Outcome
from optrove.report.attempts import VERDICTS, attempted_data, counts_of
from optrove.report.causes import Cause, T, by_text, cause_data, causes, differing, supplied
from optrove.report.describe import folded
from optrove.report.tables import READABLE, clipped, plural, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from optrove.model.records import Counts
    from optrove.report.attempts import Attempted
    from optrove.serializer.text import Json

_MOST_NOTES: Final = 8
_MOST_OPS: Final = 4
_LONGEST: Final = 240
_WHOLE: Final = 'texts that end in "..." are whole in --json'
_REPLAY: Final = "optrove replay"

_ANSWERS: Final = {**VERDICTS, Outcome.PASSED: "accepted", Outcome.REJECTED: "rejected by ttnn"}


def board_lines(
    attempts: Sequence[Attempted],
    left_out: Counts,
    command: Callable[[str], str | None],
    width: int | None = None,
) -> list[str]:
    """Return the answer for all cases; ``command`` gives what replays one, by its id."""
    return [
        *wrapped("", _sum(attempts), width),
        *_moving(attempts),
        *(f"left out: {count:,} {reason}" for reason, count in left_out),
        *cause_lines(causes(attempts), command, width),
        *_note_lines(attempts, width),
    ]


def board_data(
    attempts: Sequence[Attempted], left_out: Counts, command: Callable[[str], str | None]
) -> dict[str, Json]:
    """Return the answer for machines; see ``optrove.cli.replay`` for the keys."""
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


def adapted_lines(
    attempts: Sequence[Attempted],
    told: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
    unadapted: Counts,
    width: int | None = None,
) -> list[str]:
    """Return what came of cases after adaptation; ``told`` has their changes and origins.

    ``unadapted`` is how many there was nothing known to adapt in, by op. All that is counted are
    recorded cases: several may have become one by adaptation.
    """
    changes = Counter(change for texts, ids in told.values() for change in texts for _ in ids)
    return [
        "",
        *wrapped("", _adapted_sum(attempts, told, unadapted), width),
        *(f"  {count:,}x {change}" for change, count in changes.most_common()),
        *cause_lines(causes(attempts), lambda _: None, width),
    ]


def _adapted_sum(
    attempts: Sequence[Attempted],
    told: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
    unadapted: Counts,
) -> str:
    counts: Counter[Outcome] = Counter()
    for each in attempts:
        _, recorded = told[each.attempt.case_id]
        counts[each.attempt.outcome] += len(recorded)
    parts = [f"{counts[outcome]:,} {_ANSWERS[outcome]}" for outcome in Outcome if counts[outcome]]
    rest = sum(count for _, count in unadapted)
    if rest:
        parts.append(f"{rest:,} cannot be adapted ({_ops(unadapted)})")
    planned = counts.total() + rest
    if not planned:
        return "after adaptation: no case to try, all were accepted"
    return f"of {plural(planned, 'case')} not accepted, after adaptation: {', '.join(parts)}"


def adapted_data(
    attempts: Sequence[Attempted],
    told: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
    unadapted: Counts,
) -> dict[str, Json]:
    """Return the same for machines."""
    cases = []
    for each in attempts:
        changes, recorded = told[each.attempt.case_id]
        more = {"adaptations": list(changes), "recorded_case_ids": list(recorded)}
        cases.append({**attempted_data(each), **more})
    return {
        "planned": len(attempts),
        "counts": counts_of(attempts),
        "unadapted": sum(count for _, count in unadapted),
        "cases": cases,
    }


def _sum(attempts: Sequence[Attempted]) -> str:
    counts = counts_of(attempts)
    told = ", ".join(f"{count:,} {_ANSWERS[Outcome(name)]}" for name, count in counts.items())
    share = counts.get(Outcome.PASSED.value, 0) / max(len(attempts), 1)
    return f"{plural(len(attempts), 'case')}: {told} ({percent(share)} accepted)"


def _moving(attempts: Sequence[Attempted]) -> list[str]:
    """Say how many cases are not among those that lists count."""
    moving = sum(is_hidden(each.op) for each in attempts)
    words = 'only move data; "optrove ops --all-ops --nested" counts them'
    return [f"  {moving:,} of them {words}"] if moving else []


def percent(share: float) -> str:
    """Return a share in percent; what is not all never looks like all, nor some like none."""
    text = f"{share:.1%}"
    if text == "100.0%" and share < 1:
        return "over 99.9%"
    return "under 0.1%" if text == "0.0%" and share > 0 else text


def cause_lines(
    found: Sequence[Cause[T]], command: Callable[[str], str | None], width: int | None = None
) -> list[str]:
    """Return why cases failed; ``command`` gives what replays one, by its id."""
    lines: list[str] = []
    outcome: Outcome | None = None
    for group in by_text(found):
        first = group[0]
        if first.outcome is not outcome:
            outcome = first.outcome
            lines += ["", f"{_ANSWERS[outcome]}:"]
        count = f"  {sum(each.count for each in group):,}x "
        indent = " " * len(count)
        lines += wrapped(count, clipped(first.text, _LONGEST), width)
        ops = _ops(tuple((each.op, each.count) for each in group))
        lines += folded(indent, ops, width or READABLE)
        words = command(first.example.attempt.case_id)
        if words is not None:
            # A command is to be copied, and so it is never broken.
            lines.append(indent + words)
    if any(len(each.text) > _LONGEST for each in found):
        # Adapted cases, and those of sweep modules, are in no trove to be replayed from.
        replayed = any(line.strip().startswith(_REPLAY) for line in lines)
        more = f', and in what "{_REPLAY} CASE" prints' if replayed else ""
        lines += ["", *wrapped("", _WHOLE + more, width)]
    return lines


def _ops(counts: Counts) -> str:
    if len(counts) == 1:
        return counts[0][0]
    shown = ", ".join(f"{count:,}x {op}" for op, count in counts[:_MOST_OPS])
    more = len(counts) - _MOST_OPS
    return f"{shown}, {more:,} more ops" if more > 0 else shown


def _differing_lines(attempts: Sequence[Attempted]) -> list[str]:
    other = differing(attempts)
    words = "the call differs from the recorded one in some part (--json tells it)"
    return [f"  {other:,}x {words}"] if other else []


def _note_lines(attempts: Sequence[Attempted], width: int | None) -> list[str]:
    notes = [(text, count) for text, count in supplied(attempts) if not text.endswith(HARMLESS)]
    lines = _differing_lines(attempts)
    for text, count in notes[:_MOST_NOTES]:
        lines += wrapped(f"  {count:,}x ", text, width)
    if len(notes) > _MOST_NOTES:
        lines.append(f"  {len(notes) - _MOST_NOTES:,} more kinds (--json)")
    return ["", "done otherwise than recorded, or not compared:", *lines] if lines else []

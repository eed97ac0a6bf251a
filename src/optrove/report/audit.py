"""Draw an audit of golden checks: which cannot fail, which ops have none, and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.model.records import Outcome
from optrove.report.attempts import measurement_data
from optrove.report.causes import without_numbers
from optrove.report.runs import SHORT_ID
from optrove.report.tables import Column, plural, table_lines, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.report.attempts import Attempted
    from optrove.serializer.text import Json

_COLUMNS: Final = (
    Column("op"),
    Column("cases", right=True),
    Column("sound", right=True),
    Column("cannot fail", right=True),
    Column("unchecked", right=True),
)

VERDICTS: Final = {Outcome.PASSED: "sound", Outcome.NUMERICS: "cannot_fail"}
"""What outcomes of an audit are called; all others are unchecked."""

UNCHECKED: Final = "unchecked"


def verdict(attempted: Attempted) -> str:
    """Return what was found out about the checks of a case."""
    return VERDICTS.get(attempted.attempt.outcome, UNCHECKED)


def audit_counts(attempts: Sequence[Attempted]) -> dict[str, int]:
    """Return how many cases have sound checks, checks that cannot fail, and none."""
    counted = Counter(map(verdict, attempts))
    return {name: counted[name] for name in (*VERDICTS.values(), UNCHECKED)}


def audit_lines(attempts: Sequence[Attempted]) -> list[str]:
    """Return the audit as text."""
    counts = audit_counts(attempts)
    rows = []
    for op in sorted({each.case.op for each in attempts}):
        own = audit_counts([each for each in attempts if each.case.op == op])
        rows.append(
            (
                op,
                f"{sum(own.values()):,}",
                *(f"{count:,}" if count else "" for count in own.values()),
            )
        )
    told = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    return [
        *table_lines(_COLUMNS, rows),
        "",
        f"{plural(len(attempts), 'case')}: {told}",
        *_reason_lines("checks that cannot fail", "cannot_fail", attempts),
        *_reason_lines("without a check", UNCHECKED, attempts),
    ]


def audit_data(attempts: Sequence[Attempted]) -> dict[str, Json]:
    """Return the audit for machines; see ``optrove.cli.replay`` for the keys."""
    return {
        "planned": len(attempts),
        "counts": audit_counts(attempts),
        "cases": [
            {
                "op": each.case.op,
                "case_id": each.attempt.case_id,
                "verdict": verdict(each),
                "detail": each.attempt.detail,
                "perturbed": [measurement_data(one) for one in each.attempt.measurements],
            }
            for each in attempts
        ],
    }


def _reason_lines(title: str, wanted: str, attempts: Sequence[Attempted]) -> list[str]:
    groups: dict[tuple[str, str], list[Attempted]] = {}
    for each in attempts:
        if verdict(each) == wanted:
            reason = (each.attempt.detail or "nothing was said").splitlines()[0]
            groups.setdefault((each.case.op, without_numbers(reason)), []).append(each)
    lines = []
    for (op, _), group in sorted(groups.items()):
        first = group[0].attempt
        reason = (first.detail or "nothing was said").splitlines()[0]
        told = f"{op} (such as {first.case_id[:SHORT_ID]}): {reason}"
        lines += wrapped(f"  {len(group):,}x ", told)
    return ["", f"{title}:", *lines] if lines else []

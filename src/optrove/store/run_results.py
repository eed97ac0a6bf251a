"""Ask a trove what came of the Cases of a Run: its Attempts, and what it has not come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.records import DeviceKind
from optrove.store import answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.records import Attempt
    from optrove.store.reader import TroveReader

_CALLS: Final = "CASE WHEN c.outermost_calls > 0 THEN c.outermost_calls ELSE c.calls END"

_EXECUTED: Final = f"""
SELECT c.op, {_CALLS}, t.content, p.suite, a.content
FROM runs r
JOIN attempts a ON a.run_key = r.key
JOIN cases c ON c.key = a.case_key
JOIN contents t ON t.case_key = c.key
LEFT JOIN planned p ON p.run_key = r.key AND p.case_key = c.key
WHERE r.run_id = :run_id ORDER BY a.started_at, a.attempt_id
"""  # noqa: S608 - made of constants

_WAITING: Final = f"""
SELECT c.op, c.case_id, {_CALLS}, p.suite, p.device_kind, p.board
FROM runs r
JOIN planned p ON p.run_key = r.key
JOIN cases c ON c.key = p.case_key
LEFT JOIN attempts a ON a.run_key = p.run_key AND a.case_key = p.case_key
WHERE r.run_id = :run_id AND a.key IS NULL ORDER BY p.place
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class ExecutedRow:
    """An Attempt with the Case that was executed; ``content`` is its canonical JSON."""

    op: str
    calls: int
    content: str
    suite: str | None
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A Case of a plan for which there is no Attempt."""

    op: str
    case_id: str
    calls: int
    suite: str | None
    device_kind: DeviceKind
    board: str | None


def executed(reader: TroveReader, run_id: str) -> Iterator[ExecutedRow]:
    """Yield the Attempts of a Run with their Cases, in the order in which they were made."""
    for op, calls, content, suite, attempt in reader.source.rows(_EXECUTED, {"run_id": run_id}):
        yield ExecutedRow(op, int(calls), content, suite, answers.attempt_from(attempt))


def waiting(reader: TroveReader, run_id: str) -> Iterator[WaitingRow]:
    """Yield the Cases that a Run has planned and not attempted, in the order of the plan."""
    for op, case_id, calls, suite, kind, board in reader.source.rows(_WAITING, {"run_id": run_id}):
        yield WaitingRow(op, case_id, int(calls), suite, DeviceKind(kind), board)

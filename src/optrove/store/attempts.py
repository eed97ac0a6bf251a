"""Write what came of executing Cases, within the transaction of the caller."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from sqlalchemy import delete, select

from optrove.codec.canonical import fingerprint
from optrove.codec.records import record_to_builtins
from optrove.codec.text import write
from optrove.errors import BadData, Fault
from optrove.store import schema
from optrove.store.prepared import storable, storable_or_none
from optrove.store.rows import among, batches, insert_rows, keys_of, next_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from optrove.model.records import Attempt, Measurement


_ASKED_AT_ONCE: Final = 900


class StoredMeasurement(NamedTuple):
    """A row of ``measurements`` without the Attempt and the place."""

    name: str
    value: float | None
    threshold: float | None
    passed: bool | None
    output: int | None


class StoredAttempt(NamedTuple):
    """A row of ``attempts`` without keys, with the Case and what was measured."""

    attempt_id: str
    case_id: str
    outcome: str
    device_kind: str
    board: str | None
    seed: str
    detail: str | None
    notes: str | None
    started_at: str | None
    duration_ns: int | None
    replayed_case_id: str | None
    content: str
    measurements: tuple[StoredMeasurement, ...]


def prepare_attempt(attempt: Attempt) -> StoredAttempt:
    """Return an Attempt as it is stored; its id is the hash of all that it says."""
    content = record_to_builtins(attempt)
    return StoredAttempt(
        attempt_id=fingerprint(content),
        case_id=attempt.case_id,
        outcome=attempt.outcome.value,
        device_kind=attempt.device_kind.value,
        board=storable_or_none(attempt.board),
        seed=str(attempt.seed),
        detail=storable_or_none(attempt.detail),
        notes=storable_or_none("\n".join(attempt.notes) or None),
        started_at=storable_or_none(attempt.started_at),
        duration_ns=attempt.duration_ns,
        replayed_case_id=storable_or_none(attempt.replayed_case_id),
        content=write(content),
        measurements=tuple(map(_measurement, attempt.measurements)),
    )


def write_attempts(connection: Connection, attempts: Iterable[tuple[int, StoredAttempt]]) -> int:
    """Add those Attempts that are not there yet, and return how many they are.

    Each comes with the key of its Run. BadData when the trove does not hold a Case that was
    attempted. In the Run of a sweep a Case has one Attempt, the earliest of all that were ever
    added.
    """
    by_id = {attempt.attempt_id: (run_key, attempt) for run_key, attempt in attempts}
    known = keys_of(connection, schema.ATTEMPTS.c.attempt_id, by_id)
    new = [by_id[name] for name in sorted(by_id.keys() - known.keys())]
    new = _first_of_sweeps(connection, new)
    cases = keys_of(connection, schema.CASES.c.case_id, (each.case_id for _, each in new))
    check_known(each.case_id for _, each in new if each.case_id not in cases)
    first = next_key(connection, schema.ATTEMPTS)
    rows = (
        # All but the measurements.
        (key, each.attempt_id, run_key, cases[each.case_id], *each[2:-1])
        for key, (run_key, each) in enumerate(new, first)
    )
    insert_rows(connection, schema.ATTEMPTS, rows)
    measured = (
        (key, place, *measurement)
        for key, (_, each) in enumerate(new, first)
        for place, measurement in enumerate(each.measurements)
    )
    insert_rows(connection, schema.MEASUREMENTS, measured)
    return len(new)


def _first_of_sweeps(
    connection: Connection, found: Sequence[tuple[int, StoredAttempt]]
) -> list[tuple[int, StoredAttempt]]:
    """Return those that are to be added: in the Run of a sweep, the first for each Case."""
    keys = sorted({run_key for run_key, _ in found})
    column = schema.SWEEPS.c.run_key
    sweeps: set[int] = set()
    for batch in batches(keys, _ASKED_AT_ONCE):
        chosen = among(connection, column, batch)
        sweeps.update(connection.execute(select(column).where(chosen)).scalars())
    kept: set[str] = set()
    for sweep in sorted(sweeps):
        own = [each for run_key, each in found if run_key == sweep]
        kept.update(_first(connection, sweep, own))
    return [
        (run_key, each)
        for run_key, each in found
        if run_key not in sweeps or each.attempt_id in kept
    ]


def _first(connection: Connection, run_key: int, found: Sequence[StoredAttempt]) -> list[str]:
    """Return the ids of those that are the first for their Cases; later ones are removed."""
    attempts, cases = schema.ATTEMPTS.c, schema.CASES.c
    first: dict[str, tuple[str, str]] = {}
    for each in found:
        rank = (each.started_at or "", each.attempt_id)
        first[each.case_id] = min(rank, first.get(each.case_id, rank))
    later = []
    for batch in batches(sorted(first), _ASKED_AT_ONCE):
        held = connection.execute(
            select(cases.case_id, attempts.started_at, attempts.attempt_id)
            .join_from(schema.ATTEMPTS, schema.CASES)
            .where(attempts.run_key == run_key, among(connection, cases.case_id, batch))
        )
        for case_id, started_at, attempt_id in held:
            if (started_at or "", attempt_id) < first[case_id]:
                del first[case_id]
            else:
                later.append(attempt_id)
    for batch in batches(later, _ASKED_AT_ONCE):
        chosen = among(connection, attempts.attempt_id, batch)
        connection.execute(delete(schema.ATTEMPTS).where(chosen))
    return sorted(attempt_id for _, attempt_id in first.values())


def check_known(unknown: Iterable[str]) -> None:
    """Raise BadData when there are Cases that a trove does not hold."""
    problem = "was attempted or planned, but is not in the trove; add it first"
    faults = [Fault(f"case {case_id}", problem) for case_id in dict.fromkeys(unknown)]
    if faults:
        raise BadData(tuple(faults))


def _measurement(measured: Measurement) -> StoredMeasurement:
    value, threshold = measured.value, measured.threshold
    return StoredMeasurement(
        storable(measured.name),
        # SQLite knows no NaN. The content of the Attempt keeps it.
        None if math.isnan(value) else value,
        None if threshold is None or math.isnan(threshold) else threshold,
        measured.passed,
        measured.output,
    )

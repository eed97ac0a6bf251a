"""Write what came of executing Cases, within the transaction of the caller."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from optrove.codec.canonical import fingerprint
from optrove.codec.records import record_to_builtins
from optrove.codec.text import write
from optrove.errors import BadData, Fault
from optrove.store import schema
from optrove.store.prepared import storable, storable_or_none
from optrove.store.rows import insert_rows, keys_of, next_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from optrove.model.records import Attempt, Measurement


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
        started_at=storable_or_none(attempt.started_at),
        duration_ns=attempt.duration_ns,
        replayed_case_id=storable_or_none(attempt.replayed_case_id),
        content=write(content),
        measurements=tuple(map(_measurement, attempt.measurements)),
    )


def write_attempts(connection: Connection, run_key: int, attempts: Iterable[StoredAttempt]) -> int:
    """Add those Attempts of a Run that are not there yet, and return how many they are.

    BadData when the trove does not hold a Case that was attempted.
    """
    by_id = {attempt.attempt_id: attempt for attempt in attempts}
    known = keys_of(connection, schema.ATTEMPTS.c.attempt_id, by_id)
    new = sorted(by_id.keys() - known.keys())
    cases = keys_of(connection, schema.CASES.c.case_id, (by_id[name].case_id for name in new))
    _check([by_id[name].case_id for name in new if by_id[name].case_id not in cases])
    keys = {name: key for key, name in enumerate(new, next_key(connection, schema.ATTEMPTS))}
    rows = (
        # All but the measurements.
        (keys[name], name, run_key, cases[by_id[name].case_id], *by_id[name][2:-1])
        for name in new
    )
    insert_rows(connection, schema.ATTEMPTS, rows)
    measured = (
        (keys[name], place, *each)
        for name in new
        for place, each in enumerate(by_id[name].measurements)
    )
    insert_rows(connection, schema.MEASUREMENTS, measured)
    return len(new)


def _check(unknown: Sequence[str]) -> None:
    if unknown:
        faults = [
            Fault(f"case {case_id}", "was attempted, but is not in the trove; add it first")
            for case_id in dict.fromkeys(unknown)
        ]
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

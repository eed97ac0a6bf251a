"""Write what a sweep was asked for, and its plan, within the transaction of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete, select

from optrove.codec.canonical import fingerprint
from optrove.codec.records import record_to_builtins
from optrove.codec.text import write
from optrove.store import schema
from optrove.store.prepared import storable_or_none
from optrove.store.rows import insert_rows, keys_of
from optrove.store.stored import StoredPlanned, StoredSweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection

    from optrove.model.records import Sweep
    from optrove.model.trove import PlannedCase


def prepare_planned(planned: Iterable[PlannedCase]) -> list[StoredPlanned]:
    """Return a plan as it is stored."""
    return [
        StoredPlanned(
            each.case_id,
            storable_or_none(each.suite),
            each.device_kind.value,
            storable_or_none(each.board),
        )
        for each in planned
    ]


def prepare_sweep(sweep: Sweep, planned: Sequence[StoredPlanned]) -> StoredSweep:
    """Return a sweep as it is stored, with the hash of its plan."""
    return StoredSweep(fingerprint(list(map(list, planned))), write(record_to_builtins(sweep)))


def write_sweep(
    connection: Connection, run_key: int, sweep: StoredSweep, planned: Sequence[StoredPlanned]
) -> None:
    """Add a sweep and its plan, whose Cases are there; nothing when a greater one is there."""
    sweeps, plans = schema.SWEEPS, schema.PLANNED
    held = connection.execute(
        select(sweeps.c.plan_id, sweeps.c.content).where(sweeps.c.run_key == run_key)
    ).one_or_none()
    if held is not None:
        if StoredSweep(*held) >= sweep:
            return
        connection.execute(delete(plans).where(plans.c.run_key == run_key))
        connection.execute(delete(sweeps).where(sweeps.c.run_key == run_key))
    keys = keys_of(connection, schema.CASES.c.case_id, (each.case_id for each in planned))
    insert_rows(connection, sweeps, [(run_key, *sweep)])
    rows = ((run_key, place, keys[each.case_id], *each[1:]) for place, each in enumerate(planned))
    insert_rows(connection, plans, rows)

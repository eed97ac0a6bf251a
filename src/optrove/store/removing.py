"""Remove Recordings and Runs from a trove, with all that nothing else refers to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import delete, select

from optrove.model.trove import Removed
from optrove.store import schema
from optrove.store.counting import take_back_calls
from optrove.store.rows import among, batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy import Column, Connection, Table

_AT_ONCE: Final = 900


@dataclass(slots=True)
class Loose:
    """The keys of what may have become unused, because something that used it is gone."""

    cases: set[int] = field(default_factory=set)
    scopes: set[int] = field(default_factory=set)
    endings: set[int] = field(default_factory=set)

    def add(self, other: Loose) -> None:
        """Take in what something else has left behind."""
        self.cases |= other.cases
        self.scopes |= other.scopes
        self.endings |= other.endings


def remove_recording(connection: Connection, recording_key: int) -> Loose:
    """Remove a Recording and take back its calls; return what it has used."""
    recordings, executions = schema.RECORDINGS, schema.EXECUTIONS.c
    run_key = connection.execute(
        select(recordings.c.run_key).where(recordings.c.key == recording_key)
    ).scalar_one()
    loose = Loose(
        cases=_used(connection, executions.case_key, recording_key),
        scopes=_used(connection, executions.scope_key, recording_key),
        endings=_used(connection, executions.ending_key, recording_key),
    )
    take_back_calls(connection, run_key, recording_key)
    connection.execute(delete(recordings).where(recordings.c.key == recording_key))
    return loose


def remove_unused(connection: Connection, loose: Loose) -> int:
    """Remove of these what nothing refers to any more; return how many Cases that were."""
    executions, usage, attempts = schema.EXECUTIONS.c, schema.USAGE.c, schema.ATTEMPTS.c
    _remove(connection, schema.SCOPES, loose.scopes, [executions.scope_key])
    _remove(connection, schema.ENDINGS, loose.endings, [executions.ending_key])
    planned, configured = schema.PLANNED.c.case_key, schema.CONFIG_CALLS.c.case_key
    users = [usage.case_key, attempts.case_key, planned, configured]
    return _remove(connection, schema.CASES, loose.cases, users)


def remove_environment(connection: Connection, environment_key: int) -> None:
    """Remove an environment in which no Run took place."""
    users = [schema.RUNS.c.environment_key]
    _remove(connection, schema.ENVIRONMENTS, [environment_key], users)


def remove_run(connection: Connection, run_id: str) -> Removed:
    """Remove a Run with all that nothing else refers to; nothing when there is no such Run."""
    runs, recordings, attempts = schema.RUNS, schema.RECORDINGS, schema.ATTEMPTS
    plans = schema.PLANNED
    run = connection.execute(
        select(runs.c.key, runs.c.environment_key).where(runs.c.run_id == run_id)
    ).one_or_none()
    if run is None:
        return Removed(0, 0, 0, 0)
    parts = connection.execute(
        select(recordings.c.key, recordings.c.calls).where(recordings.c.run_key == run.key)
    ).all()
    tried = select(attempts.c.case_key).where(attempts.c.run_key == run.key)
    planned = select(plans.c.case_key).where(plans.c.run_key == run.key)
    loose = Loose(cases=set(connection.execute(tried.union(planned)).scalars()))
    for part in parts:
        loose.add(remove_recording(connection, part.key))
    connection.execute(delete(attempts).where(attempts.c.run_key == run.key))
    connection.execute(delete(runs).where(runs.c.key == run.key))
    remove_environment(connection, run.environment_key)
    cases = remove_unused(connection, loose)
    return Removed(1, len(parts), sum(part.calls for part in parts), cases)


def _used(connection: Connection, column: Column[Any], recording_key: int) -> set[int]:
    statement = select(column).where(
        schema.EXECUTIONS.c.recording_key == recording_key, column.is_not(None)
    )
    return set(connection.execute(statement.distinct()).scalars())


def _remove(
    connection: Connection, table: Table, keys: Iterable[int], users: Iterable[Column[Any]]
) -> int:
    """Remove rows by their keys unless one of ``users`` refers to them; return how many."""
    unused = [~select(user).where(user == table.c.key).exists() for user in users]
    removed = 0
    for batch in batches(sorted(keys), _AT_ONCE):
        result = connection.execute(
            delete(table).where(among(connection, table.c.key, batch), *unused)
        )
        removed += result.rowcount
    return removed

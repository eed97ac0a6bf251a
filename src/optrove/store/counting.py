"""Keep right what is derived from executions: how often Cases and operations were called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import case, delete, func, insert, literal, select, true, update

from optrove.store.rows import insert_into
from optrove.store.schema import CASES, EXECUTIONS, OP_USAGE, RECORDINGS, USAGE

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Subquery, Update

_CALLS = EXECUTIONS.c.calls
_OUTERMOST_CALLS = case((EXECUTIONS.c.outermost, EXECUTIONS.c.calls), else_=0)


def count_calls(connection: Connection, run_key: int, recording_key: int) -> None:
    """Count the calls of a Recording, which has just been written."""
    _count(connection, run_key, recording_key, 1)
    refresh_op_usage(connection, run_key)


def take_back_calls(connection: Connection, run_key: int, recording_key: int) -> None:
    """Take back the calls of a Recording, which is about to be removed."""
    _count(connection, run_key, recording_key, -1)
    others = (
        select(EXECUTIONS.c.case_key)
        .join(RECORDINGS)
        .where(RECORDINGS.c.run_key == run_key, RECORDINGS.c.key != recording_key)
        .where(EXECUTIONS.c.case_key == USAGE.c.case_key)
    )
    connection.execute(delete(USAGE).where(USAGE.c.run_key == run_key, ~others.exists()))


def refresh_op_usage(connection: Connection, run_key: int) -> None:
    """Sum up by operation how often a Run has called each Case."""
    connection.execute(delete(OP_USAGE).where(OP_USAGE.c.run_key == run_key))
    sums = (
        select(
            USAGE.c.run_key,
            CASES.c.op,
            func.count(),
            func.sum(case((USAGE.c.outermost_calls > 0, 1), else_=0)),
            func.sum(USAGE.c.calls),
            func.sum(USAGE.c.outermost_calls),
        )
        .join(CASES)
        .where(USAGE.c.run_key == run_key)
        .group_by(USAGE.c.run_key, CASES.c.op)
    )
    columns = [column.name for column in OP_USAGE.columns]
    connection.execute(insert(OP_USAGE).from_select(columns, sums))


def _count(connection: Connection, run_key: int, recording_key: int, sign: int) -> None:
    sums = (
        select(
            EXECUTIONS.c.case_key,
            (sign * func.sum(_CALLS)).label("calls"),
            (sign * func.sum(_OUTERMOST_CALLS)).label("outermost_calls"),
        )
        .where(EXECUTIONS.c.recording_key == recording_key)
        .group_by(EXECUTIONS.c.case_key)
        .subquery()
    )
    new = insert_into(connection, USAGE)
    added = new.from_select(
        [column.name for column in USAGE.columns],
        # SQLite takes what follows for part of a join, unless there is a condition before it.
        select(literal(run_key), sums).where(true()),
    )
    connection.execute(
        added.on_conflict_do_update(
            index_elements=[USAGE.c.run_key, USAGE.c.case_key],
            set_={
                "calls": USAGE.c.calls + new.excluded.calls,
                "outermost_calls": USAGE.c.outermost_calls + new.excluded.outermost_calls,
            },
        )
    )
    if connection.dialect.name == "postgresql":
        connection.execute(_totals_joined(sums))
    else:
        connection.execute(_totals_looked_up(recording_key, sign))


def _totals_joined(sums: Subquery) -> Update:
    """Return the change of the totals by one join, which SQLite cannot do before 3.33."""
    return (
        update(CASES)
        .where(CASES.c.key == sums.c.case_key)
        .values(
            calls=CASES.c.calls + sums.c.calls,
            outermost_calls=CASES.c.outermost_calls + sums.c.outermost_calls,
        )
    )


def _totals_looked_up(recording_key: int, sign: int) -> Update:
    """Return the change of the totals Case by Case, which PostgreSQL does without the index."""
    of_recording = EXECUTIONS.c.recording_key == recording_key

    def of_case(calls: ColumnElement[int]) -> ColumnElement[int]:
        told = select(func.sum(calls)).where(of_recording, EXECUTIONS.c.case_key == CASES.c.key)
        return sign * told.scalar_subquery()

    return (
        update(CASES)
        .where(CASES.c.key.in_(select(EXECUTIONS.c.case_key).where(of_recording)))
        .values(
            calls=CASES.c.calls + of_case(_CALLS),
            outermost_calls=CASES.c.outermost_calls + of_case(_OUTERMOST_CALLS),
        )
    )

"""Insert many rows at once, and find the keys of what is there by its id.

Only one process writes at a time, so a writer may number what it adds by itself.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import ARRAY, any_, bindparam, func, insert, literal, select
from sqlalchemy.dialects import sqlite

from optrove.store.postgres import copy_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Dialect, Table
    from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

T = TypeVar("T")

_BATCH: Final = 5_000
# SQLite before 3.32 takes no more than 999 parameters. Few sizes, so that few texts are made.
_ASKED_AT_ONCE: Final = (1, 30, 900)
_IN_ARRAY: Final = 2_000


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield ``items`` in lists of this size; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def insert_rows(connection: Connection, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows that are not there yet, each with all columns of the table in their order."""
    if connection.dialect.name == "postgresql":
        names = [column.name for column in table.columns]
        copy_rows(connection, table.name, names, rows)
        return
    sql = _insert_text(connection.dialect, table)
    for batch in batches(rows, _BATCH):
        connection.exec_driver_sql(sql, [tuple(row) for row in batch])


def insert_one(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """Insert a row that is not there yet, and return the key that it was given."""
    key = next_key(connection, table)
    connection.execute(insert(table).values(key=key, **values))
    return key


def insert_new(
    connection: Connection, column: Column[Any], rows: Mapping[str, Sequence[Any]]
) -> dict[str, int]:
    """Insert those rows that are not there yet, and return the keys of all, by their ids.

    ``column`` has the ids. The rows have all columns in their order but for the first, the key.
    """
    keys = keys_of(connection, column, rows)
    missing = sorted(rows.keys() - keys.keys())
    first = next_key(connection, column.table) if missing else 0
    given = {name: key for key, name in enumerate(missing, first)}
    insert_rows(connection, column.table, ((key, *rows[name]) for name, key in given.items()))
    return {**keys, **given}


def next_key(connection: Connection, table: Table) -> int:
    """Return a key that no row of the table has, nor any greater one."""
    greatest = connection.execute(select(func.max(table.c.key))).scalar_one()
    return 1 if greatest is None else int(greatest) + 1


def keys_of(connection: Connection, column: Column[Any], ids: Iterable[str]) -> dict[str, int]:
    """Return the keys of those rows that are there, by the id that ``column`` has."""
    found: dict[str, int] = {}
    wanted = sorted(set(ids))
    if connection.dialect.name == "postgresql":
        lookup = select(column, column.table.c.key)
        for batch in batches(wanted, _IN_ARRAY):
            rows = connection.execute(lookup.where(among(connection, column, batch)))
            found.update((name, key) for name, key in rows)
        return found
    for batch in batches(wanted, _ASKED_AT_ONCE[-1]):
        size = next(size for size in _ASKED_AT_ONCE if size >= len(batch))
        asked = (*batch, *batch[-1:] * (size - len(batch)))
        sql = _lookup_text(connection.dialect, column, size)
        found.update(connection.exec_driver_sql(sql, asked).all())
    return found


def among(
    connection: Connection, column: Column[Any], values: Sequence[Any]
) -> ColumnElement[bool]:
    """Return the condition that ``column`` has one of some values; SQLite takes 900 of them.

    PostgreSQL gets them as an array: written out, they keep its driver busy for milliseconds.
    """
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(column.type)))
    return column.in_(values)


def insert_into(connection: Connection, table: Table) -> SqliteInsert | PostgresInsert:
    """Return an INSERT that can say what to do about a conflict."""
    if connection.dialect.name == "postgresql":
        # Takes long to import, and most troves are of SQLite.
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    return sqlite.insert(table)


@lru_cache(maxsize=64)
def _insert_text(dialect: Dialect, table: Table) -> str:
    return str(insert(table).compile(dialect=dialect))


@lru_cache(maxsize=64)
def _lookup_text(dialect: Dialect, column: Column[Any], size: int) -> str:
    asked = [bindparam(f"id{place}", type_=column.type) for place in range(size)]
    lookup = select(column, column.table.c.key).where(column.in_(asked))
    return str(lookup.compile(dialect=dialect))

"""Connections to SQLite and PostgreSQL, and what their errors mean.

SQLite lets one process write at a time, and the others wait. On PostgreSQL an advisory lock does
the same, so that what a writer has found is still so when it writes, on either.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, ProgrammingError
from sqlalchemy.pool import NullPool

from optrove.errors import UnusableTrove
from optrove.trove.faults import postgres_fault, sqlite_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from optrove.trove.place import Place


_TABLES: Final = """
SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()
"""
_COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = :name
"""


class PostgresSource:
    """A trove in a PostgreSQL database, open for reading."""

    def __init__(self, place: Place, url: str) -> None:
        self.place = place
        self._engine = postgres_engine(url)
        self._depth = 0
        with postgres_faults(place):
            self._connection = self._engine.connect().execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )

    def rows(self, sql: str, parameters: Mapping[str, object]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the answer, as they come."""
        with postgres_faults(self.place), self.snapshot():
            result = self._connection.execute(
                text(_with_arrays(sql, parameters)),
                dict(parameters),
                execution_options={"yield_per": 1000},
            )
            with closing(result):
                for row in result:
                    yield tuple(row)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer all questions inside the block from one and the same state of the trove."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and not self._connection.closed:
                with postgres_faults(self.place):
                    self._connection.rollback()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Refuse questions inside the block, which is within a snapshot, that take longer."""
        # For the transaction only, which ends with the snapshot.
        limit = f"{max(int(seconds * 1000), 1)}ms"
        list(self.rows("SELECT set_config('statement_timeout', :limit, true)", {"limit": limit}))
        yield

    def state(self) -> str:
        """Return a text that is another one whenever others have changed the trove."""
        ((running,),) = self.rows("SELECT CAST(pg_current_snapshot() AS text)", {})
        return str(running)

    def tables(self) -> frozenset[str]:
        """Return the names of all tables."""
        return frozenset(name for (name,) in self.rows(_TABLES, {}))

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table."""
        return frozenset(name for (name,) in self.rows(_COLUMNS, {"name": table}))

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
        self._engine.dispose()


def _with_arrays(sql: str, parameters: Mapping[str, object]) -> str:
    """Return a question in which lists are arrays.

    A list of hundreds that is written out keeps the driver busier than the answer the server.
    """
    for name, value in parameters.items():
        if isinstance(value, list):
            sql = sql.replace(f"IN :{name}", f"= ANY(:{name})")
    return sql


def postgres_engine(url: str, **options: Any) -> Engine:
    """Return an engine for the server of ``url``; it connects when it is first used."""
    try:
        # Positional parameters, so that rows can be given as tuples.
        return create_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            paramstyle="format",
            # A plan that was kept from when a table was empty goes through all of it later.
            connect_args={"prepare_threshold": None},
            **options,
        )
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise UnusableTrove(
            "a trove on a PostgreSQL server needs its driver, which is not installed; "
            "install it with: pip install 'optrove[postgres]'"
        ) from error


@contextmanager
def postgres_faults(place: Place) -> Iterator[None]:
    """Turn what the server or its driver raise inside the block into errors that say what to do."""
    try:
        yield
    except DBAPIError as error:
        code = code_of(error)
        if isinstance(error, IntegrityError) or (code and _is_ours(error, code)):
            raise
        raise postgres_fault(code, str(error.orig), place) from error


def copy_rows(
    connection: Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows the fast way, within the transaction of ``connection``."""
    from psycopg import Error, sql

    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), names)
    driver: Any = connection.connection.driver_connection
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except Error as error:
        raise DBAPIError.instance(f"COPY {table}", None, error, Error) from error


def code_of(error: DBAPIError) -> str | None:
    """Return the code that PostgreSQL gives an error; None where it gave no answer."""
    code = getattr(error.orig, "sqlstate", None)
    return None if code is None else str(code)


def _is_ours(error: DBAPIError, code: str) -> bool:
    """Tell whether an error is a mistake of ours, about which no user can do anything."""
    missing_or_forbidden = ("42P01", "42703", "42501")
    return isinstance(error, ProgrammingError) and code not in missing_or_forbidden


# Any number will do that no other program uses for its own locks: "optrove" in ASCII.
_LOCK: Final = 0x6F7074726F7665
_PAUSE_S: Final = 0.02


def engine_of(place: Place, timeout_s: float) -> Engine:
    """Return an engine that waits for other writers as long as ``timeout_s``."""
    if place.path is not None:
        return _sqlite_engine(place.path, timeout_s)
    engine = postgres_engine(str(place.url))
    event.listen(engine, "begin", lambda connection: _take_turn(connection, timeout_s))
    return engine


@contextmanager
def faults_of(place: Place) -> Iterator[None]:
    """Turn what a database raises inside the block into errors that say what to do."""
    if place.path is None:
        with postgres_faults(place):
            yield
        return
    with sqlite_faults(place):
        try:
            yield
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise error.orig from error
            raise


def _sqlite_engine(path: Path, timeout_s: float) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path.absolute())),
        poolclass=NullPool,
        connect_args={"timeout": timeout_s},
    )
    event.listen(engine, "connect", lambda connection, _: _prepare(connection, timeout_s))
    event.listen(engine, "begin", _begin_to_write)
    return engine


def _prepare(connection: Any, timeout_s: float) -> None:
    # The driver is not to begin transactions by itself.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = ON")
    _use_write_ahead_log(connection, time.monotonic() + timeout_s)
    connection.execute("PRAGMA synchronous = NORMAL")


def _use_write_ahead_log(connection: Any, deadline: float) -> None:
    """Let readers read while others write; where the file system cannot, they take turns."""
    while not _is_logging_ahead(connection, deadline):
        time.sleep(_PAUSE_S)


def _is_logging_ahead(connection: Any, deadline: float) -> bool:
    """Ask for the log; False when others were in the way, for which SQLite does not wait here."""
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error) or time.monotonic() > deadline:
            raise
        return False
    return True


def _begin_to_write(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _take_turn(connection: Connection, timeout_s: float) -> None:
    limit = f"SET LOCAL lock_timeout = {max(1, round(timeout_s * 1000))}"
    connection.exec_driver_sql(limit)
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")

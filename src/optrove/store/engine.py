"""Reach a trove for writing: one connection, one writer at a time, all or nothing.

SQLite lets one process write at a time, and the others wait. On PostgreSQL an advisory lock does
the same, so that what a writer has found is still so when it writes, on either.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from optrove.store.faults import sqlite_faults
from optrove.store.postgres import postgres_engine, postgres_faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

    from optrove.store.place import Place

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

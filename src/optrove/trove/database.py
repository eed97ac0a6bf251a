"""Connections to the database of a trove: SQLite files and PostgreSQL servers.

Queries are SQL that both databases understand, with ``:name`` parameters. ``IN :name`` stands for
a list parameter; SQLite gets the list as JSON, PostgreSQL as an array.

One process writes at a time and the others wait: SQLite does that itself, on PostgreSQL an
advisory lock does. So rows that a writer has read are still the same when it writes.
"""

from __future__ import annotations

import json
import re
import sqlite3
import stat
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count, islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from optrove.errors import UnusableTrove
from optrove.trove.faults import foreign, no_trove, postgres_fault, sqlite_faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    import psycopg

    from optrove.trove.place import Place

T = TypeVar("T")
Opened = TypeVar("Opened", bound="OpenedTrove")

WAIT_S: Final = 30.0
"""How long a connection waits for other writers."""

_NONE: Final[Mapping[str, object]] = MappingProxyType({})


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield ``items`` in lists of this size; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def storable(text: str) -> str:
    """Return ``text`` with visible escapes for characters that databases refuse."""
    if text.isprintable():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def connect(place: Place) -> Connection:
    """Connect to a trove for reading.

    NoTrove or NotATrove when a file is missing or something else.
    """
    if place.path is not None:
        return SqliteConnection(place, _open_for_reading(place, place.path))
    return PostgresConnection(place, readonly=True)


def connect_to_write(place: Place, wait_s: float) -> Connection:
    """Connect to a database for writing; a file that does not exist is created.

    ``wait_s`` is how long a transaction waits for other writers.
    """
    if place.path is not None:
        with sqlite_faults(place):
            return SqliteConnection(place, _open_for_writing(place.path, wait_s))
    return PostgresConnection(place, readonly=False, wait_s=wait_s)


class Connection(ABC):
    """A connection to the database of a trove."""

    dialect: ClassVar[str]
    place: Place
    driver: Any
    _tables: ClassVar[str]
    _columns: ClassVar[str]

    def __init__(self, place: Place) -> None:
        self.place = place
        self._depth = 0

    @abstractmethod
    def rows(self, sql: str, parameters: Mapping[str, object] = _NONE) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query as they arrive."""

    @abstractmethod
    def fetch(self, sql: str, parameters: Mapping[str, object] = _NONE) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""

    @abstractmethod
    def execute(self, sql: str, parameters: Mapping[str, object] = _NONE) -> int:
        """Execute a statement, and return the number of rows that it changed."""

    @abstractmethod
    def insert(self, into: str, rows: Iterable[Sequence[object]]) -> None:
        """Insert new rows; ``into`` is a table with the columns that they have: ``t (a, b)``."""

    @abstractmethod
    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Stop queries inside the block that take longer; the block is inside a snapshot."""

    @abstractmethod
    def state(self) -> str:
        """Return a text that changes whenever other connections change the trove."""

    def tables(self) -> frozenset[str]:
        """Return the names of all tables and views."""
        return frozenset(name for (name,) in self.fetch(self._tables))

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table."""
        return frozenset(name for (name,) in self.fetch(self._columns, {"name": table}))

    def close(self) -> None:
        """Close the connection."""
        self.driver.close()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction or a snapshot is open."""
        return self._depth > 0

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer all queries inside the block from one state of the trove."""
        if self._depth == 0:
            self._begin_to_read()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._rollback()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything inside the block or nothing; a nested one is part of the outer one."""
        if self._depth:
            yield
            return
        with self._faults():
            self._begin_to_write()
            self._depth = 1
            try:
                yield
                self._commit()
            except BaseException:
                self._rollback()
                raise
            finally:
                self._depth = 0

    @abstractmethod
    def _faults(self) -> AbstractContextManager[None]:
        """Turn errors of the driver inside the block into errors with advice."""

    @abstractmethod
    def _begin_to_read(self) -> None: ...

    @abstractmethod
    def _begin_to_write(self) -> None: ...

    @abstractmethod
    def _commit(self) -> None: ...

    @abstractmethod
    def _rollback(self) -> None: ...


class OpenedTrove:
    """A trove with its connection, which ends with the block."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def place(self) -> Place:
        """The place of the trove."""
        return self.connection.place

    def __enter__(self: Opened) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the trove."""
        self.connection.close()


_LIST: Final = re.compile(r"\bIN :(\w+)")
_HOST_AND_PORT: Final = re.compile(r"([A-Za-z0-9.-]+):([0-9]+)")
_PARAMETER: Final = re.compile(r"(?<![:\w]):(\w+)")


class SqliteConnection(Connection):
    """A connection to an SQLite file."""

    dialect = "sqlite"
    driver: sqlite3.Connection
    _tables = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    _columns = "SELECT name FROM pragma_table_info(:name)"

    def __init__(self, place: Place, driver: sqlite3.Connection) -> None:
        super().__init__(place)
        self.driver = driver

    def rows(self, sql: str, parameters: Mapping[str, object] = _NONE) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query as they arrive."""
        with self._faults():
            cursor = self._execute(sql, parameters)
            while batch := cursor.fetchmany(256):
                yield from batch

    def fetch(self, sql: str, parameters: Mapping[str, object] = _NONE) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._faults():
            return self._execute(sql, parameters).fetchall()

    def execute(self, sql: str, parameters: Mapping[str, object] = _NONE) -> int:
        """Execute a statement, and return the number of rows that it changed."""
        with self._faults():
            return self._execute(sql, parameters).rowcount

    def insert(self, into: str, rows: Iterable[Sequence[object]]) -> None:
        """Insert new rows; ``into`` is a table with the columns that they have: ``t (a, b)``."""
        marks = ", ".join("?" * (into.count(",") + 1))
        with self._faults():
            self.driver.executemany(
                f"INSERT INTO {into} VALUES ({marks})",  # noqa: S608 - names of ours
                rows,
            )

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Stop queries inside the block that take longer; the block is inside a snapshot."""
        latest = time.monotonic() + seconds
        # SQLite asks after this many of its steps, some tenths of a millisecond.
        self.driver.set_progress_handler(lambda: time.monotonic() > latest, 10_000)
        try:
            yield
        finally:
            self.driver.set_progress_handler(None, 0)

    def state(self) -> str:
        """Return a text that changes whenever other connections change the trove."""
        ((number,),) = self.fetch("PRAGMA data_version")
        return str(number)

    def _execute(self, sql: str, parameters: Mapping[str, object]) -> sqlite3.Cursor:
        lists = {
            name: json.dumps(each) for name, each in parameters.items() if isinstance(each, list)
        }
        if lists:
            sql = _with_json(sql)
        return self.driver.execute(sql, {**_storable(parameters), **lists})

    def _faults(self) -> AbstractContextManager[None]:
        return sqlite_faults(self.place)

    def _begin_to_read(self) -> None:
        self.execute("BEGIN")

    def _begin_to_write(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self.execute("COMMIT")

    def _rollback(self) -> None:
        # The connection may be closed while a caller still iterates over rows.
        with suppress(sqlite3.ProgrammingError):
            if self.driver.in_transaction:
                self.driver.execute("ROLLBACK")


@lru_cache(maxsize=256)
def _with_json(sql: str) -> str:
    return _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", sql)


def _open_for_writing(path: Path, wait_s: float) -> sqlite3.Connection:
    driver = sqlite3.connect(
        path.absolute(), timeout=wait_s, isolation_level=None, check_same_thread=False
    )
    try:
        driver.execute("PRAGMA foreign_keys = ON")
        latest = time.monotonic() + wait_s
        while not _use_write_ahead_log(driver, latest):
            time.sleep(0.02)
        driver.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        driver.close()
        raise
    return driver


def _use_write_ahead_log(driver: sqlite3.Connection, latest: float) -> bool:
    """Let readers read during writes; on file systems without shared memory they take turns.

    Return False when another process is in the way, for which SQLite does not wait here.
    """
    try:
        driver.execute("PRAGMA journal_mode = WAL").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error) or time.monotonic() > latest:
            raise
        return False
    return True


def _open_for_reading(place: Place, path: Path) -> sqlite3.Connection:
    check_file(place, path)
    with sqlite_faults(place):
        try:
            # Not "ro", which leaves empty files beside the trove, and cannot undo the transaction
            # of a killed writer. SQLite itself copes with files that cannot be written.
            return _opened(path, "mode=rw")
        except sqlite3.DatabaseError as error:
            if "not a database" in str(error):
                raise foreign(place, "it is a file of another kind") from error
            # On a read-only disk SQLite cannot create its files beside the trove. If they would
            # be empty anyway, it can read without them.
            no_rights = str(error).startswith(("unable to open", "attempt to write a readonly"))
            if _has_log(path) or not no_rights:
                raise
            return _opened(path, "mode=ro&immutable=1")


def check_file(place: Place, path: Path) -> None:
    """Refuse a missing file, a directory, and an empty file.

    The file itself is not opened: when a process closes a file, it loses its locks on it, also
    those of its open connections, and other processes then remove files that these need.
    """
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise no_trove(place) from error
    except OSError as error:
        raise UnusableTrove(f"the trove {place} cannot be read: {error}") from error
    if stat.S_ISDIR(found.st_mode):
        raise foreign(place, "it is a directory")
    if not found.st_size:
        raise foreign(place, "it is an empty file")


def _opened(path: Path, options: str) -> sqlite3.Connection:
    driver = sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        driver.execute("PRAGMA query_only = ON")
        driver.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        driver.close()
        raise
    return driver


def _has_log(path: Path) -> bool:
    """Return whether a log beside the trove holds changes that are not in the file itself."""
    beside = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    return any(each.exists() and each.stat().st_size for each in beside)


# Any number that other programs do not use for their own locks: "optrove" in ASCII.
_LOCK: Final = 0x6F7074726F7665
_DAMAGED_OR_FORBIDDEN: Final = ("42P01", "42703", "42501", None)


class PostgresConnection(Connection):
    """A connection to a PostgreSQL database."""

    dialect = "postgresql"
    driver: psycopg.Connection[tuple[Any, ...]]
    _tables = """
SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()
"""
    _columns = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = :name
"""

    def __init__(self, place: Place, *, readonly: bool, wait_s: float = WAIT_S) -> None:
        super().__init__(place)
        try:
            import psycopg
            from psycopg.types.numeric import IntLoader
        except ModuleNotFoundError as error:
            raise UnusableTrove(
                "a trove on a PostgreSQL server needs its driver, which is not installed; "
                "install it with: pip install 'optrove[postgres]'"
            ) from error
        self._wait_s = wait_s
        self._numbers = count(1)
        with self._faults():
            # A plan that was prepared when a table was empty scans all of it later.
            self.driver = psycopg.connect(
                psycopg.conninfo.make_conninfo(**options_of(str(place.url))),
                prepare_threshold=None,
            )
        # The type of a sum of whole numbers, which are the only ones that are asked for.
        self.driver.adapters.register_loader("numeric", IntLoader)
        if readonly:
            self.driver.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self.driver.read_only = True

    def rows(self, sql: str, parameters: Mapping[str, object] = _NONE) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query as they arrive."""
        name = f"rows{next(self._numbers)}"
        with self._faults(), self.snapshot(), self.driver.cursor(name) as cursor:
            cursor.itersize = 1000
            cursor.execute(*_in_format(sql, parameters))
            yield from cursor

    def fetch(self, sql: str, parameters: Mapping[str, object] = _NONE) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._faults(), self.snapshot(), self.driver.cursor() as cursor:
            return cursor.execute(*_in_format(sql, parameters)).fetchall()

    def execute(self, sql: str, parameters: Mapping[str, object] = _NONE) -> int:
        """Execute a statement, and return the number of rows that it changed."""
        with self._faults(), self.driver.cursor() as cursor:
            return cursor.execute(*_in_format(sql, parameters)).rowcount

    def insert(self, into: str, rows: Iterable[Sequence[object]]) -> None:
        """Insert new rows; ``into`` is a table with the columns that they have: ``t (a, b)``."""
        with (
            self._faults(),
            self.driver.cursor() as cursor,
            cursor.copy(f"COPY {into} FROM STDIN".encode()) as copy,
        ):
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Stop queries inside the block that take longer; the block is inside a snapshot."""
        # Holds for the transaction only, which ends with the snapshot.
        limit = f"{max(int(seconds * 1000), 1)}ms"
        self.fetch("SELECT set_config('statement_timeout', :limit, true)", {"limit": limit})
        yield

    def state(self) -> str:
        """Return a text that changes whenever other connections change the trove."""
        ((running,),) = self.fetch("SELECT CAST(pg_current_snapshot() AS text)")
        return str(running)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        from psycopg import Error, IntegrityError, ProgrammingError

        try:
            yield
        except Error as error:
            code = error.sqlstate
            ours = isinstance(error, ProgrammingError) and code not in _DAMAGED_OR_FORBIDDEN
            if ours or isinstance(error, IntegrityError):
                # A mistake of ours, about which users can do nothing.
                raise
            raise postgres_fault(code, str(error), self.place) from error

    def _begin_to_read(self) -> None:
        """Do nothing: the driver begins a transaction with the first query."""

    def _begin_to_write(self) -> None:
        self.execute(f"SET LOCAL lock_timeout = {max(1, round(self._wait_s * 1000))}")
        self.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")

    def _commit(self) -> None:
        self.driver.commit()

    def _rollback(self) -> None:
        if not self.driver.closed:
            with self._faults():
                self.driver.rollback()


def options_of(url: str) -> dict[str, str]:
    """Return the connection options of a PostgreSQL URL; those of its query take precedence."""
    parts = urlsplit(url)
    options = {
        "user": parts.username,
        "password": parts.password,
        "host": parts.hostname,
        "port": None if parts.port is None else str(parts.port),
        "dbname": parts.path.strip("/"),
    }
    query = parse_qs(parts.query)
    hosts = query.get("host", [])
    if any(map(_HOST_AND_PORT.fullmatch, hosts)):
        pairs = [_HOST_AND_PORT.sub(r"\1 \2", each).partition(" ") for each in hosts]
        query.update(host=[host for host, _, _ in pairs], port=[port for _, _, port in pairs])
    named = {name: unquote(value) for name, value in options.items() if value}
    # Several hosts or ports are alternatives, which libpq separates by commas.
    return {**named, **{name: ",".join(values) for name, values in query.items()}}


def _storable(parameters: Mapping[str, object]) -> dict[str, object]:
    return {
        name: storable(value) if isinstance(value, str) else value
        for name, value in parameters.items()
    }


def _in_format(sql: str, parameters: Mapping[str, object]) -> tuple[bytes, Any]:
    """Return a query and its parameters in the style of psycopg."""
    return (_formatted(sql), _storable(parameters)) if parameters else (sql.encode(), None)


@lru_cache(maxsize=256)
def _formatted(sql: str) -> bytes:
    listed = _LIST.sub(r"= ANY(:\1)", sql.replace("%", "%%"))
    return _PARAMETER.sub(r"%(\1)s", listed).encode()


_IDS_PER_BATCH: Final = 2_000


def keys_of(connection: Connection, table: str, ids: Iterable[str]) -> dict[str, int]:
    """Return the keys of those rows of a table that are there, by their ids."""
    name = f"{table.removesuffix('s')}_id"
    sql = f"SELECT {name}, key FROM {table} WHERE {name} IN :ids"  # noqa: S608 - names of ours
    found: dict[str, int] = {}
    for batch in batches(sorted(set(ids)), _IDS_PER_BATCH):
        found.update(connection.fetch(sql, {"ids": batch}))
    return found


def next_key(connection: Connection, table: str) -> int:
    """Return a key that is greater than those of all rows of a table."""
    sql = f"SELECT coalesce(max(key), 0) + 1 FROM {table}"  # noqa: S608 - a name of ours
    ((key,),) = connection.fetch(sql)
    return int(key)


def insert_new(
    connection: Connection, table: str, columns: str, rows: Mapping[str, Sequence[object]]
) -> dict[str, int]:
    """Insert those rows that are not there yet, and return the keys of all, by their ids.

    ``columns`` are those of the rows; the first holds the id.
    """
    keys = keys_of(connection, table, rows)
    missing = sorted(rows.keys() - keys.keys())
    if missing:
        first = next_key(connection, table)
        new = {name: key for key, name in enumerate(missing, first)}
        into = f"{table} (key, {columns})"
        connection.insert(into, ((key, *rows[name]) for name, key in new.items()))
        keys.update(new)
    return keys

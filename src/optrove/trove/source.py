"""Ask a trove questions in SQL, without being able to change it: what readers have in common.

Questions are texts with ``:name`` parameters that SQLite and PostgreSQL both understand; lists are
asked for as ``IN :name``, which each of the two is told in its own way. An SQLite trove is read
through ``sqlite3`` alone, because importing SQLAlchemy takes longer than the answer.
"""

from __future__ import annotations

import sqlite3
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from optrove.errors import UnusableTrove
from optrove.trove.faults import foreign, no_trove, sqlite_faults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from optrove.trove.place import Place

_BATCH: Final = 256
_BUSY_S: Final = 30.0
_STEPS: Final = 10_000
"""After how many steps of SQLite, some tenths of a millisecond, the clock is looked at."""
_NO_RIGHTS: Final = ("unable to open", "attempt to write a readonly")


class Source(Protocol):
    """A trove that is open for reading."""

    @property
    def place(self) -> Place:
        """Where the trove is."""

    def rows(self, sql: str, parameters: Mapping[str, object]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the answer, as they come."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Answer all questions inside the block from one and the same state of the trove."""

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Refuse questions inside the block, which is within a snapshot, that take longer."""

    def state(self) -> str:
        """Return a text that is another one whenever others have changed the trove."""

    def tables(self) -> frozenset[str]:
        """Return the names of all tables."""

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table."""

    def close(self) -> None:
        """Let go of the trove."""


class SqliteSource:
    """A trove in a file."""

    def __init__(self, place: Place, connection: sqlite3.Connection) -> None:
        self.place = place
        self._connection = connection
        self._depth = 0

    def rows(self, sql: str, parameters: Mapping[str, object]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the answer, as they come."""
        with sqlite_faults(self.place):
            cursor = self._connection.execute(*_written_out(sql, parameters))
            while batch := cursor.fetchmany(_BATCH):
                yield from batch

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Answer all questions inside the block from one and the same state of the trove."""
        if self._depth == 0:
            with sqlite_faults(self.place):
                self._connection.execute("BEGIN")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            # A reader may be closed while an answer is still being asked for.
            with suppress(sqlite3.ProgrammingError):
                if self._depth == 0 and self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Refuse questions inside the block, which is within a snapshot, that take longer."""
        latest = time.monotonic() + seconds
        self._connection.set_progress_handler(lambda: time.monotonic() > latest, _STEPS)
        try:
            yield
        finally:
            self._connection.set_progress_handler(None, 0)

    def state(self) -> str:
        """Return a text that is another one whenever others have changed the trove."""
        ((number,),) = self.rows("PRAGMA data_version", {})
        return str(number)

    def tables(self) -> frozenset[str]:
        """Return the names of all tables."""
        names = self.rows("SELECT name FROM sqlite_master WHERE type = 'table'", {})
        return frozenset(name for (name,) in names)

    def columns(self, table: str) -> frozenset[str]:
        """Return the names of the columns of a table."""
        names = self.rows("SELECT name FROM pragma_table_info(:name)", {"name": table})
        return frozenset(name for (name,) in names)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()


def _written_out(sql: str, parameters: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return a question in which lists are written out, and what is bound to it."""
    bound: dict[str, object] = {}
    for name, value in parameters.items():
        if isinstance(value, list):
            items = {f"{name}{place}": item for place, item in enumerate(value)}
            bound.update(items)
            sql = sql.replace(f"IN :{name}", f"IN ({', '.join(f':{each}' for each in items)})")
        else:
            bound[name] = value
    return sql, bound


def open_sqlite(place: Place, path: Path) -> SqliteSource:
    """Open the trove in a file for reading; NoTrove or NotATrove when there is none."""
    check_file(place, path)
    with sqlite_faults(place):
        try:
            # Not "ro", which would leave empty companions beside the trove, and could not undo
            # what a killed writer has begun. SQLite does without the right to write by itself.
            connection = _opened(path, "mode=rw")
        except sqlite3.DatabaseError as error:
            if _is_other_kind(error):
                raise foreign(place, "it is a file of another kind") from error
            # On a disk that cannot be written SQLite cannot make the files that it wants beside
            # the trove. If there is nothing in them anyway it can be told to do without.
            if _has_companion(path) or not str(error).startswith(_NO_RIGHTS):
                raise
            connection = _opened(path, "mode=ro&immutable=1")
    return SqliteSource(place, connection)


def check_file(place: Place, path: Path) -> None:
    """Refuse what is not there, what is a directory, and what is empty.

    The file itself is not opened: when a process closes a file, it loses its locks on it, those
    of its open connections included, and other processes then take away what these need.
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
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        connection.execute("PRAGMA query_only = ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _is_other_kind(error: sqlite3.DatabaseError) -> bool:
    return "not a database" in str(error)


def _has_companion(path: Path) -> bool:
    """Tell whether beside the trove there is something without which it cannot be understood."""
    beside = (path.with_name(path.name + suffix) for suffix in ("-wal", "-journal"))
    return any(each.exists() and each.stat().st_size for each in beside)

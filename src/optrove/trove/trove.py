"""Open a trove for writing: add, merge and remove, each all or nothing."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar

from sqlalchemy import inspect, select, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import SetColumnComment, SetTableComment

from optrove.errors import UnusableTrove
from optrove.model.trove import Added
from optrove.serializer.described import describe_case
from optrove.trove import schema
from optrove.trove.database import PostgresSource, code_of, engine_of, faults_of
from optrove.trove.faults import newer, no_trove
from optrove.trove.merging import Held, TroveParts, lacking, merge, take
from optrove.trove.migrations import FORMAT, MIGRATIONS, Migrations, version_of, version_told
from optrove.trove.reader import open_reader
from optrove.trove.schema import METADATA, TROVE, VERSION
from optrove.trove.source import open_sqlite
from optrove.trove.views import drop_views, make_views
from optrove.trove.writing import (
    check_known,
    insert_rows,
    keys_of,
    prepare_attempt,
    prepare_imported,
    prepare_journal,
    prepare_planned,
    prepare_run,
    prepare_sweep,
    remove_run,
    write_attempts,
    write_cases,
    write_recording,
    write_run,
    write_sweep,
)
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from sqlalchemy import Connection, Engine

    from optrove.journal.content import JournalContent
    from optrove.model.case import Case
    from optrove.model.records import Attempt, Run, Sweep
    from optrove.model.trove import Imported, PlannedCase, Removed
    from optrove.trove.merging import Lacking, Parts, Written
    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader
    from optrove.trove.stored import Prepared


def look_at(place: Place, *, create: bool) -> int | None:
    """Return the version of the trove that is there; None when it has to be made.

    What is there is only read. NoTrove when there is none and none is to be made.
    """
    version = _found(place, create=create)
    if version is None and not create:
        raise no_trove(place)
    return version


def set_up(connection: Connection, place: Place, migrations: Migrations) -> None:
    """Make a trove or bring it up to date, within the transaction of ``connection``."""
    version = _current(connection, place)
    if version is None:
        METADATA.create_all(connection)
        told = {
            "format": FORMAT,
            "version": str(VERSION),
            "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "optrove_version": __version__,
        }
        insert_rows(connection, TROVE, told.items())
        version = VERSION
    if version > migrations.current:
        raise newer(place, version, migrations.current)
    if version < migrations.current:
        # A table that a view refers to cannot be changed everywhere.
        viewed = drop_views(connection)
        migrations.apply(connection, version)
        _comment(connection)
        if viewed:
            make_views(connection)
    connection.execute(
        update(TROVE).where(TROVE.c.name == "version").values(value=str(migrations.current))
    )


def _comment(connection: Connection) -> None:
    """Have a server say of every table and column what it is for, as in a trove made anew."""
    if not connection.dialect.supports_comments:
        return
    for table in METADATA.sorted_tables:
        connection.execute(SetTableComment(table))
        for column in table.columns:
            connection.execute(SetColumnComment(column))


def _found(place: Place, *, create: bool) -> int | None:
    if place.path is None:
        server = PostgresSource(place, str(place.url))
        try:
            return version_of(server)
        finally:
            server.close()
    if create and _is_free(place.path):
        _make_directory(place, place.path)
        return None
    file = open_sqlite(place, place.path)
    try:
        return version_of(file)
    finally:
        file.close()


def _is_free(path: Path) -> bool:
    """Tell whether nothing is there, or an empty file."""
    try:
        return (path.is_file() and path.stat().st_size == 0) or not path.exists()
    except OSError:
        return False


def _make_directory(place: Place, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableTrove(
            f"the trove {place} cannot be made: {error}; choose another place for it"
        ) from error


def _current(connection: Connection, place: Place) -> int | None:
    """Return the version as it is now that nobody else can change it."""
    if not inspect(connection).has_table(TROVE.name):
        return None
    rows = connection.execute(select(TROVE.c.name, TROVE.c.value))
    return version_told(place, {row.name: row.value for row in rows})


T = TypeVar("T")

NO_CASES: Final[Mapping[str, Case]] = MappingProxyType({})

TIMEOUT_S: Final = 30.0
"""How long a writer waits for others."""

_AGAIN: Final = frozenset({"40001", "40P01"})
"""PostgreSQL's codes for: nothing was wrong with it, but others were in the way."""
_TRIES: Final = 5
_PAUSE_S: Final = 0.1


def open_trove(
    place: Place,
    *,
    create: bool,
    timeout_s: float = TIMEOUT_S,
    migrations: Migrations = MIGRATIONS,
) -> Trove:
    """Open a trove for writing, and bring it up to date; make it first if ``create`` says so.

    NoTrove when there is none and none is to be made, NotATrove when something else is there,
    NewerTrove when a later optrove has written it, UnusableTrove when it cannot be written.
    """
    version = look_at(place, create=create)
    if version is not None and version > migrations.current:
        raise newer(place, version, migrations.current)
    engine = engine_of(place, timeout_s)
    with faults_of(place):
        connection = engine.connect()
    trove = Trove(place, engine, connection, migrations)
    if version != migrations.current:
        try:
            with trove.together():
                set_up(connection, place, migrations)
        except BaseException:
            trove.close()
            raise
    return trove


class Trove:
    """A trove that is open for writing. Every method writes all that it says, or nothing."""

    def __init__(
        self, place: Place, engine: Engine, connection: Connection, migrations: Migrations
    ) -> None:
        self.place = place
        self._engine = engine
        self._connection = connection
        self._migrations = migrations

    def __enter__(self) -> Trove:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the trove."""
        self._connection.close()
        self._engine.dispose()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write all that is added or removed inside the block at its end, or nothing of it."""
        with faults_of(self.place), self._connection.begin():
            yield

    def add_journal(self, content: JournalContent) -> Added:
        """Add the journal of one process; one that is there already changes nothing."""
        return self.add(prepare_journal(content))

    def add_imported(self, imported: Imported) -> Added:
        """Add what a file says about one source on one machine; twice is the same as once."""
        return self.add(prepare_imported(imported))

    def add(self, prepared: Prepared) -> Added:
        """Add a Recording that was prepared before: what takes long is done without the lock."""
        return self._write(lambda connection: write_recording(connection, prepared))

    def add_attempts(self, run: Run, attempts: Iterable[Attempt]) -> int:
        """Add what came of executing Cases that are in the trove; return how many are new.

        Attempts that say the same in everything, their time included, are one. In the Run of a
        sweep a Case has one Attempt: the first.
        """
        stored_run = prepare_run(run)
        stored = [prepare_attempt(attempt) for attempt in attempts]

        def work(connection: Connection) -> int:
            run_key, _ = write_run(connection, stored_run)
            return write_attempts(connection, ((run_key, each) for each in stored))

        return self._write(work)

    def add_sweep(
        self,
        run: Run,
        sweep: Sweep,
        planned: Iterable[PlannedCase],
        cases: Mapping[str, Case] = NO_CASES,
    ) -> Added:
        """Add the Run of a sweep that begins, with its plan; twice is the same as once.

        ``cases`` are by their ids those that the trove may not hold yet, such as vectors.
        BadData when a planned Case is neither there nor given.
        """
        stored_run, stored = prepare_run(run), prepare_planned(planned)
        stored_sweep = prepare_sweep(sweep, stored)
        ids = {each.case_id for each in stored}

        def work(connection: Connection) -> Added:
            run_key, runs = write_run(connection, stored_run)
            known = keys_of(connection, schema.CASES.c.case_id, ids)
            missing = sorted(ids - known.keys())
            check_known(name for name in missing if name not in cases)
            write_cases(connection, missing, lambda few: (describe_case(cases[x]) for x in few))
            write_sweep(connection, run_key, stored_sweep, stored)
            return Added(runs=runs, cases_new=len(missing), cases_known=len(known))

        return self._write(work)

    def merge(self, reader: TroveReader) -> Added:
        """Add all that another trove holds; in whatever order troves are merged, all is the same.

        Of two Recordings of the same process of a Run, and of two accounts of a Run, the greater
        is kept: complete before incomplete, then the one with more calls.
        """
        return self._write(lambda connection: merge(connection, TroveParts(reader.source)))

    def lacking(self, parts: Parts) -> tuple[Lacking, ...]:
        """Return what of another trove is not here, or less of it, Run by Run."""
        return self._write(lambda connection: tuple(lacking(connection, parts, Held(connection))))

    def take(self, parts: Parts, taken: Sequence[Lacking]) -> Written:
        """Add some of what is lacking; what others have added meanwhile changes nothing."""
        return self._write(lambda connection: take(connection, parts, taken))

    def make_views(self) -> None:
        """Make the views for BI tools, or make them anew."""
        self._write(make_views)

    def remove_run(self, run_id: str) -> Removed:
        """Remove a Run with all that nothing else refers to."""
        return self._write(lambda connection: remove_run(connection, run_id))

    def reader(self) -> TroveReader:
        """Return a reader of the same trove, which sees what has been written so far."""
        return open_reader(self.place, migrations=self._migrations)

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Do ``work`` in a transaction of its own, unless it is part of a larger one."""
        with faults_of(self.place):
            if self._connection.in_transaction():
                return work(self._connection)
            for _ in range(_TRIES - 1):
                with suppress(_Crossed):
                    return self._try(work)
                time.sleep(_PAUSE_S)
            with self._connection.begin():
                return work(self._connection)

    def _try(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._connection.begin():
                return work(self._connection)
        except DBAPIError as error:
            if code_of(error) in _AGAIN:
                raise _Crossed from error
            raise


class _Crossed(Exception):
    """Others were in the way of a transaction with which nothing was wrong."""

"""Make a trove, or check that what is there is one and bring it up to date."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sqlalchemy import inspect, select, update
from sqlalchemy.schema import SetColumnComment, SetTableComment

from optrove.errors import UnusableTrove
from optrove.store.faults import newer, no_trove
from optrove.store.postgres import PostgresSource
from optrove.store.rows import insert_rows
from optrove.store.schema import METADATA, TROVE, VERSION
from optrove.store.source import open_sqlite
from optrove.store.versions import FORMAT, version_of, version_told
from optrove.store.views import drop_views, make_views
from optrove.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Connection

    from optrove.store.migrations import Migrations
    from optrove.store.place import Place


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

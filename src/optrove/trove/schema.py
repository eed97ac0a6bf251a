"""The schema of a trove: create its tables, read its version, and migrate older troves.

``schema.sql`` holds the tables of the current version, ``migrations/<version>.sql`` the statements
that lead from the version before to that one. Both are SQL of SQLite; a small table of type names
translates them for PostgreSQL.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from optrove.trove.faults import foreign, newer
from optrove.trove.views import drop_views, make_views
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.trove.database import Connection

FORMAT: Final = "optrove-trove"
VERSION: Final = 4
_DERIVED_SINCE: Final = 3
"""The version of the derived tables; a trove that is older has none of their rows."""

_POSTGRES: Final = {
    "INTEGER": "BIGINT",
    "TEXT": 'TEXT COLLATE "C"',
    "BLOB": "BYTEA",
    " WITHOUT ROWID": "",
}
"""The words of SQLite that PostgreSQL spells differently."""

_WORDS: Final = re.compile("|".join(rf"{word}\b" for word in _POSTGRES))
_TABLE: Final = re.compile(r"^-- ([^\n]+)\nCREATE TABLE (\w+) \((.+?)^\)", re.M | re.S)
_COLUMN: Final = re.compile(r"^    (\w+) [A-Z ]+,  -- (.+)$", re.M)


def schema() -> str:
    """Return the script that creates the tables."""
    return _script("schema.sql")


def migration(version: int) -> str:
    """Return the script that migrates a trove of the version before to this one."""
    return _script("migrations", f"{version}.sql")


def _script(*path: str) -> str:
    # Most commands neither create nor migrate a trove, and do without this import.
    from importlib.resources import files

    return files("optrove.trove").joinpath(*path).read_text(encoding="utf-8")


def table_comments() -> dict[str, tuple[str, dict[str, str]]]:
    """Return for each table its comment, and those of its columns by name."""
    return {
        name: (comment, dict(_COLUMN.findall(columns)))
        for comment, name, columns in _TABLE.findall(schema())
    }


def version_of(connection: Connection) -> int | None:
    """Return the version of a trove; None when the database is free for one.

    NotATrove when something else is there. A database on a server may hold other tables as well;
    a file may not.
    """
    with connection.snapshot():
        tables, place = connection.tables(), connection.place
        if "trove" in tables:
            facts = {}
            if connection.columns("trove") >= {"name", "value"}:
                facts = dict(connection.fetch("SELECT name, value FROM trove"))
            version = str(facts.get("version", ""))
            if facts.get("format") != FORMAT or not version.isdecimal():
                found = "it is a database of something else, with a table called trove"
                raise foreign(place, found)
            return int(version)
    if tables if place.path is not None else tables & table_comments().keys():
        names = ", ".join(sorted(tables)[:5])
        raise foreign(place, f"it is a database of something else, with {names}")
    return None


def set_up(connection: Connection) -> None:
    """Create the tables of a trove, or migrate them, within the caller's transaction."""
    version = version_of(connection)
    if version is None:
        _run(connection, schema())
        _comment(connection)
        facts = {
            "format": FORMAT,
            "version": str(VERSION),
            "created_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "optrove_version": __version__,
        }
        connection.insert("trove (name, value)", facts.items())
        return
    if version > VERSION:
        raise newer(connection.place, version, VERSION)
    if version < VERSION:
        # PostgreSQL does not change a table that a view refers to.
        had_views = drop_views(connection)
        for each in range(version + 1, VERSION + 1):
            _run(connection, migration(each))
        if version < _DERIVED_SINCE:
            from optrove.trove.derived import rebuild

            rebuild(connection)
        _comment(connection)
        if had_views:
            make_views(connection)
        update = "UPDATE trove SET value = :version WHERE name = 'version'"
        connection.execute(update, {"version": str(VERSION)})


def _run(connection: Connection, script: str) -> None:
    for statement in statements(script, connection.dialect):
        connection.execute(statement)


def statements(script: str, dialect: str) -> Iterator[str]:
    """Yield the statements of a script in the words of a database."""
    if dialect == "postgresql":
        script = _WORDS.sub(lambda word: _POSTGRES[word[0]], script)
    return (statement for statement in script.split(";\n") if statement.strip())


def _comment(connection: Connection) -> None:
    """Copy the comments into the database, where it stores them."""
    if connection.dialect != "postgresql":
        return
    made = []
    for table, (comment, columns) in table_comments().items():
        made.append(f"COMMENT ON TABLE {table} IS {_quoted(comment)}")
        for column, text in columns.items():
            made.append(f"COMMENT ON COLUMN {table}.{column} IS {_quoted(text)}")
    connection.execute("; ".join(made))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

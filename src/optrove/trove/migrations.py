"""The version of a trove, and the steps that bring an older one up to date.

A step is never changed once it was released. Each is the SQL that leads from the version before to
its own, in statements that SQLite and PostgreSQL both understand once ``{text}``, ``{number}`` and
``{packed}`` are spelled as each of them does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.trove.faults import foreign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from optrove.trove.place import Place
    from optrove.trove.source import Source


FORMAT: Final = "optrove-trove"
"""What a trove calls itself, in its table ``trove``."""

TABLES: Final = frozenset(
    {
        "attempts",
        "call_blocks",
        "case_tensors",
        "cases",
        "config_calls",
        "contents",
        "endings",
        "environments",
        "executions",
        "measurements",
        "op_usage",
        "planned",
        "recordings",
        "runs",
        "scopes",
        "sweeps",
        "tests",
        "trove",
        "usage",
    }
)
"""The tables of the current version."""

_SAYS: Final = "SELECT name, value FROM trove"


def version_of(source: Source) -> int | None:
    """Return the version of a trove; None when the place is free for one.

    NotATrove when something else is there. A database on a server may hold other tables as well;
    a file may not.
    """
    with source.snapshot():
        tables = source.tables()
        if "trove" in tables:
            return version_told(source.place, _told(source))
    if tables if source.place.path is not None else tables & TABLES:
        names = ", ".join(sorted(tables)[:5])
        raise foreign(source.place, f"it is a database of something else, with {names}")
    return None


def version_told(place: Place, told: Mapping[str, str]) -> int:
    """Return the version that the table ``trove`` tells."""
    version = told.get("version", "")
    if told.get("format") != FORMAT or not version.isdecimal():
        raise foreign(place, "it is a database of something else, with a table called trove")
    return int(version)


def _told(source: Source) -> dict[str, str]:
    columns = source.columns("trove")
    if not {"name", "value"} <= columns:
        raise foreign(source.place, "it is a database of something else, with a table called trove")
    return {str(name): str(value) for name, value in source.rows(_SAYS, {})}


FIRST: Final = 1

_SPELLED: Final = {
    "sqlite": {"text": "TEXT", "number": "INTEGER", "packed": "WITHOUT ROWID"},
    "postgresql": {"text": 'TEXT COLLATE "C"', "number": "BIGINT", "packed": ""},
}


@dataclass(frozen=True, slots=True)
class Step:
    """What leads to ``version`` from the one before."""

    version: int
    statements: tuple[str, ...]


class Migrations:
    """The steps from every older version to the current one."""

    __slots__ = ("current", "steps")

    def __init__(self, steps: tuple[Step, ...]) -> None:
        """Take the steps in their order; ValueError when a version has none or two."""
        expected = tuple(range(FIRST + 1, FIRST + 1 + len(steps)))
        if tuple(step.version for step in steps) != expected:
            raise ValueError(f"the steps have to lead to the versions {expected}, in this order")
        self.steps = steps
        self.current = FIRST + len(steps)

    def apply(self, connection: Connection, version: int) -> None:
        """Bring a trove of ``version`` up to date, within the transaction of ``connection``."""
        spelled = _SPELLED[connection.dialect.name]
        for step in self.steps:
            if step.version > version:
                for statement in step.statements:
                    connection.exec_driver_sql(statement.format_map(spelled))


_SECOND: Final = Step(
    2,
    (
        "ALTER TABLE attempts ADD COLUMN notes {text}",
        "DROP INDEX ix_attempts_run",
        "CREATE INDEX ix_attempts_run ON attempts (run_key, outcome)",
        "DROP INDEX ix_attempts_case",
        "CREATE INDEX ix_attempts_case ON attempts (case_key, board, outcome)",
        "CREATE INDEX ix_runs_started ON runs (started_at)",
        """
        CREATE TABLE sweeps (
            run_key {number} NOT NULL,
            plan_id {text} NOT NULL,
            content {text} NOT NULL,
            PRIMARY KEY (run_key),
            FOREIGN KEY (run_key) REFERENCES runs ("key") ON DELETE CASCADE
        )
        """,
        """
        CREATE TABLE planned (
            run_key {number} NOT NULL,
            place {number} NOT NULL,
            case_key {number} NOT NULL,
            suite {text},
            device_kind {text} NOT NULL,
            board {text},
            PRIMARY KEY (run_key, place),
            UNIQUE (run_key, case_key),
            FOREIGN KEY (run_key) REFERENCES runs ("key") ON DELETE CASCADE,
            FOREIGN KEY (case_key) REFERENCES cases ("key")
        ) {packed}
        """,
        "CREATE INDEX ix_planned_case ON planned (case_key)",
        """
        CREATE TABLE config_calls (
            recording_key {number} NOT NULL,
            place {number} NOT NULL,
            path {text} NOT NULL,
            case_key {number} NOT NULL,
            calls {number} NOT NULL,
            PRIMARY KEY (recording_key, place),
            FOREIGN KEY (recording_key) REFERENCES recordings ("key") ON DELETE CASCADE,
            FOREIGN KEY (case_key) REFERENCES cases ("key")
        ) {packed}
        """,
        "CREATE INDEX ix_config_calls_case ON config_calls (case_key)",
    ),
)

MIGRATIONS: Final = Migrations((_SECOND,))

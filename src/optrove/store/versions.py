"""Tell whether a database is a trove, and of which version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.store.faults import foreign

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.store.place import Place
    from optrove.store.source import Source

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

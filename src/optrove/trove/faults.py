"""Say what is wrong when a database cannot do what was asked of it, and what to do next."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.errors import NewerTrove, NotATrove, NoTrove, OptroveError, TookTooLong, UnusableTrove

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.trove.place import Place


@dataclass(frozen=True, slots=True)
class Rule:
    """What a driver says, what that means, and what to do next."""

    sign: str
    meaning: str
    advice: str
    error: type[OptroveError] = UnusableTrove


SQLITE_RULES: Final = (
    Rule("locked", "another process is writing to it and did not finish", "try again later"),
    Rule("busy", "another process is writing to it and did not finish", "try again later"),
    Rule("full", "there is no space left on its disk", "make room and try again"),
    Rule("readonly", "it cannot be written", "get the rights, or copy it elsewhere"),
    Rule(
        "unable to open",
        "it cannot be opened",
        "check that its directory is there, and the rights to both",
    ),
    Rule(
        *("not a database", "it is a file of another kind", "name another file"),
        error=NotATrove,
    ),
    Rule("malformed", "it is damaged", "restore a copy of it, or merge its parts anew"),
    Rule(
        *("interrupted", "the question took too long", "ask for less at once"),
        error=TookTooLong,
    ),
    Rule("i/o error", "its disk refused to read or write", "check the disk and its quota"),
    Rule("no such table", "it is damaged: a table is missing", "restore a copy of it"),
    Rule("no such column", "it is damaged: a column is missing", "restore a copy of it"),
)
"""By what SQLite says, in lower case; the first that fits holds."""

POSTGRES_RULES: Final = (
    Rule("55P03", "another process is writing to it and did not finish", "try again later"),
    Rule("53100", "there is no space left on the server's disk", "make room and try again"),
    Rule("25006", "its server is read-only", "write to the primary server"),
    Rule("42501", "the user may not do that", "ask for the rights (optrove roles)"),
    Rule("28", "the server refused the user or the password", "correct the URL"),
    Rule("3D000", "there is no such database", "create it with: createdb NAME"),
    Rule("57014", "the question took too long", "ask for less at once", TookTooLong),
    Rule("57P", "the server was shut down", "try again when it is back"),
    Rule("42P01", "it is damaged: a table is missing", "restore a copy of it"),
    Rule("42703", "it is damaged: a column is missing", "restore a copy of it"),
)
"""By how PostgreSQL's error code begins; the first that fits holds."""

REFUSALS: Final = (
    ("authentication failed", "28"),
    ("no password supplied", "28"),
    ("no pg_hba.conf entry", "28"),
    ('role "', "28"),
    ('database "', "3D000"),
)
"""What a server says when it refuses a connection, for which the driver gives no code."""

GONE: Final = Rule("", "the server cannot be reached", "check that it runs, and the URL")


@contextmanager
def sqlite_faults(place: Place) -> Iterator[None]:
    """Turn what SQLite raises inside the block into errors that say what to do."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.DatabaseError) as error:
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
            # A mistake of ours, which no user can do anything about.
            raise
        raise sqlite_fault(error, place) from error


def sqlite_fault(error: sqlite3.Error, place: Place) -> OptroveError:
    """Return what an error of SQLite means."""
    said = str(error)
    for rule in SQLITE_RULES:
        if rule.sign in said.lower():
            return _told(rule, place, said)
    return UnusableTrove(f"the trove {place} cannot be used: SQLite says {said!r}")


def postgres_fault(code: str | None, said: str, place: Place) -> OptroveError:
    """Return what an error of PostgreSQL means; without a code there was no answer."""
    if code is None:
        code = next((code for sign, code in REFUSALS if sign in said), None)
    if code is None:
        return _told(GONE, place, said)
    for rule in POSTGRES_RULES:
        if code.startswith(rule.sign):
            return _told(rule, place, said)
    return UnusableTrove(f"the trove {place} cannot be used: PostgreSQL says {said!r} ({code})")


def newer(place: Place, version: int, known: int) -> NewerTrove:
    """Return the error for a trove of a version that is not known yet."""
    return NewerTrove(
        f"the trove {place} has version {version}, this optrove knows up to {known}; "
        f"upgrade it with: pip install --upgrade optrove"
    )


def no_trove(place: Place) -> NoTrove:
    """Return the error for a place where no trove is."""
    return NoTrove(
        f"there is no trove at {place}; name another one with --store, "
        f"or make one with: optrove trace, optrove import"
    )


def foreign(place: Place, found: str) -> NotATrove:
    """Return the error for something that is not a trove."""
    return NotATrove(f"{place} is not a trove: {found}; name another place for the trove")


def _told(rule: Rule, place: Place, said: str) -> OptroveError:
    first = said.strip().splitlines()[0] if said.strip() else "nothing"
    return rule.error(f"the trove {place}: {rule.meaning} ({first}); {rule.advice}")

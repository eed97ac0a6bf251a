"""Turn errors of the databases into errors that name the cause and the next step."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.errors import (
    NewerTrove,
    NoSpace,
    NotATrove,
    NoTrove,
    OptroveError,
    TookTooLong,
    UnusableTrove,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.trove.place import Place


class Conflict(UnusableTrove):
    """Others were in the way of a correct transaction, which can be tried again."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A part of a driver's message or code, its meaning, and the next step."""

    sign: str
    meaning: str
    advice: str
    error: type[OptroveError] = UnusableTrove


SQLITE_RULES: Final = (
    Rule("locked", "another process is writing to it and did not finish", "try again later"),
    Rule("busy", "another process is writing to it and did not finish", "try again later"),
    Rule("full", "there is no space left on its disk", "make room and try again", NoSpace),
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
    Rule("malformed", "it is damaged", "restore a copy of it, or merge its parts again"),
    Rule(
        *("interrupted", "the query took too long", "ask for less at once"),
        error=TookTooLong,
    ),
    Rule("i/o error", "its disk refused to read or write", "check the disk and its quota"),
    Rule("no such table", "it is damaged: a table is missing", "restore a copy of it"),
    Rule("no such column", "it is damaged: a column is missing", "restore a copy of it"),
)
"""Matched against SQLite's message in lower case; the first match applies."""

POSTGRES_RULES: Final = (
    Rule("40001", "other transactions were in the way", "try again later", Conflict),
    Rule("40P01", "other transactions were in the way", "try again later", Conflict),
    Rule("55P03", "another process is writing to it and did not finish", "try again later"),
    Rule(
        "53100", "there is no space left on the server's disk", "make room and try again", NoSpace
    ),
    Rule("25006", "its server is read-only", "write to the primary server"),
    Rule("42501", "the user may not do that", "ask for the rights (optrove roles)"),
    Rule("28", "the server refused the user or the password", "correct the URL"),
    Rule("3D000", "there is no such database", "create it with: createdb NAME"),
    Rule("57014", "the query took too long", "ask for less at once", TookTooLong),
    Rule("57P", "the server was shut down", "try again when it is back"),
    Rule("42P01", "it is damaged: a table is missing", "restore a copy of it"),
    Rule("42703", "it is damaged: a column is missing", "restore a copy of it"),
)
"""Matched against the beginning of PostgreSQL's error code; the first match applies."""

REFUSALS: Final = (
    ("authentication failed", "28"),
    ("no password supplied", "28"),
    ("no pg_hba.conf entry", "28"),
    ('role "', "28"),
    ('database "', "3D000"),
)
"""Messages of a server that refuses a connection, for which the driver gives no code."""

GONE: Final = Rule("", "the server cannot be reached", "check that it runs, and the URL")


@contextmanager
def sqlite_faults(place: Place) -> Iterator[None]:
    """Turn errors of SQLite inside the block into errors with advice."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, (sqlite3.IntegrityError, sqlite3.ProgrammingError)):
            # A mistake of ours, about which users can do nothing.
            raise
        message = str(error)
        rule = next((rule for rule in SQLITE_RULES if rule.sign in message.lower()), None)
        if rule is None:
            said = f"the trove {place} cannot be used: SQLite says {message!r}"
            raise UnusableTrove(said) from error
        raise _fault(rule, place, message) from error


def postgres_fault(code: str | None, message: str, place: Place) -> OptroveError:
    """Return the error for a message of PostgreSQL; without a code the server did not answer."""
    if code is None:
        code = next((code for sign, code in REFUSALS if sign in message), None)
    if code is None:
        return _fault(GONE, place, message)
    rule = next((rule for rule in POSTGRES_RULES if code.startswith(rule.sign)), None)
    if rule is None:
        return UnusableTrove(
            f"the trove {place} cannot be used: PostgreSQL says {message!r} ({code})"
        )
    return _fault(rule, place, message)


def newer(place: Place, version: int, known: int) -> NewerTrove:
    """Return the error for a trove that a later optrove wrote."""
    return NewerTrove(
        f"the trove {place} has version {version}, this optrove knows up to {known}; "
        f"upgrade it with: pip install --upgrade optrove"
    )


def no_trove(place: Place) -> NoTrove:
    """Return the error for a place without a trove."""
    return NoTrove(
        f"there is no trove at {place}; name another one with --store, "
        f"or make one with: optrove trace, optrove import"
    )


def foreign(place: Place, found: str) -> NotATrove:
    """Return the error for something that is not a trove."""
    return NotATrove(f"{place} is not a trove: {found}; name another place for the trove")


def _fault(rule: Rule, place: Place, message: str) -> OptroveError:
    first = next(iter(message.strip().splitlines()), "nothing")
    return rule.error(f"the trove {place}: {rule.meaning} ({first}); {rule.advice}")

"""The place of a trove: an SQLite file, or a PostgreSQL database by its URL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from optrove.errors import NotATrove

_POSTGRES: Final = frozenset({"postgres", "postgresql", "postgresql+psycopg"})
HIDDEN: Final = "***"
"""The replacement of a password."""

SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of every SQLite file."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a trove, which may not exist yet: either ``path`` or ``url`` is set.

    Its text, for messages and logs, has no password.
    """

    path: Path | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.url is None):
            raise ValueError("a trove is at a path or at a URL; give one of them")

    def __str__(self) -> str:
        return str(self.path) if self.url is None else _without_password(self.url)

    def __repr__(self) -> str:
        return f"Place({str(self)!r})"

    @property
    def is_vacant(self) -> bool:
        """Whether it is a path without a file, or with an empty one.

        A disk without space leaves an empty file, when a trove is to be created there.
        """
        if self.path is None:
            return False
        return not self.path.exists() or (self.path.is_file() and not self.path.stat().st_size)


def place_of(text: str) -> Place:
    """Return the place that ``text`` names: a path, ``sqlite:///path`` or ``postgresql://...``."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text:
            raise NotATrove("no trove is named; give a path or a postgresql:// URL")
        return Place(path=Path(text).expanduser())
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return Place(path=Path(unquote(rest[1:])))
    if scheme in _POSTGRES:
        _check(text)
        return Place(url=f"postgresql://{rest}")
    raise NotATrove(
        f"{scheme}:// is not a kind of place for a trove; "
        f"give a path, sqlite:///path or postgresql://user@host/database"
    )


def is_sqlite_file(path: Path) -> bool:
    """Return whether a path is an SQLite file, a trove or not."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(SQLITE)) == SQLITE


def _check(url: str) -> None:
    try:
        database = urlsplit(url).path.strip("/")
        urlsplit(url).port  # noqa: B018 - reading it is what checks it
    except ValueError as error:
        raise NotATrove(
            f"the URL of the trove cannot be understood ({error}); "
            f"write postgresql://user:password@host:5432/database"
        ) from error
    if not database:
        raise NotATrove(
            f"{_without_password(url)} names no database; write postgresql://user@host/database"
        )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    shown = [(name, HIDDEN if "pass" in name.lower() else value) for name, value in pairs]
    query = urlencode(shown, safe="/*") if shown != pairs else parts.query
    # Not by urlunsplit, which would leave out the slashes before an empty host.
    return f"{parts.scheme}://{_host(parts)}{parts.path}{'?' if query else ''}{query}"


def _host(parts: SplitResult) -> str:
    user, separator, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{name}:{HIDDEN}@{host}" if colon else f"{user}{separator}{host}"

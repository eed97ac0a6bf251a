"""What a page is given to answer a request, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from optrove.trove.database import Connection
    from optrove.web.catalog import Index
    from optrove.web.parameters import Parameter, Values

PAGE_ROWS: Final = 50
"""How many rows a list has before it goes on with the next page."""
_LONGEST: Final = 80
_SHORT: Final = 16


def not_listed(what: str, after: str) -> NotFound:
    """Return the error for a list that cannot go on after something, as that is not in it."""
    return NotFound(
        f"the list cannot go on after the {what} {after[:_LONGEST]!r}, which is not in it; "
        f"begin anew: leave out the parameter 'after'"
    )


def several(what: str, name: str, found: Iterable[str]) -> NotFound:
    """Return the error for the beginning of several ids; ``found`` are some of these."""
    told = ", ".join(each[:_SHORT] for each in found)
    return NotFound(f"several {what}s begin with {name[:_LONGEST]!r} ({told}); give more of the id")


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a trove: what was asked for, and what to answer it from."""

    source: Connection
    index: Index
    asked: Values
    store: str | None = None

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text."""
        value = self.asked.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Return a parameter that is a number."""
        value = self.asked.get(name)
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows: ``data`` for people and machines, ``drawn`` for people only."""

    data: dict[str, Any]
    drawn: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, what it can be asked for, and who makes it."""

    path: str
    name: str
    about: str
    make: Callable[[Look], View]
    parameters: tuple[Parameter, ...] = ()
    early: bool = False
    """Whether it can be made before all cases are counted."""

    @property
    def template(self) -> str:
        """Return the name of its template."""
        return f"{self.name}.jinja"

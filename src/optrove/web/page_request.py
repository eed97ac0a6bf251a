"""What a page is given to answer a request, and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from optrove.trove.database import Connection
    from optrove.web.catalog import Index
    from optrove.web.parameters import Parameter, Values

PAGE_ROWS: Final = 50
"""How many rows a page of a list has."""
_LONGEST: Final = 80
_SHORT: Final = 16


def not_listed(what: str, after: str) -> NotFound:
    """Return the error for a list that cannot continue after something that is not in it."""
    return NotFound(
        f"the list cannot go on after the {what} {after[:_LONGEST]!r}, which is not in it; "
        f"start over: leave out the parameter 'after'"
    )


def several(what: str, name: str, found: Iterable[str]) -> NotFound:
    """Return the error for a prefix of several ids; ``found`` are some of these."""
    examples = ", ".join(each[:_SHORT] for each in found)
    return NotFound(
        f"several {what}s begin with {name[:_LONGEST]!r} ({examples}); give more of the id"
    )


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request: its parameters, and the trove to answer it from."""

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
    """What a page shows: ``data``, which is its JSON response too, and ``drawn`` for HTML only."""

    data: Mapping[str, Any]
    drawn: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, its parameters, and the function that makes it."""

    path: str
    name: str
    about: str
    make: Callable[[PageRequest], View]
    parameters: tuple[Parameter, ...] = ()
    early: bool = False
    """Whether it can be made before all cases are counted."""

    @property
    def template(self) -> str:
        """Return the name of its template."""
        return f"{self.name}.jinja"

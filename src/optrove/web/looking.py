"""What a page is made from, and what making one gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.store.source import Source
    from optrove.web.catalog import Index
    from optrove.web.parameters import Parameter, Values

PAGE_ROWS: Final = 50
"""How many rows a list has before it goes on with the next page."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a trove: what was asked for, and what to answer it from."""

    source: Source
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

    @property
    def template(self) -> str:
        """Return the name of its template."""
        return f"{self.name}.jinja"

"""The request for a page, and the data that a page returns."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from optrove.errors import NotFound
from optrove.trove.facets import CaseGroups
from optrove.web.parameters import MAX_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from optrove.trove.reader import TroveReader
    from optrove.web.parameters import Parameter, Values

T = TypeVar("T")

PAGE_ROWS: Final = 50
"""Number of rows on a page of a list."""
_MAX_CHARS: Final = 80
_SHORT: Final = 16


def not_listed(what: str, after: str) -> NotFound:
    """Return the error for a list that cannot continue after something that is not in it."""
    return NotFound(
        f"the list has no {what} {after[:_MAX_CHARS]!r} to continue after; "
        f"omit the parameter 'after' to start from the beginning"
    )


def rows_after(
    rows: Sequence[T], after: str | None, what: str, name_of: Callable[[T], str]
) -> tuple[Sequence[T], str | None]:
    """Return the page of rows after a name, and the name after which the next page starts."""
    names = [name_of(row)[:MAX_CHARS] for row in rows]
    if after is not None and after not in names:
        raise not_listed(what, after)
    begin = 0 if after is None else names.index(after) + 1
    end = begin + PAGE_ROWS
    return rows[begin:end], names[end - 1] if end < len(rows) else None


def several(what: str, name: str, found: Iterable[str]) -> NotFound:
    """Return the error for a prefix of several ids; ``found`` are some of these."""
    examples = ", ".join(each[:_SHORT] for each in found)
    return NotFound(
        f"several {what}s begin with {name[:_MAX_CHARS]!r} ({examples}); give more of the id"
    )


class CountCache:
    """Counts over a trove in one state that several pages need; each is made once."""

    _MAX_COUNTS: Final = 64

    def __init__(self) -> None:
        """Begin with no counts."""
        self._lock = threading.Lock()
        self._counts: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the counts of a key; the first caller makes them, others wait for it."""
        with self._lock:
            found = self._counts.get(key)
            if is_first := found is None:
                found = self._counts[key] = Future()
                if len(self._counts) > self._MAX_COUNTS:
                    self._counts.popitem(last=False)
        if is_first:
            try:
                found.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._counts.pop(key, None)
                found.set_exception(error)
                raise
        return cast("T", found.result())


@dataclass(frozen=True)
class PageRequest:
    """A request: its parameters, and the trove to answer it from."""

    reader: TroveReader
    asked: Values
    store: str | None = None
    counts: CountCache = field(default_factory=CountCache)
    """Shared by all requests in one state of the trove."""

    @cached_property
    def groups(self) -> CaseGroups:
        """The groups of all cases."""
        return self.counts.get("groups", lambda: CaseGroups(self.reader))

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text."""
        value = self.asked.get(name)
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Return a parameter that is a number."""
        value = self.asked.get(name)
        return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class PageView:
    """The contents of a page: ``data`` for HTML and JSON, and ``drawn`` for HTML only."""

    data: Mapping[str, Any]
    drawn: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its path, its parameters, and the function that makes it."""

    path: str
    name: str
    about: str
    make: Callable[[PageRequest], PageView]
    parameters: tuple[Parameter, ...] = ()

    @property
    def template(self) -> str:
        """Return the name of its template."""
        return f"{self.name}.jinja"

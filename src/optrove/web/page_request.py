"""The request for a page with its parameters, and the data that a page returns."""

from __future__ import annotations

import re
import threading
from collections import Counter, OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from optrove.errors import BadQuestion, NotFound
from optrove.trove.facets import CaseGroups, listed_case

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from optrove.trove.facets import ListedCase
    from optrove.trove.reader import TroveReader

T = TypeVar("T")
Values: TypeAlias = "Mapping[str, str | int | None]"

MAX_CHARS: Final = 500
"""Maximum length of a parameter."""
MAX_INTEGER: Final = 2**53 - 1

_MAX_SHOWN_CHARS: Final = 60
_MAX_NAME_CHARS: Final = 80
_WHOLE: Final = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a page; text unless it is a ``number`` or one of ``choices``.

    An empty value of a parameter that may be empty counts as not given, because an untouched form
    sends it.
    """

    name: str
    about: str
    required: bool = False
    number: bool = False
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    form: str = ""
    """A description of the pattern."""
    may_be_empty: bool = False

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its values."""
        if self.number:
            return {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER}
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        bounds: dict[str, Any] = {"type": "string", "maxLength": MAX_CHARS}
        bounds["minLength"] = 0 if self.may_be_empty else 1
        return bounds if self.pattern is None else {**bounds, "pattern": f"^({self.pattern})$"}

    def read(self, text: str) -> str | int:
        """Return the value that a text stands for; BadQuestion if it is not valid."""
        if self.number:
            if not _WHOLE.fullmatch(text) or not text.isascii() or int(text) > MAX_INTEGER:
                raise self._bad(text, f"a whole number from 0 to {MAX_INTEGER}")
            return int(text)
        if self.choices and text not in self.choices:
            raise self._bad(text, f"one of {', '.join(self.choices)}")
        if not 0 < len(text) <= MAX_CHARS:
            raise self._bad(text, f"a text of 1 to {MAX_CHARS} characters")
        if self.pattern is not None and not re.fullmatch(self.pattern, text, re.ASCII):
            raise self._bad(text, self.form or f"of the form {self.pattern}")
        return text

    def _bad(self, found: str, wanted: str) -> BadQuestion:
        shown = repr(found[:_MAX_SHOWN_CHARS]) + ("..." if len(found) > _MAX_SHOWN_CHARS else "")
        about = f"{self.name!r} ({self.about})"
        return BadQuestion(f"{self.name}={shown} is not valid; {about} must be {wanted}")


AFTER_CASE: Final = Parameter(
    *("after", "the last case of the previous page"),
    pattern="[0-9a-f]{64}",
    form="the whole id of a case, 64 digits 0-9 and a-f",
)
FORMAT: Final = Parameter("format", "json: the page as JSON", choices=("html", "json"))


def read_parameters(given: Iterable[tuple[str, str]], known: tuple[Parameter, ...]) -> Values:
    """Return the values of all parameters that a page knows, None for those not given.

    BadQuestion for a parameter that is unknown, repeated or invalid.
    """
    pairs = list(given)
    by_name = {parameter.name: parameter for parameter in (*known, FORMAT)}
    for name, count in Counter(name for name, _ in pairs).items():
        if name not in by_name:
            raise BadQuestion(
                f"this page has no parameter {name[:40]!r}; it has {', '.join(by_name)}"
            )
        if count > 1:
            raise BadQuestion(f"the parameter {name!r} is given {count} times; give it once")
    filled = [(name, text) for name, text in pairs if text or not by_name[name].may_be_empty]
    found = {name: by_name[name].read(text) for name, text in filled}
    missing = [each.name for each in known if each.required and each.name not in found]
    if missing:
        about = by_name[missing[0]].about
        raise BadQuestion(f"this page needs the parameter {missing[0]!r}: {about}")
    return {name: found.get(name) for name in by_name}


PAGE_ROWS: Final = 50
"""Number of rows on a page of a list."""
_SHORT: Final = 16


def not_listed(what: str, after: str) -> NotFound:
    """Return the error for a list that cannot continue after something that is not in it."""
    return NotFound(
        f"the list has no {what} {after[:_MAX_NAME_CHARS]!r} to continue after; "
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
        f"several {what}s begin with {name[:_MAX_NAME_CHARS]!r} ({examples}); give more of the id"
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

    @property
    def last_attempts(self) -> list[tuple[str, str, str, str, int]]:
        """The outcomes of the last attempts at all cases, counted."""
        return self.counts.get("last attempts", self.reader.last_attempts)

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text."""
        value = self.asked.get(name)
        return None if value is None else str(value)

    def case_after(self, op: str | None = None) -> ListedCase | None:
        """Return the case to continue after, which has to be one of the op; None at the start."""
        after = self.text("after")
        if after is None:
            return None
        found = listed_case(self.reader, after)
        if found is None or op not in (None, found[0]):
            raise not_listed("case", after)
        return found[1]

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

"""The parameters of pages, with their bounds, read strictly from a query string."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.errors import BadQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Values: TypeAlias = "Mapping[str, str | int | None]"

MAX_CHARS: Final = 500
"""Maximum length of a parameter."""
MAX_INTEGER: Final = 2**53 - 1

_MAX_SHOWN_CHARS: Final = 60
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

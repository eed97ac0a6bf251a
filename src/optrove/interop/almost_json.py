"""Parse the JSON-like text that tt-metal's C++ prints, which differs from JSON in two places.

    {"x":0,"y":0} - {"x":7,"y":7}          a range of cores: {"start": ..., "end": ...}
    {[...], [...]}                         a set: braces around items that have no keys

Everything else is JSON and is read as JSON reads it. Nothing is executed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from optrove.codec.text import Json

_DEEPEST: Final = 100
_SCALARS: Final = json.JSONDecoder()


class NotAlmostJson(ValueError):
    """Text of another form; says at which character."""


def parse_almost_json(text: str) -> Json:
    """Return what ``text`` says, with ranges and sets as objects and lists."""
    parser = _Parser(text)
    value = parser.value(0)
    parser.end()
    return value


class _Parser:
    """A recursive-descent parser over one text."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self, depth: int) -> Json:
        """Return the value that begins here, or the range that it begins."""
        if depth > _DEEPEST:
            raise NotAlmostJson(f"nested more than {_DEEPEST} levels deep")
        start = self._single(depth)
        if not self._takes("-"):
            return start
        return {"start": start, "end": self._single(depth)}

    def end(self) -> None:
        """Refuse text that goes on."""
        if self._next():
            raise self._refusal("expected the end")

    def _single(self, depth: int) -> Json:
        if self._takes("{"):
            return self._braces(depth + 1)
        if self._takes("["):
            return self._items("]", depth + 1)
        return self._scalar()

    def _scalar(self) -> Json:
        self._next()
        try:
            value, self._at = _SCALARS.raw_decode(self._text, self._at)
        except (json.JSONDecodeError, RecursionError) as error:
            raise self._refusal("expected a value") from error
        return value

    def _braces(self, depth: int) -> Json:
        """Read an object, or a set where the first thing within is no key."""
        if self._next() in ("", "}", '"'):
            return self._object(depth)
        return self._items("}", depth)

    def _object(self, depth: int) -> dict[str, Json]:
        found: dict[str, Json] = {}
        while not self._takes("}"):
            if found:
                self._need(",")
            if self._next() != '"':
                raise self._refusal("expected a key in quotes")
            key = self._scalar()
            self._need(":")
            if key in found:
                raise self._refusal(f"the key {key!a} comes twice")
            found[key] = self.value(depth)
        return found

    def _items(self, closing: str, depth: int) -> list[Json]:
        items: list[Json] = []
        while not self._takes(closing):
            if items:
                self._need(",")
            items.append(self.value(depth))
        return items

    def _next(self) -> str:
        """Return the next character that is no space; empty at the end."""
        text = self._text
        while self._at < len(text) and text[self._at].isspace():
            self._at += 1
        return text[self._at : self._at + 1]

    def _takes(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _need(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._refusal(f"expected {sign}")

    def _refusal(self, problem: str) -> NotAlmostJson:
        return NotAlmostJson(f"{problem} at character {self._at + 1}")

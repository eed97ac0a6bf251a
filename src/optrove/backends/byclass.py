"""What is known about each class, kept no longer than the class itself."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class ByClass(Generic[T]):
    """Things by class. Looks at the id of a class only: a metaclass may refuse to be hashed.

    ``entries`` are the things by that id, for readers in a hurry. An entry goes when its class
    does, and so before another class can get the id, unless it refers to the class itself.
    """

    __slots__ = ("_watched", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, T] = {}
        self._watched: dict[int, ref[type]] = {}

    def keep(self, kind: type, entry: T) -> None:
        """Keep ``entry`` for as long as ``kind`` lives."""
        number, entries, watched = id(kind), self.entries, self._watched

        def forget(_: ref[type]) -> None:
            entries.pop(number, None)
            watched.pop(number, None)

        watched[number] = ref(kind, forget)
        entries[number] = entry

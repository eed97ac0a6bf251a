"""Describe live objects as Values.

``Describer`` is one session: the arguments and results of one call go through the same one, so
that a tensor or handle that appears twice keeps its number. It never raises, never changes an
object, and never compares, prints or formats one. What no converter knows, what is nested too
deeply, contains itself or is too large becomes Opaque.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from optrove.backends.base import Fields, RecipeLookup, Tables, unobserved
from optrove.backends.handlers import Handler, handler_for, opaque
from optrove.model.values import DeviceRef, Handle, Opaque, TensorSpec, Value
from optrove.model.walk import MAX_DEPTH, walk

if TYPE_CHECKING:
    from collections.abc import Hashable

MAX_PARTS: Final = 1_000_000
"""How many parts one session describes unless told otherwise; lists that share sublists can
unfold without end."""


def describe(live: Any, tables: Tables) -> Value:
    """Return the recorded form of one object, by the converters of ``tables``."""
    return Describer(tables).describe(live)


NUMBERED: Final = (TensorSpec, DeviceRef, Handle, Opaque)
"""What holds a number or token that is only good for one session."""


class DescriptionCache:
    """Descriptions of objects that never change, as their converters declare.

    Bounded: when full it starts over, so that a program which makes a new configuration for
    every call neither grows without end nor keeps its objects alive for long.
    """

    __slots__ = ("_entries", "_limit")

    def __init__(self, limit: int = 4096) -> None:
        self._entries: dict[Hashable, tuple[Any, Value]] = {}
        self._limit = limit

    def find(self, key: Hashable) -> Value | None:
        """Return what was kept under ``key``, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def keep(self, key: Hashable, live: Any, value: Value) -> None:
        """Keep ``value`` and hold ``live``, unless ``value`` is only good for this session."""
        if any(isinstance(part, NUMBERED) for _, part in walk(value)):
            return
        if len(self._entries) >= self._limit:
            self._entries.clear()
        self._entries[key] = (live, value)


class Describer:
    """One session of describing, with its numbering of tensors, buffers, devices and handles."""

    __slots__ = (
        "_devices",
        "_handlers",
        "_handles",
        "_held",
        "_open",
        "_parts_left",
        "_storages",
        "_tables",
        "_tensors",
        "cache",
        "depth",
        "recipes",
    )

    def __init__(
        self,
        tables: Tables,
        *,
        cache: DescriptionCache | None = None,
        recipes: RecipeLookup = unobserved,
        max_parts: int = MAX_PARTS,
    ) -> None:
        self.cache = cache
        self.depth = 0
        self.recipes = recipes
        self._tables = tables
        self._handlers: dict[int, Handler] = tables.handlers.entries
        self._tensors: dict[Hashable, int] = {}
        self._storages: dict[Hashable, int] = {}
        self._devices: dict[Hashable, int] = {}
        self._handles: dict[Hashable, int] = {}
        self._held: list[Any] = []
        self._open: set[int] = set()
        self._parts_left = max_parts

    def describe(self, live: Any) -> Value:
        """Return the recorded form of ``live``; never raises."""
        try:
            kind = type(live)
            handler = self._handlers.get(id(kind))
            if handler is None:
                handler = handler_for(kind, self._tables)
                self._tables.handlers.keep(kind, handler)
            return handler(self, live)
        except Exception:  # noqa: BLE001 - the recorder's border: the user's classes run here and may raise anything
            # Not muted: an Opaque is counted by type in every summary.
            return opaque(self, live)

    def enter(self, live: Any, parts: int, *, levels: int = 1) -> bool:
        """Begin the ``parts`` of ``live``; False if it must not be taken apart any further.

        ``levels`` says how much deeper the parts lie in the recorded form.
        """
        self._parts_left -= parts
        too_deep = self.depth + levels > MAX_DEPTH
        if too_deep or self._parts_left < 0 or id(live) in self._open:
            return False
        self._open.add(id(live))
        self.depth += levels
        return True

    def leave(self, live: Any, *, levels: int = 1) -> None:
        """End what ``enter`` began."""
        self._open.discard(id(live))
        self.depth -= levels

    def named(self, fields: Fields) -> tuple[tuple[str, Value], ...]:
        """Return the described fields of an object that was entered."""
        return tuple([(name, self.describe(item)) for name, item in fields.items()])

    def tensor_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a tensor within this session."""
        return self._number(self._tensors, live, key)

    def storage_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a tensor's buffer within this session."""
        return self._number(self._storages, live, key)

    def device_number(self, live: Any) -> int:
        """Return the number of a device within this session."""
        return self._number(self._devices, live, self._tables.device_key(live))

    def handle_number(self, live: Any, key: Hashable) -> int:
        """Return the number of a handle within this session."""
        return self._number(self._handles, live, key)

    def _number(self, numbers: dict[Hashable, int], live: Any, key: Hashable) -> int:
        number = numbers.get(key)
        if number is None:
            number = numbers[key] = len(numbers)
            # Held, because Python gives the id of a dead object to the next one.
            self._held.append(live)
        return number

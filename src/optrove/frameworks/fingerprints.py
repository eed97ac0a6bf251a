"""Make cheap keys of calls, without describing their arguments.

Two calls with one key have one Case. The reverse need not hold: a key may be finer than a Case,
which costs time only. Some objects have no key (``NoFingerprint``); their calls are described each
time.

The parts of an object in a key are its class and its identity within the class, so that ``1``,
``1.0`` and ``True`` differ; or, for objects that are kept alive, an odd number of their own. Keys
are unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, MutableMapping
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.model.values import walk
from optrove.serializer.describe import NUMBERED, Describer, DescriptionCache
from optrove.serializer.tables import (
    CallableConverter,
    Converter,
    DeviceConverter,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    Tables,
    TensorConverter,
)

if TYPE_CHECKING:
    from optrove.model.values import Value

Rule: TypeAlias = Callable[[list[Any], Any], None]
"""Append the parts of an object to a key."""

PLAIN: Final = frozenset({int, str, bool, type(None), bytes})
"""Classes whose objects are their own fingerprint; floats are not, as 0.0 equals -0.0."""

_INTEGERS: Final = frozenset({int})

MAX_HELD: Final = 8192
"""How many configuration objects are remembered by identity, and so kept alive."""


class NoFingerprint(Exception):
    """An object has no cheap fingerprint; never leaves the capture."""


class Fingerprints:
    """The rules of the classes met so far, and the objects that they keep alive."""

    def __init__(self, tables: Callable[[], Tables], cache: DescriptionCache) -> None:
        self.rules: dict[type, Rule] = {
            float: _float,
            list: self._sequence,
            tuple: self._sequence,
            dict: self._dictionary,
        }
        self.inside: set[type] = set()
        self._tables = tables
        self._cache = cache
        self.object_parts: MutableMapping[int, int] = {}
        self._kept: list[Any] = []
        self._numbers: dict[Hashable, int] = {}
        self._next = -1
        self._holding = RLock()

    def add(self, key: list[Any], live: Any) -> None:
        """Append the parts of one object; raise NoFingerprint if it has none."""
        kind = type(live)
        if kind in PLAIN:
            key.append(kind)
            key.append(live)
            return
        rule = self.rules.get(kind)
        if rule is None:
            rule = self.rules[kind] = self.rule_for(kind)
        rule(key, live)

    def describe_alone(self, live: Any) -> Value:
        """Return the description of an object by itself, as if it were the whole call."""
        return Describer(self._tables(), cache=self._cache).describe(live)

    def rule_for(self, kind: type) -> Rule:
        """Return the rule of a class, which its converter determines."""
        converter: Converter | None = self._tables().by_type.get(kind)
        if converter is None:
            converter = self._tables().for_subclass(kind)
        match converter:
            case SymbolConverter() | CallableConverter():
                # A fixed set of objects, each equal to itself only.
                return self._by_identity
            case StructConverter(cacheable=True):
                return self._by_value
            case DeviceConverter(key=key_of):
                return lambda key, live: key.extend((kind, key_of(live)))
            case TensorConverter() | HandleConverter():
                return _none
            case StructConverter() | None:
                return self._described

    def _sequence(self, key: list[Any], live: Any) -> None:
        key.append(type(live))
        if _INTEGERS.issuperset(map(type, live)):
            key.append(tuple(live))
            return
        key.append(len(live))
        for item in live:
            self.add(key, item)

    def _dictionary(self, key: list[Any], live: dict[Any, Any]) -> None:
        key.append(dict)
        key.append(len(live))
        for name, item in live.items():
            self.add(key, name)
            self.add(key, item)

    def _by_value(self, key: list[Any], live: Any) -> None:
        key.append(self.object_parts.get(id(live)) or self.hold(live, live))

    def _by_identity(self, key: list[Any], live: Any) -> None:
        key.append(self.object_parts.get(id(live)) or self.hold(live, (type(live), id(live))))

    def hold(self, live: Any, content: Hashable) -> int:
        """Return the number of an object's content, and keep the object, so its id stays."""
        with self._holding:
            # An object that changed and is held again counts again.
            if len(self._kept) >= MAX_HELD:
                self.release()
            number = self._numbers.get(content)
            if number is None:
                # Never reused, because keys made with it may still be cached.
                number = self._numbers[content] = self._next = self._next + 2
            self._kept.append(live)
            self.object_parts[id(live)] = number
            return number

    def release(self) -> None:
        """Release all objects."""
        with self._holding:
            self.object_parts.clear()
            self._numbers.clear()
            self._kept.clear()

    def by_fields(self, names: tuple[str, ...]) -> Rule:
        """Return a rule for objects whose every change is reported to ``changed``."""
        read = attrgetter(*names)
        single = len(names) == 1

        def rule(key: list[Any], live: Any) -> None:
            number = self.object_parts.get(id(live))
            if number is None:
                content: list[Any] = [type(live)]
                values = (read(live),) if single else read(live)
                for value in values:
                    self.inside.add(type(value))
                    self.add(content, value)
                number = self.hold(live, tuple(content))
            key.append(number)

        return rule

    def changed(self, live: Any) -> None:
        """Forget an object that has changed."""
        if type(live) in self.inside:
            # It may be a part of others, which have then changed as well.
            self.release()
        else:
            self.object_parts.pop(id(live), None)

    def _described(self, key: list[Any], live: Any) -> None:
        value = self.describe_alone(live)
        if any(isinstance(part, NUMBERED) for _, part in walk(value)):
            raise NoFingerprint
        key.append(value)


def _float(key: list[Any], live: float) -> None:
    key.append(float)
    key.append(live or repr(live))


def _none(_: list[Any], ____: Any) -> None:
    raise NoFingerprint

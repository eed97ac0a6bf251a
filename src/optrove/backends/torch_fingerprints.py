"""Tell torch calls apart by what tensors say about themselves; no number is read.

The facts in a key are those that a description of a tensor holds, and where they are known a
number stands for them. Which arguments are one tensor, or share their numbers, is part of a key.

Everything here is read with torch functions switched off, which is up to the caller.
"""

from __future__ import annotations

from itertools import count
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.fingerprints import Fingerprints, NoFingerprint, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from types import ModuleType

    from optrove.backends.base import Tables
    from optrove.backends.describe import DescriptionCache
    from optrove.backends.watching import Call, Known

MAX_FACTS: Final = 32_768
MAX_PARTS: Final = 2048
"""How long a key may become: lists of numbers to make a tensor of are described each time."""

MAX_RESULTS: Final = 1024
"""How many results of one call are recognised; ``item()`` can give any number."""


_NO_CALL: Final[tuple[int, list[int], list[Hashable]]] = (0, [], [])


class _Key(list[Any]):
    """A key in the making, and the tensors that were met on the way."""

    __slots__ = ("tensors",)

    def __init__(self) -> None:
        self.tensors: list[Any] = []


class TorchFingerprints(Fingerprints):
    """The keys of torch's calls and results; may be used by many threads."""

    def __init__(
        self, torch: ModuleType, tables: Callable[[], Tables], cache: DescriptionCache
    ) -> None:
        super().__init__(tables, cache)
        self._tensor = torch.Tensor
        self._strided = torch.strided
        self._parts: dict[Hashable, int] = {}
        self._numbers_of_parts = count(1)
        self._kinds = {torch.Tensor, torch.nn.Parameter}
        self._last = _NO_CALL
        for kind in self._kinds:
            self.rules[kind] = self._add_tensor  # type: ignore[assignment]  # every key made here is a _Key
        self.rules[torch.device] = _itself
        self.rules[torch.Size] = self._sequence
        self.rules[slice] = self._slice
        self.rules[EllipsisType] = _only_one
        for kind in vars(torch.return_types).values():
            if isinstance(kind, type) and issubclass(kind, tuple):
                self.rules[kind] = self._sequence

    def call(self, op: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Hashable:
        """Return the key of a call, None if it has none."""
        key, kinds = _Key(), self._kinds
        key.append(op)
        self._last = _NO_CALL
        try:
            for live in arguments:
                if type(live) in kinds:
                    self._add_tensor(key, live)
                else:
                    self.add(key, live)
            for name, live in keywords.items():
                key.append(name)
                self.add(key, live)
            tensors = key.tensors
            if tensors:
                storages = _storages(tensors)
                if arguments and not keywords:
                    self._last = (id(arguments), [id(live) for live in tensors], storages)
                if len({*storages}) != len(storages):
                    key.append(_sharing([id(live) for live in tensors], storages, 0))
        except NoFingerprint:
            return None
        return tuple(key)

    def result(self, known: Known, live: Any, call: Call) -> Hashable:
        """Return the key of a result, None if it has none."""
        if len(known.outputs) >= MAX_RESULTS:
            known.outputs.clear()
        key = _Key()
        try:
            self.add(key, live)
            if key.tensors:
                ids, storages = self._places(call)
                places = len(ids)
                storages = [*storages, *_storages(key.tensors)]
                ids = [*ids, *[id(each) for each in key.tensors]]
                key.append(_sharing(ids, storages, places))
        except NoFingerprint:
            return None
        return tuple(key)

    def _places(self, call: Call) -> tuple[list[int], list[Hashable]]:
        """Return the ids and storages of a call's tensors.

        A call that made no other one is the last that was seen. Its arguments are alive, so that
        no others have their id; the empty ones have, and keywords may differ besides.
        """
        number, ids, storages = self._last
        if number == id(call[0]) and not call[1]:
            return ids, storages
        tensors: list[Any] = []
        self._collect(tensors, call[0])
        self._collect(tensors, call[1])
        return [id(live) for live in tensors], _storages(tensors)

    def tidy(self) -> None:
        """Keep memory bounded; numbers of facts are never given twice."""
        if len(self._parts) > MAX_FACTS:
            self._parts.clear()

    def rule_for(self, kind: type) -> Rule:
        """Return the rule of a class; classes derived from a tensor's are tensors."""
        if issubclass(kind, self._tensor):
            self._kinds.add(kind)
            return self._add_tensor  # type: ignore[return-value]  # every key made here is a _Key
        return super().rule_for(kind)

    def _collect(self, tensors: list[Any], live: Any) -> None:
        kind = type(live)
        if kind in self._kinds:
            tensors.append(live)
        elif kind is tuple or kind is list:
            for item in live:
                self._collect(tensors, item)
        elif kind is dict:
            for item in live.values():
                self._collect(tensors, item)

    def _add_tensor(self, key: _Key, live: Any) -> None:
        try:
            layout, dtype = live.layout, live.dtype
            facts = (
                live.shape,
                live.stride() if layout is self._strided else (),
                dtype,
                live.device,
                layout,
                live.requires_grad,
                live.storage_offset(),
                dtype.is_complex and live.is_conj(),
                live.is_neg(),
            )
            part = self._parts.get(facts)
        except Exception as error:
            # Nested tensors have no size, and symbols among the sizes no hash.
            raise NoFingerprint from error
        if part is None:
            if live.is_quantized:
                # Its dtype says so, and no such facts ever get a number.
                raise NoFingerprint
            part = self._parts.setdefault(facts, next(self._numbers_of_parts))
        key.append(part)
        key.tensors.append(live)

    def _sequence(self, key: list[Any], live: Any) -> None:
        if len(key) + len(live) > MAX_PARTS:
            raise NoFingerprint
        super()._sequence(key, live)

    def _slice(self, key: list[Any], live: slice) -> None:
        self.add(key, live.start)
        self.add(key, live.stop)
        self.add(key, live.step)


def _sharing(ids: list[int], storages: list[Hashable], first: int) -> Hashable:
    """Tell which tensors, from ``first`` on, are one with or share numbers with one before."""
    if len({*storages}) == len(storages):
        return None
    later = range(first, len(ids))
    return tuple([(ids.index(ids[at]), storages.index(storages[at])) for at in later])


def _storages(tensors: list[Any]) -> list[Hashable]:
    try:
        return [live.untyped_storage()._cdata for live in tensors]  # noqa: SLF001 - tells storages apart without reading them
    except Exception:  # noqa: BLE001 - some tensor has none to show; asked one by one below
        return [_storage(live) for live in tensors]


def _storage(live: Any) -> Hashable:
    try:
        number: int = live.untyped_storage()._cdata  # noqa: SLF001 - as above
    except NotImplementedError:
        return ("tensor", id(live))
    except Exception as error:
        raise NoFingerprint from error
    return number


def _itself(key: list[Any], live: Hashable) -> None:
    key.append(live)


def _only_one(_: list[Any], ____: Any) -> None:
    """Add nothing: the class, which is in the key, has one object only."""

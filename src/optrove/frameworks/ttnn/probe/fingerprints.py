"""Tell ttnn calls apart cheaply, and notice changed configurations.

ttnn's configuration classes have properties with setters. Reading all fields of an object anew
for every call would cost more than the rest of the tracing; so the setters are replaced by ones
that also say which object has changed.

A tensor is described once and then known by ttnn's own number for it (``tensor_id``), which no
other tensor ever gets. What a tensor is does not change while it has that number, except when it
is deallocated or given another topology; the probe sees both and says ``forget``. An op that
returns its own argument may have done the latter, so that such a result is described again.

A new tensor is the usual result of its call when its spec equals that of the last one: the case
fixes the device, the chips, and whether the result lies in the buffer of an argument.

Tensors that may share their buffer with another one have a negative part: views, what a view was
taken of, and tensors whose making was not seen. Only calls with such tensors ask for buffers.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.fingerprints import PLAIN, Fingerprints, NoFingerprint
from optrove.frameworks.probe_protocol import SEQUENCE
from optrove.frameworks.ttnn.convert.table import table
from optrove.frameworks.ttnn.convert.tensors import storage_key, tensor_key
from optrove.frameworks.ttnn.probe.fast_path import numbers
from optrove.model.values import TensorSpec
from optrove.serializer.tables import Caching, HandleConverter, StructConverter, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from types import ModuleType

    from optrove.frameworks.probe_protocol import Call, Known
    from optrove.model.values import Value
    from optrove.serializer.describe import DescriptionCache


def watchable(tables: Tables) -> dict[type, tuple[str, ...]]:
    """Return the classes of ttnn whose changes can be noticed, with the fields to read.

    All of an object's fields must be properties. A class that cannot be patched is left out.
    """
    found = {}
    for kind, converter in tables.by_type.items():
        if not isinstance(converter, StructConverter) or converter.caching is Caching.BY_VALUE:
            continue
        names = (*(converter.names or ()), *converter.optional)
        if not names or not converter.name.startswith("ttnn."):
            continue
        if all(isinstance(getattr(kind, name, None), property) for name in names):
            found[kind] = names
    return {kind: names for kind, names in found.items() if _can_be_patched(kind)}


def patches(
    kinds: dict[type, tuple[str, ...]], changed: Callable[[Any], None]
) -> Iterator[tuple[Any, str, Any]]:
    """Yield what to replace: every setter of these classes and of their bases."""
    owners = {base for kind in kinds for base in kind.__mro__}
    for owner in owners:
        for name, member in list(vars(owner).items()):
            if isinstance(member, property) and member.fset is not None:
                yield owner, name, _watched(member, changed)


def _watched(member: property, changed: Callable[[Any], None]) -> property:
    setter: Any = member.fset

    def change(live: Any, value: Any) -> None:
        setter(live, value)
        changed(live)

    return property(member.fget, change, member.fdel, member.__doc__)


def _can_be_patched(kind: type) -> bool:
    settable = [
        (base, name, member)
        for base in kind.__mro__
        for name, member in vars(base).items()
        if isinstance(member, property) and member.fset is not None
    ]
    try:
        for base, name, member in settable:
            setattr(base, name, member)
    except TypeError:  # a class that Python does not let anybody change
        return False
    return True


MAX_FACTS: Final = 32_768
_NAME: Final = "ttnn.Tensor"

_SEQUENCES: Final = frozenset({list, tuple})


class TtnnFingerprints(Fingerprints):
    """The keys of ttnn's calls and results; ``facts`` are the parts of tensors in keys.

    These are even, so that they read as nothing else.
    """

    def __init__(
        self,
        ttnn: ModuleType,
        tables: Callable[[], Tables],
        cache: DescriptionCache,
        handle_number: Callable[[Any], int | None],
    ) -> None:
        super().__init__(tables, cache)
        # Its own table, as ttnn may just be being imported and so not count as there yet.
        own = Tables([table()])
        self.facts = numbers()
        self.held = numbers()
        self._tensor = ttnn.Tensor
        self._handle_number = handle_number
        self._parts: dict[Hashable, int] = {}
        self._specs: dict[int, Value] = {}
        # Never given twice, not to two threads, nor while keys that were made with it are known.
        self._fresh_part = count(2, 2).__next__
        self.mutable = watchable(own)
        self.rules[ttnn.Tensor] = self._add_tensor
        for kind, names in self.mutable.items():
            self.rules[kind] = self.by_fields(names)
        for kind, converter in own.by_type.items():
            if isinstance(converter, HandleConverter):
                self.rules[kind] = self._add_handle

    def call(self, op: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Hashable:
        """Return the key of a call, None if it has none."""
        key: list[Any] = [op]
        try:
            for live in (*arguments, *keywords.values()):
                self.add(key, live)
        except NoFingerprint:
            return None
        if keywords:
            key.append(tuple(keywords))
        tensors = self.tensors((arguments, keywords))
        if len(tensors) > 1:
            numbers = [live.tensor_id for live in tensors]
            buffers = [storage_key(live) for live in tensors]
            if len({*buffers}) != len(buffers):
                key.append((*map(numbers.index, numbers), *map(buffers.index, buffers)))
        return tuple(key)

    def hurried(self, op: str) -> Callable[[Any, Any], Hashable]:
        """Return what gives the keys of an op in a hurry, the same as ``call`` gives.

        Only of calls whose tensors are known and have a buffer each; else it raises KeyError.
        """
        facts, held, rules = self.facts, self.held, self.rules
        tensor, plain, apart = self._tensor, PLAIN, self.apart

        def key_of(arguments: Any, keywords: Any) -> Hashable:
            if len(arguments) == 1 and not keywords and type(arguments[0]) is tensor:
                return op, facts[arguments[0].tensor_id]
            key: list[Any] = [op]
            append = key.append
            numbers = []
            doubt = False
            nested = False
            for live in (*arguments, *keywords.values()) if keywords else arguments:
                kind = type(live)
                if kind is tensor:
                    number = live.tensor_id
                    numbers.append(number)
                    part = facts[number]
                    append(part)
                    doubt = doubt or part < 0
                elif kind in plain:
                    append(kind)
                    append(live)
                elif (number := held.get(id(live))) is not None:
                    append(number)
                else:
                    nested |= kind is dict or (
                        kind in _SEQUENCES and not plain.issuperset(map(type, live))
                    )
                    rules[kind](key, live)
            if nested or len(numbers) > 1:
                alone = not doubt and not nested and len({*numbers}) == len(numbers)
                if not alone and not apart((arguments, keywords)):
                    raise KeyError(op)
            if keywords:
                append(tuple(keywords))
            return tuple(key)

        return key_of

    def result(self, known: Known, live: Any, call: Call) -> Hashable:
        """Return the key of a result, None if it has none, and note what is usual."""
        if known.usual[1] == SEQUENCE and self._are_usual(known, live):
            known.pending = (known.elements, SEQUENCE)
            return known.key
        results = self.tensors(live)
        arguments = self.tensors(call)
        buffers = [storage_key(each) for each in arguments]
        key: list[Any] = [
            self._relation(each, arguments, buffers, known.elements[place : place + 1])
            for place, each in enumerate(results)
        ]
        shares = any(relation[0] == "shared" for relation in key)
        if len(results) > 1:
            self._mark_alike(results)
        known.elements = tuple([(each.spec.__eq__, self._part(each)) for each in results])
        try:
            self.add(key, live)
        except NoFingerprint:
            return None
        known.pending = None
        if type(live) is self._tensor and not shares:
            known.pending = known.elements[0]
        elif type(live) in (list, tuple) and len(results) == len(live) and not shares:
            known.pending = (known.elements, SEQUENCE)
            known.key = tuple(key)
        return tuple(key)

    def _relation(
        self, live: Any, arguments: list[Any], buffers: list[Any], usual: Any
    ) -> tuple[str, int]:
        """Return how a tensor that was returned relates to the arguments, and note what it is."""
        number, buffer = live.tensor_id, storage_key(live)
        numbers = [each.tensor_id for each in arguments]
        if number in numbers:
            self._learn_again(live)
            return "same", numbers.index(number)
        if buffer in buffers:
            owner = buffers.index(buffer)
            self._mark_shared(live)
            self._mark_shared(arguments[owner])
            return "shared", owner
        # A known one is the result of an inner call, and whether it shares its buffer is known.
        if number not in self.facts:
            if usual and usual[0][0](live.spec):
                self.facts[number] = usual[0][1]
            else:
                self._learn(live)
        return "new", 0

    def _are_usual(self, known: Known, live: Any) -> bool:
        """Tell whether a sequence of tensors is like the last one, and note what they are."""
        if type(live) not in (list, tuple) or len(live) != len(known.elements):
            return False
        if not all(type(each) is self._tensor for each in live):
            return False
        if not all(usual[0](each.spec) for each, usual in zip(live, known.elements, strict=True)):
            return False
        for each, (_, part) in zip(live, known.elements, strict=True):
            self.facts[each.tensor_id] = part
        return True

    def _part(self, live: Any) -> int:
        # Looked up with care: another thread may have tidied up.
        return self.facts.get(live.tensor_id) or self._learn(live)

    def _mark_shared(self, live: Any) -> None:
        self.facts[live.tensor_id] = -abs(self._part(live))

    def _mark_alike(self, results: list[Any]) -> None:
        counts = Counter(map(storage_key, results))
        for each in results:
            if counts[storage_key(each)] > 1:
                self._mark_shared(each)

    def apart(self, call: Call) -> bool:
        """Tell whether each tensor of a call has a buffer of its own."""
        buffers = [storage_key(live) for live in self.tensors(call)]
        return len({*buffers}) == len(buffers)

    def recall(self, live: Any) -> tuple[TensorSpec, Hashable, Hashable, Any] | None:
        """Return a known tensor's spec alone, what tells it and its buffer apart, its device."""
        if type(live) is not self._tensor:
            return None
        spec = self._specs.get(abs(self.facts.get(live.tensor_id, 0)))
        if not isinstance(spec, TensorSpec):
            return None
        # As the table's converter spells them, since both kinds occur in one call.
        tensor, storage = (_NAME, tensor_key(live)), (_NAME, storage_key(live))
        return spec, tensor, storage, live.device()

    def forget(self, live: Any) -> None:
        """Take note that a tensor is not any more what it was."""
        self.facts.pop(live.tensor_id, None)

    def forget_all(self, call: Call) -> None:
        """Take note that all tensors of a call are not any more what they were."""
        for live in self.tensors(call):
            self.forget(live)

    def tidy(self) -> None:
        """Keep memory bounded; what is forgotten is described again when it is met."""
        if len(self.facts) > MAX_FACTS:
            self.facts.clear()
        if len(self._parts) > MAX_FACTS:
            self._parts.clear()
            self._specs.clear()

    def tensors(self, live: Any) -> list[Any]:
        """Return the tensors in nested sequences and mappings, in the order of ``add``."""
        found: list[Any] = []
        self._gather(found, live)
        return found

    def _gather(self, found: list[Any], live: Any) -> None:
        # By its type, since ``isinstance`` asks the object itself as well.
        kind = type(live)
        if kind is self._tensor:
            found.append(live)
        elif issubclass(kind, dict):
            for item in live.values():
                self._gather(found, item)
        elif issubclass(kind, (list, tuple)):
            for item in live:
                self._gather(found, item)

    def add(self, key: list[Any], live: Any) -> None:
        """Append the parts of one object; a tensor has no class in front of its part."""
        if type(live) is self._tensor:
            self._add_tensor(key, live)
        else:
            super().add(key, live)

    def _add_tensor(self, key: list[Any], live: Any) -> None:
        part = self.facts.get(live.tensor_id)
        if part is None:
            # Made in a way that was not seen, so nobody knows whose buffer it is in.
            part = self.facts[live.tensor_id] = -self._describe(live)
        key.append(part)

    def _learn(self, live: Any) -> int:
        part = self.facts[live.tensor_id] = self._describe(live)
        return part

    def _learn_again(self, live: Any) -> None:
        # An op that writes to its argument may give it the topology of another one:
        # paged_fill_cache does, on a mesh.
        part = self._describe(live)
        self.facts[live.tensor_id] = -part if self._part(live) < 0 else part

    def _describe(self, live: Any) -> int:
        """Return the part of all tensors that are like this one."""
        # The device's own number too: alone, every tensor's device is its first.
        device = live.device()
        description = self.describe_alone(live), device and device.id()
        part = self._parts.get(description)
        if part is None:
            part = self._fresh_part()
            self._specs[part] = description[0]
            self._parts[description] = part
        return part

    def _add_handle(self, key: list[Any], live: Any) -> None:
        number = self._handle_number(live)
        if number is None:
            raise NoFingerprint
        key.append((type(live), number, id(live)))

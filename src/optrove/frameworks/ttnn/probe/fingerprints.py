"""Make cheap keys of ttnn calls, and notice changed configurations.

ttnn's configuration classes have properties with setters. Reading all fields of an object for
every call would cost more than the rest of the tracing, so patched setters report each change.

A tensor is described once and then identified by ttnn's ``tensor_id``, which is never reused. A
tensor with one id stays the same, except when it is deallocated or given another topology; the
probe sees both and calls ``forget``. An op that returns its own argument may have changed the
topology, so such a result is described again.

A new tensor is the usual result of its call if its spec equals that of the last one: the case
determines the device, the chips, and whether the result shares the buffer of an argument.

Tensors that may share their buffer with another one have a negative part: views, the tensors they
were taken of, and tensors whose creation was not observed. Only calls with such tensors look up
buffers.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.fingerprints import PLAIN, Fingerprints, NoFingerprint
from optrove.frameworks.probe_protocol import SEQUENCE
from optrove.frameworks.ttnn.convert.table import table
from optrove.frameworks.ttnn.convert.tensors import storage_key, tensor_key
from optrove.frameworks.ttnn.probe.fast_path import int_table
from optrove.model.values import TensorSpec
from optrove.serializer.tables import HandleConverter, StructConverter, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from types import ModuleType

    from optrove.frameworks.probe_protocol import CachedCase, Call
    from optrove.model.values import Value
    from optrove.serializer.describe import DescriptionCache


def watchable(tables: Tables) -> dict[type, tuple[str, ...]]:
    """Return the classes of ttnn whose changes can be noticed, with the fields to read.

    All fields of such a class are properties, and the class can be patched.
    """
    found = {}
    for kind, converter in tables.by_type.items():
        if not isinstance(converter, StructConverter) or converter.cacheable:
            continue
        names = (*(converter.names or ()), *converter.optional)
        if not names or not converter.name.startswith("ttnn."):
            continue
        if all(isinstance(getattr(kind, name, None), property) for name in names):
            found[kind] = names
    return {kind: names for kind, names in found.items() if _can_be_patched(kind)}


def setter_patches(
    kinds: dict[type, tuple[str, ...]], changed: Callable[[Any], None]
) -> Iterator[tuple[Any, str, Any]]:
    """Yield the patches of all setters of these classes and their bases."""
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
    except TypeError:  # an immutable class
        return False
    return True


MAX_FACTS: Final = 32_768
_NAME: Final = "ttnn.Tensor"

_SEQUENCES: Final = frozenset({list, tuple})


def tensors_of(tensor: type, live: Any) -> list[Any]:
    """Return the objects of the tensor class in nested sequences and mappings, in their order."""
    # By type, because ``isinstance`` also asks the object itself.
    kind = type(live)
    if kind is tensor:
        return [live]
    if issubclass(kind, dict):
        live = live.values()
    elif not issubclass(kind, (list, tuple)):
        return []
    return [each for item in live for each in tensors_of(tensor, item)]


def named_key(live: Any) -> Hashable:
    """Return the key by which a Describer knows a tensor."""
    return _NAME, tensor_key(live)


class TtnnFingerprints(Fingerprints):
    """The keys of ttnn's calls and results; ``tensor_parts`` are the parts of tensors in keys.

    These are even numbers, which nothing else in a key is.
    """

    def __init__(
        self,
        ttnn: ModuleType,
        tables: Callable[[], Tables],
        cache: DescriptionCache,
        handle_number: Callable[[Any], int | None],
    ) -> None:
        super().__init__(tables, cache)
        # Its own table: ttnn may be in the middle of its import, and then does not count as loaded.
        own = Tables([table()])
        self.tensor_parts = int_table()
        self.object_parts = int_table()
        self._tensor = ttnn.Tensor
        self._handle_number = handle_number
        self._parts: dict[Hashable, int] = {}
        self._specs: dict[int, Value] = {}
        # Never reused, neither by two threads nor while keys made with it are cached.
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

    def fast_key(self, op: str) -> Callable[[Any, Any], Hashable]:
        """Return a faster function for the keys of one op, with the same results as ``call``.

        It raises KeyError unless all tensors of the call have parts and a buffer each.
        """
        tensor_parts, object_parts, rules = self.tensor_parts, self.object_parts, self.rules
        tensor, plain, have_own_buffers = self._tensor, PLAIN, self.have_own_buffers

        def key_of(arguments: Any, keywords: Any) -> Hashable:
            if len(arguments) == 1 and not keywords and type(arguments[0]) is tensor:
                return op, tensor_parts[arguments[0].tensor_id]
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
                    part = tensor_parts[number]
                    append(part)
                    doubt = doubt or part < 0
                elif kind in plain:
                    append(kind)
                    append(live)
                elif (number := object_parts.get(id(live))) is not None:
                    append(number)
                else:
                    nested |= kind is dict or (
                        kind in _SEQUENCES and not plain.issuperset(map(type, live))
                    )
                    rules[kind](key, live)
            if nested or len(numbers) > 1:
                alone = not doubt and not nested and len({*numbers}) == len(numbers)
                if not alone and not have_own_buffers((arguments, keywords)):
                    raise KeyError(op)
            if keywords:
                append(tuple(keywords))
            return tuple(key)

        return key_of

    def result(self, known: CachedCase, live: Any, call: Call) -> Hashable:
        """Return the key of a result, or None, and set the usual result."""
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
        """Return how a returned tensor relates to the arguments, and give it a part."""
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
        # A tensor with a part is the result of an inner call, which decided about its buffer.
        if number not in self.tensor_parts:
            if usual and usual[0][0](live.spec):
                self.tensor_parts[number] = usual[0][1]
            else:
                self._learn(live)
        return "new", 0

    def _are_usual(self, known: CachedCase, live: Any) -> bool:
        """Return whether a sequence of tensors equals the last one, and give them parts."""
        if type(live) not in (list, tuple) or len(live) != len(known.elements):
            return False
        if not all(type(each) is self._tensor for each in live):
            return False
        if not all(usual[0](each.spec) for each, usual in zip(live, known.elements, strict=True)):
            return False
        for each, (_, part) in zip(live, known.elements, strict=True):
            self.tensor_parts[each.tensor_id] = part
        return True

    def _part(self, live: Any) -> int:
        # Another thread may have called ``tidy``.
        return self.tensor_parts.get(live.tensor_id) or self._learn(live)

    def _mark_shared(self, live: Any) -> None:
        self.tensor_parts[live.tensor_id] = -abs(self._part(live))

    def _mark_alike(self, results: list[Any]) -> None:
        counts = Counter(map(storage_key, results))
        for each in results:
            if counts[storage_key(each)] > 1:
                self._mark_shared(each)

    def have_own_buffers(self, call: Call) -> bool:
        """Return whether each tensor of a call has its own buffer."""
        buffers = [storage_key(live) for live in self.tensors(call)]
        return len({*buffers}) == len(buffers)

    def recall(self, live: Any) -> tuple[TensorSpec, Hashable, Hashable, Any] | None:
        """Return the spec of a tensor by itself, keys of tensor and buffer, the device; or None."""
        if type(live) is not self._tensor:
            return None
        spec = self._specs.get(abs(self.tensor_parts.get(live.tensor_id, 0)))
        if not isinstance(spec, TensorSpec):
            return None
        # The same keys as the converter's, since both occur in one call.
        return spec, named_key(live), (_NAME, storage_key(live)), live.device()

    def forget(self, live: Any) -> None:
        """Drop the part of a tensor that has changed."""
        self.tensor_parts.pop(live.tensor_id, None)

    def forget_all(self, call: Call) -> None:
        """Drop the parts of all tensors of a call."""
        for live in self.tensors(call):
            self.forget(live)

    def tidy(self) -> None:
        """Keep memory bounded; dropped tensors are described again at their next call."""
        if len(self.tensor_parts) > MAX_FACTS:
            self.tensor_parts.clear()
        if len(self._parts) > MAX_FACTS:
            self._parts.clear()
            self._specs.clear()

    def tensors(self, live: Any) -> list[Any]:
        """Return the tensors in nested sequences and mappings, in the order of ``add``."""
        return tensors_of(self._tensor, live)

    def add(self, key: list[Any], live: Any) -> None:
        """Append the parts of one object; a tensor has no class before its part."""
        if type(live) is self._tensor:
            self._add_tensor(key, live)
        else:
            super().add(key, live)

    def _add_tensor(self, key: list[Any], live: Any) -> None:
        part = self.tensor_parts.get(live.tensor_id)
        if part is None:
            # Its creation was not observed, so it may share its buffer.
            part = self.tensor_parts[live.tensor_id] = -self._describe(live)
        key.append(part)

    def _learn(self, live: Any) -> int:
        part = self.tensor_parts[live.tensor_id] = self._describe(live)
        return part

    def _learn_again(self, live: Any) -> None:
        # An op that writes to its argument may change its topology: paged_fill_cache does, on a
        # mesh.
        part = self._describe(live)
        self.tensor_parts[live.tensor_id] = -part if self._part(live) < 0 else part

    def _describe(self, live: Any) -> int:
        """Return the part of all tensors with this description."""
        # With the device's id: within the description every device has the number one.
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

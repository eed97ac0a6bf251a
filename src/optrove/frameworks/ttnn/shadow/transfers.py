"""Carry numbers along when tensors travel between the host and a mock board.

Whatever reads a device tensor gets its twin instead; whatever puts a host tensor on the device
makes that host tensor the twin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from optrove.errors import NoNumbers
from optrove.frameworks.probe_protocol import muted
from optrove.frameworks.ttnn.shadow.host_mirrors import DEALLOCATED, Missing, Numbers, Twin, Twins

if TYPE_CHECKING:
    from optrove.frameworks.ttnn.shadow.golden import Golden

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

Call = Callable[..., Any]

# What makes from_torch, as_tensor and load_tensor go to the device; without it they stay on the
# host, where their numbers are real.
TO_DEVICE = frozenset(
    {"device", "memory_config", "cq_id", "queue_id", "cache_file_name", "enable_bfloat_opt"}
)


_AT_WORK: ContextVar[bool] = ContextVar("shadow_at_work", default=False)


def at_work() -> bool:
    """Tell whether a call of ttnn comes from the shadow itself and not from the model."""
    return _AT_WORK.get()


@contextmanager
def working() -> Iterator[None]:
    """Mark the calls of ttnn inside the block as the shadow's own."""
    token = _AT_WORK.set(True)
    try:
        with muted():
            yield
    finally:
        _AT_WORK.reset(token)


class Transfers:
    """What the ops and methods that move tensors do to their numbers."""

    def __init__(self, ttnn: Any, twins: Twins, golden: Golden) -> None:
        self._ttnn = ttnn
        self._twins = twins
        self._golden = golden
        self._from_host_shards = ttnn.from_host_shards
        self.ops: dict[str, Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]] = {
            "ttnn.to_torch": self._to_torch,
            "ttnn.from_device": self._from_device,
            "ttnn.dump_tensor": self.read,
            "ttnn.to_device": self._to_device,
            "ttnn.from_torch": self._from_outside,
            "ttnn.as_tensor": self._from_outside,
            "ttnn.load_tensor": self._from_outside,
            "ttnn.copy_host_to_device_tensor": self._host_to_device,
            "ttnn.copy_device_to_host_tensor": self._device_to_host,
            "ttnn.copy": self._copy,
            "ttnn.deallocate": self.deallocate,
        }

    def readable(self, tensor: Any) -> Any:
        """Return a host tensor with the numbers of ``tensor``, or raise NoNumbers."""
        numbers = self._readable_numbers(tensor)
        if numbers is None:
            return tensor
        if not at_work():  # then more than the numbers may be looked at
            numbers = self._as_specified(numbers, tensor)
        return self._joined(numbers, tensor, tensor)

    def _readable_numbers(self, tensor: Any) -> Twin | None:
        """Return what stands in for a tensor, None if its own numbers do; or raise NoNumbers."""
        if not isinstance(tensor, self._ttnn.Tensor) or not self._twins.stands_in(tensor):
            return None
        numbers = self._twins.numbers(tensor)
        if isinstance(numbers, Missing):
            raise _no_numbers(tensor, numbers)
        return numbers

    def deallocate(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Give memory back, and the numbers with it."""
        result = call(*arguments, **keywords)
        tensor = arguments[0] if arguments else keywords["tensor"]
        if self._twins.on_device(tensor) and not tensor.is_allocated():
            self._twins.forget(tensor)
        return result

    def cpu(self, call: Call, tensor: Any, arguments: Any, keywords: Any) -> Any:
        """Return the tensor on the host, with its numbers or the lack of them."""
        numbers = self._twins.numbers(tensor)
        if numbers is DEALLOCATED:
            raise _no_numbers(tensor, DEALLOCATED)  # ttnn would end the process
        stands_in = self._twins.stands_in(tensor)
        result = call(tensor, *arguments, **keywords)
        if not stands_in:
            return result
        if isinstance(numbers, Missing):
            self._twins.view(result, numbers)
            return result
        return self._joined(self._as_specified(numbers, tensor), tensor, result)

    def moved(self, call: Call, tensor: Any, arguments: Any, keywords: Any, *, keeps: bool) -> Any:
        """Call a method that gives the same numbers elsewhere or in another observed.

        ``keeps`` says that the observed of the tensor stays (``to``); otherwise the same method
        gives the twin its new observed (``reshape``).
        """
        numbers = self._twins.numbers(tensor)
        if not self._twins.on_device(tensor) and isinstance(numbers, Twin):
            tensor = self.readable(tensor)
        result = call(tensor, *arguments, **keywords)
        if not isinstance(result, self._ttnn.Tensor):
            return result
        if isinstance(numbers, Missing):
            self._twins.view(result, numbers)
        elif self._twins.on_device(result):
            if not keeps:
                shards = [call(shard, *arguments, **keywords) for shard in numbers.shards]
                numbers = Twin(tuple(shards))
            own = self._twins.on_device(tensor)
            self._twins.view(result, self._spread(numbers, result, own=own))
        return result

    def parted(self, tensor: Any, parts: list[Any]) -> list[Any]:
        """Give the parts of a tensor, chip by chip, their own numbers."""
        if self._twins.stands_in(tensor):
            numbers = self._twins.numbers(tensor)
            for chip, part in enumerate(parts):
                alone = numbers if isinstance(numbers, Missing) else Twin((numbers.shards[chip],))
                self._twins.view(part, alone)
        return parts

    def combined(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Join parts that lie on different chips into one tensor."""
        result = call(*arguments, **keywords)
        known = [self._twins.numbers(part) for part in self._golden.tensors((arguments, keywords))]
        lost = next((numbers for numbers in known if isinstance(numbers, Missing)), None)
        shards = tuple(shard for part in known if isinstance(part, Twin) for shard in part.shards)
        if lost is not None or self._twins.on_device(result):
            self._twins.view(result, lost or Twin(shards))
        return result

    def read(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call something that reads tensors, on host tensors with their numbers."""
        arguments = tuple(self.readable(value) for value in arguments)
        return call(*arguments, **{key: self.readable(value) for key, value in keywords.items()})

    def _to_torch(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if at_work():
            return self.read(call, arguments, keywords)
        # It is made of calls that are watched by themselves. Given the twin it would leave out
        # that of from_device, and a trace would hold other calls than without the shadow.
        for value in (*arguments, *keywords.values()):
            numbers = self._readable_numbers(value)
            if numbers is not None and _is_part(value, numbers):
                return self.read(call, arguments, keywords)
        return call(*arguments, **keywords)

    def _from_device(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        tensor, rest, others = _first(arguments, keywords, "tensor")
        if not isinstance(tensor, self._ttnn.Tensor):
            return call(*arguments, **keywords)  # ttnn says what is wrong
        return self.cpu(call, tensor, rest, others)

    def _to_device(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        tensor, rest, others = _first(arguments, keywords, "tensor")
        if not isinstance(tensor, self._ttnn.Tensor):
            return call(*arguments, **keywords)  # ttnn says what is wrong
        return self.moved(call, tensor, rest, others, keeps=True)

    def _from_outside(
        self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        result = call(*arguments, **keywords)
        if not isinstance(result, self._ttnn.Tensor) or not self._twins.on_device(result):
            return result
        if self._twins.knows(result):
            return result  # as_tensor went through from_torch
        stay = {key: value for key, value in keywords.items() if key not in TO_DEVICE}
        # A host tensor may borrow the caller's memory, which may change after this call.
        if arguments:
            arguments = (_apart(arguments[0]), *arguments[1:])
        elif "tensor" in stay:
            stay["tensor"] = _apart(stay["tensor"])
        with working():
            host = call(*arguments, **stay)
        self._twins.view(result, self._spread(self._twins.numbers(host), result, own=True))
        return result

    def _host_to_device(
        self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        return self._overwrite(call, arguments, keywords, ("host_tensor", "device_tensor"))

    def _device_to_host(
        self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        return self._overwrite(call, arguments, keywords, ("device_tensor", "host_tensor"))

    def _copy(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self._overwrite(call, arguments, keywords, ("input_a", "input_b"))

    def _overwrite(
        self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any], names: Any
    ) -> Any:
        result = call(*arguments, **keywords)
        source, target = (
            arguments[place] if len(arguments) > place else keywords[name]
            for place, name in enumerate(names)
        )
        own = self._twins.on_device(source)
        numbers = self._spread(self._twins.numbers(source), target, own=own)
        self._twins.write(target, numbers, "a copy into the tensor")
        return result

    def _spread(self, numbers: Numbers, target: Any, *, own: bool) -> Numbers:
        """Return the twin of ``target`` that has the given numbers, in its dtype.

        Without ``own`` their memory may be that of the caller, who may change it.
        """
        if isinstance(numbers, Missing):
            return numbers
        fitting: dict[int, Any] = {}
        for shard in numbers.shards:
            if id(shard) not in fitting:
                fitting[id(shard)] = self._fitted(shard, target, own=own)
        shards = [fitting[id(shard)] for shard in numbers.shards]
        placements = target.tensor_topology().placements()
        replicate = self._ttnn.PlacementReplicate
        if len(shards) == 1 or all(isinstance(place, replicate) for place in placements):
            shards = shards[:1] * self._twins.chips(target)
        return Twin(tuple(shards))

    def _fitted(self, shard: Any, target: Any, *, own: bool) -> Any:
        layout = self._golden.layout(target)
        same = shard.dtype == target.dtype and shard.layout == layout
        # Tiling has copied the numbers; a row-major host tensor may borrow the caller's memory.
        if same and (own or layout == self._ttnn.TILE_LAYOUT):
            return shard
        with muted():
            return self._golden.pack(self._golden.unpack(shard), target)

    def _as_specified(self, numbers: Twin, tensor: Any) -> Twin:
        """Return the twin with the spec of the device tensor, as reading it back would give."""
        spec = tensor.spec
        if all(shard.spec == spec for shard in numbers.shards):
            return numbers
        with muted():
            return Twin(tuple([self._golden.pack_as(shard, spec) for shard in numbers.shards]))

    def _joined(self, numbers: Twin, tensor: Any, placed: Any) -> Any:
        """Return one host tensor with the parts of all chips, spread over them as ``placed`` is."""
        topology = placed.tensor_topology()
        if len(numbers.shards) == 1:
            (only,) = numbers.shards
            if only.tensor_topology() == topology or _is_part(placed, numbers):
                return only
        shape = tensor.device().shape if self._twins.on_device(tensor) else None
        if shape is None or math.prod(shape) != len(numbers.shards):
            shape = self._ttnn.MeshShape(1, len(numbers.shards))
        with muted():
            host = self._from_host_shards(list(numbers.shards), shape)
            host.update_tensor_topology(topology)
        return host


def _is_part(tensor: Any, numbers: Twin) -> bool:
    """Tell whether a tensor lies on some chips of its mesh only.

    It has the topology of the whole, and only ttnn itself can make such a tensor on the host.
    """
    return len(list(tensor.tensor_topology().mesh_coords())) > len(numbers.shards)


def _first(
    arguments: tuple[Any, ...], keywords: dict[str, Any], name: str
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Split the first argument, given by place or by name or not at all, from the rest."""
    if arguments:
        return arguments[0], arguments[1:], keywords
    return keywords.get(name), (), {key: value for key, value in keywords.items() if key != name}


def _apart(source: Any) -> Any:
    """Return a copy of a torch tensor that its owner cannot change; all else as it is."""
    return source.clone() if hasattr(source, "clone") else source


def _no_numbers(tensor: Any, missing: Missing) -> NoNumbers:
    asked = f"the numbers of a {tensor.dtype} tensor of shape {tuple(tensor.shape)} were asked for"
    if missing is DEALLOCATED:
        return NoNumbers(f"{asked}, but {missing.reason}")
    return NoNumbers(
        f"{asked}, but it has none on this mock board. {missing}. Compare its spec only, run on "
        f"hardware, or give the op a golden function with ttnn.attach_golden_function"
    )

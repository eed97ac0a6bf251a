"""Carry mirrors along when tensors move between the host and a mock board.

A call that reads a device tensor gets its mirror instead; a call that puts a host tensor on the
device makes that host tensor the mirror.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any

from optrove.errors import NoNumbers
from optrove.frameworks.probe_protocol import muted
from optrove.frameworks.ttnn.shadow.host_mirrors import (
    DEALLOCATED,
    HostMirror,
    HostMirrors,
    MirrorOrMissing,
    Missing,
    Unwritten,
)

if TYPE_CHECKING:
    from optrove.frameworks.ttnn.shadow.golden import GoldenFunctions
    from optrove.frameworks.ttnn.shadow.traced_calls import TracedCalls

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

Call = Callable[..., Any]

Form = Callable[[Any, Any], Any]
"""Returns a host tensor in the form of another tensor."""

# Arguments that put the result of from_torch on the device; without them it stays on the host,
# where its values are real.
TO_DEVICE = frozenset({"device", "memory_config", "cq_id", "queue_id", "enable_bfloat_opt"})

# Arguments for tiles, which mirrors of most dtypes do without.
IN_TILES = frozenset({"layout", "tile"})


_AT_WORK: ContextVar[bool] = ContextVar("shadow_at_work", default=False)


def is_shadow_call() -> bool:
    """Return whether a call of ttnn comes from the shadow itself and not from the model."""
    return _AT_WORK.get()


@contextmanager
def shadow_calls() -> Iterator[None]:
    """Mark the calls of ttnn inside the block as the shadow's own."""
    token = _AT_WORK.set(True)
    try:
        with muted():
            yield
    finally:
        _AT_WORK.reset(token)


# Sets the mirrors of the call that is in progress, given its result.
_SETTLING: ContextVar[Callable[[Any], None] | None] = ContextVar("shadow_settling", default=None)


def settled_call(
    call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any], settle: Callable[[Any], None]
) -> Any:
    """Make a call and settle its result, once: after the call, or when its result is read in it."""
    done = False

    def settle_once(result: Any) -> None:
        nonlocal done
        if not done:
            done = True
            settle(result)

    token = _SETTLING.set(settle_once)
    try:
        result = call(*arguments, **keywords)
    finally:
        _SETTLING.reset(token)
    settle_once(result)
    return result


def settle_early(result: Any) -> None:
    """Set the mirrors of the call in progress, whose result is read before the call returns."""
    settle = _SETTLING.get()
    if settle is not None and not is_shadow_call():
        settle(result)


class Transfers:
    """The ops and methods that move tensors, with their mirrors."""

    def __init__(
        self, ttnn: Any, mirrors: HostMirrors, golden: GoldenFunctions, traced: TracedCalls
    ) -> None:
        self._ttnn = ttnn
        self._traced = traced
        self._mirrors = mirrors
        self._golden = golden
        # Host tensors whose memory is a file, which may be written again.
        self._mapped: set[int] = set()
        self._from_host_shards = ttnn.from_host_shards
        self._reshape = getattr(ttnn.Tensor, "reshape", None)
        self.ops: dict[str, Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]] = {
            "ttnn.to_torch": self._to_torch,
            "ttnn.from_device": self._from_device,
            "ttnn.dump_tensor": self.read,
            "ttnn.to_device": self._to_device,
            "ttnn.from_torch": self._from_outside,
            # They call from_torch or ``loaded``: a file may have other numbers than the argument.
            "ttnn.as_tensor": _as_called,
            "ttnn.load_tensor": _as_called,
            "ttnn.copy_host_to_device_tensor": partial(
                self._overwrite, ("host_tensor", "device_tensor")
            ),
            "ttnn.copy_device_to_host_tensor": partial(
                self._overwrite, ("device_tensor", "host_tensor")
            ),
            "ttnn.copy": partial(self._overwrite, ("input_a", "input_b")),
            "ttnn.deallocate": self.deallocate,
        }

    def readable(self, tensor: Any) -> Any:
        """Return a host tensor with the values of ``tensor``, or raise NoNumbers."""
        mirror = self._readable_mirror(tensor)
        if mirror is None:
            return tensor
        if not is_shadow_call():  # then its spec matters as well
            mirror = self._as_specified(mirror, tensor)
        return self._joined(mirror, tensor, tensor)

    def _readable_mirror(self, tensor: Any) -> HostMirror | None:
        """Return the mirror of a tensor; None if its own values are real; or raise NoNumbers."""
        if not isinstance(tensor, self._ttnn.Tensor) or not self._mirrors.replaces(tensor):
            return None
        mirror = self._mirrors.of(tensor)
        if isinstance(mirror, Missing):
            raise _no_numbers(tensor, mirror)
        return mirror

    def deallocate(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Deallocate a tensor, and drop its mirror."""
        result = call(*arguments, **keywords)
        tensor = arguments[0] if arguments else keywords["tensor"]
        if self._mirrors.on_device(tensor) and not tensor.is_allocated():
            self._mirrors.forget(tensor)
        return result

    def cpu(self, call: Call, tensor: Any, arguments: Any, keywords: Any) -> Any:
        """Return the tensor on the host, with its values or the reason for their lack."""
        mirror = self._mirrors.of(tensor)
        if mirror is DEALLOCATED:
            raise _no_numbers(tensor, DEALLOCATED)  # ttnn would end the process
        replaces = self._mirrors.replaces(tensor)
        result = call(tensor, *arguments, **keywords)
        if not replaces:
            return result
        if isinstance(mirror, Missing):
            self._mirrors.set(result, mirror)
            return result
        return self._joined(self._as_specified(mirror, tensor), tensor, result)

    def moved(self, call: Call, tensor: Any, arguments: Any, keywords: Any, *, keeps: bool) -> Any:
        """Call a method that returns the same values elsewhere or in another shape.

        If it ``keeps`` the shape (``to``), the mirror stays as it is; otherwise the method is
        applied to the mirror as well (``reshape``).
        """
        self._traced.free_dropped()
        mirror = self._mirrors.of(tensor)
        if not self._mirrors.on_device(tensor) and isinstance(mirror, HostMirror):
            tensor = self.readable(tensor)
        form: Form | None = None if keeps else partial(_formed, call, arguments, keywords)
        if call is self._reshape:  # on the host it does not move what is in tiles
            form = self._reshaped
        device = self._traced.capturing_device((tensor,), keywords)
        held = None if device is None else self._traced.hold(device, (form, tensor))

        def settle(result: Any) -> None:
            if device is not None and held is not None and self._mirrors.on_device(result):
                self._traced.note(device, self._move, held, result)
            elif isinstance(result, self._ttnn.Tensor):
                self._set_moved(form, tensor, mirror, result)

        return settled_call(call, (tensor, *arguments), keywords, settle)

    def _reshaped(self, shard: Any, like: Any) -> Any:
        """Return a host tensor in the shape of a tensor."""
        values = self._golden.unpack(shard).reshape(tuple(like.shape))
        return self._golden.pack(values, like)

    def _move(self, form: Form | None, tensor: Any, result: Any) -> None:
        self._set_moved(form, tensor, self._mirrors.of(tensor), result)

    def _set_moved(
        self, form: Form | None, tensor: Any, mirror: MirrorOrMissing, result: Any
    ) -> None:
        """Set the mirror of a moved tensor; ``form`` gives the mirror its new shape."""
        if isinstance(mirror, Missing):
            self._mirrors.set(result, mirror)
        elif self._mirrors.on_device(result):
            if form is None and not self._mirrors.on_device(tensor):
                self._mirrors.set(result, self._on_device(tensor, result))
                return
            if form is not None:
                mirror = HostMirror(tuple([form(shard, result) for shard in mirror.shards]))
            own = self._mirrors.on_device(tensor)
            self._mirrors.set(result, self._spread(mirror, result, own=own))

    def parted(self, tensor: Any, parts: list[Any]) -> list[Any]:
        """Set the mirrors of the parts of a tensor, chip by chip."""
        if self._mirrors.replaces(tensor):
            self._set_parted(tensor, parts)
            self._note_shared(self._set_parted, tensor, parts)
        return parts

    def _note_shared(self, step: Callable[..., None], source: Any, result: Any) -> None:
        """Note a step of a trace that writes nothing: its result shares memory with its source."""
        device = self._traced.capturing_device(source, {})
        if device is not None:
            self._traced.note(device, step, self._traced.hold(device, (source,)), result)

    def _set_parted(self, tensor: Any, parts: list[Any]) -> None:
        mirror = self._mirrors.of(tensor)
        for chip, part in enumerate(parts):
            alone = mirror if isinstance(mirror, Missing) else HostMirror((mirror.shards[chip],))
            self._mirrors.set(part, alone)

    def combined(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Join parts that are on different chips into one tensor."""
        result = call(*arguments, **keywords)
        parts = list(self._golden.tensors((arguments, keywords)))
        self._set_combined(parts, result)
        self._note_shared(self._set_combined, parts, result)
        return result

    def _set_combined(self, parts: list[Any], result: Any) -> None:
        known = [self._mirrors.of(part) for part in parts]
        lost = next((mirror for mirror in known if isinstance(mirror, Missing)), None)
        shards = tuple(
            shard for part in known if isinstance(part, HostMirror) for shard in part.shards
        )
        if lost is not None or self._mirrors.on_device(result):
            self._mirrors.set(result, lost or HostMirror(shards))

    def read(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a function that reads tensors, with host tensors in their place."""
        arguments = tuple(self.readable(value) for value in arguments)
        return call(*arguments, **{key: self.readable(value) for key, value in keywords.items()})

    def _to_torch(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if is_shadow_call():
            return self.read(call, arguments, keywords)
        # It is composed of calls that are observed themselves. With the mirror it would omit
        # from_device, and a trace would have other calls than without the shadow.
        for value in (*arguments, *keywords.values()):
            mirror = self._readable_mirror(value)
            if mirror is not None and _is_part(value, mirror):
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

    def loaded(self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Load a tensor from a file, with the numbers of the file."""
        tensor = call(*arguments, **keywords)
        file_name, *_ = _first(arguments, keywords, "file_name")
        with shadow_calls():
            host = call(file_name) if self._mirrors.on_device(tensor) else tensor
            self._mapped.add(host.tensor_id)
            if host is not tensor:
                self._mirrors.set(tensor, self._on_device(host, tensor))
        return tensor

    def _on_device(self, host: Any, target: Any) -> MirrorOrMissing:
        """Return the mirror of ``target`` with the values of a tensor that is on the host."""
        mirror = self._mirrors.of(host)
        if host.tensor_id in self._mapped and isinstance(mirror, HostMirror):
            mirror = HostMirror(tuple([self._copied(shard, shard) for shard in mirror.shards]))
        return self._spread(mirror, target, own=False)

    def _copied(self, shard: Any, like: Any) -> Any:
        with muted():
            return self._golden.pack(self._golden.unpack(shard), like)

    def _from_outside(
        self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        settle = partial(self._set_from_outside, call, arguments, keywords)
        return settled_call(call, arguments, keywords, settle)

    def _set_from_outside(
        self, call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> None:
        if not isinstance(result, self._ttnn.Tensor) or not self._mirrors.on_device(result):
            return
        moving = TO_DEVICE
        if self._golden.layout(result) == self._ttnn.ROW_MAJOR_LAYOUT:
            moving = TO_DEVICE | IN_TILES
        stay = {key: value for key, value in keywords.items() if key not in moving}
        if arguments:
            arguments = (self._golden.owned(arguments[0], result), *arguments[1:])
        elif "tensor" in stay:
            stay["tensor"] = self._golden.owned(stay["tensor"], result)
        with shadow_calls():
            host = call(*arguments, **stay)
        self._mirrors.set(result, self._spread(self._mirrors.of(host), result, own=True))

    def _overwrite(
        self,
        names: tuple[str, str],
        call: Call,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Any:
        """Copy a tensor into another one; ``names`` are the parameters of source and target."""
        source, target = (
            arguments[place] if len(arguments) > place else keywords.get(name)
            for place, name in enumerate(names)
        )
        self._traced.free_dropped()
        tensors = all(isinstance(each, self._ttnn.Tensor) for each in (source, target))
        on_device = tensors and all(map(self._mirrors.on_device, (source, target)))
        # A transfer between the host and the device is no part of a trace.
        device = self._traced.capturing_device(source, keywords) if on_device else None
        if device is not None:
            held = self._traced.hold(device, (source, target))
            result = call(*arguments, **keywords)
            self._traced.note(device, self._copy, held, target)
            return result
        result = call(*arguments, **keywords)
        self._set_copied(source, target)
        return result

    def _copy(self, source: Any, target: Any, _result: Any) -> None:
        self._set_copied(source, target)

    def _set_copied(self, source: Any, target: Any) -> None:
        own = self._mirrors.on_device(source)
        mirror = self._spread(self._mirrors.of(source), target, own=own)
        self._mirrors.write(target, mirror, "a copy into the tensor")

    def _spread(self, mirror: MirrorOrMissing, target: Any, *, own: bool) -> MirrorOrMissing:
        """Return the mirror of ``target`` with the values of another one, in its dtype.

        Without ``own`` its memory may be that of the caller, who may change it.
        """
        if isinstance(mirror, Missing):
            return mirror
        fitting: dict[int, Any] = {}
        for shard in mirror.shards:
            if id(shard) not in fitting:
                fitting[id(shard)] = self._fitted(shard, target, own=own)
        shards = [fitting[id(shard)] for shard in mirror.shards]
        placements = target.tensor_topology().placements()
        replicate = self._ttnn.PlacementReplicate
        if len(shards) == 1 or all(isinstance(place, replicate) for place in placements):
            shards = shards[:1] * self._mirrors.chips(target)
        return HostMirror(tuple(shards))

    def _fitted(self, shard: Any, target: Any, *, own: bool) -> Any:
        layout = self._golden.layout(target)
        same = shard.dtype == target.dtype and shard.layout == layout
        # Tiling has copied the values; a row-major host tensor may borrow the caller's memory.
        if same and (own or layout == self._ttnn.TILE_LAYOUT):
            return shard
        return self._copied(shard, target)

    def _as_specified(self, mirror: HostMirror, tensor: Any) -> HostMirror:
        """Return the mirror with the spec of the device tensor, as if it were read back."""
        spec = tensor.spec
        if all(shard.spec == spec for shard in mirror.shards):
            return mirror
        with muted():
            return HostMirror(tuple([self._golden.pack_as(shard, spec) for shard in mirror.shards]))

    def _joined(self, mirror: HostMirror, tensor: Any, placed: Any) -> Any:
        """Return one host tensor with the parts of all chips, distributed as ``placed`` is."""
        topology = placed.tensor_topology()
        if len(mirror.shards) == 1:
            (only,) = mirror.shards
            if only.tensor_topology() == topology or _is_part(placed, mirror):
                return only
        shape = tensor.device().shape if self._mirrors.on_device(tensor) else None
        if shape is None or math.prod(shape) != len(mirror.shards):
            shape = self._ttnn.MeshShape(1, len(mirror.shards))
        with muted():
            host = self._from_host_shards(list(mirror.shards), shape)
            host.update_tensor_topology(topology)
        return host


def _is_part(tensor: Any, mirror: HostMirror) -> bool:
    """Return whether a tensor is on some chips of its mesh only.

    It has the topology of the whole, and only ttnn itself can make such a tensor on the host.
    """
    return len(list(tensor.tensor_topology().mesh_coords())) > len(mirror.shards)


def _first(
    arguments: tuple[Any, ...], keywords: dict[str, Any], name: str
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Split the first argument, passed by place or by name or not at all, from the rest."""
    if arguments:
        return arguments[0], arguments[1:], keywords
    return keywords.get(name), (), {key: value for key, value in keywords.items() if key != name}


def _as_called(call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return call(*arguments, **keywords)


def _formed(
    call: Call, arguments: tuple[Any, ...], keywords: dict[str, Any], tensor: Any, _like: Any
) -> Any:
    return call(tensor, *arguments, **keywords)


def _no_numbers(tensor: Any, missing: Missing) -> NoNumbers:
    asked = f"the numbers of a {tensor.dtype} tensor of shape {tuple(tensor.shape)} were asked for"
    if isinstance(missing, Unwritten):
        return NoNumbers(f"{asked}, but it has none. {missing}", str(missing))
    if missing is DEALLOCATED:
        return NoNumbers(f"{asked}, but {missing.reason}")
    return NoNumbers(
        f"{asked}, but it has none on this mock board. {missing}. Compare its spec only, run on "
        f"hardware, or give the op a golden function with ttnn.attach_golden_function",
        str(missing),
    )

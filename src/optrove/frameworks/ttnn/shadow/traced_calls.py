"""Keep the calls of a captured metal trace, so that executing it computes their values.

As on hardware, capturing computes nothing: the tensors that captured calls write keep the values
that they have, and new ones have none until the trace is executed.

The tensors of these calls are kept, since computing needs their specs, but not their memory: as
soon as the program has dropped a tensor, its buffer is freed, as it would be without the shadow.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.board.mock_calls import TRACES_ATTRIBUTE, MetalTraces
from optrove.frameworks.ttnn.shadow.golden import mapped
from optrove.frameworks.ttnn.shadow.host_mirrors import HeldTensor
from optrove.frameworks.ttnn.shadow.transfers import shadow_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirrors

# The attribute of the held tensor, and the argument of getrefcount.
OWN_REFERENCES: Final = 2

QUEUES: Final = ("queue_id", "cq_id")
"""The arguments that choose a command queue; ttnn takes the first of them that is present."""


class TracedCalls:
    """What the shadow does when a metal trace is executed."""

    def __init__(self, ttnn: Any, mirrors: HostMirrors) -> None:
        self._tensor: Any = ttnn.Tensor
        self._device: Any = ttnn.MeshDevice
        self._mirrors = mirrors
        self._traces: MetalTraces | None = getattr(ttnn, TRACES_ATTRIBUTE, None)
        self._is_on = False
        # The tensors of captured calls whose memory was not freed yet.
        self._with_memory: set[int] = set()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Compute values when a trace is executed inside the block."""
        if self._traces is None:
            yield
            return
        self._traces.around, self._is_on = self._mirrors.executing_trace, True
        try:
            yield
        finally:
            self._traces.around, self._is_on = nullcontext, False

    def capturing_device(self, arguments: Any, keywords: Mapping[str, Any]) -> int | None:
        """Return the device that captures a call into a trace; None if the call is executed."""
        if self._traces is None or not self._traces.capturing:
            return None
        device = next(self._devices((arguments, keywords)), None)
        queue = next((keywords[name] for name in QUEUES if keywords.get(name) is not None), None)
        is_captured = device is not None and self._traces.captures(device, queue)
        return device if is_captured else None

    def _devices(self, live: Any) -> Iterator[int]:
        """Yield the numbers of the devices among arguments, first those of tensors."""
        leaves = list(flat(live))
        for leaf in leaves:
            if isinstance(leaf, self._tensor) and self._mirrors.on_device(leaf):
                device = self._mirrors.device(leaf)
                if device is not None:  # it was not deallocated
                    yield device.id()
        for leaf in leaves:
            if isinstance(leaf, self._device):
                yield leaf.id()

    def hold(self, device: int, live: Any) -> Any:
        """Return arguments of a captured call, before it, whose tensors are kept without memory."""
        assert self._traces is not None  # noqa: S101 - narrows the type; a device captures
        return mapped(partial(self._held, self._traces.written(device)), live)

    def _held(self, written: set[int], live: Any) -> Any:
        if not isinstance(live, self._tensor) or not self._mirrors.on_device(live):
            return live
        held = self._mirrors.hold(live, is_read_first=live.tensor_id not in written)
        if held is None:
            return live
        self._with_memory.add(live.tensor_id)
        return held

    def note(self, device: int, step: Callable[..., None], held: Any, result: Any) -> None:
        """Note a step for the execution of the trace, with held arguments and its result."""
        assert self._traces is not None  # noqa: S101 - narrows the type; a device captures
        written = self._traces.written(device)
        for tensor in flat(result):
            if isinstance(tensor, self._tensor):
                self._mirrors.postpone(tensor)
                written.add(tensor.tensor_id)
        result = self.hold(device, result)
        self._traces.note(device, partial(self._execute, step, held, result))

    def _execute(self, step: Callable[..., None], held: Any, result: Any) -> None:
        if self._is_on:
            with shadow_calls():
                step(*mapped(_live, held), mapped(_live, result))

    def free_dropped(self) -> None:
        """Free the memory of tensors that only captured calls refer to; before every call."""
        for identity in list(self._with_memory):
            held = self._mirrors.held(identity)
            if held is not None and held.tensor.is_allocated():
                if sys.getrefcount(held.tensor) > OWN_REFERENCES:
                    continue
                with shadow_calls():
                    held.tensor.deallocate(force=False)
                if held.tensor.is_allocated():
                    continue  # the program has it under another name
            self._with_memory.discard(identity)

    def forget_device(self, device: int) -> None:
        """Forget the traces of a device that was closed."""
        if self._traces is not None:
            self._traces.forget_device(device)


def _live(argument: Any) -> Any:
    return argument.tensor if isinstance(argument, HeldTensor) else argument


def flat(live: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, tuples and dictionaries."""
    if isinstance(live, (list, tuple)):
        for item in live:
            yield from flat(item)
    elif isinstance(live, dict):
        yield from flat(list(live.values()))
    else:
        yield live

"""Keep the calls of a captured metal trace, so that executing it computes their values again.

The tensors of these calls are kept too, since computing needs their specs, but not their memory: as
soon as the program has dropped a tensor, its buffer is freed, as it would be without the shadow.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.board.mock_calls import TRACES_ATTRIBUTE, MetalTraces
from optrove.frameworks.ttnn.shadow.golden import mapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirrors

# The local variable, the argument of getrefcount, and the dictionary of kept tensors.
OWN_REFERENCES: Final = 3


class TracedCalls:
    """What the shadow does again when a metal trace is executed."""

    def __init__(self, ttnn: Any, mirrors: HostMirrors) -> None:
        self._tensor: type = ttnn.Tensor
        self._mirrors = mirrors
        self._traces: MetalTraces | None = getattr(ttnn, TRACES_ATTRIBUTE, None)
        self._kept: dict[int, Any] = {}
        self._references: dict[int, int] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Compute values when a trace is executed inside the block."""
        if self._traces is None:
            yield
            return
        self._traces.around = self._mirrors.executing_trace
        try:
            yield
        finally:
            self._traces.around = nullcontext

    def note(self, step: Callable[..., None], *arguments: Any) -> None:
        """Note a step with its arguments if a trace is being captured."""
        if self._traces is None or not self._traces.capturing:
            self._kept.clear()
            self._references.clear()
            return
        self._free_dropped()
        # Containers of our own, so that the references to each tensor can be counted.
        self._traces.note(partial(step, *mapped(self._keep, arguments)))

    def _keep(self, live: Any) -> Any:
        if isinstance(live, self._tensor):
            self._kept[id(live)] = live
            self._references[id(live)] = self._references.get(id(live), 0) + 1
        return live

    def _free_dropped(self) -> None:
        """Free the buffers of tensors that only the noted steps refer to."""
        for identity in list(self._kept):
            tensor = self._kept[identity]
            if sys.getrefcount(tensor) <= self._references[identity] + OWN_REFERENCES:
                tensor.deallocate(force=False)
                del self._kept[identity], self._references[identity]

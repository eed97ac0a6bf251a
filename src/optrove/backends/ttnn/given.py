"""Execute cases on a device that the caller has opened, and hand out what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.ttnn.devices import ALONE, Devices
from optrove.backends.ttnn.execution import TtnnExecutor
from optrove.backends.ttnn.lifting import MARK
from optrove.errors import AlreadyTracing, NotReplayable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from optrove.backends.base import Tables
    from optrove.backends.executing import Executed
    from optrove.model.records import DeviceKind, DeviceParameters


class GivenDevice(Devices):
    """The device of the caller, who closes it."""

    def __init__(self, ttnn: ModuleType, device: Any) -> None:
        super().__init__(ttnn)
        self._live = device

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Say whether this device will do; NotReplayable if not, with what it takes."""
        shape, found = wanted.mesh_shape or ALONE, tuple(self._live.shape)
        if shape != found:
            raise NotReplayable(
                f"the call was recorded on a mesh of {_sizes(shape)} chips, and the given device "
                f"has {_sizes(found)}; open one of that shape"
            )
        if wanted.l1_small_size is not None:
            raise NotReplayable(
                f"the call needs a part of L1 that the given device was opened without; open it "
                f"with l1_small_size={wanted.l1_small_size}"
            )
        return ()

    def close(self) -> None:
        """Let go of the device, and leave it open."""
        self._live = None


class GivenExecutor(TtnnExecutor):
    """Executes cases on one given device; ``result`` is what the last one has returned."""

    def __init__(
        self,
        ttnn: ModuleType,
        tables: Callable[[], Tables],
        device_kind: DeviceKind,
        device: Any,
    ) -> None:
        if hasattr(ttnn, MARK):
            raise AlreadyTracing(
                "a replay traces its own call, and this process is being traced; replay outside "
                "of optrove.trace and enable_tracing"
            )
        super().__init__(ttnn, tables, device_kind)
        self._devices = GivenDevice(ttnn, device)
        self.result: Any = None

    def _call(self, rebuilt: Any) -> tuple[Executed, Any]:
        executed, self.result = super()._call(rebuilt)
        return executed, self.result


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))

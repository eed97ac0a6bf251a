"""Open ttnn devices as they were recorded, and keep the last one open."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable
from optrove.model.causes import ttnn_problem
from optrove.model.records import HARMLESS

if TYPE_CHECKING:
    from types import ModuleType

    from optrove.model.records import DeviceParameters

FABRIC: Final = "FABRIC_1D"
"""The fabric to use where none was recorded: the one that most models ask for."""

L1_SMALL: Final = 24576
"""What convolutions and poolings of most models ask for."""

ALONE: Final = (1, 1)

MAX_PROGRAMS: Final = 512
"""How many compiled programs are kept; on 32 chips each takes about a megabyte."""

_AXIS: Final = "dispatch core axis"


class Devices:
    """The one device of a process that is open, and with what."""

    def __init__(self, ttnn: ModuleType) -> None:
        self._ttnn: Any = ttnn
        self._live: Any = None
        self._opened: DeviceParameters | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def live(self) -> Any:
        """The open device, None without one."""
        return self._live

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Have a device open with these parameters; NotReplayable where ttnn refuses.

        Return notes about parameters that were supplied.
        """
        wanted, notes = completed(wanted)
        if self._opened == wanted:
            return (*notes, *self._notes)
        self.close()
        try:
            self._live = self._open_on_some_axis(wanted)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            self._disable_fabric()
            problem = ttnn_problem(str(error))
            reason = str(error) if problem is None else f"{problem}\n{error}"
            raise NotReplayable(f"{_title(wanted)} could not be opened: {reason}") from error
        self._opened = wanted
        return (*notes, *self._notes)

    def _open_on_some_axis(self, wanted: DeviceParameters) -> Any:
        """Open a device, with the dispatch axis of this board if it has not the recorded one."""
        self._notes = ()
        if wanted.dispatch_axis is None:
            return self._open(wanted)
        try:
            return self._open(wanted)
        except RuntimeError as error:
            if _AXIS not in str(error):
                raise
            live = self._open(replace(wanted, dispatch_axis=None))
        own = "dispatch along this board's own axis"
        self._notes = (f"{HARMLESS}{own}, recorded by {wanted.dispatch_axis}",)
        return live

    def tidy(self) -> None:
        """Drop compiled programs when there are many: ttnn keeps one for each different call."""
        count = getattr(self._live, "num_program_cache_entries", None)
        if count is not None and count() > MAX_PROGRAMS:
            self._live.clear_program_cache()

    def reset(self) -> None:
        """Free what earlier calls hold: compiled programs keep tables of convolutions in L1."""
        self.close()

    def close(self) -> None:
        """Close what is open, and put the fabric back."""
        live, self._live, self._opened = self._live, None, None
        if live is not None:
            self._ttnn.close_mesh_device(live)
            self._disable_fabric()

    def _disable_fabric(self) -> None:
        self._ttnn.set_fabric_config(self._ttnn.FabricConfig.DISABLED)

    def _open(self, wanted: DeviceParameters) -> Any:
        ttnn = self._ttnn
        shape = wanted.mesh_shape or ALONE
        found = ttnn.get_num_devices()
        if prod(shape) > found:
            there = "is 1 chip" if found == 1 else f"are {found} chips"
            raise ValueError(f"there {there} here")
        if wanted.fabric_config is not None:
            ttnn.set_fabric_config(ttnn.FabricConfig[wanted.fabric_config])
        return ttnn.open_mesh_device(ttnn.MeshShape(*shape), **self._keywords(wanted))

    def _keywords(self, wanted: DeviceParameters) -> dict[str, Any]:
        ttnn = self._ttnn
        sizes = {
            "l1_small_size": wanted.l1_small_size,
            "trace_region_size": wanted.trace_region_size,
            "worker_l1_size": wanted.worker_l1_size,
            "num_command_queues": wanted.command_queues,
        }
        keywords = {name: value for name, value in sizes.items() if value is not None}
        axis = wanted.dispatch_axis
        if axis is not None and axis != self._usual_axis():
            keywords["dispatch_core_config"] = ttnn.DispatchCoreConfig(
                axis=ttnn.DispatchCoreAxis[axis]
            )
        return keywords

    def _usual_axis(self) -> str:
        # What a device has that was opened without asking for one.
        return str(self._ttnn.device.DispatchCoreConfig().axis.name)


def completed(wanted: DeviceParameters) -> tuple[DeviceParameters, tuple[str, ...]]:
    """Return the parameters with defaults for those not recorded, and notes about these."""
    notes = []
    if prod(wanted.mesh_shape or ALONE) > 1 and wanted.fabric_config is None:
        wanted = replace(wanted, fabric_config=FABRIC)
        notes.append(f"no fabric was recorded; the mesh was opened with {FABRIC}")
    return wanted, tuple(notes)


def _title(wanted: DeviceParameters) -> str:
    shape = "x".join(map(str, wanted.mesh_shape or ALONE))
    fabric = f" with {wanted.fabric_config}" if wanted.fabric_config else ""
    return f"a {shape} mesh{fabric}"

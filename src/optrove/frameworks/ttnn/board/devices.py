"""Open ttnn devices as they were recorded, and keep the last one open.

Where chips are reached through other chips, as on N300 and T3K, ttnn starts a fabric on all chips
or not at all: a smaller mesh with a fabric is a submesh of one that has all chips.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from operator import le
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import DeviceNotOpened, NotReplayable
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
        self._parent: Any = None
        self._opened: DeviceParameters | None = None
        self._notes: tuple[str, ...] = ()

    @property
    def live(self) -> Any:
        """The open device, None without one."""
        return self._live

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Have a device open with these parameters; NotReplayable without enough chips.

        DeviceNotOpened where ttnn refuses: it may have left some chips open, which it then refuses
        to open or to close. Return notes about parameters that were supplied.
        """
        wanted, notes = completed(wanted)
        if self._opened == wanted:
            return (*notes, *self._notes)
        self._check_chips(wanted)
        try:
            self.close()
            self._live = self._open_on_some_axis(wanted)
        except (RuntimeError, ValueError, TypeError, KeyError) as error:
            self._disable_fabric()
            problem = ttnn_problem(str(error))
            reason = str(error) if problem is None else f"{problem}\n{error}"
            raise DeviceNotOpened(f"{_title(wanted)} could not be opened: {reason}") from error
        self._opened = wanted
        return (*notes, *self._notes)

    def _check_chips(self, wanted: DeviceParameters) -> None:
        there = self._ttnn.get_num_devices()
        if prod(wanted.mesh_shape or ALONE) > there:
            chips = "is 1 chip" if there == 1 else f"are {there} chips"
            raise NotReplayable(f"{_title(wanted)} could not be opened: there {chips} here")

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
        self._notes += (f"{HARMLESS}{own}, recorded by {wanted.dispatch_axis}",)
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
        live, parent = self._live, self._parent
        self._live = self._parent = self._opened = None
        for mesh in (live, parent):
            if mesh is not None:
                self._ttnn.close_mesh_device(mesh)
        if live is not None:
            self._disable_fabric()

    def _disable_fabric(self) -> None:
        self._ttnn.set_fabric_config(self._ttnn.FabricConfig.DISABLED)

    def _open(self, wanted: DeviceParameters) -> Any:
        ttnn = self._ttnn
        shape = wanted.mesh_shape or ALONE
        parent = shape
        if wanted.fabric_config is not None:
            parent = self._parent_shape(shape)
            ttnn.set_fabric_config(ttnn.FabricConfig[wanted.fabric_config])
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(*parent), **self._keywords(wanted))
        if parent == shape:
            return mesh
        self._parent = mesh
        whole = "x".join(map(str, parent))
        self._notes += (f"{HARMLESS}a part of the {whole} mesh of all chips",)
        return mesh.create_submesh(ttnn.MeshShape(*shape))

    def _parent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the mesh of which one with a fabric is a part; its own shape if it is none."""
        ttnn = self._ttnn
        chips = ttnn.get_num_devices()
        if prod(shape) == chips or ttnn.get_num_pcie_devices() == chips:
            return shape
        rows, columns = ttnn._ttnn.multi_device.SystemMeshDescriptor().shape()  # noqa: SLF001 - the only way to it
        shapes = ((rows, columns), (columns, rows), (1, chips), (chips, 1))
        for parent in shapes:
            if len(shape) == len(parent) and all(map(le, shape, parent)):
                return parent
        raise ValueError(f"it does not fit into the {rows}x{columns} mesh of all {chips} chips")

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

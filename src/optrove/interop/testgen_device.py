"""Spell how generated tests open and close the device of their cases."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.interop.testgen_layout import call, laid_out, prefixed

if TYPE_CHECKING:
    from optrove.interop.testgen_layout import Expression
    from optrove.model.records import DeviceParameters

ALONE: Final = (1, 1)
FABRIC: Final = "FABRIC_1D"
"""What chips talk over where a recording does not tell; the one that most models ask for."""

L1_SMALL: Final = 24576
_WANTS_L1_SMALL: Final = re.compile(r"conv|pool|upsample|fold|halo|grid_sample")
_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_NO_FABRIC: Final = "DISABLED"


@dataclass(frozen=True, slots=True)
class Opening:
    """With what a device is opened; zero is ttnn's own choice. ``untold`` was supplied."""

    mesh_shape: tuple[int, ...] = ALONE
    fabric: str | None = None
    l1_small_size: int = 0
    trace_region_size: int = 0
    worker_l1_size: int = 0
    command_queues: int = 1
    dispatch_axis: str | None = None
    untold: tuple[str, ...] = ()

    @property
    def chips(self) -> int:
        """How many chips it has."""
        return prod(self.mesh_shape)


def opening_of(device: DeviceParameters | None, op: str) -> Opening:
    """Return how a device is opened for an op, with what the recording does not tell."""
    if device is None:
        return _completed(Opening(), None, None, op)
    shape = device.mesh_shape or ALONE
    known = device.fabric_config if _NAME.fullmatch(device.fabric_config or "") else None
    opening = Opening(
        mesh_shape=shape,
        trace_region_size=device.trace_region_size or 0,
        worker_l1_size=device.worker_l1_size or 0,
        command_queues=device.command_queues or 1,
        dispatch_axis=device.dispatch_axis if device.dispatch_axis in ("ROW", "COL") else None,
    )
    return _completed(opening, known, device.l1_small_size, op)


def _completed(opening: Opening, fabric: str | None, l1_small: int | None, op: str) -> Opening:
    untold = []
    if fabric is None and opening.chips > 1:
        fabric = FABRIC
        untold.append(f"the fabric, {FABRIC}")
    if l1_small is None and _WANTS_L1_SMALL.search(op):
        l1_small = L1_SMALL
        untold.append(f"l1_small_size, {L1_SMALL}")
    return replace(
        opening,
        fabric=None if fabric == _NO_FABRIC else fabric,
        l1_small_size=l1_small or 0,
        untold=tuple(untold),
    )


def open_lines(opening: Opening, variable: str, indent: int) -> list[str]:
    """Return the statements that open the device."""
    lines = []
    if opening.fabric is not None:
        lines.append(f"ttnn.set_fabric_config(ttnn.FabricConfig.{opening.fabric})")
    told = {
        "l1_small_size": opening.l1_small_size,
        "trace_region_size": opening.trace_region_size,
        "worker_l1_size": opening.worker_l1_size,
        "num_command_queues": opening.command_queues if opening.command_queues > 1 else 0,
    }
    keywords: list[Expression] = [f"{name}={size}" for name, size in told.items() if size]
    if opening.dispatch_axis is not None:
        axis = f"axis=ttnn.DispatchCoreAxis.{opening.dispatch_axis}"
        keywords.append(f"dispatch_core_config=ttnn.DispatchCoreConfig({axis})")
    if opening.chips == 1:
        opened = call("ttnn.open_device", "device_id=0", *keywords)
    else:
        shape = call("ttnn.MeshShape", *map(str, opening.mesh_shape))
        opened = call("ttnn.open_mesh_device", shape, *keywords)
    return [*lines, laid_out(prefixed(f"{variable} = ", opened), indent)]


def close_lines(opening: Opening, variable: str) -> list[str]:
    """Return the statements that close the device."""
    kind = "device" if opening.chips == 1 else "mesh_device"
    lines = [f"ttnn.close_{kind}({variable})"]
    if opening.fabric is not None:
        lines.append("ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)")
    return lines

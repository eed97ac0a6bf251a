"""Which device a Job needs, and which Jobs can share one."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from optrove.backends.ttnn.boards import BOARDS
from optrove.model.records import DeviceKey, DeviceParameters
from optrove.model.values import DeviceRef, TensorSpec, TtnnPlacement
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.case import Case
    from optrove.model.records import Job

ALONE = (1, 1)


def device_key(job: Job, board: str | None) -> DeviceKey:
    """Return what two Jobs must agree in to be executed on one opened device."""
    known = None if board is None else BOARDS.get(board)
    arch = None if known is None else known.arch
    return DeviceKey(job.device_kind, board, arch, device_of(job))


def device_of(job: Job) -> DeviceParameters:
    """Return with what a device has to be opened for a Job; no mesh shape: it needs none.

    The mesh is the one that the case's own tensors and devices have: where a model works on
    parts of a mesh, the device that was opened last need not be theirs.
    """
    told = job.device or DeviceParameters()
    shapes = sorted(set(_mesh_shapes(job.case)), key=lambda shape: (prod(shape), shape))
    if shapes:
        return replace(told, mesh_shape=shapes[-1])
    return told


def _mesh_shapes(case: Case) -> Iterator[tuple[int, ...]]:
    for _, argument in case.arguments:
        for _, part in walk(argument):
            match part:
                case TensorSpec(placement=TtnnPlacement(storage="device", mesh_shape=shape)):
                    yield shape or ALONE
                case DeviceRef(mesh_shape=shape):
                    yield shape or ALONE

"""Admit Jobs by the host memory that they will need, so that workers do not starve each other.

Where numbers are computed, the tensors of a case are on the host, with wide copies while torch
computes and compares. Two large cases at the same time can need more memory than there is, and the
operating system then kills a worker that has done nothing wrong. So a Job waits until its estimate
fits beside those of the other workers; a Job that fits nowhere runs alone.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.model.records import DeviceKind
from optrove.model.values import TensorSpec, TtnnPlacement, walk

if TYPE_CHECKING:
    from optrove.model.records import Job

BYTES_PER_NUMBER: Final = 12
"""The most memory that a number of an argument or a result takes: as it is stored, as it was drawn,
as torch computes with it, and as it is compared. Measured: 8.2 for an add of bfloat16 tensors."""

SHARE: Final = 0.8
"""The part of the available memory that Jobs may use; other processes of the machine need some."""

_MEMINFO: Final = Path("/proc/meminfo")
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_USED: Final = Path("/sys/fs/cgroup/memory.current")


def needed_memory(job: Job) -> int:
    """Return about how many bytes of host memory a Job takes; 0 if it computes no numbers."""
    if job.device_kind is DeviceKind.MOCK:
        return 0
    values = [value for _, value in job.case.arguments]
    seen: dict[int, int] = {}
    for value in (*values, *(job.outputs or ())):
        for _, part in walk(value):
            if isinstance(part, TensorSpec):
                seen[part.storage] = max(seen.get(part.storage, 0), _count(part))
    return BYTES_PER_NUMBER * sum(seen.values())


def _count(spec: TensorSpec) -> int:
    """Return how many different numbers a tensor has on all chips."""
    mesh = spec.placement.mesh if isinstance(spec.placement, TtnnPlacement) else None
    parts = 1
    if mesh is not None:
        axes = zip(mesh.distribution_shape, mesh.placements, strict=False)
        parts = prod(size for size, dim in axes if dim is not None)
    return prod(spec.shape) * parts


def available_memory() -> int | None:
    """Return how many bytes this machine or container can still give; None if it is unknown."""
    found = []
    with suppress(OSError, KeyError, ValueError):  # not Linux
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with suppress(OSError, ValueError):  # no container, or no limit
        found.append(int(_LIMIT.read_text()) - int(_USED.read_text()))
    return max(0, min(found)) if found else None


class MemoryBudget:
    """The memory of all workers of a run, each of which holds what its Jobs need."""

    def __init__(self, available: int | None) -> None:
        self._total = None if available is None else int(available * SHARE)
        self._held: dict[int, int] = {}
        self._changed = threading.Condition()

    def admits(self, worker: int, needed: int) -> bool:
        """Hold ``needed`` bytes for a worker if they fit; return whether they do.

        What does not even fit alone is admitted when no other worker holds anything.
        """
        with self._changed:
            return self._take(worker, needed)

    def wait(self, worker: int, needed: int, stopping: threading.Event) -> None:
        """Wait until the bytes fit, or until the run is stopped."""
        with self._changed:
            while not self._take(worker, needed) and not stopping.is_set():
                self._changed.wait(_LOOK_SECONDS)

    def release(self, worker: int, still_needed: int = 0) -> None:
        """Hold only what a worker's other Jobs need."""
        with self._changed:
            self._held[worker] = still_needed
            self._changed.notify_all()

    def _take(self, worker: int, needed: int) -> bool:
        others = sum(held for other, held in self._held.items() if other != worker)
        if self._total is not None and others and others + needed > self._total:
            return False
        self._held[worker] = max(needed, self._held.get(worker, 0))
        return True


_LOOK_SECONDS: Final = 0.5

"""Choose on which nodes of a Ray cluster Jobs are executed: where the board is that they need.

Nodes offer their boards as custom resources, named as in the table of boards. A resource of a node
stands for one worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from optrove.backends.ttnn.boards import BOARDS
from optrove.model.records import DeviceKind
from optrove.run.keys import device_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.run.tasks import Task


@dataclass(frozen=True, slots=True)
class Place:
    """The nodes that offer a board as a resource; None: any node, as no real board is needed."""

    resource: str | None

    def __str__(self) -> str:
        return "a free CPU" if self.resource is None else f"the resource {self.resource}"

    def capacity(self, offered: Mapping[str, float]) -> int:
        """Return for how many workers there is room when nobody else is there."""
        return int(offered.get(self.resource or "CPU", 0))


def by_place(
    tasks: Iterable[Task], offered: Mapping[str, float]
) -> tuple[dict[Place, list[Task]], list[tuple[Task, str]]]:
    """Return the tasks by where they are executed, and those with nowhere to go, with why."""
    placed: dict[Place, list[Task]] = {}
    left: list[tuple[Task, str]] = []
    for task in tasks:
        found = place_of(task, offered)
        if isinstance(found, Place):
            placed.setdefault(found, []).append(task)
        else:
            left.append((task, found))
    return placed, left


def place_of(task: Task, offered: Mapping[str, float]) -> Place | str:
    """Return where a task is executed; why nowhere, in words, if the cluster does not have it."""
    kind, board = task.ground.device_kind, task.ground.board
    if kind is not DeviceKind.HARDWARE:
        # A mock board needs no other machine; whoever offers one by its name wants it there.
        offers = board is not None and offered.get(board, 0) >= 1
        return Place(board if kind is not DeviceKind.HOST and offers else None)
    if board is not None:
        if offered.get(board, 0) >= 1:
            return Place(board)
        return f"no node of the Ray cluster offers the board {board}{_advice(offered)}"
    chips = prod(device_of(task.job).mesh_shape or (1,))
    fitting = [name for name in _boards(offered) if BOARDS[name].chips >= chips]
    if fitting:
        return Place(min(fitting, key=lambda name: BOARDS[name].chips))
    return f"no node of the Ray cluster offers a board with {chips} chips{_advice(offered)}"


def _boards(offered: Mapping[str, float]) -> list[str]:
    return [name for name in BOARDS if offered.get(name, 0) >= 1]


def _advice(offered: Mapping[str, float]) -> str:
    found = ", ".join(_boards(offered)) or "none"
    return f" (boards offered: {found}); start one with: ray start --resources='{{\"n300\": 1}}'"

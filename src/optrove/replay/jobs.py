"""Jobs on their way to workers, and which device each needs.

Every engine decides by these, so that the same Jobs get the same verdicts everywhere.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.frameworks.executor import Stage
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import Attempt, DeviceKey, DeviceKind, DeviceParameters, Outcome, Plan
from optrove.model.values import DeviceRef, TensorSpec, TtnnPlacement, walk
from optrove.replay.judge import fatal_fault, in_words
from optrove.replay.workers import Answered, Died, Late, Reply, Unable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.case import Case
    from optrove.model.records import Job
    from optrove.replay.messages import Ground, Order


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


_MOCK: Final = (DeviceKind.MOCK, DeviceKind.SHADOW)


def listed(jobs: Plan | Iterable[Job], device_kind: DeviceKind | None) -> list[Job]:
    """Return all Jobs, on another kind of device if one is given."""
    if isinstance(jobs, Plan):
        jobs = [job for group in jobs.groups for job in group.jobs]
    if device_kind is None:
        return list(jobs)
    return [replace(job, device_kind=device_kind) for job in jobs]


@dataclass(frozen=True, slots=True)
class Task:
    """A Job on its way, and what became of earlier attempts at it."""

    job: Job
    ground: Ground
    key: DeviceKey
    history: tuple[str, ...] = ()


def tasks_of(jobs: Iterable[Job], ground: Ground) -> list[Task]:
    """Return the tasks that Jobs make on a ground, each on the kind of device that it names."""
    return [
        Task(job, replace(ground, device_kind=job.device_kind), device_key(job, ground.board))
        for job in jobs
    ]


class Backlog:
    """The tasks that nobody has taken yet; those of one ground and device together."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[Ground, DeviceKey], deque[Task]] = {}
        for task in tasks:
            self._groups.setdefault((task.ground, task.key), deque()).append(task)

    def take(self, last: Task | None, *, same_ground: bool = False) -> Task | None:
        """Return a task, for the device of the last one if there is any; None at the end.

        With ``same_ground`` it is one that the process of the last one can execute, or None.
        """
        with self._lock:
            group = None if last is None else self._groups.get((last.ground, last.key))
            if not group:
                ground = None if last is None else last.ground
                groups = [
                    each
                    for each in self._groups.values()
                    if each and (not same_ground or each[0].ground == ground)
                ]
                if not groups:
                    return None
                # The largest group of the same ground first: a new process costs most.
                group = max(groups, key=lambda each: (each[0].ground == ground, len(each)))
            return group.popleft()

    def put(self, task: Task) -> None:
        """Add a task."""
        with self._lock:
            self._groups.setdefault((task.ground, task.key), deque()).append(task)

    def put_back(self, task: Task) -> None:
        """Add a task that was taken and not begun."""
        with self._lock:
            self._groups.setdefault((task.ground, task.key), deque()).appendleft(task)


@dataclass(frozen=True, slots=True)
class Sent:
    """A task that a worker has."""

    task: Task
    order: Order


def again_slowly(task: Task, reply: Reply) -> Task | None:
    """Return the task to be tried with slow dispatch, which some mock workloads need."""
    ground = task.ground
    board = None if ground.board is None else BOARDS[ground.board]
    crashed = isinstance(reply, Died) and _lost(reply)[0] is Outcome.CRASHED
    if not crashed or ground.slow_dispatch or ground.device_kind not in _MOCK:
        return None
    if board is None or board.slow_dispatch:
        return None
    history = (f"with fast dispatch {reply}; this is with TT_METAL_SLOW_DISPATCH_MODE=1",)
    return replace(task, ground=replace(ground, slow_dispatch=True), history=history)


def attempt_of(sent: Sent, reply: Reply) -> Attempt:
    """Return what came of a task."""
    task = sent.task
    if isinstance(reply, Answered):
        if not task.history:
            return reply.attempt
        return replace(reply.attempt, notes=(*reply.attempt.notes, *task.history))
    outcome, words = _lost(reply)
    return Attempt(
        run_id=task.ground.run_id,
        case_id=sent.order.case_id,
        outcome=outcome,
        device_kind=task.job.device_kind,
        seed=task.job.seed,
        board=task.ground.board,
        detail=words,
        notes=task.history,
    )


def _lost(reply: Died | Late | Unable) -> tuple[Outcome, str]:
    """Return what a lost worker means: an answer of the operation only where it was called."""
    match reply:
        case Died(exit_code, Stage.CALLING | Stage.READING, last_words):
            fault = fatal_fault(exit_code, last_words)
            if fault is not None:
                return Outcome.NOT_RUN, f"{in_words(fault)}\n{reply}\n{last_words}"
            return Outcome.CRASHED, f"{reply}\n{last_words}"
        case Late(stage=Stage.CALLING | Stage.READING):
            return Outcome.HUNG, str(reply)
        case Died(exit_code, _, last_words):
            fault = fatal_fault(exit_code, last_words)
            first = "" if fault is None else f"{in_words(fault)}\n"
            return Outcome.NOT_RUN, f"{first}{reply}\n{last_words}"
        case Unable(reason):
            return Outcome.NOT_RUN, reason
    return Outcome.NOT_RUN, str(reply)

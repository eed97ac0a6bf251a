"""The queue of Jobs for workers, and the Attempts that their replies make.

The local engine and the Ray engine share these rules, so that a Job gets the same Outcome on both.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.frameworks.ttnn.board.table import BOARDS, find_board
from optrove.model.records import Attempt, DeviceKey, DeviceKind, Outcome
from optrove.replay.device_choice import device_key
from optrove.replay.judge import judge_loss
from optrove.replay.messages import WorkerSetup
from optrove.replay.workers import WorkerDied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.records import Job
    from optrove.replay.workers import Reply


_MOCK: Final = (DeviceKind.MOCK, DeviceKind.SHADOW)


@dataclass(frozen=True, slots=True)
class Task:
    """A Job in the queue: the worker and the device that it needs, and notes on earlier tries."""

    job: Job
    setup: WorkerSetup
    key: DeviceKey
    history: tuple[str, ...] = ()


def tasks_of(jobs: Iterable[Job], board: str | None, run_id: str) -> list[Task]:
    """Return a task for each Job; UnknownBoard for a board that is not in the table."""
    every = list(jobs)
    # On the host, a board is the target of cases of torch.
    on_host = bool(every) and all(job.device_kind is DeviceKind.HOST for job in every)
    name = board if board is None or on_host else find_board(board).name
    return [
        Task(job, WorkerSetup(run_id, job.device_kind, name), device_key(job, name))
        for job in every
    ]


class Backlog:
    """The tasks that no worker has taken, grouped by setup and device."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[WorkerSetup, DeviceKey], deque[Task]] = {}
        for task in tasks:
            self.put(task)

    def take(self, last: Task | None, *, same_setup: bool = False) -> Task | None:
        """Return a task, preferably for the device of the last one; None if there is no more.

        With ``same_setup`` return only a task that the process of the last one can execute.
        """
        with self._lock:
            group = None if last is None else self._groups.get((last.setup, last.key))
            if not group:
                setup = None if last is None else last.setup
                groups = [
                    each
                    for each in self._groups.values()
                    if each and (not same_setup or each[0].setup == setup)
                ]
                if not groups:
                    return None
                # The largest group of the same setup first: a new process costs most.
                group = max(groups, key=lambda each: (each[0].setup == setup, len(each)))
            return group.popleft()

    def put(self, task: Task) -> None:
        """Add a task at the end."""
        with self._lock:
            self._groups.setdefault((task.setup, task.key), deque()).append(task)

    def put_back(self, task: Task) -> None:
        """Add a task that was taken and did not begin, before the others."""
        with self._lock:
            self._groups.setdefault((task.setup, task.key), deque()).appendleft(task)


def with_slow_dispatch(task: Task, reply: Reply) -> Task | None:
    """Return the task with slow dispatch, which some mock workloads need; None if it can't help."""
    setup = task.setup
    board = BOARDS.get(setup.board or "")
    if setup.slow_dispatch or setup.device_kind not in _MOCK:
        return None
    if board is None or board.slow_dispatch:
        return None
    if (
        not isinstance(reply, WorkerDied)
        or judge_loss(reply, setup.device_kind)[0] is not Outcome.CRASHED
    ):
        return None
    history = (f"with fast dispatch {reply}; this is with TT_METAL_SLOW_DISPATCH_MODE=1",)
    return replace(task, setup=replace(setup, slow_dispatch=True), history=history)


def attempt_from_reply(task: Task, case_id: str, reply: Reply) -> Attempt:
    """Return the Attempt that a worker's reply to a task makes."""
    if isinstance(reply, Attempt):
        return replace(reply, notes=(*reply.notes, *task.history)) if task.history else reply
    outcome, detail = judge_loss(reply, task.setup.device_kind)
    begun = task.setup.not_run(task.job, case_id, detail)
    return replace(begun, outcome=outcome, notes=task.history)

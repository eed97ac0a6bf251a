"""Execute Jobs in worker processes of this machine, and yield each Attempt when it is done.

The queue of Jobs, and the Attempts that replies of workers make, are shared with the Ray engine, so
that a Job gets the same Outcome on both.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.frameworks.ttnn.board.table import BOARDS, find_board
from optrove.model.records import Attempt, DeviceKey, DeviceKind, Outcome
from optrove.replay.device_choice import device_key
from optrove.replay.judge import judge_loss
from optrove.replay.memory import MemoryBudget, available_memory, needed_memory
from optrove.replay.messages import JobWriter, WorkerSetup
from optrove.replay.resets import BoardHealth, new_worker, reset_command_words
from optrove.replay.workers import (
    AHEAD,
    COMMAND,
    BudgetOver,
    OpenFailed,
    WorkerDied,
    WorkerUnusable,
)
from optrove.serializer.hashes import placement_hash

if TYPE_CHECKING:
    from optrove.model.records import Job
    from optrove.replay.messages import JobMessage
    from optrove.replay.resets import AnyWorker
    from optrove.replay.workers import Reply

Log: TypeAlias = Callable[[str], object]

GRACE_SECONDS: Final = 1.0
"""The time that a Job may still take when the time of a sweep is over."""

_LOOK_SECONDS: Final = 0.1
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

    def drain(self, task: Task) -> list[Task]:
        """Take and return all tasks that need the same device as this one.

        Sweep modules open devices by themselves, each its own.
        """
        with self._lock:
            group = self._groups.get((task.setup, task.key), deque())
            same = [other for other in group if other.job.module == task.job.module]
            left = [other for other in group if other.job.module != task.job.module]
            self._groups[(task.setup, task.key)] = deque(left)
        return same

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


@dataclass(frozen=True, slots=True)
class Workers:
    """The number of worker processes, their command, and the time until which they execute Jobs.

    ``until`` is a time of ``time.monotonic``. Jobs that have begun by then and do not end soon are
    interrupted, the others are left out.
    """

    count: int = 1
    command: Sequence[str] = COMMAND
    until: float | None = None

    @property
    def interrupted_at(self) -> float:
        """The time when Jobs are interrupted: a little later, since most are about to end."""
        return inf if self.until is None else self.until + GRACE_SECONDS


def run_jobs(
    jobs: Iterable[Job],
    *,
    board: str | None = None,
    workers: int | Workers = 1,
    log: Log = lambda _: None,
    run_id: str | None = None,
) -> Iterator[Attempt]:
    """Yield an Attempt for each Job, in the order in which they end.

    Mock Jobs need the name of a mock ``board``. Each of the ``workers`` is a process that keeps
    one device open; Jobs that share a device run one after another. On hardware there is always one
    worker. ``log`` gets a line when a worker is lost and when a board is reset. Closing the
    iterator early ends the workers. Only ``Workers.until`` leaves Jobs out.
    """
    tasks = tasks_of(jobs, board, run_id or uuid.uuid4().hex)
    run = _Run(tasks, Workers(workers) if isinstance(workers, int) else workers)
    return run.attempts(log)


class _Run:
    """One call of ``run_jobs``, with a thread for each worker process."""

    def __init__(self, tasks: list[Task], workers: Workers) -> None:
        self._count = len(tasks)
        # A reset takes the board from all processes of a machine.
        hardware = any(task.setup.device_kind is DeviceKind.HARDWARE for task in tasks)
        self._workers = replace(workers, count=1) if hardware else workers
        self._backlog = Backlog(tasks)
        # Each thread puts None when it ends.
        self._results: SimpleQueue[Attempt | str | Exception | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._writer = JobWriter()
        self._unusable: dict[WorkerSetup, WorkerUnusable] = {}
        command = reset_command_words() if hardware else ()
        self._health = BoardHealth(command, self._results.put)
        self._processes: dict[int, AnyWorker] = {}
        self._memory = MemoryBudget(available_memory())

    def attempts(self, log: Log) -> Iterator[Attempt]:
        """Yield all attempts."""
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"worker {number}")
            for number in range(max(1, min(self._workers.count, self._count)))
        ]
        for thread in threads:
            thread.start()
        left, working = self._count, len(threads)
        try:
            while left and working:
                result = self._results.get()
                if result is None:
                    working -= 1
                    continue
                if isinstance(result, Exception):
                    raise result
                if isinstance(result, str):
                    log(result)
                    continue
                left -= 1
                yield result
        finally:
            self._stopping.set()
            self._end(threads, at_once=left > 0 and working > 0)

    def _end(self, threads: list[threading.Thread], *, at_once: bool) -> None:
        while any(thread.is_alive() for thread in threads):
            # Repeatedly, for a worker may be about to start.
            for process in list(self._processes.values()) if at_once else ():
                process.kill()
            for thread in threads:
                thread.join(_LOOK_SECONDS if at_once else None)

    def _work(self, number: int) -> None:
        """Take tasks until there are no more."""
        flight: deque[tuple[Task, JobMessage]] = deque()
        last: Task | None = None
        try:
            while not self._stopping.is_set():
                last = self._fill(number, flight, last)
                if not flight:
                    break
                reply = self._processes[number].receive(self._workers.interrupted_at)
                self._handle(flight, reply)
                left = (needed_memory(task.job) for task, _ in flight)
                self._memory.release(number, max(left, default=0))
        except Exception as error:  # noqa: BLE001 - raised in the thread of the caller
            self._results.put(error)
        finally:
            self._memory.release(number)
            process = self._processes.get(number)
            if process is not None:
                process.end()
            self._results.put(None)

    def _fill(
        self, number: int, flight: deque[tuple[Task, JobMessage]], last: Task | None
    ) -> Task | None:
        """Send tasks to a worker while it has room; return the last task that was taken."""
        until = self._workers.until
        while len(flight) < AHEAD and (until is None or time.monotonic() < until):
            task = self._backlog.take(last, same_setup=bool(flight))
            if task is None:
                return last
            message = self._writer.message(task.job)
            unusable = self._unusable.get(task.setup)
            if unusable is not None:
                self._results.put(attempt_from_reply(task, message.case_id, unusable))
                continue
            last = task
            process = self._process(number, task)
            needed = needed_memory(task.job)
            if not flight:
                self._memory.wait(number, needed, self._stopping)
            elif not process.has_room(message) or not self._memory.admits(number, needed):
                self._backlog.put_back(task)
                return last
            process.send(message, self._workers.interrupted_at)
            flight.append((task, message))
        return last

    def _handle(self, flight: deque[tuple[Task, JobMessage]], reply: Reply) -> None:
        """Put the result of a worker's first task; after a loss the next ones wait again."""
        task, message = flight.popleft()
        if not isinstance(reply, Attempt):
            while flight:
                self._backlog.put_back(flight.pop()[0])
            if isinstance(reply, WorkerUnusable):
                self._unusable[task.setup] = reply
            if self._stopping.is_set():
                return
            if isinstance(reply, BudgetOver) and reply.stage is None:
                self._backlog.put_back(task)
                return
            if isinstance(reply, OpenFailed):
                self._not_opened(task, message.case_id, reply)
                return
            again = with_slow_dispatch(task, reply)
            if again is not None:
                self._results.put(f"{task.job.case.op}: {reply}; it is tried with slow dispatch")
                self._backlog.put(again)
                return
            if not isinstance(reply, WorkerUnusable):
                self._results.put(f"{task.job.case.op}: {reply}")
        self._results.put(attempt_from_reply(task, message.case_id, reply))

    def _not_opened(self, task: Task, case_id: str, reply: OpenFailed) -> None:
        """Try a task in a new process; if one has failed, nothing runs on its device."""
        if not reply.is_first:
            self._backlog.put_back(task)
            return
        self._results.put(attempt_from_reply(task, case_id, reply))
        for other in self._backlog.drain(task):
            self._results.put(attempt_from_reply(other, placement_hash(other.job.case), reply))

    def _process(self, number: int, task: Task) -> AnyWorker:
        process = self._processes.get(number)
        if process is None or process.setup != task.setup:
            if process is not None:
                process.end()
            process = new_worker(task.setup, self._workers.command, self._health)
            self._processes[number] = process
        return process

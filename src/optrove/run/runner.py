"""Execute many Jobs in worker processes, and give each Attempt as soon as it is there."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.backends.executing import Stage
from optrove.backends.ttnn.boards import BOARDS, find_board
from optrove.codec.identity import placement_hash
from optrove.model.records import Attempt, DeviceKind, Outcome, Plan
from optrove.run.channel import Ground
from optrove.run.keys import device_key
from optrove.run.workers import COMMAND, Answered, Died, Late, Reply, Unable, WorkerProcess

if TYPE_CHECKING:
    from optrove.model.records import DeviceKey, Job

Tell: TypeAlias = Callable[[str], object]

_LOOK_SECONDS: Final = 0.1

_MOCK: Final = (DeviceKind.MOCK, DeviceKind.SHADOW)


@dataclass(frozen=True, slots=True)
class Workers:
    """How many worker processes there are, and what starts one."""

    count: int = 1
    command: Sequence[str] = COMMAND


def run_jobs(
    jobs: Plan | Iterable[Job],
    *,
    board: str | None = None,
    device_kind: DeviceKind | None = None,
    workers: int | Workers = 1,
    tell: Tell = lambda _: None,
    run_id: str | None = None,
) -> Iterator[Attempt]:
    """Yield an Attempt for each Job, in the order in which they end; none is ever left out.

    ``device_kind`` overrides what the Jobs say; a mock ``board`` has to be named for mock ones.
    Each of the ``workers`` is a process that keeps one device open; Jobs that share a device are
    executed one after another. ``tell`` is given a line when a worker is lost. Closing the
    iterator early ends the workers.
    """
    if board is not None:
        board = find_board(board).name
    listed = _listed(jobs)
    if device_kind is not None:
        listed = [replace(job, device_kind=device_kind) for job in listed]
    ground = Ground(run_id or uuid.uuid4().hex, DeviceKind.HOST, board)
    wanted = Workers(workers) if isinstance(workers, int) else workers
    run = _Run(listed, ground, wanted)
    return run.attempts(tell)


def _listed(jobs: Plan | Iterable[Job]) -> list[Job]:
    if isinstance(jobs, Plan):
        return [job for group in jobs.groups for job in group.jobs]
    return list(jobs)


@dataclass(frozen=True, slots=True)
class _Task:
    """A Job on its way, and what became of earlier attempts at it."""

    job: Job
    ground: Ground
    key: DeviceKey
    history: tuple[str, ...] = ()


class _Backlog:
    """The tasks that nobody has taken yet; those of one ground and device together."""

    def __init__(self, tasks: Iterable[_Task]) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[Ground, DeviceKey], deque[_Task]] = {}
        for task in tasks:
            self._groups.setdefault((task.ground, task.key), deque()).append(task)

    def take(self, last: _Task | None) -> _Task | None:
        """Return a task, for the device of the last one if there is any; None at the end."""
        with self._lock:
            group = None if last is None else self._groups.get((last.ground, last.key))
            if not group:
                # The largest group of the same ground first: a new process costs most.
                groups = [each for each in self._groups.values() if each]
                if not groups:
                    return None
                ground = None if last is None else last.ground
                group = max(groups, key=lambda each: (each[0].ground == ground, len(each)))
            return group.popleft()

    def put(self, task: _Task) -> None:
        """Add a task."""
        with self._lock:
            self._groups.setdefault((task.ground, task.key), deque()).append(task)


class _Run:
    """One call of ``run_jobs``; a thread for each worker process."""

    def __init__(self, jobs: list[Job], ground: Ground, workers: Workers) -> None:
        self._count = len(jobs)
        self._board = ground.board
        self._workers = workers
        self._backlog = _Backlog(
            _Task(job, replace(ground, device_kind=job.device_kind), device_key(job, ground.board))
            for job in jobs
        )
        self._results: SimpleQueue[Attempt | str | Exception] = SimpleQueue()
        self._stopping = threading.Event()
        self._unable: dict[Ground, Unable] = {}
        self._processes: dict[int, WorkerProcess] = {}

    def attempts(self, tell: Tell) -> Iterator[Attempt]:
        """Yield all attempts."""
        threads = [
            threading.Thread(target=self._work, args=(number,), name=f"worker {number}")
            for number in range(max(1, min(self._workers.count, self._count)))
        ]
        for thread in threads:
            thread.start()
        left = self._count
        try:
            while left:
                result = self._results.get()
                if isinstance(result, Exception):
                    raise result
                if isinstance(result, str):
                    tell(result)
                    continue
                left -= 1
                yield result
        finally:
            self._stopping.set()
            self._end(threads, at_once=left > 0)

    def _end(self, threads: list[threading.Thread], *, at_once: bool) -> None:
        while any(thread.is_alive() for thread in threads):
            # Again and again, for a worker may be just about to start.
            for process in list(self._processes.values()) if at_once else ():
                process.kill()
            for thread in threads:
                thread.join(_LOOK_SECONDS if at_once else None)

    def _work(self, number: int) -> None:
        """Take tasks until there are none."""
        task: _Task | None = None
        try:
            while not self._stopping.is_set():
                task = self._backlog.take(task)
                if task is None:
                    break
                self._do(number, task)
        except Exception as error:  # noqa: BLE001 - handed to whoever iterates, in his own thread
            self._results.put(error)
        finally:
            process = self._processes.get(number)
            if process is not None:
                process.end()

    def _do(self, number: int, task: _Task) -> None:
        reply = self._unable.get(task.ground) or self._process(number, task).perform(task.job)
        if isinstance(reply, Unable):
            self._unable[task.ground] = reply
        if self._stopping.is_set() and not isinstance(reply, Answered):
            return
        again = self._again(task, reply)
        if again is not None:
            self._results.put(f"{task.job.case.op}: {reply}; it is tried with slow dispatch")
            self._backlog.put(again)
            return
        if isinstance(reply, (Died, Late)):
            self._results.put(f"{task.job.case.op}: {reply}")
        self._results.put(_attempt(task, reply))

    def _process(self, number: int, task: _Task) -> WorkerProcess:
        process = self._processes.get(number)
        if process is None or process.ground != task.ground:
            if process is not None:
                process.end()
            process = WorkerProcess(task.ground, self._workers.command)
            self._processes[number] = process
        return process

    def _again(self, task: _Task, reply: Reply) -> _Task | None:
        """Return the task to be tried with slow dispatch, which some mock workloads need."""
        board = None if self._board is None else BOARDS[self._board]
        crashed = isinstance(reply, Died) and reply.stage in (Stage.CALLING, Stage.READING)
        if not crashed or task.ground.slow_dispatch or task.ground.device_kind not in _MOCK:
            return None
        if board is None or board.slow_dispatch:
            return None
        history = (f"with fast dispatch {reply}; this is with TT_METAL_SLOW_DISPATCH_MODE=1",)
        return replace(task, ground=replace(task.ground, slow_dispatch=True), history=history)


def _attempt(task: _Task, reply: Reply) -> Attempt:
    """Return what came of a task."""
    if isinstance(reply, Answered):
        if not task.history:
            return reply.attempt
        told = [reply.attempt.detail or "", *task.history]
        return replace(reply.attempt, detail="\n".join(filter(None, told)))
    outcome, words = _lost(reply)
    return Attempt(
        run_id=task.ground.run_id,
        case_id=placement_hash(task.job.case),
        outcome=outcome,
        device_kind=task.job.device_kind,
        seed=task.job.seed,
        board=task.ground.board,
        detail="\n".join((words, *task.history)),
    )


def _lost(reply: Died | Late | Unable) -> tuple[Outcome, str]:
    """Return what a lost worker means: an answer of the operation only where it was called."""
    match reply:
        case Died(stage=Stage.CALLING | Stage.READING):
            return Outcome.CRASHED, f"{reply}\n{reply.last_words}"
        case Late(stage=Stage.CALLING | Stage.READING):
            return Outcome.HUNG, str(reply)
        case Died():
            return Outcome.NOT_RUN, f"{reply}\n{reply.last_words}"
        case Unable(reason):
            return Outcome.NOT_RUN, reason
    return Outcome.NOT_RUN, str(reply)

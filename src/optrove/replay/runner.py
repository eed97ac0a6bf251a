"""Execute many Jobs in worker processes, and give each Attempt as soon as it is there."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.frameworks.ttnn.board.table import find_board
from optrove.model.records import DeviceKind
from optrove.replay.jobs import Backlog, Sent, again_slowly, attempt_of, listed, tasks_of
from optrove.replay.messages import Ground, Orders
from optrove.replay.resets import Board, ResetPolicy, told_policy, worker_on
from optrove.replay.workers import AHEAD, COMMAND, Answered, Died, Late, Unable

if TYPE_CHECKING:
    from optrove.model.records import Attempt, Job, Plan
    from optrove.replay.jobs import Task
    from optrove.replay.resets import AnyWorker
    from optrove.replay.workers import Reply

Tell: TypeAlias = Callable[[str], object]

_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Workers:
    """How many worker processes there are, what starts one, and until when they begin Jobs.

    ``until`` is a moment of ``time.monotonic``. Jobs that were not begun by then are left out, and
    those that were are ended in order.
    """

    count: int = 1
    command: Sequence[str] = COMMAND
    until: float | None = None


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
    executed one after another; on hardware there is one worker, whatever was asked for. ``tell`` is
    given a line when a worker is lost and when a board is reset. Closing the iterator early ends
    the workers. Only ``Workers.until`` leaves Jobs out.
    """
    if board is not None:
        board = find_board(board).name
    ground = Ground(run_id or uuid.uuid4().hex, DeviceKind.HOST, board)
    wanted = Workers(workers) if isinstance(workers, int) else workers
    run = _Run(tasks_of(listed(jobs, device_kind), ground), wanted)
    return run.attempts(tell)


class _Run:
    """One call of ``run_jobs``; a thread for each worker process."""

    def __init__(self, tasks: list[Task], workers: Workers) -> None:
        self._count = len(tasks)
        # A reset takes the board from all processes of a machine.
        alone = any(task.ground.device_kind is DeviceKind.HARDWARE for task in tasks)
        self._workers = replace(workers, count=1) if alone else workers
        self._backlog = Backlog(tasks)
        # None comes from each thread when it has ended.
        self._results: SimpleQueue[Attempt | str | Exception | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._orders = Orders()
        self._unable: dict[Ground, Unable] = {}
        self._board = Board(told_policy() if alone else ResetPolicy(), self._results.put)
        self._processes: dict[int, AnyWorker] = {}

    def attempts(self, tell: Tell) -> Iterator[Attempt]:
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
                    tell(result)
                    continue
                left -= 1
                yield result
        finally:
            self._stopping.set()
            self._end(threads, at_once=left > 0 and working > 0)

    def _end(self, threads: list[threading.Thread], *, at_once: bool) -> None:
        while any(thread.is_alive() for thread in threads):
            # Again and again, for a worker may be just about to start.
            for process in list(self._processes.values()) if at_once else ():
                process.kill()
            for thread in threads:
                thread.join(_LOOK_SECONDS if at_once else None)

    def _work(self, number: int) -> None:
        """Take tasks until there are none."""
        flight: deque[Sent] = deque()
        last: Task | None = None
        try:
            while not self._stopping.is_set():
                last = self._fill(number, flight, last)
                if not flight:
                    break
                self._settle(flight, self._processes[number].receive())
        except Exception as error:  # noqa: BLE001 - handed to whoever iterates, in his own thread
            self._results.put(error)
        finally:
            process = self._processes.get(number)
            if process is not None:
                process.end()
            self._results.put(None)

    def _fill(self, number: int, flight: deque[Sent], last: Task | None) -> Task | None:
        """Send tasks to a worker as long as it has room; return the last one that was taken."""
        until = self._workers.until
        while len(flight) < AHEAD and (until is None or time.monotonic() < until):
            task = self._backlog.take(last, same_ground=bool(flight))
            if task is None:
                return last
            order = self._orders.of(task.job)
            unable = self._unable.get(task.ground)
            if unable is not None:
                self._results.put(attempt_of(Sent(task, order), unable))
                continue
            last = task
            process = self._process(number, task)
            if not process.has_room(order):
                self._backlog.put_back(task)
                return last
            process.send(order)
            flight.append(Sent(task, order))
        return last

    def _settle(self, flight: deque[Sent], reply: Reply) -> None:
        """Hand out what came of the first task of a worker; the next ones if it was lost."""
        sent = flight.popleft()
        task = sent.task
        if not isinstance(reply, Answered):
            while flight:
                self._backlog.put_back(flight.pop().task)
        if isinstance(reply, Unable):
            self._unable[task.ground] = reply
        if self._stopping.is_set() and not isinstance(reply, Answered):
            return
        again = again_slowly(task, reply)
        if again is not None:
            self._results.put(f"{task.job.case.op}: {reply}; it is tried with slow dispatch")
            self._backlog.put(again)
            return
        if isinstance(reply, (Died, Late)):
            self._results.put(f"{task.job.case.op}: {reply}")
        self._results.put(attempt_of(sent, reply))

    def _process(self, number: int, task: Task) -> AnyWorker:
        process = self._processes.get(number)
        if process is None or process.ground != task.ground:
            if process is not None:
                process.end()
            process = worker_on(task.ground, self._workers.command, self._board)
            self._processes[number] = process
        return process

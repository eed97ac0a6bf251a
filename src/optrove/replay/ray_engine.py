"""Execute Jobs on the nodes of a Ray cluster.

Nodes offer their boards as custom resources, named as in the table of boards; one unit of a
resource stands for one worker. Ray makes an actor of ``Slot``. Jobs and replies travel as JSON
texts, so that a node's data is read as strictly as everything else from another machine.

A node that is lost takes only its workers with it: their tasks run elsewhere, or wait a limited
time for such a node.
"""

from __future__ import annotations

import json
import logging
import socket
import time
import uuid
from collections import Counter, deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import TYPE_CHECKING, Any, Final, get_args

from optrove.errors import FrameworkMissing, NotReplayable, UnusableCluster
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import Attempt, DeviceKind
from optrove.replay.device_choice import device_parameters
from optrove.replay.messages import (
    JobMessage,
    JobWriter,
    WorkerSetup,
    attempt_from_json,
    attempt_to_json,
    read_job,
)
from optrove.replay.resets import BoardHealth, new_worker, reset_command_words
from optrove.replay.runner import (
    GRACE_SECONDS,
    Backlog,
    Workers,
    attempt_from_reply,
    tasks_of,
    with_slow_dispatch,
)
from optrove.replay.workers import AHEAD, COMMAND, Loss, OpenFailed, WorkerUnusable
from optrove.serializer.hashes import placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.text import Json, read, write
from optrove.settings import RAY, environment
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Job
    from optrove.replay.resets import AnyWorker
    from optrove.replay.runner import Log, Task
    from optrove.replay.workers import Reply


def resource_for(task: Task, offered: Mapping[str, float]) -> str | None:
    """Return the resource that a task needs, None for a CPU; NotReplayable if no node offers it."""
    kind, board = task.setup.device_kind, task.setup.board
    if kind is not DeviceKind.HARDWARE:
        # A mock board runs on any machine, and on nodes that offer one by its name if there are.
        is_offered = board is not None and offered.get(board, 0) >= 1
        return board if kind is not DeviceKind.HOST and is_offered else None
    boards = [name for name in BOARDS if offered.get(name, 0) >= 1]
    if board is not None:
        fitting, needed = [name for name in boards if name == board], f"the board {board}"
    else:
        chips = prod(device_parameters(task.job).mesh_shape or (1,))
        fitting = [name for name in boards if BOARDS[name].chips >= chips]
        needed = f"a board with {chips} chips"
    if not fitting:
        raise NotReplayable(
            f"no node of the Ray cluster offers {needed} (boards offered: "
            f"{', '.join(boards) or 'none'}); "
            f"start one with: ray start --resources='{{\"n300\": 1}}'"
        )
    return min(fitting, key=lambda name: BOARDS[name].chips)


class Slot:
    """One worker process on a node; its device stays open between batches."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = tuple(command or COMMAND)
        self._lines: list[str] = []
        self._health = BoardHealth(reset_command_words(), self._lines.append)
        self._worker: AnyWorker | None = None

    def hello(self) -> str:
        """Return the name of this node and its version of optrove."""
        return write({"host": socket.gethostname(), "version": __version__})

    def perform(self, setup: str, messages: Sequence[str], seconds: float = inf) -> Iterator[str]:
        """Execute Jobs and yield the reply to each, in their order.

        The loss of the worker is the last reply; the Jobs after it did not begin. Nor does any Job
        begin after so many ``seconds``; one that does not end soon after is interrupted. Lines for
        the user come before the reply.
        """
        until = time.monotonic() + seconds
        worker = self._worker_for(record_from_builtins(read(setup), WorkerSetup))
        waiting = deque(map(_read_message, messages))
        flight: deque[JobMessage] = deque()
        while True:
            while (
                waiting
                and len(flight) < AHEAD
                and worker.has_room(waiting[0])
                and time.monotonic() < until
            ):
                flight.append(waiting.popleft())
                worker.send(flight[-1], until + GRACE_SECONDS)
            if not flight:
                return
            reply = worker.receive(until + GRACE_SECONDS)
            while self._lines:
                yield write({"line": self._lines.pop(0)})
            yield write(_reply_to_json(reply, flight.popleft().job))
            if not isinstance(reply, Attempt):
                return

    def end(self) -> None:
        """End the worker: its devices are closed first."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _worker_for(self, setup: WorkerSetup) -> AnyWorker:
        if self._worker is not None and self._worker.setup != setup:
            self.end()
        if self._worker is None:
            self._worker = new_worker(setup, self._command, self._health)
        return self._worker


def _read_message(text: str) -> JobMessage:
    job, case_id = read_job(json.loads(text)["job"])
    return JobMessage(job, case_id, text)


_LOSSES: Final[dict[str, type[Loss]]] = {each.__name__: each for each in get_args(Loss)}


def _reply_to_json(reply: Reply, job: Job) -> Json:
    if isinstance(reply, Attempt):
        return {"attempt": attempt_to_json(reply, job)}
    return {type(reply).__name__: record_to_builtins(reply)}


def read_reply(text: str, job: Job) -> Reply | str:
    """Return the reply to a Job that a Slot has yielded, or a line for the user."""
    ((kind, content),) = json.loads(text).items()
    if kind == "attempt":
        return attempt_from_json(content, job)
    return str(content) if kind == "line" else record_from_builtins(content, _LOSSES[kind])


BATCH: Final = 16
"""The number of Jobs that a worker gets at once: enough that it never waits for the next."""

LOSSES: Final = 3
"""The number of nodes that are lost during a Job before it is given up as their cause."""

STARTS: Final = 3
"""The number of failed starts in a row after which no worker is started."""

WAIT_SECONDS: Final = 600.0
"""The time that Jobs wait for a node with their board, at first and after a loss."""

_SILENT_SECONDS: Final = 10.0
_END_SECONDS: Final = 40.0


@dataclass(slots=True)
class _Actor:
    """A Slot on some node; it has a ``greeting`` until it answers, a ``stream`` while it works.

    A ``useless`` one gets no tasks; it keeps its resource, so that no other one starts there.
    """

    handle: Any
    greeting: Any = None
    stream: Any = None
    host: str = ""
    flight: deque[tuple[Task, JobMessage]] = field(default_factory=deque)
    last: Task | None = None
    useless: bool = False

    @property
    def awaited(self) -> Any:
        """The reference that Ray resolves next, None for an idle actor."""
        return self.greeting if self.greeting is not None else self.stream


class Pool:
    """The workers on the nodes that offer one resource; no resource means a CPU."""

    def __init__(
        self,
        engine: RayEngine,
        resource: str | None,
        tasks: Sequence[Task],
        workers: Workers,
    ) -> None:
        self._ray = engine.ray
        self._wait_seconds = engine.wait_seconds
        self._resource = resource
        self._command = None if workers.command == COMMAND else tuple(workers.command)
        self._until = inf if workers.until is None else workers.until
        self._writer = JobWriter()
        self._backlog = Backlog(tasks)
        self._unsent = self._left = len(tasks)
        self._losses: Counter[str] = Counter()
        self._failures = 0
        self._obstacle = ""
        self._alive_at = time.monotonic()
        self._said_waiting = False
        self._actors = [self._start() for _ in range(workers.count)]

    def is_busy(self) -> bool:
        """Return whether there are tasks to execute."""
        over = time.monotonic() >= self._until
        return self._left > 0 and not (over and all(not each.flight for each in self._actors))

    def awaited(self) -> dict[Any, _Actor]:
        """Hand out tasks, and return the references to wait for."""
        for actor in self._actors:
            if actor.awaited is None and not actor.useless:
                self._hand_out(actor)
        return {each.awaited: each for each in self._actors if each.awaited is not None}

    def receive(self, actor: _Actor, log: Log) -> Iterator[Attempt]:
        """Receive the next message of an actor, and yield the Attempt that it makes, if any."""
        failures = self._ray.exceptions
        try:
            if actor.greeting is not None:
                self._greeted(actor, self._ray.get(actor.greeting), log)
                return
            text = next(actor.stream, None)
            message = None if text is None else self._ray.get(text)
        except failures.RayTaskError:
            raise  # a fault of ours, which no other node would cure
        except failures.RayError as error:
            yield from self._lost(actor, str(error), log)
            return
        self._alive_at = time.monotonic()
        if message is None:
            self._take_back(actor)
            return
        reply = read_reply(message, actor.flight[0][0].job)
        if isinstance(reply, str):
            log(f"{actor.host}: {reply}")
        elif isinstance(reply, WorkerUnusable):
            self._set_aside(actor, reply.reason, log)
        else:
            yield from self._handle(actor, reply, log)

    def give_up_late(self, log: Log) -> Iterator[Attempt]:
        """Yield the remaining tasks as not run, if no node has been usable for too long."""
        if all(each.useless for each in self._actors):
            yield from self._given_up(self._obstacle)
            return
        if any(each.greeting is None and not each.useless for each in self._actors):
            self._alive_at = time.monotonic()
            self._said_waiting = False
            return
        resource = "a free CPU" if self._resource is None else f"the resource {self._resource}"
        waited, limit = time.monotonic() - self._alive_at, self._wait_seconds
        if waited > limit:
            yield from self._given_up(
                f"no node of the Ray cluster with {resource} was there within {limit:g} s"
            )
        elif waited > _SILENT_SECONDS and not self._said_waiting:
            self._said_waiting = True
            log(f"waiting for a node with {resource}, at most {limit:g} s")

    def end(self) -> None:
        """End idle workers after their devices are closed, and kill the others."""
        ends = [each.handle.end.remote() for each in self._actors if each.awaited is None]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_END_SECONDS)
        for each in self._actors:
            self._ray.kill(each.handle)

    def _start(self) -> _Actor:
        resource = self._resource
        needs = {"num_cpus": 1} if resource is None else {"num_cpus": 0, "resources": {resource: 1}}
        handle = (
            self._ray.remote(Slot)
            .options(**needs, max_restarts=0, scheduling_strategy="SPREAD")
            .remote(self._command)
        )
        return _Actor(handle, greeting=handle.hello.remote())

    def _greeted(self, actor: _Actor, text: str, log: Log) -> None:
        greeting = read(text)
        actor.greeting = None
        actor.host = str(greeting["host"])
        self._failures = 0
        if greeting["version"] != __version__:
            problem = f"it has optrove {greeting['version']}, and this is {__version__}"
            self._set_aside(actor, f"{actor.host} cannot be used: {problem}", log)

    def _hand_out(self, actor: _Actor) -> None:
        """Give an actor a batch: fewer Jobs towards the end, so that all actors end together."""
        seconds = self._until - time.monotonic()
        if seconds <= 0:
            return
        most = max(1, min(BATCH, self._unsent // (2 * len(self._actors))))
        while len(actor.flight) < most:
            task = self._backlog.take(actor.last, same_setup=bool(actor.flight))
            if task is None:
                break
            actor.last = task
            actor.flight.append((task, self._writer.message(task.job)))
        if not actor.flight:
            return
        self._unsent -= len(actor.flight)
        actor.stream = actor.handle.perform.options(num_returns="streaming").remote(
            write(record_to_builtins(actor.flight[0][0].setup)),
            [message.text for _, message in actor.flight],
            seconds,
        )

    def _handle(self, actor: _Actor, reply: Reply, log: Log) -> Iterator[Attempt]:
        """Yield the Attempt that a reply makes of the first task of an actor."""
        task, message = actor.flight.popleft()
        if not actor.flight or not isinstance(reply, Attempt):
            self._take_back(actor)  # the batch has no more replies
        if isinstance(reply, OpenFailed):
            yield from self._not_opened(task, reply)
            return
        again = with_slow_dispatch(task, reply)
        if again is not None:
            log(f"{task.job.case.op}: {reply}; it is tried with slow dispatch")
            self._backlog.put(again)
            self._unsent += 1
            return
        if not isinstance(reply, Attempt):
            log(f"{task.job.case.op}: {reply}")
        self._left -= 1
        yield attempt_from_reply(task, message.case_id, reply)

    def _not_opened(self, task: Task, reply: OpenFailed) -> Iterator[Attempt]:
        """Try a task in a new process; if one has failed, nothing runs on its device."""
        if not reply.is_first:
            self._backlog.put_back(task)
            self._unsent += 1
            return
        others = self._backlog.drain(task)
        self._unsent -= len(others)
        for each in (task, *others):
            self._left -= 1
            yield attempt_from_reply(each, placement_hash(each.job.case), reply)

    def _set_aside(self, actor: _Actor, why: str, log: Log) -> None:
        """Give an actor no more tasks."""
        self._take_back(actor)
        actor.useless = True
        self._obstacle = why
        if not all(each.useless for each in self._actors):
            log(f"{actor.host} gets no more jobs: {why}")

    def _lost(self, actor: _Actor, cause: str, log: Log) -> Iterator[Attempt]:
        """Take the tasks of a lost actor back, and start another one in its place."""
        if actor.greeting is not None:
            actor.greeting = None
            self._failures += 1
            if self._failures >= STARTS:
                self._set_aside(actor, f"a worker could not be started on Ray: {cause}", log)
                return
        elif actor.flight:
            log(f"{actor.host} was lost; its {len(actor.flight)} jobs are executed elsewhere")
            # The task that was running may be the cause, and ends after several losses.
            task, message = actor.flight[0]
            self._losses[message.case_id] += 1
            if self._losses[message.case_id] >= LOSSES:
                actor.flight.popleft()
                self._left -= 1
                unusable = WorkerUnusable(f"{LOSSES} nodes were lost while it was executed")
                yield attempt_from_reply(task, message.case_id, unusable)
        self._take_back(actor)
        self._ray.kill(actor.handle)
        self._actors[self._actors.index(actor)] = self._start()

    def _take_back(self, actor: _Actor) -> None:
        """Put the tasks of an actor that did not begin before the others."""
        actor.stream = None
        self._unsent += len(actor.flight)
        while actor.flight:
            self._backlog.put_back(actor.flight.pop()[0])

    def _given_up(self, reason: str) -> Iterator[Attempt]:
        while (task := self._backlog.take(None)) is not None:
            self._left -= 1
            yield _unplaced(task, reason)


def _unplaced(task: Task, reason: str) -> Attempt:
    return attempt_from_reply(task, placement_hash(task.job.case), WorkerUnusable(reason))


_QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_gcs_server_port_wait_time_s": "1",
}
"""Keeps Ray from sending reports, from warning about its own plans, and from trying twenty times to
reach a cluster that is gone."""

_THIS_MACHINE: Final = ("localhost", "127.0.0.1")
_CONNECT_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A Ray cluster that this process is connected to."""

    ray: Any
    wait_seconds: float = WAIT_SECONDS

    def run_jobs(
        self,
        jobs: Iterable[Job],
        *,
        board: str | None = None,
        workers: int | Workers | None = None,
        log: Log = lambda _: None,
        run_id: str | None = None,
    ) -> Iterator[Attempt]:
        """Yield an Attempt for each Job, in the order in which they end.

        Like ``run_jobs`` of this machine, with workers on the nodes that offer the board of the
        Jobs: as many as fit, at most ``workers``.
        """
        tasks = tasks_of(jobs, board, run_id or uuid.uuid4().hex)
        wanted = workers if isinstance(workers, Workers) else Workers(workers or len(tasks))
        return self._attempts(tasks, wanted, log)

    def _attempts(self, tasks: list[Task], workers: Workers, log: Log) -> Iterator[Attempt]:
        offered = self.ray.cluster_resources()
        by_resource: dict[str | None, list[Task]] = {}
        for task in tasks:
            try:
                by_resource.setdefault(resource_for(task, offered), []).append(task)
            except NotReplayable as error:  # noqa: PERF203 - of one task, not of all
                yield _unplaced(task, str(error))
        with ExitStack() as stack:
            pools = []
            for resource, some in by_resource.items():
                room = max(1, int(offered.get(resource or "CPU", 0)))
                count = min(workers.count, room, len(some))
                pools.append(Pool(self, resource, some, replace(workers, count=count)))
                stack.callback(pools[-1].end)
            while pools := [pool for pool in pools if pool.is_busy()]:
                yield from self._step(pools, log)

    def _step(self, pools: list[Pool], log: Log) -> Iterator[Attempt]:
        """Yield the Attempts that arrive within a second."""
        awaited = {ref: (pool, actor) for pool in pools for ref, actor in pool.awaited().items()}
        if awaited:
            ready, _ = self.ray.wait(list(awaited), num_returns=1, timeout=_LOOK_SECONDS)
            for ref in ready:
                pool, actor = awaited[ref]
                yield from pool.receive(actor, log)
        for pool in pools:
            yield from pool.give_up_late(log)


@contextmanager
def ray_engine(
    address: str | None = None, *, wait_seconds: float = WAIT_SECONDS
) -> Iterator[RayEngine]:
    """Connect to a Ray cluster: at an address, at RAY_ADDRESS, or the one of this machine.

    FrameworkMissing without Ray, UnusableCluster if no cluster can be reached.
    """
    try:
        import ray
    except ImportError as error:
        raise FrameworkMissing(
            "--engine ray needs Ray, which is not installed; pip install 'optrove[ray]'"
        ) from error
    if ray.is_initialized():
        yield RayEngine(ray, wait_seconds)
        return
    with environment(_QUIET):
        _connect(ray, address or RAY.value)
        try:
            yield RayEngine(ray, wait_seconds)
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        if address is not None:
            _check_reachable(ray, address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise UnusableCluster(
            f"no Ray cluster can be used {where} ({error}); start one with `ray start --head`, or "
            f"set {RAY.name} to the HOST:PORT of one that this machine belongs to"
        ) from error


def _check_reachable(ray: Any, address: str) -> None:
    """Raise OSError if nothing listens at an address: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "/" in host:
        raise ValueError("nodes must be reached directly, not through Ray's client")
    here = ray.util.get_node_ip_address() if host in _THIS_MACHINE else host
    with socket.create_connection((here, int(port)), _CONNECT_SECONDS):
        pass

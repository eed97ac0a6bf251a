"""Execute Jobs on the nodes of a Ray cluster.

Nodes offer their boards as custom resources, named as in the table of boards. A resource of a node
stands for one worker.

Ray makes an actor of ``Slot``. Jobs and replies travel as JSON texts, so that what a node says is
read as strictly as everything else that comes from outside of a process.

A node that is lost takes its workers with it, and nothing else: the tasks that they had are
executed elsewhere, or wait until such a node is there again, for a limited time.
"""

from __future__ import annotations

import json
import logging
import socket
import time
import uuid
from collections import Counter, deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import inf, prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import FrameworkMissing, UnusableCluster
from optrove.frameworks.executor import Stage
from optrove.frameworks.ttnn.board.table import BOARDS, find_board
from optrove.model.records import DeviceKind
from optrove.replay.jobs import (
    Backlog,
    Sent,
    Task,
    again_slowly,
    attempt_of,
    device_of,
    listed,
    tasks_of,
)
from optrove.replay.messages import Ground, Order, Orders, answer_of, read_answer, read_order
from optrove.replay.resets import Board, told_policy, worker_on
from optrove.replay.runner import Workers
from optrove.replay.workers import AHEAD, COMMAND, Answered, Died, Late, Unable
from optrove.serializer.text import Json, read, write
from optrove.settings import RAY, environment, ray_address
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Attempt, Job, Plan
    from optrove.replay.resets import AnyWorker
    from optrove.replay.runner import Tell
    from optrove.replay.workers import Reply


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


class Slot:
    """One worker process on this node, with the device that it keeps open between batches."""

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self._command = tuple(command or COMMAND)
        self._told: list[str] = []
        self._board = Board(told_policy(), self._told.append)
        self._worker: AnyWorker | None = None

    def hello(self) -> str:
        """Return which node this is, and which optrove it has."""
        return write({"host": socket.gethostname(), "version": __version__})

    def perform(self, ground: str, messages: Sequence[str], seconds: float = inf) -> Iterator[str]:
        """Have Jobs executed, and yield what came of each, in their order.

        When the worker is lost, that is the last; the Jobs after it were not begun. Nor are any
        after so many ``seconds``. What there is to tell besides comes before the reply.
        """
        until = time.monotonic() + seconds
        worker = self._worker_on(Ground.from_json(read(ground)))
        waiting = deque(map(_order, messages))
        flight: deque[Order] = deque()
        while True:
            while _may_send(waiting, flight, worker) and time.monotonic() < until:
                flight.append(waiting.popleft())
                worker.send(flight[-1])
            if not flight:
                return
            reply = worker.receive()
            while self._told:
                yield write({"told": self._told.pop(0)})
            yield write(_reply_to_json(reply, flight.popleft().job))
            if not isinstance(reply, Answered):
                return

    def end(self) -> None:
        """End the worker in order."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _worker_on(self, ground: Ground) -> AnyWorker:
        if self._worker is not None and self._worker.ground != ground:
            self.end()
        if self._worker is None:
            self._worker = worker_on(ground, self._command, self._board)
        return self._worker


def _may_send(waiting: deque[Order], flight: deque[Order], worker: AnyWorker) -> bool:
    return bool(waiting) and len(flight) < AHEAD and worker.has_room(waiting[0])


def _order(message: str) -> Order:
    job, case_id = read_order(json.loads(message)["job"])
    return Order(job, case_id, message)


def _reply_to_json(reply: Reply, job: Job) -> Json:
    match reply:
        case Answered(attempt):
            return {"answered": answer_of(attempt, job)}
        case Died(exit_code, stage, last_words):
            return {"died": [exit_code, _name(stage), last_words]}
        case Late(seconds, stage):
            return {"late": [seconds, _name(stage)]}
        case Unable(reason):
            return {"unable": reason}


def read_reply(text: str, job: Job) -> Reply | str:
    """Return what a Slot has yielded: the reply to the Job that is due, or words for people."""
    ((kind, content),) = json.loads(text).items()
    match kind:
        case "answered":
            return Answered(read_answer(content, job))
        case "died":
            exit_code, stage, last_words = content
            return Died(exit_code, _stage(stage), last_words)
        case "late":
            seconds, stage = content
            return Late(seconds, _stage(stage))
        case "unable":
            return Unable(content)
    return str(content)


def _name(stage: Stage | None) -> str | None:
    return None if stage is None else stage.name


def _stage(name: str | None) -> Stage | None:
    return None if name is None else Stage[name]


BATCH: Final = 16
"""How many Jobs a worker gets at once: enough that it never waits for the next ones."""

LOSSES: Final = 3
"""How often a Job may lose its node before it is suspected of being the cause."""

STARTS: Final = 3
"""How often in a row a worker may fail to start before it is not tried any more."""

_SILENT_SECONDS: Final = 10.0
_END_SECONDS: Final = 40.0


@dataclass(slots=True)
class _Actor:
    """A Slot on some node; ``greeting`` is there until it has answered, ``stream`` while it works.

    One that is ``useless`` gets no tasks; it keeps its place, so that no other is started there.
    """

    handle: Any
    greeting: Any = None
    stream: Any = None
    host: str = ""
    flight: deque[Sent] = field(default_factory=deque)
    last: Task | None = None
    useless: bool = False

    @property
    def awaited(self) -> Any:
        """What Ray is to be asked about, None for one that has nothing to do."""
        return self.greeting if self.greeting is not None else self.stream


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many workers a pool has, and how long it waits for a node that has room for one.

    ``command`` starts one where that is not the usual; nothing is begun after ``until``.
    """

    count: int
    wait_seconds: float
    command: Sequence[str] | None = None
    until: float = inf


class Pool:
    """The workers on nodes of one kind."""

    def __init__(self, ray: Any, place: Place, tasks: Sequence[Task], wanted: Wanted) -> None:
        self._ray = ray
        self._place = place
        self._wanted = wanted
        self._orders = Orders()
        self._backlog = Backlog(tasks)
        self._unsent = len(tasks)
        self._losses: Counter[str] = Counter()
        self._failures = 0
        self._obstacle = ""
        self._alive_at = time.monotonic()
        self._told_waiting = False
        self._actors = [self._start() for _ in range(wanted.count)]
        self._left = len(tasks)

    def is_busy(self) -> bool:
        """Tell whether there is anything to be done, or being done."""
        over = time.monotonic() >= self._wanted.until
        return self._left > 0 and not (over and all(not each.flight for each in self._actors))

    def awaited(self) -> dict[Any, _Actor]:
        """Hand out tasks, and return what Ray is to be asked about."""
        for actor in self._actors:
            if actor.awaited is None and not actor.useless:
                self._hand_out(actor)
        return {each.awaited: each for each in self._actors if each.awaited is not None}

    def ready(self, actor: _Actor, tell: Tell) -> Iterator[Attempt]:
        """Take what an actor has for us, and yield the Attempts that come of it."""
        failures = self._ray.exceptions
        try:
            if actor.greeting is not None:
                self._greeted(actor, self._ray.get(actor.greeting), tell)
                return
            text = next(actor.stream, None)
            message = None if text is None else self._ray.get(text)
        except failures.RayTaskError:
            raise  # a fault of ours, which no other node would cure
        except failures.RayError as error:
            yield from self._lost(actor, str(error), tell)
            return
        self._alive_at = time.monotonic()
        if message is None:
            self._take_back(actor)
            return
        reply = read_reply(message, actor.flight[0].task.job)
        if isinstance(reply, str):
            tell(f"{actor.host}: {reply}")
            return
        yield from self._settled(actor, reply, tell)

    def impatient(self, tell: Tell) -> Iterator[Attempt]:
        """Yield what is left as not run, if there has been no node for it for too long."""
        if all(each.useless for each in self._actors):
            yield from self._given_up(self._obstacle)
            return
        if any(each.greeting is None and not each.useless for each in self._actors):
            self._alive_at = time.monotonic()
            self._told_waiting = False
            return
        waited = time.monotonic() - self._alive_at
        limit = self._wanted.wait_seconds
        if waited > limit:
            yield from self._given_up(
                f"no node of the Ray cluster with {self._place} was there within {limit:g} s"
            )
        elif waited > _SILENT_SECONDS and not self._told_waiting:
            self._told_waiting = True
            tell(f"waiting for a node with {self._place}, at most {limit:g} s")

    def end(self) -> None:
        """End all workers: in order if they have nothing to do, else at once."""
        idle = [each for each in self._actors if each.awaited is None]
        ends = [each.handle.end.remote() for each in idle]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=_END_SECONDS)
        for each in self._actors:
            self._ray.kill(each.handle)

    def _start(self) -> _Actor:
        resource = self._place.resource
        needs = {"num_cpus": 1} if resource is None else {"num_cpus": 0, "resources": {resource: 1}}
        handle = (
            self._ray.remote(Slot)
            .options(**needs, max_restarts=0, scheduling_strategy="SPREAD")
            .remote(self._wanted.command)
        )
        return _Actor(handle, greeting=handle.hello.remote())

    def _greeted(self, actor: _Actor, text: str, tell: Tell) -> None:
        told = read(text)
        actor.greeting = None
        actor.host = str(told["host"])
        self._failures = 0
        if told["version"] != __version__:
            problem = f"it has optrove {told['version']}, and this is {__version__}"
            self._set_aside(actor, f"{actor.host} cannot be used: {problem}", tell)

    def _hand_out(self, actor: _Actor) -> None:
        """Give an actor a batch: fewer Jobs towards the end, so that all end together."""
        seconds = self._wanted.until - time.monotonic()
        if seconds <= 0:
            return
        most = max(1, min(BATCH, self._unsent // (2 * len(self._actors))))
        batch: list[Sent] = []
        while len(batch) < most:
            task = self._backlog.take(actor.last, same_ground=bool(batch))
            if task is None:
                break
            actor.last = task
            batch.append(Sent(task, self._orders.of(task.job)))
        if not batch:
            return
        self._unsent -= len(batch)
        actor.flight.extend(batch)
        actor.stream = actor.handle.perform.options(num_returns="streaming").remote(
            write(batch[0].task.ground.to_json()),
            [each.order.message for each in batch],
            seconds,
        )

    def _settled(self, actor: _Actor, reply: Reply, tell: Tell) -> Iterator[Attempt]:
        """Yield the Attempt that a reply makes of the task that was due."""
        if isinstance(reply, Unable):
            self._set_aside(actor, reply.reason, tell)
            return
        sent = actor.flight.popleft()
        if not actor.flight or not isinstance(reply, Answered):
            self._take_back(actor)  # nothing more comes of this batch
        again = again_slowly(sent.task, reply)
        if again is not None:
            tell(f"{sent.task.job.case.op}: {reply}; it is tried with slow dispatch")
            self._backlog.put(again)
            self._unsent += 1
            return
        if isinstance(reply, (Died, Late)):
            tell(f"{sent.task.job.case.op}: {reply}")
        self._left -= 1
        yield attempt_of(sent, reply)

    def _set_aside(self, actor: _Actor, why: str, tell: Tell) -> None:
        """Give an actor no more tasks."""
        self._take_back(actor)
        actor.useless = True
        self._obstacle = why
        if not all(each.useless for each in self._actors):
            tell(f"{actor.host} gets no more jobs: {why}")

    def _lost(self, actor: _Actor, cause: str, tell: Tell) -> Iterator[Attempt]:
        """Take the tasks of a lost actor back, and start another one in its place."""
        if actor.greeting is not None:
            actor.greeting = None
            self._failures += 1
            if self._failures >= STARTS:
                self._set_aside(actor, f"a worker could not be started on Ray: {cause}", tell)
                return
        elif actor.flight:
            tell(f"{actor.host} was lost; its {len(actor.flight)} jobs are executed elsewhere")
            yield from self._charged(actor)
        self._take_back(actor)
        self._ray.kill(actor.handle)
        self._actors[self._actors.index(actor)] = self._start()

    def _charged(self, actor: _Actor) -> Iterator[Attempt]:
        """Count the loss against the task that was being executed; too many are its end."""
        first = actor.flight[0]
        self._losses[first.order.case_id] += 1
        if self._losses[first.order.case_id] >= LOSSES:
            actor.flight.popleft()
            self._left -= 1
            yield attempt_of(first, Unable(f"{LOSSES} nodes were lost while it was executed"))

    def _take_back(self, actor: _Actor) -> None:
        """Put the tasks of an actor that were not begun before the others."""
        actor.stream = None
        self._unsent += len(actor.flight)
        while actor.flight:
            self._backlog.put_back(actor.flight.pop().task)

    def _given_up(self, reason: str) -> Iterator[Attempt]:
        """Yield all that is left as not run."""
        while (task := self._backlog.take(None)) is not None:
            self._left -= 1
            yield attempt_of(Sent(task, self._orders.of(task.job)), Unable(reason))


WAIT_SECONDS: Final = 600.0
"""How long Jobs wait for a node with their board, at first and after the last one was lost."""

_QUIET: Final = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_gcs_server_port_wait_time_s": "1",
}
"""What keeps Ray from sending reports, from warning about its own plans, and from asking twenty
times where a cluster was that is gone."""

_THIS_MACHINE: Final = ("localhost", "127.0.0.1")
_KNOCK_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A Ray cluster that this process is connected to."""

    ray: Any
    wait_seconds: float = WAIT_SECONDS

    def run_jobs(
        self,
        jobs: Plan | Iterable[Job],
        *,
        board: str | None = None,
        device_kind: DeviceKind | None = None,
        workers: int | Workers | None = None,
        tell: Tell = lambda _: None,
        run_id: str | None = None,
    ) -> Iterator[Attempt]:
        """Yield an Attempt for each Job, in the order in which they end.

        As ``run_jobs`` of this machine, with workers on the nodes that offer the board of the
        Jobs: as many as there is room for, or fewer if ``workers`` says so.
        """
        if board is not None:
            board = find_board(board).name
        ground = Ground(run_id or uuid.uuid4().hex, DeviceKind.HOST, board)
        tasks = tasks_of(listed(jobs, device_kind), ground)
        wanted = workers if isinstance(workers, Workers) else Workers(workers or len(tasks))
        return self._attempts(tasks, wanted, tell)

    def _attempts(self, tasks: list[Task], workers: Workers, tell: Tell) -> Iterator[Attempt]:
        offered = self.ray.cluster_resources()
        placed, unplaced = by_place(tasks, offered)
        orders = Orders()
        for task, reason in unplaced:
            yield attempt_of(Sent(task, orders.of(task.job)), Unable(reason))
        with ExitStack() as stack:
            pools = []
            for place, some in placed.items():
                room = max(1, place.capacity(offered))
                pools.append(self._pool(place, some, workers, room))
                stack.callback(pools[-1].end)
            while pools := [pool for pool in pools if pool.is_busy()]:
                yield from self._step(pools, tell)

    def _pool(self, place: Place, tasks: list[Task], workers: Workers, room: int) -> Pool:
        count = min(workers.count, room, len(tasks))
        command = None if workers.command == COMMAND else tuple(workers.command)
        until = inf if workers.until is None else workers.until
        return Pool(self.ray, place, tasks, Wanted(count, self.wait_seconds, command, until))

    def _step(self, pools: list[Pool], tell: Tell) -> Iterator[Attempt]:
        """Yield what has come within a second."""
        awaited = {ref: (pool, actor) for pool in pools for ref, actor in pool.awaited().items()}
        if awaited:
            ready, _ = self.ray.wait(list(awaited), num_returns=1, timeout=_LOOK_SECONDS)
            for ref in ready:
                pool, actor = awaited[ref]
                yield from pool.ready(actor, tell)
        for pool in pools:
            yield from pool.impatient(tell)


@contextmanager
def ray_engine(
    address: str | None = None, *, wait_seconds: float = WAIT_SECONDS
) -> Iterator[RayEngine]:
    """Connect to a Ray cluster: at an address, at RAY_ADDRESS, or the one of this machine.

    FrameworkMissing without Ray, UnusableCluster when no cluster can be reached.
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
        _connect(ray, address or ray_address())
        try:
            yield RayEngine(ray, wait_seconds)
        finally:
            ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    try:
        if address is not None:
            _knock(ray, address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        where = "on this machine" if address is None else f"at {address}"
        raise UnusableCluster(
            f"no Ray cluster can be used {where} ({error}); start one with `ray start --head`, or "
            f"set {RAY.name} to the HOST:PORT of one that this machine belongs to"
        ) from error


def _knock(ray: Any, address: str) -> None:
    """Raise OSError if nobody is at an address: Ray itself would ask there for minutes."""
    host, _, port = address.rpartition(":")
    if "/" in host:
        raise ValueError("nodes have to be reached directly, not through Ray's client")
    here = ray.util.get_node_ip_address() if host in _THIS_MACHINE else host
    with socket.create_connection((here, int(port)), _KNOCK_SECONDS):
        pass

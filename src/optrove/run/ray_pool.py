"""The workers of a run on nodes of one kind in a Ray cluster, and the tasks that need such nodes.

A node that is lost takes its workers with it, and nothing else: the tasks that they had are
executed elsewhere, or wait until such a node is there again, for a limited time.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.text import read, write
from optrove.run.orders import Orders
from optrove.run.ray_slot import Slot, read_reply
from optrove.run.tasks import Backlog, Sent, Task, again_slowly, attempt_of
from optrove.run.workers import Answered, Died, Late, Unable
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.records import Attempt
    from optrove.run.ray_places import Place
    from optrove.run.runner import Tell
    from optrove.run.workers import Reply

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

"""A place for one worker on a node of a Ray cluster: it has batches of Jobs executed there.

Ray makes an actor of ``Slot``. Jobs and replies travel as JSON texts, so that what a node says is
read as strictly as everything else that comes from outside of a process.
"""

from __future__ import annotations

import json
import socket
import time
from collections import deque
from math import inf
from typing import TYPE_CHECKING

from optrove.backends.executing import Stage
from optrove.codec.text import Json, read, write
from optrove.run.channel import Ground
from optrove.run.orders import Order, answer_of, read_answer, read_order
from optrove.run.resets import Board, told_policy, worker_on
from optrove.run.workers import AHEAD, COMMAND, Answered, Died, Late, Unable
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.records import Job
    from optrove.run.resets import AnyWorker
    from optrove.run.workers import Reply


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

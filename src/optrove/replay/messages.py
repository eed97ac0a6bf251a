"""Messages between a worker process and its parent.

    parent  {"start": {"run_id": ..., "board": ..., "device_kind": "mock", "slow_dispatch": false}}
    worker  {"ready": true}, or {"unable": why}
    parent  {"job": {"case_id": ..., "op": ..., "arguments": [[name, text], ...], ...}}
    worker  {"attempt": {"as_recorded": true, "outputs": [], "attempt": {...}}}

The parent may send further jobs before the first is answered; they are answered in their order. It
closes the pipe when there is nothing more to do. At which stage of a job the worker is, it says in
memory that both share (``stages``).

Each argument and each output travels as the text of its canonical JSON. Most of them come again and
again, and so does all that a Job says besides its case: a text that was read is not read again.

The worker writes it before each stage, which takes no message; the parent looks when it wonders why
there is no answer, and when the worker has died.
"""

from __future__ import annotations

import json
import mmap
import select
import tempfile
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from optrove.frameworks.executor import Stage
from optrove.model.case import Case
from optrove.model.records import Attempt, DeviceKind, Job
from optrove.serializer.hashes import CanonicalTexts, case_text, text_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.text import Json, write
from optrove.serializer.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection
    from typing import IO

    from optrove.model.values import Value


@dataclass(frozen=True, slots=True)
class Ground:
    """What a worker process is set up for, and keeps until it ends."""

    run_id: str
    device_kind: DeviceKind
    board: str | None
    slow_dispatch: bool = False

    def to_json(self) -> Json:
        """Return it as the worker reads it."""
        return {
            "run_id": self.run_id,
            "device_kind": self.device_kind.value,
            "board": self.board,
            "slow_dispatch": self.slow_dispatch,
        }

    @staticmethod
    def from_json(data: Json) -> Ground:
        """Return what ``to_json`` has written."""
        return Ground(
            data["run_id"], DeviceKind(data["device_kind"]), data["board"], data["slow_dispatch"]
        )


class Channel:
    """One end of the pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Once for all: the connection's own ``poll`` makes a new selector each time.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)

    def send(self, kind: str, content: Json) -> None:
        """Send a message; OSError when nobody is at the other end."""
        self.send_message(write({kind: content}))

    def send_message(self, message: str) -> None:
        """Send a message that is JSON already; OSError when nobody is at the other end."""
        self._connection.send_bytes(message.encode("ascii"))

    def wait(self, seconds: float) -> bool:
        """Tell whether a message, or the end, has come within this time."""
        return bool(self._arrivals.poll(max(0, seconds * 1000)))  # less is for ever

    def receive(self) -> tuple[str, Json]:
        """Return the next message; EOFError when the other end is closed."""
        try:
            content = self._connection.recv_bytes()
        except ConnectionResetError as error:  # it ended with something unread
            raise EOFError from error
        # Both ends are ours, and the strict reader takes several times as long.
        ((kind, told),) = json.loads(content).items()
        return kind, told

    def messages(self) -> Iterator[tuple[str, Json]]:
        """Yield messages until the other end is closed."""
        while True:
            try:
                yield self.receive()
            except EOFError:  # noqa: PERF203 - the end of the loop
                return

    def close(self) -> None:
        """Close this end."""
        self._connection.close()


_NO_CASE: Final = Case("", ())
_MOST_KNOWN: Final = 8192


@dataclass(frozen=True, slots=True)
class Order:
    """A Job for a worker: its case's id, and the message that a worker understands."""

    job: Job
    case_id: str
    message: str


class Orders:
    """Makes Orders; arguments that repeat are written once."""

    def __init__(self) -> None:
        self._texts = CanonicalTexts()

    def of(self, job: Job) -> Order:
        """Return the Order for a Job; BadData for a Case that no reader would accept."""
        arguments = self._texts.arguments(job.case)
        case_id = text_hash(case_text(job.case.op, arguments))
        outputs = None if job.outputs is None else [self._texts.of(each) for each in job.outputs]
        content = {
            "case_id": case_id,
            "op": job.case.op,
            "arguments": arguments,
            "outputs": outputs,
            "rest": _text_of_rest(replace(job, case=_NO_CASE, outputs=None)),
        }
        return Order(job, case_id, write({"job": content}))


def read_order(content: Json) -> tuple[Job, str]:
    """Return the Job of an Order and the id of its case, from the content of its message."""
    arguments = tuple([(name, _value_of(text)) for name, text in content["arguments"]])
    outputs = content["outputs"]
    job = replace(
        _rest_of(content["rest"]),
        case=Case(content["op"], arguments),
        outputs=None if outputs is None else tuple([_value_of(text) for text in outputs]),
    )
    return job, content["case_id"]


def answer_of(attempt: Attempt, job: Job) -> Json:
    """Return an Attempt as it is sent back: outputs that are as recorded are not repeated."""
    as_recorded = attempt.outputs == job.outputs
    outputs = [] if as_recorded else [_text_of(value) for value in attempt.outputs]
    sent = record_to_builtins(replace(attempt, outputs=()))
    return {"as_recorded": as_recorded, "outputs": outputs, "attempt": sent}


def read_answer(content: Json, job: Job) -> Attempt:
    """Return the Attempt that a worker has sent back for a Job."""
    attempt = record_from_builtins(content["attempt"], Attempt)
    if content["as_recorded"] and job.outputs is not None:
        return replace(attempt, outputs=job.outputs)
    return replace(attempt, outputs=tuple([_value_of(text) for text in content["outputs"]]))


@lru_cache(_MOST_KNOWN)
def _text_of(value: Value) -> str:
    return write(encode(value))


@lru_cache(_MOST_KNOWN)
def _value_of(text: str) -> Value:
    return decode(json.loads(text))


@lru_cache(_MOST_KNOWN)
def _text_of_rest(job: Job) -> str:
    return write(record_to_builtins(job))


@lru_cache(_MOST_KNOWN)
def _rest_of(text: str) -> Job:
    return record_from_builtins(json.loads(text), Job)


_STAGES: Final = (None, *Stage)
_BITS: Final = 4
_MASK: Final = (1 << _BITS) - 1


class Stages:
    """The stage of the Job in hand, and since when its time runs.

    The time for opening a device does not count: it runs anew when that begins and when it is
    over. Both sides read one clock, which all processes of a machine share.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        # One aligned word, so that stage and time are always of one moment.
        self._words = memoryview(self._memory).cast("Q")
        self._stage: Stage | None = None
        self._since = 0

    def tell(self, stage: Stage) -> None:
        """Say what is about to be done."""
        if self._stage in (None, Stage.OPENING) or stage is Stage.OPENING:
            self._since = time.monotonic_ns()
        self._stage = stage
        self._words[0] = (self._since << _BITS) | _STAGES.index(stage)

    def clear(self) -> None:
        """Say that nothing is in hand."""
        self._stage = None
        self._words[0] = time.monotonic_ns() << _BITS

    def read(self) -> tuple[Stage | None, float]:
        """Return the stage, and since when its time runs, as ``time.monotonic`` has it."""
        word = self._words[0]
        return _STAGES[word & _MASK], (word >> _BITS) / 1e9

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._memory.close()


def stages_file() -> IO[bytes]:
    """Return an open file without a name that holds the stages of one worker."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever asked for it
    file.truncate(mmap.PAGESIZE)
    return file

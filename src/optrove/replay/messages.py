"""The messages between a worker process and its parent.

    parent  {"start": {"run_id": ..., "board": ..., "device_kind": "mock", "slow_dispatch": false}}
    worker  {"ready": true}, or {"unable": reason}
    parent  {"job": {"case_id": ..., "op": ..., "arguments": [[name, text], ...], ...}}
    worker  {"attempt": {"as_recorded": true, "outputs": [], "attempt": {...}}}

The parent may send more jobs before the first is answered; answers come in the same order. It
closes the pipe when it has no more jobs. The worker publishes the stage of its job in shared memory
(``Stages``), which takes no message: the parent reads it when an answer is late, and when the
worker has died.

Each argument and each output travels as the text of its canonical JSON. Most texts repeat, as does
everything in a Job besides its case, so each text is parsed once.
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
from optrove.model.records import Attempt, DeviceKind, Job, Outcome
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
class WorkerSetup:
    """The setup of a worker process, the same for all of its Jobs."""

    run_id: str
    device_kind: DeviceKind
    board: str | None
    slow_dispatch: bool = False

    def not_run(self, job: Job, case_id: str, detail: str | None = None) -> Attempt:
        """Return the Attempt at a Job that has not run, or not yet."""
        return Attempt(
            run_id=self.run_id,
            case_id=case_id,
            outcome=Outcome.NOT_RUN,
            device_kind=job.device_kind,
            seed=job.seed,
            board=self.board,
            detail=detail,
        )


class Channel:
    """One end of the pipe between a worker and its parent."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        # Made once: the connection's own ``poll`` makes a new selector each time.
        self._arrivals = select.poll()
        self._arrivals.register(connection.fileno(), select.POLLIN)

    def send(self, kind: str, content: Json) -> None:
        """Send a message; OSError if the other end is closed."""
        self.send_text(write({kind: content}))

    def send_text(self, message: str) -> None:
        """Send a message that is JSON already; OSError if the other end is closed."""
        self._connection.send_bytes(message.encode("ascii"))

    def wait(self, seconds: float) -> bool:
        """Wait for a message or the end, at most ``seconds``; return whether there is one."""
        return bool(self._arrivals.poll(max(0, seconds * 1000)))  # less than 0 waits for ever

    def receive(self) -> tuple[str, Json]:
        """Return kind and content of the next message; EOFError if the other end is closed."""
        try:
            content = self._connection.recv_bytes()
        except ConnectionResetError as error:  # it ended with something unread
            raise EOFError from error
        # Both ends are ours, and the strict reader takes several times as long.
        ((kind, data),) = json.loads(content).items()
        return kind, data

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
_CACHED: Final = 8192


@dataclass(frozen=True, slots=True)
class JobMessage:
    """A Job with the id of its case and the text of its message to a worker."""

    job: Job
    case_id: str
    text: str


class JobWriter:
    """Writes the messages of Jobs; the text of a repeated argument is made once."""

    def __init__(self) -> None:
        self._texts = CanonicalTexts()

    def message(self, job: Job) -> JobMessage:
        """Return the message of a Job; BadData for a Case that no reader would accept."""
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
        return JobMessage(job, case_id, write({"job": content}))


def read_job(content: Json) -> tuple[Job, str]:
    """Return the Job and the id of its case from the content of a message."""
    arguments = tuple([(name, _value_of(text)) for name, text in content["arguments"]])
    outputs = content["outputs"]
    job = replace(
        _rest_of(content["rest"]),
        case=Case(content["op"], arguments),
        outputs=None if outputs is None else tuple([_value_of(text) for text in outputs]),
    )
    return job, content["case_id"]


def attempt_to_json(attempt: Attempt, job: Job) -> Json:
    """Return an Attempt as a worker sends it: outputs that are as recorded are not repeated."""
    as_recorded = attempt.outputs == job.outputs
    outputs = [] if as_recorded else [_text_of(value) for value in attempt.outputs]
    sent = record_to_builtins(replace(attempt, outputs=()))
    return {"as_recorded": as_recorded, "outputs": outputs, "attempt": sent}


def attempt_from_json(content: Json, job: Job) -> Attempt:
    """Return the Attempt at a Job that ``attempt_to_json`` wrote."""
    attempt = record_from_builtins(content["attempt"], Attempt)
    if content["as_recorded"] and job.outputs is not None:
        return replace(attempt, outputs=job.outputs)
    return replace(attempt, outputs=tuple([_value_of(text) for text in content["outputs"]]))


@lru_cache(_CACHED)
def _text_of(value: Value) -> str:
    return write(encode(value))


@lru_cache(_CACHED)
def _value_of(text: str) -> Value:
    return decode(json.loads(text))


@lru_cache(_CACHED)
def _text_of_rest(job: Job) -> str:
    return write(record_to_builtins(job))


@lru_cache(_CACHED)
def _rest_of(text: str) -> Job:
    return record_from_builtins(json.loads(text), Job)


_STAGES: Final = (None, *Stage)
_BITS: Final = 4
_MASK: Final = (1 << _BITS) - 1


class Stages:
    """The stage of a worker's current Job, and since when its time counts, in shared memory.

    The time to open a device does not count: the clock restarts when opening begins and ends. Both
    processes read the same monotonic clock.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        # One aligned word, so that stage and time always belong together.
        self._words = memoryview(self._memory).cast("Q")
        self._stage: Stage | None = None
        self._since = 0

    def enter(self, stage: Stage) -> None:
        """Publish the stage that is about to begin."""
        if self._stage in (None, Stage.OPENING) or stage is Stage.OPENING:
            self._since = time.monotonic_ns()
        self._stage = stage
        self._words[0] = (self._since << _BITS) | _STAGES.index(stage)

    def clear(self) -> None:
        """Publish that there is no current Job."""
        self._stage = None
        self._words[0] = time.monotonic_ns() << _BITS

    def read(self) -> tuple[Stage | None, float]:
        """Return the stage, and since when its time counts, by ``time.monotonic``."""
        word = self._words[0]
        return _STAGES[word & _MASK], (word >> _BITS) / 1e9

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._memory.close()


def stages_file() -> IO[bytes]:
    """Return an open file without a name for the ``Stages`` of one worker."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.truncate(mmap.PAGESIZE)
    return file

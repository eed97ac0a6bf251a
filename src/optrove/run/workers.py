"""Worker processes as their parent sees them: one Job at a time, with a deadline.

A worker says what it is about to do before it does it. So when it dies or is late, the Job that
it had is known, and at which stage; it costs that Job only, and the next one gets a new process.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.backends.executing import Stage
from optrove.codec.records import record_from_builtins, record_to_builtins
from optrove.model.records import Attempt
from optrove.run.channel import Channel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.records import Job
    from optrove.run.channel import Ground

COMMAND: Final = (sys.executable, "-m", "optrove.run.worker")
"""What starts a worker; the number of its end of the pipe is added."""

START_SECONDS: Final = 600.0
"""How long a worker may take until it is ready: frameworks are imported from cold disks."""

OPEN_SECONDS: Final = 600.0
"""How long a device may take to open; firmware is built for it the first time."""

CALL_SECONDS: Final = 120.0
"""How long a Job may take that does not say so itself; far more than the slowest known one."""

_END_SECONDS: Final = 30.0
_TAIL: Final = 4000


@dataclass(frozen=True, slots=True)
class Answered:
    """A worker has executed its Job."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Died:
    """A worker has ended in the middle of a Job: with what, at which stage, and its last words."""

    exit_code: int
    stage: Stage | None
    last_words: str

    def __str__(self) -> str:
        when = "before it began" if self.stage is None else f"while {self.stage.value}"
        return f"the process ended with {ending(self.exit_code)} {when}"


@dataclass(frozen=True, slots=True)
class Late:
    """A worker was not done in time, and was ended."""

    seconds: float
    stage: Stage | None

    def __str__(self) -> str:
        when = "before it began" if self.stage is None else f"while {self.stage.value}"
        return f"no end within {self.seconds:g} s {when}; the process was killed"


@dataclass(frozen=True, slots=True)
class Unable:
    """A worker could not be set up; no Job will ever run in it."""

    reason: str


Reply: TypeAlias = Answered | Died | Late | Unable


def ending(exit_code: int) -> str:
    """Return what ended a process, in words."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {-exit_code} ({signal.Signals(-exit_code).name})"
    except ValueError:  # a signal without a name
        return f"signal {-exit_code}"


class WorkerProcess:
    """One worker process; it is started by the first Job, and again after it was lost."""

    def __init__(self, ground: Ground, command: Sequence[str] = COMMAND) -> None:
        self.ground = ground
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker

    def perform(self, job: Job) -> Reply:
        """Have a Job executed; returns when it is done, or the worker is lost."""
        if self._channel is None:
            lost = self._start()
            if lost is not None:
                self._abandon()
                return lost
        assert self._channel is not None  # noqa: S101 - started above; narrows the type
        try:
            self._channel.send("job", record_to_builtins(job))
        except OSError:  # it has died while it waited
            return self._died(None)
        seconds = CALL_SECONDS if job.timeout_ns is None else job.timeout_ns / 1e9
        reply = self._await(self._channel, seconds)
        if not isinstance(reply, Answered):
            self._abandon()
        return reply

    def end(self) -> None:
        """End the worker in order: it closes its devices; one that does not is killed."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._log.close()

    def kill(self) -> None:
        """End the worker at once, in the middle of whatever it does; from any thread."""
        process = self._process
        if process is not None:
            process.kill()

    def _start(self) -> Reply | None:
        """Start the process and wait until it is ready; return why it is not."""
        self._log.seek(0)
        self._log.truncate()
        ours, theirs = Pipe()
        descriptor = theirs.fileno()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a number
                [*self._command, str(descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=(descriptor,),
                # An interrupt of the user is for the parent, which then ends its workers.
                start_new_session=True,
            )
        finally:
            theirs.close()
        channel = self._channel = Channel(ours)
        try:
            channel.send("start", self.ground.to_json())
            if not channel.wait(START_SECONDS):
                return Late(START_SECONDS, None)
            kind, content = channel.receive()
        except (EOFError, OSError):
            died = self._died(None)
            return Unable(f"a worker could not be started: {died}\n{died.last_words}")
        return Unable(content) if kind == "unable" else None

    def _await(self, channel: Channel, seconds: float) -> Reply:
        """Wait for the answer; the time for opening a device does not count."""
        stage: Stage | None = None
        begun, limit = time.monotonic(), OPEN_SECONDS
        while True:
            left = begun + limit - time.monotonic()
            if left <= 0 or not channel.wait(left):
                return Late(limit, stage)
            try:
                kind, content = channel.receive()
            except (EOFError, OSError):
                return self._died(stage)
            if kind == "attempt":
                return Answered(record_from_builtins(content, Attempt))
            if stage in (None, Stage.OPENING) or content == Stage.OPENING.name:
                begun = time.monotonic()
            stage = Stage[content]
            limit = OPEN_SECONDS if stage is Stage.OPENING else seconds

    def _died(self, stage: Stage | None) -> Died:
        assert self._process is not None  # noqa: S101 - it was started; narrows the type
        try:
            exit_code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed the pipe and lives on
            self._process.kill()
            exit_code = self._process.wait()
        self._log.seek(0, 2)
        self._log.seek(max(0, self._log.tell() - _TAIL))
        words = self._log.read().decode("utf-8", "replace")
        return Died(exit_code, stage, words)

    def _abandon(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

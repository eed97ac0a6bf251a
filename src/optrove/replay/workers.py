"""Worker processes as their parent sees them: Jobs one after another, each with a deadline.

A worker says what it is about to do before it does it. So when it dies or is late, the Job that
it had is known, and at which stage; it costs that Job only, and the next one gets a new process.
A Job may be sent while the one before is executed, so that a worker never waits for its parent.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.frameworks.executor import Stage
from optrove.frameworks.ttnn.execute.files import remove_files_of
from optrove.replay.messages import Channel, Orders, Stages, read_answer, stages_file
from optrove.settings import with_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.records import Attempt, Job
    from optrove.replay.messages import Ground, Order

COMMAND: Final = (sys.executable, "-m", "optrove.replay.worker")
"""What starts a worker; the numbers of its pipe and of its stages are added."""

START_SECONDS: Final = 600.0
"""How long a worker may take until it is ready: frameworks are imported from cold disks."""

OPEN_SECONDS: Final = 600.0
"""How long a device may take to open; firmware is built for it the first time."""

CALL_SECONDS: Final = 120.0
"""How long a Job may take that does not say so itself; far more than the slowest known one."""

AHEAD: Final = 2
"""How many Jobs a worker has at most: the one in hand, and the next."""

_AHEAD_BYTES: Final = 32_000
"""How large a Job may be that is sent ahead: more might fill the pipe, and block both ends."""

_THREADS: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
"""How torch's threads wait for work: spinning, as they would, takes processors from the other
workers, and more time than it saves between the small operations of a model."""

_END_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.5
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
        self._sent: deque[Order] = deque()
        self._unsent: Reply | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._shared = stages_file()
        self._stages = Stages(self._shared.fileno())

    def perform(self, job: Job) -> Reply:
        """Have a Job executed; returns when it is done, or the worker is lost."""
        self.send(Orders().of(job))
        return self.receive()

    def has_room(self, order: Order) -> bool:
        """Tell whether a Job may be sent now: it is the first, or all are small."""
        small = all(len(each.message) <= _AHEAD_BYTES for each in (*self._sent, order))
        return not self._sent or small

    def send(self, order: Order) -> None:
        """Have a Job executed after those that were sent before; ``receive`` tells of it."""
        self._sent.append(order)
        if self._unsent is not None:
            return
        if self._channel is None:
            self._unsent = self._start()
        if self._channel is not None and self._unsent is None:
            try:
                self._channel.send_message(order.message)
            except OSError:  # it has died
                # While it waited; or at a Job before this one, as will be seen from its answer.
                if len(self._sent) == 1:
                    self._unsent = self._died(None)

    def receive(self) -> Reply:
        """Return what came of the Job that was sent first, as soon as it is done.

        When the worker is lost, the Jobs sent after it were not begun and are forgotten.
        """
        order = self._sent[0]
        timeout_ns = order.job.timeout_ns
        seconds = CALL_SECONDS if timeout_ns is None else timeout_ns / 1e9
        reply = self._await(order, seconds)
        if isinstance(reply, Answered):
            self._sent.popleft()
        else:
            self._sent.clear()
            self._unsent = None
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
                _killed(self._process)
                remove_files_of(self._process.pid)
            self._process = None
        self._log.close()
        self._stages.close()
        self._shared.close()

    def kill(self) -> None:
        """End the worker at once, in the middle of whatever it does; from any thread."""
        process = self._process
        if process is not None:
            process.kill()

    def _start(self) -> Reply | None:
        """Start the process and wait until it is ready; return why it is not."""
        self._log.seek(0)
        self._log.truncate()
        self._stages.clear()
        ours, theirs = Pipe()
        descriptors = (theirs.fileno(), self._shared.fileno())
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and two numbers
                [*self._command, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=descriptors,
                env=with_defaults(_THREADS),
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

    def _await(self, order: Order, seconds: float) -> Reply:
        """Wait for the answer; the time for opening a device does not count."""
        if self._channel is None or self._unsent is not None:
            return self._unsent or self._died(None)
        asked = time.monotonic()
        look = min(_LOOK_SECONDS, seconds / 4)
        while True:
            stage, since = self._stages.read()
            limit = OPEN_SECONDS if stage in (None, Stage.OPENING) else seconds
            left = max(since, asked) + limit - time.monotonic()
            if left <= 0:
                return Late(limit, stage)
            if not self._channel.wait(min(left, look)):
                continue
            try:
                _, content = self._channel.receive()
            except (EOFError, OSError):
                return self._died(self._stages.read()[0])
            return Answered(read_answer(content, order.job))

    def _died(self, stage: Stage | None) -> Died:
        assert self._process is not None  # noqa: S101 - it was started; narrows the type
        try:
            exit_code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed the pipe and lives on
            exit_code = _killed(self._process)
        self._log.seek(0, 2)
        self._log.seek(max(0, self._log.tell() - _TAIL))
        words = self._log.read().decode("utf-8", "replace")
        return Died(exit_code, stage, words)

    def _abandon(self) -> None:
        if self._process is not None:
            _killed(self._process)
            remove_files_of(self._process.pid)
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _killed(process: subprocess.Popen[bytes]) -> int:
    """Kill a process and return its exit code."""
    process.kill()
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:  # the kernel waits for a board that does not answer
        return -signal.SIGKILL

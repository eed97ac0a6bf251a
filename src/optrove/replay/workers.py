"""Worker processes as their parent sees them: Jobs one after another, each with a deadline.

A worker publishes each stage before it begins. So when it dies or is late, its Job and the stage
are known; the loss costs only that Job, and the next one gets a new process. A Job may be sent
while the one before is executed, so that a worker never waits for its parent.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from math import inf
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.frameworks.executor import Stage
from optrove.frameworks.ttnn.execute.files import remove_files_of
from optrove.model.records import OUT_OF_BUDGET, Attempt
from optrove.replay.fork_server import ForkedProcess, fork_servers, is_forked
from optrove.replay.messages import Channel, Stages, attempt_from_json, stages_file
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.settings import PASSIVE_THREADS, with_defaults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.model.records import Job
    from optrove.replay.messages import JobMessage, WorkerSetup

COMMAND: Final = (sys.executable, "-m", "optrove.replay.worker")
"""The command of a worker; the descriptors of its pipe and of its stages are added."""

START_SECONDS: Final = 600.0
"""The time to start a worker: frameworks may have to be imported from cold disks."""

OPEN_SECONDS: Final = 600.0
"""The time to open a device; firmware is built for it the first time."""

CALL_SECONDS: Final = 120.0
"""The time of a Job that does not say so itself; far more than the slowest known one needs."""

AHEAD: Final = 2
"""The most Jobs that a worker has: the current one and the next."""

_AHEAD_BYTES: Final = 32_000
"""The size of a Job that may be sent ahead: more might fill the pipe and block both ends."""

_END_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.5
_TAIL: Final = 4000


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker ended in the middle of a Job; ``stage`` is None if it had not begun the Job."""

    exit_code: int
    stage: Stage | None
    last_words: str

    def __str__(self) -> str:
        return f"the process ended with {describe_exit(self.exit_code)} {_when(self.stage)}"


@dataclass(frozen=True, slots=True)
class WorkerTimeout:
    """A worker did not answer in time and was killed."""

    seconds: float
    stage: Stage | None

    def __str__(self) -> str:
        return f"no end within {self.seconds:g} s {_when(self.stage)}; the process was killed"


@dataclass(frozen=True, slots=True)
class WorkerUnusable:
    """A worker cannot be set up, so that no Job can ever run in it."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """A worker could not open the device of a Job, and ended.

    If this was its first Job (``is_first``), another process would fare no better.
    """

    reason: str
    is_first: bool

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class BudgetOver:
    """The time of the whole sweep was over before a worker answered, which was killed."""

    stage: Stage | None

    def __str__(self) -> str:
        return f"{OUT_OF_BUDGET}its time was over {_when(self.stage)}; the process was killed"


Loss: TypeAlias = WorkerDied | WorkerTimeout | WorkerUnusable | OpenFailed | BudgetOver
Reply: TypeAlias = Attempt | Loss


def _when(stage: Stage | None) -> str:
    return "before it began" if stage is None else f"while {stage.value}"


def describe_exit(exit_code: int) -> str:
    """Return the exit code or the signal that ended a process, as text."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"signal {-exit_code} ({signal.Signals(-exit_code).name})"
    except ValueError:  # a signal without a name
        return f"signal {-exit_code}"


class WorkerProcess:
    """One worker process; it starts with the first Job, and again after it was lost."""

    def __init__(self, setup: WorkerSetup, command: Sequence[str] = COMMAND) -> None:
        self.setup = setup
        self._command = command
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._channel: Channel | None = None
        self._sent: deque[JobMessage] = deque()
        self._unsent: Loss | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._shared = stages_file()
        self._stages = Stages(self._shared.fileno())

    def has_room(self, message: JobMessage) -> bool:
        """Return whether a Job may be sent now: it is the only one, or all are small."""
        small = all(len(each.text) <= _AHEAD_BYTES for each in (*self._sent, message))
        return not self._sent or small

    def send(self, message: JobMessage, until: float = inf) -> None:
        """Send a Job to be executed after those before it; ``receive`` returns its reply.

        A worker that has not started by ``until``, a time of ``time.monotonic``, is lost.
        """
        self._sent.append(message)
        if self._unsent is not None:
            return
        if self._channel is None:
            self._unsent = self._start(until)
        if self._channel is not None and self._unsent is None:
            try:
                self._channel.send_text(message.text)
            except OSError:  # it has died
                # While it waited; or at a Job before this one, as will be seen from its answer.
                if len(self._sent) == 1:
                    self._unsent = self._died(None)

    def receive(self, until: float = inf) -> Reply:
        """Wait for the reply to the Job that was sent first; BudgetOver if none comes until then.

        When the worker is lost, the Jobs sent after it did not begin and are forgotten.
        """
        reply = self._await(self._sent[0].job, until)
        if isinstance(reply, Attempt):
            self._sent.popleft()
        else:
            self._sent.clear()
            self._unsent = None
            if isinstance(reply, OpenFailed):
                self._let_end()
            else:
                self._abandon()
        return reply

    def end(self) -> None:
        """Let the worker close its devices and end; kill it if it does not."""
        self._let_end()
        self._log.close()
        self._stages.close()
        self._shared.close()

    def _let_end(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill_process()
            self._process = None

    def kill(self) -> None:
        """Kill the worker, whatever it does; callable from any thread."""
        process = self._process
        if process is not None:
            process.kill()

    def _start(self, until: float) -> Loss | None:
        """Start the process and wait until it is ready; return the loss if it never is.

        One that is killed from outside before that is started again, once.
        """
        lost = self._started(until)
        if isinstance(lost, WorkerDied) and lost.exit_code == -signal.SIGKILL:
            self._abandon()
            lost = self._started(until)
        if isinstance(lost, WorkerDied):
            return WorkerUnusable(f"a worker could not be started: {lost}\n{lost.last_words}")
        return lost

    def _started(self, until: float) -> Loss | None:
        """Start the process and wait until it is ready; return the loss if it is not."""
        self._log.seek(0)
        self._log.truncate()
        self._stages.clear()
        ours, theirs = Pipe()
        descriptors = (theirs.fileno(), self._shared.fileno())
        try:
            self._process = self._forked(*descriptors) or self._spawned(*descriptors)
        finally:
            theirs.close()
        channel = self._channel = Channel(ours)
        try:
            channel.send("start", record_to_builtins(self.setup))
            left = until - time.monotonic()
            if not channel.wait(min(START_SECONDS, left)):
                return (
                    BudgetOver(None) if left < START_SECONDS else WorkerTimeout(START_SECONDS, None)
                )
            kind, content = channel.receive()
        except (EOFError, OSError):
            return self._died(None)
        return WorkerUnusable(content) if kind == "unable" else None

    def _forked(self, pipe: int, stages: int) -> ForkedProcess | None:
        """Return a forked process; None if this worker is not one of these, or forking failed."""
        op = self._sent[0].job.case.op
        if self._command is not COMMAND or not is_forked(self.setup, op):
            return None
        environment = with_defaults(PASSIVE_THREADS)
        try:
            return fork_servers().fork(self.setup, environment, pipe, stages, self._log.fileno())
        except OSError:  # the server has died: a process of its own shows why
            return None

    def _spawned(self, *descriptors: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - this interpreter, and two numbers
            [*self._command, *map(str, descriptors)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            pass_fds=descriptors,
            env=with_defaults(PASSIVE_THREADS),
            # An interrupt of the user is for the parent, which then ends its workers.
            start_new_session=True,
        )

    def _await(self, job: Job, until: float) -> Reply:
        """Wait for the answer; the time to open a device counts only for ``until``."""
        if self._channel is None or self._unsent is not None:
            return self._unsent or self._died(None)
        seconds = CALL_SECONDS if job.timeout_ns is None else job.timeout_ns / 1e9
        sent_at = time.monotonic()
        while True:
            stage, since = self._stages.read()
            limit = OPEN_SECONDS if stage in (None, Stage.OPENING) else seconds
            left = max(since, sent_at) + limit - time.monotonic()
            if left <= 0:
                return WorkerTimeout(limit, stage)
            remaining = until - time.monotonic()
            if remaining <= 0:
                return BudgetOver(stage)
            if not self._channel.wait(min(left, remaining, _LOOK_SECONDS, seconds / 4)):
                continue
            try:
                kind, content = self._channel.receive()
            except (EOFError, OSError):
                return self._died(self._stages.read()[0])
            if kind == "not opened":
                return record_from_builtins(content, OpenFailed)
            return attempt_from_json(content, job)

    def _died(self, stage: Stage | None) -> WorkerDied:
        assert self._process is not None  # noqa: S101 - it was started; narrows the type
        try:
            exit_code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed the pipe and lives on
            exit_code = self._kill_process()
        self._log.seek(0, 2)
        self._log.seek(max(0, self._log.tell() - _TAIL))
        words = self._log.read().decode("utf-8", "replace")
        return WorkerDied(exit_code, stage, words)

    def _abandon(self) -> None:
        if self._process is not None:
            self._kill_process()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _kill_process(self) -> int:
        """Kill the process, remove its files and return its exit code."""
        assert self._process is not None  # noqa: S101 - the caller has checked; narrows the type
        self._process.kill()
        try:
            return self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # the kernel waits for a board that does not answer
            return -signal.SIGKILL
        finally:
            remove_files_of(self._process.pid)

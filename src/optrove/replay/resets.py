"""Reset a board that an operation left hanging, and give it up when resets do not help.

On hardware a hang outlives its process: without a reset every later Job would hang, too. So a lost
Job is followed by the reset command, which has its own deadline. When no Job runs to its end after
several resets, the board is given up, and the remaining Jobs are not run, with that reason.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from math import inf
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import BadSetting
from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.replay.judge import RAN, machine_fault
from optrove.replay.workers import OpenFailed, WorkerProcess, WorkerUnusable, describe_exit
from optrove.settings import RESET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optrove.replay.messages import JobMessage, WorkerSetup
    from optrove.replay.workers import Reply

RESET_SECONDS: Final = 600.0
"""The time of a reset; that of a Galaxy takes minutes."""

FRUITLESS: Final = 3
"""The number of resets in a row without a Job that ran, after which a board is given up."""

_TAIL: Final = 2000


def reset_command_words() -> tuple[str, ...]:
    """Return the words of the reset command; BadSetting if it is not valid shell syntax."""
    text = RESET.value
    try:
        return tuple(shlex.split(text)) if text else ()
    except ValueError as error:
        raise BadSetting(
            f"{RESET.name} is {text!r}, which cannot be split into words ({error}); "
            f"write it as in a shell, such as 'tt-smi -r 0'"
        ) from error


def reset(command: Sequence[str], seconds: float = RESET_SECONDS) -> str | None:
    """Run a reset command; return its failure, None if it succeeded."""
    # A file, not a pipe: processes that a killed command leaves behind would hold that open.
    with tempfile.TemporaryFile() as log:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell reads it
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # An interrupt must not leave a board half reset.
                start_new_session=True,
            )
        except OSError as error:
            return str(error)
        try:
            exit_code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return f"no end within {seconds:g} s; it was killed"
        if exit_code == 0:
            return None
        log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
        words = log.read().decode("utf-8", "replace").strip()
    return f"it ended with {describe_exit(exit_code)}: {words}"


class BoardHealth:
    """Whether the board of this machine still works, for all worker processes of a run."""

    def __init__(self, command: tuple[str, ...], log: Callable[[str], object]) -> None:
        self.given_up: str | None = None
        self._command = command
        self._log = log
        self._fruitless = 0
        self._proof: JobMessage | None = None

    def note(self, message: JobMessage, reply: Reply) -> None:
        """Note the reply to a Job: one that ran to its end proves that the board works."""
        if isinstance(reply, Attempt) and reply.outcome in RAN:
            self._fruitless = 0
            self._proof = message

    def recover(self, why: str, process: WorkerProcess) -> None:
        """Reset the board after a loss, and give it up if that does not help a new worker."""
        self._fruitless += 1
        if self._command and not self._reset(why):
            return
        if self._fruitless >= FRUITLESS and not self._is_proven(process):
            advice = f"set {RESET.name} to a command that resets it"
            if self._command:
                advice = f"{shlex.join(self._command)} does not help"
            self._give_up(f"{why}; {self._fruitless} times in a row nothing ran; {advice}")

    def _reset(self, why: str) -> bool:
        while (problem := reset(self._command)) is not None:
            self._log(f"the reset of the board failed: {problem}")
            if self._fruitless >= FRUITLESS:
                self._give_up(f"{why}; {self._fruitless} resets in a row failed: {problem}")
                return False
            self._fruitless += 1
        self._log(f"the board was reset, for {why}")
        return True

    def _is_proven(self, process: WorkerProcess) -> bool:
        """Execute the last Job that ran once more: several operations in a row may really hang."""
        if self._proof is None:
            return False
        process.send(self._proof)
        self.note(self._proof, process.receive())
        return self._fruitless == 0

    def _give_up(self, reason: str) -> None:
        self.given_up = f"the board was given up: {reason}"
        self._log(self.given_up)


class HardwareWorker:
    """A worker process on hardware; after a loss the board is reset before the next Job.

    It has one Job at a time: another one would run on a board that has just hung.
    """

    def __init__(self, start: Callable[[], WorkerProcess], health: BoardHealth) -> None:
        self._start = start
        self._health = health
        self._process = start()
        self._message: JobMessage | None = None
        self._is_stopped = False
        self.setup = self._process.setup

    def has_room(self, message: JobMessage) -> bool:  # noqa: ARG002 - the signature of WorkerProcess
        """Return whether a Job may be sent now."""
        return self._message is None

    def send(self, message: JobMessage, until: float = inf) -> None:
        """Send a Job, unless the board is given up; ``receive`` returns its reply."""
        self._message = message
        if self._health.given_up is None:
            self._process.send(message, until)

    def receive(self, until: float = inf) -> Reply:
        """Wait for the reply to the Job; WorkerUnusable if the board is given up."""
        message, self._message = self._message, None
        assert message is not None  # noqa: S101 - one was sent; narrows the type
        if self._health.given_up is not None:
            return WorkerUnusable(self._health.given_up)
        reply = self._process.receive(until)
        self._check(message, reply)
        if not _is_machine_fault(reply) or self._is_stopped or self._health.given_up is not None:
            return reply
        # The machine failed and works again: the Job gets its chance.
        self._process.send(message, until)
        reply = self._process.receive(until)
        self._check(message, reply)
        return reply

    def end(self) -> None:
        """End the worker: its devices are closed first."""
        self._process.end()

    def kill(self) -> None:
        """Kill the worker; nothing is reset, since no Job follows."""
        self._is_stopped = True
        self._process.kill()

    def _check(self, message: JobMessage, reply: Reply) -> None:
        """Note a reply, and reset the board if it needs that."""
        loss = _reason_to_reset(reply)
        if loss is None:
            self._health.note(message, reply)
        elif not self._is_stopped:
            self._process.kill()
            self._process.end()
            self._process = self._start()
            self._health.recover(loss, self._process)


AnyWorker: TypeAlias = "WorkerProcess | HardwareWorker"


def new_worker(setup: WorkerSetup, command: Sequence[str], health: BoardHealth) -> AnyWorker:
    """Return a worker for a setup; on hardware one that resets the board."""
    if setup.device_kind is DeviceKind.HARDWARE:
        return HardwareWorker(lambda: WorkerProcess(setup, command), health)
    return WorkerProcess(setup, command)


def _reason_to_reset(reply: Reply) -> str | None:
    if isinstance(reply, WorkerUnusable):
        return None
    if not isinstance(reply, Attempt | OpenFailed):
        return str(reply)
    if isinstance(reply, Attempt) and reply.outcome is Outcome.HUNG:
        return "an operation that hung"
    return "a fault of the machine" if _is_machine_fault(reply) else None


def _is_machine_fault(reply: Reply) -> bool:
    """Return whether the machine failed, by its own message."""
    if isinstance(reply, OpenFailed):
        return machine_fault(reply.reason) is not None
    if not isinstance(reply, Attempt) or reply.outcome is not Outcome.NOT_RUN:
        return False
    return machine_fault(reply.detail or "") is not None

"""Bring a board back that an operation has left hanging, and give up when that stops helping.

On hardware a hang outlives the process that it befell: without a reset every later Job would hang
too. So a lost Job is followed by the reset command, which has a deadline of its own. When resets
are not followed by a Job that runs to its end any more, the board is given up, and what is left was
not run, with that reason.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import BadSetting
from optrove.model.records import DeviceKind, Outcome
from optrove.replay.judge import machine_fault
from optrove.replay.workers import Answered, Died, Late, Unable, WorkerProcess, ending
from optrove.settings import RESET, reset_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.replay.messages import Ground, Order
    from optrove.replay.workers import Reply

Tell: TypeAlias = Callable[[str], object]

RESET_SECONDS: Final = 600.0
"""How long a reset may take; that of a Galaxy takes minutes."""

FRUITLESS: Final = 3
"""After how many resets in a row without a Job that ran a board is given up."""

_TAIL: Final = 2000

_RAN: Final = frozenset({Outcome.PASSED, Outcome.NUMERICS, Outcome.WRONG_SPEC})
"""What only a board that works can answer."""


@dataclass(frozen=True, slots=True)
class ResetPolicy:
    """How a board is reset, and how often without success; no command: it cannot be."""

    command: tuple[str, ...] = ()
    seconds: float = RESET_SECONDS
    fruitless: int = FRUITLESS


def told_policy() -> ResetPolicy:
    """Return the policy that the environment asks for; BadSetting for a command that is none."""
    text = reset_command()
    try:
        return ResetPolicy(tuple(shlex.split(text)) if text else ())
    except ValueError as error:
        raise BadSetting(
            f"{RESET.name} is {text!r}, which cannot be taken apart ({error}); "
            f"write it as in a shell, such as 'tt-smi -r 0'"
        ) from error


def reset(command: Sequence[str], seconds: float = RESET_SECONDS) -> str | None:
    """Run a reset command; return what went wrong with it, None for nothing."""
    # A file, not a pipe: what a killed command leaves behind would hold that open.
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
    return f"it ended with {ending(exit_code)}: {words}"


@dataclass(slots=True)
class Board:
    """The board of this machine: how it was used lately, and whether it is given up.

    One for all worker processes of a run; they take turns.
    """

    policy: ResetPolicy
    tell: Tell = field(default=lambda _: None)
    fruitless: int = 0
    given_up: str | None = None
    proof: Order | None = None
    """What ran to its end last: it would again, if the board were well."""

    def well(self, order: Order) -> None:
        """Note that a Job ran to its end."""
        self.fruitless = 0
        self.proof = order

    def reset(self, why: str) -> bool:
        """Reset the board after a loss; tell whether that, or doing nothing, went well."""
        self.fruitless += 1
        if not self.policy.command:
            return True
        problem = reset(self.policy.command, self.policy.seconds)
        while problem is not None:
            self.tell(f"the reset of the board failed: {problem}")
            if self.fruitless >= self.policy.fruitless:
                self.give_up(f"{why}; {self.fruitless} resets in a row failed: {problem}")
                return False
            self.fruitless += 1
            problem = reset(self.policy.command, self.policy.seconds)
        self.tell(f"the board was reset, for {why}")
        return True

    def doubtful(self) -> bool:
        """Tell whether so many losses in a row are behind the board that it has to prove itself."""
        return self.fruitless >= self.policy.fruitless

    def give_up(self, reason: str) -> None:
        """Run nothing on it any more."""
        self.given_up = f"the board was given up: {reason}"
        self.tell(self.given_up)

    def advice(self) -> str:
        """Return what was done in vain, or could be."""
        if self.policy.command:
            return f"{shlex.join(self.policy.command)} does not help"
        return f"set {RESET.name} to a command that resets it"


class CarefulWorker:
    """A worker process on hardware; after a loss the board is reset before the next Job.

    It has one Job at a time: another one would be executed on a board that has just hung.
    """

    def __init__(self, start: Callable[[], WorkerProcess], board: Board) -> None:
        self._start = start
        self._board = board
        self._process = start()
        self._order: Order | None = None
        self._is_stopped = False
        self.ground = self._process.ground

    def has_room(self, order: Order) -> bool:  # noqa: ARG002 - as a WorkerProcess has it
        """Tell whether a Job may be sent now."""
        return self._order is None

    def send(self, order: Order) -> None:
        """Have a Job executed, unless the board is given up; ``receive`` tells of it."""
        self._order = order
        if self._board.given_up is None:
            self._process.send(order)

    def receive(self) -> Reply:
        """Return what came of the Job; Unable if the board is given up."""
        order, self._order = self._order, None
        assert order is not None  # noqa: S101 - one was sent; narrows the type
        if self._board.given_up is not None:
            return Unable(self._board.given_up)
        reply = self._process.receive()
        why = _loss(reply)
        if why is None:
            self._note(order, reply)
            return reply
        if not self._recovered(why) or not _is_fault(reply):
            return reply
        # The machine's doing, and the machine is well again: the Job has its chance.
        self._process.send(order)
        again = self._process.receive()
        why = _loss(again)
        if why is None:
            self._note(order, again)
        else:
            self._recovered(why)
        return again

    def end(self) -> None:
        """End the worker in order."""
        self._process.end()

    def kill(self) -> None:
        """End the worker at once; nobody waits for another Job, so nothing is reset."""
        self._is_stopped = True
        self._process.kill()

    def _note(self, order: Order, reply: Reply) -> None:
        if isinstance(reply, Answered) and reply.attempt.outcome in _RAN:
            self._board.well(order)

    def _recovered(self, why: str) -> bool:
        """Reset the board; tell whether there is hope for the next Job."""
        if self._is_stopped:
            return False
        self._process.kill()
        self._process.end()
        self._process = self._start()
        board = self._board
        if not board.reset(why):
            return False
        if not board.doubtful():
            return True
        if self._proven():
            board.fruitless = 0
            return True
        board.give_up(f"{why}; {board.fruitless} times in a row nothing ran; {board.advice()}")
        return False

    def _proven(self) -> bool:
        """Execute what ran last once more: operations may hang one after another by themselves."""
        proof = self._board.proof
        if proof is None:
            return False
        self._process.send(proof)
        reply = self._process.receive()
        return isinstance(reply, Answered) and reply.attempt.outcome in _RAN


AnyWorker: TypeAlias = "WorkerProcess | CarefulWorker"


def worker_on(ground: Ground, command: Sequence[str], board: Board) -> AnyWorker:
    """Return a worker for a ground: one that cares for its board where that is a real one."""
    if ground.device_kind is DeviceKind.HARDWARE:
        return CarefulWorker(lambda: WorkerProcess(ground, command), board)
    return WorkerProcess(ground, command)


def _loss(reply: Reply) -> str | None:
    """Return after what a board has to be reset."""
    match reply:
        case Died() | Late():
            return str(reply)
        case Answered(attempt) if attempt.outcome is Outcome.HUNG:
            return "an operation that hung"
        case Answered() if _is_fault(reply):
            return "a fault of the machine"
    return None


def _is_fault(reply: Reply) -> bool:
    """Tell whether it is the machine that failed, and in words of its own."""
    if not isinstance(reply, Answered) or reply.attempt.outcome is not Outcome.NOT_RUN:
        return False
    return machine_fault(reply.attempt.detail or "") is not None

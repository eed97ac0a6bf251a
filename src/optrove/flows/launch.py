"""Trace one target in a process of its own: start it, follow it, sum up what it did.

The process leads a session of its own, so that a timeout ends it with all that it has started;
signals that ask optrove to end are handed on to it. Its input and output are those of optrove.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.errors import OptroveError
from optrove.flows.following import Follower, Progress
from optrove.flows.outputs import Outputs
from optrove.flows.recorded import Recorded, read_directory
from optrove.flows.stores import (
    check,
    journals_beside,
    journals_in,
    keep_journals,
    known_cases,
    located,
    make_directory,
    owning,
    remove_made,
    take_in,
)
from optrove.flows.targets import Target, TargetKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from optrove.store.place import Place

_LOOK_SECONDS: Final = 0.5
_HANDED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

FAILED: Final = 1
USAGE_ERROR: Final = 4
NO_TESTS: Final = 5
"""Exit codes of pytest for a target that it does not know, and for one without tests."""


@dataclass(frozen=True, slots=True)
class Request:
    """How targets are to be traced.

    ``stdout`` is the file descriptor that the target's output goes to instead of optrove's own.
    """

    store: str | None = None
    board: str | None = None
    shadow: bool = False
    backend: str = "auto"
    model: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    outputs: Outputs = field(default_factory=Outputs)
    keep: bool = False
    timeout: float | None = None
    stdout: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process of a target ended; ``returncode`` is minus the signal that killed it."""

    returncode: int
    timeout: float | None = None
    interrupted: bool = False

    @property
    def signal(self) -> int | None:
        """The signal that killed the process."""
        return -self.returncode if self.returncode < 0 else None

    @property
    def exit_code(self) -> int:
        """The exit code to pass on: the target's own, 1 after a timeout."""
        if self.timeout is not None:
            return FAILED
        return self.returncode if self.returncode >= 0 else 128 - self.returncode

    def __str__(self) -> str:
        if self.timeout is not None:
            return f"stopped after {self.timeout:g} s (--timeout)"
        how = f"exit code {self.returncode}"
        if self.signal is not None:
            how = f"killed by signal {self.signal}{_name(self.signal)}"
        return f"interrupted, {how}" if self.interrupted else how


@dataclass(frozen=True, slots=True)
class Traced:
    """One target that was traced, and what came of it; ``journals`` is None if none are kept.

    ``store`` is the trove that has its calls; ``problem`` says why none has.
    """

    target: Target
    run_id: str
    ended: Ended
    recorded: Recorded
    seconds: float
    journals: Path | None
    store: Place | None = None
    problem: str | None = None


def trace_target(
    target: Target,
    arguments: Sequence[str],
    request: Request,
    tell: Callable[[Progress], object] = lambda _: None,
) -> Traced:
    """Trace a target, which gets ``arguments``; ``tell`` is given the progress now and then."""
    place = located(request.store)
    check(place)
    run_id = uuid.uuid4().hex
    directory = journals_beside(place) / run_id
    made = make_directory(directory)
    command = command_of(target, arguments, request, directory)
    with owning(directory):
        began = time.monotonic()
        ended = _run(command, request, Follower(directory), tell)
        seconds = time.monotonic() - began
        recorded, problem = _read(directory, place)
        if not recorded.summary.accounting.observed and not request.keep:
            remove_made(directory, made)
        elif problem is None:
            problem = _take_in(directory, place, request)
    kept = directory if directory.exists() else None
    store = place if recorded.summary.accounting.observed and problem is None else None
    return Traced(target, run_id, ended, recorded, seconds, kept, store, problem)


def _read(directory: Path, place: Place) -> tuple[Recorded, str | None]:
    """Return what was recorded, and why the trove could not be asked which cases it knows."""
    try:
        known = known_cases(place, journals_in(directory))
    except OptroveError as error:
        return read_directory(directory), _untaken(error, directory)
    return read_directory(directory, known), None


def _take_in(directory: Path, place: Place, request: Request) -> str | None:
    """Add what was recorded to the trove; return why that could not be."""
    if request.keep:
        keep_journals(directory)
    try:
        take_in(place, directory)
    except OptroveError as error:
        return _untaken(error, directory)
    return None


def _untaken(error: OptroveError, directory: Path) -> str:
    return f"{error}\nNo call is lost: the journals stay in {directory} until the trove takes them"


def command_of(
    target: Target, arguments: Sequence[str], request: Request, directory: Path
) -> list[str]:
    """Return the command of the process that traces a target into ``directory``."""
    if target.kind is TargetKind.SCRIPT:
        options = _options(request, directory, "")
        return [sys.executable, "-m", "optrove.flows.script", *options, target.name, *arguments]
    options = _options(request, directory, "optrove-")
    # By the name of its entry point, so that it is there once, also where plugins are not loaded
    # by themselves.
    plugin = ("-p", "optrove")
    return [sys.executable, "-m", "pytest", *plugin, *options, target.name, *arguments]


def _options(request: Request, directory: Path, prefix: str) -> list[str]:
    """Return what is asked for as options of the process, whose names begin with ``prefix``."""
    outputs = request.outputs
    given = {
        "journal": directory,
        "run-id": directory.name,
        "board": request.board,
        "backend": request.backend,
        "model": request.model,
        "params-dir": outputs.params_dir,
    }
    options = [f"--{prefix}{name}={value}" for name, value in given.items() if value is not None]
    options += [f"--{prefix}include={name}" for name in request.include]
    options += [f"--{prefix}exclude={name}" for name in request.exclude]
    switches = {
        "shadow": request.shadow,
        "params-values": outputs.values,
        "sketch": outputs.sketch,
    }
    options += [f"--{prefix}{name}" for name, on in switches.items() if on]
    return options if outputs.jsonl is None else [*options, f"--ops-jsonl={outputs.jsonl}"]


def _run(
    command: Sequence[str],
    request: Request,
    follower: Follower,
    tell: Callable[[Progress], object],
) -> Ended:
    deadline = None if request.timeout is None else time.monotonic() + request.timeout
    child = subprocess.Popen(command, stdout=request.stdout, start_new_session=True)  # noqa: S603 - the command is our own, what it runs is the user's wish
    with _handing_on(child) as received:
        while not _has_ended(child, _until(deadline)):
            if deadline is not None and time.monotonic() >= deadline:
                _signal(child, signal.SIGKILL)
                return Ended(child.wait(), timeout=request.timeout)
            tell(follower.look())
        return Ended(child.wait(), interrupted=bool(received))


def _has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _until(deadline: float | None) -> float:
    if deadline is None:
        return _LOOK_SECONDS
    return min(_LOOK_SECONDS, max(deadline - time.monotonic(), 0))


@contextmanager
def _handing_on(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Hand signals that ask optrove to end on to the child, and leave no child behind.

    Gives the list of the signals that came.
    """
    received: list[int] = []

    def hand_on(number: int, _: object) -> None:
        received.append(number)
        _signal(child, number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, hand_on) for number in _HANDED_ON}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if child.poll() is None:
            _signal(child, signal.SIGKILL)
            child.wait()


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    # The group is gone only after the child was waited for, so this is never another's.
    if child.poll() is None:
        os.killpg(child.pid, number)


def _name(number: int) -> str:
    known = {each.value: each.name for each in signal.Signals}
    return f" ({known[number]})" if number in known else ""

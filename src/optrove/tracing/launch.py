"""Trace one target in its own process: start it, follow its progress, add its journals.

The process leads a session of its own, so that a timeout ends it with everything that it started;
signals that ask optrove to end are passed on to it. Its input and output are those of optrove.

The progress is counted from the part of the journals that was appended since the last look; the
summary at the end is made from the whole journals.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from optrove.journal import format as layout
from optrove.settings import MODEL, with_defaults
from optrove.tracing.recorded import store_journals
from optrove.tracing.results import (
    NO_TESTS,
    USAGE_ERROR,
    ProcessEnd,
    TraceResult,
    hints,
    of_recorded,
)
from optrove.tracing.targets import TargetKind, TraceTarget
from optrove.trove.opening import check, journals_beside, located, make_directory, run_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from optrove.report.summary import TraceSummary
    from optrove.tracing.trace import TraceOptions

_SCOPE: Final = b'"scope":'
_MAX_SCOPE_CHARS: Final = 10_000
_BLOCK: Final = layout.RECORD_SIZE * 16_384


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trace has come."""

    calls: int
    calls_per_second: float
    test_id: str | None
    seconds: float


@dataclass(slots=True)
class _Growth:
    """How far one journal has been read."""

    lines: Path
    calls: int = 0
    offset: int = 0
    scope: int = 0
    scopes: dict[int, str | None] = field(default_factory=dict)

    def look(self) -> bool:
        """Read the appended records; return whether there are new calls."""
        before = self.calls
        self._look_at_lines()
        self._look_at_calls()
        return self.calls > before

    def _look_at_lines(self) -> None:
        with self.lines.open("rb") as stream:
            stream.seek(self.offset)
            added = stream.read()
        complete = added[: added.rfind(b"\n") + 1]
        self.offset += len(complete)
        for line in complete.splitlines():
            if _SCOPE in line and len(line) < _MAX_SCOPE_CHARS:
                data = json.loads(line)
                if type(data.get("scope")) is int:
                    self.scopes[data["scope"]] = data.get("test_id")

    def _look_at_calls(self) -> None:
        """Count the records up to the last one that has begun; files are longer than that."""
        with layout.calls_beside(self.lines).open("rb") as stream:
            stream.seek(layout.HEADER_SIZE + self.calls * layout.RECORD_SIZE)
            while block := stream.read(_BLOCK):
                seen = self._take_records(block)
                if seen * layout.RECORD_SIZE < len(block):
                    return

    def _take_records(self, block: bytes) -> int:
        whole = len(block) - len(block) % layout.RECORD_SIZE
        seen = 0
        for number, record in enumerate(layout.RECORD.iter_unpack(block[:whole]), start=1):
            _, _, scope, entered, *_ = record
            if entered:
                seen, self.scope = number, scope
        self.calls += seen
        return seen


class Follower:
    """Follows the journals in one directory, which may not exist yet."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._growths: dict[Path, _Growth] = {}
        self._began = self._looked = time.monotonic()
        self._calls = 0
        self._test_id: str | None = None

    def look(self) -> Progress:
        """Return how far the trace is now; the rate is that since the last look."""
        for lines in layout.find_journals(self._directory):
            growth = self._growths.setdefault(lines, _Growth(lines))
            if growth.look():
                self._test_id = growth.scopes.get(growth.scope)
        now = time.monotonic()
        calls = sum(growth.calls for growth in self._growths.values())
        rate = (calls - self._calls) / max(now - self._looked, 1e-3)
        self._calls, self._looked = calls, now
        return Progress(calls, rate, self._test_id, now - self._began)


_LOOK_SECONDS: Final = 0.5
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Request:
    """How targets are traced: the recorded calls, their trove, and the process.

    ``stdout`` is the file descriptor for the target's output; None for optrove's own.
    """

    options: TraceOptions
    store: str | None = None
    board: str | None = None
    shadow: bool = False
    sim: str | None = None
    keep: bool = False
    timeout: float | None = None
    stdout: int | None = None


def trace_target(
    target: TraceTarget,
    arguments: Sequence[str],
    request: Request,
    on_progress: Callable[[Progress], object] = lambda _: None,
) -> TraceResult:
    """Trace a target, which gets ``arguments``; report the progress every half second."""
    place = located(request.store)
    check(place)
    directory = journals_beside(place) / uuid.uuid4().hex
    made = make_directory(directory)
    command = command_of(target, arguments, request, directory)
    with run_lock(directory):
        began = time.monotonic()
        ended = _run(command, request, Follower(directory), on_progress)
        seconds = time.monotonic() - began
        recorded = store_journals(directory, place, made, keep=request.keep)
    summary, problem, options = recorded.summary, recorded.problem, request.options
    error = _error(target, ended, summary, options)
    if problem is not None and error is None:
        kept = f"the journals stay in {directory} until the trove takes them"
        error = f"{problem}\nNo recorded call is lost: {kept}"
    result = of_recorded(recorded, target.name, target.kind.value)
    model = options.model or MODEL.value
    stored = summary.accounting.observed and problem is None
    return replace(
        result,
        source=f"{target.name} [HF_MODEL:{model}]" if model else target.name,
        model=model,
        run_id=directory.name,
        board=result.board or request.board,
        ended=ended,
        seconds=round(seconds, 3),
        store=str(place) if stored else None,
        journals=directory if directory.exists() else None,
        jsonl=options.jsonl if options.jsonl and options.jsonl.exists() else None,
        params_dir=options.params_dir if options.params_dir and summary.ops else None,
        error=error,
        hints=hints(summary, ended.exit_code),
    )


def _error(
    target: TraceTarget, ended: ProcessEnd, summary: TraceSummary, options: TraceOptions
) -> str | None:
    """Return why a target counts as not traced, with advice; None if it was traced."""
    if summary.ops:
        return None
    name, accounting = target.name, summary.accounting
    if ended.interrupted:
        return f"{name!r} was interrupted before its first op call"
    if target.kind is TargetKind.PYTEST and ended.returncode in (USAGE_ERROR, NO_TESTS):
        return _nothing_ran(name, ended.returncode)
    if accounting.untraceable:
        return f"no call of {name!r} could be recorded: {accounting.untraceable[0][0]}"
    if accounting.filtered:
        reasons = ", ".join(f"{count:,}x {reason}" for reason, count in accounting.filtered)
        advice = "; widen --include or drop --exclude" if options.include or options.exclude else ""
        return f"all {accounting.observed:,} calls of {name!r} were filtered: {reasons}{advice}"
    advice = _advice(ended, summary, options.backend)
    return f"no op call was observed in {name!r} ({ended}). {advice}"


def _nothing_ran(name: str, returncode: int) -> str:
    """Return the error for a target of which pytest ran no test.

    A usage error has any cause, which pytest has told; a test that is not there is only one.
    """
    file, node, _ = name.partition("::")
    found = f"pytest found no test for {name!r}"
    if returncode == USAGE_ERROR:
        found = f"pytest ran no test of {name!r}"
        if not node:
            return f"{found}: see its error above"
    return f"{found}, see its output above; list the tests with: pytest --collect-only -q {file}"


def _advice(ended: ProcessEnd, summary: TraceSummary, backend: str) -> str:
    tests = dict(summary.tests)
    if tests and set(tests) <= {"skipped"}:
        return "All of its tests were skipped: run pytest -rs to see why."
    if summary.faults:
        return f"The tracer could not attach: {summary.faults[0][0]}"
    if ended.exit_code:
        return "It failed before its first call; see its output above."
    wanted = "ttnn or torch" if backend == "auto" else backend
    return (
        f"Does it import {wanted} and call its ops, in this process? Was the part that does "
        f"skipped? Is --backend {backend} what it uses?"
    )


def command_of(
    target: TraceTarget, arguments: Sequence[str], request: Request, directory: Path
) -> list[str]:
    """Return the command of the process that traces a target into ``directory``."""
    if target.kind is TargetKind.SCRIPT:
        flags = _flags(request, directory, "")
        return [sys.executable, "-m", "optrove.tracing.script", *flags, target.name, *arguments]
    flags = _flags(request, directory, "optrove-")
    # By the name of its entry point, so that it is loaded once, even without plugin autoloading.
    return [sys.executable, "-m", "pytest", "-p", "optrove", *flags, target.name, *arguments]


def _flags(request: Request, directory: Path, prefix: str) -> list[str]:
    """Return the request as options of the process, whose names begin with ``prefix``."""
    options = request.options
    given = {
        "journal": directory,
        "run-id": directory.name,
        "board": request.board,
        "sim": request.sim,
        "backend": options.backend,
        "level": options.level,
        "model": options.model,
        "params-dir": options.params_dir,
        "capsule-limit": options.capsule_limit,
    }
    switches = {
        "shadow": request.shadow,
        "params-values": options.params_values,
        "sketch": options.sketch,
        "flow": options.flow,
    }
    return [
        *(f"--{prefix}{name}={value}" for name, value in given.items() if value is not None),
        *(f"--{prefix}include={name}" for name in options.include),
        *(f"--{prefix}exclude={name}" for name in options.exclude),
        *(f"--{prefix}capsule={name}" for name in options.capsule),
        *(f"--{prefix}{name}" for name, on in switches.items() if on),
        *(() if options.jsonl is None else [f"--ops-jsonl={options.jsonl}"]),
    ]


def _run(
    command: Sequence[str],
    request: Request,
    follower: Follower,
    on_progress: Callable[[Progress], object],
) -> ProcessEnd:
    deadline = math.inf if request.timeout is None else time.monotonic() + request.timeout
    child = subprocess.Popen(  # noqa: S603 - the command is our own, what it runs is the user's wish
        command, stdout=request.stdout, env=with_defaults({}), start_new_session=True
    )
    with _passing_signals(child) as received:
        while not _has_ended(child, min(_LOOK_SECONDS, deadline - time.monotonic())):
            if time.monotonic() >= deadline:
                _signal(child, signal.SIGKILL)
                return ProcessEnd(child.wait(), timeout=request.timeout)
            on_progress(follower.look())
        return ProcessEnd(child.wait(), interrupted=received[0] if received else 0)


def _has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
        return False
    return True


@contextmanager
def _passing_signals(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Pass signals that ask optrove to end on to the child, and kill it if the block fails.

    Yields the list of the signals that arrived.
    """
    received: list[int] = []

    def pass_on(number: int, _: object) -> None:
        received.append(number)
        _signal(child, number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if child.poll() is None:
            _signal(child, signal.SIGKILL)
            child.wait()


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    # The group exists until the child was waited for, so it is never another process's group.
    if child.poll() is None:
        os.killpg(child.pid, number)

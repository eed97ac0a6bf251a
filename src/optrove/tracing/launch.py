"""Trace one target in its own process: start it, follow it, read its journals.

What was read once is not read again: of the calls file only the records behind the last one seen,
of the lines file only what was appended. The counts are for a person who waits; the summary at
the end is made from the whole journals.

The process leads a session of its own, so that a timeout ends it with all that it has started;
signals that ask optrove to end are handed on to it. Its input and output are those of optrove.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Container
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import BadData, BadTarget, OptroveError
from optrove.journal import format as layout
from optrove.journal.format import FORMAT, LINES
from optrove.journal.reader import JournalReader, find_journals
from optrove.report.summary import TraceSummary, summarize, summarize_lines
from optrove.serializer.op_lines import read_op_lines
from optrove.serializer.text import read
from optrove.tracing.targets import Target, TargetKind
from optrove.tracing.trace import Outputs
from optrove.trove.opening import (
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.model.records import Counts
    from optrove.trove.place import Place


# Only the line of a case begins with one of these, in whatever order its keys are written.
_CASE: Final = (b'{"case":', b'{"arguments":', b'{"op":')
_SCOPE: Final = b'"scope":'
_LONGEST_SCOPE: Final = 10_000
_BLOCK: Final = layout.RECORD_SIZE * 16_384


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a trace has come."""

    calls: int
    cases: int
    calls_per_second: float
    test_id: str | None
    seconds: float


@dataclass(slots=True)
class _Growth:
    """What has been seen of one journal."""

    lines: Path
    calls: int = 0
    cases: int = 0
    offset: int = 0
    scope: int = 0
    scopes: dict[int, str | None] = field(default_factory=dict)

    def look(self) -> bool:
        """See what has been added; tell whether there are new calls."""
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
            if line.startswith(_CASE):
                self.cases += 1
            elif _SCOPE in line and len(line) < _LONGEST_SCOPE:
                self._take_scope(line)

    def _take_scope(self, line: bytes) -> None:
        data = json.loads(line)
        if type(data.get("scope")) is int:
            self.scopes[data["scope"]] = data.get("test_id")

    def _look_at_calls(self) -> None:
        """Count the records up to the last one that has begun; files are longer than that."""
        path = self.lines.with_name(self.lines.name.removesuffix(layout.LINES) + layout.CALLS)
        if not path.exists():
            return
        with path.open("rb") as stream:
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
    """The journals in one directory, which may not be there yet."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._growths: dict[Path, _Growth] = {}
        self._began = self._looked = time.monotonic()
        self._calls = 0
        self._test_id: str | None = None

    def look(self) -> Progress:
        """Return how far the trace is now; the rate is that since the last look."""
        for lines in find_journals(self._directory):
            growth = self._growths.setdefault(lines, _Growth(lines))
            if growth.look():
                self._test_id = growth.scopes.get(growth.scope)
        now = time.monotonic()
        calls = sum(growth.calls for growth in self._growths.values())
        rate = (calls - self._calls) / max(now - self._looked, 1e-3)
        self._calls, self._looked = calls, now
        cases = sum(growth.cases for growth in self._growths.values())
        return Progress(calls, cases, rate, self._test_id, now - self._began)


Known: TypeAlias = Callable[[tuple[Path, ...]], Container[str]]

_FIRST_LINE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Sketched:
    """How many tensors of how many calls have a sketch, and why others have none."""

    calls: int = 0
    tensors: int = 0
    omitted: Counts = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was found at a place; ``journals`` are the lines files, none for op lines.

    ``in_order`` is whether all processes ended as they should, and all of their calls.
    """

    place: Path
    summary: TraceSummary
    sketched: Sketched = field(default_factory=Sketched)
    journals: tuple[Path, ...] = ()
    in_order: bool = True


def read_directory(directory: Path, known: Container[str] = ()) -> Recorded:
    """Return the sum of all journals in one directory; ``known`` are cases of before."""
    return _read_journals(directory, find_journals(directory), known)


def read_recorded(place: Path, known: Known = lambda _: ()) -> tuple[Recorded, ...]:
    """Return what was recorded at a place, a run at a time; BadTarget if nothing was.

    ``known`` tells which cases of some journals a trove has already.

    The place is a directory of journals, a directory of such directories, one lines file of a
    journal, or a file of op lines.
    """
    if place.is_dir():
        return _read_place(place, known)
    if not place.is_file():
        raise BadTarget(
            f"{str(place)!r} is neither a file nor a directory; name a directory of journals, one "
            f"{LINES} file or a file of op lines"
        )
    if place.suffix == LINES:
        return (_read_journals(place, (place,), known((place,))),)
    return (_read_lines(place),)


def _read_place(place: Path, known: Known) -> tuple[Recorded, ...]:
    inside = (each for each in sorted(place.iterdir()) if each.is_dir())
    found = [each for each in chain((place,), inside) if find_journals(each)]
    if not found:
        raise BadTarget(
            f"there are no journals ({LINES} files) in {str(place)!r}, nor one level below; name "
            f"the directory that the summary of a trace gives as its journal"
        )
    return tuple(read_directory(each, known(find_journals(each))) for each in found)


def _read_journals(place: Path, paths: Iterable[Path], known: Container[str] = ()) -> Recorded:
    # A process that was killed while it began its journal leaves a file without a line, or with a
    # part of one.
    begun = tuple(path for path in paths if b"\n" in _beginning(path))
    readers = [JournalReader(path) for path in begun]
    summary = summarize(readers, known)
    # A process that was forked off has its own number, and need not end as others do.
    ended = all(reader.ending is not None or reader.process == reader.pid for reader in readers)
    in_order = ended and not summary.in_flight
    return Recorded(place, summary, _sketched(readers), begun, in_order)


def _beginning(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.readline(_FIRST_LINE)


def _read_lines(place: Path) -> Recorded:
    try:
        first = read(_beginning(place))
    except BadData as error:
        raise _no_record(place) from error
    if type(first) is not dict or "op_name" not in first:
        raise _no_record(place, first)
    with place.open("rb") as stream:
        return Recorded(place, summarize_lines(read_op_lines(stream)))


def _no_record(place: Path, first: object = None) -> BadTarget:
    advice = f"name a directory of journals, one {LINES} file or a file of op lines"
    if type(first) is dict and first.get("format") == FORMAT:
        advice = f"it looks like a journal, whose name has to end in {LINES}"
    return BadTarget(f"{str(place)!r} does not begin as a file of op calls does; {advice}")


def _sketched(readers: Iterable[JournalReader]) -> Sketched:
    calls = tensors = 0
    omitted: Counter[str] = Counter()
    for reader in readers:
        for entries in reader.sketches.values():
            calls += 1
            for entry in entries:
                reason = entry.get("omitted")
                if reason is None:
                    tensors += 1
                else:
                    omitted[reason] += 1
    return Sketched(calls, tensors, tuple(omitted.most_common()))


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
        return [sys.executable, "-m", "optrove.tracing.script", *options, target.name, *arguments]
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

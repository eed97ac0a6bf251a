"""Sinks: receive each finished call, with its live arguments and their description; op lines."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import Counter
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from optrove.frameworks.probe_protocol import CURRENT, muted
from optrove.journal.format import FILTERED, moment_of
from optrove.serializer.describe import Describer
from optrove.serializer.hashes import CanonicalTexts
from optrove.serializer.op_lines import OpError, OpLine, op_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import FrameType

    from optrove.capture.recorder import Recorder
    from optrove.frameworks.probe_protocol import (
        Arguments,
        CachedCase,
        Call,
        FastPathState,
        Keywords,
        ObservedOp,
    )
    from optrove.model.case import NamedValues
    from optrove.model.records import CallSite, Scope
    from optrove.model.values import Value


@dataclass(frozen=True, slots=True)
class Described:
    """The recorded form of a call; ``output`` is None before it returned, and if it raised."""

    inputs: tuple[Value, ...]
    keywords: NamedValues
    output: Value | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One finished call; its live objects are only valid while the sink runs.

    ``op_index`` counts the calls of the process, ``number`` those of its test from 0, in the order
    in which they began; ``parent`` is the number of the call that made it. ``started_ns`` is
    wall-clock time since the epoch. ``case_id`` is None if the case could not be described, and
    ``described`` has the arguments as they were given; both from before the call.
    """

    op_index: int
    number: int
    process: int
    op: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    error: BaseException | None
    case_id: str | None
    described: Described
    scope: Scope
    call_site: CallSite | None
    parent: int | None
    depth: int
    started_ns: int
    duration_ns: int
    run_id: str


class Sink(Protocol):
    """Receives every finished call.

    ``completed`` runs in the thread that made the call, right after it ended; inner calls come
    before the call that made them. Calls that the sink itself makes are not observed.
    """

    def completed(self, observed: Observed) -> None:
        """Receive one finished call."""

    def close(self) -> None:
        """Close the sink; it receives no more calls."""


def described_call(
    session: Describer, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Described:
    """Describe the arguments of a call.

    Describe the result in the same session, so that a tensor has one number throughout.
    """
    return Described(
        tuple([session.describe(live) for live in arguments]),
        # By name, so that the order in which keywords were written does not matter.
        tuple([(name, session.describe(live)) for name, live in sorted(keywords.items())]),
    )


def op_error(error: BaseException) -> OpError:
    """Return the class and the message of an exception, as files have them."""
    kind = type(error)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return OpError(prefix + kind.__qualname__, str(error))


@dataclass(slots=True)
class _OpenCall:
    """A call that has not ended yet: the index of the call that made it, its test and number."""

    parent: int | None
    test_id: str | None
    number: int | None = None


class CallNumbers:
    """Numbers the calls of each test from 0, in the order in which they began.

    A call that sinks do not get has a number only if it makes one that they get.
    """

    def __init__(self) -> None:
        self._next: Counter[str | None] = Counter()
        self._open: dict[int, _OpenCall] = {}
        self._lock = Lock()

    def begin(
        self, op_index: int, parent: int | None, test_id: str | None, *, counts: bool = True
    ) -> tuple[int | None, int | None]:
        """Return the number of a call and that of the call that made it; None if it has none."""
        with self._lock:
            self._open[op_index] = _OpenCall(parent, test_id)
            if not counts:
                return None, None
            return self._number(op_index), self._number(parent)

    def end(self, op_index: int) -> None:
        """Forget a call."""
        self._open.pop(op_index, None)

    def _number(self, op_index: int | None) -> int | None:
        call = None if op_index is None else self._open.get(op_index)
        if call is None:
            return None
        if call.number is None:
            self._number(call.parent)
            call.number = self._next[call.test_id]
            self._next[call.test_id] += 1
        return call.number


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that has not ended yet; ``entered`` is the recorder's part of it."""

    entered: Any
    observed: ObservedOp
    call: Call
    session: Describer
    described: Described
    scope: Scope
    number: int | None
    parent: int | None
    depth: int
    call_site: CallSite | None
    wall_ns: int
    clock_ns: int


class Observing:
    """A listener that records each call and hands it to sinks; slow: it describes every call."""

    fast_path_state: FastPathState | None = None

    def __init__(
        self, recorder: Recorder, sinks: Sequence[Sink], run_id: str, scope: Callable[[], Scope]
    ) -> None:
        self.site = recorder.site
        self.flow_windows = recorder.flow_windows
        self.add_flow = recorder.add_flow
        self.outputs = recorder.outputs
        self.error = recorder.error
        self._recorder = recorder
        self._sinks = sinks
        self._run_id = run_id
        self._scope = scope
        self._numbers = CallNumbers()

    def begin(
        self,
        observed: ObservedOp,
        arguments: Arguments,
        keywords: Keywords,
        frame: FrameType | None,
    ) -> _Begun | None:
        """Record that a call begins; never raises."""
        above, depth = CURRENT.get() or (0, 0)
        entered = self._recorder.begin(observed, arguments, keywords, frame)
        if entered is None:
            return None
        recorder = self._recorder
        with muted():
            session = Describer(recorder.tables(), cache=recorder.cache, recipes=recorder.recipes)
            described = described_call(session, arguments, keywords)
        scope = self._scope()
        counts = entered[0].kind != FILTERED
        parent = above - 1 if above else None
        numbers = self._numbers.begin(entered[-1], parent, scope.test_id, counts=counts)
        site, call = recorder.locate(frame), (arguments, keywords)
        clock = time.time_ns(), time.perf_counter_ns()
        return _Begun(
            *(entered, observed, call, session, described, scope), *numbers, depth, site, *clock
        )

    def end(self, begun: _Begun | None, result: Any) -> None:
        """Record that a call returned; never raises."""
        stopped = time.perf_counter_ns()
        if begun is not None:
            self._recorder.end(begun.entered, result)
            with muted():
                described = replace(begun.described, output=begun.session.describe(result))
            self._hand_over(begun, described, stopped, result, None)

    def fail(self, begun: _Begun | None, error: BaseException) -> None:
        """Record that a call raised; never raises."""
        stopped = time.perf_counter_ns()
        if begun is not None:
            self._recorder.fail(begun.entered, error)
            self._hand_over(begun, begun.described, stopped, None, error)

    def _hand_over(
        self,
        begun: _Begun,
        described: Described,
        stopped: int,
        result: Any,
        error: BaseException | None,
    ) -> None:
        known: CachedCase = begun.entered[0]
        op_index = begun.entered[-1]
        self._numbers.end(op_index)
        if begun.number is None:
            return
        observed = Observed(
            op_index=op_index,
            number=begun.number,
            process=self._recorder.process,
            op=begun.observed.op,
            arguments=begun.call[0],
            keywords=begun.call[1],
            result=result,
            error=error,
            case_id=known.case_id,
            described=described,
            scope=begun.scope,
            call_site=begun.call_site,
            parent=begun.parent,
            depth=begun.depth,
            started_ns=begun.wall_ns,
            duration_ns=stopped - begun.clock_ns,
            run_id=self._run_id,
        )
        for sink in self._sinks:
            self._give(sink, observed)

    def _give(self, sink: Sink, observed: Observed) -> None:
        try:
            with muted():
                sink.completed(observed)
        except Exception as trouble:  # noqa: BLE001 - the recorder's border: counted, reported at the end, and the program goes on
            self._recorder.fault(f"{type(sink).__name__} of {observed.op}", trouble)


class OpLineWriter:
    """The sink of ``--ops-jsonl``: one JSON line per call, as soon as the call has ended.

    Every line is one ``write`` to a file opened for appending, so that the processes of one session
    share a file, and a killed process leaves at most its last line incomplete. OSError if the file
    cannot be opened or written.
    """

    __slots__ = ("_descriptor", "_texts")

    def __init__(self, path: Path) -> None:
        self._texts = CanonicalTexts()
        self._descriptor: int | None = _open(path)

    def completed(self, observed: Observed) -> None:
        """Append the line of one call."""
        if self._descriptor is None:
            raise ValueError("a call was handed to --ops-jsonl after its file was closed")
        _append(self._descriptor, op_line(self._line(observed), self._texts))

    def close(self) -> None:
        """Close the file; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _line(self, observed: Observed) -> OpLine:
        described, scope = observed.described, observed.scope
        return OpLine(
            run_id=observed.run_id,
            test_id=scope.test_id,
            module=scope.module,
            op_index=observed.number,
            op=observed.op,
            inputs=described.inputs,
            keywords=described.keywords,
            output=described.output,
            error=None if observed.error is None else op_error(observed.error),
            parent=observed.parent,
            depth=observed.depth,
            process=observed.process,
            started_at=moment_of(observed.started_ns),
            duration_ms=observed.duration_ns / 1e6,
            case_id=observed.case_id,
            phase=scope.phase,
            mode=scope.mode,
            call_site=observed.call_site,
        )


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    status = os.fstat(descriptor)
    incomplete = (
        stat.S_ISREG(status.st_mode)
        and status.st_size > 0
        and os.pread(descriptor, 1, status.st_size - 1) != b"\n"
    )
    if incomplete:
        # If another process was still writing that line, this becomes an empty line after it.
        os.write(descriptor, b"\n")
    return descriptor


def _append(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    if written == len(line):
        return
    # Ends the incomplete line, so that the next one is whole; on a full disk this raises.
    os.write(descriptor, b"\n")
    raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes of a line were written")

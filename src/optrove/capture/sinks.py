"""Sinks: receive each finished call with its live arguments and their description."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from optrove.frameworks.probe_protocol import CURRENT, muted
from optrove.journal.format import FILTERED
from optrove.serializer.describe import Describer
from optrove.serializer.op_lines import OpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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
    from optrove.model.case import Case, NamedValues
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

    ``op_index`` and ``parent`` count the calls of the process. ``started_ns`` is wall-clock time
    since the epoch. ``case`` is the recorder's Case, None if it could not be described, and
    ``described`` has the arguments as they were given; both from before the call.
    """

    op_index: int
    process: int
    op: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    error: BaseException | None
    case: Case | None
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


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that has not ended yet; ``entered`` is the recorder's part of it."""

    entered: Any
    observed: ObservedOp
    call: Call
    session: Describer
    described: Described
    above: tuple[int, int] | None
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
        self.outputs = recorder.outputs
        self.error = recorder.error
        self._recorder = recorder
        self._sinks = sinks
        self._run_id = run_id
        self._scope = scope

    def begin(
        self,
        observed: ObservedOp,
        arguments: Arguments,
        keywords: Keywords,
        frame: FrameType | None,
    ) -> _Begun | None:
        """Record that a call begins; never raises."""
        above = CURRENT.get()
        entered = self._recorder.begin(observed, arguments, keywords, frame)
        if entered is None:
            return None
        recorder = self._recorder
        with muted():
            session = Describer(recorder.tables(), cache=recorder.cache, recipes=recorder.recipes)
            described = described_call(session, arguments, keywords)
        site, call = recorder.locate(frame), (arguments, keywords)
        clock = time.time_ns(), time.perf_counter_ns()
        return _Begun(entered, observed, call, session, described, above, site, *clock)

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
        if known.kind == FILTERED:
            return
        parent, depth = begun.above or (0, 0)
        observed = Observed(
            op_index=begun.entered[-1],
            process=self._recorder.process,
            op=begun.observed.op,
            arguments=begun.call[0],
            keywords=begun.call[1],
            result=result,
            error=error,
            case=known.case,
            described=described,
            scope=self._scope(),
            call_site=begun.call_site,
            parent=parent - 1 if parent else None,
            depth=depth,
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

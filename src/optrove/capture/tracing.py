"""Attach probes as frameworks get imported, and detach them.

One trace at a time, because the probes are patches of the whole process. A second one is refused
(AlreadyTracing). A process that was forked off goes on in a journal of its own.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from optrove.capture.recorder import Recorder
from optrove.capture.sinks import DescribedCall, Observed
from optrove.errors import AlreadyTracing, UnusableJournal
from optrove.frameworks.import_hooks import when_imported
from optrove.frameworks.probe_protocol import CONFIG_UNPACKING, CURRENT, muted
from optrove.journal.format import FILTERED
from optrove.journal.writer import Journal
from optrove.model.records import Scope
from optrove.serializer.describe import Describer
from optrove.serializer.records import record_to_builtins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import FrameType, ModuleType

    from optrove.capture.sinks import Described, Sink
    from optrove.frameworks.probe_protocol import (
        Arguments,
        CachedCase,
        Call,
        FastPathState,
        Keywords,
        Listener,
        ObservedOp,
    )
    from optrove.model.records import CallSite, DeviceParameters, Run, TestResult
    from optrove.serializer.text import Json


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that was told to the recorder and has not ended yet."""

    entered: Any
    observed: ObservedOp
    call: Call
    described: DescribedCall
    above: tuple[int, int] | None
    call_site: CallSite | None
    wall_ns: int
    clock_ns: int


class Observing:
    """A listener in front of a recorder; slow, as every call is described."""

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
        self, observed: ObservedOp, arguments: Arguments, keywords: Keywords, frame: FrameType
    ) -> _Begun | None:
        """Note that a call begins; never raises."""
        above = CURRENT.get()
        entered = self._recorder.begin(observed, arguments, keywords, frame)
        if entered is None:
            return None
        recorder = self._recorder
        with muted():
            session = Describer(recorder.tables(), cache=recorder.cache, recipes=recorder.recipes)
            described = DescribedCall(session, arguments, keywords)
        site, call = recorder.locate(frame), (arguments, keywords)
        clock = time.time_ns(), time.perf_counter_ns()
        return _Begun(entered, observed, call, described, above, site, *clock)

    def end(self, begun: _Begun | None, result: Any) -> None:
        """Note that a call has returned; never raises."""
        stopped = time.perf_counter_ns()
        if begun is not None:
            self._recorder.end(begun.entered, result)
            with muted():
                described = begun.described.returned(result)
            self._hand_over(begun, described, stopped, result, None)

    def fail(self, begun: _Begun | None, error: BaseException) -> None:
        """Note that a call has raised; never raises."""
        stopped = time.perf_counter_ns()
        if begun is not None:
            self._recorder.fail(begun.entered, error)
            self._hand_over(begun, begun.described.raised(), stopped, None, error)

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
        scope = self._scope()
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
            test_id=scope.test_id,
            phase=scope.phase,
            module=scope.module,
            mode=scope.mode,
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
        except Exception as trouble:  # noqa: BLE001 - the recorder's border: counted, told at the end, and the program goes on
            self._recorder.fault(f"{type(sink).__name__} of {observed.op}", trouble)


BACKENDS: Final = ("auto", "ttnn", "torch")


class _Active:
    """The trace of this process, if there is one; the lock makes sure that there is one only."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.tracing: Tracing | None = None


# Of the process, as the patches are.
_ACTIVE: Final = _Active()


def active_tracing() -> Tracing | None:
    """Return the trace that is on in this process."""
    return _ACTIVE.tracing


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be traced: which framework's operations, and which of them not."""

    backend: str = "auto"
    left_out: Callable[[str], str | None] = lambda _: None


EVERYTHING: Final = Wanted()


class Tracing:
    """The tracing of one process, from ``start`` to ``stop``."""

    def __init__(
        self,
        directory: Path,
        run: Run,
        *,
        wanted: Wanted = EVERYTHING,
        sinks: Sequence[Sink] = (),
        process: int = 0,
        settle: Callable[[Run], Run] = lambda run: run,
    ) -> None:
        """Trace into journals in ``directory``; ``settle`` completes the run when it ends."""
        self.directory = directory
        self.run = run
        self._wanted = wanted
        self._sinks = tuple(sinks)
        self._process = process
        self._settle = settle
        self._scope = Scope()
        self._afterwards = ExitStack()
        self._undo = ExitStack()
        self._torch: Any = None
        self._ttnn = False
        self.recorder: Recorder
        self.journal: Journal

    def start(self) -> None:
        """Begin; AlreadyTracing or UnusableJournal when that cannot be."""
        with _ACTIVE.lock:
            if _ACTIVE.tracing is not None:
                raise AlreadyTracing(
                    f"this process is already being traced into {_ACTIVE.tracing.directory}; "
                    f"end that trace first, or leave one of the two out"
                )
            self.journal = Journal(self.directory, self._process, self._first_line())
            _ACTIVE.tracing = self
        self.recorder = Recorder(
            self.journal, left_out=self._wanted.left_out, keep_cases=bool(self._sinks)
        )
        # Registered for good, so it must not keep what the trace holds.
        alive = ref(self)
        os.register_at_fork(after_in_child=lambda: _after_fork(alive()))
        self._listener: Listener = self.recorder
        if self._sinks:
            self._listener = Observing(self.recorder, self._sinks, self.run.id, lambda: self._scope)
        CONFIG_UNPACKING.on_unpack = self.recorder.marks.unpacked
        self._wait_for_frameworks()

    def stop(self, exit_code: int | None = None) -> None:
        """Take everything back and close the journal; does nothing the second time."""
        with _ACTIVE.lock:
            if _ACTIVE.tracing is not self:
                return
            _ACTIVE.tracing = None
        CONFIG_UNPACKING.on_unpack = None
        self._undo.close()
        self.recorder.close()
        finished_at = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"
        run = replace(self._settle(self.run), finished_at=finished_at, exit_code=exit_code)
        end = {
            "finished_at": finished_at,
            "exit_code": exit_code,
            "faults": dict(self.recorder.faults),
        }
        try:
            self.journal.write({"run": record_to_builtins(run)})
            self.journal.write({"end": end})
        except OSError as error:
            self.recorder.fault("the end of the journal", error)
        finally:
            self.journal.close()
            for sink in self._sinks:
                sink.close()
            self._afterwards.close()

    def on_stop(self, action: Callable[[], object]) -> None:
        """Do something when the trace has ended and its files are closed."""
        self._afterwards.callback(action)

    def enter(self, scope: Scope) -> None:
        """Attribute the calls from now on to a test; the device stays as it is."""
        self._scope = replace(scope, device=self._scope.device)
        self.recorder.set_scope(self._scope)

    def record_test(self, result: TestResult) -> None:
        """Note how a test ended."""
        try:
            self.journal.write({"test": record_to_builtins(result)})
        except OSError as error:
            self.recorder.fault(f"the result of {result.test_id}", error)

    def _first_line(self) -> Json:
        return {"run": record_to_builtins(self.run)}

    def _wait_for_frameworks(self) -> None:
        wanted = self._wanted.backend
        if wanted in ("auto", "ttnn"):
            self._when_imported("ttnn", self._attach_ttnn)
        if wanted in ("auto", "torch"):
            self._when_imported("torch", self._attach_torch)

    def _when_imported(self, name: str, attach: Callable[[ModuleType], None]) -> None:
        stop = when_imported(
            name, attach, on_fault=lambda error: self.recorder.fault(f"attaching to {name}", error)
        )
        self._undo.callback(stop)

    def _attach_ttnn(self, ttnn: ModuleType) -> None:
        from optrove.frameworks.ttnn.probe.probe import attach

        self._ttnn = True
        if self._torch is not None and self._wanted.backend == "auto":
            # What a model of ttnn does in torch is its reference.
            self._torch.pause()
        attachment = attach(ttnn, self._listener, self.recorder, self._device_opened)
        self._undo.callback(attachment.remove)

    def _attach_torch(self, torch: ModuleType) -> None:
        from optrove.frameworks.torch.probe import TorchProbe

        if self._ttnn and self._wanted.backend == "auto":
            return
        self._torch = TorchProbe(torch, self._listener)
        self._torch.install()
        self.recorder.tidy.append(self._torch.fingerprints.tidy)
        self._undo.callback(self._torch.remove)

    def _device_opened(self, device: DeviceParameters | None) -> None:
        self._scope = replace(self._scope, device=device)
        self.recorder.set_scope(self._scope)

    def continue_in_child(self) -> None:
        """Begin a journal of this process, which was forked off; without one, trace no more."""
        try:
            self.journal = Journal(self.directory, os.getpid(), self._first_line())
        except UnusableJournal:
            # The records of the other process are not to be written by two.
            self.recorder.close()
            raise
        self.recorder.continue_in(self.journal)
        self.recorder.set_scope(self._scope)


def _after_fork(tracing: Tracing | None) -> None:
    if tracing is None:
        return
    # Also of a trace that was just being stopped by a thread that is not here.
    tracing.journal.leave_to_parent()
    if _ACTIVE.tracing is tracing:
        tracing.continue_in_child()

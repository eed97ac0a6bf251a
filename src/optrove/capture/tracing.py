"""Switch tracing on and off: attach probes when frameworks are imported, and detach them.

A process has one trace at a time, because the probes patch the whole process; a second one is
refused (AlreadyTracing). A forked process continues in its own journal.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from optrove.capture.capsules import Capsules
from optrove.capture.recorder import Recorder
from optrove.capture.runs import with_board
from optrove.capture.sinks import Observing
from optrove.errors import AlreadyTracing, UnusableJournal
from optrove.frameworks.import_hooks import when_imported
from optrove.frameworks.probe_protocol import ATEN, CONFIG_UNPACKING
from optrove.frameworks.ttnn.board.mock import device_in_use
from optrove.journal.writer import Journal
from optrove.model.records import NOT_COMPARED, NOT_MODELED, TORCH_LIBRARIES, DeviceKind, Scope, now
from optrove.serializer.records import record_to_builtins
from optrove.serializer.text import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import ModuleType

    from optrove.capture.sinks import Sink
    from optrove.frameworks.probe_protocol import Listener
    from optrove.model.capsules import CapsuleChoice
    from optrove.model.records import DeviceParameters, Facts, Run, TestResult
    from optrove.serializer.text import Json


BACKENDS: Final = ("auto", "ttnn", "torch")


class _Active:
    """The trace of this process, if there is one; the lock makes sure that it is the only one."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.tracing: Tracing | None = None


# One per process, as the patches are.
_ACTIVE: Final = _Active()


def active_tracing() -> Tracing | None:
    """Return the trace that is on in this process."""
    return _ACTIVE.tracing


class Tracing:
    """The tracing of one process, from ``start`` to ``stop``."""

    def __init__(  # noqa: PLR0913 - the parts of a trace
        self,
        directory: Path,
        run: Run,
        *,
        backend: str = "auto",
        left_out: Callable[[str], str | None] = lambda _: None,
        sinks: Sequence[Sink] = (),
        process: int = 0,
        level: str = ATEN,
        capsules: CapsuleChoice | None = None,
        flow: bool = False,
        meanwhile: Callable[[Tracing], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Trace into journals in ``directory``.

        ``backend`` is one of BACKENDS, ``level`` one of LEVELS; ``left_out`` returns the reason why
        an op is not recorded, or None. ``capsules`` are the calls whose tensors are kept. With
        ``flow``, record which output became which input. The context manager of ``meanwhile`` is
        entered while the trace is on.
        """
        self.directory = directory
        self.run = run
        self._backend = backend
        self._left_out = left_out
        self._sinks = tuple(sinks)
        self._process = process
        self._level = level
        self._choice = capsules
        self._flow = flow
        self._meanwhile = meanwhile
        self._scope = Scope()
        self._afterwards = ExitStack()
        self._undo = ExitStack()
        self._torch: Any = None
        self._ttnn = False
        self._capsules: Capsules | None = None
        self.recorder: Recorder
        self.journal: Journal

    def start(self) -> None:
        """Start tracing; raise AlreadyTracing or UnusableJournal if that is not possible."""
        with _ACTIVE.lock:
            if _ACTIVE.tracing is not None:
                raise AlreadyTracing(
                    f"this process is already being traced into {_ACTIVE.tracing.directory}; "
                    f"end that trace first, or leave one of the two out"
                )
            self.journal = Journal(self.directory, self._process, self._first_line())
            _ACTIVE.tracing = self
        self._capsules = self._new_capsules()
        self.recorder = Recorder(
            self.journal,
            left_out=self._left_out,
            keep_cases=bool(self._sinks),
            capsules=self._capsules,
            flow=self._flow,
        )
        # Cannot be unregistered, so it must not keep the trace alive.
        alive = ref(self)
        os.register_at_fork(after_in_child=lambda: _after_fork(alive()))
        self._listener: Listener = self.recorder
        if self._sinks:
            self._listener = Observing(self.recorder, self._sinks, self.run.id, lambda: self._scope)
        CONFIG_UNPACKING.on_unpack = self.recorder.marks.unpacked
        self._undo.enter_context(self._meanwhile(self))
        self._wait_for_frameworks()

    def stop(self, exit_code: int | None = None) -> None:
        """Detach the probes and close the journal; does nothing the second time."""
        with _ACTIVE.lock:
            if _ACTIVE.tracing is not self:
                return
            _ACTIVE.tracing = None
        CONFIG_UNPACKING.on_unpack = None
        self._undo.close()
        self.recorder.close()
        finished_at = now()
        run = replace(
            with_board(self.run),
            finished_at=finished_at,
            exit_code=exit_code,
            provenance=(*self.run.provenance, *self._libraries(), *_hardware_facts()),
        )
        end = {
            "finished_at": finished_at,
            "exit_code": exit_code,
            "faults": dict(self.recorder.faults),
        }
        try:
            self.journal.write({"run": record_to_builtins(run)})
            if self._capsules is not None:
                self.journal.write({"capsules": self._capsules.ending()})
            self.journal.write({"end": end})
        except OSError as error:
            self.recorder.fault("the end of the journal", error)
        finally:
            self.journal.close()
            for sink in self._sinks:
                sink.close()
            self._afterwards.close()

    def _libraries(self) -> Facts:
        """Return the modules that registered operations of torch which are not torch's own."""
        found = {} if self._torch is None else self._torch.libraries
        return ((TORCH_LIBRARIES, write(found)),) if found else ()

    def on_stop(self, action: Callable[[], object]) -> None:
        """Run ``action`` when the trace has ended and its files are closed."""
        self._afterwards.callback(action)

    def enter(self, scope: Scope) -> None:
        """Attribute the following calls to a test; the device stays the same."""
        self._scope = replace(scope, device=self._scope.device)
        self.recorder.set_scope(self._scope)

    def record_test(self, result: TestResult) -> None:
        """Record the result of a test."""
        try:
            self.journal.write({"test": record_to_builtins(result)})
        except OSError as error:
            self.recorder.fault(f"the result of {result.test_id}", error)

    def _new_capsules(self) -> Capsules | None:
        if self._choice is None:
            return None
        journal = self.journal
        return Capsules(self.directory, journal.path.name, self._choice, journal.write)

    def _first_line(self) -> Json:
        return {"run": record_to_builtins(self.run)}

    def _wait_for_frameworks(self) -> None:
        if self._backend in ("auto", "ttnn"):
            self._when_imported("ttnn", self._attach_ttnn)
        if self._backend in ("auto", "torch"):
            self._when_imported("torch", self._attach_torch)

    def _when_imported(self, name: str, attach: Callable[[ModuleType], None]) -> None:
        stop = when_imported(
            name, attach, on_fault=lambda error: self.recorder.fault(f"attaching to {name}", error)
        )
        self._undo.callback(stop)

    def _attach_ttnn(self, ttnn: ModuleType) -> None:
        from optrove.frameworks.ttnn.probe.probe import attach

        self._ttnn = True
        if self._torch is not None and self._backend == "auto":
            # The torch calls of a ttnn model are its reference.
            self._torch.pause()
        attachment = attach(ttnn, self._listener, self.recorder, self._device_opened)
        self._undo.callback(attachment.remove)

    def _attach_torch(self, torch: ModuleType) -> None:
        from optrove.frameworks.torch.probe import TorchProbe

        if self._ttnn and self._backend == "auto":
            return
        self._torch = TorchProbe(torch, self._listener, level=self._level)
        self._torch.install(in_forks=True)
        self.recorder.tidy.append(self._torch.fingerprints.tidy)
        self._undo.callback(self._torch.remove)

    def _device_opened(self, device: DeviceParameters | None) -> None:
        self._scope = replace(self._scope, device=device)
        self.recorder.set_scope(self._scope)

    def continue_in_child(self) -> None:
        """Start a journal for this forked process; stop tracing if there can be no journal."""
        try:
            self.journal = Journal(self.directory, os.getpid(), self._first_line())
        except UnusableJournal:
            # Two processes must not write to one journal.
            self.recorder.close()
            raise
        self._capsules = self._new_capsules()
        self.recorder.continue_in(self.journal, self._capsules)
        self.recorder.set_scope(self._scope)


def _hardware_facts() -> Facts:
    """Return the calls that hardware numerics may have computed wrongly, if they are on."""
    if (device_in_use() or ("",))[0] is not DeviceKind.SHADOW:
        return ()
    from optrove.frameworks.ttnn.shadow.shadow import active_report

    report = active_report()
    if report is None:
        return ()
    found = {NOT_MODELED: report.not_modeled, NOT_COMPARED: report.not_compared}
    counts = {fact: {op: n for op, n in each.items() if n} for fact, each in found.items()}
    return tuple((fact, write(each)) for fact, each in counts.items() if each)


def _after_fork(tracing: Tracing | None) -> None:
    if tracing is None:
        return
    # Also for a trace that another thread was stopping; that thread is not in this process.
    tracing.journal.leave_to_parent()
    if _ACTIVE.tracing is tracing:
        tracing.continue_in_child()

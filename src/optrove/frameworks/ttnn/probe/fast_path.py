"""Record repeated calls as fast as possible, and leave all others to a fallback.

There are two implementations with identical behavior: one in C (``frameworks/_fast_path.c``), which
is built where a compiler exists, and one in Python for everywhere else. ttnn evicts the processor's
caches between two calls, so every lookup here costs several times what it costs in a loop alone.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from optrove.frameworks.extensions import load_extension
from optrove.frameworks.probe_protocol import CURRENT, SEQUENCE, CachedCase
from optrove.journal.flow import TTNN_NUMBERS, PythonStream
from optrove.journal.format import ENTRY, EXIT, EXIT_OFFSET, RAISED, RETURNED

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from optrove.frameworks.probe_protocol import (
        FastPathState,
        FlowStream,
        Listener,
        ObservedOp,
    )
    from optrove.frameworks.ttnn.probe.fingerprints import TtnnFingerprints

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

_extension: Any = load_extension("_fast_path")


def is_native() -> bool:
    """Return whether the C extension records calls."""
    return _extension is not None


def int_table() -> MutableMapping[int, int]:
    """Return an empty mapping to integers other than zero, which the C extension can read."""
    return {} if _extension is None else _extension.IntTable()


def flow_stream(listener: Listener, tensor: Any) -> FlowStream | None:
    """Return a stream for the flow of ttnn's tensors; None if it is not recorded."""
    if listener.flow_windows is None:
        return None
    stream: Any = (PythonStream if _extension is None else _extension.Stream)(
        next_window=listener.flow_windows,
        number_of=_getter(tensor, "tensor_id"),
        buffer_of=tensor.buffer_unique_id,
        first=TTNN_NUMBERS,
        weak=False,
    )
    stream.watch(tensor)
    listener.add_flow(stream)
    found: FlowStream = stream
    return found


@dataclass(frozen=True, slots=True)
class FastPaths:
    """Make the fast paths of one probe's operations; ``native`` is their state in C, or None."""

    listener: Listener
    state: FastPathState
    fingerprints: TtnnFingerprints
    tensor: type
    native: Any

    @classmethod
    def of(
        cls,
        listener: Listener,
        state: FastPathState,
        fingerprints: TtnnFingerprints,
        tensor: type,
        flow: FlowStream | None = None,
    ) -> FastPaths:
        """Return the fast paths of a probe, in C if the extension is there."""
        native = None
        if _extension is not None:
            native = _extension.ProbeState(
                shared=state,
                cached_case=CachedCase,
                tensor_parts=fingerprints.tensor_parts,
                object_parts=fingerprints.object_parts,
                rules=fingerprints.rules,
                have_own_buffers=fingerprints.have_own_buffers,
                tensor=tensor,
                spec_of=_getter(tensor, "spec"),
                id_of=_getter(tensor, "tensor_id"),
                current=CURRENT,
                sites=state.sites,
                site_of=listener.site,
                outputs=listener.outputs,
                error=listener.error,
                flow=flow,
            )
        return cls(listener, state, fingerprints, tensor, native)

    def wrap(
        self, observed: ObservedOp, function: Any, fallback: Any, frames: int, *, invalidates: bool
    ) -> Any:
        """Return a replacement of ``function`` that records repeated calls itself.

        All other calls go to ``fallback``. The caller is ``frames`` above the replacement. An
        operation that ``invalidates`` its tensors makes everything known about them void.
        """
        if self.native is None:
            return self._wrap_in_python(
                observed, function, fallback, frames, invalidates=invalidates
            )
        return _extension.FastPath(
            state=self.native,
            op=observed.op,
            function=function,
            fallback=fallback,
            observed=observed,
            depth=frames - 1,  # it has no frame of its own
            invalidates=invalidates,
        )

    def _wrap_in_python(
        self, observed: ObservedOp, function: Any, fallback: Any, frames: int, *, invalidates: bool
    ) -> Any:
        listener, state, fingerprints = self.listener, self.state, self.fingerprints
        sites, site_of = state.sites, listener.site
        key_of, tensor_parts = fingerprints.fast_key(observed.op), fingerprints.tensor_parts
        tensor: Any = self.tensor
        frame_above, clock, current = sys._getframe, time.perf_counter_ns, CURRENT.get  # noqa: SLF001 - the only way to the caller's line
        write_entry, write_exit = ENTRY.pack_into, EXIT.pack_into

        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                frame = frame_above(frames)
            except ValueError:  # no Python code called, as at exit
                return fallback(None, arguments, keywords)
            if current() is not None:
                return fallback(frame, arguments, keywords)
            try:
                cached = state.cached_cases[key_of(arguments, keywords)]
                lines = sites.get(id(frame.f_code))
                site = lines[frame.f_lasti] if lines is not None else site_of(frame)
                window = state.window
                place = window.take()
            except Exception:  # noqa: BLE001 - the fallback handles, or counts, whatever is unknown here
                return fallback(frame, arguments, keywords)
            if invalidates:
                fingerprints.forget_all((arguments, keywords))
            memory = window.memory
            write_entry(memory, place, cached.word, site, state.scope, clock())
            try:
                result = function(*arguments, **keywords)
            except BaseException as error:
                self._note_error(memory, place, error)
                raise
            stopped, outputs = clock(), 0
            try:
                is_usual, part, number = cached.usual
                if type(result) is tensor and part != SEQUENCE and is_usual(result.spec):
                    tensor_parts[result.tensor_id] = part
                    outputs = number
                elif result is not None:
                    outputs = listener.outputs(observed, cached, result, (arguments, keywords))
            finally:  # also when the program is interrupted meanwhile
                write_exit(memory, place + EXIT_OFFSET, stopped, outputs, RETURNED)
            return result

        return call

    def _note_error(self, memory: Any, place: int, error: BaseException) -> None:
        stopped, number = time.perf_counter_ns(), 0
        try:
            number = self.listener.error(error)
        finally:  # also when the program is interrupted meanwhile
            EXIT.pack_into(memory, place + EXIT_OFFSET, stopped, number, RAISED)


def _getter(kind: type, name: str) -> Any:
    """Return a function that reads an attribute: the property's own function if it is one."""
    found = getattr(kind, name, None)
    return found.fget if type(found) is property and found.fget else attrgetter(name)

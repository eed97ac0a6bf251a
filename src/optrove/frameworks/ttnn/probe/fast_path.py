"""Record a call as quickly as possible, and leave unusual ones to others.

There are two of it that do the same: one in C (``frameworks/_hurry.c``), which is built where there
is a compiler, and one in Python for everywhere else. ttnn empties the processor's caches between
two calls, so that every look-up here costs several times what it costs in a loop of its own.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from optrove.frameworks.probe_protocol import CURRENT, SEQUENCE, Known
from optrove.journal.format import ENTRY, EXIT, EXIT_OFFSET, RAISED, RETURNED

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module


try:
    from optrove.frameworks import _hurry
except ImportError:  # there was no compiler when optrove was installed
    _hurry = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from optrove.frameworks.probe_protocol import Form, Listener, Slots
    from optrove.frameworks.ttnn.probe.fingerprints import TtnnFingerprints


def is_native() -> bool:
    """Tell whether calls are recorded by the part that is written in C."""
    return _hurry is not None


def numbers() -> MutableMapping[int, int]:
    """Return an empty table of numbers other than zero, which the part in C reads by itself."""
    return {} if _hurry is None else _hurry.Numbers()


@dataclass(frozen=True, slots=True)
class Hurry:
    """What all operations of one probe have in common; ``native`` chooses the part in C."""

    listener: Listener
    slots: Slots
    fingerprints: TtnnFingerprints
    tensor: type
    native: Any

    def watch(self, form: Form, function: Any, general: Any, frames: int, *, ends: bool) -> Any:
        """Return what records calls of ``function`` and leaves unknown ones to ``general``.

        ``frames`` says how far above it the caller is. After an operation that ``ends`` its
        tensors nothing is known about them.
        """
        if self.native is not None:
            return self._in_c(form, function, general, frames, ends=ends)
        return self._in_python(form, function, general, frames, ends=ends)

    def _in_c(self, form: Form, function: Any, general: Any, frames: int, *, ends: bool) -> Any:
        return _hurry.Hurried(
            desk=self.native,
            op=form.op,
            function=function,
            general=general,
            form=form,
            depth=frames - 1,  # it has no frame of its own
            forgets=ends,
        )

    def _in_python(
        self, form: Form, function: Any, general: Any, frames: int, *, ends: bool
    ) -> Any:
        listener, slots, fingerprints = self.listener, self.slots, self.fingerprints
        sites, site_of = slots.sites, listener.site
        key_of, facts = fingerprints.hurried(form.op), fingerprints.facts
        tensor: Any = self.tensor
        frame_above, clock, current = sys._getframe, time.perf_counter_ns, CURRENT.get  # noqa: SLF001 - the only way to the caller's line
        write_entry, write_exit = ENTRY.pack_into, EXIT.pack_into

        def call(*arguments: Any, **keywords: Any) -> Any:
            try:
                frame = frame_above(frames)
            except ValueError:  # no Python code has called, as at exit
                return general(None, arguments, keywords)
            if current() is not None:
                return general(frame, arguments, keywords)
            try:
                known = slots.known[key_of(arguments, keywords)]
                lines = sites.get(id(frame.f_code))
                site = lines[frame.f_lasti] if lines is not None else site_of(frame)
                window = slots.window
                place = window.take()
            except Exception:  # noqa: BLE001 - whatever is unknown here, the other way finds out or counts
                return general(frame, arguments, keywords)
            if ends:
                fingerprints.forget_all((arguments, keywords))
            memory = window.memory
            write_entry(memory, place, known.word, site, slots.scope, clock())
            try:
                result = function(*arguments, **keywords)
            except BaseException as error:
                self._note_error(memory, place, error)
                raise
            stopped, outputs = clock(), 0
            try:
                is_usual, part, number = known.usual
                if type(result) is tensor and part != SEQUENCE and is_usual(result.spec):
                    facts[result.tensor_id] = part
                    outputs = number
                elif result is not None:
                    outputs = listener.outputs(form, known, result, (arguments, keywords))
            finally:  # also when the program is interrupted meanwhile
                write_exit(memory, place + EXIT_OFFSET, stopped, outputs, RETURNED)
            return result

        return call

    def _note_error(self, memory: Any, place: int, error: BaseException) -> None:
        stopped, number = time.perf_counter_ns(), 0
        try:
            number = self.listener.error(error)
        finally:  # as above
            EXIT.pack_into(memory, place + EXIT_OFFSET, stopped, number, RAISED)


def hurry(listener: Listener, slots: Slots, fingerprints: TtnnFingerprints, tensor: type) -> Hurry:
    """Return what watches operations in a hurry, by the part in C where there is one."""
    native = _desk(listener, slots, fingerprints, tensor) if is_native() else None
    return Hurry(listener, slots, fingerprints, tensor, native)


def _desk(listener: Listener, slots: Slots, fingerprints: TtnnFingerprints, tensor: type) -> Any:
    return _hurry.Desk(
        slots=slots,
        kind=Known,
        facts=fingerprints.facts,
        held=fingerprints.held,
        rules=fingerprints.rules,
        apart=fingerprints.apart,
        tensor=tensor,
        spec_of=_getter(tensor, "spec"),
        id_of=_getter(tensor, "tensor_id"),
        current=CURRENT,
        sites=slots.sites,
        site_of=listener.site,
        outputs=listener.outputs,
        error=listener.error,
    )


def _getter(kind: type, name: str) -> Any:
    """Return what gives an attribute of an object, the property's own function where it is one."""
    found = getattr(kind, name, None)
    return found.fget if type(found) is property and found.fget else attrgetter(name)

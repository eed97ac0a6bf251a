"""Hand every finished call, with its live arguments, to sinks as well as to the recorder."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optrove.backends.describe import Describer
from optrove.backends.watching import CURRENT, muted
from optrove.capture.sinks import DescribedCall, Observed
from optrove.codec.journal import FILTERED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from optrove.backends.watching import Arguments, Call, Form, Keywords, Known, Slots
    from optrove.capture.numbering import Scope
    from optrove.capture.recorder import Recorder
    from optrove.capture.sinks import Described, Sink
    from optrove.model.records import CallSite


@dataclass(frozen=True, slots=True)
class _Begun:
    """A call that was told to the recorder and has not ended yet."""

    entered: Any
    form: Form
    call: Call
    described: DescribedCall
    above: tuple[int, int] | None
    call_site: CallSite | None
    wall_ns: int
    clock_ns: int


class Observing:
    """A listener in front of a recorder; slow, as every call is described."""

    slots: Slots | None = None

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
        self, form: Form, arguments: Arguments, keywords: Keywords, frame: FrameType
    ) -> _Begun | None:
        """Note that a call begins; never raises."""
        above = CURRENT.get()
        entered = self._recorder.begin(form, arguments, keywords, frame)
        if entered is None:
            return None
        recorder = self._recorder
        with muted():
            session = Describer(recorder.tables(), cache=recorder.cache, recipes=recorder.recipes)
            described = DescribedCall(session, arguments, keywords)
        site, call = recorder.locate(frame), (arguments, keywords)
        clock = time.time_ns(), time.perf_counter_ns()
        return _Begun(entered, form, call, described, above, site, *clock)

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
        known: Known = begun.entered[0]
        if known.kind == FILTERED:
            return
        parent, depth = begun.above or (0, 0)
        scope = self._scope()
        observed = Observed(
            op_index=begun.entered[-1],
            process=self._recorder.process,
            op=begun.form.op,
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

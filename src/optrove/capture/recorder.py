"""Record every call that the probes report: the flight recorder.

The case of a call is in the journal before the call is made, and a record of the call too; the
record is completed when the call ends. A repeated call costs a look-up and two stores.

Nothing that goes wrong here reaches the program that is traced. A call whose description failed
is recorded with the reason; when the journal itself cannot be written any more, calls are only
counted. Both are told at the end.
"""

from __future__ import annotations

import time
from collections import Counter
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.backends.base import unobserved
from optrove.backends.describe import Describer, DescriptionCache
from optrove.backends.frameworks import LoadedTables
from optrove.backends.watching import CURRENT, MUTED, NOTHING_USUAL, Known, Slots, muted
from optrove.capture.config_marks import ConfigMarks
from optrove.capture.numbering import Numbering, Scope
from optrove.capture.sites import Sites
from optrove.codec import journal as layout
from optrove.model.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import FrameType

    from optrove.backends.base import RecipeLookup
    from optrove.backends.watching import Arguments, Call, Form, Keywords
    from optrove.capture.journal import Journal, Window
    from optrove.capture.numbering import Recall

MAX_KNOWN: Final = 16_384
"""How many different calls are recognised without describing them."""

MAX_RESULTS: Final = 64
"""How many different results of one call are recognised without describing them."""

_Described: TypeAlias = "tuple[Arguments, Keywords, Describer | None]"
"""The arguments of a call, and the session in which they were described, if they were."""

_clock = time.perf_counter_ns


class Recorder:
    """The recorder of one process; probes call it from any thread."""

    def __init__(
        self,
        journal: Journal,
        *,
        left_out: Callable[[str], str | None] = lambda _: None,
        keep_cases: bool = False,
    ) -> None:
        """Record into ``journal``; ``left_out`` gives the reason why an op is not wanted.

        With ``keep_cases`` a call's case is at hand in memory as well.
        """
        self.faults: Counter[str] = Counter()
        self.lost = 0
        self.tables = LoadedTables()
        self.cache = DescriptionCache()
        self.recipes: RecipeLookup = unobserved
        self.numbering = Numbering(journal)
        self.marks = ConfigMarks(journal, self.numbering, self.fault)
        self.tidy: list[Callable[[], None]] = []
        self._journal = journal
        self._closed = False
        self._losing = Lock()
        self._settling = RLock()
        self._left_out = left_out
        self._keep_cases = keep_cases
        self._sites = Sites(self.numbering)
        self.slots = Slots(journal.window, self._sites.by_code)
        self.site = self._sites.number
        self.locate = self._sites.locate
        self.process = journal.process

    def remember(self, recall: Recall) -> None:
        """Take what tells about tensors that need not be described again."""
        self.numbering.recall = recall

    def set_scope(self, scope: Scope) -> None:
        """Attribute the calls from now on, in all threads, to ``scope``."""
        try:
            self.slots.scope = self.numbering.scope(scope)
        except OSError as error:
            self.fault("the scope of calls", error)

    def begin(self, form: Form, arguments: Arguments, keywords: Keywords, frame: FrameType) -> Any:
        """Note that a call begins; never raises."""
        if self._closed:
            return None
        try:
            session = None
            key = form.key(arguments, keywords)
            known = self.slots.known.get(key)
            if known is None:
                known, session = self._learn(form, key, arguments, keywords)
            return self._enter(known, frame, form, (arguments, keywords, session))
        except OSError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - the recorder's border: counted, told at the end, and the call goes on
            return self._enter_faulty(form, error, frame)
        return None

    def end(self, entered: Any, result: Any) -> None:
        """Note that a call has returned; never raises."""
        stopped = _clock()
        if entered is None:
            return
        known, memory, place, token, form, (arguments, keywords, session), _ = entered
        if token is not None:
            CURRENT.reset(token)
        outputs = 0
        if result is not None:
            outputs = self.outputs(form, known, result, (arguments, keywords), session)
        _write_exit(memory, place, stopped, outputs, layout.RETURNED)

    def fail(self, entered: Any, error: BaseException) -> None:
        """Note that a call has raised; never raises."""
        stopped = _clock()
        if entered is None:
            return
        _, memory, place, token, *_ = entered
        if token is not None:
            CURRENT.reset(token)
        _write_exit(memory, place, stopped, self.error(error), layout.RAISED)

    def outputs(
        self, form: Form, known: Known, result: Any, call: Call, session: Describer | None = None
    ) -> int:
        """Return the number of what a call gave, zero if it cannot be told; never raises.

        ``session`` has described the arguments of this call, where that was done.
        """
        try:
            if form.reads or known.kind in (layout.FILTERED, layout.UNTRACEABLE):
                return 0
            token = CURRENT.set(MUTED)
            try:
                return self._outputs(form, known, result, call, session)
            finally:
                CURRENT.reset(token)
        except Exception as error:  # noqa: BLE001 - as in begin
            self.fault(f"what {form.op} returned", error)
        return 0

    def error(self, error: BaseException) -> int:
        """Return the number of what a call raised, zero if it cannot be told; never raises."""
        try:
            with muted():
                return self.numbering.error(f"{type(error).__name__}: {error}")
        except Exception as trouble:  # noqa: BLE001 - as in begin
            self.fault(f"the text of a {type(error).__name__}", trouble)
        return 0

    def _enter(self, known: Known, frame: FrameType, form: Form, call: _Described) -> Any:
        site = self._sites.number(frame)
        window, place = self._take()
        memory, word = window.memory, known.word
        above = CURRENT.get()
        depth = 0
        if above is not None:
            parent, depth = above
            word = layout.word(known.number, known.kind, depth)
            layout.PARENT.pack_into(memory, place + layout.PARENT_OFFSET, parent)
        layout.ENTRY.pack_into(memory, place, word, site, self.slots.scope, _clock())
        op_index = window.op_index(place)
        token = CURRENT.set((op_index + 1, depth + 1)) if form.composite else None
        return known, memory, place, token, form, call, op_index

    def _take(self) -> tuple[Window, int]:
        """Return a free record; OSError when there can be none."""
        while True:
            window = self.slots.window
            try:
                return window, window.take()
            except StopIteration:
                self.slots.window = self._journal.window_after(window)
                for action in self.tidy:
                    action()

    def _enter_faulty(self, form: Form, error: Exception, frame: FrameType) -> Any:
        self.fault(f"the arguments of {form.op}", error)
        try:
            return self._enter(self._untraceable(form.op, error), frame, form, ((), {}, None))
        except Exception as trouble:  # noqa: BLE001 - as in begin
            self._lose(trouble)
            return None

    def _untraceable(self, op: str, error: Exception) -> Known:
        text = f"{op}: {type(error).__name__} while its arguments were described"
        number = self.numbering.reason("untraceable", text)
        return _known(number, layout.UNTRACEABLE)

    def _learn(
        self, form: Form, key: Hashable, arguments: Arguments, keywords: Keywords
    ) -> tuple[Known, Describer | None]:
        token = CURRENT.set(MUTED)
        try:
            known, session = self._describe(form, arguments, keywords)
        finally:
            CURRENT.reset(token)
        if key is not None and known.kind in (layout.CASE, layout.FILTERED):
            if len(self.slots.known) >= MAX_KNOWN:
                self.slots.forget()
            self.slots.known[key] = known
        return known, session

    def _describe(
        self, form: Form, arguments: Arguments, keywords: Keywords
    ) -> tuple[Known, Describer | None]:
        reason = self._left_out(form.op)
        if reason is not None:
            return _known(self.numbering.reason("filtered", reason), layout.FILTERED), None
        session = Describer(self.tables(), cache=self.cache, recipes=self.recipes)
        bound = form.bind(arguments, keywords)
        case = self.numbering.case(form.op, bound, session, keep=self._keep_cases)
        if case.number == 0:
            held = ", ".join(sorted(set(case.opaque)))
            number = self.numbering.reason("untraceable", f"{form.op} holds {held}")
            return _known(number, layout.UNTRACEABLE), None
        kind = layout.OPAQUE if case.opaque else layout.CASE
        known = _known(case.number, kind)
        if self._keep_cases:
            known.case = Case(form.op, case.arguments)
        return known, session

    def _outputs(
        self, form: Form, known: Known, result: Any, call: Call, session: Describer | None
    ) -> int:
        # One at a time, as what the key leaves in ``known`` belongs to this result.
        with self._settling:
            return self._settle(form, known, result, call, session)

    def _settle(
        self, form: Form, known: Known, result: Any, call: Call, session: Describer | None
    ) -> int:
        key = form.result_key(known, result, call)
        number = known.outputs.get(key)
        if number is None:
            session = session or self._session_after(form, *call)
            number = self.numbering.outputs((result,), session)
            if key is not None:
                if len(known.outputs) >= MAX_RESULTS:
                    known.outputs.clear()
                known.outputs[key] = number
        pending, known.pending = known.pending, None
        known.usual = NOTHING_USUAL if pending is None else (*pending, number)
        return number

    def _session_after(self, form: Form, arguments: Arguments, keywords: Keywords) -> Describer:
        """Return a session that has described the arguments of a call."""
        session = Describer(self.tables(), cache=self.cache, recipes=self.recipes)
        bound = form.bind(arguments, keywords)
        for name in sorted(bound):
            session.describe(bound[name])
        return session

    def continue_in(self, journal: Journal) -> None:
        """Record into another journal from now on, as a process must that was forked off."""
        self._journal = journal
        self.process = journal.process
        self.faults.clear()
        self.lost = 0
        self._losing = Lock()
        self._settling = RLock()
        self.numbering.continue_in(journal)
        self.marks.continue_in(journal)
        self._sites.clear()
        self.slots.forget()
        self.slots.window = journal.window

    def close(self) -> None:
        """Record nothing any more, whoever still calls a probe."""
        self._closed = True
        self.marks.close()
        # So that a probe in a hurry, which looks here, comes to ``begin``.
        self.slots.forget()

    def fault(self, where: str, error: Exception) -> None:
        """Count something that went wrong in the tracing itself."""
        self.faults[f"{where}: {type(error).__name__}: {_text(error)}"] += 1

    def _lose(self, error: Exception) -> None:
        """Count a call that cannot be recorded, since the journal cannot be written."""
        self.fault("the journal cannot be written", error)
        with self._losing:
            self.lost += 1
            try:
                self._journal.tell_lost(self.lost)
            except OSError as trouble:
                self.fault("how many calls were lost cannot be written", trouble)


def _known(number: int, kind: int) -> Known:
    return Known(number, kind, layout.word(number, kind))


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception of the user's own making, which cannot be printed
        return "it cannot be printed"


def _write_exit(memory: Any, place: int, stopped: int, number: int, outcome: int) -> None:
    layout.EXIT.pack_into(memory, place + layout.EXIT_OFFSET, stopped, number, outcome)

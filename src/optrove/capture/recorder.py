"""Record every call that the probes report, with its call site and config entry.

The case of a call and a record of the call are in the journal before the call is made; the record
is completed when the call ends. A repeated call costs a look-up and two stores.

No error of the recorder reaches the traced program. A call whose description failed is recorded
with the reason; when the journal cannot be written any more, calls are only counted. Both are
reported at the end.

Call sites: frames of the frameworks and of optrove do not count. A call that an operator or a
composite op made belongs to the user's line.

Config entries: an entry of a run configuration is unpacked just before the call that gets its
arguments, so the next free record is marked with the number of the entry. Recording the call
costs nothing more. If several threads call operations at once, another thread's call may take that
record. Readers use a mark only if the call is one of the operations of the entry, and two threads
that mark the same record leave it without a mark.
"""

from __future__ import annotations

import re
import sys
import time
from array import array
from collections import Counter
from pathlib import Path
from threading import Lock, RLock, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.frameworks.installed import LoadedTables
from optrove.frameworks.probe_protocol import (
    CURRENT,
    MUTED,
    NO_USUAL_RESULT,
    CachedCase,
    FastPathState,
    muted,
)
from optrove.journal import format as layout
from optrove.journal.format import MARK
from optrove.journal.writer import Numbering
from optrove.model.case import Case
from optrove.model.records import CallSite, Scope
from optrove.serializer.describe import Describer, DescriptionCache
from optrove.serializer.hashes import placement_hash
from optrove.serializer.tables import unobserved

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Hashable, Iterator
    from types import CodeType, FrameType

    from optrove.capture.capsules import Capsules
    from optrove.frameworks.probe_protocol import (
        Arguments,
        Call,
        FlowProbe,
        FlowStream,
        Keywords,
        ObservedOp,
    )
    from optrove.journal.writer import Journal, Recall, Window
    from optrove.serializer.tables import RecipeLookup


INTERNAL: Final = frozenset({"ttnn", "torch"})
_INSTALLED: Final = re.compile(r"/(site|dist)-packages/")


class Sites:
    """The call sites of one journal, by the id of a code object and the offset of an instruction.

    ``by_code`` has None for code that is not the user's. The key is the id, because hashing a code
    object is slow; all code objects are kept alive, so that no other object gets their ids.
    """

    def __init__(self, numbering: Numbering) -> None:
        self.by_code: dict[int, dict[int, int] | None] = {}
        self._numbering = numbering
        self._kept: dict[int, CodeType] = {}
        self._own = (f"{Path(__file__).parents[1]}/", "<frozen")

    def number(self, frame: FrameType | None) -> int:
        """Return the number of the nearest user's line at or above ``frame``, or 0."""
        users, instructions = self._nearest(frame)
        if users is None or instructions is None:
            return 0
        number = instructions.get(users.f_lasti)
        if number is None:
            site = _site(users)
            number = instructions[users.f_lasti] = self._numbering.site(site.file, site.line)
        return number

    def locate(self, frame: FrameType | None) -> CallSite | None:
        """Return the nearest user's line at or above ``frame``."""
        users, _ = self._nearest(frame)
        return None if users is None else _site(users)

    def _nearest(self, frame: FrameType | None) -> tuple[FrameType | None, dict[int, int] | None]:
        """Return the nearest frame of the user, and the sites in its code."""
        while frame is not None:
            number = id(frame.f_code)
            if number not in self._kept:
                self._learn(frame.f_code, frame)
            instructions = self.by_code[number]
            if instructions is not None:
                return frame, instructions
            frame = frame.f_back
        return None, None

    def clear(self) -> None:
        """Forget all sites: their numbers belong to another journal."""
        self.by_code.clear()
        self._kept.clear()

    def _learn(self, code: CodeType, frame: FrameType) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        internal = module.partition(".")[0] in INTERNAL
        # Also by file: ttnn gives some of its modules names such as ``core``.
        internal = internal or code.co_filename.startswith((*self._own, *_directories()))
        self.by_code[id(code)] = None if internal else {}
        self._kept[id(code)] = code


def importing_library(frame: FrameType | None) -> str | None:
    """Return the installed library whose import made a call; None if the program made it.

    Such a call sets the library up (``torchvision`` asks for the version of CUDA), and is no part
    of the model.
    """
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and _INSTALLED.search(code.co_filename):
            # Modules that are run, and not imported, have none in the making.
            spec = frame.f_globals.get("__spec__")
            if spec is not None and getattr(spec, "_initializing", False):
                return str(spec.name).partition(".")[0]
        frame = frame.f_back
    return None


def _directories() -> Iterator[str]:
    """Yield the directories of the frameworks that have been imported."""
    for name in INTERNAL:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str):
            yield f"{Path(file).parent}/"


def _site(frame: FrameType) -> CallSite:
    return CallSite(frame.f_code.co_filename, frame.f_lineno or frame.f_code.co_firstlineno)


class ConfigMarks:
    """The marks of one process; their files are created when the first entry is unpacked."""

    def __init__(
        self, journal: Journal, numbering: Numbering, fault: Callable[[str, Exception], None]
    ) -> None:
        """Write into ``journal``; report errors to ``fault``."""
        self._numbering = numbering
        self._fault = fault
        self.continue_in(journal)

    def continue_in(self, journal: Journal) -> None:
        """Write the following marks into another journal."""
        self._journal = journal
        self._lock = Lock()
        self._window: Window | None = None
        self._memory: mmap.mmap | None = None
        self._last = (-1, 0)
        self._closed = False

    def close(self) -> None:
        """Stop marking."""
        self._closed = True

    def unpacked(self, path: str, ops: tuple[str, ...]) -> None:
        """Mark the record that this thread will probably take next; never raises."""
        # Inside another call, or in optrove itself, the next call is not the program's own.
        if self._closed or CURRENT.get() is not None:
            return
        try:
            number = self._numbering.config(path, ops)
            with self._lock:
                self._mark(number)
        except Exception as error:  # noqa: BLE001 - the recorder's border: counted, reported at the end, and the call goes on
            self._fault("the entries of run configurations", error)

    def _mark(self, number: int) -> None:
        window, memory = self._journal.window, self._memory
        if window is not self._window or memory is None:
            window, memory = self._follow(window)
        place = window.taken
        if place is None:
            window, memory = self._follow(self._journal.window_after(window))
            place = 0
        index, thread = window.first + place, get_ident()
        if self._last[0] == index and self._last[1] != thread:
            number, thread = 0, 0
        self._last = (index, thread)
        MARK.pack_into(memory, place * MARK.size, number)

    def _follow(self, window: Window) -> tuple[Window, mmap.mmap]:
        memory = self._journal.map_configs(window)
        self._window, self._memory = window, memory
        return window, memory


MAX_KNOWN: Final = 16_384
"""How many different calls are recognized without describing them."""

MAX_RESULTS: Final = 64
"""How many different results of one call are recognized without describing them."""

_Described: TypeAlias = "tuple[Arguments, Keywords, Describer | None]"
"""The arguments of a call, and the session that described them, if one did."""

_clock = time.perf_counter_ns


class Recorder:
    """The recorder of one process; probes call it from any thread."""

    def __init__(
        self,
        journal: Journal,
        *,
        left_out: Callable[[str], str | None] = lambda _: None,
        keep_cases: bool = False,
        capsules: Capsules | None = None,
        flow: bool = False,
    ) -> None:
        """Record into ``journal``; ``left_out`` returns why an op is not recorded, or None.

        With ``keep_cases`` cached cases have their Case and its id. ``capsules`` keep the
        tensors of chosen calls. With ``flow``, record which tensors calls get and return.
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
        self._open_capsules: dict[int, Any] = {}
        self._left_out = left_out
        self._keep_cases = keep_cases or capsules is not None
        self._capsules = capsules
        self.flow_windows = journal.map_flow if flow else None
        self._flows: list[FlowStream] = []
        self._sites = Sites(self.numbering)
        self.fast_path_state = FastPathState(journal.window, self._sites.by_code)
        self.site = self._sites.number
        self.locate = self._sites.locate
        self.process = journal.process

    def remember(self, recall: Recall) -> None:
        """Use ``recall`` for tensors that need not be described again."""
        self.numbering.recall = recall

    def add_flow(self, stream: FlowStream) -> None:
        """Close a stream with the recording, and let it follow to another journal."""
        self._flows.append(stream)

    def set_scope(self, scope: Scope) -> None:
        """Attribute the following calls of all threads to ``scope``."""
        try:
            self.fast_path_state.scope = self.numbering.scope(scope)
        except OSError as error:
            self.fault("the scope of calls", error)

    def begin(
        self,
        observed: ObservedOp,
        arguments: Arguments,
        keywords: Keywords,
        frame: FrameType | None,
    ) -> Any:
        """Record that a call begins; never raises."""
        if self._closed:
            return None
        try:
            session = None
            key = observed.key(arguments, keywords)
            known = self.fast_path_state.cached_cases.get(key)
            if known is None:
                known, session = self._learn(observed, key, arguments, keywords)
            call = (arguments, keywords, session)
            if self._capsules is None or not self._is_capsuled(observed.op):
                return self._enter(known, frame, observed, call)
            return self._enter_with_capsule(self._capsules, known, frame, observed, call)
        except OSError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - the recorder's border: counted, reported at the end, and the call goes on
            return self._enter_faulty(observed, error, frame)
        return None

    def end(self, entered: Any, result: Any) -> None:
        """Record that a call returned; never raises."""
        stopped = _clock()
        if entered is None:
            return
        known, memory, place, token, observed, (arguments, keywords, session), op_index = entered
        if token is not None:
            CURRENT.reset(token)
        outputs = 0
        if result is not None:
            outputs = self.outputs(observed, known, result, (arguments, keywords), session)
            if observed.flow is not None:
                self._flow_out(observed.flow, op_index, result)
        _write_exit(memory, place, stopped, outputs, layout.RETURNED)
        if self._capsules is not None and result is not None:
            self._keep_outputs(self._capsules, observed, op_index, session, result)

    def fail(self, entered: Any, error: BaseException) -> None:
        """Record that a call raised; never raises."""
        stopped = _clock()
        if entered is None:
            return
        _, memory, place, token, *_, op_index = entered
        if token is not None:
            CURRENT.reset(token)
        _write_exit(memory, place, stopped, self.error(error), layout.RAISED)
        self._open_capsules.pop(op_index, None)

    def outputs(
        self,
        observed: ObservedOp,
        known: CachedCase,
        result: Any,
        call: Call,
        session: Describer | None = None,
    ) -> int:
        """Return the number of the outputs of a call, zero if unknown; never raises.

        ``session`` is the one that described the arguments of this call, if one did.
        """
        try:
            if observed.reads or known.kind in (layout.FILTERED, layout.UNTRACEABLE):
                return 0
            token = CURRENT.set(MUTED)
            try:
                # One at a time, as the parts that the key leaves in ``known`` are this result's.
                with self._settling:
                    return self._outputs(observed, known, result, call, session)
            finally:
                CURRENT.reset(token)
        except Exception as error:  # noqa: BLE001 - as in begin
            self.fault(f"the result of {observed.op}", error)
        return 0

    def error(self, error: BaseException) -> int:
        """Return the number of an exception, zero if unknown; never raises."""
        try:
            with muted():
                return self.numbering.error(f"{type(error).__name__}: {error}")
        except Exception as trouble:  # noqa: BLE001 - as in begin
            self.fault(f"the text of a {type(error).__name__}", trouble)
        return 0

    def _enter(
        self, known: CachedCase, frame: FrameType | None, observed: ObservedOp, call: _Described
    ) -> Any:
        site = self._sites.number(frame)
        window, place = self._take()
        memory, word = window.memory, known.word
        above = CURRENT.get()
        depth = 0
        if above is not None:
            parent, depth = above
            word = layout.word(known.number, known.kind, depth)
            layout.PARENT.pack_into(memory, place + layout.PARENT_OFFSET, parent)
        layout.ENTRY.pack_into(memory, place, word, site, self.fast_path_state.scope, _clock())
        op_index = window.op_index(place)
        if observed.flow is not None:
            self._flow_in(observed.flow, known, op_index, call)
        token = CURRENT.set((op_index + 1, depth + 1)) if observed.composite else None
        return known, memory, place, token, observed, call, op_index

    def _is_capsuled(self, op: str) -> bool:
        """Return whether calls of an op may get a capsule; then each one is described."""
        return self._capsules is not None and self._capsules.wants(op)

    def _enter_with_capsule(
        self,
        capsules: Capsules,
        known: CachedCase,
        frame: FrameType | None,
        observed: ObservedOp,
        call: _Described,
    ) -> Any:
        """Record that a call begins, after its inputs were kept if it is chosen."""
        inputs = None
        if known.case is not None and known.case_id is not None:
            try:
                with muted():
                    live = observed.bind(call[0], call[1])
                    inputs = capsules.inputs(known.case, known.case_id, live)
            except Exception as error:  # noqa: BLE001 - as in begin
                self.fault(f"the capsule of {observed.op}", error)
        entered = self._enter(known, frame, observed, call)
        if inputs is not None:
            capsules.begun(inputs, entered[-1])
            self._open_capsules[entered[-1]] = inputs
        return entered

    def _keep_outputs(
        self, capsules: Capsules, observed: ObservedOp, op_index: int, session: Any, result: Any
    ) -> None:
        """Keep the result of a call whose inputs were kept."""
        inputs = self._open_capsules.pop(op_index, None)
        if inputs is None:
            return
        try:
            with muted():
                capsules.outputs(inputs, op_index, session.describe(result), result)
        except Exception as error:  # noqa: BLE001 - as in begin
            self.fault(f"the capsule of {observed.op}", error)

    def _flow_in(self, flow: FlowProbe, known: CachedCase, op_index: int, call: _Described) -> None:
        """Record which tensors a call gets."""
        try:
            flow.stream.enter(op_index, known.order, tuple(flow.tensors(call[:2])))
        except Exception as error:  # noqa: BLE001 - as in begin
            self.fault("the flow of tensors", error)

    def _flow_out(self, flow: FlowProbe, op_index: int, result: Any) -> None:
        """Record which tensors a call has returned."""
        try:
            flow.stream.leave(op_index, tuple(flow.tensors(result)))
        except Exception as error:  # noqa: BLE001 - as in begin
            self.fault("the flow of tensors", error)

    def _take(self) -> tuple[Window, int]:
        """Return a free record; OSError if there can be none."""
        while True:
            window = self.fast_path_state.window
            try:
                return window, window.take()
            except StopIteration:
                self.fast_path_state.window = self._journal.window_after(window)
                for action in self.tidy:
                    action()

    def _enter_faulty(self, observed: ObservedOp, error: Exception, frame: FrameType | None) -> Any:
        self.fault(f"the arguments of {observed.op}", error)
        text = f"{observed.op}: {type(error).__name__} while its arguments were described"
        try:
            known = _known(self.numbering.reason("untraceable", text), layout.UNTRACEABLE)
            return self._enter(known, frame, observed, ((), {}, None))
        except Exception as trouble:  # noqa: BLE001 - as in begin
            self._lose(trouble)
            return None

    def _learn(
        self, observed: ObservedOp, key: Hashable, arguments: Arguments, keywords: Keywords
    ) -> tuple[CachedCase, Describer | None]:
        library = importing_library(sys._getframe())  # noqa: SLF001 - the only way to the stack
        if library is not None:
            # Without the key: the program may make the same call, which is recorded.
            number = self.numbering.reason("filtered", f"made by {library} at its import")
            return _known(number, layout.FILTERED), None
        token = CURRENT.set(MUTED)
        try:
            known, session = self._describe(observed, arguments, keywords)
            if observed.flow is not None and session is not None:
                known.order = _order(observed.flow, session, (arguments, keywords))
        finally:
            CURRENT.reset(token)
        if self._is_capsuled(observed.op):
            return known, session
        if key is not None and known.kind in (layout.CASE, layout.FILTERED):
            if len(self.fast_path_state.cached_cases) >= MAX_KNOWN:
                self.fast_path_state.forget()
            self.fast_path_state.cached_cases[key] = known
        return known, session

    def _describe(
        self, observed: ObservedOp, arguments: Arguments, keywords: Keywords
    ) -> tuple[CachedCase, Describer | None]:
        reason = self._left_out(observed.op)
        if reason is not None:
            return _known(self.numbering.reason("filtered", reason), layout.FILTERED), None
        session = Describer(self.tables(), cache=self.cache, recipes=self.recipes)
        bound = observed.bind(arguments, keywords)
        places = tuple(bound)[: len(arguments)]
        case = self.numbering.case(
            observed.op, bound, session, keep=self._keep_cases, places=places
        )
        if case.number == 0:
            held = ", ".join(sorted(set(case.opaque)))
            number = self.numbering.reason("untraceable", f"{observed.op} holds {held}")
            return _known(number, layout.UNTRACEABLE), None
        kind = layout.OPAQUE if case.opaque else layout.CASE
        known = _known(case.number, kind)
        if self._keep_cases:
            known.case = Case(observed.op, case.arguments)
            known.case_id = placement_hash(known.case)
        return known, session

    def _outputs(
        self,
        observed: ObservedOp,
        known: CachedCase,
        result: Any,
        call: Call,
        session: Describer | None,
    ) -> int:
        key = observed.result_key(known, result, call)
        number = known.outputs.get(key)
        if number is None:
            session = session or self._session_after(observed, *call)
            number = self.numbering.outputs((result,), session)
            if key is not None:
                if len(known.outputs) >= MAX_RESULTS:
                    known.outputs.clear()
                known.outputs[key] = number
        pending, known.pending = known.pending, None
        known.usual = NO_USUAL_RESULT if pending is None else (*pending, number)
        return number

    def _session_after(
        self, observed: ObservedOp, arguments: Arguments, keywords: Keywords
    ) -> Describer:
        """Return a session that has described the arguments of a call."""
        session = Describer(self.tables(), cache=self.cache, recipes=self.recipes)
        bound = observed.bind(arguments, keywords)
        for name in sorted(bound):
            session.describe(bound[name])
        return session

    def continue_in(self, journal: Journal, capsules: Capsules | None = None) -> None:
        """Record into another journal from now on, as a forked process has to."""
        self._journal = journal
        self._capsules = capsules
        self.process = journal.process
        self.faults.clear()
        self.lost = 0
        self._losing = Lock()
        self._settling = RLock()
        self._open_capsules.clear()
        if self.flow_windows is not None:
            self.flow_windows = journal.map_flow
        for stream in self._flows:
            stream.restart(self.flow_windows)
        self.numbering.continue_in(journal)
        self.marks.continue_in(journal)
        self._sites.clear()
        self.fast_path_state.forget()
        self.fast_path_state.window = journal.window

    def close(self) -> None:
        """Stop recording, even if a probe is still called."""
        self._closed = True
        lost = sum(stream.lost for stream in self._flows)
        if lost:
            self.faults["the flow of tensors: entries that could not be written"] += lost
        for stream in self._flows:
            stream.close()
        self.marks.close()
        # So that the fast path finds no cached case and calls ``begin``.
        self.fast_path_state.forget()

    def fault(self, where: str, error: Exception) -> None:
        """Count an error of the tracing itself."""
        self.faults[f"{where}: {type(error).__name__}: {_text(error)}"] += 1

    def _lose(self, error: Exception) -> None:
        """Count a call that cannot be recorded because the journal cannot be written."""
        self.fault("the journal cannot be written", error)
        with self._losing:
            self.lost += 1
            try:
                self._journal.store_lost(self.lost)
            except OSError as trouble:
                self.fault("how many calls were lost cannot be written", trouble)


def _order(flow: FlowProbe, session: Describer, call: Call) -> bytes:
    """Return the identities of the tensors of a call, which the session has described."""
    tensors = flow.tensors(call)
    numbers = [session.tensor_number(live, flow.key(live)) for live in tensors]
    return array("H", numbers).tobytes()


def _known(number: int, kind: int) -> CachedCase:
    return CachedCase(number, kind, layout.word(number, kind))


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception class of the user that cannot be printed
        return "it cannot be printed"


def _write_exit(memory: Any, place: int, stopped: int, number: int, outcome: int) -> None:
    layout.EXIT.pack_into(memory, place + layout.EXIT_OFFSET, stopped, number, outcome)

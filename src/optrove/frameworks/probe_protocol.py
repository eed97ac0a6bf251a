"""The protocol between a probe and its recorder, and a recorder of a single call.

A probe replaces the functions of a framework's operations. It reports to its Listener when a call
begins and how it ends; an ObservedOp describes the operation to the listener.

A replay records its call through the same patches, bindings and descriptions as a trace, so that
the replayed case can be compared with the recorded one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from optrove.model.case import Case
from optrove.serializer.describe import Describer, DescriptionCache
from optrove.serializer.tables import RecipeLookup, unobserved

if TYPE_CHECKING:
    from types import FrameType

    from optrove.model.values import Value
    from optrove.serializer.tables import Tables


Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = Mapping[str, Any]
Call: TypeAlias = tuple[Arguments, Keywords]

Bind: TypeAlias = Callable[[Arguments, Keywords], Mapping[str, Any]]
CallKey: TypeAlias = Callable[[Arguments, Keywords], Hashable]
ResultKey: TypeAlias = Callable[["CachedCase", Any, Call], Hashable]


class FlowStream(Protocol):
    """Writes the tensors of calls: ``Stream`` of a C extension, or ``PythonStream``."""

    lost: int

    def enter(self, op_index: int, order: bytes, tensors: Arguments, /) -> None:
        """Write that a call begins with tensors, which have these identities in its case."""

    def leave(self, op_index: int, tensors: Arguments, /) -> None:
        """Write that a call has returned tensors."""

    def restart(self, next_window: Callable[[], Any] | None, /) -> None:
        """Forget all tensors and write into other windows from now on."""

    def close(self) -> None:
        """Write nothing more."""


@dataclass(frozen=True, slots=True)
class FlowProbe:
    """How the flow of one framework's tensors is recorded.

    ``tensors`` returns the tensors in an object, in their order, and ``key`` the key by which a
    Describer knows a tensor.
    """

    stream: FlowStream
    tensors: Callable[[Any], list[Any]]
    key: Callable[[Any], Hashable]


@dataclass(slots=True)
class ObservedOp:
    """One operation as the recorder sees it.

    ``bind`` maps arguments to parameter names. ``key`` returns a key that all calls of one Case
    share, or None; ``result_key`` a key that equal results of calls with one key share. A
    ``composite`` operation may call others, which are recorded as its children. An operation
    ``reads`` if it returns the values of a tensor, which are not recorded. ``flow`` is there if
    the flow of tensors is recorded.
    """

    op: str
    bind: Bind
    key: CallKey
    result_key: ResultKey
    composite: bool
    reads: bool = False
    flow: FlowProbe | None = None


class CachedCase:
    """The recorded case of all calls with one key; its ``case`` and ``case_id`` if they are kept.

    ``word`` is the first word of their records; ``outputs`` are the numbers of their results by
    result key. A probe that recognizes results itself sets ``pending`` to a comparison with the
    last result and that result's part; together with its number it becomes ``usual``. ``elements``
    are the same for each tensor of the last result. If that was a sequence of tensors only,
    ``elements`` replace the comparison, the part is SEQUENCE, and ``key`` is the result's key.
    ``order`` has the identities, in the case, of the tensors of a call in the order in which they
    are passed, as 16 bits each; it is empty if the flow of tensors is not recorded.
    """

    __slots__ = (
        "case",
        "case_id",
        "elements",
        "key",
        "kind",
        "number",
        "order",
        "outputs",
        "pending",
        "usual",
        "word",
    )

    def __init__(self, number: int, kind: int, word: int) -> None:
        self.number = number
        self.kind = kind
        self.word = word
        self.order = b""
        self.case: Case | None = None
        self.case_id: str | None = None
        self.outputs: dict[Hashable, int] = {}
        self.elements: tuple[tuple[Callable[[Any], bool], int], ...] = ()
        self.key: Hashable = None
        self.pending: tuple[Any, int] | None = None
        self.usual: tuple[Any, int, int] = NO_USUAL_RESULT


def never(_: Any) -> bool:
    """Recognize nothing."""
    return False


NO_USUAL_RESULT: Final = (never, 0, 0)

SEQUENCE: Final = -1
"""The part of a result that is a sequence of tensors."""


LEVELS: Final = ("aten", "api")
ATEN, API = LEVELS
"""What is recorded of torch: the dispatcher's operations, or also the functions above them."""


MUTED: Final = (-1, -1)
"""The parent in ``CURRENT`` while calls are not the program's own."""

CURRENT: ContextVar[tuple[int, int] | None] = ContextVar("current_call", default=None)
"""The call in progress: its index plus one, and the depth of the calls that it makes."""


@contextmanager
def muted() -> Iterator[None]:
    """Do not record calls inside the block: they are not the program's own."""
    token = CURRENT.set(MUTED)
    try:
        yield
    finally:
        CURRENT.reset(token)


class ConfigUnpacking:
    """The observer of arguments that are unpacked from an entry of a run configuration.

    ``on_unpack`` is called with the path of the entry and the operations that it is for; None when
    nothing is traced.
    """

    __slots__ = ("on_unpack",)

    def __init__(self) -> None:
        self.on_unpack: Callable[[str, tuple[str, ...]], None] | None = None


CONFIG_UNPACKING: Final = ConfigUnpacking()
"""One per process, as the probes are."""


class FastPathState:
    """The state that the recorder and a fast path share.

    When the cached cases become invalid, a new table replaces ``cached_cases``: a fast path that
    remembers entries of the old one notices that and forgets them.
    """

    __slots__ = ("cached_cases", "scope", "sites", "window")

    def __init__(self, window: Any, sites: dict[int, dict[int, int] | None]) -> None:
        self.window = window
        self.sites = sites
        self.scope = 0
        self.forget()

    def forget(self) -> None:
        """Drop all cached cases."""
        self.cached_cases: dict[Hashable, CachedCase] = {}


class Listener(Protocol):
    """Receives every call of a probe. None of its methods raises."""

    @property
    def flow_windows(self) -> Callable[[], Any] | None:
        """Returns windows for the flow of tensors; None if that is not recorded."""

    def add_flow(self, stream: FlowStream) -> None:
        """Close a stream with the recording."""

    @property
    def fast_path_state(self) -> FastPathState | None:
        """The state of a fast path; None if every call has to come by ``begin`` and ``end``."""

    def site(self, frame: FrameType) -> int:
        """Return the number of the user's line at or above a frame."""

    def begin(
        self,
        observed: ObservedOp,
        arguments: Arguments,
        keywords: Keywords,
        frame: FrameType | None,
    ) -> Any:
        """Record that a call begins, made in ``frame``; return the argument of ``end``.

        There is no frame where no Python code called, as in a thread of torch's own.
        """

    def end(self, entered: Any, result: Any) -> None:
        """Record that a call returned."""

    def fail(self, entered: Any, error: BaseException) -> None:
        """Record that a call raised."""

    def outputs(self, observed: ObservedOp, known: CachedCase, result: Any, call: Call) -> int:
        """Return the number of the outputs of a call."""

    def error(self, error: BaseException) -> int:
        """Return the number of an exception."""


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """One call: its Case, the names of its arguments in binding order, its outputs."""

    case: Case
    order: tuple[str, ...]
    outputs: tuple[Value, ...] = ()


class SingleCallRecorder:
    """A listener that keeps the first outermost call of the expected operation.

    Without such a call, as when an operation is composed of others, it keeps the first call.
    """

    fast_path_state = None
    flow_windows = None

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self.cache = DescriptionCache()
        self.recipes: RecipeLookup = unobserved
        self.tables = tables
        self.tidy: list[Callable[[], None]] = []
        self.faults: list[str] = []
        self._expected = ""
        self._seen: ObservedCall | None = None

    def expect(self, op: str) -> None:
        """Forget the last call, and wait for a call of ``op``."""
        self._expected, self._seen = op, None

    def take(self) -> ObservedCall | None:
        """Return the call that was recorded, and forget it."""
        seen, self._seen = self._seen, None
        for action in self.tidy:
            action()
        return seen

    def add_flow(self, stream: FlowStream) -> None:
        """Never called: the flow of tensors is not recorded."""

    def remember(self, recall: Callable[[Any], Any]) -> None:
        """Ignore known descriptions of tensors: each call is described in full."""

    def fault(self, where: str, error: Exception) -> None:
        """Keep an error of the tracing itself."""
        self.faults.append(f"{where}: {error}")

    def site(self, frame: FrameType) -> int:  # noqa: ARG002 - the signature of a Listener
        """Return no number: the calling line is the executor's."""
        return 0

    def begin(
        self,
        observed: ObservedOp,
        arguments: Arguments,
        keywords: Keywords,
        frame: FrameType | None,  # noqa: ARG002 - the signature of a Listener
    ) -> Any:
        """Describe the arguments of a call before it is made."""
        token = CURRENT.set(MUTED)
        seen = self._seen
        if seen is not None and (seen.case.op == self._expected or observed.op != self._expected):
            return token, None, None
        session = Describer(self.tables(), cache=self.cache, recipes=self.recipes)
        bound = observed.bind(arguments, keywords)
        named = tuple((name, session.describe(bound[name])) for name in sorted(bound))
        self._seen = ObservedCall(Case(observed.op, named), tuple(bound))
        return token, session, self._seen

    def end(self, entered: Any, result: Any) -> None:
        """Describe the result of a call."""
        token, session, seen = entered
        if seen is not None:
            outputs = () if result is None else (session.describe(result),)
            self._seen = ObservedCall(seen.case, seen.order, outputs)
        CURRENT.reset(token)

    def fail(self, entered: Any, error: BaseException) -> None:  # noqa: ARG002 - the signature of a Listener
        """End a call that raised; its arguments are described already."""
        CURRENT.reset(entered[0])

    def outputs(self, observed: ObservedOp, known: CachedCase, result: Any, call: Call) -> int:  # noqa: ARG002 - the signature of a Listener
        """Never called: there is no fast path."""
        return 0

    def error(self, error: BaseException) -> int:  # noqa: ARG002 - the signature of a Listener
        """Never called: there is no fast path."""
        return 0

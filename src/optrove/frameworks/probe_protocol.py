"""What a probe and its recorder say to each other, and a recorder of one call.

A probe sits where a framework's operations are called. It tells the recorder when a call begins
and how it ended; the ``Form`` of the operation tells what the recorder has to know about it.

The same patches, bindings and descriptions as in a trace are at work, so that what a witness
has seen can be compared with what was recorded.
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
ResultKey: TypeAlias = Callable[["Known", Any, Call], Hashable]


class Form:
    """One operation as the recorder sees it.

    ``bind`` names arguments by the parameters that take them. ``key`` gives a key that calls of
    one Case share, None where there is none; ``result_key`` a key that alike results of calls with
    one key share. A ``composite`` operation may call others, which are recorded as its children.
    An operation ``reads`` when it returns the numbers of a tensor, which are not to be recorded.
    """

    __slots__ = ("bind", "composite", "key", "op", "reads", "result_key")

    def __init__(
        self,
        op: str,
        bind: Bind,
        key: CallKey,
        result_key: ResultKey,
        *,
        composite: bool,
        reads: bool = False,
    ) -> None:
        self.op = op
        self.bind = bind
        self.key = key
        self.result_key = result_key
        self.composite = composite
        self.reads = reads


class Known:
    """What is known about all calls with one key.

    ``word`` is the first word of their records; ``outputs`` are the numbers of their results, by
    the results' keys. A probe that recognises results by itself sets ``pending`` to what tells
    whether a result is like the last one, and that one's part; with its number it is ``usual``.
    ``elements`` are the same for each tensor of the last result; where that was a sequence of
    tensors only, they stand in place of what tells, the part is SEQUENCE, and ``key`` is its key.
    """

    __slots__ = (
        "case",
        "elements",
        "key",
        "kind",
        "number",
        "outputs",
        "pending",
        "usual",
        "word",
    )

    def __init__(self, number: int, kind: int, word: int) -> None:
        self.number = number
        self.kind = kind
        self.word = word
        self.case: Case | None = None
        self.outputs: dict[Hashable, int] = {}
        self.elements: tuple[tuple[Callable[[Any], bool], int], ...] = ()
        self.key: Hashable = None
        self.pending: tuple[Any, int] | None = None
        self.usual: tuple[Any, int, int] = NOTHING_USUAL


def never(_: Any) -> bool:
    """Recognise nothing."""
    return False


NOTHING_USUAL: Final = (never, 0, 0)

SEQUENCE: Final = -1
"""Stands for the part of a result that is a sequence of tensors."""


MUTED: Final = (-1, -1)
"""Stands for a parent in ``CURRENT`` where calls are not the program's own."""

CURRENT: ContextVar[tuple[int, int] | None] = ContextVar("current_call", default=None)
"""The call that is going on, by its index plus one, and the depth of calls that it makes."""


@contextmanager
def muted() -> Iterator[None]:
    """Keep calls inside the block from being recorded: they are not the program's own."""
    token = CURRENT.set(MUTED)
    try:
        yield
    finally:
        CURRENT.reset(token)


class Unpacking:
    """Who is told that arguments are unpacked from an entry of a run configuration.

    ``told`` gets the path of the entry and the names of the operations that it is for; None when
    nobody wants to know.
    """

    __slots__ = ("told",)

    def __init__(self) -> None:
        self.told: Callable[[str, tuple[str, ...]], None] | None = None


UNPACKING: Final = Unpacking()
"""Of the process, as the probes are."""


class Slots:
    """What a probe in a hurry reads and writes by itself.

    When what is ``known`` holds no longer, another table takes its place: who remembers parts of
    it sees by that to forget them.
    """

    __slots__ = ("known", "scope", "sites", "window")

    def __init__(self, window: Any, sites: dict[int, dict[int, int] | None]) -> None:
        self.window = window
        self.sites = sites
        self.scope = 0
        self.forget()

    def forget(self) -> None:
        """Know nothing any more."""
        self.known: dict[Hashable, Known] = {}


class Listener(Protocol):
    """Who is told of every call. None of its methods raises."""

    @property
    def slots(self) -> Slots | None:
        """Where records go; None when all calls have to come by ``begin`` and ``end``."""

    def site(self, frame: FrameType) -> int:
        """Return the number of the user's line at or above a frame."""

    def begin(self, form: Form, arguments: Arguments, keywords: Keywords, frame: FrameType) -> Any:
        """Note that a call begins, which was made in ``frame``; give what ``end`` takes."""

    def end(self, entered: Any, result: Any) -> None:
        """Note that a call has returned."""

    def fail(self, entered: Any, error: BaseException) -> None:
        """Note that a call has raised."""

    def outputs(self, form: Form, known: Known, result: Any, call: Call) -> int:
        """Return the number of what a call gave."""

    def error(self, error: BaseException) -> int:
        """Return the number of what a call raised."""


@dataclass(frozen=True, slots=True)
class Testimony:
    """One call: its Case, the names of its arguments in the order of binding, its outputs."""

    case: Case
    order: tuple[str, ...]
    outputs: tuple[Value, ...] = ()


class Witness:
    """Whom the probes tell of calls; keeps the first outermost one of the operation expected.

    Where there is none of it, as when an operation is made of others, it keeps the first of all.
    """

    # None, so that every call comes by ``begin`` and ``end``.
    slots = None

    def __init__(self, tables: Callable[[], Tables]) -> None:
        self.cache = DescriptionCache()
        self.recipes: RecipeLookup = unobserved
        self.tables = tables
        self.tidy: list[Callable[[], None]] = []
        self.faults: list[str] = []
        self._expected = ""
        self._seen: Testimony | None = None

    def expect(self, op: str) -> None:
        """Forget what was seen, and look out for a call of ``op``."""
        self._expected, self._seen = op, None

    def take(self) -> Testimony | None:
        """Return the call that was seen, and forget it."""
        seen, self._seen = self._seen, None
        for action in self.tidy:
            action()
        return seen

    def remember(self, recall: Callable[[Any], Any]) -> None:
        """Ignore what is known about tensors: each call is described in full."""

    def fault(self, where: str, error: Exception) -> None:
        """Keep what went wrong in the tracing itself."""
        self.faults.append(f"{where}: {error}")

    def site(self, frame: FrameType) -> int:  # noqa: ARG002 - the signature of a Listener
        """Return no number: the line that calls is the executor's."""
        return 0

    def begin(self, form: Form, arguments: Arguments, keywords: Keywords, frame: FrameType) -> Any:  # noqa: ARG002 - the signature of a Listener
        """Describe the arguments of a call before it is made."""
        token = CURRENT.set(MUTED)
        known = self._seen
        if known is not None and (known.case.op == self._expected or form.op != self._expected):
            return token, None, None
        session = Describer(self.tables(), cache=self.cache, recipes=self.recipes)
        bound = form.bind(arguments, keywords)
        named = tuple((name, session.describe(bound[name])) for name in sorted(bound))
        self._seen = Testimony(Case(form.op, named), tuple(bound))
        return token, session, self._seen

    def end(self, entered: Any, result: Any) -> None:
        """Describe what a call has returned."""
        token, session, seen = entered
        if seen is not None:
            outputs = () if result is None else (session.describe(result),)
            self._seen = Testimony(seen.case, seen.order, outputs)
        CURRENT.reset(token)

    def fail(self, entered: Any, error: BaseException) -> None:  # noqa: ARG002 - the signature of a Listener
        """Note that a call has raised; its arguments are known already."""
        CURRENT.reset(entered[0])

    def outputs(self, form: Form, known: Known, result: Any, call: Call) -> int:  # noqa: ARG002 - the signature of a Listener
        """Never called: there are no slots."""
        return 0

    def error(self, error: BaseException) -> int:  # noqa: ARG002 - the signature of a Listener
        """Never called: there are no slots."""
        return 0

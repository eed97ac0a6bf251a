"""What a probe and the recorder behind it say to each other.

A probe sits where a framework's operations are called. It tells the recorder when a call begins
and how it ended; the ``Form`` of the operation tells what the recorder has to know about it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from types import FrameType

    from optrove.model.case import Case

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

"""Trace a single call without a journal: its Case and its outputs, as the recorder sees them.

The same patches, bindings and descriptions as in a trace are at work, so that what a witness
has seen can be compared with what was recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optrove.backends.base import RecipeLookup, unobserved
from optrove.backends.describe import Describer, DescriptionCache
from optrove.backends.watching import CURRENT, MUTED
from optrove.model.case import Case

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from optrove.backends.base import Tables
    from optrove.backends.watching import Arguments, Call, Form, Keywords, Known
    from optrove.model.values import Value


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

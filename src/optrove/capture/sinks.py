"""What a sink is given: one finished call with its live arguments, and how it is described."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from optrove.serializer.op_lines import OpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.model.case import Case, NamedValues
    from optrove.model.records import CallSite, Phase
    from optrove.model.values import Value
    from optrove.serializer.describe import Describer


@dataclass(frozen=True, slots=True)
class Described:
    """The recorded form of a finished call; ``output`` is None when it raised."""

    inputs: tuple[Value, ...]
    keywords: NamedValues
    output: Value | None


@dataclass(frozen=True, slots=True)
class Observed:
    """One finished call; its live objects are only good while the sink runs.

    ``op_index`` and ``parent`` count the calls of the process. ``started_ns`` is wall-clock time
    since the epoch. ``case`` is what the recorder described, None when it could not, and
    ``described`` the arguments as they were given; both from before the call.
    """

    op_index: int
    process: int
    op: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    error: BaseException | None
    case: Case | None
    described: Described
    test_id: str | None
    phase: Phase | None
    module: str | None
    mode: str | None
    call_site: CallSite | None
    parent: int | None
    depth: int
    started_ns: int
    duration_ns: int
    run_id: str


class Sink(Protocol):
    """Whatever wants to see every finished call.

    ``completed`` runs in the thread that made the call, right after it ended, inner calls before
    the call that made them. Calls that the sink itself makes are not observed.
    """

    def completed(self, observed: Observed) -> None:
        """Take one finished call."""

    def close(self) -> None:
        """Give back what the sink holds; it is given no more calls."""


class DescribedCall:
    """The description of one call: of its arguments at once, of its result when there is one.

    One session for both, so that a tensor has one number throughout.
    """

    __slots__ = ("_inputs", "_keywords", "_session")

    def __init__(
        self, session: Describer, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> None:
        self._session = session
        self._inputs = tuple([session.describe(live) for live in arguments])
        # By name, so that the order in which keywords were written does not matter.
        self._keywords = tuple(
            [(name, session.describe(live)) for name, live in sorted(keywords.items())]
        )

    def returned(self, result: Any) -> Described:
        """Return the recorded form of a call that has returned."""
        return Described(self._inputs, self._keywords, self._session.describe(result))

    def raised(self) -> Described:
        """Return the recorded form of a call that has raised."""
        return Described(self._inputs, self._keywords, None)


def op_error(error: BaseException) -> OpError:
    """Return what is written about an exception."""
    kind = type(error)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return OpError(prefix + kind.__qualname__, str(error))

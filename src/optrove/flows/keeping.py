"""Put Attempts into a trove as they come, so that whatever ends a run loses none of them."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.errors import UnusableTrove
from optrove.flows.runs import now
from optrove.model.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.model.records import Attempt, Run
    from optrove.store.place import Place
    from optrove.store.trove import Trove

    Tell = Callable[[str], object]

_MOST: Final = 500
_SECONDS: Final = 1.0
"""How many Attempts wait to be written, and for how long at most: writing each costs more."""


@contextmanager
def keeping(place: Place | None, run: Run, tell: Tell) -> Iterator[Callable[[Attempt], None]]:
    """Give a function that keeps the Attempts of a Run in the trove at ``place``.

    At the end of the block all are in the trove, whatever has ended it; the Run counts as
    finished when nothing went wrong. A trove that cannot be written to (or None) keeps nothing,
    which ``tell`` hears of.
    """
    if place is None:
        yield lambda _: None
        return
    from optrove.store.trove import open_trove

    with ExitStack() as stack:
        try:
            trove = stack.enter_context(open_trove(place, create=False))
            trove.add_attempts(run, ())
        except UnusableTrove as error:
            tell(f"the results are not kept: {error}")
            yield lambda _: None
            return
        writer = AttemptWriter(trove, run)
        try:
            yield writer.take
        finally:
            writer.write()
        trove.add_attempts(writer.ended(), ())


class AttemptWriter:
    """The Attempts of a Run that are on their way into a trove."""

    def __init__(self, trove: Trove, run: Run) -> None:
        self._trove = trove
        self._run = run
        self._waiting: list[Attempt] = []
        self._written = time.monotonic()
        self._failed = False

    def take(self, attempt: Attempt) -> None:
        """Keep an Attempt."""
        self._failed = self._failed or attempt.outcome is not Outcome.PASSED
        self._waiting.append(attempt)
        if len(self._waiting) >= _MOST or time.monotonic() - self._written >= _SECONDS:
            self.write()

    def write(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        self._trove.add_attempts(self._run, waiting)
        self._written = time.monotonic()

    def ended(self) -> Run:
        """Return the Run as it is when all has been done."""
        return replace(self._run, finished_at=now(), exit_code=int(self._failed))

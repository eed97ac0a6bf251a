"""Find out how a recorded call is written, without calling it: what goes by place, what by name.

Imported recordings know some arguments by their places only, of Python or of C++. The
signatures of the installed ttnn tell what these are called.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from optrove.errors import NotReplayable
from optrove.frameworks.ttnn.execute.missing_arguments import Supplies
from optrove.frameworks.ttnn.execute.positional_arguments import PLACE, passing
from optrove.model.case import Case

if TYPE_CHECKING:
    from optrove.frameworks.ttnn.execute.invoking import Targets


@dataclass(frozen=True, slots=True)
class Written:
    """How a case is called: ``places`` are passed by place, in this order.

    ``roles`` are the names of the parameters that take them, where they are known; ``notes`` tell
    what was supplied or left out.
    """

    case: Case
    places: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


class CallNames:
    """Tells how cases are called; ttnn is imported when the first one needs it.

    Where ttnn is not installed, or does not know the operation, places stay places.
    """

    def __init__(self) -> None:
        self._targets: Targets | None = None
        self._is_loaded = False

    def written(self, case: Case) -> Written:
        """Return how a case is called."""
        names = [name for name, _ in case.arguments]
        numbered = sorted(filter(PLACE.fullmatch, names), key=lambda name: int(name[3:]))
        if not numbered:
            return Written(case)
        if not self._is_loaded:
            self._targets, self._is_loaded = _targets(), True
        if self._targets is None:
            return Written(case, tuple(numbered))
        try:
            target = self._targets.find(case.op)
        except NotReplayable:  # the call itself will say so
            return Written(case, tuple(numbered))
        way = passing(target, dict(case.arguments))
        supplies = Supplies()
        values = supplies.arguments(target, way.values, way.named)
        if way.named:
            values = supplies.truths(target, values)
        return Written(
            Case(case.op, tuple(values.items())),
            tuple(way.places),
            tuple(sorted(way.roles.items())),
            (*way.notes, *supplies.notes),
        )


def _targets() -> Targets | None:
    from optrove.frameworks.ttnn.execute.invoking import Targets

    try:
        logger: Any = import_module("loguru").logger
        # Importing ttnn logs its whole configuration; nothing else of its log is held back.
        logger.disable("ttnn")
        try:
            return Targets(import_module("ttnn"))
        finally:
            logger.enable("ttnn")
    except ImportError:
        return None

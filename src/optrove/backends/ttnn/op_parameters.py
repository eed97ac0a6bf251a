"""Tell whether ops of the installed ttnn take arguments by these names."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.ttnn.arguments import Signatures
from optrove.backends.ttnn.invoking import Targets
from optrove.backends.ttnn.probe import innermost, registered
from optrove.errors import NotReplayable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from optrove.backends.ttnn.invoking import Target

_SHOWN: Final = 12


class OpParameters:
    """The parameters of the ops of one loaded ttnn, as its own signatures tell them."""

    def __init__(self, ttnn: ModuleType) -> None:
        self._targets = Targets(ttnn)
        # Whoever watches or shadows the ops at the moment, these are ttnn's own functions.
        originals = {
            each.python_fully_qualified_name: innermost(each.function) for each in registered(ttnn)
        }
        self._signatures = Signatures(originals)

    def problem(self, ops: Iterable[str], names: frozenset[str]) -> str | None:
        """Return why none of the ops takes these arguments together; None if one does."""
        ways: list[tuple[str, frozenset[str]]] = []
        missing = []
        for op in ops:
            try:
                target = self._targets.find(op)
            except NotReplayable:
                missing.append(op)
                continue
            found = self._ways(target)
            if not found or any(names <= way for way in found):
                return None
            ways += [(op, way) for way in found]
        if not ways:
            return f"the installed ttnn has no operation called {' or '.join(missing)}"
        return _told(ways, names)

    def _ways(self, target: Target) -> list[frozenset[str]]:
        """Return the names that each way to call an op takes; none where that is not told."""
        overloads = self._signatures.of(target.operation) if target.operation else target.overloads
        if overloads:
            return [overload.names for overload in overloads]
        try:
            signature = inspect.signature(innermost(target.inside or target.function))
        except (TypeError, ValueError):  # written in C++, and it tells none
            return []
        parameters = signature.parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            return []
        return [frozenset(parameters)]


def installed() -> OpParameters | None:
    """Import ttnn and return the parameters of its ops; None if it is not installed."""
    try:
        logger: Any = import_module("loguru").logger
        # Importing ttnn logs its whole configuration; nothing else of its log is held back.
        logger.disable("ttnn")
        try:
            return OpParameters(import_module("ttnn"))
        finally:
            logger.enable("ttnn")
    except ImportError:
        return None


def _told(ways: list[tuple[str, frozenset[str]]], names: frozenset[str]) -> str:
    op, nearest = max(ways, key=lambda way: len(names & way[1]))
    every = frozenset().union(*(way for _, way in ways))
    strange = sorted(names - every)
    if not strange:
        left = ", ".join(sorted(names - nearest))
        return f"{op} does not take {left} together with {', '.join(sorted(names & nearest))}"
    close = [match for name in strange for match in get_close_matches(name, every, n=2)]
    hint = f"; close to it: {', '.join(dict.fromkeys(close))}" if close else ""
    shown = ", ".join(strange[:_SHOWN])
    return f"{op} of the installed ttnn has no argument {shown}{hint}"

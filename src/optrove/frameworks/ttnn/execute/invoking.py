"""Find an operation by its recorded name, and how to pass its arguments.

Names come from recordings, so nothing but operations can be reached by them: not the modules
that ttnn has imported, not its private parts.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import unwrap
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable
from optrove.frameworks.argument_names import signature_of
from optrove.frameworks.ttnn.probe.probe import METHODS, registered
from optrove.frameworks.ttnn.signatures import Overload, Signatures, bind_all, overloads_of

if TYPE_CHECKING:
    from collections.abc import Iterable


_OPERATIONS: Final = "ttnn.operations."


@dataclass(frozen=True, slots=True)
class Target:
    """What is called: an operation, or a method of the tensor that is passed as ``self``."""

    function: Any
    overloads: tuple[Overload, ...]
    signature: inspect.Signature | None = None
    operation: Any = None
    inside: Any = None
    """The function that does the work of the operation."""

    def name(self, op: str) -> str:
        """Return what ttnn itself calls the target; ``op`` may be one of several names for it."""
        return op if self.operation is None else str(self.operation.python_fully_qualified_name)


class Targets:
    """The operations of one loaded ttnn by their names; made before anyone watches them."""

    def __init__(self, ttnn: ModuleType) -> None:
        self._ttnn: Any = ttnn
        self._operations = {each.python_fully_qualified_name: each for each in registered(ttnn)}
        self.signatures = Signatures()
        kinds = (self._ttnn.decorators.FastOperation, self._ttnn.decorators.Operation)
        self._kinds: tuple[type, ...] = kinds
        self._known: dict[str, Target] = {}

    def find(self, op: str) -> Target:
        """Return the operation called ``op``; NotReplayable if there is none."""
        target = self._known.get(op)
        if target is None:
            target = self._known[op] = self._find(op)
        return target

    def _find(self, op: str) -> Target:
        if op in self._operations:
            return self._operation(self._operations[op])
        live = self._walk(op)
        if op.startswith("ttnn.Tensor.") and op.rpartition(".")[2] in METHODS and live is not None:
            return Target(live, overloads_of(live))
        if isinstance(live, self._kinds):
            return self._operation(live)
        if isinstance(live, FunctionType) and live.__module__.startswith(_OPERATIONS):
            return Target(live, (), inspect.signature(live))
        raise NotReplayable(f"the installed ttnn has no operation called {op}{self._hint(op)}")

    def _operation(self, operation: Any) -> Target:
        overloads = self.signatures.of(operation)
        inside = unwrap(operation.function)
        signature = None if overloads else signature_of(inside)
        return Target(operation, overloads, signature, operation, inside)

    def _walk(self, op: str) -> Any:
        """Follow a name through ttnn's own modules; None where it leads elsewhere."""
        first, *parts = op.split(".")
        live: Any = self._ttnn if first == "ttnn" else None
        for part in parts:
            if not _is_own(live, self._ttnn.Tensor):
                return None
            live = getattr(live, part, None)
            if live is self._ttnn:  # its modules import it, and no operation lies there
                return None
        return live

    def _hint(self, op: str) -> str:
        close = get_close_matches(op, self._operations, n=3)
        return f"; close to it: {', '.join(close)}" if close else ""


def _is_own(live: Any, tensor: type) -> bool:
    """Tell whether names may be looked up in an object: ttnn's modules, and its tensor class."""
    if live is tensor:
        return True
    # Namespaces of ttnn are modules or plain objects that its own modules have made.
    if isinstance(live, ModuleType):
        return live.__name__.partition(".")[0] == "ttnn"
    return type(live).__module__.partition(".")[0] == "ttnn" and not isinstance(live, type)


def spread(
    target: Target, live: dict[str, Any], places: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return live arguments as they are passed: ``places`` by place, others as they may be.

    Arguments with names are passed by place where ttnn's signature then gives them the same
    names again, as programs do: golden functions call their parameters otherwise, and where
    overloads differ in types only, the recorded name may be that of another one. The rest is
    passed by name.
    """
    first = [live["self"]] if "self" in live and target.operation is None else []
    others = {name: each for name, each in live.items() if not (first and name == "self")}
    if places:
        before = [name for name in _before_loose(target.signature) if name in others]
        by_place = [others.pop(name) for name in (*before, *places) if name in others]
        return (*first, *by_place), others
    for row in _rows(target, set(others)):
        count = next((i for i, name in enumerate(row) if name not in others), len(row))
        placed = tuple(others[name] for name in row[:count])
        rest = {name: each for name, each in others.items() if name not in row[:count]}
        bound = bind_all(target.inside or target.function, target.overloads, placed, rest)
        if bound.keys() == others.keys() and all(bound[n] is others[n] for n in others):
            return (*first, *placed), rest
    return tuple(first), others


def _rows(target: Target, names: set[str]) -> list[tuple[str, ...]]:
    """Return the parameters that can be passed by place, for each overload that fits."""
    if target.overloads:
        return [o.positional for o in target.overloads if o.required <= names <= o.names]
    if target.signature is None:
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = target.signature.parameters.values()
    return [tuple(each.name for each in parameters if each.kind in kinds)]


def _before_loose(signature: inspect.Signature | None) -> list[str]:
    """Return the parameters before loose ones, which have to be passed by place as well."""
    before: list[str] = []
    for parameter in () if signature is None else signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return before
        before.append(parameter.name)
    return []


_SHOWN: Final = 12


class OpParameters:
    """The parameters of the ops of one loaded ttnn, as its own signatures tell them."""

    def __init__(self, ttnn: ModuleType) -> None:
        self._targets = Targets(ttnn)

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
        if target.overloads:
            return [frozenset(overload.names) for overload in target.overloads]
        parameters = {} if target.signature is None else target.signature.parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            return []
        return [frozenset(parameters)] if target.signature is not None else []


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

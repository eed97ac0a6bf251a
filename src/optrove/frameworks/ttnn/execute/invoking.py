"""Find an operation by its recorded name, and how to pass its arguments.

``optrove.frameworks.op_names`` decides what a name reaches.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from difflib import get_close_matches
from inspect import unwrap
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable
from optrove.frameworks.argument_names import signature_of
from optrove.frameworks.installed import import_ttnn
from optrove.frameworks.op_names import (
    FUNCTIONS,
    TTNN_METHODS,
    operations_of,
    refusal,
    ttnn_operation,
)
from optrove.frameworks.ttnn.execute.missing_arguments import MissingArguments
from optrove.frameworks.ttnn.execute.positional_arguments import (
    argument_passing,
    numbered_places,
    positional_names,
)
from optrove.frameworks.ttnn.execute.typed_arguments import ArgumentTypes
from optrove.frameworks.ttnn.signatures import Overload, Signatures, bind_all, overloads_of
from optrove.model.case import Case

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Target:
    """A callable: an operation, or a method of the tensor that is passed as ``self``."""

    function: Any
    overloads: tuple[Overload, ...]
    signature: inspect.Signature | None = None
    operation: Any = None
    inside: Any = None
    """The function that does the work of the operation."""
    types: ArgumentTypes = field(default_factory=lambda: ArgumentTypes({}, {}))
    """The classes that the annotations of its parameters name."""

    def annotation(self, name: str) -> str:
        """Return the type of a parameter; empty if it is unknown."""
        found = (each.annotations.get(name) for each in self.overloads)
        return next(filter(None, found), "")

    def has(self, name: str) -> bool:
        """Return whether there is a parameter of this name; True if that is unknown."""
        if self.overloads:
            return name == "self" or any(name in each.names for each in self.overloads)
        if self.signature is None:
            return True
        parameters = self.signature.parameters
        takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
        return takes_any or name in parameters

    def name(self, op: str) -> str:
        """Return ttnn's own name of the target; ``op`` may be one of several names for it."""
        return op if self.operation is None else str(self.operation.python_fully_qualified_name)


class Targets:
    """The operations of one loaded ttnn by name."""

    def __init__(self, ttnn: ModuleType) -> None:
        self._ttnn: Any = ttnn
        self._operations = operations_of(ttnn)
        self.signatures = Signatures()
        self._types = ArgumentTypes.of(ttnn)
        self._known: dict[str, Target] = {}

    def find(self, op: str) -> Target:
        """Return the operation called ``op``; raise NotReplayable if it does not exist."""
        target = self._known.get(op)
        if target is None:
            target = self._known[op] = self._find(op)
        return target

    def _find(self, op: str) -> Target:
        live = ttnn_operation(self._ttnn, self._operations, op)
        if live is None:
            missing = f"the installed ttnn has no operation called {op}"
            raise NotReplayable(refusal(op) or f"{missing}{self._hint(op)}")
        if op.startswith(TTNN_METHODS) and op not in self._operations:
            return Target(live, overloads_of(live), types=self._types)
        if op in FUNCTIONS and isinstance(live, FunctionType):
            return Target(live, (), inspect.signature(live))
        return self._operation(live)

    def _operation(self, operation: Any) -> Target:
        overloads = self.signatures.of(operation)
        inside = unwrap(operation.function)
        signature = None if overloads else signature_of(inside)
        return Target(operation, overloads, signature, operation, inside, self._types)

    def _hint(self, op: str) -> str:
        close = get_close_matches(op, self._operations, n=3)
        return f"; close to it: {', '.join(close)}" if close else ""


def spread(
    target: Target, live: dict[str, Any], places: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return live arguments as they are passed; ``places`` are passed by place.

    Named arguments are passed by place if ttnn's signature then gives them the same names again, as
    programs do: golden functions have other parameter names, and where overloads differ in types
    only, the recorded name may be that of another one. The rest is passed by name.
    """
    first = [live["self"]] if "self" in live and target.operation is None else []
    others = {name: each for name, each in live.items() if not (first and name == "self")}
    if places:
        before = [name for name in _before_variadic(target.signature) if name in others]
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
    return [] if target.signature is None else [tuple(positional_names(target.signature))]


def _before_variadic(signature: inspect.Signature | None) -> list[str]:
    """Return the parameters before ``*args``, which have to be passed by place as well."""
    before: list[str] = []
    for parameter in () if signature is None else signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            return before
        before.append(parameter.name)
    return []


@dataclass(frozen=True, slots=True)
class PassedCase:
    """How a case is called: ``places`` are passed by place, in this order.

    ``roles`` are the parameters that take them, where they are known; ``notes`` list supplied and
    omitted arguments.
    """

    case: Case
    places: tuple[str, ...] = ()
    roles: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


class CallNames:
    """Finds out how cases are called, without calling them.

    ttnn is imported when the first case needs it. If it is not installed, or lacks the operation,
    places stay places.
    """

    def __init__(self) -> None:
        self._targets: Targets | None = None
        self._is_loaded = False

    def passed(self, case: Case) -> PassedCase:
        """Return how a case is called."""
        numbered = numbered_places(name for name, _ in case.arguments)
        if not numbered:
            return PassedCase(case)
        target = self._target(case.op)
        if target is None:
            return PassedCase(case, tuple(numbered))
        passing = argument_passing(target, dict(case.arguments))
        missing = MissingArguments()
        values = missing.fill(target, passing)
        return PassedCase(
            Case(case.op, tuple(values.items())),
            tuple(passing.places),
            tuple(sorted(passing.roles.items())),
            (*passing.notes, *missing.notes),
        )

    def _target(self, op: str) -> Target | None:
        if not self._is_loaded:
            self._is_loaded = True
            try:
                self._targets = Targets(import_ttnn())
            except ImportError:
                return None
        try:
            return None if self._targets is None else self._targets.find(op)
        except NotReplayable:  # the call itself will say so
            return None


_MAX_NAMES: Final = 12


class OpParameters:
    """The parameters of the ops of one loaded ttnn."""

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
        return _mismatch(ways, names)

    def _ways(self, target: Target) -> list[frozenset[str]]:
        """Return the parameters of each overload of an op; none if they are unknown."""
        if target.overloads:
            return [frozenset(overload.names) for overload in target.overloads]
        parameters = {} if target.signature is None else target.signature.parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
            return []
        return [frozenset(parameters)] if target.signature is not None else []


def installed_parameters() -> OpParameters | None:
    """Import ttnn and return the parameters of its ops; None if it is not installed."""
    try:
        return OpParameters(import_ttnn())
    except ImportError:
        return None


def _mismatch(ways: list[tuple[str, frozenset[str]]], names: frozenset[str]) -> str:
    op, nearest = max(ways, key=lambda way: len(names & way[1]))
    every = frozenset().union(*(way for _, way in ways))
    strange = sorted(names - every)
    if not strange:
        left = ", ".join(sorted(names - nearest))
        return f"{op} does not take {left} together with {', '.join(sorted(names & nearest))}"
    close = [match for name in strange for match in get_close_matches(name, every, n=2)]
    hint = f"; close to it: {', '.join(dict.fromkeys(close))}" if close else ""
    shown = ", ".join(strange[:_MAX_NAMES])
    return f"{op} of the installed ttnn has no argument {shown}{hint}"

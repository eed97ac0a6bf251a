"""The Case: one operation with its arguments; obstacles to its replay; rewriting it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.model.values import (
    Callable,
    DeviceRef,
    FrozenSet,
    Handle,
    List,
    Mapping,
    Opaque,
    Set,
    Struct,
    TensorSpec,
    TtnnPlacement,
    Tuple,
    Value,
    key_step,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Callable as Function
    from collections.abc import Iterator
    from collections.abc import Mapping as Names


NamedValues: TypeAlias = tuple[tuple[str, Value], ...]
"""Values by name, sorted by name, each name once."""

_POSITION: Final = re.compile(r"arg(\d{1,6})\Z")


def by_name(values: NamedValues, owner: str) -> NamedValues:
    """Return ``values`` sorted by name; ValueError when ``owner`` has a name twice."""
    counts = Counter(name for name, _ in values)
    if len(counts) != len(values):
        twice = ", ".join(sorted(name for name, count in counts.items() if count > 1))
        raise ValueError(f"{owner} has more than one value for {twice}; give each name once")
    return tuple(sorted(values, key=lambda item: item[0]))


def argument_order(name: str) -> tuple[int, int, str]:
    """Return the sort key of an argument: ``arg0``, ``arg1`` and on first, then by name."""
    position = _POSITION.match(name)
    return (1, 0, name) if position is None else (0, int(position[1]), name)


@dataclass(frozen=True, slots=True)
class Case:
    """An operation and its arguments, bound to parameter names and kept in their order.

    ``op`` is the public name (``ttnn.add``). An omitted argument is absent; an explicit None is
    Null. The difference matters for replay, so neither is turned into the other.
    """

    op: str
    arguments: NamedValues

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", by_name(self.arguments, self.op))

    def parts(self) -> Iterator[tuple[str, Value]]:
        """Yield all parts of the arguments, each with the name of its argument."""
        for name, value in self.arguments:
            for _, part in walk(value):
                yield name, part

    def tensors(self) -> Iterator[TensorSpec]:
        """Yield the tensors in the arguments; one that is passed twice, twice."""
        return (part for _, part in self.parts() if isinstance(part, TensorSpec))

    def changed(self, change: Function[[Value], Value]) -> Case:
        """Return the Case with ``change`` applied to each part of its arguments."""
        named = ((name, rewrite(value, change)) for name, value in self.arguments)
        return Case(self.op, tuple(named))


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A part of an argument that cannot be recreated: its path, its type, and the reason."""

    path: str
    type: str
    reason: str


def obstacles(case: Case) -> tuple[Obstacle, ...]:
    """Return the parts that keep ``case`` from being replayed as recorded.

    These are facts of the recording: a replay may supply substitutes, and notes them. Whether the
    installed framework can build the rest is decided by ``build``.
    """
    found = []
    for name, value in case.arguments:
        for path, part in walk(value, f"$.arguments{key_step(name)}"):
            fault = obstacle(path, part)
            if fault is not None:
                found.append(fault)
    return tuple(found)


def obstacle(path: str, part: Value) -> Obstacle | None:
    """Return the obstacle that ``part`` itself is, apart from its own parts; None if it is fine."""
    if isinstance(part, Opaque):
        is_tensor = part.type == "ttnn.Tensor"  # of a file that lacks a part of it
        reason = (
            "its form in the file is incomplete" if is_tensor else "no converter knows this type"
        )
        return Obstacle(path, part.type, reason)
    if isinstance(part, Handle) and part.recipe is None:
        return Obstacle(path, part.type, "how it was made was not observed")
    if isinstance(part, Callable):
        return Obstacle(path, part.name, "a function is recorded by name only")
    return None


def rewrite(value: Value, change: Function[[Value], Value]) -> Value:
    """Return ``value`` with ``change`` applied to each of its parts, and then to itself.

    The order is that of describing: items in their order, fields by name.
    """
    match value:
        case List(items):
            value = List(tuple(rewrite(item, change) for item in items))
        case Tuple(items):
            value = Tuple(tuple(rewrite(item, change) for item in items))
        case Set(items):
            value = Set(frozenset(rewrite(item, change) for item in items))
        case FrozenSet(items):
            value = FrozenSet(frozenset(rewrite(item, change) for item in items))
        case Mapping(items):
            pairs = ((rewrite(key, change), rewrite(item, change)) for key, item in items)
            value = Mapping(frozenset(pairs))
        case Struct(kind, fields):
            value = Struct(kind, tuple((name, rewrite(item, change)) for name, item in fields))
    return change(value)


def renamed(case: Case, names: Names[str, str]) -> Case:
    """Return ``case`` with new names for some arguments, as if recorded with these names.

    So tensors, buffers, devices and handles are renumbered in the order of the new names.
    """
    numbering = _Numbering()
    called = {names.get(name, name): value for name, value in case.arguments}
    arguments = [(name, rewrite(called[name], numbering.change)) for name in sorted(called)]
    return Case(case.op, tuple(arguments))


class _Numbering:
    """Renumbers the tensors, buffers, devices and handles of one case in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[object, int]] = {}

    def change(self, value: Value) -> Value:
        """Return a part with its new numbers."""
        match value:
            case TensorSpec(placement=placement):
                if isinstance(placement, TtnnPlacement) and placement.device is not None:
                    device = self._number("device", placement.device)
                    placement = replace(placement, device=device)
                return replace(
                    value,
                    placement=placement,
                    identity=self._number("tensor", value.identity),
                    storage=self._number("storage", value.storage),
                )
            case DeviceRef():
                return replace(value, identity=self._number("device", value.identity))
            case Handle():
                return replace(value, identity=self._number("handle", value.identity))
        return value

    def _number(self, kind: str, old: object) -> int:
        numbers = self._numbers.setdefault(kind, {})
        return numbers.setdefault(old, len(numbers))

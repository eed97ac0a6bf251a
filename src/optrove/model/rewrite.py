"""Change parts of a Value and keep the rest: every part is offered once, the innermost first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from optrove.model.case import Case
from optrove.model.values import (
    DeviceRef,
    FrozenSet,
    Handle,
    List,
    Mapping,
    Set,
    Struct,
    TensorSpec,
    TtnnPlacement,
    Tuple,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Mapping as Names


def rewrite(value: Value, change: Callable[[Value], Value]) -> Value:
    """Return ``value`` with each of its parts, and then itself, as ``change`` returns it.

    The order is that of describing: items as they stand, fields by their names.
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
    """Return ``case`` with other names for some arguments, and its tensors numbered anew.

    Tensors, buffers, devices and handles are numbered in the order of the arguments' names, so
    that a case comes out as if it had been recorded with the new names.
    """
    numbering = _Numbering()
    called = {names.get(name, name): value for name, value in case.arguments}
    arguments = [(name, rewrite(called[name], numbering.change)) for name in sorted(called)]
    return Case(case.op, tuple(arguments))


class _Numbering:
    """New numbers for what is numbered within one case, in order of appearance."""

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

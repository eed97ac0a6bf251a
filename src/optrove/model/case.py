"""The Case: one operation with its arguments, free of time and place."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, TypeAlias

from optrove.model.values import Callable, Handle, Opaque, Value
from optrove.model.walk import key_step, walk

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
    """Return what arguments are sorted by for reading: ``arg0`` and on first, by number."""
    position = _POSITION.match(name)
    return (1, 0, name) if position is None else (0, int(position[1]), name)


@dataclass(frozen=True, slots=True)
class Case:
    """An operation and its arguments, bound to parameter names and kept in their order.

    ``op`` is the public name (``ttnn.add``). An argument left out is absent; an explicit None
    is there as Null. Which is which matters for replay, so neither is turned into the other.
    """

    op: str
    arguments: NamedValues

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", by_name(self.arguments, self.op))


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One argument part that cannot be made anew, where it is, and why."""

    path: str
    type: str
    reason: str


def obstacles(case: Case) -> tuple[Obstacle, ...]:
    """Return all that keeps ``case`` from being replayed as it was; empty when nothing does.

    These are facts of the recording: a replay may supply something in their place, and notes it.
    Whether the installed framework can build the rest is for ``build`` to say.
    """
    found = []
    for name, value in case.arguments:
        for path, part in walk(value, f"$.arguments{key_step(name)}"):
            fault = obstacle(path, part)
            if fault is not None:
                found.append(fault)
    return tuple(found)


def is_replayable(case: Case) -> bool:
    """Tell whether the recording of ``case`` holds all that a replay needs."""
    return not obstacles(case)


def obstacle(path: str, part: Value) -> Obstacle | None:
    """Return what keeps one part, itself and not what it holds, from being made anew."""
    if isinstance(part, Opaque):
        return Obstacle(path, part.type, "no converter knows this type")
    if isinstance(part, Handle) and part.recipe is None:
        return Obstacle(path, part.type, "how it was made was not observed")
    if isinstance(part, Callable):
        return Obstacle(path, part.name, "a function is recorded by name only")
    return None

"""Count cases by what can be chosen of them: model, board, dtype, layout, memory, mesh, outcome.

Of each op, the cases are numbered, most called first, and a set of them is the bits of one whole
number: choosing is "and", counting is counting bits. Calls are kept as sets too, one for each
binary digit, so that the calls of any choice are added up without looking at a single case. A
hundred thousand cases take some megabytes, and any choice among them a few milliseconds.

What is chosen of dtype, layout, memory and mesh has to hold for one and the same tensor.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

T = TypeVar("T")

Tensor: TypeAlias = tuple[str, str, str, str]
"""Dtype, layout, memory and mesh of a tensor."""
Origin: TypeAlias = tuple[str, str]
"""Model and board of calls."""

NONE: Final = "none"
"""Stands for a property that is not there: no mesh, no board, never tried."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What cases were chosen by; None does not restrict them."""

    model: str | None = None
    board: str | None = None
    dtype: str | None = None
    layout: str | None = None
    memory: str | None = None
    mesh: str | None = None
    outcome: str | None = None


FACETS: Final = tuple(field.name for field in fields(Choice))
_OF_ORIGIN: Final = ("model", "board")
_OF_TENSOR: Final = ("dtype", "layout", "memory", "mesh")


class Cases:
    """The cases of one op, numbered from zero, most called first.

    Keys and families are kept by number. ``outermost`` are those that some call was made of that
    no other call made.
    """

    __slots__ = (
        *("calls", "families", "keys", "outermost", "replayable"),
        *("_origins", "_planes", "_tensors", "outcomes"),
    )

    def __init__(self) -> None:
        self.keys = array("q")
        self.calls = array("q")
        self.families = array("q")
        self.outermost = 0
        self.replayable = 0
        self.outcomes: dict[str, int] = {}
        self._tensors: dict[Tensor, int] = {}
        self._origins: dict[Origin, tuple[int, tuple[int, ...]]] = {}
        self._planes: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def chosen(self, choice: Choice, *, nested: bool = False) -> int:
        """Return the set of cases that fit."""
        found = self._every() if nested else self.outermost
        if any(getattr(choice, name) is not None for name in _OF_TENSOR):
            found &= self._union(_fit(self._tensors.items(), _OF_TENSOR, choice))
        if choice.model is not None or choice.board is not None:
            origins = ((origin, cases) for origin, (cases, _) in self._origins.items())
            found &= self._union(_fit(origins, _OF_ORIGIN, choice))
        if choice.outcome is not None:
            found &= self.of_outcome(choice.outcome)
        return found

    def of_outcome(self, outcome: str) -> int:
        """Return the cases whose last attempt had this outcome."""
        if outcome != NONE:
            return self.outcomes.get(outcome, 0)
        return self._every() & ~self._union(self.outcomes.values())

    def calls_of(self, cases: int, choice: Choice) -> int:
        """Return how often a set of cases was called by the models and on the boards chosen."""
        if choice.model is None and choice.board is None:
            return _weighed(cases, self._planes)
        origins = ((origin, planes) for origin, (_, planes) in self._origins.items())
        return sum(_weighed(cases, planes) for planes in _fit(origins, _OF_ORIGIN, choice))

    def models(self, cases: int) -> set[str]:
        """Return the models that call some of a set of cases."""
        return {model for (model, _), (own, _) in self._origins.items() if own & cases}

    def called_by(self, name: str) -> dict[str, tuple[int, int]]:
        """Return the cases that each model, or what is called on each board, and the calls."""
        place = _OF_ORIGIN.index(name)
        found: dict[str, tuple[int, int]] = {}
        for origin, (own, planes) in self._origins.items():
            cases, calls = found.get(origin[place], (0, 0))
            called = own & self.outermost
            found[origin[place]] = cases | called, calls + _weighed(called, planes)
        return found

    def values(self, name: str, choice: Choice, *, nested: bool = False) -> Counter[str]:
        """Return how many cases each value of a facet would leave, with all else as chosen."""
        rest = self.chosen(replace(choice, **{name: None}), nested=nested)
        if name == "outcome":
            found = {NONE: self.of_outcome(NONE), **self.outcomes}
        elif name in _OF_TENSOR:
            found = _grouped(self._tensors.items(), _OF_TENSOR, name, choice)
        else:
            origins = ((origin, cases) for origin, (cases, _) in self._origins.items())
            found = _grouped(origins, _OF_ORIGIN, name, choice)
        counts = {value: (cases & rest).bit_count() for value, cases in found.items()}
        return Counter({value: count for value, count in counts.items() if count})

    def fill(
        self,
        tensors: Mapping[Tensor, bytearray],
        origins: Mapping[Origin, dict[int, int]],
    ) -> None:
        """Take what was gathered: bytes of bits by tensor, calls by number of case by origin."""
        self._tensors = {each: int.from_bytes(bits, "little") for each, bits in tensors.items()}
        self._planes = _planes_of(dict(enumerate(self.calls)), len(self))
        self._origins = {
            origin: (_set_of(calls, len(self)), _planes_of(calls, len(self)))
            for origin, calls in origins.items()
        }

    def _every(self) -> int:
        return (1 << len(self.keys)) - 1

    @staticmethod
    def _union(sets: Iterable[int]) -> int:
        found = 0
        for each in sets:
            found |= each
        return found


def numbers_in(cases: int, after: int = -1) -> Iterator[int]:
    """Yield the numbers of a set in their order, from the one after another on."""
    rest = cases >> (after + 1)
    number = after
    for bit in bin(rest)[:1:-1]:
        number += 1
        if bit == "1":
            yield number


def _fit(
    entries: Iterable[tuple[tuple[str, ...], T]], names: tuple[str, ...], choice: Choice
) -> Iterator[T]:
    wanted = [getattr(choice, name) for name in names]
    for facts, found in entries:
        if all(want is None or want == fact for want, fact in zip(wanted, facts, strict=True)):
            yield found


def _grouped(
    entries: Iterable[tuple[tuple[str, ...], int]],
    names: tuple[str, ...],
    name: str,
    choice: Choice,
) -> dict[str, int]:
    """Return the cases by each value of one facet, with the others of its kind as chosen."""
    place, others = names.index(name), replace(choice, **{name: None})
    found: dict[str, int] = {}
    kept = ((facts, (facts[place], cases)) for facts, cases in entries)
    for value, cases in _fit(kept, names, others):
        found[value] = found.get(value, 0) | cases
    return found


def _weighed(cases: int, planes: tuple[int, ...]) -> int:
    return sum((cases & plane).bit_count() << digit for digit, plane in enumerate(planes))


def _set_of(numbers: Iterable[int], size: int) -> int:
    bits = bytearray(size // 8 + 1)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def _planes_of(calls: Mapping[int, int], size: int) -> tuple[int, ...]:
    """Return a set of cases for each binary digit of their calls."""
    most = max(calls.values(), default=0)
    by_digit: list[list[int]] = [[] for _ in range(most.bit_length())]
    for number, count in calls.items():
        rest = count
        while rest:
            lowest = rest & -rest
            by_digit[lowest.bit_length() - 1].append(number)
            rest ^= lowest
    return tuple(_set_of(numbers, size) for numbers in by_digit)

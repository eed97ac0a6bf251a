"""Counts of cases by model, board, dtype, layout, memory, mesh and outcome.

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

from optrove.model.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


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


@dataclass(slots=True)
class Tally:
    """Attempts at one op in one run: how many, how long, and how exact their results were."""

    board: str | None = None
    tried: int = 0
    passed: int = 0
    timed: int = 0
    total_ns: int = 0
    outputs: int = 0
    total_pcc: float = 0.0
    least_pcc: float | None = None
    most_pcc: float | None = None

    @property
    def mean_ns(self) -> float | None:
        """How long one took."""
        return self.total_ns / self.timed if self.timed else None

    @property
    def mean_pcc(self) -> float | None:
        """How exact an output was."""
        return self.total_pcc / self.outputs if self.outputs else None

    def add(self, outcome: str, duration_ns: int | None, pcc: list[float]) -> None:
        """Take in an attempt, with the PCC of its outputs."""
        self.tried += 1
        self.passed += outcome == "passed"
        if duration_ns is not None:
            self.timed += 1
            self.total_ns += duration_ns
        for value in pcc:
            self.outputs += 1
            self.total_pcc += value
            self.least_pcc = value if self.least_pcc is None else min(self.least_pcc, value)
            self.most_pcc = value if self.most_pcc is None else max(self.most_pcc, value)


class Tallies:
    """All attempts that were seen, added up; runs are known by their keys."""

    def __init__(self) -> None:
        self._by_op: dict[str, dict[int, Tally]] = {}
        self._by_run: dict[int, Counter[str]] = {}

    def of(self, op: str, run_key: int, board: str | None) -> Tally:
        """Return what is known of an op in a run, to be added to; the first board is kept."""
        runs = self._by_op.setdefault(op, {})
        if run_key not in runs:
            runs[run_key] = Tally(board)
        return runs[run_key]

    def count(self, run_key: int, outcome: str, attempts: int = 1) -> None:
        """Count attempts of a run that ended so."""
        self._by_run.setdefault(run_key, Counter())[outcome] += attempts

    def of_op(self, op: str) -> dict[int, Tally]:
        """Return what came of an op, by run."""
        return dict(self._by_op.get(op, {}))

    def outcomes(self, run_key: int) -> dict[str, int]:
        """Return how many attempts of a run ended how."""
        return dict(self._by_run.get(run_key, {}))


Group: TypeAlias = list[int]
"""The cases of one family, by their numbers, most called first."""


class FamilyOrder:
    """The families of numbered cases: made once, so that a page of them takes no search."""

    __slots__ = ("_begins", "_members", "_order", "_rank")

    def __init__(self, families: Sequence[int], calls: Sequence[int]) -> None:
        """Take the family and the calls of each case; families are numbered from zero."""
        count = max(families, default=-1) + 1
        totals = [0] * count
        sizes = [0] * count
        for family, called in zip(families, calls, strict=True):
            totals[family] += called
            sizes[family] += 1
        self._begins = array("l", [0])
        for size in sizes:
            self._begins.append(self._begins[-1] + size)
        self._members = array("l", sorted(range(len(families)), key=families.__getitem__))
        # Families are numbered by their first cases, which are most called: so are equal ones.
        self._order = array("l", sorted(range(count), key=lambda family: -totals[family]))
        self._rank = array("l", [0] * count)
        for rank, family in enumerate(self._order):
            self._rank[family] = rank

    def after(self, family: int | None, cases: int) -> Iterator[Group]:
        """Yield the families from after one on, each with those of its cases that are in a set."""
        chosen = cases.to_bytes(len(self._members) // 8 + 1, "little")
        begin = 0 if family is None else self._rank[family] + 1
        for place in range(begin, len(self._order)):
            following = self._order[place]
            members = self._members[self._begins[following] : self._begins[following + 1]]
            group = [each for each in members if chosen[each >> 3] >> (each & 7) & 1]
            if group:
                yield group


Ground: TypeAlias = tuple[str, str]
"""Where something was tried: a board, and the kind of device that it was: hw, mock, shadow."""

ANYWHERE: Final[Ground] = ("", "")
"""Stands for wherever it was tried last."""

_OUTCOMES: Final = tuple(outcome.value for outcome in Outcome)
_CODES: Final = {outcome: code for code, outcome in enumerate(_OUTCOMES, start=1)}
_UNKNOWN: Final = len(_OUTCOMES) + 1
_DIGITS: Final = tuple(
    bytes(b"01"[code == each] for each in range(256)) for code in range(_UNKNOWN)
)
"""Of each code, what makes it the digit 1 and all others 0."""


class LastTried:
    """The last attempts at the cases of one op, by their numbers."""

    __slots__ = ("_grounds", "_sets", "_size")

    def __init__(self, size: int) -> None:
        """Begin with no attempts at this many cases."""
        self._size = size
        self._grounds: dict[Ground, tuple[bytearray, array[int]]] = {}
        self._sets: dict[Ground, dict[str, int]] = {}

    def add(self, number: int, ground: Ground, outcome: str, key: int) -> None:
        """Take in an attempt, which is later than all before."""
        for where in (ANYWHERE, ground):
            if where not in self._grounds:
                self._grounds[where] = (bytearray(self._size), array("q", bytes(8 * self._size)))
            codes, keys = self._grounds[where]
            codes[number] = _CODES.get(outcome, _UNKNOWN)
            keys[number] = key
            self._sets.pop(where, None)

    def grounds(self) -> tuple[Ground, ...]:
        """Return where something was tried, sorted."""
        return tuple(sorted(where for where in self._grounds if where != ANYWHERE))

    def outcomes(self, ground: Ground = ANYWHERE) -> dict[str, int]:
        """Return the sets of cases by what came of their last attempt."""
        found = self._sets.get(ground)
        if found is None:
            found = self._sets[ground] = self._gathered(ground)
        return found

    def tried(self, ground: Ground = ANYWHERE) -> int:
        """Return the set of cases that were tried."""
        every = 0
        for cases in self.outcomes(ground).values():
            every |= cases
        return every

    def last(self, number: int, ground: Ground = ANYWHERE) -> tuple[str, int] | None:
        """Return outcome and key of the last attempt at a case; None if there was none."""
        if ground not in self._grounds:
            return None
        codes, keys = self._grounds[ground]
        code = codes[number]
        return (_OUTCOMES[code - 1], keys[number]) if 0 < code < _UNKNOWN else None

    def _gathered(self, ground: Ground) -> dict[str, int]:
        if ground not in self._grounds:
            return {}
        codes, _ = self._grounds[ground]
        # The last case is the first digit of the number.
        backwards = bytes(reversed(codes))
        present = sorted(code for code in set(codes) if 0 < code < _UNKNOWN)
        return {_OUTCOMES[code - 1]: int(backwards.translate(_DIGITS[code]), 2) for code in present}

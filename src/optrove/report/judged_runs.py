"""Keep what came of the cases of a run in little memory, and compare two runs by it.

A run of a hundred thousand cases takes about six megabytes. What counts as a change is said in
``optrove.report.releases``, here as everywhere.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from optrove.model.records import Outcome
from optrove.report.attempted import cause_in
from optrove.report.causes import without_numbers
from optrove.report.releases import Judged, change_of, has_moved, is_slower
from optrove.report.results import TIME, fails_as_expected, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SAME: Final = "same"
_NONE: Final = -1


class Told(Protocol):
    """What was stored about an attempt at a case; ``outputs`` are JSON."""

    @property
    def key(self) -> int:
        """Which attempt it is; a later one has a greater key."""

    @property
    def case_key(self) -> int:
        """Which case was tried."""

    @property
    def outcome(self) -> str:
        """What came of it."""

    @property
    def device(self) -> str:
        """The kind of device that it was tried on."""

    @property
    def duration_ns(self) -> int | None:
        """How long it took in all."""

    @property
    def detail(self) -> str | None:
        """What was said about it."""

    @property
    def suite(self) -> str | None:
        """The suite for which it was tried."""

    @property
    def outputs(self) -> str | None:
        """What the results are like; told of what passed only."""

    @property
    def measured(self) -> Sequence[tuple[str, float, int | None]]:
        """Name, value and number of the output of what was measured: PCC and time."""


class JudgedRun:
    """What came of the cases of a run, by the keys of the cases, the least first.

    Of several attempts at a case the last one counts. ``verdicts`` are outcome and cause, each
    kept once; ``outputs`` are hashes of what the results are like.
    """

    def __init__(self, attempts: Iterable[Told]) -> None:
        """Take in all attempts of a run, in any order."""
        self._pcc = array("d")
        self._numbers = array("q")
        keys, cases, kinds, outputs, took, ends = (array("q") for _ in range(6))
        verdicts = _Verdicts()
        for told in attempts:
            cases.append(told.case_key)
            keys.append(told.key)
            kinds.append(verdicts.number(told))
            outputs.append(hash(told.outputs or ""))
            took.append(self._measure(told))
            ends.append(len(self._pcc))
        self.verdicts = verdicts.every()
        order = _last_by_case(cases, keys)
        columns = (cases, keys, kinds, outputs, took, array("q", (0, *ends)), ends)
        kept = [array("q", map(column.__getitem__, order)) for column in columns]
        self.keys, self.attempts, self.kinds, self.outputs, self.took, *bounds = kept
        self._begins, self._ends = bounds

    def _measure(self, told: Told) -> int:
        """Keep the PCC of an attempt, and return how long it took."""
        timed = []
        for name, value, output in told.measured:
            if name == TIME:
                timed.append(value)
            else:
                self._pcc.append(value)
                self._numbers.append(_NONE if output is None else output)
        found = time_of(timed, told.duration_ns)
        return _NONE if found is None else found

    def __len__(self) -> int:
        return len(self.keys)

    def numbers(self, place: int) -> array[int]:
        """Return the numbers of the outputs of a case of which the PCC is known."""
        return self._numbers[self._begins[place] : self._ends[place]]

    def pcc(self, place: int) -> array[float]:
        """Return the PCC of these outputs."""
        return self._pcc[self._begins[place] : self._ends[place]]

    def judged(self, place: int) -> Judged:
        """Return what came of a case, as it is compared; without its name."""
        named = (None if number == _NONE else number for number in self.numbers(place))
        took = self.took[place]
        return replace(
            self.verdicts[self.kinds[place]],
            outputs=str(self.outputs[place]),
            pcc=tuple(zip(named, self.pcc(place), strict=True)),
            took_ns=None if took == _NONE else took,
        )


def compared_runs(a: JudgedRun, b: JudgedRun, *, timed: bool) -> dict[str, array[int]]:
    """Return the keys of the cases of two runs by how they have changed, the least first.

    ``timed`` is whether it matters how long they took.
    """
    places = {key: place for place, key in enumerate(b.keys)}
    found: dict[str, array[int]] = {}
    comparer = _Comparer(a, b, timed=timed)
    for place, key in enumerate(a.keys):
        other = places.pop(key, None)
        kind = "only_a" if other is None else comparer.kind(place, other)
        if kind not in found:
            found[kind] = array("q")
        found[kind].append(key)
    if places:
        found["only_b"] = array("q", places)
    return found


class _Comparer:
    """Finds out what has changed between the cases of two runs; what is common, only once."""

    def __init__(self, a: JudgedRun, b: JudgedRun, *, timed: bool) -> None:
        self._a, self._b, self._timed = a, b, timed
        self._known: dict[tuple[int, int], str | None] = {}

    def kind(self, place: int, other: int) -> str:
        """Return how a case has changed, by its places in both runs."""
        a, b = self._a, self._b
        kinds = a.kinds[place], b.kinds[other]
        if kinds not in self._known:
            change = change_of(a.verdicts[kinds[0]], b.verdicts[kinds[1]], timed=False)
            self._known[kinds] = change[0]
        known = self._known[kinds]
        if known is not None:
            return known
        if self._is_surely_same(place, other):
            return SAME
        return change_of(a.judged(place), b.judged(other), timed=self._timed)[0] or SAME

    def _is_surely_same(self, place: int, other: int) -> bool:
        """Tell, for most cases, that nothing has changed, without looking closer."""
        a, b = self._a, self._b
        if a.outputs[place] != b.outputs[other]:
            return False
        if a.numbers(place) != b.numbers(other) or any(map(has_moved, a.pcc(place), b.pcc(other))):
            return False
        return not self._timed or not is_slower(a.took[place], b.took[other])


class _Verdicts:
    """Outcomes with their causes, numbered."""

    def __init__(self) -> None:
        self._numbers: dict[Judged, int] = {}
        self._known: dict[tuple[str, str, str | None, str | None], int] = {}

    def number(self, told: Told) -> int:
        """Return the number of the verdict on an attempt."""
        key = told.outcome, told.device, told.detail, told.suite
        known = self._known.get(key)
        if known is not None:
            return known
        cause = _said(told)
        verdict = _verdict(told, None if cause is None else without_numbers(cause))
        number = self._numbers.setdefault(verdict, len(self._numbers))
        self._known[key] = number
        return number

    def every(self) -> tuple[Judged, ...]:
        """Return all verdicts by their numbers."""
        return tuple(self._numbers)


def _last_by_case(cases: array[int], attempts: array[int]) -> list[int]:
    """Return the places of the last attempt at each case, in the order of cases."""
    order = sorted(range(len(cases)), key=lambda place: (cases[place], attempts[place]))
    return [
        place
        for number, place in enumerate(order)
        if cases[place] not in (cases[after] for after in order[number + 1 : number + 2])
    ]


def judged_of(told: Told) -> Judged:
    """Return what came of one case, as it is compared and told; without its name."""
    timed = [value for name, value, _ in told.measured if name == TIME]
    return replace(
        _verdict(told, _said(told)),
        outputs=told.outputs or "[]",
        pcc=tuple((output, value) for name, value, output in told.measured if name != TIME),
        took_ns=time_of(timed, told.duration_ns),
    )


def _said(told: Told) -> str | None:
    return None if told.outcome == Outcome.PASSED.value else cause_in(told.detail)


def _verdict(told: Told, cause: str | None) -> Judged:
    expected = fails_as_expected(told.suite)
    return Judged("", "", Outcome(told.outcome), cause, xfail=expected, device=told.device)

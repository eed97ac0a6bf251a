"""Compare the results of two runs: broken, fixed, moved, slower.

``compare`` compares two runs case by case. ``JudgedRun`` and ``compared_runs`` do the same in
arrays, with about six megabytes for a hundred thousand cases.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from optrove.model.records import DeviceKind, Outcome
from optrove.report.attempts import UNSAID, VERDICTS, cause_in, remarks_of, without_numbers
from optrove.report.document import (
    BAD,
    GOOD,
    IDLE,
    ODD,
    Item,
    Items,
    Paragraph,
    Section,
    Tile,
    Tiles,
)
from optrove.report.results import TIME, fails_as_expected, time_of, took
from optrove.report.wording import SHORT_ID, duration, number, plural
from optrove.serializer.text import write
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Attempt
    from optrove.report.document import Node
    from optrove.serializer.text import Json


PCC_MOVED: Final = 1e-3
"""The least difference of a moved PCC: more than rounding, less than any threshold."""

SLOWER: Final = 2.0
"""The least factor by which a slower case takes longer."""
_LEAST_NS: Final = 10_000_000
"""The least difference of a slower case; smaller ones are noise of the machine."""

_MOST_SHOWN: Final = 50
_KINDS: Final = ("broken", "fixed", "moved", "slower", "not_run", "unlike")


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a case in one run; ``outputs`` is their canonical text."""

    op: str
    case_id: str
    outcome: Outcome
    cause: str | None = None
    outputs: str = "[]"
    pcc: tuple[tuple[int | None, float], ...] = ()
    took_ns: int | None = None
    xfail: bool = False
    """Whether a failure was expected."""
    device: str | None = None
    """The kind of device that executed it."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: its name, its device, and the results of its cases."""

    name: str
    cases: Mapping[str, Judged]
    ttnn_version: str | None = None
    board: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A case with different results in the two runs, and the difference in words."""

    before: Judged
    after: Judged
    text: str
    worse: bool = False
    """Whether it is a regression."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two runs. Every case of either run is in exactly one field.

    ``unlike`` cases ran on different kinds of devices: a mock board accepts calls, and a real one
    also computes.
    """

    broken: tuple[Change, ...]
    fixed: tuple[Change, ...]
    moved: tuple[Change, ...]
    slower: tuple[Change, ...]
    not_run: tuple[Change, ...]
    unlike: tuple[Change, ...]
    only_a: tuple[Judged, ...]
    only_b: tuple[Judged, ...]
    same: int

    @property
    def compared(self) -> int:
        """The number of cases that ran in both."""
        changed = (self.broken, self.fixed, self.moved, self.slower)
        return sum(map(len, changed)) + self.same

    @property
    def regressions(self) -> int:
        """The number of cases that are worse: broken, less exact, or slower on the same board."""
        changed = (self.broken, self.moved, self.slower)
        return sum(each.worse for changes in changed for each in changes)


def judged(op: str, attempt: Attempt, *, xfail: bool = False) -> Judged:
    """Return the comparable result of a case."""
    return Judged(
        op=op,
        case_id=attempt.case_id,
        outcome=attempt.outcome,
        cause=remarks_of(attempt).cause,
        outputs=write([encode(value) for value in attempt.outputs]),
        pcc=tuple((each.output, each.value) for each in attempt.measurements if each.name == "pcc"),
        took_ns=took(attempt),
        xfail=xfail,
        device=attempt.device_kind.value,
    )


def compare(a: Side, b: Side) -> Comparison:
    """Return the changes from run A to run B."""
    kinds: dict[str, list[Change]] = {name: [] for name in _KINDS}
    timed = have_one_clock(a, b)
    on_board = timed and a.device == DeviceKind.HARDWARE.value
    same = 0
    for case_id in sorted(a.cases.keys() & b.cases.keys()):
        before, after = a.cases[case_id], b.cases[case_id]
        kind, text, worse = change_of(before, after, timed=timed)
        worse = worse or (kind == "slower" and on_board)
        if kind is None:
            same += 1
        else:
            kinds[kind].append(Change(before, after, text, worse))
    return Comparison(
        **{kind: tuple(sorted(found, key=_order)) for kind, found in kinds.items()},
        only_a=tuple(a.cases[each] for each in sorted(a.cases.keys() - b.cases.keys())),
        only_b=tuple(b.cases[each] for each in sorted(b.cases.keys() - a.cases.keys())),
        same=same,
    )


def _order(change: Change) -> tuple[str, str, str]:
    return change.before.op, change.text, change.before.case_id


def have_one_clock(a: Side, b: Side) -> bool:
    """Return whether durations of two runs are comparable: on the same kind of board."""
    return a.device is not None and (a.device, a.board) == (b.device, b.board)


def change_of(before: Judged, after: Judged, *, timed: bool) -> tuple[str | None, str, bool]:
    """Return the kind of change (or None), its text, and whether it is a regression.

    Durations are compared where ``timed`` is set.
    """
    found = _change(before, after)
    if found[0] is None and timed and after.outcome is Outcome.PASSED:
        one, other = before.took_ns, after.took_ns
        if one is not None and other is not None and is_slower(one, other):
            return "slower", f"took {duration(one)}, takes {duration(other)}", False
    return found


def is_slower(one: int, other: int) -> bool:
    """Return whether the other duration is so much longer that it counts, in nanoseconds."""
    return other - one >= _LEAST_NS and other >= SLOWER * one


def _change(before: Judged, after: Judged) -> tuple[str | None, str, bool]:
    outcomes = (before.outcome, after.outcome)
    if None not in (before.device, after.device) and before.device != after.device:
        return "unlike", f"was tried on {before.device}, is on {after.device}", False
    if Outcome.NOT_RUN in outcomes:
        return "not_run", _words(after if after.outcome is Outcome.NOT_RUN else before), False
    if before.outcome is Outcome.PASSED is not after.outcome:
        if after.xfail:
            return "moved", f"passed, and is {_words(after)}, as expected", False
        return "broken", _words(after), True
    if after.outcome is Outcome.PASSED is not before.outcome:
        return "fixed", f"was {_words(before)}", False
    if outcomes[0] is not outcomes[1] or _cause(before) != _cause(after):
        return "moved", f"was {_words(before)}; is {_words(after)}", False
    if after.outcome is Outcome.PASSED and before.outputs != after.outputs:
        return "moved", "its output has another spec", False
    return _numerics(before, after)


def _numerics(before: Judged, after: Judged) -> tuple[str | None, str, bool]:
    """Return the change of the PCC, of the worst output."""
    old, new = dict(before.pcc), dict(after.pcc)
    pairs = [(old[output], new[output]) for output in old if output in new]
    moved = [(one, other) for one, other in pairs if has_moved(one, other)]
    if not moved:
        return None, "", False
    worse = [pair for pair in moved if math.isnan(pair[1]) or pair[1] < pair[0]]
    one, other = (worse or moved)[0]
    return "moved", f"PCC was {number(one)}, is {number(other)}", bool(worse) and not after.xfail


def has_moved(one: float, other: float) -> bool:
    """Return whether two PCC differ so much that it counts."""
    both_undefined = math.isnan(one) and math.isnan(other)
    return not both_undefined and not abs(one - other) <= PCC_MOVED


def _cause(one: Judged) -> str:
    return without_numbers(one.cause or UNSAID)


def _words(one: Judged) -> str:
    cause = "" if one.cause is None else f": {one.cause}"
    return f"{VERDICTS[one.outcome]}{cause}"


def release_document(a: Side, b: Side, found: Comparison) -> Iterator[Node]:
    """Yield both runs, the counts of changes, and the changes by kind."""
    yield Paragraph(f"A: {side_title(a)}")
    yield Paragraph(f"B: {side_title(b)}")
    for what in ("board", "device"):
        before, after = getattr(a, what), getattr(b, what)
        if before != after:
            yield Paragraph(f"the {what} is not the same: {before}, {after}", warning=True)
    kinds = (
        ("broken", BAD, found.broken),
        ("fixed", GOOD, found.fixed),
        ("moved", ODD, found.moved),
        ("slower", ODD, found.slower),
    )
    uncompared = {
        "not run in both": len(found.not_run),
        "on another kind of device": len(found.unlike),
        "only in A": len(found.only_a),
        "only in B": len(found.only_b),
    }
    why = ", ".join(f"{count:,} {what}" for what, count in uncompared.items() if count)
    left = sum(uncompared.values())
    yield Tiles(
        (
            Tile("compared", plural(found.compared, "case")),
            *(
                Tile(name, f"{len(changes):,}", tone=tone if changes else "")
                for name, tone, changes in kinds
            ),
            Tile("the same", f"{found.same:,}"),
            *((Tile("not compared", f"{left:,}", why, IDLE),) if left else ()),
        )
    )
    for name, tone, changes in kinds:
        yield from _change_section(name, tone, changes)
    yield from _change_section("not run in both, and so not compared", IDLE, found.not_run)


def side_title(side: Side) -> str:
    """Return a run in a line: its name, version, device and number of cases."""
    place = " ".join(filter(None, (side.device, side.board)))
    facts = [
        "ttnn unknown" if side.ttnn_version is None else f"ttnn {side.ttnn_version}",
        *([place] if place else []),
        plural(len(side.cases), "case"),
    ]
    return f"{side.name} ({', '.join(facts)})"


def _change_section(title: str, tone: str, changes: Sequence[Change]) -> Iterator[Section]:
    groups: dict[tuple[str, str], list[Change]] = {}
    for each in changes:
        groups.setdefault((each.before.op, without_numbers(each.text)), []).append(each)
    ranked = sorted(groups.values(), key=lambda group: (-len(group), _order(group[0])))
    items = tuple(
        Item(
            count=len(group),
            text=group[0].text,
            ops=((group[0].before.op, len(group)),),
            cases=tuple(each.before.case_id[:SHORT_ID] for each in group),
        )
        for group in ranked[:_MOST_SHOWN]
    )
    more = len(ranked) - _MOST_SHOWN
    if items:
        rest = f"{more:,} more kinds (--json)" if more > 0 else ""
        yield Section(title, (Items(items, rest),), tone=tone)


def release_data(a: Side, b: Side, found: Comparison) -> dict[str, Json]:
    """Return the comparison; ``optrove.cli.replay`` describes the keys."""
    return {
        "a": _side_data(a),
        "b": _side_data(b),
        "counts": {
            "broken": len(found.broken),
            "fixed": len(found.fixed),
            "moved": len(found.moved),
            "slower": len(found.slower),
            "same": found.same,
            "not_run": len(found.not_run),
            "unlike": len(found.unlike),
            "only_a": len(found.only_a),
            "only_b": len(found.only_b),
        },
        "broken": _changes_data(found.broken),
        "fixed": _changes_data(found.fixed),
        "moved": _changes_data(found.moved),
        "slower": _changes_data(found.slower),
        "regressions": found.regressions,
        "not_run": _changes_data(found.not_run),
        "unlike": _changes_data(found.unlike),
        "only_a": [each.case_id for each in found.only_a],
        "only_b": [each.case_id for each in found.only_b],
    }


def _side_data(side: Side) -> dict[str, Json]:
    return {
        "name": side.name,
        "cases": len(side.cases),
        "ttnn_version": side.ttnn_version,
        "board": side.board,
        "device": side.device,
    }


def _changes_data(changes: Iterable[Change]) -> list[Json]:
    return [
        {
            "op": each.before.op,
            "case_id": each.before.case_id,
            "before": each.before.outcome.value,
            "after": each.after.outcome.value,
            "change": each.text,
            "worse": each.worse,
        }
        for each in changes
    ]


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

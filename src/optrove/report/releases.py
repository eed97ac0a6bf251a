"""Compare the results of two runs: broken, fixed, moved, slower.

``compare`` compares two runs case by case. ``RunChanges`` has the database count the changes
between two runs of a trove, and reads only the requested cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.causes import without_numbers
from optrove.model.records import DeviceKind, Outcome, expects_failure
from optrove.report.attempts import UNSAID, VERDICTS, remarks_of
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
from optrove.report.results import took
from optrove.report.wording import SHORT_ID, duration, number, plural
from optrove.serializer.text import write
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import AttemptedCase, Run
    from optrove.model.trove import Verdict, VerdictChange
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.reader import TroveReader


PCC_MOVED: Final = 1e-3
"""The least difference of a moved PCC: more than rounding, less than any threshold."""

SLOWER: Final = 2.0
"""The least factor by which a slower case takes longer."""
_MIN_SLOWER_NS: Final = 10_000_000
"""The least difference of a slower case; smaller ones are noise of the machine."""

_MAX_SHOWN: Final = 50
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
class ReleaseSide:
    """One of the two runs: its name, its device, and the results of its cases."""

    name: str
    cases: Mapping[str, Judged]
    ttnn_version: str | None = None
    board: str | None = None
    device: str | None = None

    @classmethod
    def of(cls, run: Run) -> ReleaseSide:
        """Return a run without the results of its cases."""
        environment = run.environment
        kind = environment.device_kind.value
        return cls(run.id, {}, environment.ttnn_version, environment.board, kind)


@dataclass(frozen=True, slots=True)
class ResultChange:
    """A case with different results in the two runs, and the difference in words."""

    before: Judged
    after: Judged
    text: str
    worse: bool = False
    """Whether it is a regression."""


@dataclass(frozen=True, slots=True)
class ReleaseComparison:
    """The differences of two runs. Every case of either run is in exactly one field.

    ``unlike`` cases ran on different kinds of devices: a mock board accepts calls, and a real one
    also computes.
    """

    broken: tuple[ResultChange, ...]
    fixed: tuple[ResultChange, ...]
    moved: tuple[ResultChange, ...]
    slower: tuple[ResultChange, ...]
    not_run: tuple[ResultChange, ...]
    unlike: tuple[ResultChange, ...]
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


def judged(attempted: AttemptedCase) -> Judged:
    """Return the comparable result of a case."""
    attempt = attempted.attempt
    return Judged(
        op=attempted.op,
        case_id=attempt.case_id,
        outcome=attempt.outcome,
        cause=remarks_of(attempt).cause,
        outputs=write([encode(value) for value in attempt.outputs]),
        pcc=tuple((each.output, each.value) for each in attempt.measurements if each.name == "pcc"),
        took_ns=took(attempt),
        xfail=attempted.xfail,
        device=attempt.device_kind.value,
    )


def compare(a: ReleaseSide, b: ReleaseSide) -> ReleaseComparison:
    """Return the changes from run A to run B."""
    kinds: dict[str, list[ResultChange]] = {name: [] for name in _KINDS}
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
            kinds[kind].append(ResultChange(before, after, text, worse))
    return ReleaseComparison(
        **{kind: tuple(sorted(found, key=_order)) for kind, found in kinds.items()},
        only_a=tuple(a.cases[each] for each in sorted(a.cases.keys() - b.cases.keys())),
        only_b=tuple(b.cases[each] for each in sorted(b.cases.keys() - a.cases.keys())),
        same=same,
    )


def _order(change: ResultChange) -> tuple[str, str, str]:
    return change.before.op, change.text, change.before.case_id


def have_one_clock(a: ReleaseSide, b: ReleaseSide) -> bool:
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
    return other - one >= _MIN_SLOWER_NS and other >= SLOWER * one


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


def release_document(a: ReleaseSide, b: ReleaseSide, found: ReleaseComparison) -> Iterator[Node]:
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


def side_title(side: ReleaseSide) -> str:
    """Return a run in a line: its name, version, device and number of cases."""
    place = " ".join(filter(None, (side.device, side.board)))
    facts = [
        "ttnn unknown" if side.ttnn_version is None else f"ttnn {side.ttnn_version}",
        *([place] if place else []),
        plural(len(side.cases), "case"),
    ]
    return f"{side.name} ({', '.join(facts)})"


def _change_section(title: str, tone: str, changes: Sequence[ResultChange]) -> Iterator[Section]:
    groups: dict[tuple[str, str], list[ResultChange]] = {}
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
        for group in ranked[:_MAX_SHOWN]
    )
    more = len(ranked) - _MAX_SHOWN
    if items:
        rest = f"{more:,} more kinds (--json)" if more > 0 else ""
        yield Section(title, (Items(items, rest),), tone=tone)


def release_data(a: ReleaseSide, b: ReleaseSide, found: ReleaseComparison) -> dict[str, Json]:
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


def _side_data(side: ReleaseSide) -> dict[str, Json]:
    return {
        "name": side.name,
        "cases": len(side.cases),
        "ttnn_version": side.ttnn_version,
        "board": side.board,
        "device": side.device,
    }


def _changes_data(changes: Iterable[ResultChange]) -> list[Json]:
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
_BOUNDS: Final = {"pcc_moved": PCC_MOVED, "longer_ns": _MIN_SLOWER_NS, "slower": SLOWER}


class RunChanges:
    """The changes between two runs of a trove, counted by the database; runs are given by key."""

    def __init__(self, reader: TroveReader, a: int, b: int, *, timed: bool) -> None:
        """Count the changes; ``timed`` is whether durations are compared."""
        self._reader, self._a, self._b = reader, a, b
        self._counts = reader.result_counts(a, b, _BOUNDS)
        keys = {key for change in self._counts for key in change[:2]}
        verdicts = {key: _verdict(each) for key, each in reader.verdicts(keys).items()}
        self._kinds = {
            change: _kind_of(change, verdicts[change.before], verdicts[change.after], timed=timed)
            for change in self._counts
        }

    def counts(self) -> dict[str, int]:
        """Return the number of cases of each kind of change."""
        found = {
            "only_a": self._reader.count_only_tried(self._a, self._b),
            "only_b": self._reader.count_only_tried(self._b, self._a),
        }
        for change, count in self._counts.items():
            kind = self._kinds[change]
            found[kind] = found.get(kind, 0) + count
        return found

    def cases(self, kind: str, after: int, limit: int) -> list[int]:
        """Return the keys of some cases with a kind of change, from after one on."""
        runs = (self._b, self._a) if kind == "only_b" else (self._a, self._b)
        if kind in ("only_a", "only_b"):
            return self._reader.only_tried(*runs, after, limit)
        changes = [change for change, found in self._kinds.items() if found == kind]
        return self._reader.result_changes(*runs, _BOUNDS, changes, after, limit)


def _kind_of(change: VerdictChange, before: Judged, after: Judged, *, timed: bool) -> str:
    kind = _change(before, after)[0]
    if kind is None and change.moved:
        return "moved"
    if kind is None and timed and change.slower and after.outcome is Outcome.PASSED:
        return "slower"
    return kind or SAME


def _verdict(verdict: Verdict) -> Judged:
    return Judged(
        *("", "", Outcome(verdict.outcome), verdict.cause, verdict.outputs or "[]"),
        xfail=expects_failure(verdict.suite),
        device=verdict.device_kind,
    )

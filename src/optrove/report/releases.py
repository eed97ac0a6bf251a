"""Compare what came of the same cases in two runs: what broke, was fixed, moved, got slower."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.codec.text import write
from optrove.codec.wire import encode
from optrove.model.records import DeviceKind, Outcome
from optrove.report.attempted import said
from optrove.report.attempts_text import VERDICTS, number
from optrove.report.causes import UNSAID, without_numbers
from optrove.report.results import took
from optrove.report.runs_text import SHORT_ID
from optrove.report.tables import MORE, clipped, duration, plural, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.codec.text import Json
    from optrove.model.records import Attempt

PCC_MOVED: Final = 1e-3
"""By how much a PCC must differ to have moved: more than rounding, less than any threshold."""

SLOWER: Final = 2.0
"""How many times as long a case must take to have got slower."""
_LEAST_NS: Final = 10_000_000
"""How much longer at least: less is how a machine feels today."""

_MOST_SHOWN: Final = 50
_MOST_IDS: Final = 4
_LONGEST: Final = 400
_KINDS: Final = ("broken", "fixed", "moved", "slower", "not_run", "unlike")


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a case in one run; ``outputs`` is their canonical text."""

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
    """The kind of device that it was tried on."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs: what it is called, where it took place, and what came of its cases."""

    name: str
    cases: Mapping[str, Judged]
    ttnn_version: str | None = None
    board: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A case that does not do in the second run what it did in the first, and what that is."""

    before: Judged
    after: Judged
    text: str
    worse: bool = False
    """Whether it is a regression."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """In what two runs differ. Every case of either is in exactly one of these.

    ``unlike`` are those that were tried on another kind of device: to be accepted by a mock board
    and to be computed right are two things.
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
        """How many cases both runs have an answer for."""
        changed = (self.broken, self.fixed, self.moved, self.slower)
        return sum(map(len, changed)) + self.same

    @property
    def regressions(self) -> int:
        """How many cases are worse: broken, less exact, or slower on the same kind of board."""
        changed = (self.broken, self.moved, self.slower)
        return sum(each.worse for changes in changed for each in changes)


def judged(op: str, attempt: Attempt, *, xfail: bool = False) -> Judged:
    """Return what came of a case, as it is compared."""
    return Judged(
        op=op,
        case_id=attempt.case_id,
        outcome=attempt.outcome,
        cause=said(attempt).cause,
        outputs=write([encode(value) for value in attempt.outputs]),
        pcc=tuple((each.output, each.value) for each in attempt.measurements if each.name == "pcc"),
        took_ns=took(attempt),
        xfail=xfail,
        device=attempt.device_kind.value,
    )


def compare(a: Side, b: Side) -> Comparison:
    """Return what has changed from one run to the other."""
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
    """Tell whether how long cases took in two runs can be compared: on the same kind of board."""
    return a.device is not None and (a.device, a.board) == (b.device, b.board)


def change_of(before: Judged, after: Judged, *, timed: bool) -> tuple[str | None, str, bool]:
    """Return what kind of change it is, if any, what has changed, and whether results are worse.

    ``timed`` is whether it matters how long it took.
    """
    found = _change(before, after)
    if found[0] is None and timed and after.outcome is Outcome.PASSED:
        one, other = before.took_ns, after.took_ns
        if one is not None and other is not None and is_slower(one, other):
            return "slower", f"took {duration(one)}, takes {duration(other)}", False
    return found


def is_slower(one: int, other: int) -> bool:
    """Tell whether the other takes so much longer that it counts, in nanoseconds."""
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
    """Return the move of a PCC, of several outputs that which is worst."""
    old, new = dict(before.pcc), dict(after.pcc)
    pairs = [(old[output], new[output]) for output in old if output in new]
    moved = [(one, other) for one, other in pairs if has_moved(one, other)]
    if not moved:
        return None, "", False
    worse = [pair for pair in moved if math.isnan(pair[1]) or pair[1] < pair[0]]
    one, other = (worse or moved)[0]
    return "moved", f"PCC was {number(one)}, is {number(other)}", bool(worse) and not after.xfail


def has_moved(one: float, other: float) -> bool:
    """Tell whether two PCC differ so much that it counts."""
    both_undefined = math.isnan(one) and math.isnan(other)
    return not both_undefined and not abs(one - other) <= PCC_MOVED


def _cause(one: Judged) -> str:
    return without_numbers(one.cause or UNSAID)


def _words(one: Judged) -> str:
    cause = "" if one.cause is None else f": {one.cause}"
    return f"{VERDICTS[one.outcome]}{cause}"


def release_lines(a: Side, b: Side, found: Comparison) -> list[str]:
    """Return the comparison as text."""
    lines = [
        f"A: {side_title(a)}",
        f"B: {side_title(b)}",
        f"{plural(found.compared, 'case')} compared: {_counted(found)}",
        *_uncompared(found),
        *_change_lines("broken", found.broken),
        *_change_lines("fixed", found.fixed),
        *_change_lines("moved", found.moved),
        *_change_lines("slower", found.slower),
        *_change_lines("not run in both, and so not compared", found.not_run),
    ]
    cut = any(line.endswith(MORE) for line in lines)
    return [*lines, "", 'texts that end in "..." are whole in --json'] if cut else lines


def _counted(found: Comparison) -> str:
    changed = f"{len(found.broken):,} broken, {len(found.fixed):,} fixed"
    slower = f", {len(found.slower):,} slower" if found.slower else ""
    return f"{changed}, {len(found.moved):,} moved{slower}, {found.same:,} the same"


def _uncompared(found: Comparison) -> Iterator[str]:
    left = {
        "not run": len(found.not_run),
        "on another kind of device": len(found.unlike),
        "only in A": len(found.only_a),
        "only in B": len(found.only_b),
    }
    told = [f"{count:,} {what}" for what, count in left.items() if count]
    if told:
        yield f"not compared: {', '.join(told)}"


def side_title(side: Side) -> str:
    """Return one of the two in a line: its name, where it took place, how many cases it has."""
    place = " ".join(filter(None, (side.device, side.board)))
    facts = [
        "ttnn unknown" if side.ttnn_version is None else f"ttnn {side.ttnn_version}",
        *([place] if place else []),
        plural(len(side.cases), "case"),
    ]
    return f"{side.name} ({', '.join(facts)})"


def _change_lines(title: str, changes: Sequence[Change]) -> list[str]:
    groups: dict[tuple[str, str], list[Change]] = {}
    for each in changes:
        groups.setdefault((each.before.op, without_numbers(each.text)), []).append(each)
    ranked = sorted(groups.values(), key=lambda group: (-len(group), _order(group[0])))
    lines = [line for group in ranked[:_MOST_SHOWN] for line in _group_lines(group)]
    more = len(ranked) - _MOST_SHOWN
    rest = [f"  {more:,} more kinds (--json)"] if more > 0 else []
    return ["", f"{title}:", *lines, *rest] if lines else []


def _group_lines(group: Sequence[Change]) -> list[str]:
    first = group[0]
    ids = [each.before.case_id[:SHORT_ID] for each in group[:_MOST_IDS]]
    more = f" and {len(group) - _MOST_IDS:,} more" if len(group) > _MOST_IDS else ""
    count = f"  {len(group):,}x "
    return [
        *wrapped(count, f"{first.before.op}: {clipped(first.text, _LONGEST)}"),
        f"{' ' * len(count)}case {', '.join(ids)}{more}",
    ]


def release_data(a: Side, b: Side, found: Comparison) -> dict[str, Json]:
    """Return the comparison for machines; see ``optrove.cli_replay`` for the keys."""
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

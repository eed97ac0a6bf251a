"""Compare the results of two runs: broken, fixed, moved, slower.

``compare`` compares two runs case by case; they come from troves, or from files that commands have
written with ``--json``. ``RunChanges`` has the database count the changes between two runs of a
trove, and reads only the requested cases.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, NotComparable
from optrove.model.causes import without_numbers
from optrove.model.exit_codes import FAIL_ON, Exit, Reason, reason_of
from optrove.model.records import (
    Attempt,
    AttemptedCase,
    DeviceKind,
    Measurement,
    Outcome,
    expects_failure,
)
from optrove.model.trove import Verdict
from optrove.model.values import Float, Int
from optrove.report.attempts import UNSAID, VERDICTS
from optrove.report.document import (
    BAD,
    GOOD,
    IDLE,
    ODD,
    Item,
    Paragraph,
    Section,
    Tile,
    Tiles,
    first_items,
)
from optrove.report.results import results_of, run_meant, took
from optrove.report.wording import SHORT_ID, duration, number, place_text, plural
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode, encode
from optrove.trove.opening import reading
from optrove.trove.place import is_sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Run
    from optrove.model.trove import VerdictChange
    from optrove.report.document import Node
    from optrove.report.results import RunResults
    from optrove.serializer.text import Json
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader

    OnRecovered = Callable[[Recovered], object]


PCC_MOVED: Final = 1e-3
"""The least difference of a moved PCC: more than rounding, less than any threshold."""

SLOWER: Final = 2.0
"""The least factor by which a slower case takes longer."""
_MIN_SLOWER_NS: Final = 10_000_000
"""The least difference of a slower case; smaller ones are noise of the machine."""

_MAX_SHOWN: Final = 50
_COMPARED: Final = ("broken", "fixed", "moved", "slower")
KINDS: Final = (*_COMPARED, "not_run", "unlike")
"""The kinds of changes; cases of the last two were not compared."""


@dataclass(frozen=True, slots=True)
class ReleaseSide:
    """One of the two runs: its name, its device, and the results of its cases by id."""

    name: str
    cases: Mapping[str, AttemptedCase]
    ttnn_version: str | None = None
    board: str | None = None
    device: str | None = None
    torch_version: str | None = None
    waiting: int = 0
    """The number of planned cases without a result."""

    @classmethod
    def of(cls, run: Run, results: Iterable[AttemptedCase] = (), waiting: int = 0) -> ReleaseSide:
        """Return a run with the results of its cases."""
        environment = run.environment
        return cls(
            name=f"run {run.id[:SHORT_ID]}",
            cases={each.attempt.case_id: each for each in results},
            ttnn_version=environment.ttnn_version,
            board=environment.board,
            device=environment.device_kind.value,
            torch_version=environment.torch_version,
            waiting=waiting,
        )

    @property
    def place(self) -> str:
        """The device and the board."""
        return "" if self.device is None else place_text(self.device, self.board)

    def __str__(self) -> str:
        on_host = self.device == DeviceKind.HOST.value
        framework = "torch" if on_host else "ttnn"
        version = (self.torch_version if on_host else self.ttnn_version) or "unknown"
        facts = (f"{framework} {version}", self.place, plural(len(self.cases), "case"))
        return f"{self.name} ({', '.join(filter(None, facts))})"


@dataclass(frozen=True, slots=True)
class ResultChange:
    """A case with different results in the two runs, and the difference in words."""

    kind: str
    before: AttemptedCase
    after: AttemptedCase
    text: str
    worse: bool = False
    """Whether it is a regression."""


@dataclass(frozen=True, slots=True)
class ReleaseComparison:
    """Two runs and their differences. Every case of either run is counted exactly once.

    ``changes`` has all of ``KINDS``. Cases that are ``unlike`` ran on different kinds of devices: a
    mock board accepts calls, and a real one also computes.
    """

    a: ReleaseSide
    b: ReleaseSide
    changes: Mapping[str, Sequence[ResultChange]]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    same: int

    @property
    def compared(self) -> int:
        """The number of cases that ran in both."""
        return sum(len(self.changes[kind]) for kind in _COMPARED) + self.same

    @property
    def regressions(self) -> int:
        """The number of cases that are worse: broken, less exact, or slower on the same board."""
        return sum(each.worse for found in self.changes.values() for each in found)

    def exit(self, fail_on: frozenset[Reason] = FAIL_ON) -> Exit:
        """Return how a command that compares ends.

        What failed before may fail again, and what did not run before need not run now.
        """
        lost = (each for each in self.changes["not_run"] if each.before.ran)
        counted = Counter(reason_of(each.after) for each in lost)
        counted[Reason.INCOMPLETE] += self.b.waiting
        counted[Reason.WORSE] = self.regressions
        reasons = {each: counted[each] for each in Reason if counted[each]}
        return Exit(ran=True, reasons=reasons, fail_on=fail_on)


def compare(a: ReleaseSide, b: ReleaseSide) -> ReleaseComparison:
    """Return the changes from run A to run B."""
    changes: dict[str, list[ResultChange]] = {kind: [] for kind in KINDS}
    timed = have_one_clock(a, b)
    on_board = timed and a.device == DeviceKind.HARDWARE.value
    both = sorted(a.cases.keys() & b.cases.keys())
    for case_id in both:
        change = change_of(a.cases[case_id], b.cases[case_id], timed=timed)
        if change is not None:
            slower = change.kind == "slower" and on_board
            changes[change.kind].append(replace(change, worse=change.worse or slower))
    return ReleaseComparison(
        a,
        b,
        changes={kind: sorted(found, key=_order) for kind, found in changes.items()},
        only_a=tuple(sorted(a.cases.keys() - b.cases.keys())),
        only_b=tuple(sorted(b.cases.keys() - a.cases.keys())),
        same=len(both) - sum(map(len, changes.values())),
    )


def _order(change: ResultChange) -> tuple[str, str, str]:
    return change.before.op, change.text, change.before.attempt.case_id


def have_one_clock(a: ReleaseSide, b: ReleaseSide) -> bool:
    """Return whether durations of two runs are comparable: on the same kind of board."""
    return a.device is not None and (a.device, a.board) == (b.device, b.board)


def change_of(
    before: AttemptedCase, after: AttemptedCase, *, timed: bool = False
) -> ResultChange | None:
    """Return the change of a case, None without one; ``timed`` also compares durations."""
    kind = _kind_of(_verdict_on(before), _verdict_on(after))
    if kind is None:
        return _pcc_change(before, after) or (_slower(before, after) if timed else None)
    if kind == "unlike":
        places = (before.attempt.device_kind.value, after.attempt.device_kind.value)
        text = f"was tried on {places[0]}, is on {places[1]}"
    elif kind == "not_run":
        text = _words(before if after.ran else after)
    elif kind == "broken":
        text = _words(after)
    elif kind == "fixed":
        text = f"was {_words(before)}"
    elif before.attempt.outcome is Outcome.PASSED is not after.attempt.outcome:
        text = f"passed, and is {_words(after)}, as expected"
    elif before.attempt.outcome is Outcome.PASSED:
        text = "its output has another spec"
    else:
        text = f"was {_words(before)}; is {_words(after)}"
    return ResultChange(kind, before, after, text, worse=kind == "broken")


def _kind_of(before: Verdict, after: Verdict) -> str | None:
    """Return the kind of change between two verdicts, None if they are equal."""
    passed, not_run = Outcome.PASSED.value, Outcome.NOT_RUN.value
    if before.device_kind != after.device_kind:
        return "unlike"
    if not_run in (before.outcome, after.outcome):
        return "not_run"
    if before.outcome == passed != after.outcome:
        return "moved" if expects_failure(after.suite) else "broken"
    if after.outcome == passed != before.outcome:
        return "fixed"
    causes = (without_numbers(each.cause or UNSAID) for each in (before, after))
    outputs_moved = after.outcome == passed and before.outputs != after.outputs
    is_same = before.outcome == after.outcome and len(set(causes)) == 1 and not outputs_moved
    return None if is_same else "moved"


def _verdict_on(attempted: AttemptedCase) -> Verdict:
    attempt = attempted.attempt
    return Verdict(
        outcome=attempt.outcome.value,
        device_kind=attempt.device_kind.value,
        cause=attempt.cause,
        suite=attempted.suite,
        outputs=write([encode(value) for value in attempt.outputs]),
    )


def _pcc_change(before: AttemptedCase, after: AttemptedCase) -> ResultChange | None:
    """Return the change of the PCC, of the worst output."""
    old, new = (
        {each.output: each.value for each in one.attempt.measurements if each.name == "pcc"}
        for one in (before, after)
    )
    pairs = [(old[output], new[output]) for output in old if output in new]
    moved = [(one, other) for one, other in pairs if has_moved(one, other)]
    if not moved:
        return None
    worse = [pair for pair in moved if math.isnan(pair[1]) or pair[1] < pair[0]]
    one, other = (worse or moved)[0]
    text = f"PCC was {number(one)}, is {number(other)}"
    return ResultChange("moved", before, after, text, worse=bool(worse) and not after.xfail)


def has_moved(one: float, other: float) -> bool:
    """Return whether two PCC differ so much that it counts."""
    both_undefined = math.isnan(one) and math.isnan(other)
    return not both_undefined and not abs(one - other) <= PCC_MOVED


def _slower(before: AttemptedCase, after: AttemptedCase) -> ResultChange | None:
    one, other = took(before.attempt), took(after.attempt)
    if after.attempt.outcome is not Outcome.PASSED or one is None or other is None:
        return None
    if not is_slower(one, other):
        return None
    text = f"took {duration(one)}, takes {duration(other)}"
    return ResultChange("slower", before, after, text)


def is_slower(one: int, other: int) -> bool:
    """Return whether the other duration is so much longer that it counts, in nanoseconds."""
    return other - one >= _MIN_SLOWER_NS and other >= SLOWER * one


def _words(one: AttemptedCase) -> str:
    cause = one.attempt.cause
    return VERDICTS[one.attempt.outcome] + ("" if cause is None else f": {cause}")


def compare_named(
    names: tuple[str, str], store: str | None, on_recovered: OnRecovered
) -> ReleaseComparison:
    """Compare two results by name; NotComparable when no case ran in both."""
    return compared(*(_side(name, store, on_recovered) for name in names))


def compare_with(
    name: str, found: RunResults, store: str | None, on_recovered: OnRecovered
) -> ReleaseComparison:
    """Compare an earlier result, by name, with that of a run; NotComparable as above."""
    b = ReleaseSide.of(found.run, found.results, len(found.waiting))
    return compared(_side(name, store, on_recovered), b)


def compared(a: ReleaseSide, b: ReleaseSide) -> ReleaseComparison:
    """Compare two results; NotComparable when no case ran in both."""
    found = compare(a, b)
    if found.compared:
        return found
    unlike, not_run = len(found.changes["unlike"]), len(found.changes["not_run"])
    problem = "no case in common; compare runs of the same cases"
    if unlike:
        problem = (
            f"{plural(unlike, 'case')} in common, but ran them on other kinds of devices; "
            f"compare runs on the same kind (hw, mock, shadow, host)"
        )
    elif not_run:
        problem = (
            f"{plural(not_run, 'case')} in common, none of which ran in both; compare other runs"
        )
    raise NotComparable(f"{a} and {b} have {problem}: optrove runs lists them")


def _side(name: str, store: str | None, on_recovered: OnRecovered) -> ReleaseSide:
    path = Path(name)
    is_trove = "://" in name or is_sqlite_file(path)
    if path.is_file() and not is_trove:
        return _file_side(path)
    with reading(name if is_trove else store, on_recovered) as reader:
        run = run_meant(reader, None if is_trove else name)
        found = results_of(reader, run)
        return ReleaseSide.of(run, found.results, len(found.waiting))


def _file_side(path: Path) -> ReleaseSide:
    """Return the data of a file that ``check-board --json`` or ``replay --json`` has written."""
    try:
        data = read(path.read_bytes())
        cases = [_case_in_file(each) for each in data["cases"]]
        version = data.get("ttnn_version")
    except (BadData, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadTarget(
            f"{str(path)!r} is not what optrove check-board --json prints: {error!r}; name such a "
            f"file, a trove, or a run"
        ) from error
    places = {(each.get("board"), each.get("device")) for each in data["cases"]}
    board, device = places.pop() if len(places) == 1 else (None, None)
    by_id = {each.attempt.case_id: each for each in cases}
    waiting = len(data.get("not_attempted", ()))
    return ReleaseSide(str(path), by_id, version, board, device, waiting=waiting)


def _case_in_file(data: dict[str, Any]) -> AttemptedCase:
    """Return the result of a case from a file, as far as results are compared."""
    pcc = (each for each in data.get("measurements", ()) if each["name"] == "pcc")
    attempt = Attempt(
        run_id="",
        case_id=str(data["case_id"]),
        outcome=Outcome(data["outcome"]),
        # The default of check-board, which writes such files.
        device_kind=DeviceKind(data.get("device", DeviceKind.MOCK.value)),
        detail=data.get("cause"),
        measurements=tuple(
            Measurement("pcc", _number(each["value"]), output=each["output"]) for each in pcc
        ),
        outputs=tuple(map(decode, data.get("outputs", ()))),
        duration_ns=data.get("took_ns", data.get("duration_ns")),
    )
    return AttemptedCase(str(data["op"]), attempt, suite="xfail" if data.get("xfail") else None)


def _number(data: Json) -> float:
    value = decode(data)
    if not isinstance(value, (Float, Int)):
        raise TypeError(f"{data!r} is not a number")
    return float(value.value)


_SHOWN: Final = {"broken": BAD, "fixed": GOOD, "moved": ODD, "slower": ODD}
"""The kinds of changes that are shown, with their tones."""


def release_document(found: ReleaseComparison) -> Iterator[Node]:
    """Yield both runs, the counts of changes, and the changes by kind."""
    a, b, changes = found.a, found.b, found.changes
    yield Paragraph(f"A: {a}")
    yield Paragraph(f"B: {b}")
    if (a.device, a.board) != (b.device, b.board):
        places = (side.place or "an unknown device" for side in (a, b))
        yield Paragraph("not on the same device: A on {}; B on {}".format(*places), warning=True)
    uncompared = {
        "not run in both": len(changes["not_run"]),
        "on another kind of device": len(changes["unlike"]),
        "only in A": len(found.only_a),
        "only in B": len(found.only_b),
    }
    why = ", ".join(f"{count:,} {what}" for what, count in uncompared.items() if count)
    left = sum(uncompared.values())
    yield Tiles(
        (
            Tile("compared", plural(found.compared, "case")),
            *(
                Tile(kind, f"{len(changes[kind]):,}", tone=tone if changes[kind] else "")
                for kind, tone in _SHOWN.items()
            ),
            Tile("the same", f"{found.same:,}"),
            *((Tile("not compared", f"{left:,}", why, IDLE),) if left else ()),
        )
    )
    for kind, tone in _SHOWN.items():
        yield from _change_section(kind, tone, changes[kind])
    yield from _change_section("not run in both, and so not compared", IDLE, changes["not_run"])


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
            cases=tuple(each.before.attempt.case_id[:SHORT_ID] for each in group),
        )
        for group in ranked
    )
    if items:
        yield Section(title, (first_items(items, _MAX_SHOWN),), tone=tone)


def release_data(found: ReleaseComparison) -> dict[str, Json]:
    """Return the comparison; ``docs/command-line.md`` describes the keys."""
    compared = {kind: _changes_data(found.changes[kind]) for kind in _COMPARED}
    others: dict[str, list[Json]] = {
        **{kind: _changes_data(found.changes[kind]) for kind in KINDS if kind not in _COMPARED},
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
    }
    counts, rest = (
        {name: len(items) for name, items in each.items()} for each in (compared, others)
    )
    return {
        "a": _side_data(found.a),
        "b": _side_data(found.b),
        "counts": {**counts, "same": found.same, **rest},
        **compared,
        "regressions": found.regressions,
        **others,
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
            "case_id": each.before.attempt.case_id,
            "before": each.before.attempt.outcome.value,
            "after": each.after.attempt.outcome.value,
            "change": each.text,
            "worse": each.worse,
        }
        for each in changes
    ]


SAME: Final = "same"
_BOUNDS: Final = {"pcc_moved": PCC_MOVED, "longer_ns": _MIN_SLOWER_NS, "slower": SLOWER}


class RunChanges:
    """The changes between two runs of a trove, counted by the database; runs are given by key."""

    def __init__(
        self,
        reader: TroveReader,
        a: int,
        b: int,
        counts: Mapping[VerdictChange, int],
        *,
        timed: bool,
    ) -> None:
        """Take the counts of changes; ``timed`` is whether durations are compared."""
        self._reader, self._a, self._b = reader, a, b
        self._counts = counts
        keys = {key for change in self._counts for key in change[:2]}
        verdicts = reader.verdicts(keys)
        self._kinds = {
            change: _kind_or_same(verdicts[change.before], verdicts[change.after], change, timed)
            for change in self._counts
        }

    @staticmethod
    def counted(reader: TroveReader, a: int, b: int) -> Mapping[VerdictChange, int]:
        """Return the counts of changes between two runs."""
        return reader.result_counts(a, b, _BOUNDS)

    def counts(self) -> dict[str, int]:
        """Return the number of cases of each kind of change."""
        both = sum(self._counts.values())
        found = {
            "only_a": self._reader.count_tried(self._a) - both,
            "only_b": self._reader.count_tried(self._b) - both,
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


def _kind_or_same(before: Verdict, after: Verdict, change: VerdictChange, timed: bool) -> str:  # noqa: FBT001 - of this module only
    kind = _kind_of(before, after)
    if kind is None and change.moved:
        return "moved"
    if kind is None and timed and change.slower and after.outcome == Outcome.PASSED.value:
        return "slower"
    return kind or SAME

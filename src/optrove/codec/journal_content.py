"""A journal in the form that a trove keeps: described cases, groups of calls, packed blocks.

The journal may be one that is being written. Its calls are read once, up to the last that had
begun when this object was made, and what they refer to is read after them. So all that is told
here fits together, and stays the same.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from optrove.codec import journal as layout
from optrove.codec.call_blocks import VERSION, pack_dictionary
from optrove.codec.call_columns import MAX_CLOCK
from optrove.codec.call_scan import OUTCOMES, CallScan, Tally, begin_scan
from optrove.codec.config_calls import marked_calls
from optrove.codec.journal_lines import undefined
from optrove.codec.journal_lock import is_being_written
from optrove.codec.journal_parts import JournalParts
from optrove.codec.reading import found
from optrove.codec.records import record_from_builtins, record_to_builtins
from optrove.codec.text import Json, write
from optrove.errors import BadData, Fault
from optrove.model.records import Accounting, CallOutcome, Counts, DeviceParameters, Phase
from optrove.model.trove import CallGroup, ScopeFacts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.model.records import Run, TestResult
    from optrove.model.trove import CallBlock, DescribedCase

__all__ = ["LOST", "JournalContent", "is_being_written"]

LOST: Final = "the journal could not be written"
"""The reason why calls are untraceable that were counted but not recorded."""

_MOST_KEPT: Final = 20_000
"""How many described cases are kept in memory: some kilobytes each."""

_WITH_CASE: Final = (layout.CASE, layout.OPAQUE)
_SCOPE: Final = ("test_id", "phase", "module", "mode", "device")


class JournalContent:
    """The journal of one process; in memory are its lines, and about ten bytes for each call."""

    def __init__(self, lines: Path) -> None:
        """Read the lines; BadData when they are none, UnusableJournal when a file is not there."""
        self.path = lines
        # Before the lines, so that all that the calls refer to is there.
        self._scan = begin_scan(layout.calls_beside(lines))
        self._lines = JournalParts(lines)
        self._ids: dict[int, str] = {}
        self._described: dict[int, DescribedCase] = {}

    @property
    def run(self) -> Run:
        """The run that the journal is a part of; BadData when it does not say."""
        if self._lines.run is None:
            problem = f"the journal {self.path} does not tell of which run it is; was it cut off?"
            raise BadData((Fault("$", problem),))
        return self._lines.run

    @property
    def process(self) -> int:
        """The number of the process among those of its run."""
        return self._lines.process

    @property
    def pid(self) -> int:
        """The process id of the writer."""
        return self._lines.pid

    @property
    def tests(self) -> tuple[TestResult, ...]:
        """How tests ended, in the order in which they did."""
        return tuple(self._settled.tests)

    @property
    def size(self) -> int:
        """How many bytes of the lines file were read, a torn last line included."""
        return self._settled.size

    @property
    def calls(self) -> int:
        """How many calls had begun."""
        return self._scanned[0].calls

    @property
    def lost(self) -> int:
        """How many calls were made that could not be recorded."""
        return self._scan.lost

    @property
    def faults(self) -> Counts:
        """What went wrong in the tracing itself; none when the process did not end in order."""
        ending = self._settled.ending
        return () if ending is None else ending.faults

    @property
    def complete(self) -> bool:
        """Whether the process ended in order, and every one of its calls."""
        lines = self._settled
        if lines.ending is None or lines.torn:
            return False
        return all(group.outcome is not CallOutcome.UNFINISHED for group in self.groups())

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all lines and calls; equal for equal journals only."""
        scan, _ = self._scanned
        both = f"{scan.digest} {self._lines.digest} {self._lines.torn}"
        return sha256(both.encode("ascii")).hexdigest()

    @cached_property
    def accounting(self) -> Accounting:
        """What became of every call, for a trove that knows none of the cases; it adds up."""
        kinds: dict[int, Counter[str]] = {layout.FILTERED: Counter(), layout.UNTRACEABLE: Counter()}
        scan, _ = self._scanned
        lines, ids = self._lines, dict(self.case_ids())
        stored: set[str] = set()
        repeated = 0
        for (word, *_), tally in scan.tallies.items():
            number, kind = layout.number_of(word), layout.kind_of(word)
            if kind == layout.CASE:
                stored.add(ids[number])
                repeated += tally.calls
            elif kind == layout.OPAQUE:
                case = lines.cases[number]
                held = ", ".join(sorted(set(case.opaque)))
                kinds[layout.UNTRACEABLE][f"{case.op} holds {held}"] += tally.calls
            else:
                kinds[kind][lines.plain["reason"][number]["text"]] += tally.calls
        kinds[layout.UNTRACEABLE][LOST] += scan.lost
        return Accounting(
            observed=scan.calls + scan.lost,
            stored=len(stored),
            deduplicated=repeated - len(stored),
            filtered=_counts(kinds[layout.FILTERED]),
            untraceable=_counts(kinds[layout.UNTRACEABLE]),
        )

    def cases(self) -> Iterator[tuple[int, DescribedCase]]:
        """Yield all cases with their numbers, also those that no call refers to.

        The same case may come twice with different numbers.
        """
        for number in sorted(self._settled.cases):
            case = self.case(number)
            self._ids[number] = case.case_id
            yield number, case

    def case(self, number: int) -> DescribedCase:
        """Return a case by its number; the first of many are kept, others are made anew."""
        case = self._described.get(number)
        if case is None:
            case = self._lines.described(number)
            if len(self._described) < _MOST_KEPT:
                self._described[number] = case
        return case

    def case_ids(self) -> Iterator[tuple[int, str]]:
        """Yield the numbers and ids of all cases, in the order of the numbers."""
        if len(self._ids) != len(self._settled.cases):
            for number, case in self.cases():
                self._ids[number] = case.case_id
        yield from sorted(self._ids.items())

    def scopes(self) -> Iterator[tuple[int, ScopeFacts]]:
        """Yield within what calls were made, with their numbers."""
        for number, data in sorted(self._settled.plain["scope"].items()):
            yield number, _scope(data)

    def endings(self) -> Iterator[tuple[int, bool, str]]:
        """Yield how calls ended: number, whether by an error, and its text or the outputs.

        Outputs are a list as canonical JSON. Errors and outputs are numbered apart.
        """
        lines = self._settled
        for number in sorted(lines.outputs):
            yield number, False, lines.output_text(number)
        for number, data in sorted(lines.plain["error"].items()):
            yield number, True, data["text"]

    def groups(self) -> Iterator[CallGroup]:
        """Yield all calls by what they have in common; those without a case have the number 0."""
        yield from self._groups

    def config_calls(self) -> Iterator[tuple[str, int, int]]:
        """Yield calls by where their arguments came from: path of a config, case, how many.

        Only calls of the operations that the entry is for; any where it does not say.
        """
        scan, _ = self._scanned
        entries, cases = self._lines.plain["config"], self._lines.cases
        counted: Counter[tuple[str, int]] = Counter()
        for (number, word), count in marked_calls(self.path, scan.records).items():
            case = layout.number_of(word) if layout.kind_of(word) in _WITH_CASE else 0
            if not case or layout.depth_of(word) or number not in entries:
                continue
            ops = entries[number]["ops"]
            if not ops or cases[case].op in ops:
                counted[entries[number]["path"], case] += count
        for (path, case), count in sorted(counted.items()):
            yield path, case, count

    def blocks(self) -> Iterator[CallBlock]:
        """Yield all calls in packed form, in the order in which they began."""
        yield from self._scanned[1]

    def dictionary(self) -> bytes:
        """Return what ``calls_of`` needs, together with the blocks, to give all calls back."""
        lines = self._settled
        tables = {
            "cases": {number: write(case_id) for number, case_id in self.case_ids()},
            "outputs": {number: text for number, is_error, text in self.endings() if not is_error},
            "errors": _texts(lines, "error", "text"),
            "sites": _texts(lines, "site", "file", "line"),
            "reasons": _texts(lines, "reason", "why", "text"),
            "scopes": _scopes(lines),
            "sketches": {index: write(of) for index, of in sorted(lines.sketches.items())},
        }
        numbers = {
            "version": VERSION,
            "process": lines.process,
            "started_ns": lines.started_ns,
            "clock_ns": lines.clock_ns,
        }
        return pack_dictionary(numbers, tables)

    @property
    def _settled(self) -> JournalParts:
        """The lines; of a journal that may still grow, all calls are read before anything else."""
        if self._lines.ending is None:
            self._scanned  # noqa: B018 - read now, and kept
        return self._lines

    @cached_property
    def _scanned(self) -> tuple[CallScan, tuple[CallBlock, ...]]:
        blocks = tuple(self._scan.blocks())
        # Calls that ended meanwhile refer to what was written meanwhile.
        self._lines.refresh()
        _check_references(self._scan, self._lines)
        return self._scan, blocks

    @cached_property
    def _groups(self) -> tuple[CallGroup, ...]:
        scan, _ = self._scanned
        alike: dict[tuple[int, int, int, int, bool], Tally] = {}
        for (word, scope, ending, outcome), tally in scan.tallies.items():
            case = layout.number_of(word) if layout.kind_of(word) in _WITH_CASE else 0
            key = (case, scope, ending, outcome, layout.depth_of(word) == 0)
            alike[key] = tally.and_also(alike.get(key))
        return tuple(_group(key, alike[key]) for key in sorted(alike))


def _check_references(scan: CallScan, lines: JournalParts) -> None:
    """Refuse calls that refer to what the lines do not define."""
    used: dict[str, set[int]] = {"site": scan.sites - {0}}
    for word, scope, ending, outcome in scan.tallies:
        defined = "case" if layout.kind_of(word) in _WITH_CASE else "reason"
        used.setdefault(defined, set()).add(layout.number_of(word))
        if scope:
            used.setdefault("scope", set()).add(scope)
        if ending:
            ended = "error" if outcome == layout.RAISED else "outputs"
            used.setdefault(ended, set()).add(ending)
    for kind, numbers in used.items():
        for number in numbers:
            if not lines.defines(kind, number):
                raise undefined(kind, number)


def _group(key: tuple[int, int, int, int, bool], tally: Tally) -> CallGroup:
    case, scope, ending, outcome, outermost = key
    finished = outcome != 0
    if tally.total_ns >= MAX_CLOCK:
        raise BadData((Fault("calls", f"calls that took {tally.total_ns} ns, which cannot be"),))
    return CallGroup(
        case=case,
        scope=scope,
        ending=ending,
        outcome=OUTCOMES[outcome],
        outermost=outermost,
        count=tally.calls,
        total_ns=tally.total_ns,
        shortest_ns=tally.shortest_ns if finished else None,
        longest_ns=tally.longest_ns if finished else None,
    )


def _scope(data: Json) -> ScopeFacts:
    phase, device = data.get("phase"), data.get("device")
    if phase is not None and phase not in {each.value for each in Phase}:
        raise BadData((Fault("$", f"a test has no phase {found(phase)}"),))
    return ScopeFacts(
        test_id=data.get("test_id"),
        phase=phase,
        module=data.get("module"),
        mode=data.get("mode"),
        device=None if device is None else _device_text(device),
    )


def _device_text(data: Json) -> str:
    device = record_from_builtins(data, DeviceParameters)
    return write(record_to_builtins(device))  # type: ignore[arg-type]  # cattrs takes any dataclass of the model


def _scopes(lines: JournalParts) -> dict[int, str]:
    """Return the scopes as a dictionary of calls has them."""
    spelled = {}
    for number, data in sorted(lines.plain["scope"].items()):
        _scope(data)
        spelled[number] = write({name: data[name] for name in _SCOPE if data.get(name) is not None})
    return spelled


def _texts(lines: JournalParts, kind: str, *names: str) -> dict[int, str]:
    """Return parts of the lines of one kind as JSON: a list of them, or the one that there is."""
    entries = sorted(lines.plain[kind].items())
    parts = {number: [data[name] for name in names] for number, data in entries}
    return {number: write(each if len(each) > 1 else each[0]) for number, each in parts.items()}


def _counts(counter: Counter[str]) -> Counts:
    return tuple((name, count) for name, count in counter.most_common() if count)

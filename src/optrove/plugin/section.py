"""Say at the end of a pytest session what was traced, in a few lines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from optrove.codec.journal_reader import JournalReader, find_journals
from optrove.errors import OptroveError
from optrove.flows.stores import journals_in, known_cases, remove_journals, take_in
from optrove.report.left_out import left_out_lines
from optrove.report.op_counts import counted
from optrove.report.summary import TraceSummary, summarize
from optrove.report.tables import plural

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

    from optrove.model.records import Counts
    from optrove.plugin.asked import Asked, Place
    from optrove.report.summary import InFlight

_SHOWN = 5
NOTHING = (
    "not a single op call was traced: were all tests skipped, do they import ttnn (or torch), "
    "is --optrove-backend the right one, do --optrove-include and --optrove-exclude leave any?"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What the journals of a session hold; no summary if they cannot be read.

    ``problem`` says why they cannot be read, or why the trove could not take them in.
    """

    summary: TraceSummary | None
    in_order: bool
    problem: str | None = None


@dataclass(slots=True)
class Files:
    """How many parameter files were written to which directory, over all processes."""

    written: Counter[str] = field(default_factory=Counter)
    left: set[str] = field(default_factory=set)
    """Directories that were made for them and not empty when their process ended."""
    problems: list[str] = field(default_factory=list)


def find_and_store(place: Place) -> Found:
    """Sum up the journals of a session, and add them to its trove if it has one."""
    if place.store is None:
        return _find(place.directory)
    try:
        known = known_cases(place.store, journals_in(place.directory))
    except OptroveError as error:
        return replace(_find(place.directory), problem=str(error))
    found = _find(place.directory, known)
    if found.summary is None:
        return found
    try:
        if not found.summary.accounting.observed:
            remove_journals(place.directory)
            return found
        take_in(place.store, place.directory)
    except OptroveError as error:
        return replace(found, problem=str(error))
    return found


def _find(directory: Path, known: Container[str] = ()) -> Found:
    try:
        readers = [JournalReader(lines) for lines in find_journals(directory)]
        summary = summarize(readers, known)
    except OptroveError as error:
        return Found(None, in_order=False, problem=str(error))
    # A process that was forked off has its own number, and need not end as pytest does.
    ended = all(one.ending is not None or one.process == one.pid for one in readers)
    return Found(summary, in_order=ended and not summary.in_flight)


def told(found: Found, asked: Asked, place: Place, files: Files) -> Iterator[tuple[str, bool]]:
    """Yield the lines of the section, each with whether it warns."""
    if found.summary is None:
        yield f"the journals cannot be summed up: {found.problem}", True
    else:
        yield from _counted(found.summary)
    if asked.jsonl is not None:
        yield f"{_lines_written(found.summary)}: {asked.jsonl}", False
    for directory, count in files.written.items():
        kept = "" if asked.params_keep else ", removed (keep them with --trace-params-keep)"
        yield f"{plural(count, 'parameter file')}: {directory}{kept}", False
    yield from _places(found, place)
    for problem in files.problems:
        yield problem, True


def _lines_written(summary: TraceSummary | None) -> str:
    if summary is None or summary.faults:
        # A fault may have been that of a line.
        return "one line per observed call"
    filtered = _total(summary.accounting.filtered)
    lines = summary.accounting.observed - filtered - len(summary.in_flight)
    left = ", without those filtered" if filtered else ""
    return f"{plural(lines, 'line')}, one per observed call{left}"


def _places(found: Found, place: Place) -> Iterator[tuple[str, bool]]:
    """Yield where the calls are."""
    taken = place.store is not None and found.problem is None
    if place.store is not None and found.summary is not None and found.summary.ops:
        known = f"{found.summary.known_cases} of the cases it knew"
        yield (
            (f"trove: {place.store}, {known}", False)
            if taken
            else (
                f"the trove could not take the calls in: {found.problem}",
                True,
            )
        )
    if not taken and not (place.temporary and found.in_order):
        yield f"journals: {place.directory}", not found.in_order


def _counted(summary: TraceSummary) -> Iterator[tuple[str, bool]]:
    if summary.accounting.observed:
        yield from _sums(summary)
    else:
        yield NOTHING, True
    yield from _listed("filtered", summary.accounting.filtered, warns=False)
    yield from _listed("untraceable", summary.accounting.untraceable, warns=True)
    yield from _listed("faults of the tracer", summary.faults, warns=True)
    for call in summary.in_flight:
        yield f"did not end: {_placed(call)}", True


def _sums(summary: TraceSummary) -> Iterator[tuple[str, bool]]:
    accounting = summary.accounting
    filtered, untraceable = _total(accounting.filtered), _total(accounting.untraceable)
    total = counted(summary.ops).amount
    calls, ops = plural(total.calls, "call"), plural(total.ops, "op")
    yield f"{calls} of {ops}, {plural(total.cases, 'case')}", False
    for line in left_out_lines(summary.left, options=False):
        yield line, False
    sums = (
        f"{accounting.observed} observed = {accounting.stored} new + "
        f"{accounting.deduplicated} repeated + {filtered} filtered + {untraceable} untraceable"
    )
    adds_up = accounting.adds_up()
    yield sums if adds_up else f"{sums}: this does not add up, please report it", not adds_up


def _listed(title: str, counts: Counts, *, warns: bool) -> Iterator[tuple[str, bool]]:
    for text, count in counts[:_SHOWN]:
        yield f"{title}: {count} x {text}", warns
    if len(counts) > _SHOWN:
        yield f"{title}: {_total(counts[_SHOWN:])} more for other reasons", warns


def _placed(call: InFlight) -> str:
    site = "" if call.call_site is None else f" at {call.call_site.file}:{call.call_site.line}"
    test = "" if call.test_id is None else f" in {call.test_id}"
    return f"{call.op}{test}{site}"


def _total(counts: Counts) -> int:
    return sum(count for _, count in counts)

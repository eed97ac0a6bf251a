"""Read the journals or op lines of a trace, summarize them, and add them to a trove.

A journal keeps arguments by the names of their parameters, so its op lines have all of them in
``kwargs``, and ``inputs`` is empty. Calls that were filtered or could not be described have no
line. A call that was in flight when its process died has the error ``Unfinished``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, BadTarget, OptroveError, UnusableResults
from optrove.interop.op_line_files import write_call_lines
from optrove.journal.format import FORMAT, LINES, find_journals
from optrove.journal.reader import JournalReader
from optrove.report.summary import TraceSummary, summarize, summarize_lines
from optrove.serializer.op_lines import read_op_lines
from optrove.serializer.text import read
from optrove.trove.opening import (
    add_run_journals,
    keep_journals,
    known_cases,
    read_journals,
    remove_made,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from optrove.trove.place import Place

_FIRST_LINE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded calls at a place; ``journals`` is empty for a file of op lines.

    ``problem`` is the error that kept a trove from adding it.
    """

    place: Path
    summary: TraceSummary
    journals: tuple[JournalReader, ...] = ()
    problem: OptroveError | None = None

    @property
    def in_order(self) -> bool:
        """Whether all processes ended in order, and all of their calls."""
        # A forked process is numbered by its pid, and need not end as others do.
        ended = (each.ending is not None or each.process == each.pid for each in self.journals)
        return all(ended) and not self.summary.in_flight

    def sketches(self) -> tuple[int, int, Counter[str]]:
        """Return how many calls and tensors have a sketch, and why other tensors have none."""
        calls = tensors = 0
        omitted: Counter[str] = Counter()
        for entries in chain.from_iterable(each.sketches.values() for each in self.journals):
            reasons = [entry.get("omitted") for entry in entries]
            calls += 1
            tensors += reasons.count(None)
            omitted.update(reason for reason in reasons if reason is not None)
        return calls, tensors, omitted

    def capsules(self) -> tuple[int, int, Counter[str]]:
        """Return how many capsules were kept, their bytes, and why other calls have none.

        After a crash, the bytes and reasons of that process are unknown.
        """
        kept = size = 0
        omitted: Counter[str] = Counter()
        for journal in self.journals:
            counts = journal.capsule_counts
            kept += counts.get("kept", len(journal.capsules))
            size += counts.get("bytes", 0)
            omitted.update(counts.get("omitted", {}))
        return kept, size, omitted


def store_journals(
    directory: Path, store: Place, made: Sequence[Path], *, keep: bool = False
) -> Recorded:
    """Add the journals of a trace that has ended to its trove, and remove them unless ``keep``.

    Without a single call nothing is added, and the directories ``made`` for the journals go too.
    """
    journals = read_journals(directory)
    known: frozenset[str] = frozenset()
    problem = None
    try:
        known = known_cases(store, journals)
    except OptroveError as error:
        problem = error
    summary = summarize(journals, known)
    if keep:
        keep_journals(directory)
    if not summary.accounting.observed and not keep:
        remove_made(directory, made)
    elif problem is None:
        try:
            add_run_journals(store, directory, journals)
        except OptroveError as error:
            problem = error
    return Recorded(directory, summary, journals, problem)


def summarize_directory(directory: Path) -> TraceSummary:
    """Return the summary of all journals in a directory."""
    return summarize(read_journals(directory))


def read_recorded(place: Path, store: Place) -> Iterator[Recorded]:
    """Yield the recorded calls at a place, one run at a time; BadTarget if it has none.

    The place is a directory of journals, a directory of such directories, one lines file of a
    journal, or a file of op lines. Cases that the trove ``store`` already has count as known.
    """
    if place.is_dir():
        inside = (each for each in sorted(place.iterdir()) if each.is_dir())
        directories = [each for each in chain((place,), inside) if find_journals(each)]
        if not directories:
            raise BadTarget(
                f"there are no journals ({LINES} files) in {str(place)!r}, nor one level below; "
                f"name the directory that the summary of a trace gives as its journal"
            )
        for directory in directories:
            yield _read_journals(directory, read_journals(directory), store)
    elif not place.is_file():
        raise BadTarget(
            f"{str(place)!r} is neither a file nor a directory; name a directory of journals, one "
            f"{LINES} file or a file of op lines"
        )
    elif place.suffix == LINES:
        yield _read_journals(place, (JournalReader(place),), store)
    else:
        yield _read_lines(place)


def _read_journals(place: Path, journals: tuple[JournalReader, ...], store: Place) -> Recorded:
    return Recorded(place, summarize(journals, known_cases(store, journals)), journals)


def _read_lines(place: Path) -> Recorded:
    advice = f"name a directory of journals, one {LINES} file or a file of op lines"
    with place.open("rb") as stream:
        try:
            first = read(stream.readline(_FIRST_LINE))
        except BadData:
            first = None
        if type(first) is not dict or "op_name" not in first:
            if type(first) is dict and first.get("format") == FORMAT:
                advice = f"it looks like a journal, whose name has to end in {LINES}"
            raise BadTarget(f"{str(place)!r} does not begin as a file of op calls does; {advice}")
        stream.seek(0)
        return Recorded(place, summarize_lines(read_op_lines(stream)))


def write_journal_lines(journals: Iterable[JournalReader], path: Path) -> None:
    """Append a line for each call of these journals to a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            calls = chain.from_iterable(journal.exact_calls() for journal in journals)
            write_call_lines(stream, calls)
    except OSError as error:
        raise UnusableResults(
            f"the lines of op calls cannot be written to {path}: {error}; choose another file"
        ) from error

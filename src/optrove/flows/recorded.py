"""Read what was recorded, here or elsewhere: journals, or a file of op lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.codec.journal import FORMAT, LINES
from optrove.codec.journal_reader import JournalReader, find_journals
from optrove.codec.oplines import read_op_lines
from optrove.codec.text import read
from optrove.errors import BadData, BadTarget
from optrove.report.oplines_summary import summarize_lines
from optrove.report.summary import TraceSummary, summarize

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.records import Counts

Known: TypeAlias = Callable[[tuple[Path, ...]], Container[str]]

_FIRST_LINE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Sketched:
    """How many tensors of how many calls have a sketch, and why others have none."""

    calls: int = 0
    tensors: int = 0
    omitted: Counts = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """What was found at a place; ``journals`` are the lines files, none for op lines.

    ``in_order`` is whether all processes ended as they should, and all of their calls.
    """

    place: Path
    summary: TraceSummary
    sketched: Sketched = field(default_factory=Sketched)
    journals: tuple[Path, ...] = ()
    in_order: bool = True


def read_directory(directory: Path, known: Container[str] = ()) -> Recorded:
    """Return the sum of all journals in one directory; ``known`` are cases of before."""
    return _read_journals(directory, find_journals(directory), known)


def read_recorded(place: Path, known: Known = lambda _: ()) -> tuple[Recorded, ...]:
    """Return what was recorded at a place, a run at a time; BadTarget if nothing was.

    ``known`` tells which cases of some journals a trove has already.

    The place is a directory of journals, a directory of such directories, one lines file of a
    journal, or a file of op lines.
    """
    if place.is_dir():
        return _read_place(place, known)
    if not place.is_file():
        raise BadTarget(
            f"{str(place)!r} is neither a file nor a directory; name a directory of journals, one "
            f"{LINES} file or a file of op lines"
        )
    if place.suffix == LINES:
        return (_read_journals(place, (place,), known((place,))),)
    return (_read_lines(place),)


def _read_place(place: Path, known: Known) -> tuple[Recorded, ...]:
    inside = (each for each in sorted(place.iterdir()) if each.is_dir())
    found = [each for each in chain((place,), inside) if find_journals(each)]
    if not found:
        raise BadTarget(
            f"there are no journals ({LINES} files) in {str(place)!r}, nor one level below; name "
            f"the directory that the summary of a trace gives as its journal"
        )
    return tuple(read_directory(each, known(find_journals(each))) for each in found)


def _read_journals(place: Path, paths: Iterable[Path], known: Container[str] = ()) -> Recorded:
    # A process that was killed while it began its journal leaves a file without a line, or with a
    # part of one.
    begun = tuple(path for path in paths if b"\n" in _beginning(path))
    readers = [JournalReader(path) for path in begun]
    summary = summarize(readers, known)
    # A process that was forked off has its own number, and need not end as others do.
    ended = all(reader.ending is not None or reader.process == reader.pid for reader in readers)
    in_order = ended and not summary.in_flight
    return Recorded(place, summary, _sketched(readers), begun, in_order)


def _beginning(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.readline(_FIRST_LINE)


def _read_lines(place: Path) -> Recorded:
    try:
        first = read(_beginning(place))
    except BadData as error:
        raise _no_record(place) from error
    if type(first) is not dict or "op_name" not in first:
        raise _no_record(place, first)
    with place.open("rb") as stream:
        return Recorded(place, summarize_lines(read_op_lines(stream)))


def _no_record(place: Path, first: object = None) -> BadTarget:
    advice = f"name a directory of journals, one {LINES} file or a file of op lines"
    if type(first) is dict and first.get("format") == FORMAT:
        advice = f"it looks like a journal, whose name has to end in {LINES}"
    return BadTarget(f"{str(place)!r} does not begin as a file of op calls does; {advice}")


def _sketched(readers: Iterable[JournalReader]) -> Sketched:
    calls = tensors = 0
    omitted: Counter[str] = Counter()
    for reader in readers:
        for entries in reader.sketches.values():
            calls += 1
            for entry in entries:
                reason = entry.get("omitted")
                if reason is None:
                    tensors += 1
                else:
                    omitted[reason] += 1
    return Sketched(calls, tensors, tuple(omitted.most_common()))

"""Find the trove of a command, open it, and add journals that dead processes left beside it.

The journals of a trace go to ``<trove>.journals/<run id>/``. The tracing process owns that
directory until its calls are in the trove; a directory without owner and writer was left behind,
and the next command that opens the trove adds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import NoTrove, OptroveError, UnusableJournal
from optrove.journal.format import find_journals, header_line, is_being_written
from optrove.model.trove import Added
from optrove.settings import STORE
from optrove.trove.capsules import keep_capsules
from optrove.trove.place import Place, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from optrove.journal.reader import JournalReader
    from optrove.trove.reader import TroveReader
    from optrove.trove.trove import Trove

DEFAULT_STORE: Final = Path(".optrove") / "trove.db"

_OWNER: Final = "owner"
_KEPT: Final = "kept"


@dataclass(frozen=True, slots=True)
class Recovered:
    """A run whose journals were left behind: the rows that were added, or the problem."""

    directory: Path
    added: Added
    problem: str | None = None


def located(store: str | None) -> Place:
    """Return the place of the trove.

    That is ``store``, else OPTROVE_STORE, else ``.optrove/trove.db`` in this directory or in the
    nearest one above that has it, else in this directory, where it has to be created.
    """
    given = store or STORE.value
    if given:
        return place_of(given)
    here = Path.cwd()
    for directory in (here, *here.parents):
        if (directory / DEFAULT_STORE).exists():
            return place_of(str(directory / DEFAULT_STORE))
    return place_of(str(here / DEFAULT_STORE))


def journals_beside(place: Place) -> Path:
    """Return the directory for the journals of runs that go to a trove."""
    if place.path is not None:
        return place.path.absolute().with_name(place.path.name + ".journals")
    name = hashlib.sha256(str(place).encode()).hexdigest()[:12]
    return (DEFAULT_STORE.parent / f"{name}.journals").absolute()


@contextmanager
def reading(
    store: str | None, on_recovered: Callable[[Recovered], object] = lambda _: None
) -> Iterator[TroveReader]:
    """Open the trove for queries; ``on_recovered`` gets each run that was recovered."""
    from optrove.trove.reader import open_reader

    place = located(store)
    for recovered in recover(place):
        on_recovered(recovered)
    with open_reader(place) as reader:
        yield reader


@contextmanager
def writing(
    store: str | None,
    on_recovered: Callable[[Recovered], object] = lambda _: None,
    *,
    create: bool = True,
) -> Iterator[Trove]:
    """Open the trove for changes, and create it if it is missing.

    ``on_recovered`` gets each run that was recovered.
    """
    from optrove.trove.trove import open_trove

    place = located(store)
    for recovered in recover(place):
        on_recovered(recovered)
    with open_trove(place, create=create) as trove:
        yield trove


def recover(place: Place) -> Iterator[Recovered]:
    """Add the runs that were left behind beside a trove, and yield each."""
    for directory in _left_behind(place):
        recovered = _recover(place, directory)
        if recovered is not None:
            yield recovered


def _recover(place: Place, directory: Path) -> Recovered | None:
    try:
        with run_lock(directory):
            return Recovered(directory, add_run_journals(place, directory))
    except FileNotFoundError:
        # Another command was faster.
        return None
    except OptroveError as error:
        return Recovered(directory, Added(), str(error))


def check(place: Place) -> None:
    """Raise now any error that would keep journals from being added to a trove later."""
    from optrove.trove.trove import open_trove

    if not place.is_vacant:
        with open_trove(place, create=place.path is None):
            return


def make_directory(directory: Path) -> list[Path]:
    """Create a directory for journals; return all that were created, the innermost first."""
    missing = list(takewhile(lambda each: not each.exists(), (directory, *directory.parents)))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableJournal(
            f"no journals can be kept in {directory}: {error}; choose another place for the trove"
        ) from error
    return missing


def remove_made(directory: Path, made: Iterable[Path]) -> None:
    """Remove journals, and the directories that were created for them if they are empty."""
    shutil.rmtree(directory)
    for each in made:
        if each.exists() and not any(each.iterdir()):
            each.rmdir()


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Lock a run's directory of journals inside the block: no other process adds it."""
    with (directory / _OWNER).open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def keep_journals(directory: Path) -> None:
    """Keep the journals of a run after they have been added."""
    (directory / _KEPT).touch()


def read_journals(directory: Path) -> tuple[JournalReader, ...]:
    """Return the journals of a run, the oldest first."""
    from optrove.journal.reader import JournalReader

    return tuple(map(JournalReader, find_journals(directory)))


def known_cases(place: Place, journals: Iterable[JournalReader]) -> frozenset[str]:
    """Return the ids of those cases of journals that a trove already has."""
    from optrove.trove.reader import open_reader

    ids = {case_id for journal in journals for case_id in journal.case_ids().values()}
    try:
        with open_reader(place) as reader:
            return frozenset(reader.known(ids))
    except NoTrove:
        return frozenset()


def add_run_journals(
    place: Place, directory: Path, journals: Iterable[JournalReader] | None = None
) -> Added:
    """Add the journals of a run to a trove, and remove them unless they are marked as kept.

    ``journals`` are those of the directory, if they have been read. If a process still writes one,
    they stay, and the next command that opens the trove adds the rest.
    """
    from optrove.journal.reader import JournalReader
    from optrove.trove.trove import open_trove

    every = tuple(map(JournalReader, find_journals(directory)) if journals is None else journals)
    with open_trove(place, create=True) as trove:
        added = sum(map(trove.add_journal, every), Added())
    keep_capsules(place, directory, every)
    growing = any(map(is_being_written, find_journals(directory)))
    if not growing and not (directory / _KEPT).exists():
        remove_journals(directory)
    return added


def remove_journals(directory: Path) -> None:
    """Remove the journals of a run, and the directory above if it is empty then."""
    shutil.rmtree(directory)
    if not any(directory.parent.iterdir()):
        directory.parent.rmdir()


def _left_behind(place: Place) -> Iterator[Path]:
    """Yield the directories of runs without a lock or a writer that have new records."""
    beside = journals_beside(place)
    if not beside.is_dir():
        return
    for directory in sorted(beside.iterdir()):
        journals = find_journals(directory) if directory.is_dir() else ()
        if (
            journals
            and not _is_owned(directory)
            and _has_new_records(place, directory.name, journals)
        ):
            yield directory


def _is_owned(directory: Path) -> bool:
    try:
        with (directory / _OWNER).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _has_new_records(place: Place, run_id: str, journals: Iterable[Path]) -> bool:
    every = tuple(journals)
    if any(map(is_being_written, every)):
        return False
    if place.path is None or place.is_vacant:
        return True
    return not all(_is_held(place, run_id, lines) for lines in every)


def _is_held(place: Place, run_id: str, lines: Path) -> bool:
    from optrove.trove.reader import open_reader

    header = json.loads(header_line(lines))
    with open_reader(place) as reader:
        held = reader.holds(run_id, int(header.get("process", 0)))
    return held is not None and held[0] >= lines.stat().st_size

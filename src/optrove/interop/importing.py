"""Import files of other programs, journals and other troves into a trove."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.errors import BadTarget
from optrove.interop.formats import FILES, OWN_FILES, read_file
from optrove.journal.format import LINES, find_journals
from optrove.model.trove import Added
from optrove.trove.opening import writing
from optrove.trove.place import is_sqlite_file, place_of
from optrove.trove.reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from optrove.model.trove import Fidelity, Imported
    from optrove.trove.opening import Recovered
    from optrove.trove.trove import Trove


@dataclass(frozen=True, slots=True)
class Addition:
    """The result of importing one file; ``fidelity`` is None for journals and troves."""

    name: str
    format: str
    added: Added
    fidelity: Fidelity | None = None


def import_all(
    store: str | None,
    names: Sequence[str],
    on_recovered: Callable[[Recovered], object] = lambda _: None,
    *,
    strict: bool = False,
) -> tuple[Addition, ...]:
    """Add everything that is named to a trove, or nothing if any of it cannot be read."""
    # Everything is read before anything is written, so that most faults cost nothing.
    prepared = [_prepare(name, strict=strict) for name in names]
    with writing(store, on_recovered) as trove, trove.together():
        return tuple(add_to(trove) for add_to in prepared)


def _prepare(name: str, *, strict: bool) -> Callable[[Trove], Addition]:
    """Read or check one file, and return the function that adds it to a trove."""
    path = Path(name)
    if "://" in name or is_sqlite_file(path):
        open_reader(place_of(name)).close()
        return partial(_add_trove, name)
    if not path.exists():
        raise BadTarget(f"{name!r} does not exist; import one of: {FILES}, {OWN_FILES}")
    journals = tuple(_journals_in(path))
    if journals:
        return partial(_add_journals, name, journals)
    imported, fidelity = read_file(path, strict=strict)
    return partial(_add_imported, name, imported, fidelity)


def _add_trove(name: str, trove: Trove) -> Addition:
    with open_reader(place_of(name)) as reader:
        return Addition(name, "trove", trove.merge(reader))


def _add_journals(name: str, journals: tuple[Path, ...], trove: Trove) -> Addition:
    from optrove.journal.reader import JournalReader

    readers = map(JournalReader, journals)
    return Addition(name, "journals", sum(map(trove.add_journal, readers), Added()))


def _add_imported(
    name: str, imported: tuple[Imported, ...], fidelity: Fidelity, trove: Trove
) -> Addition:
    added = sum(map(trove.add_imported, imported), Added())
    return Addition(name, fidelity.format, added, fidelity)


def _journals_in(path: Path) -> Iterator[Path]:
    """Yield the journals of a directory and of the directories in it, or the path itself."""
    if path.suffix == LINES:
        yield path
    elif path.is_dir():
        yield from find_journals(path)
        for inside in sorted(each for each in path.iterdir() if each.is_dir()):
            yield from find_journals(inside)

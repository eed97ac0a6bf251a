"""Add what others have recorded to a trove: files of every known format, journals, other troves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.errors import BadTarget
from optrove.interop.detect import read_file
from optrove.journal.format import LINES
from optrove.trove.opening import journals_in, sum_of, writing
from optrove.trove.place import is_sqlite_file, place_of
from optrove.trove.reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from optrove.model.trove import Added, Fidelity, Imported
    from optrove.trove.opening import Recovered
    from optrove.trove.trove import Trove


@dataclass(frozen=True, slots=True)
class Addition:
    """What came of importing one thing; ``fidelity`` is None where all is taken as it is."""

    name: str
    format: str
    added: Added
    fidelity: Fidelity | None = None


def import_all(
    store: str | None,
    names: Sequence[str],
    tell: Callable[[Recovered], object] = lambda _: None,
    *,
    strict: bool = False,
) -> tuple[Addition, ...]:
    """Add all that the names stand for to a trove, or nothing if any of it cannot be read."""
    # Everything is read before anything is written, so that most faults cost nothing.
    prepared = [_prepared(name, strict=strict) for name in names]
    with writing(store, tell) as trove, trove.together():
        return tuple(each.add_to(trove) for each in prepared)


@dataclass(frozen=True, slots=True)
class _Files:
    name: str
    imported: tuple[Imported, ...]
    fidelity: Fidelity

    def add_to(self, trove: Trove) -> Addition:
        added = sum_of(map(trove.add_imported, self.imported))
        return Addition(self.name, self.fidelity.format, added, self.fidelity)


@dataclass(frozen=True, slots=True)
class _Journals:
    name: str
    journals: tuple[Path, ...]

    def add_to(self, trove: Trove) -> Addition:
        from optrove.journal.content import JournalContent

        contents = map(JournalContent, self.journals)
        return Addition(self.name, "journals", sum_of(map(trove.add_journal, contents)))


@dataclass(frozen=True, slots=True)
class _Trove:
    name: str

    def add_to(self, trove: Trove) -> Addition:
        with open_reader(place_of(self.name)) as reader:
            return Addition(self.name, "trove", trove.merge(reader))


def _prepared(name: str, *, strict: bool) -> _Files | _Journals | _Trove:
    if "://" in name:
        return _checked(_Trove(name))
    path = Path(name)
    if not path.exists():
        raise BadTarget(f"{name!r} is not there; name a master JSON, op lines, a trove, ...")
    journals = tuple(_journals_in(path))
    if journals:
        return _Journals(name, journals)
    if is_sqlite_file(path):
        return _checked(_Trove(name))
    imported, fidelity = read_file(path, strict=strict)
    return _Files(name, imported, fidelity)


def _checked(other: _Trove) -> _Trove:
    with open_reader(place_of(other.name)):
        return other


def _journals_in(path: Path) -> Iterator[Path]:
    """Yield the journals of a directory, or of the directories in it; or the one that it is."""
    if path.suffix == LINES:
        yield path
    elif path.is_dir():
        yield from journals_in(path)
        for inside in sorted(each for each in path.iterdir() if each.is_dir()):
            yield from journals_in(inside)

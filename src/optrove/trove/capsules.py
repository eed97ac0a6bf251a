"""The capsules of a trove: real tensors of chosen calls, by case.

Beside a trove in a file, ``<trove>.capsules/`` has one JSON Lines file per process of a run, with
a line per capsule, and one file per distinct tensor. A trove in PostgreSQL has the same files as
rows of its table ``capsule_files``.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from optrove.errors import BadData, Fault
from optrove.journal.capsules import COMPRESSED, PLAIN, TensorFiles
from optrove.model.capsules import Capsule, Tensors
from optrove.serializer.text import Json, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from optrove.journal.reader import JournalReader
    from optrove.trove.database import Connection
    from optrove.trove.place import Place

LIST: Final = ".jsonl"
TENSORS: Final = (PLAIN, COMPRESSED)

_NAMES: Final = "SELECT name FROM capsule_files ORDER BY name"
_CONTENT: Final = "SELECT content FROM capsule_files WHERE name = :name"
_WRITE: Final = (
    "INSERT INTO capsule_files (name, content) VALUES (:name, :content)"
    " ON CONFLICT (name) DO UPDATE SET content = excluded.content"
)
_REMOVE: Final = "DELETE FROM capsule_files WHERE name = :name"


_CAPSULE_FILE: Final = re.compile(
    r"[0-9a-f]{64}\.safetensors(\.gz)?|[A-Za-z0-9_-]{1,200}\.[0-9]{1,20}\.jsonl"
)


def is_capsule_file(name: str) -> bool:
    """Return whether a name is one of ours: others may lead out of the directory."""
    return _CAPSULE_FILE.fullmatch(name) is not None


class CapsuleFiles(Protocol):
    """The files of a trove's capsules."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file; one of that name is replaced."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class FilesInDirectory:
    """Capsules beside a trove in a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def names(self) -> list[str]:
        """Return the names of all files."""
        if not self.directory.is_dir():
            return []
        return sorted(filter(is_capsule_file, (each.name for each in self.directory.iterdir())))

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return (self.directory / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file; one of that name is replaced."""
        if not is_capsule_file(name):
            raise BadData((Fault(ascii(name), "not the name of a file of capsules"),))
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{name}"
        temporary.write_bytes(content)
        temporary.rename(self.directory / name)

    def remove(self, name: str) -> None:
        """Remove a file, and the directory with the last one."""
        (self.directory / name).unlink(missing_ok=True)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()


class FilesInDatabase:
    """Capsules of a trove in PostgreSQL."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def names(self) -> list[str]:
        """Return the names of all files."""
        return [name for (name,) in self._connection.fetch(_NAMES) if is_capsule_file(name)]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        ((content,),) = self._connection.fetch(_CONTENT, {"name": name})
        return bytes(content)

    def write(self, name: str, content: bytes) -> None:
        """Write a file; one of that name is replaced."""
        self._connection.execute(_WRITE, {"name": name, "content": content})

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._connection.execute(_REMOVE, {"name": name})


def capsules_beside(path: Path) -> Path:
    """Return the directory for the capsules of a trove in a file."""
    return path.absolute().with_name(path.name + ".capsules")


@contextmanager
def reading_capsules(place: Place) -> Iterator[CapsuleFiles]:
    """Open the files of a trove's capsules to read them."""
    if place.path is not None:
        yield FilesInDirectory(capsules_beside(place.path))
        return
    from optrove.trove.reader import open_reader

    with open_reader(place) as reader:
        yield FilesInDatabase(reader.connection)


@contextmanager
def writing_capsules(place: Place) -> Iterator[CapsuleFiles]:
    """Open the files of a trove's capsules; changes of a database are made as a whole."""
    if place.path is not None:
        yield FilesInDirectory(capsules_beside(place.path))
        return
    from optrove.trove.trove import open_trove

    with open_trove(place, create=False) as trove, trove.connection.transaction():
        yield FilesInDatabase(trove.connection)


def keep_capsules(place: Place, directory: Path, journals: Iterable[JournalReader]) -> None:
    """Add the capsules of journals in ``directory`` to those of a trove.

    A capsule whose files are incomplete, as after a crash while they were written, is left out.
    """
    wanted = [journal for journal in journals if journal.capsules and journal.run is not None]
    if not wanted:
        return
    with writing_capsules(place) as files:
        present = set(files.names())
        for journal in wanted:
            source = TensorFiles(directory / "capsules" / journal.path.stem)
            lines = []
            for line, digests in _lines_of(journal):
                paths = [source.path(digest) for digest in digests]
                if all(paths) or all(_held(digest, present) for digest in digests):
                    lines.append(line)
                    for path in paths:
                        if path is not None and path.name not in present:
                            files.write(path.name, path.read_bytes())
                            present.add(path.name)
            if lines:
                run_id = journal.run.id if journal.run is not None else ""
                text = "".join(f"{write(line)}\n" for line in lines)
                files.write(f"{run_id}.{journal.process}{LIST}", text.encode("ascii"))


def _lines_of(journal: JournalReader) -> Iterator[tuple[dict[str, Json], list[str]]]:
    """Yield the line of each capsule of a journal, with the hashes of its tensors."""
    indices = set(journal.capsules)
    for call in journal.calls_with_case():
        if call.op_index in indices and "inputs" in journal.capsules[call.op_index]:
            kept = journal.capsules[call.op_index]
            line = {"call": call.op_index, "case": call.case_id, **kept}
            parts = [*kept["inputs"].values(), *kept.get("outputs", {}).values()]
            yield line, [digest for digests in parts for digest in digests]


def _held(digest: str, present: set[str]) -> bool:
    return any(digest + suffix in present for suffix in TENSORS)


def capsules_of(place: Place, case_ids: Iterable[str] | None = None) -> dict[str, list[Capsule]]:
    """Return the capsules of a trove by case, of some cases or of all."""
    wanted = None if case_ids is None else set(case_ids)
    found: dict[str, list[Capsule]] = {}
    with reading_capsules(place) as files:
        for name in files.names():
            if name.endswith(LIST):
                run_id, _, process = name.removesuffix(LIST).rpartition(".")
                for line in _read_lines(files, name):
                    if wanted is None or line["case"] in wanted:
                        capsule = _capsule(line, run_id, int(process))
                        found.setdefault(line["case"], []).append(capsule)
    return found


def _capsule(line: Mapping[str, Json], run_id: str, process: int) -> Capsule:
    inputs, outputs = _tensors(line["inputs"]), _tensors(line.get("outputs", {}))
    return Capsule(run_id, process, line["call"], inputs, outputs)


def _tensors(parts: Mapping[str, list[str]]) -> Tensors:
    return tuple((key, tuple(digests)) for key, digests in parts.items())


def _read_lines(files: CapsuleFiles, name: str) -> Iterator[dict[str, Json]]:
    for number, line in enumerate(files.read(name).splitlines(), 1):
        data = json.loads(line)
        if not (isinstance(data, dict) and {"case", "call", "inputs"} <= data.keys()):
            raise BadData((Fault(f"{name} line {number}", "not the line of a capsule"),))
        yield data


@contextmanager
def local_tensors(place: Place, capsules: Iterable[Capsule]) -> Iterator[Path]:
    """Open a directory with the tensors of some capsules, for the time of the block."""
    if place.path is not None:
        yield capsules_beside(place.path)
        return
    with tempfile.TemporaryDirectory(prefix="optrove-capsules-") as made:
        wanted = {digest for each in capsules for digest in digests_of(each)}
        with reading_capsules(place) as files:
            for name in files.names():
                if name.partition(".")[0] in wanted:
                    (Path(made) / name).write_bytes(files.read(name))
        yield Path(made)


def digests_of(capsule: Capsule) -> list[str]:
    """Return the hashes of all tensors of a capsule."""
    return [each for _, parts in (*capsule.inputs, *capsule.outputs) for each in parts]


def copy_capsules(source: Place, target: Place) -> int:
    """Add the capsules of one trove to those of another; return how many files were new."""
    with reading_capsules(source) as files:
        names = files.names()
        if not names:
            return 0
        with writing_capsules(target) as others:
            new = [name for name in names if name not in set(others.names())]
            for name in new:
                others.write(name, files.read(name))
    return len(new)


def remove_capsules(place: Place, run_ids: Iterable[str]) -> None:
    """Remove the capsules of runs, and the tensors that no other capsule uses."""
    removed = set(run_ids)
    with writing_capsules(place) as files:
        names = files.names()
        gone = [name for name in names if name.endswith(LIST) and _run_of(name) in removed]
        if not gone:
            return
        for name in gone:
            files.remove(name)
        lists = [name for name in names if name.endswith(LIST) and name not in gone]
        lines = [line for name in lists for line in _read_lines(files, name)]
        used = {digest for line in lines for digest in digests_of(_capsule(line, "", 0))}
        for name in names:
            if name.endswith(TENSORS) and name.partition(".")[0] not in used:
                files.remove(name)


def _run_of(name: str) -> str:
    return name.removesuffix(LIST).rpartition(".")[0]

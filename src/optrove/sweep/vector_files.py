"""Vector files: their format, reading and writing.

    {"$optrove": {"format": "optrove vectors", "version": 1, "module": {"name", "path", "digest"},
                  "left_out": [[reason, count]]},
     SUITE: {VECTOR_ID: {"input_hash": VECTOR_ID, "sweep_name", "suite_name", "validity", "status",
                         "invalid_reason", "job": {...}, "calls", "board", "raised", "notes"}}}

``job`` is all that it takes to execute a vector; its arguments are in the form of ``to_jsonable``.
The same vectors give the same file. A vector whose id is not that of its arguments is refused.

``vectors_export/`` has a file for each module or op and for each hardware and mesh that its vectors
need, and ``generation_manifest.json``, which lists them:

    {"vector_grouping_mode": "hw_mesh", "vector_files": [NAME],
     "files": {NAME: {"sweep_name", "suites", "hardware", "mesh", "vectors"}}}
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, Fault, UnusableResults
from optrove.interop.understanding import bad, bad_data, expected, parse
from optrove.model.ops import VECTORS
from optrove.model.records import Job, SweepModule
from optrove.model.values import key_step
from optrove.replay.planning import Planned, timeout_ns
from optrove.serializer.hashes import placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.sweep.grouping import file_stem
from optrove.sweep.vectors import VectorSet, shuffled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.records import Counts
    from optrove.replay.planning import How
    from optrove.serializer.text import Json
    from optrove.sweep.grouping import Needs


FORMAT: Final = "optrove vectors"
VERSION: Final = 1
HEADER: Final = "$optrove"
TRACED: Final = "model_traced"
"""The suite of recorded cases, which belong to no module."""

_VALID: Final = {"validity": "VectorValidity.VALID", "invalid_reason": ""}
_CURRENT: Final = {"status": "VectorStatus.CURRENT"}


@dataclass(frozen=True, slots=True)
class Vector:
    """One vector of a file: its Job, and what is known about it besides."""

    job: Job
    case_id: str
    suite: str | None = None
    calls: int | None = None
    board: str | None = None
    raised: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorFile:
    """The content of a file of vectors."""

    vectors: tuple[Vector, ...]
    module: SweepModule | None = None
    left_out: Counts = ()


def vector_document(content: VectorFile) -> dict[str, Json]:
    """Return vectors as a JSON document."""
    module = content.module
    header: dict[str, Json] = {
        "format": FORMAT,
        "version": VERSION,
        "module": None if module is None else asdict(module),
        "left_out": [list(each) for each in content.left_out],
    }
    document: dict[str, Json] = {HEADER: header}
    for vector in content.vectors:
        suite = vector.suite or TRACED
        document.setdefault(suite, {})[vector.case_id] = _vector_data(vector, suite, module)
    return document


def _vector_data(vector: Vector, suite: str, module: SweepModule | None) -> dict[str, Json]:
    known = {
        "calls": vector.calls,
        "board": vector.board,
        "raised": vector.raised,
        "notes": list(vector.notes) or None,
    }
    return {
        "input_hash": vector.case_id,
        "sweep_name": vector.job.case.op if module is None else module.name,
        "suite_name": suite,
        **_VALID,
        **_CURRENT,
        "job": record_to_builtins(replace(vector.job, module=None)),
        **{name: item for name, item in known.items() if item is not None},
    }


def read_vectors(document: Json) -> VectorFile:
    """Return the vectors of a document; BadData names every fault with its path."""
    header = document.get(HEADER) if isinstance(document, dict) else None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise bad(
            "$", f"no file of vectors; make one with: optrove vectors -o FILE (lacks {HEADER})"
        )
    if header.get("version") != VERSION:
        raise bad(
            f"$.{HEADER}.version",
            f"version {header.get('version')!r}, and this optrove reads {VERSION}; "
            f"make the file anew",
        )
    reading = _Reading()
    module = reading.module(header.get("module"))
    left_out = reading.counts(header.get("left_out", []))
    for suite, vectors in document.items():
        if suite != HEADER:
            reading.suite(suite, vectors)
    if reading.faults:
        raise bad_data(reading.faults)
    return VectorFile(tuple(reading.vectors), module, left_out)


@dataclass(slots=True)
class _Reading:
    """What was found in a document so far."""

    faults: list[Fault] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)

    def module(self, data: Json) -> SweepModule | None:
        if data is None:
            return None
        names = ("name", "path", "digest")
        if isinstance(data, dict) and all(isinstance(data.get(name), str) for name in names):
            return SweepModule(*(data[name] for name in names))
        self.faults.append(expected("name, path and digest", f"$.{HEADER}.module", data))
        return None

    def counts(self, data: Json) -> Counts:
        match data:
            case list() if all(_is_count(each) for each in data):
                return tuple((reason, count) for reason, count in data)
        self.faults.append(expected("a list of counts", f"$.{HEADER}.left_out", data))
        return ()

    def suite(self, suite: str, data: Json) -> None:
        path = f"${key_step(suite)}"
        if not isinstance(data, dict):
            self.faults.append(expected("an object of vectors", path, data))
            return
        for case_id, vector in data.items():
            self._vector((suite, case_id), vector, path + key_step(case_id))

    def _vector(self, named: tuple[str, str], data: Json, path: str) -> None:
        suite, case_id = named
        if not isinstance(data, dict):
            self.faults.append(expected("an object", path, data))
            return
        try:
            job = record_from_builtins(data.get("job"), Job)
        except BadData as error:
            self.faults += [
                Fault(f"{path}.job{each.path[1:]}", each.problem) for each in error.faults
            ]
            return
        if placement_hash(job.case) != case_id:
            self.faults.append(
                Fault(path, "its arguments are not those of this id; was the file edited?")
            )
            return
        self.vectors.append(
            Vector(
                job=replace(job, module=None),
                case_id=case_id,
                suite=suite if job.case.op.startswith(VECTORS) else None,
                calls=self._told(data, "calls", int, path),
                board=self._told(data, "board", str, path),
                raised=self._told(data, "raised", str, path),
                notes=tuple(self._notes(data.get("notes", []), path)),
            )
        )

    def _told(self, data: dict[str, Any], name: str, kind: type, path: str) -> Any:
        found = data.get(name)
        if found is None or type(found) is kind:
            return found
        self.faults.append(expected(kind.__name__, f"{path}.{name}", found))
        return None

    def _notes(self, data: Json, path: str) -> Iterable[str]:
        if isinstance(data, list) and all(isinstance(note, str) for note in data):
            return data
        self.faults.append(expected("a list of texts", f"{path}.notes", data))
        return ()


def _is_count(data: Json) -> bool:
    match data:
        case [str(), int()]:
            return True
    return False


EXPORT: Final = "vectors_export"
MANIFEST: Final = "generation_manifest.json"
MODE: Final = "hw_mesh"


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written: its vectors, and what they need."""

    file: Path
    sweep_name: str
    suites: tuple[str, ...]
    needs: Needs
    vectors: int


@dataclass(frozen=True, slots=True)
class FileRequest:
    """Which vectors of files are wanted, and how they are to run; None does not restrict them.

    ``name`` is that of a module or an op, ``module`` the file of the module where it is not in the
    place that the vectors' file tells.
    """

    path: Path
    how: How
    name: str | None = None
    suite: str | None = None
    module: Path | None = None
    randomize: int | None = None


def write_vectors(vectors: VectorSet, file: Path) -> None:
    """Write all vectors to one file."""
    _write(file, vector_document(_content(vectors, vectors.planned)))


def export_vectors(vectors: VectorSet, directory: Path) -> tuple[Exported, ...]:
    """Write vectors to a directory, a file for each group, and bring its manifest up to date.

    Suites that are not among them stay as they are; files of a module or op that have no vectors
    any more are removed.
    """
    manifest = _manifest(directory)
    known: dict[str, Any] = manifest["files"]
    written = []
    for name, part in _by_name(vectors):
        before = {file for file, about in known.items() if about.get("sweep_name") == name}
        for group in part.groups:
            file = directory / f"{file_stem(name)}{group.needs.suffix}.json"
            document = vector_document(_content(part, group.members))
            suites = tuple(suite for suite in document if suite != HEADER)
            _write(file, {**_other_suites(file, document), **document})
            written.append(Exported(file, name, suites, group.needs, len(group.members)))
        _remove(directory, before - {each.file.name for each in written}, part, known)
    known |= {each.file.name: _about(each, known.get(each.file.name)) for each in written}
    manifest |= {"vector_grouping_mode": MODE, "vector_files": sorted(known)}
    _write(directory / MANIFEST, manifest)
    return tuple(written)


def vectors_from_file(request: FileRequest) -> VectorSet:
    """Return the vectors of a file, or of all files of a directory; BadData names every fault.

    BadTarget where there are none.
    """
    contents = [_read(file) for file in _files(request.path)]
    planned: dict[str, Planned] = {}
    left_out: dict[str, int] = {}
    modules = []
    for content in contents:
        chosen = [vector for vector in content.vectors if _is_wanted(vector, content, request)]
        if chosen and content.module is not None:
            modules.append(content.module)
        for vector in chosen:
            planned.setdefault(vector.case_id, _planned(vector, content, request))
        for reason, count in content.left_out if chosen else ():
            left_out[reason] = max(count, left_out.get(reason, 0))
    if not planned:
        raise BadTarget(_nothing(contents, request))
    same = len({module.name for module in modules}) == 1
    found = VectorSet(tuple(planned.values()), tuple(sorted(left_out.items())))
    if same and all(each.suite is not None for each in planned.values()):
        found = replace(found, module=modules[0])
    return shuffled(found, request.randomize)


def _is_wanted(vector: Vector, content: VectorFile, request: FileRequest) -> bool:
    suite = vector.suite or TRACED
    return request.name in (None, _name(vector, content)) and request.suite in (None, suite)


def _name(vector: Vector, content: VectorFile) -> str:
    return vector.job.case.op if content.module is None else content.module.name


def _nothing(contents: Iterable[VectorFile], request: FileRequest) -> str:
    names = {_name(vector, content) for content in contents for vector in content.vectors}
    suites = {vector.suite or TRACED for content in contents for vector in content.vectors}
    wanted = [f"of {request.name}"] if request.name else []
    wanted += [f"of suite {request.suite!r}"] if request.suite else []
    what = " ".join(["no vector", *wanted])
    found = f"; there is: {', '.join(sorted(names))} with {', '.join(sorted(suites))}"
    return f"{request.path} holds {what}{found if names else ''}"


def _planned(vector: Vector, content: VectorFile, request: FileRequest) -> Planned:
    job = replace(vector.job, seed=request.how.seed)
    if request.how.timeout is not None:
        job = replace(job, timeout_ns=timeout_ns(request.how))
    if vector.job.case.op.startswith(VECTORS):
        job = replace(job, module=str(_module_file(content, request)))
    return Planned(
        job=job,
        case_id=vector.case_id,
        calls=vector.calls,
        board=vector.board,
        raised=vector.raised,
        notes=vector.notes,
        suite=vector.suite,
    )


def _module_file(content: VectorFile, request: FileRequest) -> Path:
    """Return the file of the vectors' module; BadTarget where it is not there."""
    if request.module is not None:
        return request.module.absolute()
    if content.module is None:
        raise BadTarget(f"{request.path} does not tell the module of its vectors; make it anew")
    if not Path(content.module.path).is_file():
        raise BadTarget(
            f"the vectors in {request.path} belong to module {content.module.name}, which was in "
            f"{content.module.path} and is not there; name its file"
        )
    return Path(content.module.path)


def _content(vectors: VectorSet, planned: Iterable[Planned]) -> VectorFile:
    listed = tuple(
        Vector(
            job=each.job,
            case_id=each.case_id,
            suite=each.suite,
            calls=each.calls,
            board=each.board,
            raised=each.raised,
            notes=each.notes,
        )
        for each in planned
    )
    return VectorFile(listed, vectors.module, vectors.left_out)


def _by_name(vectors: VectorSet) -> Iterator[tuple[str, VectorSet]]:
    """Yield the vectors of the module, or of each op, with its name."""
    if vectors.module is not None:
        yield vectors.module.name, vectors
        return
    for op in dict.fromkeys(each.op for each in vectors.planned):
        yield op, replace(vectors, planned=tuple(each for each in vectors.planned if each.op == op))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.glob("*.json") if file.name != MANIFEST)
    if not found:
        raise BadTarget(f"{path} has no files of vectors; make some: optrove vectors --dump-file")
    return found


def _read(file: Path) -> VectorFile:
    try:
        return read_vectors(parse(file.read_bytes()))
    except BadData as error:
        faults = tuple(Fault(f"{file}: {each.path}", each.problem) for each in error.faults)
        raise BadData(faults) from error
    except OSError as error:
        raise BadTarget(
            f"{file} cannot be read: {error.strerror}; name a file of vectors"
        ) from error


def _other_suites(file: Path, document: dict[str, Json]) -> dict[str, Json]:
    """Return what a file holds besides; nothing if it was made of another state of the module."""
    if not file.exists():
        return {}
    try:
        before = parse(file.read_bytes())
        read_vectors(before)
    except BadData as error:
        raise UnusableResults(
            f"{file} is there already and holds no vectors ({error}); move it away"
        ) from error
    same = before[HEADER]["module"] == document[HEADER]["module"]
    return {suite: data for suite, data in before.items() if suite not in document} if same else {}


def _remove(directory: Path, gone: set[str], part: VectorSet, known: dict[str, Any]) -> None:
    """Remove files that no vector is left of; other suites of a module keep theirs."""
    suites = {each.suite or TRACED for each in part.planned}
    for name in gone:
        if set(known[name].get("suites", ())) <= suites and Path(name).name == name:
            (directory / name).unlink(missing_ok=True)
            del known[name]


def _about(each: Exported, before: dict[str, Any] | None) -> dict[str, Json]:
    suites = sorted({*each.suites, *(before or {}).get("suites", ())})
    return {
        "sweep_name": each.sweep_name,
        "suites": suites,
        "hardware": each.needs.hardware,
        "mesh": each.needs.mesh_text,
        "vectors": each.vectors,
    }


def _manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a directory; an empty one where there is none yet."""
    file = directory / MANIFEST
    if not file.exists():
        return {"files": {}}
    document = parse(file.read_bytes())
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict) or not all(isinstance(each, dict) for each in files.values()):
        raise UnusableResults(
            f"{file} was not made by optrove vectors; export to another directory, or remove it"
        )
    return {"files": {name: each for name, each in files.items() if (directory / name).is_file()}}


def _write(file: Path, document: dict[str, Json]) -> None:
    """Write a document; the file gets its name only when all of it is written."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(_text(document), encoding="ascii")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UnusableResults(f"{file} cannot be written: {error}; choose another place") from error


def _text(document: dict[str, Json]) -> str:
    """Return a document with a line for each vector, so that files are small and diffs readable."""
    suites = []
    for name, content in document.items():
        items = content.items() if isinstance(content, dict) else ()
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in items)
        body = f"{{\n{lines}\n }}" if lines else json.dumps(content)
        suites.append(f" {json.dumps(name)}: {body}")
    return "{\n" + ",\n".join(suites) + "\n}\n"

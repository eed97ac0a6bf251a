"""Vector files: their format, reading and writing.

    {"$optrove": {"format": "optrove vectors", "version": 1, "module": {"name", "path", "digest"},
                  "left_out": [[reason, count]]},
     SUITE: {VECTOR_ID: {"input_hash": VECTOR_ID, "sweep_name", "suite_name", "validity", "status",
                         "invalid_reason", "job": {...}, "calls", "board", "raised", "notes"}}}

``job`` is everything needed to execute a vector; its arguments are in the form of ``to_jsonable``.
The same vectors give the same file. A vector whose id is not that of its arguments is refused.

``vectors_export/`` has a file for each module or op and for each board and mesh of its vectors,
and ``generation_manifest.json``, which lists them:

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
from optrove.interop.fidelity import bad_file, expected, parse
from optrove.model.ops import VECTORS
from optrove.model.records import Job, Sweep, SweepModule
from optrove.model.values import key_step
from optrove.replay.planning import PlannedJob
from optrove.serializer.hashes import placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.sweep.vectors import Group, SweepPlan, file_stem, grouped_by_hardware

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.records import Counts
    from optrove.serializer.text import Json

EXPORT: Final = "vectors_export"
MANIFEST: Final = "generation_manifest.json"
HEADER: Final = "$optrove"
TRACED: Final = "model_traced"
"""The suite of recorded cases, which belong to no module."""

_FORMAT: Final = "optrove vectors"
_VERSION: Final = 1


def write_vectors(plan: SweepPlan, file: Path) -> None:
    """Write all vectors to one file."""
    write_file(file, _text(vector_document(plan)))


def export_vectors(plan: SweepPlan, directory: Path) -> tuple[Group, ...]:
    """Write vectors to a directory, a file for each group, and update its manifest.

    Other suites in these files are kept; files of a module or op that have no vectors any more are
    removed.
    """
    known = _manifest_files(directory)
    written: list[Group] = []
    for name, vectors in _by_name(plan).items():
        before = {file for file, about in known.items() if about.get("sweep_name") == name}
        for group in grouped_by_hardware(vectors):
            file = directory / f"{file_stem(name)}{group.suffix}.json"
            document = vector_document(replace(plan, vectors=group.vectors))
            suites = {*document, *known.get(file.name, {}).get("suites", ())} - {HEADER}
            write_file(file, _text({**_other_suites(file, document), **document}))
            known[file.name] = {
                "sweep_name": name,
                "suites": sorted(suites),
                "hardware": group.hardware,
                "mesh": group.mesh_text,
                "vectors": len(group.vectors),
            }
            written.append(replace(group, file=file))
        suites = {each.suite or TRACED for each in vectors}
        for gone in before - {each.file.name for each in written if each.file is not None}:
            if set(known[gone].get("suites", ())) <= suites and Path(gone).name == gone:
                (directory / gone).unlink(missing_ok=True)
                del known[gone]
    manifest = {"files": known, "vector_grouping_mode": "hw_mesh", "vector_files": sorted(known)}
    write_file(directory / MANIFEST, _text(manifest))
    return tuple(written)


def _by_name(plan: SweepPlan) -> dict[str, list[PlannedJob]]:
    """Return the vectors by the module, or by their ops."""
    if plan.modules:
        return {plan.modules[0].name: list(plan.vectors)}
    found: dict[str, list[PlannedJob]] = {}
    for each in plan.vectors:
        found.setdefault(each.op, []).append(each)
    return found


def _manifest_files(directory: Path) -> dict[str, Any]:
    """Return the files that the manifest of a directory lists and that exist."""
    file = directory / MANIFEST
    if not file.exists():
        return {}
    document = parse(file.read_bytes())
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict) or not all(isinstance(each, dict) for each in files.values()):
        raise UnusableResults(
            f"{file} was not made by optrove vectors; export to another directory, or remove it"
        )
    return {name: each for name, each in files.items() if (directory / name).is_file()}


def _other_suites(file: Path, document: dict[str, Json]) -> dict[str, Json]:
    """Return the other suites of a file, unless they are of another version of the module."""
    if not file.exists():
        return {}
    try:
        before = parse(file.read_bytes())
        read_vectors(before)
    except BadData as error:
        raise UnusableResults(
            f"{file} exists and holds no vectors ({error}); move it away"
        ) from error
    same = before[HEADER]["module"] == document[HEADER]["module"]
    return {suite: data for suite, data in before.items() if suite not in document} if same else {}


def write_file(file: Path, text: str) -> None:
    """Write a file of ASCII; it gets its name when all of it is written."""
    part = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(text, encoding="ascii")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UnusableResults(f"{file} cannot be written: {error}; choose another place") from error


def _text(document: dict[str, Json]) -> str:
    """Return a document with a line for each vector: small files, and readable diffs."""
    suites = []
    for name, content in document.items():
        items = content.items() if isinstance(content, dict) else ()
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in items)
        body = f"{{\n{lines}\n }}" if lines else json.dumps(content)
        suites.append(f" {json.dumps(name)}: {body}")
    return "{\n" + ",\n".join(suites) + "\n}\n"


def vector_document(plan: SweepPlan) -> dict[str, Json]:
    """Return vectors as a JSON document."""
    module = plan.modules[0] if plan.modules else None
    header: dict[str, Json] = {
        "format": _FORMAT,
        "version": _VERSION,
        "module": None if module is None else asdict(module),
        "left_out": [list(each) for each in plan.left_out],
    }
    document: dict[str, Json] = {HEADER: header}
    for vector in plan.vectors:
        suite = vector.suite or TRACED
        known = {
            "calls": vector.calls,
            "board": vector.board,
            "raised": vector.raised,
            "notes": list(vector.notes) or None,
        }
        document.setdefault(suite, {})[vector.case_id] = {
            "input_hash": vector.case_id,
            "sweep_name": vector.op if module is None else module.name,
            "suite_name": suite,
            "validity": "VectorValidity.VALID",
            "invalid_reason": "",
            "status": "VectorStatus.CURRENT",
            "job": record_to_builtins(replace(vector.job, module=None)),
            **{name: item for name, item in known.items() if item is not None},
        }
    return document


def vectors_from_file(
    path: Path, sweep: Sweep, name: str | None = None, module: Path | None = None
) -> SweepPlan:
    """Return the vectors of a file, or of all files of a directory, as ``sweep`` runs them.

    ``name`` is the module or op whose vectors are wanted, ``module`` the file of the module if it
    has moved. BadData names every fault of a file, BadTarget says that there are no such vectors.
    """
    contents = [_read_file(file) for file in _files(path)]
    vectors: dict[str, PlannedJob] = {}
    left_out: dict[str, int] = {}
    modules: dict[str, SweepModule] = {}
    for content in contents:
        chosen = [
            vector
            for vector in content.vectors
            if name in (None, _sweep_name(vector, content))
            and sweep.suite in (None, vector.suite or TRACED)
        ]
        for vector in chosen:
            job = replace(vector.job, seed=sweep.seed)
            if sweep.timeout_ns is not None:
                job = replace(job, timeout_ns=sweep.timeout_ns)
            if vector.op.startswith(VECTORS):
                job = replace(job, module=str(module or _module_file(content, path)))
            vectors.setdefault(vector.case_id, replace(vector, job=job))
        if chosen:
            modules |= {each.name: each for each in content.modules if each.name not in modules}
            for reason, count in content.left_out:
                left_out[reason] = max(count, left_out.get(reason, 0))
    if not vectors:
        raise BadTarget(_no_vectors(path, contents, name, sweep.suite))
    is_one_module = len(modules) == 1 and all(each.suite is not None for each in vectors.values())
    return SweepPlan(
        tuple(vectors.values()),
        tuple(sorted(left_out.items())),
        tuple(modules.values()) if is_one_module else (),
    )


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.glob("*.json") if file.name != MANIFEST)
    if not found:
        raise BadTarget(f"{path} has no vector files; make some with: optrove vectors --dump-file")
    return found


def _read_file(file: Path) -> SweepPlan:
    try:
        return read_vectors(parse(file.read_bytes()))
    except BadData as error:
        faults = tuple(Fault(f"{file}: {each.path}", each.problem) for each in error.faults)
        raise BadData(faults) from error
    except OSError as error:
        raise BadTarget(f"{file} cannot be read: {error.strerror}; name a vector file") from error


def _sweep_name(vector: PlannedJob, content: SweepPlan) -> str:
    return content.modules[0].name if content.modules else vector.op


def _module_file(content: SweepPlan, path: Path) -> Path:
    """Return the file of the vectors' module; BadTarget if it does not exist."""
    if not content.modules:
        raise BadTarget(f"{path} does not name the module of its vectors; write the file again")
    module = content.modules[0]
    if not Path(module.path).is_file():
        raise BadTarget(
            f"the vectors in {path} belong to module {module.name}, but its file {module.path} "
            f"does not exist; name the file"
        )
    return Path(module.path)


def _no_vectors(
    path: Path, contents: Iterable[SweepPlan], name: str | None, suite: str | None
) -> str:
    pairs = [(vector, content) for content in contents for vector in content.vectors]
    names = sorted({_sweep_name(vector, content) for vector, content in pairs})
    suites = sorted({vector.suite or TRACED for vector, _ in pairs})
    wanted = ("no vector", name and f"of {name}", suite and f"of suite {suite!r}")
    found = f"; there is: {', '.join(names)} with {', '.join(suites)}" if names else ""
    return f"{path} holds {' '.join(filter(None, wanted))}{found}"


def read_vectors(document: Json) -> SweepPlan:
    """Return the vectors of a document; BadData names every fault with its path."""
    header = document.get(HEADER) if isinstance(document, dict) else None
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise BadData.at(
            "$", f"no vector file; make one with: optrove vectors -o FILE (lacks {HEADER})"
        )
    if header.get("version") != _VERSION:
        raise BadData.at(
            f"$.{HEADER}.version",
            f"version {header.get('version')!r}, and this optrove reads {_VERSION}; "
            f"write the file again",
        )
    reader = _DocumentReader()
    modules = reader.modules(header.get("module"))
    left_out = reader.counts(header.get("left_out", []))
    for suite, vectors in document.items():
        if suite != HEADER:
            reader.suite(suite, vectors)
    if reader.faults:
        raise bad_file(reader.faults)
    return SweepPlan(tuple(reader.vectors), left_out, modules)


@dataclass(slots=True)
class _DocumentReader:
    """Collects the vectors of a document and all its faults."""

    faults: list[Fault] = field(default_factory=list)
    vectors: list[PlannedJob] = field(default_factory=list)

    def modules(self, data: Json) -> tuple[SweepModule, ...]:
        match data:
            case None:
                return ()
            case {"name": str(name), "path": str(path), "digest": str(digest)}:
                return (SweepModule(name, path, digest),)
        self.faults.append(expected("name, path and digest", f"$.{HEADER}.module", data))
        return ()

    def counts(self, data: Json) -> Counts:
        pairs = data if isinstance(data, list) else [data]
        found = []
        for pair in pairs:
            match pair:
                case [str(reason), int(count)]:
                    found.append((reason, count))
        if len(found) < len(pairs):
            self.faults.append(expected("a list of counts", f"$.{HEADER}.left_out", data))
        return tuple(found)

    def suite(self, suite: str, data: Json) -> None:
        path = f"${key_step(suite)}"
        if not isinstance(data, dict):
            self.faults.append(expected("an object of vectors", path, data))
            return
        for case_id, vector in data.items():
            self._vector(suite, case_id, vector, path + key_step(case_id))

    def _vector(self, suite: str, case_id: str, data: Json, path: str) -> None:
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
                Fault(path, "its arguments do not have this id; was the file edited?")
            )
            return
        calls = self._optional(data, "calls", int, path)
        board = self._optional(data, "board", str, path)
        raised = self._optional(data, "raised", str, path)
        notes = data.get("notes", [])
        if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
            self.faults.append(expected("a list of texts", f"{path}.notes", notes))
            notes = []
        self.vectors.append(
            PlannedJob(
                job=replace(job, module=None),
                case_id=case_id,
                calls=calls,
                board=board,
                raised=raised,
                notes=tuple(notes),
                suite=suite if job.case.op.startswith(VECTORS) else None,
            )
        )

    def _optional(self, data: dict[str, Any], name: str, kind: type, path: str) -> Any:
        found = data.get(name)
        if found is None or type(found) is kind:
            return found
        self.faults.append(expected(kind.__name__, f"{path}.{name}", found))
        return None

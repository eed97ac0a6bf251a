"""Vector files: their format, reading and writing.

The vectors of a module have the form of tt-metal's sweep framework, whose runner reads them too:

    {SUITE: {VECTOR_ID: {PARAMETER: JSON, ..., "input_hash": VECTOR_ID, "sweep_name", "suite_name",
                         "validity", "status", "invalid_reason", "tag": {"module": PATH,
                         "arguments": {PARAMETER: WIRE}}}}}

``tag`` is for optrove: the file of the module, and the parameters that this form cannot state. The
cases of ops, which only optrove executes, have another form:

    {"$optrove": {"format": "optrove vectors", "version": 1, "module": null,
                  "left_out": [[reason, count]]},
     SUITE: {VECTOR_ID: {"input_hash": VECTOR_ID, "sweep_name", "suite_name", "validity", "status",
                         "invalid_reason", "job": {...}, "calls", "board", "raised", "notes"}}}

``job`` is everything needed to execute a vector; its arguments are in the form of ``to_jsonable``.
The same vectors give the same file. A vector whose id is not that of its arguments is refused.

``vectors_export/`` has a file for each module and mesh, or for each op, board and mesh, and
``generation_manifest.json``, which lists them:

    {"vector_grouping_mode": "mesh", "vector_files": [NAME],
     "files": {NAME: {"sweep_name", "suites", "hardware", "mesh", "vectors", "digest"}}}
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, Fault, NotFound, OptroveError, UnusableResults
from optrove.interop.fidelity import bad_file, expected, parse
from optrove.model.records import Job, Sweep, SweepModule
from optrove.model.values import key_step
from optrove.replay.planning import PlannedJob
from optrove.serializer.hashes import placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.wire import encode
from optrove.sweep.tt_metal_json import is_tt_metal, write_value
from optrove.sweep.vectors import (
    SweepPlan,
    VectorGroup,
    VectorRequest,
    file_stem,
    grouped_by_hardware,
    joined,
    module_file,
    module_vectors,
)

if TYPE_CHECKING:
    from optrove.model.records import Counts
    from optrove.serializer.text import Json

EXPORT: Final = "vectors_export"
MANIFEST: Final = "generation_manifest.json"
HEADER: Final = "$optrove"
TRACED: Final = "model_traced"
"""The suite of recorded cases, which belong to no module."""

_GROUPING: Final = re.compile(r"(\.hw_[^.]+)?(\.mesh_\d+x\d+)?$")
"""The end of a file's name, which states the hardware and the mesh of its vectors."""

_FORMAT: Final = "optrove vectors"
_VERSION: Final = 1


def write_vectors(plan: SweepPlan, file: Path) -> None:
    """Write all vectors to one file."""
    write_file(file, _text(vector_document(plan)))


def export_vectors(plan: SweepPlan, directory: Path) -> tuple[VectorGroup, ...]:
    """Write vectors to a directory, a file for each group, and update its manifest.

    Other suites in these files are kept; files of a module or op that have no vectors any more are
    removed.
    """
    known = _manifest_files(directory)
    written: list[VectorGroup] = []
    for name, vectors in _by_name(plan).items():
        before = {file for file, about in known.items() if about.get("sweep_name") == name}
        digest = plan.modules[0].digest if plan.modules else None
        for group in grouped_by_hardware(vectors, by_board=not plan.modules):
            file = directory / f"{file_stem(name)}{group.suffix}.json"
            document = vector_document(replace(plan, vectors=group.vectors))
            same = known.get(file.name, {}).get("digest") == digest
            others = _other_suites(file, document, same_module=same)
            write_file(file, _text({**others, **document}))
            known[file.name] = {
                "sweep_name": name,
                "suites": sorted({*document, *others} - {HEADER}),
                "hardware": group.hardware,
                "mesh": group.mesh_text,
                "vectors": len(group.vectors),
                "digest": digest,
            }
            written.append(replace(group, file=file))
        suites = {each.suite or TRACED for each in vectors}
        for gone in before - {each.file.name for each in written if each.file is not None}:
            if set(known[gone].get("suites", ())) <= suites and Path(gone).name == gone:
                (directory / gone).unlink(missing_ok=True)
                del known[gone]
    manifest = {"files": known, "vector_grouping_mode": "mesh", "vector_files": sorted(known)}
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
    try:
        document = parse(file.read_bytes())
    except BadData as error:
        raise error.within(str(file)) from error
    files = document.get("files") if isinstance(document, dict) else None
    if not isinstance(files, dict) or not all(isinstance(each, dict) for each in files.values()):
        raise UnusableResults(
            f"{file} was not made by optrove vectors; export to another directory, or remove it"
        )
    return {name: each for name, each in files.items() if (directory / name).is_file()}


def _other_suites(file: Path, document: dict[str, Json], *, same_module: bool) -> dict[str, Json]:
    """Return the other suites of a file, unless they are of another version of the module."""
    if not file.exists():
        return {}
    try:
        before = parse(file.read_bytes())
        if not is_tt_metal(before):
            read_vectors(before)
    except BadData as error:
        raise UnusableResults(
            f"{file} exists and holds no vectors ({error}); move it away"
        ) from error
    if not same_module or (HEADER in before) != (HEADER in document):
        return {}
    return {suite: data for suite, data in before.items() if suite not in document}


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
    if plan.modules:
        return _module_document(plan, plan.modules[0])
    header: dict[str, Json] = {
        "format": _FORMAT,
        "version": _VERSION,
        "module": None,
        "left_out": [list(each) for each in plan.left_out],
    }
    document: dict[str, Json] = {HEADER: header}
    for vector in plan.vectors:
        known = {
            "calls": vector.calls,
            "board": vector.board,
            "raised": vector.raised,
            "notes": list(vector.notes) or None,
        }
        document.setdefault(TRACED, {})[vector.case_id] = {
            **_facts(vector, vector.op, TRACED),
            "job": record_to_builtins(vector.job),
            **{name: item for name, item in known.items() if item is not None},
        }
    return document


def _module_document(plan: SweepPlan, module: SweepModule) -> dict[str, Json]:
    document: dict[str, Json] = {}
    for vector in plan.vectors:
        arguments: dict[str, Json] = {}
        tag: dict[str, Json] = {"module": module.path}
        for name, value in vector.job.case.arguments:
            try:
                arguments[name] = write_value(value)
            except ValueError:  # noqa: PERF203 - this form cannot express it
                tag.setdefault("arguments", {})[name] = encode(value)
        suite = vector.suite or TRACED
        facts = {**_facts(vector, module.name, suite), "tag": tag}
        document.setdefault(suite, {})[vector.case_id] = {**arguments, **facts}
    return document


def _facts(vector: PlannedJob, name: str, suite: str) -> dict[str, Json]:
    """Return the facts of a vector that tt-metal's runner expects."""
    return {
        "input_hash": vector.case_id,
        "sweep_name": name,
        "suite_name": suite,
        "validity": "VectorValidity.VALID",
        "invalid_reason": "",
        "status": "VectorStatus.CURRENT",
    }


def vectors_from_file(
    path: Path,
    sweep: Sweep,
    name: str | None = None,
    module: Path | None = None,
    request: VectorRequest | None = None,
) -> SweepPlan:
    """Return the vectors of a file, or of all files of a directory, as ``sweep`` runs them.

    ``name`` is the module or op whose vectors are wanted, ``module`` the file of the module if it
    has moved. BadData names every fault of a file, BadTarget says that there are no such vectors. A
    module of a directory that fails is left out, with its reason, unless it is asked for.
    """
    parts: list[SweepPlan] = []
    failures: list[OptroveError] = []
    known: set[tuple[str, str]] = set()
    for file in _files(path):
        document = _parsed(file)
        if not is_tt_metal(document):
            parts.append(_own_vectors(file, document, sweep, name, known))
            continue
        sweep_name = _sweep_name(file, document)
        known |= {(sweep_name, suite) for suite in document}
        is_meant = name in (None, sweep_name) or (module is not None and not path.is_dir())
        if not is_meant or sweep.suite not in (None, *document):
            continue
        try:
            found = module or _module_file(file, document, sweep_name)
            part = module_vectors(found, sweep, replace(request or VectorRequest(), file=file))
            _check_ids(file, document, part)
        except (BadTarget, NotFound) as error:
            if name is not None or not path.is_dir():
                raise
            failures.append(error)
            count = sum(map(len, document.values()))
            part = SweepPlan(left_out=((f"of {sweep_name}: {str(error).splitlines()[0]}", count),))
        parts.append(part)
    plan = joined(parts)
    if not plan.vectors:
        raise failures[0] if failures else _no_vectors(path, known, name, sweep.suite)
    return plan


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.glob("*.json") if file.name != MANIFEST)
    if not found:
        raise BadTarget(f"{path} has no vector files; write some with: optrove vectors --dump-file")
    return found


def _parsed(file: Path) -> Json:
    try:
        return parse(file.read_bytes())
    except BadData as error:
        raise error.within(str(file)) from error
    except OSError as error:
        raise BadTarget(f"{file} cannot be read: {error.strerror}; name a vector file") from error


def _sweep_name(file: Path, document: dict[str, dict[str, Json]]) -> str:
    """Return the module of a file's vectors: as they name it, or by the name of the file."""
    said = next(
        (each.get("sweep_name") for suite in document.values() for each in suite.values()), None
    )
    return _GROUPING.sub("", said if isinstance(said, str) else file.stem)


def _module_file(file: Path, document: dict[str, dict[str, Json]], sweep_name: str) -> Path:
    """Return the file of the module of a file's vectors, by its name; BadTarget without one.

    The file never chooses what is run: a path in it is only named in the error.
    """
    found = module_file(sweep_name)
    if found is None:
        tags = [each.get("tag") for suite in document.values() for each in suite.values()]
        said = next((tag.get("module") for tag in tags if isinstance(tag, dict)), None)
        named = said if isinstance(said, str) and said.isprintable() else "FILE.py"
        raise BadTarget(
            f"the vectors in {file} belong to module {sweep_name}, which is not below a directory "
            f"sweeps here; a file does not choose what is run: if you trust the module, "
            f"name it: optrove sweep {shlex.quote(named)} --file-path {file}"
        )
    return found


def _check_ids(file: Path, document: dict[str, dict[str, Json]], content: SweepPlan) -> None:
    """Raise BadData for vectors of our own that do not have the id that the file states."""
    made = {each.case_id for each in content.vectors}
    chosen = {each.suite for each in content.vectors}
    faults = [
        Fault(
            f"{file}: ${key_step(suite)}{key_step(case_id)}",
            "its arguments do not have this id; was the file edited?",
        )
        for suite, vectors in document.items()
        for case_id, vector in vectors.items()
        if suite in chosen and isinstance(vector.get("tag"), dict) and case_id not in made
    ]
    if faults:
        raise bad_file(faults)


def _own_vectors(
    file: Path, document: Json, sweep: Sweep, name: str | None, known: set[tuple[str, str]]
) -> SweepPlan:
    """Return the wanted cases of ops of a file, and add the names of all to ``known``."""
    try:
        content = read_vectors(document)
    except BadData as error:
        raise error.within(str(file)) from error
    known |= {(each.op, each.suite or TRACED) for each in content.vectors}
    chosen = []
    for vector in content.vectors:
        if name in (None, vector.op) and sweep.suite in (None, TRACED):
            job = replace(vector.job, seed=sweep.seed)
            if sweep.timeout_ns is not None:
                job = replace(job, timeout_ns=sweep.timeout_ns)
            chosen.append(replace(vector, job=job))
    return replace(content, vectors=tuple(chosen))


def _no_vectors(
    path: Path, known: set[tuple[str, str]], name: str | None, suite: str | None
) -> BadTarget:
    """Return the error for a file that has no such vectors, with those that it has."""
    wanted = ("no vector", name and f"of {name}", suite and f"of suite {suite!r}")
    names, suites = (sorted({each[place] for each in known}) for place in (0, 1))
    found = f"; there is: {', '.join(names)} with {', '.join(suites)}" if names else ""
    return BadTarget(f"{path} holds {' '.join(filter(None, wanted))}{found}")


def read_vectors(document: Json) -> SweepPlan:
    """Return the vectors of a document; BadData names every fault with its path."""
    header = document.get(HEADER) if isinstance(document, dict) else None
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise BadData.at(
            "$",
            f"not a vector file, since it lacks {HEADER}; write one with: optrove vectors -o FILE",
        )
    if header.get("version") != _VERSION:
        raise BadData.at(
            f"$.{HEADER}.version",
            f"version {header.get('version')!r}, and this optrove reads {_VERSION}; "
            f"write the file again",
        )
    reader = _DocumentReader()
    left_out = reader.counts(header.get("left_out", []))
    for suite, vectors in document.items():
        if suite != HEADER:
            reader.suite(suite, vectors)
    if reader.faults:
        raise bad_file(reader.faults)
    return SweepPlan(tuple(reader.vectors), left_out)


@dataclass(slots=True)
class _DocumentReader:
    """Collects the vectors of a document and all its faults."""

    faults: list[Fault] = field(default_factory=list)
    vectors: list[PlannedJob] = field(default_factory=list)

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
            self._vector(case_id, vector, path + key_step(case_id))

    def _vector(self, case_id: str, data: Json, path: str) -> None:
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
        if job.module is not None:
            self.faults.append(Fault(f"{path}.job.module", "a file does not choose what is run"))
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
                job=job,
                case_id=case_id,
                calls=calls,
                board=board,
                raised=raised,
                notes=tuple(notes),
            )
        )

    def _optional(self, data: dict[str, Any], name: str, kind: type, path: str) -> Any:
        found = data.get(name)
        if found is None or type(found) is kind:
            return found
        self.faults.append(expected(kind.__name__, f"{path}.{name}", found))
        return None

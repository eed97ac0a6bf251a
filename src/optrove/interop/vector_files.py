"""Files of vectors, in the order of tt-metal's: suites, in these vectors by their ids.

    {"$optrove": {"format": "optrove vectors", "version": 1, "module": {"name", "path", "digest"},
                  "left_out": [[reason, count]]},
     SUITE: {VECTOR_ID: {"input_hash": VECTOR_ID, "sweep_name", "suite_name", "validity", "status",
                         "invalid_reason", "job": {...}, "calls", "board", "raised", "notes"}}}

``job`` is all that it takes to execute a vector; its arguments are in the form of ``to_jsonable``.
The same vectors give the same file. A vector whose id is not that of its arguments is refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.identity import placement_hash
from optrove.codec.records import record_from_builtins, record_to_builtins
from optrove.errors import BadData, Fault
from optrove.interop.documents import bad, bad_data, expected
from optrove.model.hidden import VECTORS
from optrove.model.records import Job, SweepModule
from optrove.model.walk import key_step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.codec.text import Json
    from optrove.model.records import Counts

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

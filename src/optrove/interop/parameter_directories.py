"""Export and import directories of parameter files: one JSON file per op call.

An import reads two forms: that of ``--trace-params`` and of tt-metal's guide
(``operation_number``), and that of the tracer in ttnn itself (``operation_id``), which writes
values as master files do. Positional arguments are called ``arg0``, ``arg1`` and so on. Neither
form names program or machine. Outputs and the numbers in tensors are not kept.

tt-metal's ``generic_ops_tracer.py --store`` writes a directory with one subdirectory per test:

    _trace_metadata.json     the test, the machine, ``trace_uid``, ``pytest_args``
    <test>/_status.json      whether the test passed; as in tt-metal, only calls of those count
    <test>/1_ttnn_add_....json

The mesh of a call is that of its first tensor, as in master files.
"""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta, timezone
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
from optrove.interop.fidelity import FidelityCounter, expected, parse
from optrove.interop.machines import (
    EPOCH,
    Exported,
    Source,
    SourceExecution,
    model_of,
    moment_of,
    runs_of,
)
from optrove.interop.master_values import ArgumentReader, read_shards
from optrove.interop.master_writer import ADDRESS, shard_form
from optrove.interop.op_line_files import error_of
from optrove.interop.printed import LOST_ARGUMENTS
from optrove.model.trove import Machine
from optrove.serializer.hashes import CanonicalTexts
from optrove.serializer.op_lines import MOMENT
from optrove.serializer.parameter_files import STAMP, argument_form, file_stem, tensor_count
from optrove.serializer.text import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from optrove.interop.machines import Content
    from optrove.model.case import Case
    from optrove.model.records import Call
    from optrove.model.trove import Imported
    from optrove.serializer.text import Json

SOURCE: Final = "operation parameter files"
FOLDER: Final = "operation_parameters"
_NAME: Final = re.compile(r"(\d+)_.*?_(\d{8}_\d{6}_\d{6})\.json\Z")
_KNOWN: Final = frozenset(
    {
        "operation_number",
        "operation_id",
        "operation_name",
        "timestamp",
        "args",
        "kwargs",
        "num_tensors",
        "return_value",
        "sweep_source_hash",
    }
)
_MICROSECOND: Final = timedelta(microseconds=1)


def _is_parameters(document: Json) -> bool:
    """Return whether a document is one parameter file."""
    return isinstance(document, dict) and document.keys() >= {"operation_name", "args", "kwargs"}


METADATA: Final = "_trace_metadata.json"
STATUS: Final = "_status.json"
_PASSED: Final = "passed"


def parameter_files(directory: Path) -> list[Path]:
    """Return the parameter files of a directory, of its tests or of the usual folder, by number."""
    for place in (directory, directory / FOLDER):
        if place.is_dir():
            tests = sorted(path.parent for path in place.glob(f"*/{STATUS}"))
            named = [
                (path, _NAME.match(path.name))
                for folder in (place, *tests)
                for path in folder.glob("*.json")
            ]
            found = [
                (int(match[1]), match[2], path)
                for path, match in named
                if match is not None and _is_inside(path, directory)
            ]
            if found:
                return [path for *_, path in sorted(found)]
    return []


def _is_inside(path: Path, directory: Path) -> bool:
    """Return whether a path is a file in a directory: no link elsewhere, and nothing that hangs."""
    return path.is_file() and path.resolve().is_relative_to(directory.resolve())


def trace_directories(directory: Path) -> list[Path]:
    """Return a directory with parameter files, or else the directories in it that have some."""
    if parameter_files(directory):
        return [directory]
    inside = sorted(path for path in directory.iterdir() if path.is_dir())
    return [path for path in inside if parameter_files(path)]


def read_params_directory(directory: Path, *, strict: bool) -> Content:
    """Return the Runs of a directory of parameter files; BadData if no file can be read."""
    counter = FidelityCounter(strict=strict)
    runs: list[Imported] = []
    cases: set[str] = set()
    for place in trace_directories(directory):
        reader = _FileReader(place, counter)
        reader.read()
        found, _ = runs_of(reader.executions, reader.started_at)
        runs += found
        texts = CanonicalTexts()
        cases |= {texts.case_id(each.case) for run in found for each in run.cases}
    return tuple(runs), counter.fidelity(str(directory), "parameter files", len(cases))


class _FileReader:
    """Collects the executions of the files of one trace; ``faults`` are those of one file."""

    def __init__(self, directory: Path, counter: FidelityCounter) -> None:
        self.counter = counter
        self.executions: list[SourceExecution] = []
        self.faults: list[Fault] = []
        self._files = parameter_files(directory)
        self._arguments = ArgumentReader()
        self._metadata = _sidecar(directory / METADATA)
        self._began: str | None = None

    @property
    def started_at(self) -> str:
        """When the trace began: as the metadata or the names of the files say."""
        written = moment_of(self._metadata.get("timestamp"))
        return written if written != EPOCH else self._began or EPOCH

    def read(self) -> None:
        """Read all files, except those of tests that did not pass."""
        statuses = {folder: _status(folder) for folder in {path.parent for path in self._files}}
        for path in self._files:
            if statuses[path.parent] == _PASSED:
                self._take(path)
            else:
                self.counter.note(f"not read: calls of tests that {statuses[path.parent]}")
        folders = list(statuses)
        others = sum(
            not path.is_dir() and path.name not in (METADATA, STATUS)
            for folder in folders
            for path in folder.iterdir()
        ) - len(self._files)
        if others > 0:
            self.counter.note("not read: files with other names", others)

    def _take(self, path: Path) -> None:
        """Read one file; one with faults is refused."""
        self.faults = []
        named, steps = None, dict[str, str]()
        try:
            document = parse(path.read_bytes())
            named, steps = self._named(document, f"{path.name}: $")
        except BadData as error:
            self.faults += error.within(path.name).faults
        if named is None:
            self.counter.refuse(self.faults)
            return
        for key in sorted(document.keys() - _KNOWN):
            self.counter.note(f"not kept: {key} of a call")
        op = document["operation_name"].replace("::", ".")
        case, parts = self._arguments.case(op, named.items(), printed=False)
        placed = [(steps[name], notes) for name, notes in parts]
        self.counter.configuration(f"{path.name}: $", placed)
        mesh = next((mesh for value in named.values() for mesh in _meshes(value)), {})
        kept = {key: document[key] for key in ("sweep_source_hash",) if key in document}
        if "operation_id" in document:
            written = {name: item for name, item in named.items() if name not in LOST_ARGUMENTS}
            kept["arguments"] = _master_form(written)
        configuration = json.dumps(kept) if kept else None
        self.executions.append(
            SourceExecution(case, self._source(mesh), 1, path.name, configuration)
        )
        began = _moment(path.name)
        self._began = min(began, self._began or began)

    def _source(self, mesh: dict[str, Json]) -> Source:
        """Return the source of a call, as tt-metal's tracer gives it to a master file."""
        facts = self._metadata
        if not facts:
            return Source(SOURCE, None)
        tags = [f"[{name}:{facts[name]}]" for name in ("HF_MODEL", "LLAMA_DIR") if name in facts]
        name = " ".join([str(facts.get("test_source", SOURCE)), *tags])
        machine = facts.get("machine_info")
        versions = facts.get("software_versions")
        data = dict(machine) if isinstance(machine, dict) else {}
        data |= dict(versions) if isinstance(versions, dict) else {}
        kept = {key: facts.get(key) for key in ("trace_uid", "pytest_args")}
        provenance = tuple(sorted((key, json.dumps(item)) for key, item in kept.items()))
        return Source(name, model_of(name), Machine.of(data | mesh), provenance)

    def _named(self, data: Json, path: str) -> tuple[dict[str, Json] | None, dict[str, str]]:
        """Return the arguments by name and the steps to them; None after noting faults."""
        before = len(self.faults)
        if not _is_parameters(data) or not isinstance(data["operation_name"], str):
            what = "an object with operation_name, args and kwargs"
            self.faults.append(expected(what, path, data))
            return None, {}
        check_name(data["operation_name"], f"{path}.operation_name", self.faults)
        named, steps = self._positional(data["args"], f"{path}.args")
        if not isinstance(data["kwargs"], dict):
            self.faults.append(expected("an object", f"{path}.kwargs", data["kwargs"]))
            return None, {}
        for name, value in data["kwargs"].items():
            check_name(name, f"{path}.kwargs", self.faults)
            if name in named:
                self.faults.append(Fault(f"{path}.kwargs", f"a second argument {name}"))
            named[name], steps[name] = value, f".kwargs.{name}"
        return (named if len(self.faults) == before else None), steps

    def _positional(self, data: Json, path: str) -> tuple[dict[str, Json], dict[str, str]]:
        named: dict[str, Json] = {}
        steps: dict[str, str] = {}
        for index, item in enumerate(data if isinstance(data, list) else [data]):
            match item:
                case {"position": int(position), "value": value}:
                    named[f"arg{position}"] = value
                    steps[f"arg{position}"] = f".args[{index}].value"
                case _:
                    what = "an object with position and value"
                    self.faults.append(expected(what, f"{path}[{index}]", item))
        if len(named) != len(steps) or (isinstance(data, list) and len(named) != len(data)):
            self.faults.append(Fault(path, "two arguments at the same position"))
        return named, steps


def _master_form(data: Json) -> Json:
    """Return arguments of ttnn's tracer as tt-metal puts them into a master file."""
    match data:
        case str():
            return ADDRESS.sub("", data)
        case float() if not math.isfinite(data):
            return str(data)
        case list():
            return [_master_form(item) for item in data]
        case dict():
            dropped = ("mesh_device", "values")  # numbers in tensors are not kept
            kept = {key: _master_form(item) for key, item in data.items() if key not in dropped}
            if isinstance(data.get("mesh_device"), dict):
                kept |= _placement_form(data["mesh_device"])
            for name in ("shape", "dtype"):
                if name in kept and kept[name] == kept.get(f"original_{name}"):
                    del kept[name]
            if "shard_spec" in kept:
                kept["shard_spec"] = _shard_form(kept["shard_spec"])
            return kept
    return data


def _shard_form(data: Json) -> Json:
    try:
        if isinstance(data, str) and data != "None":
            return shard_form(read_shards(data, "ShardSpec"))
    except ValueError:
        return data
    return None if data == "None" else data


def _placement_form(mesh: dict[str, Json]) -> dict[str, Json]:
    if not mesh.get("placements"):
        return {}
    return {
        "tensor_placement": {
            "placement": str(mesh["placements"]),
            "distribution_shape": str(mesh.get("distribution_shape", [])),
            "mesh_device_shape": str(_mesh_facts(mesh).get("mesh_device_shape", [])),
        }
    }


def _sidecar(path: Path) -> dict[str, Json]:
    """Return the facts of a file beside the parameter files; none if it is missing or damaged."""
    if not _is_inside(path, path.parent):
        return {}
    try:
        data = parse(path.read_bytes())
    except (OSError, BadData):
        return {}
    return data if isinstance(data, dict) else {}


def _status(folder: Path) -> str:
    """Return how the test of a directory ended; calls without a test count as passed."""
    if not (folder / STATUS).exists():
        return _PASSED
    status = _sidecar(folder / STATUS).get("status")
    return status if isinstance(status, str) else "have no readable status"


def _meshes(data: Json) -> Iterator[dict[str, Json]]:
    """Yield the mesh of each tensor in an argument, as ``machine_info`` has it."""
    match data:
        case list():
            for item in data:
                yield from _meshes(item)
        case {"mesh_device": dict(mesh)}:
            found = _mesh_facts(mesh)
            if found:
                yield found
        case dict():
            for item in data.values():
                yield from _meshes(item)


def _mesh_facts(mesh: dict[str, Json]) -> dict[str, Json]:
    ids, shape, parts = (mesh.get(name) for name in ("device_ids", "shape", "distribution_shape"))
    if not isinstance(shape, list) and isinstance(parts, list):
        shape = parts if len(parts) > 1 else [1, *parts]
    facts: dict[str, Json] = {}
    if isinstance(ids, list) and ids:
        facts["device_ids"] = ids
    if isinstance(shape, list) and all(type(size) is int for size in shape):
        facts["device_count"] = len(ids) if isinstance(ids, list) and ids else prod(shape)
        facts["mesh_device_shape"] = shape
    return facts


def _moment(name: str) -> str:
    """Return the time in the name of a file, which is local and taken as UTC everywhere."""
    match = _NAME.match(name)
    try:
        moment = datetime.strptime(match[2] if match else "", STAMP)  # noqa: DTZ007 - the name has no zone
    except ValueError:
        return EPOCH
    return moment.strftime(MOMENT)


def write_params_directory(directory: Path, calls: Iterable[tuple[Call, Case]]) -> Exported:
    """Write a file for each call into ``directory``.

    Numbers count from 1 in the order of the calls. No file is ever overwritten.
    """
    directory.mkdir(parents=True, exist_ok=True)
    cases: set[str] = set()
    number = 0
    for number, (call, case) in enumerate(calls, start=1):
        _write(directory, file_stem(number, case.op), _began(call), _content(number, call, case))
        cases.add(call.case_id)
    return Exported(len(cases), number)


def _began(call: Call) -> datetime:
    text = (call.started_at or EPOCH).replace("Z", "+00:00")
    return datetime.fromisoformat(text).astimezone(timezone.utc).astimezone()


def _content(number: int, call: Call, case: Case) -> dict[str, Any]:
    output = call.outputs[0] if call.outputs else None
    error = error_of(call)
    places = [value for _, value in case.arguments] + ([] if output is None else [output])
    content: dict[str, Any] = {
        "operation_number": number,
        "operation_name": case.op,
        "timestamp": "",
        "args": [],
        "kwargs": {name: argument_form(value) for name, value in case.arguments},
        "num_tensors": sum(map(tensor_count, places)),
    }
    if error is not None:
        content["error"] = {"type": error.type, "message": error.message}
    elif output is not None:
        content["return_value"] = argument_form(output)
    return content


def _write(directory: Path, stem: str, began: datetime, content: dict[str, Any]) -> None:
    """Write a file under the first free name: with the next microsecond if one is taken."""
    while True:
        content["timestamp"] = began.strftime(STAMP)
        path = directory / f"{stem}_{content['timestamp']}.json"
        try:
            with path.open("x", encoding="ascii") as file:
                json.dump(content, file, indent=2, allow_nan=False)
        except FileExistsError:
            began += _MICROSECOND
        else:
            return

"""Export and import directories of parameter files: one JSON file per op call.

An import reads two forms: that of ``--trace-params`` and of tt-metal's guide
(``operation_number``), and that of the tracer in ttnn itself (``operation_id``), which writes
values as master files do. Positional arguments are called ``arg0``, ``arg1`` and so on. Neither
form names program or machine. Outputs and the numbers in tensors are not kept.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
from optrove.interop.fidelity import FidelityCounter, bad_file, expected, parse
from optrove.interop.machines import EPOCH, Execution, Exported, Source, runs_of
from optrove.interop.master_values import ArgumentReader
from optrove.interop.op_lines import error_of
from optrove.serializer.op_lines import MOMENT
from optrove.serializer.parameter_files import STAMP, argument_form, file_stem, tensor_count
from optrove.serializer.text import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.model.records import Call
    from optrove.model.trove import Fidelity, Imported
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
    }
)
_MICROSECOND: Final = timedelta(microseconds=1)


def _is_parameters(document: Json) -> bool:
    """Tell whether a document is one parameter file."""
    return isinstance(document, dict) and document.keys() >= {"operation_name", "args", "kwargs"}


def parameter_files(directory: Path) -> list[Path]:
    """Return the parameter files of a directory, or of the usual folder in it, by number."""
    for place in (directory, directory / FOLDER):
        if place.is_dir():
            named = [(path, _NAME.match(path.name)) for path in place.glob("*.json")]
            found = [(int(match[1]), match[2], path) for path, match in named if match is not None]
            if found:
                return [path for *_, path in sorted(found)]
    return []


def read_params_directory(
    directory: Path, *, strict: bool
) -> tuple[tuple[Imported, ...], Fidelity]:
    """Return the Run of a directory of parameter files; BadData lists the faults of all files."""
    counter = FidelityCounter(strict=strict)
    reader = _FileReader(counter)
    files = parameter_files(directory)
    for path in files:
        reader.take(path)
    others = len(list(files[0].parent.iterdir())) - len(files) if files else 0
    if others:
        counter.note("not read: files with other names", others)
    if reader.faults:
        raise bad_file(reader.faults)
    runs, cases = runs_of(reader.executions, reader.started_at)
    return runs, counter.fidelity(str(directory), "parameter files", cases)


class _FileReader:
    """Collects the executions of the files."""

    __slots__ = ("_arguments", "counter", "executions", "faults", "started_at")

    def __init__(self, counter: FidelityCounter) -> None:
        self.counter = counter
        self.faults: list[Fault] = []
        self.executions: list[Execution] = []
        self.started_at = EPOCH
        self._arguments = ArgumentReader()

    def take(self, path: Path) -> None:
        """Read one file."""
        try:
            document = parse(path.read_bytes())
        except BadData as error:
            self.faults += error.within(path.name).faults
            return
        named, steps = self._named(document, f"{path.name}: $")
        if named is None:
            return
        for key in sorted(document.keys() - _KNOWN):
            self.counter.note(f"not kept: {key} of a call")
        op = document["operation_name"].replace("::", ".")
        case, parts = self._arguments.case(op, named.items(), printed=False)
        placed = [(steps[name], notes) for name, notes in parts]
        self.counter.configuration(f"{path.name}: $", placed)
        self.executions.append(Execution(case, Source(SOURCE, None), 1, path.name))
        began = _moment(path.name)
        if self.started_at == EPOCH or began < self.started_at:
            self.started_at = began

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

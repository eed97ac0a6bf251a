"""The text form of cases, for git: one sorted line each.

    {"format":"optrove-text","version":1}
    {"op":"ttnn.add","arguments":{...},"executions":[{"source":...,"count":10}]}

Arguments have the form of ``serializer.wire``. An execution has its source and count, its model
where the source does not name it, and its machine where one is known. Lines are ASCII and sorted
by their bytes, so by op and then by content; equal content gives equal files.
"""

from __future__ import annotations

import heapq
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
from optrove.interop.fidelity import FidelityCounter, bad_file, expected
from optrove.interop.machines import (
    EPOCH,
    UNKNOWN,
    Exported,
    Source,
    SourceExecution,
    is_count,
    model_of,
    runs_of,
    summed,
)
from optrove.interop.master_reader import CaseReader
from optrove.model.trove import Machine
from optrove.serializer.hashes import CanonicalTexts, arguments_text
from optrove.serializer.text import Json, read, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import BinaryIO

    from optrove.interop.machines import Content
    from optrove.model.case import Case
    from optrove.model.trove import ExecutionRow


FORMAT: Final = "optrove-text"
VERSION: Final = 1
_KEYS: Final = frozenset({"source", "model", "machine", "count"})


def write_text(stream: BinaryIO, cases: Iterable[tuple[Case, Sequence[ExecutionRow]]]) -> Exported:
    """Write a whole file; each Case may come once, in any order."""
    stream.write(write({"format": FORMAT, "version": VERSION}).encode("ascii") + b"\n")
    counts = [0, 0]
    for line in sorted_lines(_lines(cases, counts)):
        stream.write(line)
    return Exported(counts[0], counts[1])


def _lines(
    cases: Iterable[tuple[Case, Sequence[ExecutionRow]]], counts: list[int]
) -> Iterator[bytes]:
    texts = CanonicalTexts()
    for case, rows in cases:
        executions = summed(replace(row, provenance=()) for row in rows)
        counts[0] += 1
        counts[1] += sum(count for _, count in executions)
        listed = write([_execution(source, count) for source, count in executions])
        # Not one object, since its keys would be sorted: the op has to come first.
        text = f'"op":{write(case.op)},"arguments":{arguments_text(texts.arguments(case))}'
        yield f'{{{text},"executions":{listed}}}\n'.encode("ascii")


def _execution(source: Source, count: int) -> dict[str, Json]:
    execution: dict[str, Json] = {"source": source.name, "count": count}
    if source.model != model_of(source.name):
        execution["model"] = source.model
    machine = source.machine.data()
    return execution | ({"machine": machine} if machine else {})


def sorted_lines(lines: Iterable[bytes], at_once: int = 20_000) -> Iterator[bytes]:
    """Yield lines in the order of their bytes, sorted in temporary files."""
    source = iter(lines)
    with ExitStack() as files:
        parts = []
        while part := sorted(islice(source, at_once)):
            file = files.enter_context(tempfile.TemporaryFile())
            file.writelines(part)
            file.seek(0)
            parts.append(file)
        yield from heapq.merge(*parts)


def is_text_form(first_line: Json) -> bool:
    """Return whether the first line of a file is the header of the text form."""
    return isinstance(first_line, dict) and first_line.get("format") == FORMAT


def read_text(lines: Iterable[bytes], file: str, *, strict: bool) -> Content:
    """Return the Runs of a text file; BadData lists every fault of every line."""
    numbered = enumerate(lines, start=1)
    _check_header(next(numbered, (1, b""))[1])
    counter = FidelityCounter(strict=strict)
    faults: list[Fault] = []
    executions: list[SourceExecution] = []
    reader = CaseReader()
    for number, raw in numbered:
        if not raw.strip():
            continue
        try:
            executions += _line(raw, f"line {number}", reader)
        except BadData as error:
            faults += error.within(f"line {number}").faults
        counter.configuration("$")
    if faults:
        raise bad_file(faults)
    runs, cases = runs_of(executions, EPOCH)
    return runs, counter.fidelity(file, "text", cases)


def _check_header(raw: bytes) -> None:
    header = read(raw)
    if not is_text_form(header):
        raise BadData.at("line 1", f'expected the header {{"format": "{FORMAT}", "version": ...}}')
    version = header.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise BadData.at(
            "line 1",
            f"the file has version {version!a} of the text form, this optrove reads {VERSION}; "
            f"upgrade it with: pip install --upgrade optrove",
        )


def _line(raw: bytes, path: str, reader: CaseReader) -> list[SourceExecution]:
    if not raw.endswith(b"\n"):
        raise BadData.at("$", "the line does not end; the file was cut off")
    data = read(raw)
    if not isinstance(data, dict) or data.keys() != {"op", "arguments", "executions"}:
        raise BadData.at("$", 'expected an object with "op", "arguments" and "executions"')
    faults: list[Fault] = []
    case = reader.read({"op": data["op"], "arguments": data["arguments"]}, "$", faults)
    if not isinstance(data["executions"], list):
        faults.append(expected("a list", "$.executions", data["executions"]))
    if faults or case is None:
        raise BadData(faults)
    if not data["executions"]:
        return [SourceExecution(case, Source(UNKNOWN, None), 0, path)]
    listed = enumerate(data["executions"])
    sources = [_source(item, f"$.executions[{index}]", faults) for index, item in listed]
    if faults:
        raise BadData(faults)
    return [SourceExecution(case, source, count, path) for source, count in sources]


def _source(data: Json, path: str, faults: list[Fault]) -> tuple[Source, int]:
    if not isinstance(data, dict):
        faults.append(expected("an object", path, data))
        return Source(UNKNOWN, None), 0
    known = ", ".join(sorted(_KEYS))
    extra = sorted(data.keys() - _KEYS)
    faults += [Fault(path, f"unknown key {key!a}; known: {known}") for key in extra]
    name, count = data.get("source"), data.get("count")
    model = data["model"] if "model" in data else model_of(str(name))
    checks: tuple[tuple[str, Any, bool], ...] = (
        ("source", name, isinstance(name, str)),
        ("model", model, model is None or isinstance(model, str)),
        ("count", count, is_count(count)),
    )
    faults += [
        expected(f"a {key}", f"{path}.{key}", item) for key, item, good in checks if not good
    ]
    machine = data.get("machine", {})
    if not isinstance(machine, dict):
        faults.append(expected("an object", f"{path}.machine", machine))
        machine = {}
    return Source(str(name), model, Machine.of(machine)), count if type(count) is int else 0

"""Export calls as op lines, one JSON line each, and import such files.

The form is that of ``serializer.op_lines``. Exported lines have all arguments by name in
``kwargs``, as the Case has them, so that an import gives the same Case, which the ``case_id`` of
the line proves. Lines of ``--ops-jsonl`` have the arguments as they were passed: positional ones
have no recorded names and are called ``arg0``, ``arg1`` and so on; the notes count such calls.

Lines name neither program nor machine: their source is the file of their test. Calls within other
calls count too. Importing the lines of a Run whose journal is in the trove already adds its calls
a second time, under another id.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData
from optrove.interop.fidelity import FidelityCounter, PartNotes, bad_file
from optrove.interop.machines import (
    EPOCH,
    UNKNOWN,
    Exported,
    Source,
    SourceExecution,
    model_of,
    runs_of,
)
from optrove.model.case import Case
from optrove.model.records import CallOutcome
from optrove.model.values import Null, Opaque, key_step, walk
from optrove.serializer.hashes import CanonicalTexts
from optrove.serializer.op_lines import BadLine, OpError, OpLine, op_line, read_op_lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from optrove.errors import Fault
    from optrove.interop.machines import Content
    from optrove.model.records import Call
    from optrove.serializer.text import Json

UNFINISHED: Final = OpError("Unfinished", "the process ended before the call did")
POSITIONAL: Final = "arguments by position: their names are not recorded"
OTHER_CASE: Final = "case_id of a line: not that of its arguments as they are named here"
INNER: Final = "calls within other calls"
RAISED: Final = "calls that raised"
TORN: Final = "torn line"


def write_call_lines(stream: BinaryIO, calls: Iterable[tuple[Call, Case]]) -> Exported:
    """Write a line for each call, in this order."""
    texts = CanonicalTexts()
    numbers = _CallNumbers()
    cases: set[str] = set()
    count = 0
    for call, case in calls:
        number, parent = numbers.of(call)
        stream.write(op_line(_line(call, case, number, parent), texts))
        cases.add(call.case_id)
        count += 1
    return Exported(len(cases), count)


class _CallNumbers:
    """The numbers of calls among those of their test; eight bytes are kept for each call."""

    __slots__ = ("_counts", "_known")

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, str | None]] = Counter()
        self._known: defaultdict[tuple[str, int], array[int]] = defaultdict(lambda: array("q"))

    def of(self, call: Call) -> tuple[int, int | None]:
        """Return the number of a call and that of its parent, if it is known."""
        # Calls outside of tests are numbered by themselves in each process.
        process = call.process if call.test_id is None else 0
        key = (call.run_id, process, call.test_id)
        number = self._counts[key]
        self._counts[key] += 1
        known = self._known[call.run_id, call.process]
        known.extend([-1] * (call.op_index + 1 - len(known)))
        known[call.op_index] = number
        if call.parent is None or call.parent >= len(known) or known[call.parent] < 0:
            return number, None
        return number, known[call.parent]


def _line(call: Call, case: Case, number: int, parent: int | None) -> OpLine:
    error = error_of(call)
    output = call.outputs[0] if call.outputs else Null()
    return OpLine(
        run_id=call.run_id,
        test_id=call.test_id,
        module=call.module,
        op_index=number,
        op=case.op,
        inputs=(),
        keywords=case.arguments,
        output=output if error is None else None,
        error=error,
        parent=parent,
        depth=call.depth,
        process=call.process,
        started_at=call.started_at,
        duration_ms=None if call.duration_ns is None else call.duration_ns / 1e6,
        case_id=call.case_id,
        phase=call.phase,
        mode=call.mode,
        call_site=call.call_site,
    )


def error_of(call: Call) -> OpError | None:
    """Return the exception of a call; None if it returned."""
    if call.outcome is CallOutcome.RETURNED:
        return None
    if call.outcome is CallOutcome.UNFINISHED:
        return UNFINISHED
    kind, _, message = (call.error or "Exception: ").partition(": ")
    return OpError(kind, message)


def is_op_line(data: Json) -> bool:
    """Return whether ``data`` has the keys of an op line."""
    return isinstance(data, dict) and data.keys() >= {"op_name", "inputs", "kwargs"}


def read_call_lines(stream: BinaryIO, file: str, *, strict: bool) -> Content:
    """Return the Runs of a file of op lines; BadData lists every fault.

    A last line that was cut off is counted as refused, and is a fault with ``strict`` only.
    """
    counter = FidelityCounter(strict=strict)
    texts = CanonicalTexts()
    executions: list[SourceExecution] = []
    started_at: str | None = None
    bad: list[BadLine] = []
    last: OpLine | BadLine | None = None
    for last in read_op_lines(stream):
        if isinstance(last, BadLine):
            bad.append(last)
            continue
        case = case_of_line(last)
        path = f"line {last.number}"
        counter.configuration(path, [("", _notes(last, case, texts))])
        executions.append(SourceExecution(case, _source(last), 1, path))
        if last.started_at:
            started_at = min(started_at or last.started_at, last.started_at)
    if bad and last is bad[-1] and _is_cut_off(last.faults[0]):
        counter.refused(TORN, f"line {last.number}", bad.pop().faults[0].problem)
    if bad:
        raise bad_file(
            fault
            for line in bad
            for fault in BadData(line.faults).within(f"line {line.number}").faults
        )
    runs, cases = runs_of(executions, started_at or EPOCH)
    return runs, counter.fidelity(file, "op lines", cases)


def _is_cut_off(fault: Fault) -> bool:
    return fault.path == "$" and "does not end" in fault.problem


def _notes(line: OpLine, case: Case, texts: CanonicalTexts) -> PartNotes:
    part = PartNotes()
    for name, value in case.arguments:
        for step, each in walk(value, key_step(name)):
            if isinstance(each, Opaque):
                part.keep(each.type, each.token, step)
    if line.inputs:
        part.add(POSITIONAL)
    elif line.case_id is not None and line.case_id != texts.case_id(case):
        part.add(OTHER_CASE)
    if line.depth:
        part.add(INNER)
    if line.error is not None:
        part.add(RAISED)
    return part


def case_of_line(line: OpLine) -> Case:
    """Return the Case of a call; arguments by position are called ``arg0``, ``arg1`` and so on."""
    positional = [(f"arg{place}", value) for place, value in enumerate(line.inputs)]
    try:
        return Case(line.op, (*positional, *line.keywords))
    except ValueError as error:
        raise BadData.at(f"line {line.number}: $.kwargs", str(error)) from error


def _source(line: OpLine) -> Source:
    name = (line.test_id or "").partition("::")[0] or UNKNOWN
    return Source(name, model_of(name))

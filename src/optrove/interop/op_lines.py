"""Write calls as op lines, one JSON line each, and read such files.

The form is that of ``codec.oplines``. Lines written here have all arguments by name in ``kwargs``,
as the Case has them, so that reading them gives the same Case; the ``case_id`` of a line tells.
Lines of ``--ops-jsonl`` have the arguments as they were passed. The names of positional ones are
then not told, and they are called ``arg0``, ``arg1`` and so on; the notes count such calls.

Lines do not tell what was run on which machine: their source is the file of their test. Calls
within other calls count too. Importing the lines of a Run whose journal is in the trove already
adds its calls a second time, under another id.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, Fault
from optrove.interop.machines import EPOCH, UNKNOWN, Execution, Source, model_of, runs_of
from optrove.interop.understanding import Reading, Understanding, bad_data
from optrove.model.case import Case
from optrove.model.records import CallOutcome
from optrove.model.values import Null, Opaque, key_step, walk
from optrove.serializer.hashes import CanonicalTexts
from optrove.serializer.op_lines import BadLine, OpError, OpLine, op_line, read_op_lines

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

    from optrove.model.records import Call
    from optrove.model.trove import Fidelity, Imported

UNFINISHED: Final = OpError("Unfinished", "the process ended before the call did")
POSITIONAL: Final = "arguments by position: their names are not told"
OTHER_CASE: Final = "case_id of a line: not that of its arguments as they are named here"
INNER: Final = "calls within other calls"
RAISED: Final = "calls that raised"
TORN: Final = "torn line"


def write_call_lines(stream: BinaryIO, calls: Iterable[tuple[Call, Case]]) -> int:
    """Write a line for each call, in this order, and return how many there are."""
    texts = CanonicalTexts()
    numbers = _Numbers()
    count = 0
    for call, case in calls:
        number, parent = numbers.of(call)
        stream.write(op_line(_line(call, case, number, parent), texts))
        count += 1
    return count


class _Numbers:
    """The numbers of calls among those of their test; eight bytes are kept for each call."""

    __slots__ = ("_counts", "_known")

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int, str | None]] = Counter()
        self._known: defaultdict[tuple[str, int], array[int]] = defaultdict(lambda: array("q"))

    def of(self, call: Call) -> tuple[int, int | None]:
        """Return the number of a call and that of the call which made it, if it is known."""
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
    """Return what a call raised; None if it returned."""
    if call.outcome is CallOutcome.RETURNED:
        return None
    if call.outcome is CallOutcome.UNFINISHED:
        return UNFINISHED
    kind, _, message = (call.error or "Exception: ").partition(": ")
    return OpError(kind, message)


def read_call_lines(
    stream: BinaryIO, file: str, *, strict: bool
) -> tuple[tuple[Imported, ...], Fidelity]:
    """Return the Runs that a file of op lines tells of; BadData names every fault.

    A last line that its writer did not finish is counted as refused; only ``strict`` minds it.
    """
    reader = _LinesReader(Understanding(strict=strict))
    faults: list[Fault] = []
    torn: BadLine | None = None
    for line in read_op_lines(stream):
        if torn is not None:
            faults += _faults(torn)
            torn = None
        if isinstance(line, BadLine):
            torn = line
        else:
            reader.take(line)
    if torn is not None and not _is_cut_off(torn):
        faults += _faults(torn)
    elif torn is not None:
        reader.understanding.refused(TORN, f"line {torn.number}", torn.faults[0].problem)
    if faults:
        raise bad_data(faults)
    runs, cases = runs_of(reader.executions, reader.started_at)
    return runs, reader.understanding.fidelity(file, "op lines", cases)


def _faults(line: BadLine) -> list[Fault]:
    return [Fault(f"line {line.number}: {each.path}", each.problem) for each in line.faults]


def _is_cut_off(line: BadLine) -> bool:
    return line.faults[0].path == "$" and "does not end" in line.faults[0].problem


class _LinesReader:
    """Collects the executions that lines tell of."""

    __slots__ = ("_texts", "executions", "started_at", "understanding")

    def __init__(self, understanding: Understanding) -> None:
        self.understanding = understanding
        self.executions: list[Execution] = []
        self.started_at = EPOCH
        self._texts = CanonicalTexts()

    def take(self, line: OpLine) -> None:
        """Count one call."""
        path = f"line {line.number}"
        case = case_of_line(line)
        reading = Reading()
        for name, value in case.arguments:
            for step, part in walk(value, key_step(name)):
                if isinstance(part, Opaque):
                    reading.keep(part.type, part.token, step)
        if line.inputs:
            reading.notes.append(POSITIONAL)
        elif line.case_id is not None and line.case_id != self._id(case, path):
            reading.notes.append(OTHER_CASE)
        if line.depth:
            reading.notes.append(INNER)
        if line.error is not None:
            reading.notes.append(RAISED)
        self.understanding.configuration(path, [("", reading)])
        self.executions.append(Execution(case, _source(line), 1, path))
        if line.started_at and (self.started_at == EPOCH or line.started_at < self.started_at):
            self.started_at = line.started_at

    def _id(self, case: Case, path: str) -> str:
        try:
            return self._texts.case_id(case)
        except BadData as error:
            raise error.within(path) from error


def case_of_line(line: OpLine) -> Case:
    """Return the Case of a call; arguments by position are called ``arg0``, ``arg1`` and so on."""
    positional = [(f"arg{place}", value) for place, value in enumerate(line.inputs)]
    try:
        return Case(line.op, (*positional, *line.keywords))
    except ValueError as error:
        raise BadData((Fault(f"line {line.number}: $.kwargs", str(error)),)) from error


def _source(line: OpLine) -> Source:
    name = (line.test_id or "").partition("::")[0] or UNKNOWN
    return Source(name, model_of(name))

"""Select recorded cases, from a trove or from op lines, and make a Job of each."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, BadTarget
from optrove.frameworks.ttnn.execute.files import LOAD_OP
from optrove.interop.op_line_files import case_of_line
from optrove.model.records import (
    TORCH_LIBRARIES,
    AttemptedCase,
    CallOutcome,
    DeviceKind,
    DeviceParameters,
    Job,
    Outcome,
)
from optrove.model.values import Null
from optrove.serializer.described import case_of
from optrove.serializer.hashes import placement_hash
from optrove.serializer.op_lines import BadLine, read_op_lines
from optrove.serializer.records import record_from_builtins
from optrove.serializer.wire import decode
from optrove.trove.query import ambiguous, recorded_error, select_recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from optrove.model.records import Attempt, Query
    from optrove.model.trove import CaseRow, ExecutionRow
    from optrove.model.values import Value
    from optrove.serializer.op_lines import OpLine
    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader


_BATCH: Final = 500
TORCH: Final = "torch."

DISAGREEING: Final = (
    "the recorded outputs of this case differ from call to call; they were not compared"
)
ONE_OF_SEVERAL: Final = "files of this name held different tensors; here it holds the usual one"


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A Job for a case, and the facts that were recorded about the case.

    ``calls`` is None where they were not counted, ``board`` is the board of most recorded calls,
    ``raised`` is the recorded exception of a case that never returned. ``suite`` is set for the
    vectors of a sweep module, ``scaled_from`` for a case that was scaled down from recorded ones.
    """

    job: Job
    case_id: str
    calls: int | None = None
    board: str | None = None
    raised: str | None = None
    notes: tuple[str, ...] = ()
    suite: str | None = None
    scaled_from: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        """The operation."""
        return self.job.case.op

    def attempted(self, attempt: Attempt) -> AttemptedCase:
        """Return an Attempt at the case with the facts and notes of the plan."""
        return AttemptedCase(
            op=self.op,
            attempt=replace(attempt, notes=(*attempt.notes, *self.notes)),
            calls=self.calls,
            suite=self.suite,
            recorded_on=self.board,
            raised=self.raised,
            scaled_from=self.scaled_from,
        )


def planned_cases(
    reader: TroveReader, query: Query, *, seed: int = 0, timeout_ns: int | None = None
) -> Iterator[PlannedJob]:
    """Yield a Job for each case of a query, most called first."""
    return _planned(reader, reader.cases(query), seed, timeout_ns)


def planned_by_id(
    reader: TroveReader, case_ids: Iterable[str], *, seed: int = 0, timeout_ns: int | None = None
) -> Iterator[PlannedJob]:
    """Yield a Job for each case that the trove holds, in the order of the ids."""
    return _planned(reader, reader.cases_by_id(case_ids), seed, timeout_ns)


def _planned(
    reader: TroveReader, rows: Iterator[CaseRow], seed: int, timeout_ns: int | None
) -> Iterator[PlannedJob]:
    devices: dict[str, DeviceParameters | None] = {}
    libraries = _Libraries(reader)
    while batch := tuple(islice(rows, _BATCH)):
        found = reader.executions([row.case_id for row in batch])
        executions = {
            case_id: tuple(each) for case_id, each in groupby(found, lambda row: row.case_id)
        }
        for row in batch:
            every = executions.get(row.case_id, ())
            returned = [each for each in every if each.outcome is CallOutcome.RETURNED]
            outputs, notes = _outputs(row.op, returned)
            notes += libraries.notes(row.op, every)
            boards: Counter[str] = Counter()
            for each in every:
                if each.board is not None:
                    boards[each.board] += each.count
            board = max(boards, key=lambda name: (boards[name], name)) if boards else None
            yield PlannedJob(
                job=Job(
                    case=case_of(row.content),
                    device_kind=DeviceKind.HOST,
                    seed=seed,
                    device=_device(reader, returned or every, devices),
                    timeout_ns=timeout_ns,
                    outputs=outputs,
                    recorded_on=board,
                    raises=recorded_error(every) if row.op.startswith(TORCH) else None,
                ),
                case_id=row.case_id,
                calls=row.calls,
                board=board,
                raised=recorded_error(every),
                notes=notes,
            )


class _Libraries:
    """The modules that registered the operations of torch which Runs have recorded."""

    def __init__(self, reader: TroveReader) -> None:
        self._reader = reader
        self._modules: dict[str, dict[str, str | None]] = {}

    def notes(self, op: str, executions: Iterable[ExecutionRow]) -> tuple[str, ...]:
        """Return a note that names the module to import for an operation of another library."""
        space = op.split(".")[2] if op.startswith("torch.ops.") else "aten"
        if space == "aten":
            return ()
        found = {self._of_run(each.run_id).get(space) for each in executions} - {None}
        names = sorted(map(str, found))
        return tuple(f"{space} was registered by {name}: --import {name}" for name in names)

    def _of_run(self, run_id: str) -> dict[str, str | None]:
        if run_id not in self._modules:
            rows = self._reader.runs(run_id)
            facts = dict(rows[0].run.provenance) if rows else {}
            self._modules[run_id] = json.loads(facts.get(TORCH_LIBRARIES, "{}"))
        return self._modules[run_id]


def _device(
    reader: TroveReader,
    executions: Iterable[ExecutionRow],
    of_runs: dict[str, DeviceParameters | None],
) -> DeviceParameters | None:
    """Return the parameters of the device that most calls used, None if unknown.

    ``of_runs`` caches the devices of runs.
    """
    for each in executions:
        if each.device is not None:
            opened = record_from_builtins(json.loads(each.device), DeviceParameters)
            # The chips of the recording's machine are not those of a replay.
            return replace(opened, device_ids=None)
        if each.run_id not in of_runs:
            rows = reader.runs(each.run_id)
            of_runs[each.run_id] = rows[0].run.environment.device if rows else None
        device = of_runs[each.run_id]
        if device is not None:
            return device
    return None


def _outputs(
    op: str, returned: Iterable[ExecutionRow]
) -> tuple[tuple[Value, ...] | None, tuple[str, ...]]:
    """Return the recorded outputs of a case, None if they are unknown or ambiguous, and notes.

    Files of one name may hold different tensors: then most calls decide.
    """
    counts: Counter[str] = Counter()
    for each in returned:
        if each.outputs is not None:
            counts[each.outputs] += each.count
    if not counts:
        return None, ()
    if len(counts) > 1 and op != LOAD_OP:
        return None, (DISAGREEING,)
    most = max(counts, key=lambda text: (counts[text], text))
    return tuple(map(decode, json.loads(most))), () if len(counts) == 1 else (ONE_OF_SEVERAL,)


def cases_named(
    reader: TroveReader,
    asked: CaseFilters,
    *,
    every: bool,
    seed: int = 0,
    timeout_ns: int | None = None,
    advice: str = "name one, or add --all",
) -> tuple[tuple[PlannedJob, ...], int]:
    """Return the most called case that matches, or every one, and how many match.

    NotFound if none matches; with ``advice`` if several ops match and not every case is wanted.
    """
    answers = select_recorded(reader, asked)
    if not every and len(answers) > 1:
        names = [answer.op for answer in answers]
        raise ambiguous(f"{asked.name!r} means {len(names)} ops", names, advice)
    queries = (answer.query if every else replace(answer.query, limit=1) for answer in answers)
    cases = tuple(
        planned
        for query in queries
        for planned in planned_cases(reader, query, seed=seed, timeout_ns=timeout_ns)
    )
    return cases, sum(answer.cases for answer in answers)


def case_to_shrink(
    reader: TroveReader,
    asked: CaseFilters,
    kind: DeviceKind | None,
    board: str | None,
    *,
    seed: int = 0,
) -> tuple[PlannedJob, ...]:
    """Return the one case that matches; of an op, the most called that is known to fail.

    Cases count whose last attempt on this device failed, then those that failed elsewhere. If none
    did, it is the most called case.
    """
    advice = "name one op, or one case by its id; optrove show OP lists the ids"
    cases, count = cases_named(reader, asked, every=False, seed=seed, advice=advice)
    if count == 1:
        return cases
    (answer,) = select_recorded(reader, asked)
    ids = tuple(row.case_id for row in reader.cases(answer.query))
    failed = [
        key
        for key, attempt in reader.last_attempts_at(ids).items()
        if attempt.outcome not in (Outcome.PASSED, Outcome.NOT_RUN)
    ]
    here = {
        case_id
        for case_id, on, device in failed
        if (kind is None or device == kind.value) and (board is None or on == board)
    }
    known = here or {case_id for case_id, _, _ in failed}
    first = next((case_id for case_id in ids if case_id in known), None)
    return cases if first is None else tuple(planned_by_id(reader, (first,), seed=seed))


def cases_in_lines(
    path: Path, index: int | None, *, seed: int = 0, timeout_ns: int | None = None
) -> tuple[PlannedJob, ...]:
    """Return the call with this number of a file of op lines, or the distinct cases of all.

    BadTarget if there is no such file or call, BadData for a line that cannot be read.
    """
    found: dict[str, PlannedJob] = {}
    count = 0
    try:
        with path.open("rb") as stream:
            for number, line in enumerate(read_op_lines(stream)):
                if isinstance(line, BadLine):
                    raise BadData(line.faults).within(f"line {line.number}")
                count += 1
                if index is None or number == index:
                    planned = planned_line(line, seed=seed, timeout_ns=timeout_ns)
                    found.setdefault(planned.case_id, planned)
    except OSError as error:
        raise BadTarget(
            f"{str(path)!r} cannot be read: {error}; name a file of op lines"
        ) from error
    if not found:
        raise BadTarget(
            f"{str(path)!r} has {count:,} calls, none with index {index or 0}; count from 0"
            if count
            else f"{str(path)!r} does not contain a call; name a file of --ops-jsonl"
        )
    return tuple(found.values())


def planned_line(line: OpLine, *, seed: int = 0, timeout_ns: int | None = None) -> PlannedJob:
    """Return the Job of the call that an op line records."""
    case = case_of_line(line)
    outputs = None
    if line.output is not None:
        outputs = () if line.output == Null() else (line.output,)
    job = Job(
        case=case,
        device_kind=DeviceKind.HOST,
        seed=seed,
        timeout_ns=timeout_ns,
        outputs=outputs,
    )
    raised = None if line.error is None else f"{line.error.type}: {line.error.message}"
    return PlannedJob(job, placement_hash(case), raised=raised)

"""Find the cases to execute and make Jobs of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, BadTarget, NotFound
from optrove.frameworks.ttnn.execute.files import LOAD_OP
from optrove.interop.op_lines import case_of_line
from optrove.model.records import CallOutcome, DeviceKind, DeviceParameters, Job
from optrove.model.values import Null
from optrove.serializer.described import case_of
from optrove.serializer.hashes import placement_hash
from optrove.serializer.op_lines import BadLine, read_op_lines
from optrove.serializer.records import record_from_builtins
from optrove.serializer.wire import decode
from optrove.trove.query import ambiguous, query_of, select, select_recorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from optrove.model.records import Query
    from optrove.model.trove import CaseRow, ExecutionRow
    from optrove.model.values import Value
    from optrove.serializer.op_lines import OpLine
    from optrove.trove.query import Asked
    from optrove.trove.reader import TroveReader


_BATCH: Final = 500
_NS: Final = 1_000_000_000

DISAGREEING: Final = "recordings of this case disagree about its outputs; they were not compared"
ONE_OF_SEVERAL: Final = "files of this name held different tensors; here it holds the usual one"


@dataclass(frozen=True, slots=True)
class How:
    """How cases are to be executed; ``timeout`` is in seconds."""

    seed: int = 0
    timeout: float | None = None


def timeout_ns(how: How) -> int | None:
    """Return the time that a Job may take, as a Job has it."""
    return None if how.timeout is None else round(how.timeout * _NS)


@dataclass(frozen=True, slots=True)
class Planned:
    """A Job for a case, and what is known about the case besides.

    ``board`` is where most of its calls were recorded, ``raised`` what it raised there if it never
    returned. ``calls`` is None where nobody counted them. ``suite`` is there for vectors of a sweep
    module.
    """

    job: Job
    case_id: str
    calls: int | None = None
    board: str | None = None
    raised: str | None = None
    notes: tuple[str, ...] = ()
    suite: str | None = None

    @property
    def op(self) -> str:
        """The operation."""
        return self.job.case.op


def planned_cases(reader: TroveReader, query: Query, how: How) -> Iterator[Planned]:
    """Yield a Job for each case of a query, most called first."""
    yield from _planned(reader, reader.cases(query), how)


def planned_by_id(reader: TroveReader, case_ids: Iterable[str], how: How) -> Iterator[Planned]:
    """Yield a Job for each case that a trove holds, in the order of the ids."""
    yield from _planned(reader, reader.cases_by_id(case_ids), how)


def _planned(reader: TroveReader, rows: Iterator[CaseRow], how: How) -> Iterator[Planned]:
    planner = _Planner(reader, how)
    while batch := tuple(islice(rows, _BATCH)):
        executions = {
            case_id: tuple(each)
            for case_id, each in groupby(
                reader.executions([row.case_id for row in batch]), lambda row: row.case_id
            )
        }
        for row in batch:
            yield planner.planned(row, executions.get(row.case_id, ()))


@dataclass(slots=True)
class _Planner:
    """Makes Jobs, and remembers with which devices the runs of a trove went."""

    reader: TroveReader
    how: How
    devices: dict[str, DeviceParameters | None] = field(default_factory=dict)

    def planned(self, row: CaseRow, executions: tuple[ExecutionRow, ...]) -> Planned:
        returned = [each for each in executions if each.outcome is CallOutcome.RETURNED]
        outputs, notes = _outputs(row.op, returned)
        job = Job(
            case=case_of(row.content),
            device_kind=DeviceKind.HOST,
            seed=self.how.seed,
            device=self._device(returned or executions),
            timeout_ns=timeout_ns(self.how),
            outputs=outputs,
        )
        boards: Counter[str] = Counter()
        for each in executions:
            if each.board is not None:
                boards[each.board] += each.count
        errors = [each.error for each in executions if each.error is not None]
        return Planned(
            job=job,
            case_id=row.case_id,
            calls=row.calls,
            board=max(boards, key=lambda name: (boards[name], name)) if boards else None,
            raised=errors[0] if errors and not returned else None,
            notes=notes,
        )

    def _device(self, executions: Iterable[ExecutionRow]) -> DeviceParameters | None:
        """Return with what the device of the most calls was opened; None if that is not known."""
        for each in executions:
            if each.device is not None:
                return record_from_builtins(json.loads(each.device), DeviceParameters)
            device = self._device_of(each.run_id)
            if device is not None:
                return device
        return None

    def _device_of(self, run_id: str) -> DeviceParameters | None:
        if run_id not in self.devices:
            rows = self.reader.runs(run_id)
            self.devices[run_id] = rows[0].run.environment.device if rows else None
        return self.devices[run_id]


def _outputs(
    op: str, returned: Iterable[ExecutionRow]
) -> tuple[tuple[Value, ...] | None, tuple[str, ...]]:
    """Return what a case gave when it was recorded; None if that is not known for sure.

    Files of one name may hold this and that: then it is what most calls have read.
    """
    told: Counter[str] = Counter()
    for each in returned:
        if each.outputs is not None:
            told[each.outputs] += each.count
    if not told:
        return None, ()
    if len(told) > 1 and op != LOAD_OP:
        return None, (DISAGREEING,)
    most = max(told, key=lambda text: (told[text], text))
    return tuple(map(decode, json.loads(most))), () if len(told) == 1 else (ONE_OF_SEVERAL,)


def on_device(planned: Planned, device_kind: DeviceKind) -> Planned:
    """Return the same, to be executed on a kind of device."""
    return replace(planned, job=replace(planned.job, device_kind=device_kind))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The cases that were chosen, out of how many that were meant."""

    cases: tuple[Planned, ...]
    of: int


def cases_named(reader: TroveReader, asked: Asked, how: How, *, every: bool) -> Chosen:
    """Return the most called case that is meant, or every one; NotFound if there is none."""
    answers = select_recorded(reader, asked)
    if not every and len(answers) > 1:
        names = [answer.op for answer in answers]
        raise ambiguous(f"{asked.name!r} means {len(names)} ops", names, "name one, or add --all")
    found = [
        planned
        for answer in answers
        for planned in planned_cases(
            reader, answer.query if every else replace(answer.query, limit=1), how
        )
    ]
    return Chosen(tuple(found), sum(answer.cases for answer in answers))


def every_case(reader: TroveReader, asked: Asked, how: How) -> tuple[Planned, ...]:
    """Return all cases of a trove that are meant, of all ops; NotFound if there are none."""
    queries = (
        (query_of(reader, asked),)
        if asked.name is None
        else tuple(answer.query for answer in select(reader, asked))
    )
    found = tuple(
        planned
        for query in queries
        for planned in planned_cases(reader, replace(query, vectors=False), how)
    )
    if not found:
        raise NotFound("the trove holds no such case; list what there is with: optrove ops")
    return found


def cases_in_lines(path: Path, how: How, index: int | None) -> Chosen:
    """Return the call with this number of a file of op lines, or the distinct cases of all.

    BadTarget when there is no such file or call, BadData for a line that cannot be read.
    """
    found: dict[str, Planned] = {}
    count = 0
    for number, line in enumerate(_lines(path)):
        count += 1
        if index is None or number == index:
            planned = planned_line(line, how)
            found.setdefault(planned.case_id, planned)
    if not found:
        raise BadTarget(
            f"{str(path)!r} has {count:,} calls, none with index {index or 0}; count from 0"
            if count
            else f"there is not a single call in {str(path)!r}; name a file of --ops-jsonl"
        )
    return Chosen(tuple(found.values()), count)


def planned_line(line: OpLine, how: How) -> Planned:
    """Return the Job of a call as its line tells it."""
    case = case_of_line(line)
    raised = None if line.error is None else f"{line.error.type}: {line.error.message}"
    outputs = None
    if line.output is not None:
        outputs = () if line.output == Null() else (line.output,)
    job = Job(
        case=case,
        device_kind=DeviceKind.HOST,
        seed=how.seed,
        timeout_ns=timeout_ns(how),
        outputs=outputs,
    )
    return Planned(job, placement_hash(case), raised=raised)


def _lines(path: Path) -> Iterator[OpLine]:
    try:
        with path.open("rb") as stream:
            for line in read_op_lines(stream):
                if isinstance(line, BadLine):
                    raise BadData(line.faults).within(f"line {line.number}")
                yield line
    except OSError as error:
        raise BadTarget(
            f"{str(path)!r} cannot be read: {error}; name a file of op lines"
        ) from error

"""Find the cases that are to be executed: in a trove, or in a file of op lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optrove.codec.identity import placement_hash
from optrove.codec.lines import BadLine
from optrove.codec.oplines import read_op_lines
from optrove.errors import BadData, BadTarget, Fault, NotFound
from optrove.flows.naming import ambiguous
from optrove.flows.planning import Planned, planned_cases, timeout_ns
from optrove.flows.query import query_of, select, select_recorded
from optrove.interop.call_lines import case_of_line
from optrove.model.records import DeviceKind, Job
from optrove.model.values import Null

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.codec.oplines import OpLine
    from optrove.flows.planning import How
    from optrove.flows.query import Asked
    from optrove.store.reader import TroveReader


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
                    raise _bad(line)
                yield line
    except OSError as error:
        raise BadTarget(
            f"{str(path)!r} cannot be read: {error}; name a file of op lines"
        ) from error


def _bad(line: BadLine) -> BadData:
    faults = [Fault(f"line {line.number}: {each.path}", each.problem) for each in line.faults]
    return BadData(tuple(faults))

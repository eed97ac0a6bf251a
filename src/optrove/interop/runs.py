"""Make the Runs of an import: one for each source, model and machine that a file tells of.

The id of such a Run is made from all that is said about it, and from nothing else: source, model,
machine, and every Case with its count. So the same content is the same Run, whichever file it came
in, wherever and whenever it is imported.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

from optrove.codec.canonical import fingerprint
from optrove.errors import BadData, Fault
from optrove.interop.contents import Contents
from optrove.interop.machines import environment_of, machine_data
from optrove.model.records import Accounting, Run, RunKind
from optrove.model.trove import Imported, ImportedCase, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.case import Case

EPOCH: Final = "1970-01-01T00:00:00.000000Z"
"""When an imported Run began, if its file does not say when it was written."""

UNKNOWN: Final = "unknown"
"""The source of what a file tells without saying where it comes from."""

_MODEL: Final = re.compile(r"\[HF_MODEL:(.+)\]\s*\Z")


@dataclass(frozen=True, slots=True)
class Source:
    """Where executions come from: what was run, with which model, on which machine."""

    name: str
    model: str | None
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True, slots=True)
class Execution:
    """How often a Case was executed by one source, and where the file says so."""

    case: Case
    source: Source
    count: int
    path: str


def model_of(source: str) -> str | None:
    """Return the model that a source names: ``path [HF_MODEL:name]``."""
    found = _MODEL.search(source)
    return None if found is None else found[1].strip()


def moment_of(text: object) -> str:
    """Return a time of a file as ISO 8601 in UTC; the epoch if it is none.

    Master files have local times without a zone; they are taken as UTC, so that they are the same
    wherever they are read.
    """
    try:
        moment = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return EPOCH
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(len(EPOCH))
    except OverflowError:
        return EPOCH


def runs_of(executions: Iterable[Execution], started_at: str) -> tuple[tuple[Imported, ...], int]:
    """Return the Runs of these executions, and how many different Cases they have."""
    by_source: defaultdict[Source, dict[str, ImportedCase]] = defaultdict(dict)
    contents = Contents()
    ids: set[str] = set()
    for execution in executions:
        case_id = _hash(execution, contents)
        ids.add(case_id)
        cases = by_source[execution.source]
        known = cases.get(case_id)
        count, path = (0, execution.path) if known is None else (known.count, known.path)
        cases[case_id] = ImportedCase(execution.case, count + execution.count, path)
    imported = [_imported(source, cases, started_at) for source, cases in by_source.items()]
    return tuple(sorted(imported, key=lambda each: (each.run.source, each.run.id))), len(ids)


def _hash(execution: Execution, contents: Contents) -> str:
    try:
        return contents.case_id(execution.case)
    except BadData as error:
        faults = [Fault(f"{execution.path}: {each.path}", each.problem) for each in error.faults]
        raise BadData(tuple(faults)) from error


def _imported(source: Source, cases: dict[str, ImportedCase], started_at: str) -> Imported:
    said = {
        "source": source.name,
        "model": source.model,
        "machine": machine_data(source.machine),
        "cases": sorted([case_id, each.count] for case_id, each in cases.items()),
    }
    executed = sum(each.count for each in cases.values())
    new = sum(each.count > 0 for each in cases.values())
    run = Run(
        id=fingerprint(said),
        kind=RunKind.IMPORT,
        source=source.name,
        environment=environment_of(source.machine),
        started_at=started_at,
        finished_at=started_at,
        model=source.model,
        accounting=Accounting(observed=executed, stored=new, deduplicated=executed - new),
    )
    return Imported(run, source.machine, tuple(cases.values()))

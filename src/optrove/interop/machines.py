"""Sources, machines and executions in files of other programs, and the Runs of an import.

The id of an imported Run is the hash of everything that the file says about it: source, model,
machine, and every Case with its count. So the same content is the same Run, whichever file it was
in, and wherever and whenever it is imported.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

from optrove.errors import BadData
from optrove.model.records import (
    Accounting,
    DeviceKind,
    DeviceParameters,
    Environment,
    Run,
    RunKind,
)
from optrove.model.trove import Imported, ImportedCase, Machine
from optrove.serializer.hashes import CanonicalTexts, fingerprint
from optrove.serializer.text import found, write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.interop.fidelity import FidelityCounter
    from optrove.model.case import Case
    from optrove.model.records import Facts
    from optrove.model.trove import ExecutionRow, Fidelity
    from optrove.serializer.text import Json

Content: TypeAlias = "tuple[tuple[Imported, ...], Fidelity]"
"""The Runs of a file, and how well it was understood."""

BOARDS: Final = {
    "n150": "n150",
    "n300": "n300",
    "t3k": "t3k",
    "tt-galaxy-wh": "galaxy",
    "galaxy": "galaxy",
    "p100": "p100",
    "p100a": "p100",
    "p150": "p150",
    "p150a": "p150",
    "p150b": "p150",
    "p300": "p300",
    "p300a": "p300",
    "p300c": "p300",
    "tt-galaxy-bh": "bh-galaxy",
    "bh-galaxy": "bh-galaxy",
}
"""Our names of boards by the ``device_series`` of master files, in lower case."""

ARCHITECTURES: Final = {"wormhole": "wormhole_b0", "blackhole": "blackhole"}
"""Names of architectures by the ``board_type`` of master files, in lower case."""

_T3K_CARDS: Final = 4


def board_of(machine: Machine) -> str | None:
    """Return our name of the board; None if it is unknown. Four N300 cards are a T3K."""
    board = BOARDS.get((machine.device_series or "").lower())
    if board == "n300" and machine.card_count == _T3K_CARDS:
        return "t3k"
    return board


def environment_of(machine: Machine, git_sha: str | None = None) -> Environment:
    """Return the Environment of an import: the machine, and the commit of tt-metal.

    Facts that no file records are "unknown", so that the same file gives the same Run everywhere.
    """
    mesh_shape = machine.mesh_device_shape
    return Environment(
        optrove_version="unknown",
        python_version="unknown",
        platform="unknown",
        git_sha=git_sha,
        device_kind=DeviceKind.HARDWARE,
        board=board_of(machine),
        arch=ARCHITECTURES.get((machine.board_type or "").lower()),
        device_series=machine.device_series,
        card_count=machine.card_count,
        device_count=machine.device_count,
        device=None if mesh_shape is None else DeviceParameters(mesh_shape=mesh_shape),
    )


def read_machine(data: Json, notes: FidelityCounter) -> Machine:
    """Return the machine of ``machine_info``; other data than one object is noted."""
    if isinstance(data, list) and len(data) == 1:
        (data,) = data
    if isinstance(data, dict):
        return Machine.of(data)
    if data is not None:
        notes.note(f"not kept: machine_info that is {found(data)}")
    return Machine()


EPOCH: Final = "1970-01-01T00:00:00.000000Z"
"""The start of an imported Run whose file has no time."""

UNKNOWN: Final = "unknown"
"""The source of executions for which the file names none."""

_MODEL: Final = re.compile(r"\[HF_MODEL:(.+)\]\s*\Z")
_FRACTION: Final = re.compile(r"\.(\d+)")
_COUNT_LIMIT: Final = 2**53


@dataclass(frozen=True, slots=True)
class Exported:
    """How many cases and calls were written, and what of them the format cannot express."""

    cases: int
    calls: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """The source of executions: the program, its model, the machine, and its provenance.

    ``provenance`` is everything else that a file has about executions, such as ``trace_uid``.
    Executions with different provenance belong to different Runs.
    """

    name: str
    model: str | None
    machine: Machine = field(default_factory=Machine)
    provenance: Facts = ()


NOBODY: Final = Source(UNKNOWN, None)
"""The source of a configuration without executions."""


@dataclass(frozen=True, slots=True)
class SourceExecution:
    """How often one source executed a Case, and the path in the file.

    ``configuration`` as in ImportedCase.
    """

    case: Case
    source: Source
    count: int
    path: str
    configuration: str | None = None


def is_count(data: Json) -> TypeGuard[int]:
    """Return whether ``data`` is a number of executions that a trove can store."""
    return type(data) is int and 0 <= data < _COUNT_LIMIT


def model_of(source: str) -> str | None:
    """Return the model that a source names: ``path [HF_MODEL:name]``."""
    found = _MODEL.search(source)
    return None if found is None else found[1].strip()


def moment_of(text: object) -> str:
    """Return a time of a file as ISO 8601 in UTC; the epoch if it is not a time.

    Master files have local times without a zone; they are taken as UTC, so that they are the same
    wherever they are read.
    """
    try:
        moment = datetime.fromisoformat(
            _FRACTION.sub(_six_digits, str(text).replace("Z", "+00:00"))
        )
    except ValueError:
        return EPOCH
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(len(EPOCH))
    except OverflowError:
        return EPOCH


def _six_digits(fraction: re.Match[str]) -> str:
    # Python 3.10 reads fractions of exactly three or six digits only.
    return f".{fraction[1][:6]:0<6}"


def runs_of(
    executions: Iterable[SourceExecution], started_at: str, git_sha: str | None = None
) -> tuple[tuple[Imported, ...], int]:
    """Return the Runs of these executions, and how many different Cases they have."""
    by_source: defaultdict[Source, dict[tuple[str, str | None], ImportedCase]] = defaultdict(dict)
    texts = CanonicalTexts()
    ids: set[str] = set()
    for execution in executions:
        case_id = _case_id(execution, texts)
        ids.add(case_id)
        cases = by_source[execution.source]
        key = case_id, execution.configuration
        known = cases.get(key)
        count, path = (0, execution.path) if known is None else (known.count, known.path)
        cases[key] = ImportedCase(
            execution.case, count + execution.count, path, execution.configuration
        )
    imported = [
        _imported(source, cases, started_at, git_sha) for source, cases in by_source.items()
    ]
    return tuple(sorted(imported, key=lambda each: (each.run.source, each.run.id))), len(ids)


def _case_id(execution: SourceExecution, texts: CanonicalTexts) -> str:
    try:
        return texts.case_id(execution.case)
    except BadData as error:
        raise error.within(execution.path) from error


def _imported(
    source: Source,
    cases: dict[tuple[str, str | None], ImportedCase],
    started_at: str,
    git_sha: str | None,
) -> Imported:
    counts: Counter[str] = Counter()
    for (case_id, _), each in cases.items():
        counts[case_id] += each.count
    identity = {
        "source": source.name,
        "model": source.model,
        "machine": source.machine.data(),
        "cases": sorted([case_id, count] for case_id, count in counts.items()),
    }
    if source.provenance:
        identity["provenance"] = dict(source.provenance)
    executed = counts.total()
    new = sum(count > 0 for count in counts.values())
    run = Run(
        id=fingerprint(identity),
        kind=RunKind.IMPORT,
        source=source.name,
        environment=environment_of(source.machine, git_sha),
        started_at=started_at,
        finished_at=started_at,
        model=source.model,
        accounting=Accounting(observed=executed, stored=new, deduplicated=executed - new),
        provenance=source.provenance,
    )
    return Imported(run, source.machine, tuple(cases.values()))


def summed(rows: Iterable[ExecutionRow]) -> list[tuple[Source, int]]:
    """Return the number of executions by source, sorted by the facts of the source."""
    counts: Counter[Source] = Counter()
    for row in rows:
        counts[Source(row.source, row.model, row.machine, row.provenance)] += row.count
    return sorted(counts.items(), key=lambda item: _order(item[0]))


def _order(source: Source) -> tuple[str, str, str, Facts]:
    return source.name, source.model or "", write(source.machine.data()), source.provenance

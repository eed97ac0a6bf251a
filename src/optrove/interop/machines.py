"""Sources, machines and executions in files of other programs, and the Runs of an import.

The id of an imported Run is the hash of everything that the file says about it: source, model,
machine, and every Case with its count. So the same content is the same Run, whichever file it was
in, and wherever and whenever it is imported.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, Fault
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
    from collections.abc import Iterable, Iterator

    from optrove.interop.fidelity import FidelityCounter
    from optrove.model.case import Case
    from optrove.model.trove import ExecutionRow
    from optrove.serializer.text import Json


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
_NAMES: Final = tuple(field.name for field in fields(Machine))


def board_of(machine: Machine) -> str | None:
    """Return our name of the board; None if it is unknown. Four N300 cards are a T3K."""
    board = BOARDS.get((machine.device_series or "").lower())
    if board == "n300" and machine.card_count == _T3K_CARDS:
        return "t3k"
    return board


def environment_of(machine: Machine) -> Environment:
    """Return the Environment of an import: the machine, and no software.

    Facts that no file records are "unknown", so that the same file gives the same Run everywhere.
    """
    mesh_shape = machine.mesh_device_shape
    return Environment(
        optrove_version="unknown",
        python_version="unknown",
        platform="unknown",
        device_kind=DeviceKind.HARDWARE,
        board=board_of(machine),
        arch=ARCHITECTURES.get((machine.board_type or "").lower()),
        device_series=machine.device_series,
        card_count=machine.card_count,
        device_count=machine.device_count,
        device=None if mesh_shape is None else DeviceParameters(mesh_shape=mesh_shape),
    )


def machine_data(machine: Machine) -> dict[str, Json]:
    """Return a machine as a master file has it: without unknown facts."""
    facts = {name: getattr(machine, name) for name in _NAMES}
    return {
        name: list(item) if isinstance(item, tuple) else item
        for name, item in facts.items()
        if item is not None
    }


def read_machine(
    data: Json, path: str, faults: list[Fault], counter: FidelityCounter | None = None
) -> Machine:
    """Read ``machine_info``; unknown keys are noted with ``counter``, and faults without one."""
    if data is None:
        return Machine()
    if not isinstance(data, dict):
        faults.append(Fault(path, f"expected an object, found {found(data)}"))
        return Machine()
    for key in data.keys() - set(_NAMES):
        if counter is None:
            faults.append(Fault(path, f"unknown key {found(key)}; known: {', '.join(_NAMES)}"))
        else:
            counter.note(f"not kept: {key} of machine_info")
    return Machine(**dict(_facts(data, path, faults)))


def _facts(data: dict[str, Any], path: str, faults: list[Fault]) -> Iterator[tuple[str, Any]]:
    for name in ("board_type", "device_series"):
        yield name, _text(data.get(name), f"{path}.{name}", faults)
    for name in ("card_count", "device_count"):
        yield name, _count(data.get(name), f"{path}.{name}", faults)
    for name in ("mesh_device_shape", "device_ids"):
        yield name, _row(data.get(name), f"{path}.{name}", faults)


def _text(data: Json, path: str, faults: list[Fault]) -> str | None:
    """Read a name; a list of names, one per card, becomes one text."""
    if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
        data = ", ".join(dict.fromkeys(data))
    if data is None or (isinstance(data, str) and data.isprintable()):
        return data
    faults.append(Fault(path, f"expected a name, found {found(data)}"))
    return None


def _count(data: Json, path: str, faults: list[Fault]) -> int | None:
    if data is None or _is_count(data):
        return data  # type: ignore[no-any-return]  # checked just now
    faults.append(Fault(path, f"expected a number from 0 on, found {found(data)}"))
    return None


def _row(data: Json, path: str, faults: list[Fault]) -> tuple[int, ...] | None:
    if data is None:
        return None
    if isinstance(data, list) and all(_is_count(item) for item in data):
        return tuple(data)
    faults.append(Fault(path, f"expected a list of numbers from 0 on, found {found(data)}"))
    return None


_MOST: Final = 2**31


def _is_count(data: Json) -> bool:
    return type(data) is int and 0 <= data < _MOST


EPOCH: Final = "1970-01-01T00:00:00.000000Z"
"""The start of an imported Run whose file has no time."""

UNKNOWN: Final = "unknown"
"""The source of executions for which the file names none."""

_MODEL: Final = re.compile(r"\[HF_MODEL:(.+)\]\s*\Z")


@dataclass(frozen=True, slots=True)
class Exported:
    """How many cases and calls were written."""

    cases: int
    calls: int


@dataclass(frozen=True, slots=True)
class Source:
    """The source of executions: the program, its model, and the machine."""

    name: str
    model: str | None
    machine: Machine = field(default_factory=Machine)


@dataclass(frozen=True, slots=True)
class Execution:
    """How often one source executed a Case, and the path in the file."""

    case: Case
    source: Source
    count: int
    path: str


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
    texts = CanonicalTexts()
    ids: set[str] = set()
    for execution in executions:
        case_id = _case_id(execution, texts)
        ids.add(case_id)
        cases = by_source[execution.source]
        known = cases.get(case_id)
        count, path = (0, execution.path) if known is None else (known.count, known.path)
        cases[case_id] = ImportedCase(execution.case, count + execution.count, path)
    imported = [_imported(source, cases, started_at) for source, cases in by_source.items()]
    return tuple(sorted(imported, key=lambda each: (each.run.source, each.run.id))), len(ids)


def _case_id(execution: Execution, texts: CanonicalTexts) -> str:
    try:
        return texts.case_id(execution.case)
    except BadData as error:
        raise error.within(execution.path) from error


def _imported(source: Source, cases: dict[str, ImportedCase], started_at: str) -> Imported:
    identity = {
        "source": source.name,
        "model": source.model,
        "machine": machine_data(source.machine),
        "cases": sorted([case_id, each.count] for case_id, each in cases.items()),
    }
    executed = sum(each.count for each in cases.values())
    new = sum(each.count > 0 for each in cases.values())
    run = Run(
        id=fingerprint(identity),
        kind=RunKind.IMPORT,
        source=source.name,
        environment=environment_of(source.machine),
        started_at=started_at,
        finished_at=started_at,
        model=source.model,
        accounting=Accounting(observed=executed, stored=new, deduplicated=executed - new),
    )
    return Imported(run, source.machine, tuple(cases.values()))


def summed(rows: Iterable[ExecutionRow]) -> list[tuple[Source, int]]:
    """Return the number of executions by source, sorted by the facts of the source."""
    counts: Counter[Source] = Counter()
    for row in rows:
        counts[Source(row.source, row.model, row.machine)] += row.count
    return sorted(counts.items(), key=lambda item: _order(item[0]))


def _order(source: Source) -> tuple[str, str, str]:
    return source.name, source.model or "", write(machine_data(source.machine))

"""Recordings in the form in which they are stored, ready to be written at one go.

Whatever takes long (reading a journal, hashing, encoding) happens here, before a trove is locked.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from optrove.codec.canonical import fingerprint
from optrove.codec.described import Descriptions
from optrove.codec.records import record_to_builtins
from optrove.codec.text import write
from optrove.model.records import CallOutcome
from optrove.model.trove import Machine
from optrove.store.stored import (
    Counted,
    Grouped,
    Head,
    Prepared,
    StoredEnvironment,
    StoredRun,
    StoredTest,
)

if TYPE_CHECKING:
    from optrove.model.records import Environment, Run, TestResult
    from optrove.model.trove import DescribedCase, Imported


def storable(text: str) -> str:
    """Return ``text`` with visible escapes for what databases do not take as text."""
    if text.isprintable():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def storable_or_none(text: str | None) -> str | None:
    """Return the same of a text that may not be there."""
    return None if text is None else storable(text)


def prepare_run(run: Run, machine: Machine | None = None) -> StoredRun:
    """Return a Run as it is stored; the machine is that of its environment if none is given."""
    content = record_to_builtins(run)
    environment = content.pop("environment")
    known = machine_of(run.environment) if machine is None else machine
    return StoredRun(
        run_id=storable(run.id),
        kind=run.kind.value,
        source=storable(run.source),
        model=storable_or_none(run.model),
        environment=_prepare_environment(run.environment, write(environment)),
        started_at=storable(run.started_at),
        finished_at=storable_or_none(run.finished_at),
        machine=_machine_text(known),
        content=write(content),
    )


def machine_of(environment: Environment) -> Machine:
    """Return the machine of an environment, in the words of tt-metal's master files."""
    return Machine(
        board_type=environment.board,
        device_series=environment.device_series,
        card_count=environment.card_count,
        device_count=environment.device_count,
        mesh_device_shape=None if environment.device is None else environment.device.mesh_shape,
    )


def _machine_text(machine: Machine) -> str:
    told = {name: getattr(machine, name) for name in Machine.__slots__}
    return write({name: value for name, value in told.items() if value is not None})


def _prepare_environment(environment: Environment, content: str) -> StoredEnvironment:
    return StoredEnvironment(
        environment_id=hashlib.sha256(content.encode("ascii")).hexdigest(),
        device_kind=environment.device_kind.value,
        board=storable_or_none(environment.board),
        arch=storable_or_none(environment.arch),
        ttnn_version=storable_or_none(environment.ttnn_version),
        torch_version=storable_or_none(environment.torch_version),
        git_sha=storable_or_none(environment.git_sha),
        content=content,
    )


def prepare_test(result: TestResult) -> StoredTest:
    """Return the result of a test as it is stored."""
    content = write(record_to_builtins(result))
    return StoredTest(storable(result.test_id), result.outcome.value, content)


def prepare_imported(imported: Imported) -> Prepared:
    """Return what a file says about one source on one machine, as a Recording."""
    cases: dict[str, DescribedCase] = {}
    counts: dict[str, int] = {}
    descriptions = Descriptions()
    for each in imported.cases:
        described = descriptions.of(each.case)
        cases[described.case_id] = described
        counts[described.case_id] = counts.get(described.case_id, 0) + each.count
    returned = CallOutcome.RETURNED.value
    executions = [
        (Grouped(case_id, None, None, returned, outermost=True), Counted(count, None, None, None))
        for case_id, count in sorted(counts.items())
    ]
    run = prepare_run(imported.run, imported.machine)
    digest = fingerprint({"run": imported.run.id, "counts": counts})
    return Prepared(
        head=Head(run.run_id, 0, complete=True, calls=sum(counts.values()), size=0, digest=digest),
        run=run,
        executions=executions,
        described=lambda ids: [cases[case_id] for case_id in ids],
        scopes={},
        endings={},
    )

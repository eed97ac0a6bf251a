"""Recordings, Runs, attempts and sweeps in the form in which a trove stores them.

Everything that takes long (reading a journal, hashing, encoding) happens here, before a writer
locks the trove. Ids are the same in every trove; the keys of one trove are not used here.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from optrove.errors import BadData, Fault
from optrove.journal import format as layout
from optrove.journal.calls import pack_configurations
from optrove.model.records import CallOutcome
from optrove.model.trove import CallGroup, Machine, RunState, Session
from optrove.serializer.described import Descriptions
from optrove.serializer.hashes import fingerprint
from optrove.serializer.records import record_to_builtins
from optrove.serializer.text import write
from optrove.trove.database import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from optrove.journal.reader import CallKey, JournalReader, Tally
    from optrove.model.records import (
        Attempt,
        Environment,
        Measurement,
        Run,
        Scope,
        Sweep,
        TestResult,
    )
    from optrove.model.trove import CallBlock, DescribedCase, Imported, PlannedCase


class StoredEnvironment(NamedTuple):
    """A row of ``environments`` without its key."""

    environment_id: str
    device_kind: str
    board: str | None
    arch: str | None
    ttnn_version: str | None
    torch_version: str | None
    git_sha: str | None
    content: str


class StoredRun(NamedTuple):
    """A row of ``runs`` without its key, and with its environment."""

    run_id: str
    kind: str
    source: str
    model: str | None
    environment: StoredEnvironment
    started_at: str
    finished_at: str | None
    machine: str
    content: str

    @property
    def rank(self) -> tuple[bool, str, str, str]:
        """Decides between two accounts of the same Run: the greater one is kept."""
        return (
            self.finished_at is not None,
            self.content,
            self.environment.content,
            self.machine,
        )


class StoredAttempt(NamedTuple):
    """A row of ``attempts`` without keys, with the id of its Case and its measurements."""

    attempt_id: str
    case_id: str
    outcome: str
    device_kind: str
    board: str | None
    seed: str
    detail: str | None
    notes: str | None
    started_at: str | None
    duration_ns: int | None
    replayed_case_id: str | None
    content: str
    measurements: tuple[tuple[Any, ...], ...]
    """Name, value, threshold, passed and output of each."""


class RecordingHead(NamedTuple):
    """The identity of a Recording, and the facts that its rank consists of."""

    run_id: str
    process: int
    complete: bool
    calls: int
    size: int
    digest: str

    @property
    def rank(self) -> tuple[bool, int, int, str]:
        """Decides between two Recordings of the same process of a Run: the greater one is kept."""
        return self.complete, self.calls, self.size, self.digest


ScopeRow: TypeAlias = "tuple[str | None, ...]"
"""Test id, phase, module, mode and device of a row of ``scopes``."""


class CallEnding(NamedTuple):
    """The outputs of calls as JSON, or the error that they raised as a JSON string."""

    raised: bool
    content: str


@dataclass(frozen=True, slots=True)
class StoredSweep:
    """The request of a sweep as canonical JSON, and its plan; ``plan_id`` is the plan's hash."""

    plan_id: str
    content: str
    planned: tuple[PlannedCase, ...]

    @property
    def rank(self) -> tuple[str, str]:
        """Decides between two plans of the same Run: the greater one is kept."""
        return self.plan_id, self.content


Describe: TypeAlias = "Callable[[Sequence[str]], Iterable[DescribedCase]]"
"""Returns Cases by their ids."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole Recording; ``executions`` are sorted, and refer to scopes and endings by id.

    ``described`` returns Cases by their ids; a writer asks for those that a trove does not hold.
    ``tests`` are test id, outcome and content, ``config_calls`` are path, case id and calls.
    ``sessions`` tell why calls are missing.
    """

    head: RecordingHead
    run: StoredRun
    executions: Sequence[CallGroup]
    described: Describe
    scopes: Mapping[str, ScopeRow]
    endings: Mapping[str, CallEnding]
    tests: Sequence[tuple[str, str, str]] = ()
    dictionary: bytes | None = None
    blocks: Iterable[CallBlock] = ()
    config_calls: Sequence[tuple[str, str, int]] = ()
    sessions: Sequence[Session] = ()


def storable_or_none(text: str | None) -> str | None:
    """Return ``storable(text)``; None for None."""
    return None if text is None else storable(text)


def stored_run(run: Run, machine: Machine | None = None) -> StoredRun:
    """Return a Run as it is stored; ``machine`` defaults to that of its environment."""
    content = record_to_builtins(run)
    environment = content.pop("environment")
    facts = _machine_of(run.environment) if machine is None else machine
    return StoredRun(
        run_id=storable(run.id),
        kind=run.kind.value,
        source=storable(run.source),
        model=storable_or_none(run.model),
        environment=_stored_environment(run.environment, write(environment)),
        started_at=storable(run.started_at),
        finished_at=storable_or_none(run.finished_at),
        machine=write(facts.data()),
        content=write(content),
    )


def _machine_of(environment: Environment) -> Machine:
    return Machine(
        board_type=environment.board,
        device_series=environment.device_series,
        card_count=environment.card_count,
        device_count=environment.device_count,
        mesh_device_shape=None if environment.device is None else environment.device.mesh_shape,
    )


def _stored_environment(environment: Environment, content: str) -> StoredEnvironment:
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


def stored_test(result: TestResult) -> tuple[str, str, str]:
    """Return test id, outcome and content of a TestResult as they are stored."""
    content = write(record_to_builtins(result))
    return storable(result.test_id), result.outcome.value, content


def stored_scope(scope: Scope) -> tuple[str, ScopeRow]:
    """Return the id and the row of a scope."""
    phase = scope.phase and scope.phase.value
    device = None if scope.device is None else write(record_to_builtins(scope.device))
    return scope_row(scope.test_id, phase, scope.module, scope.mode, device)


def scope_row(*texts: str | None) -> tuple[str, ScopeRow]:
    """Return the id and the row of a scope with these columns."""
    scope_id = hashlib.sha256(write(list(texts)).encode("ascii")).hexdigest()
    return scope_id, tuple(map(storable_or_none, texts))


def stored_ending(text: str, *, is_error: bool) -> tuple[str, CallEnding]:
    """Return the id and the stored form of an error's text or of the JSON of outputs."""
    content = write(text) if is_error else text
    ending_id = hashlib.sha256(f"{is_error:d}{content}".encode("ascii")).hexdigest()
    return ending_id, CallEnding(is_error, content)


def stored_attempt(attempt: Attempt) -> StoredAttempt:
    """Return an Attempt as it is stored; its id is the hash of its content."""
    content = record_to_builtins(attempt)
    return StoredAttempt(
        attempt_id=fingerprint(content),
        case_id=attempt.case_id,
        outcome=attempt.outcome.value,
        device_kind=attempt.device_kind.value,
        board=storable_or_none(attempt.board),
        seed=str(attempt.seed),
        detail=storable_or_none(attempt.detail),
        notes=storable_or_none("\n".join(attempt.notes) or None),
        started_at=storable_or_none(attempt.started_at),
        duration_ns=attempt.duration_ns,
        replayed_case_id=storable_or_none(attempt.replayed_case_id),
        content=write(content),
        measurements=tuple(map(_stored_measurement, attempt.measurements)),
    )


def _stored_measurement(measured: Measurement) -> tuple[Any, ...]:
    value, threshold = measured.value, measured.threshold
    return (
        storable(measured.name),
        # SQLite has no NaN. The content of the Attempt keeps it.
        None if math.isnan(value) else value,
        None if threshold is None or math.isnan(threshold) else threshold,
        measured.passed,
        measured.output,
    )


def stored_sweep(sweep: Sweep, planned: Iterable[PlannedCase]) -> StoredSweep:
    """Return a sweep and its plan as they are stored."""
    plan = tuple(
        replace(
            each,
            board=storable_or_none(each.board),
            suite=storable_or_none(each.suite),
        )
        for each in planned
    )
    rows = [[each.case_id, each.suite, each.device_kind.value, each.board] for each in plan]
    return StoredSweep(fingerprint(rows), write(record_to_builtins(sweep)), plan)


def imported_recording(imported: Imported) -> Recording:
    """Return the Recording of one source on one machine that a file was read for."""
    cases: dict[str, DescribedCase] = {}
    counts: Counter[str] = Counter()
    ids: list[str] = []
    descriptions = Descriptions()
    for each in imported.cases:
        described = descriptions.of(each.case)
        cases[described.case_id] = described
        counts[described.case_id] += each.count
        ids.append(described.case_id)
    returned = CallOutcome.RETURNED.value
    run = stored_run(imported.run, imported.machine)
    written = [
        (described_id, each.count, each.configuration)
        for described_id, each in zip(ids, imported.cases, strict=True)
        if each.configuration is not None
    ]
    dictionary = pack_configurations(written) if written else None
    digest = fingerprint({"run": imported.run.id, "counts": dict(counts)})
    return Recording(
        head=RecordingHead(
            run.run_id,
            0,
            complete=True,
            calls=sum(counts.values()),
            size=len(dictionary or b""),
            digest=digest,
        ),
        run=run,
        executions=[
            CallGroup(case_id, None, None, returned, outermost=True, calls=calls)
            for case_id, calls in sorted(counts.items())
        ],
        described=lambda wanted: [cases[case_id] for case_id in wanted],
        scopes={},
        endings={},
        dictionary=dictionary,
    )


def journal_recording(journal: JournalReader) -> Recording:
    """Return the Recording of a journal, without Cases whose calls had not begun.

    BadData when the journal does not name its run.
    """
    if journal.run is None:
        problem = f"the journal {journal.path} does not name its run; was it cut off?"
        raise BadData((Fault("$", problem),))
    tallies = {key: tally for key, tally in journal.tallies.items() if layout.has_case(key[0])}
    called = {layout.number_of(word) for word, *_ in tallies}
    cases = {number: case_id for number, case_id in journal.case_ids().items() if number in called}
    scopes = {number: stored_scope(scope) for number, scope in journal.scopes()}
    endings = {
        (is_error, number): stored_ending(text, is_error=is_error)
        for number, is_error, text in journal.endings()
    }
    others = {number for family in journal.families() for number in family.others}
    executions = summed(_call_groups(tallies, cases, scopes, endings, others))
    used = {name for each in executions for name in (each.scope_id, each.ending_id)}
    run = stored_run(journal.run)
    return Recording(
        head=RecordingHead(
            run_id=run.run_id,
            process=journal.process,
            complete=journal.complete,
            calls=journal.calls,
            size=journal.size,
            digest=journal.digest,
        ),
        run=run,
        executions=executions,
        described=lambda ids: map(journal.case_named, ids),
        scopes={name: scope for name, scope in scopes.values() if name in used},
        endings={name: ending for name, ending in endings.values() if name in used},
        tests=[stored_test(result) for result in journal.tests],
        dictionary=journal.dictionary(),
        blocks=journal.blocks,
        config_calls=_config_calls(journal, cases),
        sessions=_sessions(journal, journal.run),
    )


def _sessions(journal: JournalReader, run: Run) -> tuple[Session, ...]:
    """Return that the disk was full for a process whose calls could not all be recorded."""
    if not journal.lost:
        return ()
    begun_at = run.started_at
    return (Session(begun_at, f"journal {journal.process}", begun_at, RunState.DISK_FULL),)


def _call_groups(
    tallies: Mapping[CallKey, Tally],
    cases: Mapping[int, str],
    scopes: Mapping[int, tuple[str, ScopeRow]],
    endings: Mapping[tuple[bool, int], tuple[str, CallEnding]],
    others: Container[int],
) -> Iterator[CallGroup]:
    """Yield the calls of a journal in groups, with ids in place of the journal's numbers.

    ``others`` are cases that count as another one: their outputs are not the outputs of that case.
    """
    for (word, scope, ending, outcome), tally in tallies.items():
        number, raised = layout.number_of(word), outcome == layout.RAISED
        known = ending and (raised or number not in others)
        yield CallGroup(
            cases[number],
            scopes[scope][0] if scope else None,
            endings[raised, ending][0] if known else None,
            layout.OUTCOMES[outcome].value,
            layout.depth_of(word) == 0,
            tally.calls,
            tally.total_ns,
            # Calls that have not ended took no time yet.
            tally.shortest_ns if outcome else None,
            tally.longest_ns if outcome else None,
        )


def _config_calls(journal: JournalReader, cases: Mapping[int, str]) -> list[tuple[str, str, int]]:
    # A journal may give two numbers to one case.
    counted: Counter[tuple[str, str]] = Counter()
    for path, number, calls in journal.config_calls():
        counted[storable(path), cases[number]] += calls
    return [(path, case_id, calls) for (path, case_id), calls in sorted(counted.items())]


def summed(executions: Iterable[CallGroup]) -> list[CallGroup]:
    """Return executions in their order; those that agree in all but counts become one."""
    found: dict[tuple[Any, ...], CallGroup] = {}
    for each in executions:
        key = (each.case_id, each.scope_id or "", each.ending_id or "", *each[3:5])
        before = found.get(key)
        if before is not None:
            each = before._replace(  # noqa: PLW2901 - the sum of both
                calls=before.calls + each.calls,
                total_ns=_of_both(sum, before.total_ns, each.total_ns),
                shortest_ns=_of_both(min, before.shortest_ns, each.shortest_ns),
                longest_ns=_of_both(max, before.longest_ns, each.longest_ns),
            )
        found[key] = each
    return [found[key] for key in sorted(found)]


def _of_both(choose: Callable[..., int], one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None

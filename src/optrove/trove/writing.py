"""Write recordings, attempts and sweeps within the caller's transaction.

Only one process writes at a time, so a writer may number what it adds by itself.

Whatever takes long (reading a journal, hashing, encoding) happens here, before a trove is locked.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from sqlalchemy import ARRAY, any_, bindparam, delete, func, insert, literal, select, true, update
from sqlalchemy import case as sql_case
from sqlalchemy.dialects import sqlite

from optrove.errors import BadData, Fault
from optrove.journal.format import device_data
from optrove.model.records import CallOutcome
from optrove.model.trove import Added, Machine, Removed
from optrove.serializer.described import Descriptions
from optrove.serializer.hashes import fingerprint
from optrove.serializer.records import record_to_builtins
from optrove.serializer.text import write
from optrove.trove import schema
from optrove.trove.database import copy_rows
from optrove.trove.reader import batches
from optrove.trove.schema import CASES, EXECUTIONS, OP_USAGE, RECORDINGS, USAGE
from optrove.trove.stored import (
    Counted,
    Grouped,
    Head,
    Prepared,
    StoredConfigCalls,
    StoredEnding,
    StoredEnvironment,
    StoredPlanned,
    StoredRun,
    StoredScope,
    StoredSweep,
    StoredTest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Dialect, Subquery, Table, Update
    from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
    from sqlalchemy.dialects.sqlite import Insert as SqliteInsert

    from optrove.journal.content import JournalContent
    from optrove.model.records import (
        Attempt,
        Environment,
        Measurement,
        Run,
        Scope,
        Sweep,
        TestResult,
    )
    from optrove.model.trove import CallGroup, DescribedCase, Imported, PlannedCase
    from optrove.trove.stored import Describe


T = TypeVar("T")

_BATCH: Final = 5_000
# SQLite before 3.32 takes no more than 999 parameters. Few sizes, so that few texts are made.
_ASKED_AT_ONCE: Final = (1, 30, 900)
_IN_ARRAY: Final = 2_000


def insert_rows(connection: Connection, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows that are not there yet, each with all columns of the table in their order."""
    if connection.dialect.name == "postgresql":
        names = [column.name for column in table.columns]
        copy_rows(connection, table.name, names, rows)
        return
    sql = _insert_text(connection.dialect, table)
    for batch in batches(rows, _BATCH):
        connection.exec_driver_sql(sql, [tuple(row) for row in batch])


def insert_one(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """Insert a row that is not there yet, and return the key that it was given."""
    key = next_key(connection, table)
    connection.execute(insert(table).values(key=key, **values))
    return key


def insert_new(
    connection: Connection, column: Column[Any], rows: Mapping[str, Sequence[Any]]
) -> dict[str, int]:
    """Insert those rows that are not there yet, and return the keys of all, by their ids.

    ``column`` has the ids. The rows have all columns in their order but for the first, the key.
    """
    keys = keys_of(connection, column, rows)
    missing = sorted(rows.keys() - keys.keys())
    first = next_key(connection, column.table) if missing else 0
    given = {name: key for key, name in enumerate(missing, first)}
    insert_rows(connection, column.table, ((key, *rows[name]) for name, key in given.items()))
    return {**keys, **given}


def next_key(connection: Connection, table: Table) -> int:
    """Return a key that no row of the table has, nor any greater one."""
    greatest = connection.execute(select(func.max(table.c.key))).scalar_one()
    return 1 if greatest is None else int(greatest) + 1


def keys_of(connection: Connection, column: Column[Any], ids: Iterable[str]) -> dict[str, int]:
    """Return the keys of those rows that are there, by the id that ``column`` has."""
    found: dict[str, int] = {}
    wanted = sorted(set(ids))
    if connection.dialect.name == "postgresql":
        lookup = select(column, column.table.c.key)
        for batch in batches(wanted, _IN_ARRAY):
            rows = connection.execute(lookup.where(among(connection, column, batch)))
            found.update((name, key) for name, key in rows)
        return found
    for batch in batches(wanted, _ASKED_AT_ONCE[-1]):
        size = next(size for size in _ASKED_AT_ONCE if size >= len(batch))
        asked = (*batch, *batch[-1:] * (size - len(batch)))
        sql = _lookup_text(connection.dialect, column, size)
        found.update(connection.exec_driver_sql(sql, asked).all())
    return found


def among(
    connection: Connection, column: Column[Any], values: Sequence[Any]
) -> ColumnElement[bool]:
    """Return the condition that ``column`` has one of some values; SQLite takes 900 of them.

    PostgreSQL gets them as an array: written out, they keep its driver busy for milliseconds.
    """
    if connection.dialect.name == "postgresql":
        return column == any_(literal(list(values), ARRAY(column.type)))
    return column.in_(values)


def insert_into(connection: Connection, table: Table) -> SqliteInsert | PostgresInsert:
    """Return an INSERT that can say what to do about a conflict."""
    if connection.dialect.name == "postgresql":
        # Takes long to import, and most troves are of SQLite.
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    return sqlite.insert(table)


@lru_cache(maxsize=64)
def _insert_text(dialect: Dialect, table: Table) -> str:
    return str(insert(table).compile(dialect=dialect))


@lru_cache(maxsize=64)
def _lookup_text(dialect: Dialect, column: Column[Any], size: int) -> str:
    asked = [bindparam(f"id{place}", type_=column.type) for place in range(size)]
    lookup = select(column, column.table.c.key).where(column.in_(asked))
    return str(lookup.compile(dialect=dialect))


_CALLS = EXECUTIONS.c.calls
_OUTERMOST_CALLS = sql_case((EXECUTIONS.c.outermost, EXECUTIONS.c.calls), else_=0)


def count_calls(connection: Connection, run_key: int, recording_key: int) -> None:
    """Count the calls of a Recording, which has just been written."""
    _count(connection, run_key, recording_key, 1)
    refresh_op_usage(connection, run_key)


def take_back_calls(connection: Connection, run_key: int, recording_key: int) -> None:
    """Take back the calls of a Recording, which is about to be removed."""
    _count(connection, run_key, recording_key, -1)
    others = (
        select(EXECUTIONS.c.case_key)
        .join(RECORDINGS)
        .where(RECORDINGS.c.run_key == run_key, RECORDINGS.c.key != recording_key)
        .where(EXECUTIONS.c.case_key == USAGE.c.case_key)
    )
    connection.execute(delete(USAGE).where(USAGE.c.run_key == run_key, ~others.exists()))


def refresh_op_usage(connection: Connection, run_key: int) -> None:
    """Sum up by operation how often a Run has called each Case."""
    connection.execute(delete(OP_USAGE).where(OP_USAGE.c.run_key == run_key))
    sums = (
        select(
            USAGE.c.run_key,
            CASES.c.op,
            func.count(),
            func.sum(sql_case((USAGE.c.outermost_calls > 0, 1), else_=0)),
            func.sum(USAGE.c.calls),
            func.sum(USAGE.c.outermost_calls),
        )
        .join(CASES)
        .where(USAGE.c.run_key == run_key)
        .group_by(USAGE.c.run_key, CASES.c.op)
    )
    columns = [column.name for column in OP_USAGE.columns]
    connection.execute(insert(OP_USAGE).from_select(columns, sums))


def _count(connection: Connection, run_key: int, recording_key: int, sign: int) -> None:
    sums = (
        select(
            EXECUTIONS.c.case_key,
            (sign * func.sum(_CALLS)).label("calls"),
            (sign * func.sum(_OUTERMOST_CALLS)).label("outermost_calls"),
        )
        .where(EXECUTIONS.c.recording_key == recording_key)
        .group_by(EXECUTIONS.c.case_key)
        .subquery()
    )
    new = insert_into(connection, USAGE)
    added = new.from_select(
        [column.name for column in USAGE.columns],
        # SQLite takes what follows for part of a join, unless there is a condition before it.
        select(literal(run_key), sums).where(true()),
    )
    connection.execute(
        added.on_conflict_do_update(
            index_elements=[USAGE.c.run_key, USAGE.c.case_key],
            set_={
                "calls": USAGE.c.calls + new.excluded.calls,
                "outermost_calls": USAGE.c.outermost_calls + new.excluded.outermost_calls,
            },
        )
    )
    if connection.dialect.name == "postgresql":
        connection.execute(_totals_joined(sums))
    else:
        connection.execute(_totals_looked_up(recording_key, sign))


def _totals_joined(sums: Subquery) -> Update:
    """Return the change of the totals by one join, which SQLite cannot do before 3.33."""
    return (
        update(CASES)
        .where(CASES.c.key == sums.c.case_key)
        .values(
            calls=CASES.c.calls + sums.c.calls,
            outermost_calls=CASES.c.outermost_calls + sums.c.outermost_calls,
        )
    )


def _totals_looked_up(recording_key: int, sign: int) -> Update:
    """Return the change of the totals Case by Case, which PostgreSQL does without the index."""
    of_recording = EXECUTIONS.c.recording_key == recording_key

    def of_case(calls: ColumnElement[int]) -> ColumnElement[int]:
        told = select(func.sum(calls)).where(of_recording, EXECUTIONS.c.case_key == CASES.c.key)
        return sign * told.scalar_subquery()

    return (
        update(CASES)
        .where(CASES.c.key.in_(select(EXECUTIONS.c.case_key).where(of_recording)))
        .values(
            calls=CASES.c.calls + of_case(_CALLS),
            outermost_calls=CASES.c.outermost_calls + of_case(_OUTERMOST_CALLS),
        )
    )


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


_NONE: Final = Counted(0, None, None, None)


def prepare_journal(content: JournalContent) -> Prepared:
    """Return a journal as a Recording.

    A case whose call had not begun was never executed, and is left out.
    """
    # The writer may be at work: what calls refer to was written before them, so they come first.
    blocks = list(content.blocks())
    groups = [group for group in content.groups() if group.case]
    called = {group.case for group in groups}
    cases = {number: case_id for number, case_id in content.case_ids() if number in called}
    scopes = {number: prepare_scope(scope) for number, scope in content.scopes()}
    endings = {
        (is_error, number): prepare_ending(text, is_error=is_error)
        for number, is_error, text in content.endings()
    }
    numbers = {case_id: number for number, case_id in cases.items()}
    run = prepare_run(content.run)
    executions = _executions(groups, _Numbers(cases, scopes, endings))
    used_scopes = {group.scope_id for group, _ in executions}
    used_endings = {group.ending_id for group, _ in executions}
    return Prepared(
        head=Head(
            run_id=run.run_id,
            process=content.process,
            complete=content.complete,
            calls=content.calls,
            size=content.size,
            digest=content.digest,
        ),
        run=run,
        executions=executions,
        described=lambda ids: (content.case(numbers[case_id]) for case_id in ids),
        scopes={each.scope_id: each for each in scopes.values() if each.scope_id in used_scopes},
        endings={
            each.ending_id: each for each in endings.values() if each.ending_id in used_endings
        },
        tests=[prepare_test(result) for result in content.tests],
        dictionary=content.dictionary(),
        blocks=blocks,
        config_calls=_config_calls(content, cases),
    )


def _config_calls(content: JournalContent, cases: Mapping[int, str]) -> list[StoredConfigCalls]:
    # A journal may give two numbers to one case.
    counted: Counter[tuple[str, str]] = Counter()
    for path, number, calls in content.config_calls():
        counted[storable(path), cases[number]] += calls
    return [StoredConfigCalls(*key, calls) for key, calls in sorted(counted.items())]


def prepare_scope(scope: Scope) -> StoredScope:
    """Return the row of a scope."""
    phase = scope.phase and scope.phase.value
    device = None if scope.device is None else write(device_data(scope.device))
    return scope_row(scope.test_id, phase, scope.module, scope.mode, device)


def scope_row(*texts: str | None) -> StoredScope:
    """Return the row of a scope with these columns, in the order of ``StoredScope``."""
    scope_id = hashlib.sha256(write(list(texts)).encode("ascii")).hexdigest()
    return StoredScope(scope_id, *map(storable_or_none, texts))


def prepare_ending(text: str, *, is_error: bool) -> StoredEnding:
    """Return the text of an error, or the JSON of outputs, as it is stored."""
    content = write(text) if is_error else text
    ending_id = hashlib.sha256(f"{is_error:d}{content}".encode("ascii")).hexdigest()
    return StoredEnding(ending_id, is_error, content)


class _Numbers:
    """What the numbers of a journal stand for."""

    def __init__(
        self,
        cases: Mapping[int, str],
        scopes: Mapping[int, StoredScope],
        endings: Mapping[tuple[bool, int], StoredEnding],
    ) -> None:
        self._cases = cases
        self._scopes = {0: None, **{number: each.scope_id for number, each in scopes.items()}}
        self._endings = {key: each.ending_id for key, each in endings.items()}

    def grouped(self, group: CallGroup) -> Grouped:
        """Return a group by ids that mean the same everywhere."""
        raised = group.outcome is CallOutcome.RAISED
        try:
            return Grouped(
                self._cases[group.case],
                self._scopes[group.scope],
                self._endings[raised, group.ending] if group.ending else None,
                group.outcome.value,
                group.outermost,
            )
        except KeyError as error:
            fault = Fault("$", f"a call refers to {error}, which the journal does not define")
            raise BadData((fault,)) from error


def _executions(groups: Iterable[CallGroup], numbers: _Numbers) -> list[tuple[Grouped, Counted]]:
    return summed(
        (
            numbers.grouped(group),
            Counted(group.count, group.total_ns, group.shortest_ns, group.longest_ns),
        )
        for group in groups
    )


def summed(groups: Iterable[tuple[Grouped, Counted]]) -> list[tuple[Grouped, Counted]]:
    """Return groups in their order, each once: there may be two numbers for one thing."""
    counted: dict[Grouped, Counted] = {}
    for key, group in groups:
        before = counted.get(key, _NONE)
        counted[key] = Counted(
            before.calls + group.calls,
            _of_both(sum, before.total_ns, group.total_ns),
            _of_both(min, before.shortest_ns, group.shortest_ns),
            _of_both(max, before.longest_ns, group.longest_ns),
        )
    return sorted(counted.items(), key=_order)


def _of_both(choose: Callable[..., int], one: int | None, other: int | None) -> int | None:
    known = [each for each in (one, other) if each is not None]
    return choose(known) if known else None


def _order(item: tuple[Grouped, Counted]) -> tuple[str, str, str, str, bool]:
    group = item[0]
    scope, ending = group.scope_id or "", group.ending_id or ""
    return group.case_id, scope, ending, group.outcome, group.outermost


_ATTEMPTS_AT_ONCE: Final = 900


class StoredMeasurement(NamedTuple):
    """A row of ``measurements`` without the Attempt and the place."""

    name: str
    value: float | None
    threshold: float | None
    passed: bool | None
    output: int | None


class StoredAttempt(NamedTuple):
    """A row of ``attempts`` without keys, with the Case and what was measured."""

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
    measurements: tuple[StoredMeasurement, ...]


def prepare_attempt(attempt: Attempt) -> StoredAttempt:
    """Return an Attempt as it is stored; its id is the hash of all that it says."""
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
        measurements=tuple(map(_measurement, attempt.measurements)),
    )


def write_attempts(connection: Connection, attempts: Iterable[tuple[int, StoredAttempt]]) -> int:
    """Add those Attempts that are not there yet, and return how many they are.

    Each comes with the key of its Run. BadData when the trove does not hold a Case that was
    attempted. In the Run of a sweep a Case has one Attempt, the earliest of all that were ever
    added.
    """
    by_id = {attempt.attempt_id: (run_key, attempt) for run_key, attempt in attempts}
    known = keys_of(connection, schema.ATTEMPTS.c.attempt_id, by_id)
    new = [by_id[name] for name in sorted(by_id.keys() - known.keys())]
    new = _first_of_sweeps(connection, new)
    cases = keys_of(connection, schema.CASES.c.case_id, (each.case_id for _, each in new))
    check_known(each.case_id for _, each in new if each.case_id not in cases)
    first = next_key(connection, schema.ATTEMPTS)
    rows = (
        # All but the measurements.
        (key, each.attempt_id, run_key, cases[each.case_id], *each[2:-1])
        for key, (run_key, each) in enumerate(new, first)
    )
    insert_rows(connection, schema.ATTEMPTS, rows)
    measured = (
        (key, place, *measurement)
        for key, (_, each) in enumerate(new, first)
        for place, measurement in enumerate(each.measurements)
    )
    insert_rows(connection, schema.MEASUREMENTS, measured)
    return len(new)


def _first_of_sweeps(
    connection: Connection, found: Sequence[tuple[int, StoredAttempt]]
) -> list[tuple[int, StoredAttempt]]:
    """Return those that are to be added: in the Run of a sweep, the first for each Case."""
    keys = sorted({run_key for run_key, _ in found})
    column = schema.SWEEPS.c.run_key
    sweeps: set[int] = set()
    for batch in batches(keys, _ATTEMPTS_AT_ONCE):
        chosen = among(connection, column, batch)
        sweeps.update(connection.execute(select(column).where(chosen)).scalars())
    kept: set[str] = set()
    for sweep in sorted(sweeps):
        own = [each for run_key, each in found if run_key == sweep]
        kept.update(_first(connection, sweep, own))
    return [
        (run_key, each)
        for run_key, each in found
        if run_key not in sweeps or each.attempt_id in kept
    ]


def _first(connection: Connection, run_key: int, found: Sequence[StoredAttempt]) -> list[str]:
    """Return the ids of those that are the first for their Cases; later ones are removed."""
    attempts, cases = schema.ATTEMPTS.c, schema.CASES.c
    first: dict[str, tuple[str, str]] = {}
    for each in found:
        rank = (each.started_at or "", each.attempt_id)
        first[each.case_id] = min(rank, first.get(each.case_id, rank))
    later = []
    for batch in batches(sorted(first), _ATTEMPTS_AT_ONCE):
        held = connection.execute(
            select(cases.case_id, attempts.started_at, attempts.attempt_id)
            .join_from(schema.ATTEMPTS, schema.CASES)
            .where(attempts.run_key == run_key, among(connection, cases.case_id, batch))
        )
        for case_id, started_at, attempt_id in held:
            if (started_at or "", attempt_id) < first[case_id]:
                del first[case_id]
            else:
                later.append(attempt_id)
    for batch in batches(later, _ATTEMPTS_AT_ONCE):
        chosen = among(connection, attempts.attempt_id, batch)
        connection.execute(delete(schema.ATTEMPTS).where(chosen))
    return sorted(attempt_id for _, attempt_id in first.values())


def check_known(unknown: Iterable[str]) -> None:
    """Raise BadData when there are Cases that a trove does not hold."""
    problem = "was attempted or planned, but is not in the trove; add it first"
    faults = [Fault(f"case {case_id}", problem) for case_id in dict.fromkeys(unknown)]
    if faults:
        raise BadData(tuple(faults))


def _measurement(measured: Measurement) -> StoredMeasurement:
    value, threshold = measured.value, measured.threshold
    return StoredMeasurement(
        storable(measured.name),
        # SQLite knows no NaN. The content of the Attempt keeps it.
        None if math.isnan(value) else value,
        None if threshold is None or math.isnan(threshold) else threshold,
        measured.passed,
        measured.output,
    )


def prepare_planned(planned: Iterable[PlannedCase]) -> list[StoredPlanned]:
    """Return a plan as it is stored."""
    return [
        StoredPlanned(
            each.case_id,
            storable_or_none(each.suite),
            each.device_kind.value,
            storable_or_none(each.board),
        )
        for each in planned
    ]


def prepare_sweep(sweep: Sweep, planned: Sequence[StoredPlanned]) -> StoredSweep:
    """Return a sweep as it is stored, with the hash of its plan."""
    return StoredSweep(fingerprint(list(map(list, planned))), write(record_to_builtins(sweep)))


def write_sweep(
    connection: Connection, run_key: int, sweep: StoredSweep, planned: Sequence[StoredPlanned]
) -> None:
    """Add a sweep and its plan, whose Cases are there; nothing when a greater one is there."""
    sweeps, plans = schema.SWEEPS, schema.PLANNED
    held = connection.execute(
        select(sweeps.c.plan_id, sweeps.c.content).where(sweeps.c.run_key == run_key)
    ).one_or_none()
    if held is not None:
        if StoredSweep(*held) >= sweep:
            return
        connection.execute(delete(plans).where(plans.c.run_key == run_key))
        connection.execute(delete(sweeps).where(sweeps.c.run_key == run_key))
    keys = keys_of(connection, schema.CASES.c.case_id, (each.case_id for each in planned))
    insert_rows(connection, sweeps, [(run_key, *sweep)])
    rows = ((run_key, place, keys[each.case_id], *each[1:]) for place, each in enumerate(planned))
    insert_rows(connection, plans, rows)


_AT_ONCE: Final = 900


@dataclass(slots=True)
class Loose:
    """The keys of what may have become unused, because something that used it is gone."""

    cases: set[int] = field(default_factory=set)
    scopes: set[int] = field(default_factory=set)
    endings: set[int] = field(default_factory=set)

    def add(self, other: Loose) -> None:
        """Take in what something else has left behind."""
        self.cases |= other.cases
        self.scopes |= other.scopes
        self.endings |= other.endings


def remove_recording(connection: Connection, recording_key: int) -> Loose:
    """Remove a Recording and take back its calls; return what it has used."""
    recordings, executions = schema.RECORDINGS, schema.EXECUTIONS.c
    run_key = connection.execute(
        select(recordings.c.run_key).where(recordings.c.key == recording_key)
    ).scalar_one()
    loose = Loose(
        cases=_used(connection, executions.case_key, recording_key),
        scopes=_used(connection, executions.scope_key, recording_key),
        endings=_used(connection, executions.ending_key, recording_key),
    )
    take_back_calls(connection, run_key, recording_key)
    connection.execute(delete(recordings).where(recordings.c.key == recording_key))
    return loose


def remove_unused(connection: Connection, loose: Loose) -> int:
    """Remove of these what nothing refers to any more; return how many Cases that were."""
    executions, usage, attempts = schema.EXECUTIONS.c, schema.USAGE.c, schema.ATTEMPTS.c
    _remove(connection, schema.SCOPES, loose.scopes, [executions.scope_key])
    _remove(connection, schema.ENDINGS, loose.endings, [executions.ending_key])
    planned, configured = schema.PLANNED.c.case_key, schema.CONFIG_CALLS.c.case_key
    users = [usage.case_key, attempts.case_key, planned, configured]
    return _remove(connection, schema.CASES, loose.cases, users)


def remove_environment(connection: Connection, environment_key: int) -> None:
    """Remove an environment in which no Run took place."""
    users = [schema.RUNS.c.environment_key]
    _remove(connection, schema.ENVIRONMENTS, [environment_key], users)


def remove_run(connection: Connection, run_id: str) -> Removed:
    """Remove a Run with all that nothing else refers to; nothing when there is no such Run."""
    runs, recordings, attempts = schema.RUNS, schema.RECORDINGS, schema.ATTEMPTS
    plans = schema.PLANNED
    run = connection.execute(
        select(runs.c.key, runs.c.environment_key).where(runs.c.run_id == run_id)
    ).one_or_none()
    if run is None:
        return Removed(0, 0, 0, 0)
    parts = connection.execute(
        select(recordings.c.key, recordings.c.calls).where(recordings.c.run_key == run.key)
    ).all()
    tried = select(attempts.c.case_key).where(attempts.c.run_key == run.key)
    planned = select(plans.c.case_key).where(plans.c.run_key == run.key)
    loose = Loose(cases=set(connection.execute(tried.union(planned)).scalars()))
    for part in parts:
        loose.add(remove_recording(connection, part.key))
    connection.execute(delete(attempts).where(attempts.c.run_key == run.key))
    connection.execute(delete(runs).where(runs.c.key == run.key))
    remove_environment(connection, run.environment_key)
    cases = remove_unused(connection, loose)
    return Removed(1, len(parts), sum(part.calls for part in parts), cases)


def _used(connection: Connection, column: Column[Any], recording_key: int) -> set[int]:
    statement = select(column).where(
        schema.EXECUTIONS.c.recording_key == recording_key, column.is_not(None)
    )
    return set(connection.execute(statement.distinct()).scalars())


def _remove(
    connection: Connection, table: Table, keys: Iterable[int], users: Iterable[Column[Any]]
) -> int:
    """Remove rows by their keys unless one of ``users`` refers to them; return how many."""
    unused = [~select(user).where(user == table.c.key).exists() for user in users]
    removed = 0
    for batch in batches(sorted(keys), _AT_ONCE):
        result = connection.execute(
            delete(table).where(among(connection, table.c.key, batch), *unused)
        )
        removed += result.rowcount
    return removed


_CASES_AT_ONCE: Final = 2_000
_RUNS_AT_ONCE: Final = 900


def write_recording(connection: Connection, prepared: Prepared) -> Added:
    """Add a Recording, or put it in the place of a lesser one; change nothing otherwise."""
    run_key, runs_new = write_run(connection, prepared.run)
    ids = {group.case_id for group, _ in prepared.executions}
    held = _held(connection, prepared)
    if held is not None and held[1].rank >= prepared.head.rank:
        return Added(runs=runs_new, cases_known=len(ids))
    loose = None if held is None else remove_recording(connection, held[0])
    known = keys_of(connection, schema.CASES.c.case_id, ids)
    missing = sorted(ids - known.keys())
    cases = {**known, **write_cases(connection, missing, prepared.described)}
    recording_key = _write_head(connection, run_key, prepared)
    _write_executions(connection, recording_key, prepared, cases)
    configured = (
        (recording_key, place, each.path, cases[each.case_id], each.calls)
        for place, each in enumerate(prepared.config_calls)
    )
    insert_rows(connection, schema.CONFIG_CALLS, configured)
    count_calls(connection, run_key, recording_key)
    if loose is not None:
        remove_unused(connection, loose)
    before = 0 if held is None else held[1].calls
    return Added(
        runs=runs_new,
        recordings=1,
        calls=prepared.head.calls - before,
        cases_new=len(missing),
        cases_known=len(known),
    )


def write_run(connection: Connection, run: StoredRun) -> tuple[int, int]:
    """Add a Run, or what more is known about it; return its key, and one if it is new."""
    keys, new = write_runs(connection, [run])
    return keys[run.run_id], new


def write_runs(connection: Connection, runs: Sequence[StoredRun]) -> tuple[dict[str, int], int]:
    """Add Runs, or what more is known about them; return their keys by id, and how many are new."""
    keys: dict[str, int] = {}
    missing: dict[str, StoredRun] = {}
    for batch in batches(runs, _RUNS_AT_ONCE):
        held = {row.run_id: row for row in _held_runs(connection, batch)}
        for run in batch:
            row = held.get(run.run_id)
            if row is None:
                missing[run.run_id] = run
                continue
            keys[run.run_id] = row.key
            rank = (row.finished_at is not None, row.content, row.environment, row.machine)
            if rank < run.rank:
                _replace_run(connection, row.key, row.environment_key, run)
    return {**keys, **_add_runs(connection, missing)}, len(missing)


def _held_runs(connection: Connection, runs: Sequence[StoredRun]) -> Iterable[Any]:
    table = schema.RUNS
    chosen = among(connection, table.c.run_id, [run.run_id for run in runs])
    environment = schema.ENVIRONMENTS.c.content.label("environment")
    return connection.execute(select(table, environment).join(schema.ENVIRONMENTS).where(chosen))


def _add_runs(connection: Connection, runs: Mapping[str, StoredRun]) -> dict[str, int]:
    if not runs:
        return {}
    environments = {run.environment.environment_id: run.environment for run in runs.values()}
    column = schema.ENVIRONMENTS.c.environment_id
    known = insert_new(connection, column, environments)
    keys = dict(zip(runs, count(next_key(connection, schema.RUNS)), strict=False))
    names = [column.name for column in schema.RUNS.columns]
    rows = []
    for run in runs.values():
        values = _run_values(run, known[run.environment.environment_id])
        rows.append([{**values, "key": keys[run.run_id]}[name] for name in names])
    insert_rows(connection, schema.RUNS, rows)
    return keys


def _replace_run(connection: Connection, key: int, environment_key: int, run: StoredRun) -> None:
    values = _run_values(run, _environment_key(connection, run.environment))
    connection.execute(update(schema.RUNS).where(schema.RUNS.c.key == key).values(values))
    if values["environment_key"] != environment_key:
        remove_environment(connection, environment_key)


def _run_values(run: StoredRun, environment_key: int) -> dict[str, Any]:
    values = run._asdict()
    del values["environment"]
    return {**values, "environment_key": environment_key}


def _environment_key(connection: Connection, environment: StoredEnvironment) -> int:
    name = environment.environment_id
    column = schema.ENVIRONMENTS.c.environment_id
    return insert_new(connection, column, {name: environment})[name]


def _held(connection: Connection, prepared: Prepared) -> tuple[int, Head] | None:
    """Return the Recording that is in the trove as the same part of the same Run."""
    table = schema.RECORDINGS
    columns = (table.c.complete, table.c.calls, table.c.size, table.c.digest)
    row = connection.execute(
        select(table.c.key, *columns)
        .join(schema.RUNS)
        .where(schema.RUNS.c.run_id == prepared.head.run_id)
        .where(table.c.process == prepared.head.process)
    ).one_or_none()
    if row is None:
        return None
    key, *facts = row
    return int(key), Head(prepared.head.run_id, prepared.head.process, *facts)


def _write_head(connection: Connection, run_key: int, prepared: Prepared) -> int:
    head = prepared.head
    values = {"run_key": run_key, "dictionary": prepared.dictionary, **head._asdict()}
    del values["run_id"]
    key = insert_one(connection, schema.RECORDINGS, values)
    blocks = ((key, block.first, block.count, block.content) for block in prepared.blocks)
    insert_rows(connection, schema.CALL_BLOCKS, blocks)
    tests = ((key, place, *test) for place, test in enumerate(prepared.tests))
    insert_rows(connection, schema.TESTS, tests)
    return key


def write_cases(
    connection: Connection, missing: Sequence[str], describe: Describe
) -> dict[str, int]:
    """Add Cases that are not there, and return their keys."""
    keys: dict[str, int] = {}
    for batch in batches(missing, _CASES_AT_ONCE):
        keys.update(_write_cases(connection, list(describe(batch))))
    return keys


def _write_cases(connection: Connection, cases: Sequence[DescribedCase]) -> dict[str, int]:
    first = next_key(connection, schema.CASES)
    keys = {case.case_id: key for key, case in enumerate(cases, first)}
    insert_rows(connection, schema.CASES, (_case_row(keys[case.case_id], case) for case in cases))
    contents = ((keys[case.case_id], case.content) for case in cases)
    insert_rows(connection, schema.CONTENTS, contents)
    insert_rows(connection, schema.CASE_TENSORS, _tensor_rows(cases, keys))
    return keys


def _case_row(key: int, case: DescribedCase) -> tuple[object, ...]:
    ids = (case.case_id, case.semantic_id, case.family_id)
    return (key, *ids, storable(case.op), case.replayable, 0, 0)


def _tensor_rows(
    cases: Iterable[DescribedCase], keys: Mapping[str, int]
) -> Iterator[tuple[object, ...]]:
    for case in cases:
        key = keys[case.case_id]
        for each in case.tensors:
            texts = (each.argument, each.shape, each.dtype, each.layout, each.memory, each.mesh)
            yield (key, each.place, *texts)


def _write_executions(
    connection: Connection, key: int, prepared: Prepared, cases: Mapping[str, int]
) -> None:
    scopes = insert_new(connection, schema.SCOPES.c.scope_id, prepared.scopes)
    endings = insert_new(connection, schema.ENDINGS.c.ending_id, prepared.endings)
    rows = (
        (
            *(key, place, cases[group.case_id]),
            *(_key(scopes, group.scope_id), _key(endings, group.ending_id)),
            *(group.outcome, group.outermost, *counted),
        )
        for place, (group, counted) in enumerate(prepared.executions)
    )
    insert_rows(connection, schema.EXECUTIONS, rows)


def _key(keys: Mapping[str, int], name: str | None) -> int | None:
    return None if name is None else keys[name]

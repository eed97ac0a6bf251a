"""Write a Recording to a trove, within the transaction of the caller."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select, update

from optrove.model.trove import Added
from optrove.store import schema
from optrove.store.counting import count_calls
from optrove.store.prepared import storable
from optrove.store.removing import remove_environment, remove_recording, remove_unused
from optrove.store.rows import (
    among,
    batches,
    insert_new,
    insert_one,
    insert_rows,
    keys_of,
    next_key,
)
from optrove.store.stored import Head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from optrove.model.trove import DescribedCase
    from optrove.store.stored import Describe, Prepared, StoredEnvironment, StoredRun

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

"""Open a trove for reading, and answer what is asked about it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import UnusableTrove
from optrove.model.hidden import BEYOND_VECTORS, VECTORS, is_hidden
from optrove.model.trove import (
    CallBlock,
    CaseRow,
    ConfigCalls,
    ModelRow,
    OpRow,
    RunRow,
    TensorFacts,
)
from optrove.store import answers, queries
from optrove.store.faults import foreign, newer, no_trove
from optrove.store.migrations import MIGRATIONS, Migrations
from optrove.store.selecting import Selection
from optrove.store.source import Source, open_sqlite
from optrove.store.stored import Head
from optrove.store.versions import version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType

    from optrove.model.counted import Counting
    from optrove.model.records import Attempt, Call, Query, Sweep, TestResult
    from optrove.model.trove import ExecutionRow, PlannedCase
    from optrove.store.place import Place

_AT_ONCE: Final = 500
"""How many ids are asked for at once: within what every SQLite takes as parameters."""
_CASES_AT_ONCE: Final = 100


def open_reader(place: Place, *, migrations: Migrations = MIGRATIONS) -> TroveReader:
    """Open a trove for reading; one of an older version is brought up to date first.

    NoTrove when there is none, NotATrove when something else is there, NewerTrove when a later
    optrove has written it, UnusableTrove when it cannot be read.
    """
    source = _open(place)
    try:
        version = _version(source, migrations)
    except BaseException:
        source.close()
        raise
    if version < migrations.current:
        source.close()
        _bring_up_to_date(place, version, migrations)
        source = _open(place)
    return TroveReader(source)


def _open(place: Place) -> Source:
    if place.path is not None:
        return open_sqlite(place, place.path)
    # SQLAlchemy takes long to import, and is needed for a server only.
    from optrove.store.postgres import PostgresSource

    return PostgresSource(place, str(place.url))


def _version(source: Source, migrations: Migrations) -> int:
    version, place = version_of(source), source.place
    if version is None:
        empty = foreign(place, "it is an empty database")
        raise no_trove(place) if place.path is None else empty
    if version > migrations.current:
        raise newer(place, version, migrations.current)
    return version


def _bring_up_to_date(place: Place, version: int, migrations: Migrations) -> None:
    from optrove.store.trove import open_trove

    try:
        open_trove(place, create=False, migrations=migrations).close()
    except UnusableTrove as error:
        raise UnusableTrove(
            f"the trove has version {version} and has to be brought to version "
            f"{migrations.current} before it can be read, which failed: {error}"
        ) from error


class TroveReader:
    """A trove that is open for reading.

    Every answer is of one state of the trove; the next answer may be of a later one.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def place(self) -> Place:
        """Where the trove is."""
        return self.source.place

    def __enter__(self) -> TroveReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the trove."""
        self.source.close()

    def ops(self, query: Query) -> tuple[OpRow, ...]:
        """Return the operations of the Cases that are meant, most calls first."""
        with self.source.snapshot():
            selection = self._selection(query)
            rows = list(self.source.rows(selection.ops(), selection.parameters))
            models: dict[str, list[str]] = {}
            for op, model in self.source.rows(selection.models(), selection.parameters):
                models.setdefault(op, []).append(model)
        found = [
            OpRow(
                op=op,
                cases=cases,
                calls=int(calls),
                models=tuple(sorted(models.get(op, ()))),
                replayable=int(replayable) / cases,
                hidden=is_hidden(op),
            )
            for op, cases, calls, replayable in rows
        ]
        return tuple(sorted(found, key=lambda row: (-row.calls, row.op)))

    def cases(self, query: Query) -> Iterator[CaseRow]:
        """Yield the Cases that are meant, most calls first, then by their ids."""
        with self.source.snapshot():
            selection = self._selection(query)
            found = self.source.rows(selection.keys(), selection.parameters)
            for batch in answers.batches(found, _CASES_AT_ONCE):
                rows = self._rows(queries.CASES, "keys", [key for key, _ in batch])
                by_key = {row[0]: row for row in rows}
                for key, calls in batch:
                    yield answers.case_row(by_key[key], int(calls))

    def cases_by_id(self, case_ids: Iterable[str]) -> Iterator[CaseRow]:
        """Yield those Cases that are there, in the order of the ids; ``calls`` are all of them."""
        with self.source.snapshot():
            for batch in answers.batches(case_ids, _CASES_AT_ONCE):
                rows = {row[1]: row for row in self._rows(queries.CASES_BY_ID, "ids", batch)}
                for case_id in batch:
                    if case_id in rows:
                        yield answers.case_row(rows[case_id], int(rows[case_id][0]))

    def count(self, query: Query) -> int:
        """Return how many Cases are meant, whatever the limit."""
        with self.source.snapshot():
            selection = self._selection(query)
            ((count,),) = self.source.rows(selection.count(), selection.parameters)
        return int(count)

    def executions(
        self, case_ids: Iterable[str], *, by_run: bool = False
    ) -> Iterator[ExecutionRow]:
        """Yield how Cases were executed, in the order of the ids; most calls first for each.

        With ``by_run`` they are summed up for each Run, and tell nothing of tests and outputs.
        """
        question = queries.EXECUTIONS_BY_RUN if by_run else queries.EXECUTIONS
        with self.source.snapshot():
            for batch in answers.batches(case_ids, _AT_ONCE):
                by_case: dict[str, list[ExecutionRow]] = {case_id: [] for case_id in batch}
                for row in self._rows(question, "ids", batch):
                    by_case[row[0]].append(answers.execution_row(row))
                for rows in by_case.values():
                    yield from rows

    def tensors(self, case_ids: Iterable[str]) -> dict[str, tuple[TensorFacts, ...]]:
        """Return the tensors of each Case that is there, in the order of its arguments."""
        found: dict[str, tuple[TensorFacts, ...]] = {}
        with self.source.snapshot():
            for batch in answers.batches(case_ids, _AT_ONCE):
                found.update(
                    (case_id, ()) for (case_id,) in self._rows(queries.KNOWN, "ids", batch)
                )
                for case_id, *facts in self._rows(queries.TENSORS, "ids", batch):
                    found[case_id] += (TensorFacts(*facts),)
        return found

    def config_calls(self, case_ids: Iterable[str]) -> dict[str, tuple[ConfigCalls, ...]]:
        """Return which entries of run configurations each Case was called with, if any."""
        found: dict[str, tuple[ConfigCalls, ...]] = {}
        with self.source.snapshot():
            for batch in answers.batches(case_ids, _AT_ONCE):
                for case_id, run_id, path, calls in self._rows(queries.CONFIG_CALLS, "ids", batch):
                    row = ConfigCalls(run_id, path, int(calls))
                    found[case_id] = (*found.get(case_id, ()), row)
        return found

    def runs(
        self, run_id: str | None = None, counting: Counting | None = None
    ) -> tuple[RunRow, ...]:
        """Return all Runs, or the one that is named; the newest first."""
        with self.source.snapshot():
            if run_id is None:
                rows = list(self._all(queries.RUNS))
                called = self._all(queries.OP_CALLS)
            else:
                rows = list(self._all(queries.RUN, run_id=run_id))
                called = self._all(queries.RUN_OP_CALLS, run_id=run_id)
            totals = answers.counted_calls(called, counting)
            complete = dict(self._all(queries.RUN_COMPLETE))
            planned = dict(self._all(queries.RUN_PLANNED))
            tests = answers.counted(self._all(queries.RUN_TESTS))
            attempts = answers.counted(self._all(queries.RUN_ATTEMPTS))
        return tuple(
            RunRow(
                run=answers.run_from(content, environment),
                machine=answers.machine_from(machine),
                cases=totals[key].amount.cases,
                calls=totals[key].amount.calls,
                tests=tests.get(key, ()),
                complete=bool(complete.get(key, 1))
                and planned.get(key, 0) <= sum(count for _, count in attempts.get(key, ())),
                attempts=attempts.get(key, ()),
                planned=planned.get(key),
                left=totals[key].left,
            )
            for key, _, content, environment, machine in rows
        )

    def model_names(self) -> tuple[str, ...]:
        """Return the names of all models, or sources where no model is known; sorted."""
        return tuple(sorted(model for model, *_ in self._all(queries.MODEL_RUNS)))

    def models(self, counting: Counting | None = None) -> tuple[ModelRow, ...]:
        """Return all models, or sources where no model is known; most calls first."""
        with self.source.snapshot():
            runs = list(self._all(queries.MODEL_RUNS))
            totals = answers.counted_calls(self._all(queries.MODEL_OP_CALLS), counting)
            boards: dict[str, list[str]] = {}
            for model, board in self._all(queries.MODEL_BOARDS):
                boards.setdefault(model, []).append(board)
        found = [
            ModelRow(
                model=model,
                runs=count,
                ops=totals[model].amount.ops,
                cases=totals[model].amount.cases,
                calls=totals[model].amount.calls,
                boards=tuple(sorted(boards.get(model, ()))),
                last_run_at=last,
                left=totals[model].left,
            )
            for model, count, last in runs
        ]
        return tuple(sorted(found, key=lambda row: (-row.calls, row.model)))

    def op_names(self) -> tuple[str, ...]:
        """Return the names of all operations, sorted."""
        vectors = self._all(queries.VECTOR_OPS, first=VECTORS, beyond=BEYOND_VECTORS)
        found = {name for (name,) in chain(self._all(queries.OP_NAMES), vectors)}
        return tuple(sorted(found))

    def find_case(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of the Cases that begin so, sorted."""
        return self._beginning(queries.FIND_CASE, prefix)

    def find_run(self, prefix: str) -> tuple[str, ...]:
        """Return the ids of the Runs that begin so, sorted."""
        return self._beginning(queries.FIND_RUN, prefix)

    def known(self, case_ids: Iterable[str]) -> set[str]:
        """Return those of the Cases that are there."""
        found: set[str] = set()
        for batch in answers.batches(case_ids, _AT_ONCE):
            found.update(case_id for (case_id,) in self._rows(queries.KNOWN, "ids", batch))
        return found

    def holds(self, run_id: str, process: int) -> tuple[int, int] | None:
        """Return size in bytes and calls of a process's journal that is there; None: it is not."""
        asked = {"run_id": run_id, "process": process}
        return next(((size, calls) for size, calls in self.source.rows(queries.HOLDS, asked)), None)

    def recordings(self) -> tuple[Head, ...]:
        """Return all Recordings, by the ids of their Runs."""
        return tuple(
            Head(run, process, bool(complete), *rest)
            for _, run, process, complete, *rest in self._all(queries.RECORDINGS)
        )

    def calls(self, run_id: str) -> Iterator[Call]:
        """Yield every call of a Run in its order, one process after another; imports have none."""
        from optrove.codec.call_blocks import calls_of

        with self.source.snapshot():
            for key, dictionary in list(self._all(queries.DICTIONARIES, run_id=run_id)):
                if dictionary is not None:
                    rows = self._all(queries.BLOCKS, key=key)
                    blocks = (CallBlock(first, calls, bytes(each)) for first, calls, each in rows)
                    yield from calls_of(bytes(dictionary), blocks, run_id)

    def tests(self, run_id: str) -> Iterator[TestResult]:
        """Yield the results of the tests of a Run, in their order."""
        for (content,) in self._all(queries.TESTS, run_id=run_id):
            yield answers.test_from(content)

    def attempts(self, run_id: str) -> Iterator[Attempt]:
        """Yield the Attempts of a Run, in their order."""
        for (content,) in self._all(queries.ATTEMPTS, run_id=run_id):
            yield answers.attempt_from(content)

    def sweep(self, run_id: str) -> Sweep | None:
        """Return what a sweep was asked for; None when the Run is none."""
        asked = self._all(queries.SWEEP, run_id=run_id)
        return next((answers.sweep_from(content) for content, _ in asked), None)

    def planned(self, run_id: str) -> Iterator[PlannedCase]:
        """Yield the plan of a sweep, in its order."""
        for row in self._all(queries.PLANNED, run_id=run_id):
            yield answers.planned_case(row)

    def attempted(self, run_id: str) -> frozenset[str]:
        """Return the ids of the Cases of which a Run has Attempts."""
        return frozenset(case_id for (case_id,) in self._all(queries.ATTEMPTED, run_id=run_id))

    def _selection(self, query: Query) -> Selection:
        if query.op is None or "*" not in query.op:
            return Selection(query)
        return Selection(query, [name for name in self.op_names() if _fits(name, query.op)])

    def _beginning(self, sql: str, prefix: str) -> tuple[str, ...]:
        asked = {"prefix": prefix, "length": len(prefix)}
        return tuple(found for (found,) in self.source.rows(sql, asked))

    def _all(self, sql: str, **parameters: object) -> Iterator[tuple[Any, ...]]:
        return self.source.rows(sql, parameters)

    def _rows(self, sql: str, name: str, items: Iterable[object]) -> Iterator[tuple[Any, ...]]:
        return self.source.rows(sql, {name: list(items)})


def _fits(name: str, pattern: str) -> bool:
    """Tell whether a pattern stands for a name; nothing but ``*`` has a meaning in it."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))

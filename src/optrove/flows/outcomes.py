"""Read from a trove what came of a run: of which one, of each case, and what has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.flows.runs_named import run_named
from optrove.model.records import Query, RunKind
from optrove.report.releases import Side, judged
from optrove.report.results import Result, RunResults, Waiting
from optrove.report.traced import Traced
from optrove.store.run_results import executed, waiting

if TYPE_CHECKING:
    from optrove.model.records import Run
    from optrove.store.reader import TroveReader

EXECUTED: Final = (RunKind.REPLAY, RunKind.SWEEP)
"""The kinds of runs in which cases are executed."""


def run_meant(reader: TroveReader, name: str | None) -> Run:
    """Return the run that begins so, or the newest in which cases were executed."""
    if name is not None:
        (row,) = reader.runs(run_named(reader, name.removeprefix("run:")))
        return row.run
    for row in reader.runs():
        if row.run.kind in EXECUTED:
            return row.run
    raise NotFound(
        f"{reader.place} has no run in which cases were executed; make one with optrove sweep, "
        f"optrove replay or optrove check-board"
    )


def results_of(reader: TroveReader, run: Run) -> RunResults:
    """Return what came of a run; NotFound when it has executed nothing and was not going to."""
    results: dict[str, Result] = {}
    attempts = 0
    with reader.source.snapshot():
        for row in executed(reader, run.id):
            attempts += 1
            # The last of several Attempts at a case counts.
            results[row.attempt.case_id] = Result(
                row.op, row.attempt, row.content, row.calls, row.suite
            )
        rest = tuple(
            Waiting(row.op, row.case_id, row.calls, row.suite) for row in waiting(reader, run.id)
        )
        sweep = reader.sweep(run.id)
    if not results and not rest:
        raise NotFound(
            f"nothing was executed in run {run.id[:12]}, which is of the kind {run.kind.value!r}; "
            f"name one that optrove sweep, replay or check-board has made, or see what was "
            f"called in it: optrove report {run.id[:12]}"
        )
    return RunResults(
        run=run,
        results=tuple(results.values()),
        waiting=rest,
        repeated=attempts - len(results),
        left_out=() if sweep is None else sweep.left_out,
        modules=() if sweep is None else sweep.modules,
    )


def side_of(found: RunResults) -> Side:
    """Return what came of a run, to be compared with another."""
    environment = found.run.environment
    cases = [judged(each.op, each.attempt, xfail=each.xfail) for each in found.results]
    return Side(
        name=f"run {found.run.id[:12]}",
        cases={each.case_id: each for each in cases},
        ttnn_version=environment.ttnn_version,
        board=environment.board,
        device=environment.device_kind.value,
    )


def traced_in(reader: TroveReader, run: Run) -> Traced:
    """Return what was called in a run, op by op, and what its tests said."""
    with reader.source.snapshot():
        (row,) = reader.runs(run.id)
        ops = reader.ops(Query(run_id=run.id, hidden_ops=True))
        tests = tuple(reader.tests(run.id))
    if not ops and not tests:
        raise NotFound(f"nothing was called in run {run.id[:12]}; list the runs with: optrove runs")
    return Traced(row, ops, tests)

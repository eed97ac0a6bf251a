"""Read the results of a run from a trove, and compare runs, troves or files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, NotComparable, NotFound
from optrove.model.records import Outcome, Query, RunKind
from optrove.model.values import Float, Int
from optrove.report.releases import Comparison, Judged, Side, compare, judged, side_title
from optrove.report.results import Result, RunResults, Waiting
from optrove.report.wording import plural
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode
from optrove.trove.browsing_runs import executed, waiting
from optrove.trove.opening import reading
from optrove.trove.place import is_sqlite_file
from optrove.trove.query import run_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.model.records import Run, TestResult
    from optrove.model.trove import OpRow, RunRow
    from optrove.serializer.text import Json
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader

    Tell = Callable[[Recovered], object]


@dataclass(frozen=True, slots=True)
class Traced:
    """A run in which models called ops: its totals, its ops with most calls first, its tests."""

    row: RunRow
    ops: tuple[OpRow, ...]
    tests: tuple[TestResult, ...] = ()


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


def compare_results(
    names: tuple[str, str], store: str | None, tell: Tell
) -> tuple[Side, Side, Comparison]:
    """Compare two results; NotComparable when there is no case that both have an answer for."""
    a, b = (_side(name, store, tell) for name in names)
    return a, b, compared(a, b)


def compared_with(
    name: str, found: RunResults, store: str | None, tell: Tell
) -> tuple[Side, Side, Comparison]:
    """Compare an earlier result, by whatever name, with that of a run; raises the same."""
    a, b = _side(name, store, tell), side_of(found)
    return a, b, compared(a, b)


def compared(a: Side, b: Side) -> Comparison:
    """Compare two results; NotComparable when there is no case that both have an answer for."""
    found = compare(a, b)
    if not found.compared:
        raise NotComparable(_nothing_compared(a, b, found))
    return found


def _nothing_compared(a: Side, b: Side, found: Comparison) -> str:
    both = f"{side_title(a)} and {side_title(b)}"
    if found.unlike:
        common = plural(len(found.unlike), "case")
        return (
            f"{both} have {common} in common, but ran them on other kinds of devices; compare runs "
            f"on the same kind (hw, mock, shadow, host): optrove runs lists them"
        )
    if found.not_run:
        common = plural(len(found.not_run), "case")
        return (
            f"{both} have {common} in common, none of which ran in both; compare other runs: "
            f"optrove runs lists them"
        )
    return f"{both} have no case in common; compare runs of the same cases: optrove runs lists them"


def _side(name: str, store: str | None, tell: Tell) -> Side:
    path = Path(name)
    if "://" in name or is_sqlite_file(path):
        with reading(name, tell) as reader:
            return side_of(results_of(reader, run_meant(reader, None)))
    if path.is_file():
        return _file_side(path)
    with reading(store, tell) as reader:
        return side_of(results_of(reader, run_meant(reader, name)))


def _file_side(path: Path) -> Side:
    """Return what ``check-board --json`` or ``replay --json`` has printed to a file."""
    try:
        data = read(path.read_bytes())
        cases = {each["case_id"]: _judged(each) for each in data["cases"]}
        version = data.get("ttnn_version")
    except (BadData, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadTarget(
            f"{str(path)!r} is not what optrove check-board --json prints: {error!r}; name such a "
            f"file, a trove, or a run"
        ) from error
    places = {(each.get("board"), each.get("device")) for each in data["cases"]}
    board, device = places.pop() if len(places) == 1 else (None, None)
    return Side(str(path), cases, version, board, device)


def _judged(data: dict[str, Any]) -> Judged:
    pcc = (each for each in data.get("measurements", ()) if each["name"] == "pcc")
    return Judged(
        op=str(data["op"]),
        case_id=str(data["case_id"]),
        outcome=Outcome(data["outcome"]),
        cause=data.get("cause"),
        outputs=write(data.get("outputs", [])),
        pcc=tuple((each["output"], _number(each["value"])) for each in pcc),
        took_ns=data.get("took_ns", data.get("duration_ns")),
        xfail=bool(data.get("xfail", False)),
        device=data.get("device"),
    )


def _number(data: Json) -> float:
    value = decode(data)
    if not isinstance(value, (Float, Int)):
        raise TypeError(f"{data!r} is no number")
    return float(value.value)

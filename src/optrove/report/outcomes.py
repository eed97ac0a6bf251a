"""Read the results of a run from a trove, and compare runs, troves or files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, NotComparable, NotFound
from optrove.model.records import Outcome, Query, RunKind
from optrove.model.values import Float, Int
from optrove.report.releases import (
    Judged,
    ReleaseComparison,
    ReleaseSide,
    compare,
    judged,
    side_title,
)
from optrove.report.results import RunResults
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode
from optrove.trove.opening import reading
from optrove.trove.place import is_sqlite_file
from optrove.trove.query import run_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.model.records import AttemptedCase, Run, TestResult
    from optrove.model.trove import OpRow, RunRow
    from optrove.serializer.text import Json
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader

    OnRecovered = Callable[[Recovered], object]


@dataclass(frozen=True, slots=True)
class TracedRun:
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
    """Return the results of a run; NotFound if it planned and executed nothing."""
    results: dict[str, AttemptedCase] = {}
    attempts = 0
    with reader.connection.snapshot():
        for each in reader.attempted_cases(run.id):
            attempts += 1
            # The last of several Attempts at a case counts.
            results[each.attempt.case_id] = each
        rest = tuple(reader.waiting(run.id))
        sweep = reader.sweep(run.id)
    if not results and not rest:
        raise NotFound(
            f"nothing was executed in run {run.id[:SHORT_ID]}, whose kind is {run.kind.value!r}; "
            f"name a run of optrove sweep, replay or check-board, or show the calls of this one: "
            f"optrove report {run.id[:SHORT_ID]}"
        )
    return RunResults(
        run=run,
        results=tuple(results.values()),
        waiting=rest,
        repeated=attempts - len(results),
        left_out=() if sweep is None else sweep.left_out,
        modules=() if sweep is None else sweep.modules,
    )


def side_of(found: RunResults) -> ReleaseSide:
    """Return the results of a run, for a comparison with another."""
    environment = found.run.environment
    cases = map(judged, found.results)
    return ReleaseSide(
        name=f"run {found.run.id[:SHORT_ID]}",
        cases={each.case_id: each for each in cases},
        ttnn_version=environment.ttnn_version,
        board=environment.board,
        device=environment.device_kind.value,
    )


def traced_in(reader: TroveReader, run: Run) -> TracedRun:
    """Return the calls of a run, op by op, and the results of its tests."""
    with reader.connection.snapshot():
        (row,) = reader.runs(run.id)
        ops = reader.ops(Query(run_id=run.id, data_movement=True))
        tests = tuple(reader.tests(run.id))
    if not ops and not tests:
        raise NotFound(
            f"nothing was called in run {run.id[:SHORT_ID]}; list the runs with: optrove runs"
        )
    return TracedRun(row, ops, tests)


def compare_results(
    names: tuple[str, str], store: str | None, on_recovered: OnRecovered
) -> tuple[ReleaseSide, ReleaseSide, ReleaseComparison]:
    """Compare two results; NotComparable when there is no case that both have an answer for."""
    a, b = (_side(name, store, on_recovered) for name in names)
    return a, b, compared(a, b)


def compared_with(
    name: str, found: RunResults, store: str | None, on_recovered: OnRecovered
) -> tuple[ReleaseSide, ReleaseSide, ReleaseComparison]:
    """Compare an earlier result, by whatever name, with that of a run; raises the same."""
    a, b = _side(name, store, on_recovered), side_of(found)
    return a, b, compared(a, b)


def compared(a: ReleaseSide, b: ReleaseSide) -> ReleaseComparison:
    """Compare two results; NotComparable when there is no case that both have an answer for."""
    found = compare(a, b)
    if not found.compared:
        raise NotComparable(_nothing_compared(a, b, found))
    return found


def _nothing_compared(a: ReleaseSide, b: ReleaseSide, found: ReleaseComparison) -> str:
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


def _side(name: str, store: str | None, on_recovered: OnRecovered) -> ReleaseSide:
    path = Path(name)
    if "://" in name or is_sqlite_file(path):
        with reading(name, on_recovered) as reader:
            return side_of(results_of(reader, run_meant(reader, None)))
    if path.is_file():
        return _file_side(path)
    with reading(store, on_recovered) as reader:
        return side_of(results_of(reader, run_meant(reader, name)))


def _file_side(path: Path) -> ReleaseSide:
    """Return the data of a file that ``check-board --json`` or ``replay --json`` has written."""
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
    return ReleaseSide(str(path), cases, version, board, device)


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
        raise TypeError(f"{data!r} is not a number")
    return float(value.value)

"""Compare the results of two runs: runs of a trove, troves, or files of ``--json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.decode import decode
from optrove.codec.text import read, write
from optrove.errors import BadData, BadTarget, NotComparable, NotFound
from optrove.flows.runs_named import run_named
from optrove.flows.stores import reading
from optrove.model.records import Outcome, Query, RunKind
from optrove.model.values import Float, Int
from optrove.report.releases import Comparison, Judged, Side, compare, judged
from optrove.store.place import is_sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.codec.text import Json
    from optrove.flows.stores import Recovered
    from optrove.model.records import Run
    from optrove.store.reader import TroveReader

    Tell = Callable[[Recovered], object]

_EXECUTED: Final = (RunKind.REPLAY, RunKind.SWEEP)


def compare_results(
    names: tuple[str, str], store: str | None, tell: Tell
) -> tuple[Side, Side, Comparison]:
    """Compare two results; NotComparable when there is no case that both have an answer for."""
    a, b = (_side(name, store, tell) for name in names)
    found = compare(a, b)
    if not found.compared:
        raise NotComparable(
            f"{a.name} and {b.name} have no case in common that was run in both; run the same "
            f"cases with both releases, such as: optrove check-board n150"
        )
    return a, b, found


def _side(name: str, store: str | None, tell: Tell) -> Side:
    path = Path(name)
    if "://" in name or is_sqlite_file(path):
        with reading(name, tell) as reader:
            return _run_side(reader, _latest(reader, name))
    if path.is_file():
        return _file_side(path)
    with reading(store, tell) as reader:
        (row,) = reader.runs(run_named(reader, name.removeprefix("run:")))
        return _run_side(reader, row.run)


def _latest(reader: TroveReader, name: str) -> Run:
    """Return the newest run of a trove in which cases were executed."""
    for row in reader.runs():
        if row.run.kind in _EXECUTED:
            return row.run
    raise NotFound(f"{name} has no run in which cases were executed; make one: optrove check-board")


def _run_side(reader: TroveReader, run: Run) -> Side:
    # The last of several Attempts at a case counts.
    attempts = {attempt.case_id: attempt for attempt in reader.attempts(run.id)}
    if not attempts:
        raise NotFound(
            f"nothing was executed in run {run.id[:12]}; name one that optrove replay or "
            f"check-board has made"
        )
    every = Query(outermost_only=False, hidden_ops=True)
    ops = {row.case_id: row.op for row in reader.cases(every) if row.case_id in attempts}
    environment = run.environment
    return Side(
        name=f"run {run.id[:12]}",
        cases={each.case_id: judged(ops[each.case_id], each) for each in attempts.values()},
        ttnn_version=environment.ttnn_version,
        board=environment.board,
        device=environment.device_kind.value,
    )


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
    )


def _number(data: Json) -> float:
    value = decode(data)
    if not isinstance(value, (Float, Int)):
        raise TypeError(f"{data!r} is no number")
    return float(value.value)

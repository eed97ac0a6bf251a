"""Compare the results of two runs: runs of a trove, troves, or files of ``--json``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.codec.decode import decode
from optrove.codec.text import read, write
from optrove.errors import BadData, BadTarget, NotComparable
from optrove.flows.outcomes import results_of, run_meant, side_of
from optrove.flows.stores import reading
from optrove.model.records import Outcome
from optrove.model.values import Float, Int
from optrove.report.releases import Comparison, Judged, Side, compare, side_title
from optrove.report.tables import plural
from optrove.store.place import is_sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.codec.text import Json
    from optrove.flows.stores import Recovered
    from optrove.report.results import RunResults

    Tell = Callable[[Recovered], object]


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

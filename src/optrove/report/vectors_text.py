"""Draw vectors as text of a few columns, and as data for machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.wire import encode
from optrove.report.describe import drawn, in_reading_order
from optrove.report.tables import Column, clipped, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.case import Case
    from optrove.model.records import Counts

_ID: Final = 12


@dataclass(frozen=True, slots=True)
class DrawnVector:
    """A vector as it is shown."""

    case_id: str
    case: Case
    suite: str | None
    calls: int | None = None


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """What vectors need, how many do, and the file that they are in, if any."""

    hardware: str | None
    mesh: str | None
    vectors: int
    file: str | None = None


@dataclass(frozen=True, slots=True)
class DrawnVectors:
    """Vectors of a module or of ops, with their groups and what was left out."""

    name: str
    vectors: Sequence[DrawnVector]
    groups: Sequence[DrawnGroup]
    left_out: Counts = ()
    shown: bool = True
    """Whether the vectors themselves are listed for people."""


def vector_lines(drawing: DrawnVectors, width: int | None = None) -> Iterator[str]:
    """Yield the lines that tell of vectors; those of vectors are cut at ``width``."""
    for vector in drawing.vectors if drawing.shown else ():
        suite = "" if vector.suite is None else f"{vector.suite}  "
        line = f"{vector.case_id[:_ID]}  {suite}{_arguments(vector.case)}"
        yield line if width is None else clipped(line, width)
    if drawing.shown and drawing.vectors:
        yield ""
    groups = drawing.groups
    if len(groups) > 1 or any(each.file or each.hardware or each.mesh for each in groups):
        yield from _group_lines(groups)
    suites = Counter(each.suite for each in drawing.vectors if each.suite is not None)
    listed = ", ".join(f"{suite} {count:,}" for suite, count in suites.items())
    yield f"{drawing.name}: {plural(len(drawing.vectors), 'vector')}" + (
        f" ({listed})" * bool(listed)
    )
    for reason, count in drawing.left_out:
        yield f"left out: {count:,} {reason}"


def _group_lines(groups: Sequence[DrawnGroup]) -> list[str]:
    columns = [Column("vectors", right=True), Column("hardware"), Column("mesh")]
    rows = [[f"{each.vectors:,}", each.hardware or "any", each.mesh or "1x1"] for each in groups]
    if any(each.file for each in groups):
        columns.append(Column("file"))
        for row, each in zip(rows, groups, strict=True):
            row.append(each.file or "")
    return table_lines(columns, rows)


def _arguments(case: Case) -> str:
    return ", ".join(f"{name}={drawn(value)}" for name, value in in_reading_order(case))


def vector_data(drawing: DrawnVectors) -> dict[str, Any]:
    """Return the same for machines."""
    return {
        "name": drawing.name,
        "planned": len(drawing.vectors),
        "left_out": [{"reason": reason, "count": count} for reason, count in drawing.left_out],
        "groups": [
            {
                "hardware": each.hardware,
                "mesh": each.mesh,
                "vectors": each.vectors,
                "file": each.file,
            }
            for each in drawing.groups
        ],
        "vectors": [
            {
                "id": each.case_id,
                "op": each.case.op,
                "suite": each.suite,
                "calls": each.calls,
                "arguments": {name: encode(value) for name, value in each.case.arguments},
            }
            for each in drawing.vectors
        ],
    }

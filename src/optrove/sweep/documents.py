"""Plans of sweeps and vectors, as documents and as data."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from optrove.model.records import NOT_ATTEMPTED
from optrove.report.describe import argument_texts
from optrove.report.document import Column, Paragraph, paragraphs, table
from optrove.report.replays import left_out_by_reason
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.replay.planning import PlannedJob
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.sweep.vectors import SweepPlan, VectorGroup

_PLAN: Final = (
    Column("op", flexible=True),
    Column("suite", optional=True),
    Column("on"),
    Column("cases", right=True),
    Column("calls", right=True),
)
_VECTORS: Final = (
    Column("vector"),
    Column("suite", optional=True),
    Column("arguments", flexible=True, prose=True),
)
_GROUPS: Final = (
    Column("vectors", right=True),
    Column("hardware"),
    Column("mesh"),
    Column("file", optional=True),
)


def plan_document(plan: SweepPlan) -> Iterator[Node]:
    """Yield a plan as a table of ops, the most called first, and its total."""
    groups: dict[tuple[str, str, str], list[PlannedJob]] = {}
    calls: Counter[str] = Counter()
    for each in plan.vectors:
        where = plan.where[each.case_id]
        place = " ".join(filter(None, (where.device_kind.value, where.board)))
        groups.setdefault((each.op, each.suite or "", place), []).append(each)
        calls[each.op] += each.calls or 0
    ranked = sorted(groups.items(), key=lambda item: (-calls[item[0][0]], item[0][0]))
    yield table(
        _PLAN,
        [(*key, len(some), sum(each.calls or 0 for each in some)) for key, some in ranked],
    )
    yield Paragraph(f"{plural(len(plan.vectors), 'case')} planned, nothing executed")
    yield from paragraphs(left_out_by_reason(plan.left_out))


def plan_data(plan: SweepPlan) -> dict[str, Json]:
    """Return a plan; ``docs/command-line.md`` describes the keys."""
    return {
        "planned": len(plan.vectors),
        "counts": {NOT_ATTEMPTED: len(plan.vectors)},
        "left_out": dict(plan.left_out),
        "cases": [
            {
                "op": each.op,
                "case_id": each.case_id,
                "suite": each.suite,
                "device": plan.where[each.case_id].device_kind.value,
                "board": plan.where[each.case_id].board,
                "calls": each.calls,
            }
            for each in plan.vectors
        ],
    }


def vectors_document(
    name: str, found: SweepPlan, exported: Sequence[VectorGroup] = (), *, listed: bool = True
) -> Iterator[Node]:
    """Yield the vectors of a module or an op if ``listed``, their groups, and their counts."""
    if listed and found.vectors:
        yield table(_VECTORS, map(_vector_row, found.vectors))
    groups = _groups(found, exported)
    if len(groups) > 1 or any(any(each[:2]) or each[3] for each in groups):
        yield table(
            _GROUPS,
            [
                (count, hardware or "any", mesh or "1x1", file or "")
                for hardware, mesh, count, file in groups
            ],
        )
    suites = Counter(each.suite for each in found.vectors if each.suite is not None)
    counts = ", ".join(f"{suite} {count:,}" for suite, count in suites.items())
    total = f"{_name(name, found)}: {plural(len(found.vectors), 'vector')}"
    yield Paragraph(f"{total} ({counts})" if counts else total)
    yield from paragraphs(left_out_by_reason(found.left_out))


def _vector_row(planned: PlannedJob) -> tuple[str, str, str]:
    arguments = argument_texts(planned.job.case)
    text = ", ".join(f"{name}={value}" for name, value in arguments)
    return planned.case_id[:SHORT_ID], planned.suite or "", text


def vectors_data(
    name: str, found: SweepPlan, exported: Sequence[VectorGroup] = ()
) -> dict[str, Any]:
    """Return vectors; ``docs/command-line.md`` describes the keys."""
    return {
        "name": _name(name, found),
        "planned": len(found.vectors),
        "left_out": [{"reason": reason, "count": count} for reason, count in found.left_out],
        "groups": [
            {"hardware": hardware, "mesh": mesh, "vectors": count, "file": file}
            for hardware, mesh, count, file in _groups(found, exported)
        ],
        "vectors": [
            {
                "id": each.case_id,
                "op": each.job.case.op,
                "suite": each.suite,
                "calls": each.calls,
                "arguments": {name: encode(value) for name, value in each.job.case.arguments},
            }
            for each in found.vectors
        ],
    }


def _name(name: str, found: SweepPlan) -> str:
    return found.modules[0].name if found.modules else name


def _groups(
    found: SweepPlan, exported: Sequence[VectorGroup]
) -> list[tuple[str | None, str | None, int, str | None]]:
    """Return hardware, mesh and number of vectors of each group, and its file if written."""
    return [
        (
            each.hardware,
            each.mesh_text,
            len(each.vectors),
            None if each.file is None else str(each.file),
        )
        for each in exported or found.groups
    ]

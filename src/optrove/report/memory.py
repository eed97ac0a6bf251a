"""The memory of a run: bytes of L1 and DRAM over its calls, and the tensors at the peaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.model.memory import memory_points
from optrove.report.describe import call_line
from optrove.report.document import Column, Paragraph, Section, table
from optrove.report.wording import plural
from optrove.serializer.described import case_of
from optrove.trove.query import run_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.model.case import Case
    from optrove.model.flow import Flow
    from optrove.model.memory import AliveTensor, MemoryPoint
    from optrove.model.records import Call
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.reader import TroveReader

NO_FLOW: Final = (
    "run {run} was recorded without the flow of tensors, so that it is unknown which output became "
    "which input; trace it again with --flow"
)
_MAX_ROWS: Final = 40
_MAX_TENSORS: Final = 20
_WIDTH: Final = 30
_TENSORS: Final = (
    Column("bytes", right=True),
    Column("shape"),
    Column("dtype"),
    Column("made by", flexible=True),
    Column("call", right=True),
    Column("line", flexible=True),
)


@dataclass(frozen=True, slots=True)
class RecordedFlow:
    """The calls of one process of a run, with the flow of their tensors."""

    run_id: str
    process: int
    flow: Flow
    calls: tuple[Call, ...]
    cases: dict[str, Case]


def recorded_flow(reader: TroveReader, name: str) -> RecordedFlow:
    """Return the process of a run with the most calls; NotFound if its flow was not recorded."""
    run_id = run_named(reader, name)
    flows = reader.flows(run_id)
    if not flows:
        raise NotFound(NO_FLOW.format(run=run_id[:12]))
    calls = [call for call in reader.calls(run_id) if call.process in flows]
    counted = Counter(call.process for call in calls if call.depth == 0)
    process = counted.most_common(1)[0][0] if counted else next(iter(flows))
    own = tuple(call for call in calls if call.process == process)
    contents = reader.contents({call.case_id for call in own})
    cases = {case_id: case_of(content) for case_id, content in contents.items()}
    return RecordedFlow(run_id, process, flows[process], own, cases)


@dataclass(frozen=True, slots=True)
class RunMemory:
    """The memory of one process of a run after each of its outermost calls."""

    run_id: str
    process: int
    points: tuple[MemoryPoint, ...]

    @property
    def memories(self) -> list[str]:
        """The names of all memories."""
        found = {each.memory for point in self.points for each in point.alive}
        return sorted(found, key=lambda name: (name != "L1", name))

    def peak(self, memory: str) -> MemoryPoint:
        """Return the call after which a memory is fullest."""
        return max(self.points, key=lambda point: point.size(memory))


def run_memory(reader: TroveReader, name: str) -> RunMemory:
    """Return the memory of a run; NotFound if its flow was not recorded."""
    found = recorded_flow(reader, name)
    points = tuple(memory_points(found.flow, found.calls, found.cases))
    return RunMemory(found.run_id, found.process, points)


def memory_document(memory: RunMemory) -> Iterator[Node]:
    """Yield a curve per memory over the calls, and the tensors at its peak."""
    names = memory.memories
    if not names:
        yield Paragraph("no tensor of this run was in a memory of a device")
        return
    peaks = {name: memory.peak(name).size(name) for name in names}
    columns = (
        Column("call", right=True),
        Column("op", flexible=True),
        *(each for name in names for each in (Column(name, right=True), Column(""))),
        Column("line", flexible=True),
    )
    rows = []
    for point in _chosen(memory, names):
        bars = [
            cell
            for name in names
            for cell in (f"{point.size(name):,}", _bar(point.size(name), peaks[name]))
        ]
        rows.append((str(point.call.op_index), point.op, *bars, call_line(point.call)))
    yield table(columns, rows)
    left = len(memory.points) - len(rows)
    calls = plural(len(memory.points), "call")
    more = f"; {left:,} calls without a new peak are in --json" if left > 0 else ""
    yield Paragraph(f"bytes on each chip after {calls}{more}")
    for name in names:
        point = memory.peak(name)
        alive = [each for each in point.alive if each.memory == name]
        title = f"{name} at its peak, after call {point.call.op_index} of {point.op}"
        yield Section(f"{title}: {peaks[name]:,} bytes", tuple(_tensor_table(alive)))


def _tensor_table(alive: Sequence[AliveTensor]) -> Iterator[Node]:
    largest = sorted(alive, key=lambda each: -each.size)
    yield table(_TENSORS, (_tensor_row(each) for each in largest[:_MAX_TENSORS]))
    if len(largest) > _MAX_TENSORS:
        yield Paragraph(f"{len(largest) - _MAX_TENSORS:,} smaller tensors are in --json")


def _tensor_row(each: AliveTensor) -> tuple[str, ...]:
    return (
        f"{each.size:,}",
        "x".join(map(str, each.spec.shape)) or "scalar",
        each.spec.dtype.rpartition(".")[2],
        each.op if not each.argument else f"before {each.op}",
        str(each.call.op_index),
        call_line(each.call),
    )


def _chosen(memory: RunMemory, names: Sequence[str]) -> list[MemoryPoint]:
    """Return some calls, evenly, and all peaks among them."""
    points = memory.points
    step = max(1, -(-len(points) // _MAX_ROWS))
    wanted = {0, len(points) - 1} | {points.index(memory.peak(name)) for name in names}
    for begin in range(0, len(points), step):
        part = range(begin, min(begin + step, len(points)))
        wanted.add(max(part, key=lambda at: points[at].size(names[0])))
    return [points[at] for at in sorted(wanted)]


def _bar(size: int, peak: int) -> str:
    return "#" * round(_WIDTH * size / peak) if peak else ""


def memory_data(memory: RunMemory) -> dict[str, Json]:
    """Return the memory of a run; ``docs/command-line.md`` describes the keys."""
    names = memory.memories
    return {
        "run": memory.run_id,
        "process": memory.process,
        "calls": [
            {
                "call": point.call.op_index,
                "op": point.op,
                **_site(point.call),
                "bytes": {name: point.size(name) for name in names},
                "tensors": len(point.alive),
            }
            for point in memory.points
        ],
        "peaks": {name: _peak_data(memory.peak(name), name) for name in names},
    }


def _peak_data(point: MemoryPoint, name: str) -> dict[str, Json]:
    alive = sorted((each for each in point.alive if each.memory == name), key=lambda e: -e.size)
    return {
        "call": point.call.op_index,
        "bytes": point.size(name),
        "tensors": [
            {
                "tensor": each.number,
                "bytes": each.size,
                "shape": list(each.spec.shape),
                "dtype": each.spec.dtype,
                "op": each.op,
                "call": each.call.op_index,
                **_site(each.call),
            }
            for each in alive
        ],
    }


def _site(call: Call) -> dict[str, Json]:
    site = call.call_site
    return {
        "file": None if site is None else site.file,
        "line": None if site is None else site.line,
    }

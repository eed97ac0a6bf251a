"""The memory of a run: bytes of L1 and DRAM over its calls, and the tensors at the peaks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.model.memory import memory_points
from optrove.report.describe import call_line
from optrove.report.document import Column, Paragraph, Picture, Section, table
from optrove.report.wording import clipped, plural
from optrove.serializer.described import case_of
from optrove.trove.query import run_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
NO_TENSORS: Final = "no tensor of this run was in a memory of a device"
_MAX_ROWS: Final = 40
_MAX_BARS: Final = 400
_SVG_WIDTH: Final = 1000
_SVG_HEIGHT: Final = 160
_SVG_TEXT: Final = 18
_MAX_OP_CHARS: Final = 80
_FILL: Final = "#3d84c6"
_PEAK_FILL: Final = "#c0605f"
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
    """The memory of one process of a run after each of its outermost calls.

    ``peaks`` has, by memory, the call after which it is fullest, and the tensors in it then.
    """

    run_id: str
    process: int
    points: tuple[MemoryPoint, ...]
    peaks: Mapping[str, MemoryPeak]


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The call after which a memory is fullest, and the tensors in it, the largest first."""

    point: MemoryPoint
    size: int
    tensors: tuple[AliveTensor, ...]


def run_memory(reader: TroveReader, name: str) -> RunMemory:
    """Return the memory of a run; NotFound if its flow was not recorded."""
    found = recorded_flow(reader, name)
    points, peaks = [], dict[str, MemoryPeak]()
    for point, alive in memory_points(found.flow, found.calls, found.cases):
        points.append(point)
        for memory, size in point.sizes.items():
            if memory not in peaks or size > peaks[memory].size:
                own = sorted((e for e in alive if e.memory == memory), key=lambda e: -e.size)
                peaks[memory] = MemoryPeak(point, size, tuple(own))
    ordered = dict(sorted(peaks.items(), key=lambda item: (item[0] != "L1", item[0])))
    return RunMemory(found.run_id, found.process, tuple(points), ordered)


def memory_document(memory: RunMemory) -> Iterator[Node]:
    """Yield a curve per memory over the calls, and the tensors at its peak."""
    names, peaks = list(memory.peaks), memory.peaks
    if not names:
        yield Paragraph(NO_TENSORS)
        return
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
            for cell in (f"{point.size(name):,}", _bar(point.size(name), peaks[name].size))
        ]
        rows.append((str(point.call.op_index), point.op, *bars, call_line(point.call)))
    yield table(columns, rows)
    left = len(memory.points) - len(rows)
    calls = plural(len(memory.points), "call")
    more = f"; {left:,} calls without a new peak are in --json" if left > 0 else ""
    yield Paragraph(f"bytes on each chip after {calls}{more}")
    for name, peak in peaks.items():
        yield Section(_peak_title(name, peak), tuple(_tensor_table(peak.tensors)))


def memory_section(memory: RunMemory) -> Section:
    """Return the memory of a run with a picture per memory, for HTML."""
    parts: list[Node] = [] if memory.peaks else [Paragraph(NO_TENSORS)]
    for name, peak in memory.peaks.items():
        picture = Picture(f"{name} over the calls", memory_svg(memory, name))
        parts.append(Section(_peak_title(name, peak), (picture, *_tensor_table(peak.tensors))))
    return Section("Memory", tuple(parts), name="memory")


def _peak_title(name: str, peak: MemoryPeak) -> str:
    where = f"after call {peak.point.call.op_index} of {peak.point.op}"
    return f"{name} at its peak, {where}: {peak.size:,} bytes"


def memory_svg(memory: RunMemory, name: str) -> str:
    """Return a bar for each call, or for the fullest of a few, with the bytes of a memory."""
    peak = memory.peaks[name]
    points = memory.points
    step = max(1, -(-len(points) // _MAX_BARS))
    groups = [points[begin : begin + step] for begin in range(0, len(points), step)]
    width = _SVG_WIDTH / len(groups)
    size = f'viewBox="0 0 {_SVG_WIDTH} {_SVG_HEIGHT + _SVG_TEXT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" class="memory" {size}>',
        f"<title>{escape(name)} over the calls</title>",
    ]
    for place, group in enumerate(groups):
        point = max(group, key=lambda each: each.size(name))
        used = point.size(name)
        height = _SVG_HEIGHT * used / peak.size if peak.size else 0
        fill = _PEAK_FILL if point is peak.point else _FILL
        line = call_line(point.call)
        op = clipped(point.op, _MAX_OP_CHARS)
        about = f"call {point.call.op_index}, {op}: {used:,} bytes{line and f', {line}'}"
        parts.append(
            f'<rect fill="{fill}" x="{place * width:.2f}" y="{_SVG_HEIGHT - height:.2f}" '
            f'width="{width:.2f}" height="{height:.2f}"><title>{escape(about)}</title></rect>'
        )
    ends = ((0, "start", points[0]), (_SVG_WIDTH, "end", points[-1]))
    parts += [
        f'<text fill="currentColor" font-size="11" text-anchor="{anchor}" x="{x}" '
        f'y="{_SVG_HEIGHT + _SVG_TEXT - 4}">call {point.call.op_index}</text>'
        for x, anchor, point in ends
    ]
    return "".join((*parts, "</svg>"))


def _tensor_table(largest: Sequence[AliveTensor]) -> Iterator[Node]:
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
    wanted = {0, len(points) - 1} | {points.index(each.point) for each in memory.peaks.values()}
    for begin in range(0, len(points), step):
        part = range(begin, min(begin + step, len(points)))
        wanted.add(max(part, key=lambda at: points[at].size(names[0])))
    return [points[at] for at in sorted(wanted)]


def _bar(size: int, peak: int) -> str:
    return "#" * round(_WIDTH * size / peak) if peak else ""


def memory_data(memory: RunMemory) -> dict[str, Json]:
    """Return the memory of a run; ``docs/command-line.md`` describes the keys."""
    return {
        "run": memory.run_id,
        "process": memory.process,
        "calls": [
            {
                "call": point.call.op_index,
                "op": point.op,
                **_site(point.call),
                "bytes": {name: point.size(name) for name in memory.peaks},
                "tensors": point.tensors,
            }
            for point in memory.points
        ],
        "peaks": {name: _peak_data(peak) for name, peak in memory.peaks.items()},
    }


def _peak_data(peak: MemoryPeak) -> dict[str, Json]:
    return {
        "call": peak.point.call.op_index,
        "bytes": peak.size,
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
            for each in peak.tensors
        ],
    }


def _site(call: Call) -> dict[str, Json]:
    site = call.call_site
    return {
        "file": None if site is None else site.file,
        "line": None if site is None else site.line,
    }

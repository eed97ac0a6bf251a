"""Put the tensors into memory that were there when a case was called in a model.

A case that fits into an empty memory may not fit beside the other tensors of a model. With the flow
of a run it is known what these were.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound
from optrove.model.flow import Outside, Step
from optrove.model.memory import memory_points
from optrove.model.records import BESIDE, RunKind
from optrove.replay.device_choice import device_parameters
from optrove.report.memory import recorded_flow
from optrove.report.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optrove.model.flow import Flow
    from optrove.model.memory import AliveTensor
    from optrove.model.records import Call
    from optrove.replay.planning import PlannedJob
    from optrove.report.memory import RecordedFlow
    from optrove.trove.reader import TroveReader

EMPTY: Final = "not called by itself in a run with --flow; it ran in empty memory"
BALLAST: Final = "ballast"
"""The argument of tensors that only take up memory."""


def alive_before(recorded: RecordedFlow, op_index: int) -> tuple[AliveTensor, ...]:
    """Return the tensors in memory before an outermost call."""
    alive: tuple[AliveTensor, ...] = ()
    for point, after in memory_points(recorded.flow, recorded.calls, recorded.cases):
        if point.call.op_index >= op_index:
            break
        alive = after
    return alive


def ballast(alive: Iterable[AliveTensor], flow: Flow, used: Iterable[int]) -> tuple[Outside, ...]:
    """Return the tensors that take up memory besides those that calls use, in their order."""
    buffers = {flow.buffers.get(number) for number in used}
    others = [each for each in alive if flow.buffers.get(each.number) not in buffers]
    ordered = sorted(others, key=lambda each: each.number)
    return tuple(Outside(each.number, BALLAST, each.spec) for each in ordered)


class Residency:
    """For each case, the fullest memory in which a run of a trove called it."""

    def __init__(self, reader: TroveReader) -> None:
        """Read all runs whose flow was recorded; NotFound without such a run."""
        self._fullest: dict[str, tuple[int, str, Call, tuple[AliveTensor, ...], Flow]] = {}
        found = False
        for row in reader.runs():
            if row.run.kind is RunKind.TRACE and reader.flows(row.run.id):
                self._read(recorded_flow(reader, row.run.id))
                found = True
        if not found:
            raise NotFound(
                "no run of this trove was traced with --flow, so that it is unknown what else was "
                "in memory; trace a model with --flow, or leave out --residency"
            )

    def _read(self, recorded: RecordedFlow) -> None:
        alive: tuple[AliveTensor, ...] = ()
        size = 0
        for point, after in memory_points(recorded.flow, recorded.calls, recorded.cases):
            known = self._fullest.get(point.call.case_id)
            if known is None or size > known[0]:
                fullest = (size, recorded.run_id, point.call, alive, recorded.flow)
                self._fullest[point.call.case_id] = fullest
            alive, size = after, point.size("L1")

    def beside(self, planned: PlannedJob) -> PlannedJob:
        """Return a case that runs beside the tensors of a model, with a note about them."""
        known = self._fullest.get(planned.case_id)
        if known is None or not planned.op.startswith("ttnn."):
            return replace(planned, notes=(*planned.notes, EMPTY))
        _, run_id, call, alive, flow = known
        outside = ballast(alive, flow, flow.call(call.op_index).inputs.values())
        numbers = {each.number for each in outside}
        sizes = _sizes([each for each in alive if each.number in numbers])
        note = (
            f"{BESIDE}{plural(len(outside), 'tensor')}{sizes}, as before call {call.op_index} of "
            f"run {run_id[:12]}"
        )
        job = planned.job
        job = replace(job, device=device_parameters(job), flow=Step(0, outside=outside))
        return replace(planned, job=job, notes=(*planned.notes, note))


def _sizes(alive: Sequence[AliveTensor]) -> str:
    sizes: Mapping[str, int] = {
        memory: sum(each.size for each in alive if each.memory == memory)
        for memory in sorted({each.memory for each in alive})
    }
    parts = ", ".join(f"{size:,} bytes of {memory}" for memory, size in sizes.items())
    return f" ({parts})" if parts else ""

"""Replay one recorded op call in this process, on a device that is open: ``replay_op_record``."""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from optrove.errors import NotReplayable
from optrove.model.records import DeviceKind
from optrove.replay.planning import How, planned_line
from optrove.serializer.op_lines import op_line_from_builtins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.model.records import Attempt


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replayed call has returned, None if it failed; and how it went."""

    output: Any
    attempt: Attempt


def replay_op_record(
    record_dict: Mapping[str, Any], mesh_device: Any, rng_seed: int = 0
) -> Replayed:
    """Call a recorded operation again on ``mesh_device``, and return what comes out.

    ``record_dict`` is a line of ``--ops-jsonl``. Inputs are made with the recorded shapes, dtypes,
    layouts, memory configs and mesh placement, with numbers from ``rng_seed``; on a mock board
    without numerics they are only allocated. The ``attempt`` has the outcome, the output specs,
    the metrics, and what was supplied; a call that fails, or that cannot be rebuilt here, says
    so there. BadData for a record that is none.
    """
    from optrove.frameworks.installed import LoadedTables
    from optrove.frameworks.ttnn.board.mock import board_in_use
    from optrove.frameworks.ttnn.execute.execution import CallerDeviceExecutor
    from optrove.replay.execute import Execution

    planned = planned_line(op_line_from_builtins(dict(record_dict)), How(rng_seed))
    ttnn = sys.modules.get("ttnn")
    if ttnn is None or planned.op.partition(".")[0] != "ttnn":
        raise NotReplayable(
            f"{planned.op} cannot be replayed on a device of ttnn in this process; from a file: "
            f"optrove replay --jsonl FILE --index N"
        )
    kind = _device_kind(ttnn)
    executor = CallerDeviceExecutor(ttnn, LoadedTables(), kind, mesh_device)
    try:
        execution = Execution(executor, uuid.uuid4().hex, board_in_use())
        job = replace(planned.job, device_kind=kind)
        attempt = execution.attempt(job, planned.case_id, lambda _: None)
        return Replayed(executor.result, attempt)
    finally:
        executor.close()


def _device_kind(ttnn: Any) -> DeviceKind:
    from optrove.frameworks.ttnn.board.mock import board_in_use
    from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE

    if board_in_use() is None:
        return DeviceKind.HARDWARE
    return DeviceKind.SHADOW if hasattr(ttnn, SHADOW_ATTRIBUTE) else DeviceKind.MOCK

"""Execute Jobs in this very process, one after another: for debuggers.

Nothing protects this process: a Job that crashes ends it, and one that hangs never returns.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

from optrove.backends.ttnn.boards import find_board
from optrove.codec.identity import placement_hash
from optrove.model.records import DeviceKind
from optrove.run.channel import Ground
from optrove.run.tasks import listed
from optrove.run.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.backends.executing import Stage
    from optrove.model.records import Attempt, Job, Plan
    from optrove.run.runner import Tell, Workers


def run_here(
    jobs: Plan | Iterable[Job],
    *,
    board: str | None = None,
    device_kind: DeviceKind | None = None,
    workers: int | Workers | None = None,  # noqa: ARG001 - as of the other engines
    tell: Tell = lambda _: None,  # noqa: ARG001 - likewise
    run_id: str | None = None,
) -> Iterator[Attempt]:
    """Yield an Attempt for each Job, in their order; all have to be of one kind of device."""
    every = listed(jobs, device_kind)
    kind = every[0].device_kind if every else DeviceKind.HOST
    name = None if board is None else find_board(board).name
    with ExitStack() as stack:
        worker = Worker(Ground(run_id or uuid.uuid4().hex, kind, name), stack)
        worker.prepare()
        for job in every:
            yield worker.attempt(job, placement_hash(job.case), _silent)


def _silent(stage: Stage) -> None:
    """Tell nobody at what stage it is; whoever debugs sees it."""
    del stage

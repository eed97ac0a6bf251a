"""Replay recorded cases and store the attempts as they arrive."""

from __future__ import annotations

import os
import sys
import time
import uuid
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

from optrove.capture.runs import new_run
from optrove.errors import NoSpace, NotReplayable, UnusableTrove
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import (
    OUT_OF_BUDGET,
    UNATTEMPTED,
    Attempt,
    AttemptedCase,
    RunKind,
    now,
)
from optrove.model.trove import RunState
from optrove.replay.messages import WorkerSetup
from optrove.replay.planning import planned_line
from optrove.serializer.op_lines import op_line_from_builtins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Run
    from optrove.model.trove import Session
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob
    from optrove.trove.place import Place
    from optrove.trove.trove import Trove

_BATCH_SIZE: Final = 500
_SECONDS: Final = 1.0
"""The most Attempts that wait to be written, and the longest time: a transaction each is slow."""

_CASES_PER_WORKER: Final = 60
"""The number of cases per worker process, which takes seconds to start."""

_ROOM: Final = 1 << 18
"""The bytes that are reserved on the disk of a trove for the ending of a Run."""

_NO_RUN: Final = "none"
"""The run id of cases that were not attempted."""


class _AttemptWriter:
    """Writes the Attempts of a Run to a trove, in batches, with the last sign of life."""

    def __init__(self, trove: Trove, run: Run, session: Session) -> None:
        self._trove = trove
        self._run = run
        self._session = session
        self._waiting: list[Attempt] = []
        self._written = time.monotonic()
        self.done = 0

    def add(self, attempt: Attempt) -> None:
        """Write an Attempt, now or with later ones."""
        self.done += not (attempt.detail or "").startswith(OUT_OF_BUDGET)
        self._waiting.append(attempt)
        if len(self._waiting) >= _BATCH_SIZE or time.monotonic() - self._written >= _SECONDS:
            self.flush()

    def flush(self, ending: RunState | None = None) -> None:
        """Write the Attempts that wait, and how the Session ended."""
        waiting, self._waiting = self._waiting, []
        self._trove.add_attempts(
            self._run, waiting, replace(self._session, alive_at=now(), ending=ending)
        )
        self._written = time.monotonic()


@contextmanager
def attempt_writer(
    trove: Trove, run: Run, session: Session, planned: int
) -> Iterator[Callable[[Attempt], None]]:
    """Give a function that stores the Attempts of a Run, as many as are ``planned``.

    At the end of the block the trove has all of them, even after an exception, and knows how the
    Session ended: with fewer Attempts and no exception, it was out of budget.
    """
    # From now on, the Run is seen to go on, also where it is resumed.
    trove.begin_session(run, session)
    writer = _AttemptWriter(trove, run, session)
    room = _reserved(trove.place)
    ending = RunState.FAILED
    try:
        yield writer.add
        ending = RunState.COMPLETE if writer.done >= planned else RunState.OUT_OF_BUDGET
    except (GeneratorExit, KeyboardInterrupt):
        ending = RunState.INTERRUPTED
        raise
    except NoSpace:
        ending = RunState.DISK_FULL
        raise
    finally:
        try:
            writer.flush(ending)
        except UnusableTrove as error:
            # The ending alone finds room where the Attempts did not.
            room.close()
            with suppress(UnusableTrove):
                writer.flush(RunState.DISK_FULL if isinstance(error, NoSpace) else RunState.FAILED)
            raise
        finally:
            room.close()


def _reserved(place: Place) -> ExitStack:
    """Reserve room on the disk of a trove until the returned stack is closed, if there is any.

    The file that takes the room has no name, so that nothing is left of it when the process ends.
    """
    stack = ExitStack()
    if place.path is not None:
        with suppress(OSError):
            file = stack.enter_context(TemporaryFile(dir=place.path.absolute().parent))  # noqa: SIM115 - the stack closes it
            os.posix_fallocate(file.fileno(), 0, _ROOM)
    return stack


def default_workers(cases: int) -> int:
    """Return the number of worker processes for a number of cases."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, -(-cases // _CASES_PER_WORKER)))


def unattempted(
    groups: Mapping[TargetDevice, Sequence[PlannedJob]], done: Iterable[AttemptedCase]
) -> Iterator[AttemptedCase]:
    """Yield the cases that an interrupt left, as not run; they are not stored."""
    known = {each.attempt.case_id for each in done}
    for target, cases in groups.items():
        setup = WorkerSetup(_NO_RUN, target.device_kind, target.board)
        for planned in cases:
            if planned.case_id not in known:
                job = replace(planned.job, device_kind=target.device_kind)
                yield planned.attempted(setup.not_run(job, planned.case_id, UNATTEMPTED))


def new_replay_run(target: TargetDevice, source: str, kind: RunKind = RunKind.REPLAY) -> Run:
    """Return a Run that begins now, on a device."""
    run = new_run(source, tuple(sys.argv))
    environment = replace(run.environment, device_kind=target.device_kind, board=target.board)
    # On the host, the board is the target of cases of torch.
    board = BOARDS.get(target.board or "")
    if board is not None:
        environment = replace(
            environment, arch=board.arch, device_series=board.name, device_count=board.chips
        )
    # HF_MODEL names what is traced, which this is not.
    return replace(run, kind=kind, source=source, model=None, environment=environment)


@dataclass(frozen=True, slots=True)
class Replayed:
    """The output of a replayed call, None if it failed, and the Attempt."""

    output: Any
    attempt: Attempt


def replay_op_record(
    record_dict: Mapping[str, Any], mesh_device: Any, rng_seed: int = 0
) -> Replayed:
    """Call a recorded operation again on ``mesh_device``, in this process.

    ``record_dict`` is a line of ``--ops-jsonl``. Inputs have the recorded shapes, dtypes, layouts,
    memory configs and mesh placement, with numbers from ``rng_seed``; on a mock board without
    numerics they are only allocated. The ``attempt`` has the outcome, the output specs, the
    metrics, and notes about supplied values; it also describes a call that fails or that cannot
    be rebuilt. Raises BadData if the record is not an op line.
    """
    from optrove.frameworks.installed import LoadedTables
    from optrove.frameworks.ttnn.board.mock import device_in_use
    from optrove.frameworks.ttnn.execute.execution import CallerDeviceExecutor
    from optrove.replay.execute import JobExecutor

    planned = planned_line(op_line_from_builtins(dict(record_dict)), seed=rng_seed)
    found = device_in_use()
    if found is None or planned.op.partition(".")[0] != "ttnn":
        raise NotReplayable(
            f"{planned.op} cannot be replayed on a device of ttnn in this process; from a file: "
            f"optrove replay --jsonl FILE --index N"
        )
    kind, board = found
    executor = CallerDeviceExecutor(sys.modules["ttnn"], LoadedTables(), kind, mesh_device)
    try:
        execution = JobExecutor(executor, WorkerSetup(uuid.uuid4().hex, kind, board))
        job = replace(planned.job, device_kind=kind)
        attempt = execution.attempt(job, planned.case_id, lambda _: None)
        return Replayed(executor.result, attempt)
    finally:
        executor.close()

"""Replay recorded cases and store the attempts as they arrive."""

from __future__ import annotations

import os
import sys
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from optrove.capture.runs import new_run
from optrove.errors import NotReplayable, UnusableTrove
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import CHECK_BOARD, Attempt, AttemptedCase, RunKind, now
from optrove.replay.messages import WorkerSetup
from optrove.replay.planning import planned_line
from optrove.replay.runner import run_jobs
from optrove.serializer.op_lines import op_line_from_builtins

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from optrove.model.records import Run
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob
    from optrove.replay.runner import Log, Workers
    from optrove.trove.place import Place
    from optrove.trove.trove import Trove

_BATCH_SIZE: Final = 500
_SECONDS: Final = 1.0
"""The most Attempts that wait to be written, and the longest time: a transaction each is slow."""

_CASES_PER_WORKER: Final = 60
"""The number of cases per worker process, which takes seconds to start."""

_NO_RUN: Final = "none"
"""The run id of cases that were not attempted."""


_FAILED: Final = 1
_COULD_NOT: Final = 2


def exit_code(*, ran: bool, well: bool) -> int:
    """Return the exit code of a command for cases: 2 if none ran, 1 if not all is well."""
    return _COULD_NOT if not ran else 0 if well else _FAILED


class AttemptWriter:
    """Writes the Attempts of a Run to a trove, in batches."""

    def __init__(self, trove: Trove, run: Run) -> None:
        self._trove = trove
        self._run = run
        self._waiting: list[Attempt] = []
        self._written = time.monotonic()
        self._failed = False
        # For check-board, a case that did not run is one that was not accepted.
        self._ran = run.source.startswith(f"{CHECK_BOARD} ")

    def add(self, attempted: AttemptedCase) -> None:
        """Write an Attempt, now or with later ones."""
        self._failed = self._failed or not attempted.passed
        self._ran = self._ran or attempted.ran
        self._waiting.append(attempted.attempt)
        if len(self._waiting) >= _BATCH_SIZE or time.monotonic() - self._written >= _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the Attempts that wait."""
        waiting, self._waiting = self._waiting, []
        self._trove.add_attempts(self._run, waiting)
        self._written = time.monotonic()

    def finish(self) -> None:
        """Record that the Run has ended, with the exit code of a command that made no other."""
        code = exit_code(ran=self._ran, well=not self._failed)
        ended = replace(self._run, finished_at=now(), exit_code=code)
        self._trove.add_attempts(ended, ())


@contextmanager
def attempt_writer(
    place: Place | None, run: Run, log: Log
) -> Iterator[Callable[[AttemptedCase], None]]:
    """Give a function that stores the Attempts of a Run in the trove at ``place``.

    At the end of the block the trove has all of them, even after an exception; without one, the
    Run counts as finished. If the trove cannot be written, nothing is stored and ``log`` gets a
    line. With None as ``place`` nothing is stored.
    """
    if place is None:
        yield lambda _: None
        return
    from optrove.trove.trove import open_trove

    with ExitStack() as stack:
        try:
            trove = stack.enter_context(open_trove(place, create=False))
            trove.add_attempts(run, ())
        except UnusableTrove as error:
            log(f"the results are not stored: {error}")
            yield lambda _: None
            return
        writer = AttemptWriter(trove, run)
        try:
            yield writer.add
        finally:
            writer.flush()
        writer.finish()


def replay_cases(
    groups: Mapping[TargetDevice, Sequence[PlannedJob]],
    place: Place | None,
    source: str,
    *,
    workers: int | Workers | None = None,
    log: Log = lambda _: None,
) -> Generator[AttemptedCase, None, None]:
    """Replay all cases and yield each as soon as it is done, in one Run per device.

    ``source`` names the Runs. Attempts that were yielded are in the trove at ``place`` even when
    the iterator is closed early; with None they are not stored. ``log`` gets a line when a worker
    process is lost or results cannot be stored.
    """
    for target, cases in groups.items():
        by_id = {planned.case_id: planned for planned in cases}
        jobs = [replace(planned.job, device_kind=target.device_kind) for planned in cases]
        count = default_workers(len(cases)) if workers is None else workers
        run = new_replay_run(target, source)
        with attempt_writer(place, run, log) as store:
            for attempt in run_jobs(
                jobs, board=target.board, workers=count, log=log, run_id=run.id
            ):
                attempted = by_id[attempt.case_id].attempted(attempt)
                store(attempted)
                yield attempted


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
                detail = "interrupted before it was tried"
                yield planned.attempted(setup.not_run(job, planned.case_id, detail))


def stored_runs(place: Place | None, done: Iterable[AttemptedCase]) -> list[str]:
    """Return the ids of the Runs of these results that the trove has."""
    from optrove.trove.reader import open_reader

    ids = dict.fromkeys(each.attempt.run_id for each in done)
    if place is None:
        return []
    with open_reader(place) as reader:
        return [run_id for run_id in ids if reader.find_run(run_id)]


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

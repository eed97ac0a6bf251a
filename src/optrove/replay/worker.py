"""A worker process: execute Jobs that arrive through a pipe; or Jobs in this process.

It is started as ``python -m optrove.replay.worker PIPE STAGES``: two inherited file descriptors.
The board and the numerics are settled before ttnn is imported. Devices stay open between Jobs and
are closed in order at the end.

Nothing protects this process: a Job that crashes ends it, and one that hangs never returns.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
import uuid
from contextlib import ExitStack
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from optrove.errors import NotReplayable, OptroveError
from optrove.frameworks.installed import LoadedTables
from optrove.frameworks.ttnn.board.table import find_board
from optrove.model.ops import VECTORS
from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.replay.execute import Execution
from optrove.replay.jobs import listed
from optrove.replay.messages import Channel, Ground, Stages, answer_of, read_order
from optrove.serializer.hashes import placement_hash
from optrove.settings import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.frameworks.executor import Executor, Stage, Telling
    from optrove.model.records import Job, Plan
    from optrove.replay.runner import Tell, Workers
    from optrove.replay.sweep_module import ModuleExecution


_PR_SET_PDEATHSIG = 1

SLOW_DISPATCH = "TT_METAL_SLOW_DISPATCH_MODE"


class Worker:
    """The executors of one process, each set up when it is first needed."""

    execution: type[Execution] = Execution
    """What is done with each Job."""

    def __init__(self, ground: Ground, stack: ExitStack) -> None:
        self._ground = ground
        self._stack = stack
        self._executions: dict[str, Execution | ModuleExecution] = {}

    def prepare(self) -> None:
        """Set up what the ground asks for, before any framework is imported."""
        ground, enter = self._ground, self._stack.enter_context
        if ground.slow_dispatch:
            enter(environment({SLOW_DISPATCH: "1"}))
        if ground.device_kind in (DeviceKind.MOCK, DeviceKind.SHADOW):
            from optrove.frameworks.ttnn.board.mock import mock_board

            if ground.board is None:
                raise NotReplayable("a mock board has to be named; give one of `optrove boards`")
            enter(mock_board(ground.board, shadow=ground.device_kind is DeviceKind.SHADOW))

    def attempt(self, job: Job, case_id: str, tell: Telling) -> Attempt:
        """Return what came of a Job, whatever goes wrong."""
        try:
            return self._execution(job).attempt(job, case_id, tell)
        except OptroveError as error:
            return self._not_run(job, case_id, str(error))
        except Exception:  # noqa: BLE001 - the worker's border: a fault of the replay itself costs one Job and is told in full
            fault = traceback.format_exc()
            return self._not_run(job, case_id, f"the replay itself failed:\n{fault}")

    def _execution(self, job: Job) -> Execution | ModuleExecution:
        framework = job.case.op.partition(".")[0]
        execution = self._executions.get(framework)
        if execution is None:
            execution = self._executions[framework] = self._new_execution(framework)
        return execution

    def _new_execution(self, framework: str) -> Execution | ModuleExecution:
        ground = self._ground
        if f"{framework}." == VECTORS:
            from optrove.replay.sweep_module import ModuleExecution

            modules = ModuleExecution(ground.run_id, ground.board)
            self._stack.callback(modules.close)
            return modules
        executor = self._executor(framework)
        self._stack.callback(executor.close)
        return self.execution(executor, ground.run_id, ground.board)

    def _executor(self, framework: str) -> Executor:
        if framework == "ttnn":
            from optrove.frameworks.ttnn.execute.execution import TtnnExecutor

            tables = LoadedTables()
            return TtnnExecutor(import_module("ttnn"), tables, self._ground.device_kind)
        if framework == "torch":
            from optrove.frameworks.torch.execute import TorchExecutor

            return TorchExecutor(import_module("torch"), LoadedTables())
        raise NotReplayable(f"no backend executes operations of {framework!a}")

    def _not_run(self, job: Job, case_id: str, detail: str) -> Attempt:
        return Attempt(
            run_id=self._ground.run_id,
            case_id=case_id,
            outcome=Outcome.NOT_RUN,
            device_kind=job.device_kind,
            seed=job.seed,
            board=self._ground.board,
            detail=detail,
        )


def serve(channel: Channel, stages: Stages, kind: type[Worker] = Worker) -> None:
    """Set up as the first message says, then execute Jobs until the pipe is closed."""
    _, told = channel.receive()
    with ExitStack() as stack:
        worker = kind(Ground.from_json(told), stack)
        try:
            worker.prepare()
        except (OptroveError, ImportError) as error:
            channel.send("unable", str(error))
            return
        channel.send("ready", content=True)
        for _, content in channel.messages():
            job, case_id = read_order(content)
            answer = answer_of(worker.attempt(job, case_id, stages.tell), job)
            # Before the answer: whatever happens from here on is not this Job's doing.
            stages.clear()
            channel.send("attempt", answer)


def _die_with_parent() -> None:
    """Have the kernel end this process with its parent, even while an operation hangs.

    Else it would hold its board, and nobody would be left to kill it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(kind: type[Worker] = Worker) -> int:
    """Run the worker with the file descriptors that the arguments name."""
    pipe, shared = map(int, sys.argv[1:3])
    # The compilers that ttnn starts must not hold it open when this process has crashed.
    os.set_inheritable(pipe, False)  # noqa: FBT003 - the only way to say it
    faulthandler.enable()
    _die_with_parent()
    channel, stages = Channel(Connection(pipe)), Stages(shared)
    try:
        serve(channel, stages, kind)
    except BrokenPipeError:
        return 1  # the parent is gone, and nobody is left to be told
    finally:
        channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())


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

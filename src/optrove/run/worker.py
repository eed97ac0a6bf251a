"""A worker process: execute the Jobs that come through a pipe, one after another.

It is started as ``python -m optrove.run.worker PIPE STAGES``, two inherited file descriptors. The
board and the numerics are settled before ttnn is imported. Devices stay open between Jobs and are
closed in order at the end.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from contextlib import ExitStack
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from optrove.backends.frameworks import LoadedTables
from optrove.errors import NotReplayable, OptroveError
from optrove.model.hidden import VECTORS
from optrove.model.records import Attempt, DeviceKind, Outcome
from optrove.run.channel import Channel, Ground
from optrove.run.execute import Execution
from optrove.run.orders import answer_of, read_order
from optrove.run.stages import Stages
from optrove.settings import environment

if TYPE_CHECKING:
    from optrove.backends.executing import Executor, Telling
    from optrove.model.records import Job
    from optrove.run.sweep_module import ModuleExecution

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
            from optrove.backends.ttnn.mock import mock_board

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
            from optrove.run.sweep_module import ModuleExecution

            modules = ModuleExecution(ground.run_id, ground.board)
            self._stack.callback(modules.close)
            return modules
        executor = self._executor(framework)
        self._stack.callback(executor.close)
        return self.execution(executor, ground.run_id, ground.board)

    def _executor(self, framework: str) -> Executor:
        if framework == "ttnn":
            from optrove.backends.ttnn.execution import TtnnExecutor

            tables = LoadedTables()
            return TtnnExecutor(import_module("ttnn"), tables, self._ground.device_kind)
        if framework == "torch":
            from optrove.backends.torch_execution import TorchExecutor

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

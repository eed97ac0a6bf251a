"""A worker process: execute the Jobs that come through a pipe, one after another.

It is started as ``python -m optrove.run.worker FD``. The board and the numerics are settled
before ttnn is imported. Devices stay open between Jobs and are closed in order at the end.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import traceback
from contextlib import ExitStack
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from optrove.backends.frameworks import LoadedTables
from optrove.codec.identity import placement_hash
from optrove.codec.records import record_from_builtins, record_to_builtins
from optrove.errors import NotReplayable, OptroveError
from optrove.model.records import Attempt, DeviceKind, Job, Outcome
from optrove.run.channel import Channel, Ground
from optrove.run.execute import Execution
from optrove.settings import environment

if TYPE_CHECKING:
    from optrove.backends.executing import Executor, Stage

SLOW_DISPATCH = "TT_METAL_SLOW_DISPATCH_MODE"


class Worker:
    """The executors of one process, each set up when it is first needed."""

    execution: type[Execution] = Execution
    """What is done with each Job."""

    def __init__(self, ground: Ground, stack: ExitStack) -> None:
        self._ground = ground
        self._stack = stack
        self._executions: dict[str, Execution] = {}

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

    def attempt(self, job: Job, channel: Channel) -> Attempt:
        """Return what came of a Job, whatever goes wrong."""

        def tell(stage: Stage) -> None:
            channel.send("stage", stage.name)

        try:
            return self._execution(job).attempt(job, tell)
        except OptroveError as error:
            return self._not_run(job, str(error))
        except Exception:  # noqa: BLE001 - the worker's border: a fault of the replay itself costs one Job and is told in full
            return self._not_run(job, f"the replay itself failed:\n{traceback.format_exc()}")

    def _execution(self, job: Job) -> Execution:
        framework = job.case.op.partition(".")[0]
        execution = self._executions.get(framework)
        if execution is None:
            executor = self._executor(framework)
            self._stack.callback(executor.close)
            ground = self._ground
            execution = self.execution(executor, ground.run_id, ground.board)
            self._executions[framework] = execution
        return execution

    def _executor(self, framework: str) -> Executor:
        if framework == "ttnn":
            from optrove.backends.ttnn.execution import TtnnExecutor

            tables = LoadedTables()
            return TtnnExecutor(import_module("ttnn"), tables, self._ground.device_kind)
        if framework == "torch":
            from optrove.backends.torch_execution import TorchExecutor

            return TorchExecutor(import_module("torch"), LoadedTables())
        raise NotReplayable(f"no backend executes operations of {framework!a}")

    def _not_run(self, job: Job, detail: str) -> Attempt:
        return Attempt(
            run_id=self._ground.run_id,
            case_id=placement_hash(job.case),
            outcome=Outcome.NOT_RUN,
            device_kind=job.device_kind,
            seed=job.seed,
            board=self._ground.board,
            detail=detail,
        )


def serve(channel: Channel, kind: type[Worker] = Worker) -> None:
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
            attempt = worker.attempt(record_from_builtins(content, Job), channel)
            channel.send("attempt", record_to_builtins(attempt))


def main(kind: type[Worker] = Worker) -> int:
    """Run the worker; the pipe is the inherited file descriptor that the argument names."""
    descriptor = int(sys.argv[1])
    # The compilers that ttnn starts must not hold it open when this process has crashed.
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - the only way to say it
    faulthandler.enable()
    channel = Channel(Connection(descriptor))
    try:
        serve(channel, kind)
    except BrokenPipeError:
        return 1  # the parent is gone, and nobody is left to be told
    finally:
        channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

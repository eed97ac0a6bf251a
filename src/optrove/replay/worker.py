"""A worker process: execute Jobs that arrive through a pipe. Also: execute Jobs in this process.

The parent starts ``python -m optrove.replay.worker PIPE STAGES`` with two inherited descriptors.
The board and the numerics are set up before ttnn is imported. Devices stay open between Jobs and
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
from contextlib import ExitStack, nullcontext
from importlib import import_module
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from optrove.errors import DeviceNotOpened, NotReplayable, OptroveError
from optrove.frameworks.installed import LoadedTables, torch_deferred
from optrove.frameworks.ttnn.board.table import find_board
from optrove.model.ops import VECTORS
from optrove.model.records import DeviceKind
from optrove.model.torch_target import TorchTarget
from optrove.replay import fork_server
from optrove.replay.execute import JobExecutor
from optrove.replay.messages import Channel, Stages, WorkerSetup, attempt_to_json, read_job
from optrove.serializer.hashes import placement_hash
from optrove.serializer.records import record_from_builtins
from optrove.settings import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.frameworks.executor import Executor, OnStage
    from optrove.model.records import Attempt, Job
    from optrove.replay.runner import Log, Workers
    from optrove.replay.sweep_module import ModuleExecution


_PR_SET_PDEATHSIG = 1

SLOW_DISPATCH = "TT_METAL_SLOW_DISPATCH_MODE"


class Worker:
    """The executors of one process, each set up when it is first needed."""

    execution: type[JobExecutor] = JobExecutor
    """Executes the Jobs of ttnn and torch."""

    def __init__(self, setup: WorkerSetup, stack: ExitStack) -> None:
        self._setup = setup
        self._stack = stack
        self._executions: dict[str, JobExecutor | ModuleExecution] = {}

    def prepare(self) -> None:
        """Set up the process, before any framework is imported."""
        setup, enter = self._setup, self._stack.enter_context
        if setup.slow_dispatch:
            enter(environment({SLOW_DISPATCH: "1"}))
        if setup.device_kind in (DeviceKind.MOCK, DeviceKind.SHADOW):
            from optrove.frameworks.ttnn.board.mock import mock_board

            if setup.board is None:
                raise NotReplayable("no mock board is given; choose one of `optrove boards`")
            enter(mock_board(setup.board, shadow=setup.device_kind is DeviceKind.SHADOW))
        elif setup.device_kind is DeviceKind.SIMULATOR:
            from optrove.frameworks.ttnn.board.simulator import sim_board

            if setup.board is None:
                raise NotReplayable("no simulated board is given: n150 or p150")
            enter(sim_board(setup.board))

    def attempt(self, job: Job, case_id: str, on_stage: OnStage) -> Attempt:
        """Return the Attempt at a Job, whatever goes wrong with it.

        DeviceNotOpened if its device is at fault: then no more Job should run in this process.
        """
        framework = job.case.op.partition(".")[0]
        try:
            if framework not in self._executions:
                self._executions[framework] = self._new_execution(framework)
            return self._executions[framework].attempt(job, case_id, on_stage)
        except DeviceNotOpened:
            raise
        except OptroveError as error:
            return self._setup.not_run(job, case_id, str(error))
        except Exception:  # noqa: BLE001 - the worker's border: a fault of the replay itself costs one Job and is reported in full
            fault = traceback.format_exc()
            return self._setup.not_run(job, case_id, f"the replay itself failed:\n{fault}")

    def _new_execution(self, framework: str) -> JobExecutor | ModuleExecution:
        if f"{framework}." == VECTORS:
            from optrove.replay.sweep_module import ModuleExecution

            modules = ModuleExecution(self._setup)
            self._stack.callback(modules.close)
            return modules
        executor = self._executor(framework)
        self._stack.callback(executor.close)
        return self.execution(executor, self._setup)

    def _executor(self, framework: str) -> Executor:
        if framework == "ttnn":
            from optrove.frameworks.ttnn.execute.execution import TtnnExecutor

            kind = self._setup.device_kind
            return TtnnExecutor(import_module("ttnn"), LoadedTables(), kind)
        if framework == "torch":
            from optrove.frameworks.torch.execute import TorchExecutor

            target = TorchTarget.parse(self._setup.board)
            return TorchExecutor(import_module("torch"), LoadedTables(), target)
        raise NotReplayable(f"no backend executes operations of {framework!a}")


def serve(channel: Channel, stages: Stages, kind: type[Worker] = Worker) -> None:
    """Set up the worker as the first message says, then execute Jobs until the pipe is closed.

    After a device that could not be opened it ends, since ttnn may keep some of its chips.
    """
    _, content = channel.receive()
    setup = record_from_builtins(content, WorkerSetup)
    # A plain mock board computes no numbers; the few cases that mention torch import it.
    without_torch = torch_deferred if setup.device_kind is DeviceKind.MOCK else nullcontext
    with ExitStack() as stack:
        worker = kind(setup, stack)
        try:
            with without_torch():
                worker.prepare()
        except (OptroveError, ImportError) as error:
            channel.send("unable", str(error))
            return
        channel.send("ready", content=True)
        for count, (_, content) in enumerate(channel.messages()):
            job, case_id = read_job(content)
            try:
                answer = attempt_to_json(worker.attempt(job, case_id, stages.enter), job)
            except DeviceNotOpened as error:
                channel.send("not opened", {"reason": str(error), "is_first": count == 0})
                return
            # Before the answer: this Job is not to blame for anything that happens later.
            stages.clear()
            channel.send("attempt", answer)


def _die_with_parent() -> None:
    """Have the kernel end this process with its parent, even while an operation hangs.

    Otherwise it would hold its board, and no process would kill it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(kind: type[Worker] = Worker) -> int:
    """Run the worker with the descriptors that the arguments name, or a fork server of workers."""
    if sys.argv[1] == "--fork-server":
        channel, device_kind, board = sys.argv[2:]
        return fork_server.serve(int(channel), DeviceKind(device_kind), board or None, _work)
    pipe, shared = map(int, sys.argv[1:3])
    return _work(pipe, shared, kind)


def _work(pipe: int, shared: int, kind: type[Worker] = Worker) -> int:
    # The compilers that ttnn starts must not hold it open when this process has crashed.
    os.set_inheritable(pipe, False)  # noqa: FBT003 - the only way to say it
    faulthandler.enable()
    _die_with_parent()
    channel, stages = Channel(Connection(pipe)), Stages(shared)
    try:
        serve(channel, stages, kind)
    except BrokenPipeError:
        return 1  # the parent is gone
    finally:
        channel.close()
    return 0


def run_in_process(
    jobs: Iterable[Job],
    *,
    board: str | None = None,
    workers: int | Workers | None = None,  # noqa: ARG001 - the signature of all engines
    log: Log = lambda _: None,  # noqa: ARG001 - likewise
    run_id: str | None = None,
) -> Iterator[Attempt]:
    """Yield an Attempt for each Job, in their order; all have to be of one kind of device."""
    every = list(jobs)
    kind = every[0].device_kind if every else DeviceKind.HOST
    name = None if board is None else find_board(board).name
    with ExitStack() as stack:
        setup = WorkerSetup(run_id or uuid.uuid4().hex, kind, name)
        worker = Worker(setup, stack)
        worker.prepare()
        for job in every:
            case_id = placement_hash(job.case)
            try:
                yield worker.attempt(job, case_id, lambda _: None)
            except DeviceNotOpened as error:
                yield setup.not_run(job, case_id, str(error))


if __name__ == "__main__":
    sys.exit(main())

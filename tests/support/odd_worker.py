"""A worker process with a framework of its own, whose operations return, crash, hang or exit."""

import os
import signal
import sys
import time
from pathlib import Path

from optrove.errors import DeviceNotOpened, NotReplayable
from optrove.frameworks.executor import Compared, Executed, Raised, Stage
from optrove.model.values import Int, Text
from optrove.replay import worker
from optrove.replay.runner import Workers, run_jobs


def run_oddly(jobs, *, workers, **options):
    """Execute Jobs as ``run_jobs`` does, in workers of this kind."""
    command = (sys.executable, str(Path(__file__)))
    count, until = (workers, None) if isinstance(workers, int) else (workers.count, workers.until)
    return run_jobs(jobs, workers=Workers(count, command, until), **options)


def end(op):
    """End this process as some operations do."""
    if op == "odd.crash":
        sys.stderr.write("last words")
        sys.stderr.flush()
    if op == "odd.crash" or (op == "odd.crash_unless_slow" and not slow()):
        os.kill(os.getpid(), signal.SIGSEGV)
    if op == "odd.killed":
        os.kill(os.getpid(), signal.SIGKILL)


def slow():
    return os.environ.get(worker.SLOW_DISPATCH)


class OddExecutor:
    def __init__(self):
        self.opened = None
        self.failed = False

    def open(self, wanted):
        """Open a device, as ttnn does: no other one after one that could not be opened."""
        if self.failed:
            raise DeviceNotOpened("not allowed while devices are still open")
        if self.opened == wanted:
            return ()
        never, only_first = wanted.mesh_shape == (5, 5), wanted.mesh_shape == (4, 4)
        if never or (only_first and self.opened is not None):
            self.failed = True
            raise DeviceNotOpened("device 1 is not active")
        self.opened = wanted
        if wanted.mesh_shape == (6, 6):
            raise NotReplayable("a 6x6 mesh could not be opened")
        if wanted.mesh_shape == (7, 7):
            os.kill(os.getpid(), signal.SIGSEGV)
        return ()

    def execute(self, job, on_stage):
        case = job.case
        hangs = case.op in ("odd.hang", "odd.wedge")
        # The time for opening does not count: that of what hangs runs from the call on, however
        # busy the machine is before it.
        on_stage(Stage.OPENING if hangs else Stage.MAKING)
        if case.op == "odd.unbuildable":
            raise NotReplayable("$.arguments.a: no converter knows it")
        if case.op == "odd.faulty":
            raise KeyError("a fault of the executor")
        if case.op == "odd.crash_while_made":
            os.kill(os.getpid(), signal.SIGABRT)
        if case.op == "odd.killed_while_made":
            os.kill(os.getpid(), signal.SIGKILL)
        board = Path(os.environ.get("ODD_BOARD", "none"))
        answers = not board.exists()
        if answers and case.op == "odd.wedge":
            board.touch()
        on_stage(Stage.CALLING)
        end(case.op)
        if not answers:
            return Executed(case, raised=Raised("RuntimeError", "Read 0xffffffff from PCIE"))
        if hangs:
            time.sleep(600)
        if case.op == "odd.refuse":
            return Executed(case, raised=Raised("RuntimeError", "TT_FATAL @ x:1: y\ninfo:\nno"))
        if case.op == "odd.where":
            return Executed(case, outputs=(Text(os.environ["ODD_NODE"]),))
        numbers = (Compared(0, [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]),)
        return Executed(case, outputs=(Int(os.getpid()),), compared=numbers, duration_ns=1)

    def close(self):
        marker = os.environ.get("ODD_CLOSED")
        if marker:
            with open(marker, "a") as file:  # noqa: PTH123 - one line, appended at once
                file.write("closed\n")


class OddWorker(worker.Worker):
    def prepare(self):
        if os.environ.get("ODD_UNABLE"):
            raise NotReplayable("this machine is not for odd things")
        if self._setup.slow_dispatch:
            self._stack.enter_context(worker.environment({worker.SLOW_DISPATCH: "1"}))

    def _executor(self, framework):
        return OddExecutor()


if __name__ == "__main__":
    sys.exit(worker.main(OddWorker))

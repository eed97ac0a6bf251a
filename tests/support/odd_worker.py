"""A worker process with a framework of its own, whose operations return, crash, hang or exit."""

import os
import signal
import sys
import time

from optrove.backends.executing import Compared, Executed, Raised, Stage
from optrove.errors import NotReplayable
from optrove.model.values import Int
from optrove.run import worker


class OddExecutor:
    def open(self, wanted):
        if wanted.mesh_shape == (6, 6):
            raise NotReplayable("a 6x6 mesh could not be opened")
        if wanted.mesh_shape == (7, 7):
            os.kill(os.getpid(), signal.SIGSEGV)
        return ()

    def execute(self, case, *, seed, tell):
        tell(Stage.MAKING)
        if case.op == "odd.unbuildable":
            raise NotReplayable("$.arguments.a: no converter knows it")
        if case.op == "odd.faulty":
            raise KeyError("a fault of the executor")
        if case.op == "odd.crash_while_made":
            os.kill(os.getpid(), signal.SIGABRT)
        tell(Stage.CALLING)
        if case.op == "odd.hang":
            time.sleep(600)
        if case.op == "odd.crash":
            sys.stderr.write("last words")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSEGV)
        if case.op == "odd.crash_unless_slow" and not os.environ.get(worker.SLOW_DISPATCH):
            os.kill(os.getpid(), signal.SIGSEGV)
        if case.op == "odd.refuse":
            return Executed(case, raised=Raised("RuntimeError", "TT_FATAL @ x:1: y\ninfo:\nno"))
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
        if self._ground.slow_dispatch:
            self._stack.enter_context(worker.environment({worker.SLOW_DISPATCH: "1"}))

    def _executor(self, framework):
        return OddExecutor()


if __name__ == "__main__":
    sys.exit(worker.main(OddWorker))

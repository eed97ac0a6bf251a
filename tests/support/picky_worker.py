"""A worker process whose operation refuses large and oddly scaled inputs, for shrinking.

``picky.take`` has no room for more than 1,000 elements, says another thing without its ``scale``,
and crashes on request; it passes everything else.
"""

import os
import signal
import sys
from math import prod

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Executed, Raised, Stage
from optrove.model.values import Int, Text
from optrove.replay import worker


class PickyExecutor:
    def open(self, wanted):
        return ()

    def execute(self, job, on_stage):
        case = job.case
        on_stage(Stage.MAKING)
        given = dict(case.arguments)
        if given.get("note") == Text("unbuildable"):
            raise NotReplayable("$.arguments.note: no converter knows it")
        on_stage(Stage.CALLING)
        if given.get("note") == Text("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if "scale" not in given:
            return Executed(case, raised=Raised("TypeError", "incompatible function arguments"))
        shape = given["input"].shape
        if prod(shape) > 1000:
            words = (
                f"TT_FATAL @ take.cpp:7: fits\ninfo:\nno room for {list(shape)} of {prod(shape)}"
            )
            return Executed(case, raised=Raised("RuntimeError", words))
        return Executed(case, outputs=(Int(1),), duration_ns=1)

    def close(self):
        """Close nothing."""


class PickyWorker(worker.Worker):
    def prepare(self):
        """Prepare nothing."""

    def _executor(self, framework):
        return PickyExecutor()


if __name__ == "__main__":
    sys.exit(worker.main(PickyWorker))

"""A worker process that stands in for one with another release: RELEASE PIPE STAGES.

``made.up`` passes until release 1.3, where it refuses the call; ``made.numbers`` has other outputs
from 1.2 on; ``made.steady`` never changes; ``made.gap`` crashes the machine with 1.2.
"""

import sys

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Executed, Raised, Stage
from optrove.model.values import Int
from optrove.replay import worker


class ReleaseExecutor:
    def __init__(self, release):
        self._release = release

    def open(self, wanted):
        return ()

    def execute(self, job, on_stage):
        case = job.case
        on_stage(Stage.MAKING)
        if case.op == "made.gap" and self._release == "1.2":
            raise NotReplayable("no such converter in this release")
        on_stage(Stage.CALLING)
        if case.op in ("made.up", "made.gap") and self._release >= "1.3":
            return Executed(case, raised=Raised("RuntimeError", "TT_FATAL @ x:1: y\ninfo:\nno"))
        later = case.op == "made.numbers" and self._release >= "1.2"
        return Executed(case, outputs=(Int(2 if later else 1),))

    def close(self):
        """Close nothing."""


class ReleaseWorker(worker.Worker):
    def prepare(self):
        """Prepare nothing."""

    def _executor(self, framework):
        return ReleaseExecutor(RELEASE)


if __name__ == "__main__":
    RELEASE = sys.argv.pop(1)
    sys.exit(worker.main(ReleaseWorker))

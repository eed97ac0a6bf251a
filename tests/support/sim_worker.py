"""A worker process that stands in for one with a simulator: it prints what the real one prints."""

import os
import sys
import time

from optrove.frameworks.executor import Compared, Executed, Raised, Stage
from optrove.replay import worker

LINES = {
    "sim.unimplemented": "[1034] ERROR: UnimplementedFunctionality: tensix_execute_pacr: mode=3",
    "sim.untested": "[77] ERROR: UntestedFunctionality: sfpu_mad",
    "sim.silent": "the last words of something else",
}
# On boards whose library is of another chip: printed when ttnn looks for devices.
WRONG_CHIPS = {
    "n150:72": "[0] ERROR: UnsupportedFunctionality: pci_mem_wr_cur: bar0: offset=0x1fc size=8",
    "p100": "[0] ERROR: UnimplementedFunctionality: dma_reg_ptr: offset=0x1004",
}
COMPILE = (
    "TT_THROW @ /src/build.cpp:481: tt::exception\ninfo:\nbrisc build failed. Log:\n"
    "/kernels/dataflow/reader.cpp:36:57: error: division by zero is not a constant expression\n"
    "Failed to generate binaries for reader_unary TT_THROW"
)


def end_with(line):
    """End as the simulator does: one line on standard output, and nothing is flushed."""
    os.write(1, f"[12] some talk\n{line}\n".encode())
    os._exit(1)


class SimExecutor:
    def open(self, wanted):
        return ()

    def execute(self, asked, on_stage):
        case = asked.case
        on_stage(Stage.OPENING if case.op == "sim.slow" else Stage.MAKING)
        on_stage(Stage.CALLING)
        if case.op in LINES:
            end_with(LINES[case.op])
        if case.op == "sim.slow":
            time.sleep(600)
        if case.op == "sim.uncompiled":
            return Executed(case, raised=Raised("RuntimeError", COMPILE))
        if case.op == "sim.refused":
            return Executed(case, raised=Raised("RuntimeError", "TT_FATAL @ x:1: y\ninfo:\nno"))
        wrong = [2.0, 1.0, 4.0] if case.op == "sim.wrong" else [1.0, 2.0, 4.0]
        return Executed(case, compared=(Compared(0, [1.0, 2.0, 4.0], wrong, wrong),))

    def close(self):
        """Close nothing."""


class SimWorker(worker.Worker):
    def prepare(self):
        """Prepare nothing, or end as with a library of another chip."""
        if self._setup.board in WRONG_CHIPS:
            end_with(WRONG_CHIPS[self._setup.board])

    def _executor(self, framework):
        return SimExecutor()


if __name__ == "__main__":
    sys.exit(worker.main(SimWorker))

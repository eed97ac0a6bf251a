"""A verdict does not depend on the Jobs that the process executed before."""

from optrove.frameworks.executor import Executed, Raised
from optrove.model.case import Case
from optrove.model.records import DeviceKind, DeviceParameters, Job, Outcome
from optrove.replay.execute import JobExecutor
from optrove.replay.messages import WorkerSetup

FULL = Raised("RuntimeError", "TT_FATAL: Out of Memory: Not enough space to allocate 64 B")


class Board:
    """A device where each case leaves something behind, and the third finds no room."""

    def __init__(self, room):
        self.room = room
        self.left = 0
        self.resets = 0

    def open(self, wanted):
        return ()

    def reset(self):
        self.left = 0
        self.resets += 1

    def execute(self, job, on_stage):
        self.left += 1
        raised = FULL if self.left > self.room else None
        return Executed(job.case, raised=raised)


def outcomes(board, count):
    execution = JobExecutor(board, WorkerSetup("run", DeviceKind.MOCK, "n150"))
    job = Job(
        Case("ttnn.conv2d", ()),
        DeviceKind.MOCK,
        device=DeviceParameters(mesh_shape=(1, 1), l1_small_size=24576),
    )
    return [execution.attempt(job, "id", lambda _: None).outcome for _ in range(count)]


def test_memory_that_earlier_jobs_hold_is_freed_before_a_job_is_out_of_memory():
    board = Board(room=2)
    assert outcomes(board, 5) == [Outcome.PASSED] * 5
    assert board.resets == 2


def test_a_job_that_never_fits_is_out_of_memory():
    board = Board(room=0)
    assert outcomes(board, 2) == [Outcome.OUT_OF_MEMORY] * 2
    assert board.resets == 1

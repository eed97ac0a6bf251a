"""Measurements on request, and verdicts that do not depend on earlier Jobs of the process."""

import pytest

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Executed, Raised
from optrove.model.case import Case
from optrove.model.records import E2E_NS, DeviceKind, DeviceParameters, Job, Measurement, Outcome
from optrove.replay.execute import JobExecutor
from optrove.replay.judge import PEAK_L1
from optrove.replay.messages import WorkerSetup

CASE = Case("ttnn.add", ())


class Executor:
    """Takes as much memory and time as the test says; later calls may raise."""

    def __init__(self, peak, times, first, later):
        self.peak = peak
        self.times = iter((9, *times))
        self.raised = iter((first, later, later, later))

    def execute(self, job, on_stage):
        return Executed(job.case, raised=next(self.raised), duration_ns=next(self.times))

    def warm(self, job):
        return None

    def peak_l1(self, job):
        if self.peak is None:
            raise NotReplayable(f"{job.case.op} runs on this host, which has no L1")
        return self.peak


def measured(*metrics, first=None, peak=None, times=(7, 3, 5), raised=None):
    executor = Executor(peak, times, first, raised)
    execution = JobExecutor(executor, WorkerSetup("run", DeviceKind.HOST, None))
    attempt = execution.attempt(Job(CASE, DeviceKind.HOST, metrics=metrics), "id", print)
    return attempt.measurements, attempt.notes


def test_nothing_is_measured_unless_it_is_asked_for():
    assert measured() == measured("pcc") == ((), ())


def test_the_shortest_of_repeated_calls_and_the_peak_are_measured():
    expected = (Measurement(E2E_NS, 3), Measurement(PEAK_L1, 4096))
    assert measured("pcc", E2E_NS, PEAK_L1, peak=4096) == (expected, ())


@pytest.mark.parametrize("text", ["TT_FATAL: no", "No chips detected", "something else"])
def test_what_did_not_run_is_not_measured(text):
    assert measured(E2E_NS, PEAK_L1, first=Raised("RuntimeError", text), peak=1) == ((), ())


def test_what_cannot_be_measured_is_said():
    found, notes = measured(E2E_NS, PEAK_L1, raised=Raised("RuntimeError", "no room\nat all"))
    assert found == ()
    assert notes == (
        "e2e_ns was not measured: a repeated call failed: no room",
        "peak_l1_bytes was not measured: ttnn.add runs on this host, which has no L1",
    )


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

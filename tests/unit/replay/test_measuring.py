"""What is measured on request only: how long a warm call takes, and how much L1."""

import pytest

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Executed, Raised
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job, Measurement, Outcome
from optrove.replay.judge import PEAK_L1, WARM, measure_extras

CASE = Case("ttnn.add", ())


class Executor:
    """Takes as much memory as it is told; none is known if that is nothing."""

    def __init__(self, peak=None):
        self.peak = peak

    def peak_l1(self, asked):
        if self.peak is None:
            raise NotReplayable(f"{asked.case.op} runs on this host, which has no L1")
        return self.peak


def measured(*metrics, outcome=Outcome.PASSED, peak=None, times=(7, 3, 5), raised=None):
    left = iter(times)
    job = Job(CASE, DeviceKind.MOCK, metrics=metrics)
    return measure_extras(
        job, outcome, Executor(peak), lambda: Executed(raised=raised, duration_ns=next(left))
    )


def test_nothing_is_measured_unless_it_is_asked_for():
    assert measured() == measured("pcc") == ((), ())


def test_the_shortest_of_repeated_calls_and_the_peak_are_measured():
    expected = (Measurement(WARM, 3), Measurement(PEAK_L1, 4096))
    assert measured("pcc", WARM, PEAK_L1, peak=4096) == (expected, ())


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.NOT_RUN, Outcome.RAISED])
def test_what_did_not_run_is_not_measured(outcome):
    assert measured(WARM, PEAK_L1, outcome=outcome, peak=1) == ((), ())


def test_what_cannot_be_measured_is_said():
    found, notes = measured(WARM, PEAK_L1, raised=Raised("RuntimeError", "no room\nat all"))
    assert found == ()
    assert notes == (
        "e2e_ns was not measured: a repeated call said no room",
        "peak_l1_bytes was not measured: ttnn.add runs on this host, which has no L1",
    )

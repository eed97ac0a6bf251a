"""Wrong numbers, refusals of ttnn, kernels that do not compile and a simulator that cannot."""

import sys
from pathlib import Path

import pytest

from optrove.errors import SimulatorMissing
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job, Outcome
from optrove.model.values import Int
from optrove.replay import device_choice
from optrove.replay.device_choice import TargetDevice, group_by_device, resolve_device
from optrove.replay.planning import PlannedJob
from optrove.replay.runner import Workers, run_jobs
from optrove.report.attempts import replay_command
from trove_rows import case, tensor

COMMAND = (sys.executable, str(Path(__file__).parents[2] / "support" / "sim_worker.py"))


def attempt(op, board="n150", **options):
    job = Job(Case(f"sim.{op}", (("a", Int(1)),)), DeviceKind.SIMULATOR, **options)
    (found,) = run_jobs([job], board=board, workers=Workers(1, COMMAND))
    return found


@pytest.mark.parametrize(
    ("op", "outcome", "cause"),
    [
        ("add", Outcome.PASSED, None),
        ("wrong", Outcome.NUMERICS, "output 0: PCC"),
        ("refused", Outcome.REJECTED, "no"),
        ("uncompiled", Outcome.COMPILE_FAILED, "reader.cpp:36:57: error: division by zero"),
        (
            "unimplemented",
            Outcome.NOT_RUN,
            "simulator: UnimplementedFunctionality: tensix_execute_pacr: mode=3",
        ),
        ("untested", Outcome.NOT_RUN, "simulator: UntestedFunctionality: sfpu_mad"),
        ("silent", Outcome.CRASHED, "the process ended with exit code 1 while it was called"),
    ],
)
def test_verdicts_keep_the_causes_apart(op, outcome, cause):
    found = attempt(op)
    assert found.outcome is outcome
    if cause is not None:
        assert found.cause.startswith(cause)


@pytest.mark.parametrize("board", ["n150:72", "p100"])
def test_a_library_of_another_chip_is_named_before_any_case_runs(board):
    found = attempt("add", board=board)
    assert found.outcome is Outcome.NOT_RUN
    assert found.cause == "simulator: wrong chip: the library is of another architecture"


def test_a_simulator_that_is_late_says_nothing_about_the_operation():
    found = attempt("slow", timeout_ns=300_000_000)
    assert found.outcome is Outcome.NOT_RUN
    assert found.cause.startswith("simulator: too slow: no end within 0.3 s")


def test_a_refusal_costs_one_case():
    ops = ["add", "unimplemented", "wrong", "untested", "refused"]
    jobs = [
        Job(Case(f"sim.{op}", (("a", Int(place)),)), DeviceKind.SIMULATOR)
        for place, op in enumerate(ops)
    ]
    found = run_jobs(jobs, board="n150", workers=Workers(1, COMMAND))
    assert sorted(each.outcome.value for each in found) == [
        "not_run",
        "not_run",
        "numerics",
        "passed",
        "rejected",
    ]


def test_a_refusal_is_replayed_on_the_simulator():
    words = replay_command(attempt("untested"), None)
    assert words.endswith("--device sim --board n150")


@pytest.fixture
def simulators(monkeypatch):
    """A machine with ttnn and the simulator, and nothing in the environment."""
    monkeypatch.delenv("OPTROVE_BOARD", raising=False)
    monkeypatch.setattr(device_choice, "installed_package", lambda: None)
    found = []
    monkeypatch.setattr(device_choice, "find_simulator", lambda board: found.append(board.name))
    return found


@pytest.mark.parametrize(
    ("recorded", "board", "reason"),
    [
        ("n150", "n150", "the board on which they were recorded"),
        ("p100", "p100", "the board on which they were recorded"),
        ("n300", "n150", "one chip of the recorded n300"),
        ("bh-galaxy", "p150", "one chip of the recorded bh-galaxy"),
        (None, "n150", "no known board was recorded"),
    ],
)
def test_the_chip_of_the_recording_is_simulated(simulators, recorded, board, reason):
    job = Job(case("ttnn.add", a=tensor(32, 32)), DeviceKind.HOST)
    planned = PlannedJob(job, "id", board=recorded)
    groups = group_by_device([planned], *resolve_device("sim", None))
    assert list(groups) == [TargetDevice(DeviceKind.SIMULATOR, board, reason)]
    assert simulators == [board]
    assert str(next(iter(groups))) == f"a simulated {board}"


def test_a_board_that_is_named_must_have_one_chip(simulators):
    assert resolve_device("sim", "P150") == (DeviceKind.SIMULATOR, "p150")
    with pytest.raises(SimulatorMissing, match="t3k has 8 chips"):
        resolve_device("sim", "t3k")

import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from optrove.errors import NotReplayable
from optrove.model.case import Case
from optrove.model.records import Attempt, DeviceKind, Job, Outcome
from optrove.model.values import DeviceRef, Int
from optrove.replay.messages import JobWriter, WorkerSetup
from optrove.replay.ray_engine import Slot, read_reply, resource_for
from optrove.replay.runner import tasks_of
from optrove.replay.workers import (
    BudgetOver,
    OpenFailed,
    WorkerDied,
    WorkerTimeout,
    WorkerUnusable,
)
from optrove.serializer.records import record_to_builtins
from optrove.serializer.text import write

CLUSTER = {"CPU": 8.0, "galaxy": 1.0, "n300": 2.0, "node:127.0.0.1": 1.0}


def task(kind, board=None, mesh=None):
    arguments = () if mesh is None else (("device", DeviceRef("ttnn.MeshDevice", mesh)),)
    (task,) = tasks_of([Job(Case("ttnn.add", arguments), kind)], board, "run")
    return task


@pytest.mark.parametrize(
    ("mesh", "board"), [(None, "n300"), ((1, 1), "n300"), ((1, 2), "n300"), ((4, 8), "galaxy")]
)
def test_a_job_for_hardware_goes_to_the_smallest_board_that_has_its_mesh(mesh, board):
    assert resource_for(task(DeviceKind.HARDWARE, mesh=mesh), CLUSTER) == board


def test_a_board_that_is_named_is_the_one():
    assert resource_for(task(DeviceKind.HARDWARE, "galaxy", (1, 1)), CLUSTER) == "galaxy"


def test_a_mock_board_goes_where_it_is_offered_and_else_anywhere():
    assert resource_for(task(DeviceKind.MOCK, "galaxy"), CLUSTER) == "galaxy"
    assert resource_for(task(DeviceKind.SHADOW, "t3k"), CLUSTER) is None
    assert resource_for(task(DeviceKind.HOST, "galaxy"), CLUSTER) is None


@pytest.mark.parametrize(
    ("board", "mesh", "reason"),
    [
        (None, (4, 8), r"offers a board with 32 chips \(boards offered: n300\)"),
        ("galaxy", None, r"offers the board galaxy \(boards offered: n300\); start one with"),
    ],
)
def test_a_board_that_nobody_offers_is_said_with_what_there_is(board, mesh, reason):
    with pytest.raises(NotReplayable, match=reason):
        resource_for(task(DeviceKind.HARDWARE, board, mesh), {"CPU": 8.0, "n300": 2.0})


ODD = (sys.executable, str(Path(__file__).parents[2] / "support" / "odd_worker.py"))
SETUP = write(record_to_builtins(WorkerSetup("run", DeviceKind.HOST, None)))


def job(op, number=0, **options):
    return Job(Case(f"odd.{op}", (("a", Int(number)),)), DeviceKind.HOST, **options)


def replies(slot, *jobs, **limits):
    """What a slot yields for some Jobs, read as the other side reads it."""
    messages = [JobWriter().message(each).text for each in jobs]
    texts = list(slot.perform(SETUP, messages, **limits))
    return [read_reply(text, each) for text, each in zip(texts, jobs, strict=False)]


@pytest.mark.slow
def test_a_slot_answers_batch_after_batch_until_its_worker_is_lost():
    with slot_with(ODD) as slot:
        first = replies(slot, *(job("add", number) for number in range(5)))
        assert [each.outcome for each in first] == [Outcome.PASSED] * 5
        assert len({each.outputs for each in first}) == 1
        assert replies(slot, job("add"), seconds=0.0) == []
        answered, died = replies(slot, job("add", 6), job("crash"), job("add", 7))
        assert answered.outputs == first[0].outputs
        assert isinstance(died, WorkerDied)
        assert "last words" in died.last_words
        (late,) = replies(slot, job("hang", timeout_ns=300_000_000), job("add", 8))
        assert isinstance(late, WorkerTimeout)
        assert isinstance(replies(slot, job("add", 10))[0], Attempt)
        (over,) = replies(slot, job("hang"), job("add", 8), seconds=1.0)
        assert isinstance(over, BudgetOver)
        assert isinstance(replies(slot, job("add", 9))[0], Attempt)


def test_a_slot_whose_worker_cannot_open_a_device_gets_another_worker():
    case = Case("odd.add", (("device", DeviceRef("odd.Device", (5, 5))),))
    unopenable = Job(case, DeviceKind.HOST)
    with slot_with(ODD) as slot:
        assert replies(slot, unopenable, job("add")) == [OpenFailed("device 1 is not active", True)]
        assert isinstance(replies(slot, job("add"))[0], Attempt)
        assert replies(slot, unopenable) == [OpenFailed("device 1 is not active", False)]


@pytest.mark.slow
def test_a_slot_that_cannot_start_its_worker_says_so():
    with slot_with((sys.executable, "-c", "raise SystemExit('not a worker')")) as slot:
        (unable,) = replies(slot, job("add"), job("add", 1))
    assert isinstance(unable, WorkerUnusable)
    assert "not a worker" in unable.reason


@contextmanager
def slot_with(command):
    slot = Slot(command)
    try:
        yield slot
    finally:
        slot.end()

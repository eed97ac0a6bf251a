import pytest

from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job
from optrove.model.values import DeviceRef
from optrove.replay.jobs import tasks_of
from optrove.replay.messages import Ground
from optrove.replay.ray_engine import Place, by_place, place_of

CLUSTER = {"CPU": 8.0, "galaxy": 1.0, "n300": 2.0, "node:127.0.0.1": 1.0}


def task(kind, board=None, mesh=None):
    arguments = () if mesh is None else (("device", DeviceRef("ttnn.MeshDevice", mesh)),)
    (task,) = tasks_of([Job(Case("ttnn.add", arguments), kind)], Ground("run", kind, board))
    return task


@pytest.mark.parametrize(
    ("mesh", "board"), [(None, "n300"), ((1, 1), "n300"), ((1, 2), "n300"), ((4, 8), "galaxy")]
)
def test_a_job_for_hardware_goes_to_the_smallest_board_that_has_its_mesh(mesh, board):
    assert place_of(task(DeviceKind.HARDWARE, mesh=mesh), CLUSTER) == Place(board)


def test_a_board_that_is_named_is_the_one():
    assert place_of(task(DeviceKind.HARDWARE, "galaxy", (1, 1)), CLUSTER) == Place("galaxy")


def test_a_mock_board_goes_where_it_is_offered_and_else_anywhere():
    assert place_of(task(DeviceKind.MOCK, "galaxy"), CLUSTER) == Place("galaxy")
    assert place_of(task(DeviceKind.SHADOW, "t3k"), CLUSTER) == Place(None)
    assert place_of(task(DeviceKind.HOST, "galaxy"), CLUSTER) == Place(None)


def test_a_board_that_nobody_offers_is_said_with_what_there_is():
    jobs = [
        task(DeviceKind.HARDWARE, mesh=(4, 8)),
        task(DeviceKind.HARDWARE, "galaxy"),
        task(DeviceKind.HARDWARE, "n300"),
    ]
    placed, left = by_place(jobs, {"CPU": 8.0, "n300": 2.0})
    assert placed == {Place("n300"): [jobs[2]]}
    assert [each for each, _ in left] == jobs[:2]
    (meshless, named) = (reason for _, reason in left)
    assert "offers a board with 32 chips (boards offered: n300)" in meshless
    assert "offers the board galaxy (boards offered: n300); start one with" in named


def test_there_is_room_for_as_many_workers_as_boards_are_offered():
    assert Place("n300").capacity(CLUSTER) == 2
    assert Place(None).capacity(CLUSTER) == 8
    assert Place("t3k").capacity(CLUSTER) == 0

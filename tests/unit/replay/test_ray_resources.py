import pytest

from optrove.errors import NotReplayable
from optrove.model.case import Case
from optrove.model.records import DeviceKind, Job
from optrove.model.values import DeviceRef
from optrove.replay.ray_engine import resource_for
from optrove.replay.runner import tasks_of

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

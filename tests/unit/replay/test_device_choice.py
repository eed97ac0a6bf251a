import re

import pytest

from optrove.errors import FrameworkMissing, NotReplayable, UnknownBoard
from optrove.model.case import Case
from optrove.model.records import DeviceKind, DeviceParameters, Job
from optrove.model.values import DeviceRef, Int, List, TensorSpec, TtnnPlacement
from optrove.replay import device_choice
from optrove.replay.device_choice import (
    TargetDevice,
    check_device,
    device_key,
    device_parameters,
    group_by_device,
    resolve_device,
)
from optrove.replay.planning import PlannedJob
from trove_rows import case, tensor


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with ttnn and without a board, and nothing in the environment."""
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device_choice, "DEVICE_DIRECTORY", tmp_path / "tenstorrent")
    monkeypatch.setattr(device_choice, "installed_package", lambda: None)
    return tmp_path / "tenstorrent"


@pytest.fixture
def board_here(machine):
    machine.mkdir()
    (machine / "0").touch()


def planned(op="ttnn.add", board=None, mesh=(1, 1)):
    return PlannedJob(
        Job(case(op, a=tensor(32, 32, mesh=mesh)), DeviceKind.HOST), "id", board=board
    )


def where(choice, **facts):
    (found,) = group_by_device([planned(**facts)], *choice)
    return found


def test_a_board_that_is_named_is_a_mock_one():
    assert resolve_device(None, "N300") == (DeviceKind.MOCK, "n300")
    assert resolve_device("shadow", "n300") == (DeviceKind.SHADOW, "n300")
    assert where(resolve_device(None, "n300"), board="galaxy") == TargetDevice(
        DeviceKind.MOCK, "n300"
    )


def test_the_environment_chooses_where_no_option_does(monkeypatch):
    monkeypatch.setenv("OPTROVE_BOARD", "t3k")
    assert resolve_device(None, None) == (DeviceKind.MOCK, "t3k")
    monkeypatch.setenv("OPTROVE_SHADOW", "1")
    assert resolve_device(None, None) == (DeviceKind.SHADOW, "t3k")
    assert resolve_device("mock", "n150") == (DeviceKind.MOCK, "n150")


def test_without_a_choice_it_is_a_mock_of_the_recorded_board_and_that_is_said():
    found = where(resolve_device(None, None), board="galaxy", mesh=(4, 8))
    assert (found.device_kind, found.board) == (DeviceKind.MOCK, "galaxy")
    assert "recorded" in found.reason


@pytest.mark.parametrize(("mesh", "board"), [((1, 1), "n150"), ((1, 2), "n300"), ((2, 4), "t3k")])
def test_where_no_board_was_recorded_it_is_the_smallest_that_has_the_chips(mesh, board):
    found = where(resolve_device(None, None), mesh=mesh)
    assert found.board == board
    assert "no known board was recorded" in found.reason


def test_a_mesh_that_no_board_has_is_refused():
    with pytest.raises(NotReplayable, match="64 chips, more than any known board has"):
        where(resolve_device(None, None), mesh=(8, 8))


@pytest.mark.usefixtures("board_here")
def test_a_board_that_is_here_is_used_unless_a_mock_one_is_asked_for():
    assert where(resolve_device(None, None), board="n300").device_kind is DeviceKind.HARDWARE
    assert where(resolve_device("hw", None), board="n300").device_kind is DeviceKind.HARDWARE
    assert where(resolve_device("mock", None), board="n300").device_kind is DeviceKind.MOCK
    assert where(resolve_device(None, "n150"), board="n300").board == "n150"


def test_a_real_board_that_is_not_here_cannot_be_used():
    with pytest.raises(NotReplayable, match="no board in this machine"):
        resolve_device("hw", None)
    with pytest.raises(NotReplayable, match="give one of them"):
        resolve_device("hw", "n150")
    with pytest.raises(UnknownBoard):
        resolve_device(None, "n151")


def test_ops_of_other_frameworks_run_on_the_host_whatever_the_board(monkeypatch):
    def missing():
        raise FrameworkMissing("no ttnn")

    monkeypatch.setattr(device_choice, "installed_package", missing)
    assert where(resolve_device(None, "n300"), op="torch.add") == TargetDevice(DeviceKind.HOST)
    with pytest.raises(FrameworkMissing):
        where(resolve_device(None, "n300"))


def placed(mesh_shape, storage="device"):
    placement = TtnnPlacement((32, 32), "TILE", None, storage, None, mesh_shape, None)
    return TensorSpec((32, 32), "ttnn.bfloat16", placement)


def job(*values, **options):
    named = tuple((f"a{place}", value) for place, value in enumerate(values))
    return Job(Case("ttnn.add", named), DeviceKind.MOCK, **options)


@pytest.mark.parametrize(
    ("given", "said"), [("shadw", "did you mean shadow?"), ("cuda", "no case of torch is selected")]
)
def test_a_device_of_torch_is_none_for_cases_of_ttnn(given, said):
    with pytest.raises(NotReplayable, match=re.escape(said)):
        group_by_device([planned()], None, None, given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("mock", None), "--device mock is for cases of ttnn"),
        (("shadow", "n300"), "--device shadow is for cases of ttnn"),
        ((None, "n300"), "--board n300 is for cases of ttnn"),
    ],
)
def test_a_device_of_ttnn_is_none_for_cases_of_torch(given, said, monkeypatch):
    of_torch, target = planned("torch.ops.aten.silu.default"), resolve_device(*given)
    with pytest.raises(NotReplayable, match=said):
        check_device([of_torch], *target)
    check_device([of_torch, planned()], *target)
    check_device([of_torch], None, None)
    monkeypatch.setenv("OPTROVE_BOARD", "t3k")
    check_device([of_torch], *resolve_device(None, None))


def test_the_mesh_is_that_of_the_tensors():
    assert device_parameters(job(placed((2, 4)))).mesh_shape == (2, 4)


def test_the_mesh_is_that_of_the_largest_device_at_any_depth():
    found = device_parameters(job(List((DeviceRef("ttnn.MeshDevice", (4, 8)),)), placed((1, 1))))
    assert found.mesh_shape == (4, 8)


def test_a_tensor_of_which_no_mesh_is_known_needs_one_chip():
    assert device_parameters(job(placed(None))).mesh_shape == (1, 1)


def test_a_case_on_the_host_needs_no_device():
    assert device_parameters(job(Int(3), placed(None, "host"))).mesh_shape is None


def test_recorded_parameters_stay_and_the_mesh_is_the_tensors_own():
    parameters = DeviceParameters(mesh_shape=(4, 8), fabric_config="FABRIC_2D", l1_small_size=1024)
    found = device_parameters(job(placed((1, 8)), device=parameters))
    assert found == DeviceParameters((1, 8), "FABRIC_2D", l1_small_size=1024)


def test_jobs_with_the_same_needs_share_a_device():
    one, other = job(placed((1, 2))), job(placed((1, 2)), Int(1))
    assert device_key(one, "n300") == device_key(other, "n300")
    assert device_key(one, "n300") != device_key(job(placed((2, 1))), "n300")
    assert device_key(one, "n300").arch == "wormhole_b0"

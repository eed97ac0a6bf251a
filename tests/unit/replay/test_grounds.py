import pytest

from optrove.errors import FrameworkMissing, NotReplayable, UnknownBoard
from optrove.model.records import DeviceKind, Job
from optrove.replay import device_choice as grounds
from optrove.replay.device_choice import Choice, Where, grouped, settled
from optrove.replay.planning import Planned
from trove_rows import case, tensor


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine with ttnn and without a board, and nothing in the environment."""
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(grounds, "DEVICE_DIRECTORY", tmp_path / "tenstorrent")
    monkeypatch.setattr(grounds, "installed_package", lambda: None)
    return tmp_path / "tenstorrent"


@pytest.fixture
def board_here(machine):
    machine.mkdir()
    (machine / "0").touch()


def planned(op="ttnn.add", board=None, mesh=(1, 1)):
    return Planned(Job(case(op, a=tensor(32, 32, mesh=mesh)), DeviceKind.HOST), "id", board=board)


def where(choice, **facts):
    (found,) = grouped([planned(**facts)], choice)
    return found


def test_a_board_that_is_named_is_a_mock_one():
    assert settled(None, "N300") == Choice(DeviceKind.MOCK, "n300")
    assert settled("shadow", "n300") == Choice(DeviceKind.SHADOW, "n300")
    assert where(settled(None, "n300"), board="galaxy") == Where(DeviceKind.MOCK, "n300")


def test_the_environment_chooses_where_no_option_does(monkeypatch):
    monkeypatch.setenv("OPTROVE_BOARD", "t3k")
    assert settled(None, None) == Choice(DeviceKind.MOCK, "t3k")
    monkeypatch.setenv("OPTROVE_SHADOW", "1")
    assert settled(None, None) == Choice(DeviceKind.SHADOW, "t3k")
    assert settled("mock", "n150") == Choice(DeviceKind.MOCK, "n150")


def test_without_a_choice_it_is_a_mock_of_the_recorded_board_and_that_is_said():
    found = where(settled(None, None), board="galaxy", mesh=(4, 8))
    assert (found.device_kind, found.board) == (DeviceKind.MOCK, "galaxy")
    assert "recorded" in found.why


@pytest.mark.parametrize(("mesh", "board"), [((1, 1), "n150"), ((1, 2), "n300"), ((2, 4), "t3k")])
def test_where_no_board_was_recorded_it_is_the_smallest_that_has_the_chips(mesh, board):
    found = where(settled(None, None), mesh=mesh)
    assert found.board == board
    assert "no known board was recorded" in found.why


def test_a_mesh_that_no_board_has_is_refused():
    with pytest.raises(NotReplayable, match="64 chips, more than any known board has"):
        where(settled(None, None), mesh=(8, 8))


@pytest.mark.usefixtures("board_here")
def test_a_board_that_is_here_is_used_unless_a_mock_one_is_asked_for():
    assert where(settled(None, None), board="n300").device_kind is DeviceKind.HARDWARE
    assert where(settled("hw", None), board="n300").device_kind is DeviceKind.HARDWARE
    assert where(settled("mock", None), board="n300").device_kind is DeviceKind.MOCK
    assert where(settled(None, "n150"), board="n300").board == "n150"


def test_a_real_board_that_is_not_here_cannot_be_used():
    with pytest.raises(NotReplayable, match="no board in this machine"):
        settled("hw", None)
    with pytest.raises(NotReplayable, match="give one of them"):
        settled("hw", "n150")
    with pytest.raises(UnknownBoard):
        settled(None, "n151")


def test_ops_of_other_frameworks_run_on_the_host_whatever_the_board(monkeypatch):
    def missing():
        raise FrameworkMissing("no ttnn")

    monkeypatch.setattr(grounds, "installed_package", missing)
    assert where(settled(None, "n300"), op="torch.add") == Where(DeviceKind.HOST)
    with pytest.raises(FrameworkMissing):
        where(settled(None, "n300"))

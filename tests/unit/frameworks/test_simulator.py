"""The simulator is found in OPTROVE_SIM, or the answer names its two downloads."""

import pytest

from optrove.errors import SimulatorMissing, UnknownBoard
from optrove.frameworks.ttnn.board import simulator
from optrove.frameworks.ttnn.board.runtime import prepare
from optrove.frameworks.ttnn.board.simulator import (
    Simulator,
    compiler_version,
    find_simulator,
    pinned_compiler,
    simulated_board,
)
from optrove.frameworks.ttnn.board.table import BOARDS
from sim_directory import fake_package, fake_simulator

SFPI = "https://github.com/tenstorrent/sfpi/releases/download/7.89.0/sfpi_7.89.0_x86_64_debian.txz"


@pytest.fixture(autouse=True)
def package(monkeypatch, tmp_path):
    """An installed ttnn, on Debian, without a simulator."""
    found = fake_package(tmp_path / "ttnn")
    monkeypatch.setattr(simulator, "installed_package", lambda: found)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "debian"})
    monkeypatch.delenv("OPTROVE_SIM", raising=False)
    return found


def test_a_directory_with_both_downloads_is_the_simulator(monkeypatch, tmp_path):
    place = fake_simulator(tmp_path / "sim", "libttsim_wh.so", "libttsim_bh.so")
    monkeypatch.setenv("OPTROVE_SIM", str(place))
    for board, library in (("n150", "libttsim_wh.so"), ("p150", "libttsim_bh.so")):
        assert find_simulator(BOARDS[board]) == Simulator(place / library, place / "sfpi")


def test_without_it_one_sentence_names_both_downloads_and_where_they_go():
    with pytest.raises(SimulatorMissing) as raised:
        find_simulator(BOARDS["n150"])
    text = str(raised.value)
    assert "set OPTROVE_SIM to a directory" in text
    assert "libttsim_wh.so from https://github.com/tenstorrent/ttsim/releases" in text
    assert f"{SFPI} (sha256 d00d) and unpack it as $OPTROVE_SIM/sfpi" in text
    assert "libttsim_bh.so" not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("libraries", "board", "missing"),
    [
        (["libttsim_wh.so"], "p150", "the simulator is missing: download libttsim_bh.so"),
        ([], "n150", "the simulator is missing: download libttsim_wh.so"),
    ],
)
def test_only_what_is_missing_is_named(monkeypatch, tmp_path, libraries, board, missing):
    monkeypatch.setenv("OPTROVE_SIM", str(fake_simulator(tmp_path / "sim", *libraries)))
    with pytest.raises(SimulatorMissing) as raised:
        find_simulator(BOARDS[board])
    assert str(raised.value).startswith(missing)
    assert "sfpi" not in str(raised.value)


def test_boards_of_several_chips_are_not_simulated():
    with pytest.raises(SimulatorMissing, match=r"n300 has 2 chips.* one chip: n150, p100, p150"):
        simulated_board("n300")
    with pytest.raises(UnknownBoard):
        simulated_board("n9000")
    assert simulated_board("P150").name == "p150"


def test_the_wheel_pins_a_compiler_for_each_system(monkeypatch):
    assert str(pinned_compiler()) == f"{SFPI} (sha256 d00d)"
    rocky = {"ID": "rocky", "ID_LIKE": "rhel centos fedora"}
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: rocky)
    assert pinned_compiler().file == "sfpi_7.89.0_x86_64_fedora.txz"
    assert pinned_compiler().checksum == "sha256 f00d"


def test_a_ttnn_that_pins_no_compiler_is_too_old(package):
    (package / "tt_metal" / "sfpi-version").unlink()
    with pytest.raises(SimulatorMissing, match="does not name its compiler"):
        pinned_compiler()


def test_a_compiler_tells_its_version(tmp_path):
    assert compiler_version(fake_simulator(tmp_path, version="7.72.0") / "sfpi") == "7.72.0"
    assert compiler_version(tmp_path / "nowhere") is None


def test_the_runtime_of_a_simulated_board_has_the_real_compiler(monkeypatch, tmp_path, package):
    chips = package / "tt_metal" / "soc_descriptors"
    chips.mkdir()
    (chips / "blackhole_140_arch.yaml").write_text("a chip")
    place = fake_simulator(tmp_path / "sim", "libttsim_bh.so")
    runtime_module = "optrove.frameworks.ttnn.board.runtime.installed_package"
    monkeypatch.setattr(runtime_module, lambda: package)
    found = Simulator(place / "libttsim_bh.so", place / "sfpi")
    runtimes = [prepare(BOARDS["p150"], tmp_path / "cache", found) for _ in range(2)]
    variables = runtimes[0].variables()
    assert runtimes[1].variables() == variables  # all processes share the compiled kernels
    library = variables["TT_METAL_SIMULATOR"]
    assert library == str(runtimes[0].root.parent / "libttsim.so")
    assert (runtimes[0].root.parent / "soc_descriptor.yaml").read_text() == "a chip"
    assert (runtimes[0].root / "runtime" / "sfpi").resolve() == place / "sfpi"
    assert variables["TT_METAL_SLOW_DISPATCH_MODE"] == "1"
    assert variables["TT_METAL_DISABLE_SFPLOADMACRO"] == "1"
    mock = prepare(BOARDS["p150"], tmp_path / "cache").variables()
    assert mock["TT_METAL_CACHE"] != variables["TT_METAL_CACHE"]
    assert mock["TT_METAL_SIMULATOR"] is None

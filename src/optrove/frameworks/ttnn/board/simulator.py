"""Run the real ttnn, kernels included, on a simulated board in this process.

The simulator is ttsim, a library for each chip architecture that ttnn opens like a board. ttnn
compiles its kernels with the RISC-V compiler of sfpi, which its wheel pins and does not ship. Both
are downloads of their vendor; the directory that OPTROVE_SIM names holds them:

    libttsim_wh.so, libttsim_bh.so      the chips: Wormhole, Blackhole
    sfpi/                               the compiler, as its archive unpacks

Nothing is ever downloaded here. The simulator has one chip, and a process can use one chip library.
"""

from __future__ import annotations

import platform
import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.errors import SimulatorMissing
from optrove.frameworks.ttnn.board.mock import entered, runtime_for
from optrove.frameworks.ttnn.board.runtime import installed_package, installed_version, prepare
from optrove.frameworks.ttnn.board.table import BOARDS, find_board
from optrove.settings import SIM, cache_directory, simulator_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.frameworks.ttnn.board.table import Board

LIBRARIES: Final = {"wormhole_b0": "libttsim_wh.so", "blackhole": "libttsim_bh.so"}
RELEASES: Final = "https://github.com/tenstorrent/ttsim/releases"
COMPILER: Final = "compiler/bin/riscv-tt-elf-g++"

_ASSIGNMENT: Final = re.compile(r"^(\w+)='([^']*)'", re.MULTILINE)
_VERSION: Final = re.compile(r"sfpi[\w-]*:(\d+(?:\.\d+)+)")
_VERSION_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Simulator:
    """The files of the simulator for one chip: its library, and the directory of the compiler."""

    library: Path
    sfpi: Path


@dataclass(frozen=True, slots=True)
class PinnedCompiler:
    """The compiler that the installed ttnn was released with, and its download."""

    version: str
    url: str
    file: str
    checksum: str | None

    def __str__(self) -> str:
        checksum = "" if self.checksum is None else f" ({self.checksum})"
        return f"{self.url}/{self.file}{checksum}"


@contextmanager
def sim_board(name: str) -> Iterator[Board]:
    """Run the real ttnn with its real kernels on a simulated board inside the block.

    Boards of one chip can be simulated. Numbers are those that the chip computes; small tensors
    take milliseconds, large ones minutes. A kernel that the simulator does not support ends the
    process. ttnn stays on this board until the process ends. Raises SimulatorMissing if OPTROVE_SIM
    does not contain the simulator.

    >>> import optrove
    >>> with optrove.sim_board("n150"):  # doctest: +SKIP
    ...     import ttnn
    ...     device = ttnn.open_device(device_id=0)
    """
    board = simulated_board(name)
    simulator = find_simulator(board)
    runtime = runtime_for(
        board, "sim_board", lambda: prepare(board, cache_directory(), simulator), simulated=True
    )
    with entered(runtime):
        yield board


def simulated_board(name: str) -> Board:
    """Return the board called ``name``; SimulatorMissing for one that cannot be simulated."""
    board = find_board(name)
    if board.chips > 1:
        names = ", ".join(each.name for each in BOARDS.values() if each.chips == 1)
        raise SimulatorMissing(
            f"{board.name} has {board.chips} chips, and the simulator runs boards of one chip: "
            f"{names}. Links between chips do not work there yet"
        )
    return board


def find_simulator(board: Board) -> Simulator:
    """Return the simulator for a board; SimulatorMissing says which downloads are missing."""
    installed_package()
    directory = simulator_directory()
    missing = missing_downloads(directory, (board.arch,))
    if missing or directory is None:
        raise SimulatorMissing(f"the simulator is missing: {'; '.join(missing)}")
    return Simulator(directory / LIBRARIES[board.arch], directory / "sfpi")


def missing_downloads(directory: Path | None, archs: tuple[str, ...]) -> list[str]:
    """Return the downloads that the directory of OPTROVE_SIM lacks, and where they go."""
    place = f"${SIM.name}"
    libraries = [
        LIBRARIES[arch]
        for arch in archs
        if directory is None or not (directory / LIBRARIES[arch]).is_file()
    ]
    missing = []
    if directory is None:
        missing.append(f"set {SIM.name} to a directory for its two downloads")
    if libraries:
        missing.append(f"download {' and '.join(libraries)} from {RELEASES} to {place}")
    if directory is None or not (directory / "sfpi" / COMPILER).is_file():
        missing.append(f"download {pinned_compiler()} and unpack it as {place}/sfpi")
    return missing


def pinned_compiler() -> PinnedCompiler:
    """Return the compiler that the installed ttnn pins."""
    file = installed_package() / "tt_metal" / "sfpi-version"
    try:
        facts = dict(_ASSIGNMENT.findall(file.read_text()))
        version, repository = facts["sfpi_version"], facts["sfpi_repo"]
    except (OSError, KeyError) as error:
        raise SimulatorMissing(
            f"the installed ttnn {installed_version()} does not name its compiler ({file}: "
            f"{error}); the simulator needs ttnn 0.78 or later from its wheel"
        ) from error
    system = f"{platform.machine()}_{_distribution()}"
    checksum = facts.get(f"sfpi_{system}_txz_hash")
    kind = facts.get("sfpi_hashtype", "sha256")
    return PinnedCompiler(
        version=version,
        url=f"{repository}/releases/download/{version}",
        file=f"sfpi_{version}_{system}.txz",
        checksum=None if checksum is None else f"{kind} {checksum}",
    )


def compiler_version(sfpi: Path) -> str | None:
    """Return the version that an sfpi compiler reports; None if it does not run or has none."""
    try:
        done = subprocess.run(  # noqa: S603 - the compiler of OPTROVE_SIM
            [str(sfpi / COMPILER), "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stdout.partition("\n")[0])
    return None if found is None else found[1]


def _distribution() -> str:
    """Return the name that sfpi's archives have for this system."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "debian"
    names = {release.get("ID", ""), *release.get("ID_LIKE", "").split()}
    return "fedora" if names & {"fedora", "rhel"} else "debian"

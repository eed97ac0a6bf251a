"""Prepare the runtime of a mock or simulated board: compiler, descriptor, cache.

ttnn builds firmware when it opens a device and kernels when it calls an op, with a RISC-V compiler
that its wheel does not ship. On a mock board the results are parsed and then dropped, so this one
serves: a shell script that writes an empty object with its dependency file, or the smallest ELF
file that ttnn's loader accepts. Being a shell script without any further process, it costs about
a millisecond per call.

The descriptor is JSON, which every YAML reader takes, so no YAML library is needed to write it.

    <cache>/ttnn-<version>-<digest>/<board>/
        fixed/cluster.yaml      the cluster descriptor
        fixed/metal/            the runtime root: links into the installed ttnn, and our compiler
        fixed/all-cores.yaml    n150, galaxy: core descriptors for ttnn's check of kernel placement
        metal-<n>/              n150, galaxy: the runtime root of the process that holds jit-<n>
        lock                    held while fixed/ is made or mended
        jit-<n>.lock            held by the process that uses the kernel cache <n>
        jit-<n>-<generation>/   that kernel cache; child processes share their parent's
    <cache>/ttnn-<version>-<digest>/sim-<board>/
        fixed/                  the same with the real compiler, the simulator's library, and the
                                description of its chip, which ttnn expects beside the library
        kernels/                compiled kernels, shared by all processes: ttnn renames whole files

The digest covers where ttnn is installed and everything that is written, so another ttnn or
another optrove never meets files that do not fit. ``fixed`` appears by one rename; a process that
finds it damaged recreates it under the lock. A kernel cache whose owner did not end in order is
left for a new generation by its next owner. All locks end with their process, however it ends.

On a mock board, ttnn checks the placement of kernels against the grid of the default dispatch
cores, whichever the device was opened with, so that a device with dispatch cores in a column is
refused cores that it has. It reads that grid when the first op is called, and the device's own grid
when the device is opened. So the descriptor that it finds has all cores, except during opening.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from platform import machine, python_version
from typing import IO, TYPE_CHECKING, Any

from optrove.errors import FrameworkMissing, UnusableCache
from optrove.settings import CACHE, home_for_ttnn, is_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.frameworks.ttnn.board.simulator import Simulator
    from optrove.frameworks.ttnn.board.table import Board, Harvesting


# ttnn looks for the compiler here, below its runtime root.
LOCATION = "runtime/sfpi/compiler/bin/riscv-tt-elf-g++"

# Hashed into ttnn's cache keys; raise it whenever the outputs change.
VERSION_LINE = "optrove null compiler 1"

MACHINE_RISCV = 243
R_RISCV_RELAX = 51
NOP = bytes.fromhex("13000000")
LOAD_ADDRESS = 0x1000
NAMES = (b"", b".text", b".rela.text", b".symtab", b".strtab", b".shstrtab")


def empty_program() -> bytes:
    """Return an ELF32 RISC-V executable of four no-operations.

    ttnn's loader wants one PT_LOAD segment that holds ``.text`` and starts at the entry point, and
    at least one relocation section for it ("there are no relocation sections" otherwise).
    """
    text = NOP * 4
    relocations = struct.pack("<IIi", LOAD_ADDRESS, R_RISCV_RELAX, 0)
    symbols = bytes(16) + struct.pack("<IIIBBH", 1, LOAD_ADDRESS, len(text), 0x12, 0, 1)
    strings = b"\0_start\0\0\0\0\0"
    names = b"\0".join(NAMES) + b"\0"
    names += bytes(-len(names) % 4)
    bodies = (text, relocations, symbols, strings, names)
    header_size, segment_size, section_size = 52, 32, 40
    offsets = [header_size + segment_size]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    sections_at = offsets.pop()

    # Per section: type, flags, address, link, info, alignment, entry size.
    kinds = (
        (1, 6, LOAD_ADDRESS, 0, 0, 4, 0),
        (4, 0, 0, 3, 1, 4, 12),
        (2, 0, 0, 4, 1, 4, 16),
        (3, 0, 0, 0, 0, 1, 0),
        (3, 0, 0, 0, 0, 1, 0),
    )
    sections = bytes(section_size)
    for name, kind, offset, body in zip(NAMES[1:], kinds, offsets, bodies, strict=True):
        type_, flags, address, link, info, alignment, entry = kind
        name_at = names.index(b"\0" + name + b"\0") + 1
        sections += struct.pack(
            "<10I", name_at, type_, flags, address, offset, len(body), link, info, alignment, entry
        )
    header = b"\x7fELF\x01\x01\x01" + bytes(9)
    header += struct.pack("<HHIII", 2, MACHINE_RISCV, 1, LOAD_ADDRESS, header_size)
    header += struct.pack("<IIHHHHHH", sections_at, 0, header_size, segment_size, 1, 40, 6, 5)
    segment = struct.pack(
        "<8I", 1, offsets[0], LOAD_ADDRESS, LOAD_ADDRESS, len(text), len(text), 5, 4
    )
    return header + segment + b"".join(bodies) + sections


def compiler_script() -> str:
    """Return the shell script that stands in for the compiler.

    The dependency file of an object must name one existing file, or ttnn fails when it renames
    the file's hash; the script names itself.
    """
    program = "".join(f"\\{byte:03o}" for byte in empty_program())
    return f"""\
#!/bin/sh
# Written by optrove: stands in for the RISC-V compiler on mock boards, where no kernel ever runs.
output=
while [ $# -gt 0 ]; do
  case $1 in
    --version) echo "{VERSION_LINE}"; exit 0 ;;
    -o) output=$2; shift ;;
  esac
  shift
done
case $output in
  "") ;;
  *.elf) printf '{program}' > "$output" ;;
  *) : > "$output"; printf '%s: %s\\n' "$output" "$0" > "${{output%.*}}.d" ;;
esac
"""


# The mock cluster only needs chip ids that differ; this is where ours start counting.
FIRST_UNIQUE_ID = 0x0135313930300000


def cluster_descriptor(board: Board) -> str:
    """Return the text of the board's cluster descriptor."""
    chips = range(board.chips)
    wormhole_pair = board.arch == "wormhole_b0" and not board.slots
    document: dict[str, Any] = {
        "arch": {str(chip): board.arch for chip in chips},
        "chips": _ethernet_coordinates(board) if wormhole_pair else {},
        "chip_unique_ids": {str(chip): FIRST_UNIQUE_ID + chip for chip in chips},
        "ethernet_connections": [
            [
                {"chip": link.chip, "chan": link.channel},
                {"chip": link.other_chip, "chan": link.other_channel},
            ]
            for link in board.links
        ],
        "ethernet_connections_to_remote_devices": [],
        "chips_with_mmio": [{str(chip): chip} for chip in board.mmio],
        "io_device_type": "PCIe",
        "harvesting": {str(chip): _harvesting(board.harvesting[chip]) for chip in chips},
        "boards": [
            [{"board_id": card.id}, {"board_type": card.type}, {"chips": list(card.chips)}]
            for card in board.cards
        ],
    }
    if board.slots:
        slots = list(enumerate(board.slots))
        document["chip_to_bus_id"] = {str(chip): f"{slot.bus:#06x}" for chip, slot in slots}
        document["asic_locations"] = {str(chip): slot.place for chip, slot in slots}
    return json.dumps(document, indent=1) + "\n"


def _harvesting(harvesting: Harvesting) -> dict[str, Any]:
    return {
        "noc_translation": True,
        "harvest_mask": harvesting.tensix,
        "dram_harvesting_mask": harvesting.dram,
        "eth_harvesting_mask": harvesting.ethernet,
        "pcie_harvesting_mask": harvesting.pcie,
        "l2cpu_harvesting_mask": 0,
    }


def _ethernet_coordinates(board: Board) -> dict[str, list[int]]:
    """Place the chips of N150, N300 and T3K on the ethernet grid, [x, y, rack, shelf]."""
    places = {1: [(0, 0)], 2: [(0, 0), (1, 0)], 8: _T3K_PLACES}[board.chips]
    return {str(chip): [x, y, 0, 0] for chip, (x, y) in enumerate(places)}


# Two rows of four: the cards' PCIe chips in the middle, their second chips at the ends.
_T3K_PLACES = [(1, 0), (1, 1), (2, 0), (2, 1), (0, 0), (0, 1), (3, 0), (3, 1)]


# Variables for real devices and running kernels. On a mock board they hide its chips, wait for
# an answer that never comes, or abort the process.
MISLEADING = (
    "TT_VISIBLE_DEVICES",
    "TT_METAL_VISIBLE_DEVICES",
    "TT_METAL_SIMULATOR",
    "TT_METAL_WATCHER",
    "TT_METAL_DPRINT_CORES",
    "TT_METAL_DPRINT_ETH_CORES",
    "TT_METAL_DEVICE_PROFILER",
    "TT_METAL_CCACHE_KERNEL_SUPPORT",
)

# The runtime root that optrove sets for ttnn; programs look there for files of their own.
ROOT_VARIABLE = "TT_METAL_RUNTIME_ROOT"

CORE_DESCRIPTORS = "tt_metal/core_descriptors"
WORMHOLE_DESCRIPTOR = "wormhole_b0_80_arch.yaml"
WORMHOLE_ROWS = 10

# By how many rows of a Wormhole chip are harvested.
WORMHOLE_PRODUCTS = ("galaxy", "nebula_x1", "nebula_x2")

# Among the fixed files of boards where ttnn's check of kernel placement needs a grid of its own.
ALL_CORES = "all-cores.yaml"

# What the lock of a kernel cache says about its last owner.
IN_USE = "in use"
ENDED_IN_ORDER = "ended in order"


@dataclass(frozen=True, slots=True)
class SymbolicLink:
    """A symbolic link to be made."""

    target: Path


@dataclass(frozen=True, slots=True)
class Script:
    """A text file to be made, executable if asked."""

    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class CoreDescriptors:
    """The link by which ttnn finds its core descriptors, and the two files that it points to."""

    link: Path
    own: Path
    all_cores: Path

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Show ttnn its own descriptors inside the block, and those with all cores afterwards."""
        _point(self.link, self.own)
        try:
            yield
        finally:
            _point(self.link, self.all_cores)


@dataclass(slots=True)
class Runtime:
    """The prepared files of one board, and the kernel cache that this process uses.

    ``lock`` is held while the cache is this process's own, ``simulator`` is the library of a
    simulated board. ``is_entered`` inside ``mock_board`` or ``sim_board``, where the environment
    has the variables.
    """

    board: str
    descriptor: Path
    root: Path
    kernels: Path
    lock: IO[str] | None
    slow_dispatch: bool
    is_fast_mesh: bool
    core_descriptors: CoreDescriptors | None
    simulator: Path | None = None
    is_entered: bool = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Note inside the block that the environment has the variables."""
        self.is_entered = True
        try:
            yield
        finally:
            self.is_entered = False

    def variables(self) -> dict[str, str | None]:
        """Return the environment that puts ttnn on the board."""
        variables: dict[str, str | None] = dict.fromkeys(MISLEADING)
        variables.update(home_for_ttnn())
        variables["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = str(self.descriptor)
        variables[ROOT_VARIABLE] = f"{self.root}/"
        variables["TT_METAL_CACHE"] = f"{self.kernels / 'kernels'}/"
        # ttnn would otherwise write a folder called generated into the working directory.
        variables["TT_METAL_LOGS_PATH"] = f"{self.kernels / 'logs'}/"
        if self.simulator is not None:
            variables["TT_METAL_SIMULATOR"] = str(self.simulator)
            # The simulator does not execute macros of vector instructions.
            variables["TT_METAL_DISABLE_SFPLOADMACRO"] = "1"
        if self.slow_dispatch:
            variables["TT_METAL_SLOW_DISPATCH_MODE"] = "1"
        # The C++ log repeats on stdout what the exceptions say.
        if not is_set("TT_LOGGER_LEVEL"):
            variables["TT_LOGGER_LEVEL"] = "off"
        return variables


def prepare(board: Board, cache: Path, simulator: Simulator | None = None) -> Runtime:
    """Make or find the files of a mock board, or of a simulated one, and a kernel cache."""
    if any(character.isspace() for character in str(cache)):
        raise UnusableCache(
            f"mock boards' files cannot be kept in {str(cache)!r}: ttnn calls its compiler there "
            f"through a shell, and the path has a space. Set {CACHE.name} to a path without one"
        )
    try:
        return _prepare(board, cache, simulator)
    except OSError as error:
        raise UnusableCache(
            f"mock boards' files cannot be kept in {cache}: {error}. "
            f"Set {CACHE.name} to a directory that this user can write"
        ) from error


def _prepare(board: Board, cache: Path, simulator: Simulator | None) -> Runtime:
    package = installed_package()
    parts = _parts(board, package, simulator)
    digest = hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:12]
    # A colon would separate two paths where the compiler is called.
    directory = board.name.replace(":", "-")
    name = directory if simulator is None else f"sim-{directory}"
    home = cache / f"ttnn-{installed_version()}-{digest}" / name
    home.mkdir(parents=True, exist_ok=True)
    fixed = home / "fixed"
    if not _is_whole(fixed, parts) or any(home.glob("making-*")):
        with _locked(home / "lock"):
            _mend(fixed, parts)
    root = fixed / "metal"
    if simulator is not None:
        return Runtime(
            board=board.name,
            descriptor=fixed / "cluster.yaml",
            root=root,
            kernels=home,
            lock=None,
            # Without dispatch cores, which the simulator does not have.
            slow_dispatch=True,
            is_fast_mesh=False,
            core_descriptors=None,
            simulator=fixed / _LIBRARY,
        )
    number, kernels, lock = _take_kernel_cache(home)
    descriptors = None
    if ALL_CORES in parts:
        root = home / f"metal-{number}"
        link = root / CORE_DESCRIPTORS / WORMHOLE_DESCRIPTOR
        own = package / CORE_DESCRIPTORS / WORMHOLE_DESCRIPTOR
        descriptors = CoreDescriptors(link, own, fixed / ALL_CORES)
        _link_root(root, fixed / "metal", link)
        _point(link, own)
    return Runtime(
        board=board.name,
        descriptor=fixed / "cluster.yaml",
        root=root,
        kernels=kernels,
        lock=lock,
        slow_dispatch=board.slow_dispatch,
        is_fast_mesh=board.chips > 1 and not board.slow_dispatch,
        core_descriptors=descriptors,
    )


def _link_root(root: Path, fixed: Path, link: Path) -> None:
    """Make a runtime root of links into the fixed one, except for the directories of ``link``."""
    own = [root / path for path in link.relative_to(root).parents]
    for directory in reversed(own):
        directory.mkdir(parents=True, exist_ok=True)
        for entry in (fixed / directory.relative_to(root)).iterdir():
            path = directory / entry.name
            if path != link and path not in own:
                _point(path, entry)


def _point(link: Path, target: Path) -> None:
    """Make a symbolic link point to ``target``, in one step."""
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f".{link.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


def installed_package() -> Path:
    """Return where ttnn is installed, without importing it."""
    spec = find_spec("ttnn")
    # A mere folder called ttnn, as in a checkout of tt-metal, has no loader of its own.
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        raise FrameworkMissing(
            f"a mock board runs the real ttnn, which is not installed in this Python "
            f"{python_version()} ({machine()}). Wheels exist for CPython 3.10 and 3.12 on Linux "
            f"x86_64: use one of these and run: pip install 'optrove[ttnn]' "
            f"(in a checkout of optrove: pip install -e '.[ttnn]')"
        )
    package = Path(spec.submodule_search_locations[0]).resolve()
    if not (package / "tt_metal").is_dir():
        raise FrameworkMissing(
            f"the ttnn in {package} has no tt_metal folder, so it was not installed from a wheel; "
            f"mock boards need the wheel: pip install 'optrove[ttnn]'"
        )
    return package


def installed_version() -> str:
    """Return the version in the metadata of the installed ttnn."""
    try:
        return version("ttnn")
    except PackageNotFoundError:
        return "unknown"


_LIBRARY = "libttsim.so"
_CHIPS = {"wormhole_b0": "wormhole_b0_80_arch.yaml", "blackhole": "blackhole_140_arch.yaml"}


def _parts(
    board: Board, package: Path, simulator: Simulator | None
) -> dict[str, SymbolicLink | Script]:
    """Return every file and link of ``fixed``, by its path."""
    parts: dict[str, SymbolicLink | Script] = {
        f"metal/{entry.name}": SymbolicLink(entry)
        for entry in package.iterdir()
        if entry.name not in ("runtime", "__pycache__")
    }
    parts["metal/runtime/hw"] = SymbolicLink(package / "runtime" / "hw")
    parts["cluster.yaml"] = Script(cluster_descriptor(board))
    if simulator is not None:
        parts["metal/runtime/sfpi"] = SymbolicLink(simulator.sfpi)
        parts[_LIBRARY] = SymbolicLink(simulator.library)
        chip = package / "tt_metal" / "soc_descriptors" / _CHIPS[board.arch]
        parts["soc_descriptor.yaml"] = SymbolicLink(chip)
        return parts
    parts[f"metal/{LOCATION}"] = Script(compiler_script(), 0o755)
    if board.arch == "wormhole_b0" and not board.slow_dispatch:
        own = (package / CORE_DESCRIPTORS / WORMHOLE_DESCRIPTOR).read_text()
        harvested = board.harvesting[0].tensix.bit_count()
        parts[ALL_CORES] = Script(descriptors_with_all_cores(own, harvested))
    return parts


def descriptors_with_all_cores(text: str, harvested: int) -> str:
    """Return Wormhole's core descriptors with all cores of a chip in its default compute grid.

    ``harvested`` is how many rows of the chip are harvested.
    """
    product, last_row = WORMHOLE_PRODUCTS[harvested], WORMHOLE_ROWS - harvested - 1
    default_grid = rf"(^{product}:\n  row:\n    1:\n(?:.*\n)*?\s+end: \[\d+, )\d+"
    return re.sub(default_grid, rf"\g<1>{last_row}", text, count=1, flags=re.MULTILINE)


def _is_whole(fixed: Path, parts: dict[str, SymbolicLink | Script]) -> bool:
    try:
        return all(_matches(fixed / name, part) for name, part in parts.items())
    except OSError:
        return False


def _matches(path: Path, part: SymbolicLink | Script) -> bool:
    if isinstance(part, SymbolicLink):
        return path.is_symlink() and path.readlink() == part.target
    return path.read_text() == part.text and path.stat().st_mode & 0o777 == part.mode


def _mend(fixed: Path, parts: dict[str, SymbolicLink | Script]) -> None:
    """Make ``fixed`` whole; the caller holds the lock, so all other files here are debris."""
    for debris in fixed.parent.glob("making-*"):
        shutil.rmtree(debris)
    if _is_whole(fixed, parts):
        return
    making = Path(tempfile.mkdtemp(prefix="making-", dir=fixed.parent))
    new = making / "new"
    for name, part in parts.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(part, SymbolicLink):
            path.symlink_to(part.target)
        else:
            path.write_text(part.text)
            path.chmod(part.mode)
    if fixed.exists():
        fixed.rename(making / "old")
    new.rename(fixed)
    shutil.rmtree(making)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _take_kernel_cache(home: Path) -> tuple[int, Path, IO[str]]:
    """Take the first kernel cache that no living process holds; it is ours until we end."""
    for number in count():
        lock = (home / f"jit-{number}.lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        lock.seek(0)
        generations = {int(path.name.split("-")[2]) for path in home.glob(f"jit-{number}-*")}
        generation = max(generations, default=0)
        if generations and lock.read() != ENDED_IN_ORDER:
            generation += 1
        _write(lock, IN_USE)
        atexit.register(_end_in_order, lock)
        for left in generations - {generation}:
            # A child of the process that was killed may still write there: what cannot be
            # removed now is removed by a later process.
            shutil.rmtree(home / f"jit-{number}-{left}", ignore_errors=True)
        kernels = home / f"jit-{number}-{generation}"
        kernels.mkdir(exist_ok=True)
        return number, kernels, lock
    raise AssertionError("unreachable: count() does not end")


def _end_in_order(lock: IO[str]) -> None:
    _write(lock, ENDED_IN_ORDER)
    lock.close()


def _write(lock: IO[str], text: str) -> None:
    lock.truncate(0)
    lock.write(text)
    lock.flush()

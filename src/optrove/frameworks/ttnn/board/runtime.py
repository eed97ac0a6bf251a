"""Prepare the runtime of a mock board: compiler stub, descriptor, cache.

ttnn builds firmware when it opens a device and kernels when it calls an op, with a RISC-V compiler
that its wheel does not ship. On a mock board the results are parsed and then dropped, so this one
serves: a shell script that writes an empty object with its dependency file, or the smallest ELF
file that ttnn's loader accepts. Being a shell script without any further process, it costs about
a millisecond per call.

The descriptor is JSON, which every YAML reader takes, so no YAML library is needed to write it.

    <cache>/ttnn-<version>-<digest>/<board>/
        fixed/cluster.yaml      the cluster descriptor
        fixed/metal/            the runtime root: links into the installed ttnn, and our compiler
        lock                    held while fixed/ is made or mended
        jit-<n>.lock            held by the process that uses the kernel cache <n>
        jit-<n>-<generation>/   that kernel cache; child processes share their parent's

The digest covers where ttnn is installed and everything that is written, so another ttnn or
another optrove never meets files that do not fit. ``fixed`` appears by one rename; a process that
finds it damaged recreates it under the lock. A kernel cache whose owner did not end in order is
left for a new generation by its next owner. All locks end with their process, however it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
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
from optrove.settings import CACHE, is_set

if TYPE_CHECKING:
    from collections.abc import Iterator

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

# What the lock of a kernel cache says about its last owner.
IN_USE = "in use"
ENDED_IN_ORDER = "ended in order"


@dataclass(frozen=True, slots=True)
class Link:
    """A symbolic link to be made."""

    target: Path


@dataclass(frozen=True, slots=True)
class Script:
    """A text file to be made, executable if asked."""

    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Runtime:
    """The prepared files of one board, and the kernel cache that this process holds."""

    board: str
    descriptor: Path
    root: Path
    kernels: Path
    lock: IO[str]
    slow_dispatch: bool

    def variables(self) -> dict[str, str | None]:
        """Return the environment that puts ttnn on the mock board."""
        variables: dict[str, str | None] = dict.fromkeys(MISLEADING)
        variables["TT_METAL_MOCK_CLUSTER_DESC_PATH"] = str(self.descriptor)
        variables["TT_METAL_RUNTIME_ROOT"] = f"{self.root}/"
        variables["TT_METAL_CACHE"] = f"{self.kernels / 'kernels'}/"
        # ttnn would otherwise write a folder called generated into the working directory.
        variables["TT_METAL_LOGS_PATH"] = f"{self.kernels / 'logs'}/"
        if self.slow_dispatch:
            variables["TT_METAL_SLOW_DISPATCH_MODE"] = "1"
        # The C++ log repeats on stdout what the exceptions say.
        if not is_set("TT_LOGGER_LEVEL"):
            variables["TT_LOGGER_LEVEL"] = "off"
        return variables


def prepare(board: Board, cache: Path) -> Runtime:
    """Make or find the board's files, and take a kernel cache for this process."""
    if any(character.isspace() for character in str(cache)):
        raise UnusableCache(
            f"mock boards' files cannot be kept in {str(cache)!r}: ttnn calls its compiler there "
            f"through a shell, and the path has a space. Set {CACHE.name} to a path without one"
        )
    try:
        return _prepare(board, cache)
    except OSError as error:
        raise UnusableCache(
            f"mock boards' files cannot be kept in {cache}: {error}. "
            f"Set {CACHE.name} to a directory that this user can write"
        ) from error


def _prepare(board: Board, cache: Path) -> Runtime:
    package = installed_package()
    parts = _parts(board, package)
    digest = hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:12]
    home = cache / f"ttnn-{installed_version()}-{digest}" / board.name
    home.mkdir(parents=True, exist_ok=True)
    fixed = home / "fixed"
    if not _is_whole(fixed, parts):
        with _locked(home / "lock"):
            _mend(fixed, parts)
    kernels, lock = _take_kernel_cache(home)
    return Runtime(
        board=board.name,
        descriptor=fixed / "cluster.yaml",
        root=fixed / "metal",
        kernels=kernels,
        lock=lock,
        slow_dispatch=board.slow_dispatch,
    )


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
    """Return the version of the installed ttnn, as far as its installation tells."""
    try:
        return version("ttnn")
    except PackageNotFoundError:
        return "unknown"


def _parts(board: Board, package: Path) -> dict[str, Link | Script]:
    """Return every file and link of ``fixed``, by its path."""
    parts: dict[str, Link | Script] = {
        f"metal/{entry.name}": Link(entry)
        for entry in package.iterdir()
        if entry.name not in ("runtime", "__pycache__")
    }
    parts["metal/runtime/hw"] = Link(package / "runtime" / "hw")
    parts[f"metal/{LOCATION}"] = Script(compiler_script(), 0o755)
    parts["cluster.yaml"] = Script(cluster_descriptor(board))
    return parts


def _is_whole(fixed: Path, parts: dict[str, Link | Script]) -> bool:
    try:
        return all(_matches(fixed / name, part) for name, part in parts.items())
    except OSError:
        return False


def _matches(path: Path, part: Link | Script) -> bool:
    if isinstance(part, Link):
        return path.is_symlink() and path.readlink() == part.target
    return path.read_text() == part.text and path.stat().st_mode & 0o777 == part.mode


def _mend(fixed: Path, parts: dict[str, Link | Script]) -> None:
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
        if isinstance(part, Link):
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


def _take_kernel_cache(home: Path) -> tuple[Path, IO[str]]:
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
        return kernels, lock
    raise AssertionError("unreachable: count() does not end")


def _end_in_order(lock: IO[str]) -> None:
    _write(lock, ENDED_IN_ORDER)
    lock.close()


def _write(lock: IO[str], text: str) -> None:
    lock.truncate(0)
    lock.write(text)
    lock.flush()

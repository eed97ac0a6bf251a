"""Prepare what ttnn needs to run on a mock board, in the user's cache directory.

    <cache>/ttnn-<version>-<digest>/<board>/
        fixed/cluster.yaml      the cluster descriptor
        fixed/metal/            the runtime root: links into the installed ttnn, and our compiler
        lock                    held while fixed/ is made or mended
        jit-<n>.lock            held by the process that uses the kernel cache <n>
        jit-<n>-<generation>/   that kernel cache; child processes share their parent's

The digest covers where ttnn is installed and everything that is written, so another ttnn or
another optrove never meets files that do not fit. ``fixed`` appears by one rename; a process that
finds it damaged makes it anew under the lock. A kernel cache whose owner did not end in order is
left for a new generation by its next owner. All locks end with their process, however it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from platform import machine, python_version
from typing import IO, TYPE_CHECKING

from optrove.backends.ttnn.descriptor import cluster_descriptor
from optrove.backends.ttnn.nullcompiler import LOCATION, compiler_script
from optrove.errors import FrameworkMissing, UnusableCache
from optrove.settings import CACHE, is_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.backends.ttnn.boards import Board

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
    """Make ``fixed`` whole; the caller holds the lock, so whatever else lies here is debris."""
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

"""Read and change environment variables: the only module that does."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable that optrove reads."""

    name: str
    help: str

    @property
    def value(self) -> str | None:
        """Its value now; None if it is not set, or empty."""
        return os.environ.get(self.name) or None

    @property
    def is_on(self) -> bool:
        """Whether this switch is on; BadSetting if its value is neither on nor off."""
        text = os.environ.get(self.name, "")
        if text.lower() in TRUE:
            return True
        if text.lower() in FALSE:
            return False
        raise BadSetting(f"{self.name} is {text!r}; set it to 1 or 0")


class Numerics(Enum):
    """How a shadow computes: as the hardware does where that is known, or in float32."""

    HARDWARE = "hardware"
    IDEAL = "ideal"


BOARD = Variable("OPTROVE_BOARD", "mock board to run on, unless --board is given")
SHADOW = Variable("OPTROVE_SHADOW", "1: mock boards compute numbers with torch")
NUMERICS = Variable("OPTROVE_NUMERICS", "numbers of shadows: hardware or ideal  [default: ideal]")
SIM = Variable("OPTROVE_SIM", "directory of the simulator and its compiler, for --device sim")
STORE = Variable("OPTROVE_STORE", "trove to use, unless --store is given")
CACHE = Variable("OPTROVE_CACHE", "mock boards' files  [default: ~/.cache/optrove]")
MODEL = Variable("HF_MODEL", "name of the model in a trace's source")
OPS_JSONL = Variable("TT_OP_RESULTS_JSONL", "pytest: append one line per op call to this file")
RESULTS_CSV = Variable("TT_TEST_RESULTS_CSV", "pytest: append one line per test to this CSV file")
TRACE_DIRECTORY = Variable("TTNN_OPERATION_TRACE_DIR", "--trace-params: directory of the files")
MASTER = Variable("TTNN_MASTER_JSON_PATH", "sweep modules: master file or trove to load from")
RESET = Variable("TT_SMI_RESET_COMMAND", "resets a board on which an op hangs: 'tt-smi -r 0'")
RAY = Variable("RAY_ADDRESS", "Ray cluster of --engine ray  [default: the local one]")
CI = Variable("CI", "set: long output never goes through a pager")
INDEX = Variable("PIP_INDEX_URL", "package index of optrove bisect  [default: PyPI]")

VARIABLES = tuple(each for each in tuple(globals().values()) if isinstance(each, Variable))


def find_numerics(asked: str | None = None) -> Numerics:
    """Return how shadows compute: as asked, else as OPTROVE_NUMERICS says."""
    chosen = asked or NUMERICS.value or Numerics.IDEAL.value
    try:
        return Numerics(chosen)
    except ValueError:
        where = "numerics" if asked else NUMERICS.name
        raise BadSetting(f"{where} is {chosen!r}; set it to hardware or ideal") from None


def package_index() -> str:
    """Return the address of the package index, as pip knows it."""
    if INDEX.value:
        return INDEX.value
    try:
        default: str = import_module("pip._internal.models.index").PyPI.simple_url
    except ImportError as error:
        raise BadSetting(
            f"pip, which knows the package index, is not installed; set {INDEX.name}"
        ) from error
    return default


def simulator_directory() -> Path | None:
    """Return the absolute path of the directory that OPTROVE_SIM names."""
    chosen = SIM.value
    return Path(chosen).expanduser().absolute() if chosen else None


def cache_directory() -> Path:
    """Return the absolute path of the directory for mock boards' files."""
    chosen = CACHE.value
    try:
        if chosen:
            return Path(chosen).expanduser().absolute()
        root = os.environ.get("XDG_CACHE_HOME")
        caches = Path(root) if root else Path.home() / ".cache"
    except RuntimeError as error:
        raise BadSetting(
            f"no cache directory can be found for mock boards ({error}); "
            f"set {CACHE.name} to a directory of your choice"
        ) from error
    default = (caches / "optrove").absolute()
    return default if len(str(default).split()) == 1 else _private_directory()


def _private_directory() -> Path:
    """Return a cache directory for a user whose home directory has a space in its path.

    ttnn calls its compiler through a shell, which would split such a path. Any user may create
    temporary directories, so one of another user is refused.
    """
    import tempfile  # here, since it costs every start some milliseconds

    directory = Path(tempfile.gettempdir(), f"optrove-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise BadSetting(
            f"mock boards' files cannot be kept in {directory}, to which other users may write; "
            f"set {CACHE.name} to a directory whose path has no space"
        )
    return directory


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[Mapping[str, str | None]]:
    """Set variables (None: unset them) inside the block, and restore them afterwards.

    Return their values from before.
    """
    before = {name: os.environ.get(name) for name in changes}
    _apply(changes)
    try:
        yield before
    finally:
        _apply(before)


def conceal(name: str, shown: str | None) -> None:
    """Show Python code another value of a variable (None: no value) than it has.

    C++ code of this process, and processes that are started with its environment, get the value.
    """
    value = os.environ[name]
    _apply({name: shown})
    os.putenv(name, value)


PASSIVE_THREADS: Final = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Have torch's threads sleep while they wait: spinning takes processors from other processes, and
more time than it saves between the small operations of a model. Read when torch is imported."""


def unset(defaults: Mapping[str, str]) -> dict[str, str]:
    """Return those variables that the user has not set."""
    return {name: value for name, value in defaults.items() if name not in os.environ}


def with_defaults(defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for another process; the user's own settings override defaults.

    It has HOME, if the system knows this user's: ttnn's C++ code crashes without one.
    """
    try:
        home = {"HOME": str(Path.home())}
    except RuntimeError:  # only ttnn needs it, and says so
        home = {}
    return {**home, **defaults, **os.environ}


def home_for_ttnn() -> dict[str, str]:
    """Return HOME if it is not set: ttnn's C++ code crashes without one; BadSetting if unknown."""
    try:
        return unset({"HOME": str(Path.home())})
    except RuntimeError as error:
        raise BadSetting(
            "HOME is not set, the system knows no home directory of this user, and ttnn crashes "
            "without one; set HOME to a directory"
        ) from error


def with_path(directory: Path) -> dict[str, str]:
    """Return the environment for another process that finds commands in a directory first."""
    path = os.pathsep.join((str(directory), os.environ.get("PATH", os.defpath)))
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(directory.parent)}


def is_set(name: str) -> bool:
    """Return whether the user has set the variable."""
    return name in os.environ


def _apply(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
            os.unsetenv(name)  # also where the variable was concealed
        else:
            os.environ[name] = value

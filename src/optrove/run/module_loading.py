"""Load the file of a sweep module, from whatever directory, and check that it is one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadTarget

if TYPE_CHECKING:
    from types import ModuleType

SWEEPS: Final = "sweeps"
"""The directory below which tt-metal keeps its modules; names are dotted from there on."""

executing: ContextVar[bool] = ContextVar("executing", default=False)
"""Whether modules are imported to execute vectors, which are there already, not to make them."""

every_combination: ContextVar[bool] = ContextVar("every_combination", default=False)
"""Whether loaders give every combination of traced values, whatever the module asks for."""

_FRAMEWORK: Final = Path("tests") / "sweep_framework"
_LOADED: Final = "optrove_sweep_module_"


def module_name(file: Path) -> str:
    """Return the name of a module: dotted below a directory ``sweeps``, else that of its file."""
    parts = file.absolute().with_suffix("").parts
    if SWEEPS in parts[:-1]:
        last = len(parts) - 1 - parts[::-1].index(SWEEPS)
        return ".".join(parts[last + 1 :])
    return parts[-1]


def load_module(file: Path) -> ModuleType:
    """Import the file of a sweep module; BadTarget names it and says what is wrong with it.

    It finds what lies beside it, in the working directory, and in the checkout of tt-metal that
    it belongs to, as it would when tt-metal's own runner had started it.
    """
    file = file.absolute()
    name = _LOADED + sha256(str(file).encode()).hexdigest()[:16]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise BadTarget(f"{file} is no Python file; name the file of a sweep module")
    module = module_from_spec(spec)
    # Known by its name while it runs, as dataclasses and multiprocessing expect.
    sys.modules[name] = module
    _make_reachable(file)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadTarget(
            f"sweep module {file} cannot be imported: {told(error)}\n{traceback_of(error, file)}"
        ) from error
    _check(module, file)
    return module


def told(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    if isinstance(error, SystemExit):
        return f"it ends the process with sys.exit({error.code!r})"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def traceback_of(error: BaseException, file: Path) -> str:
    """Return the traceback from the first line of the module itself on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((place for place, each in enumerate(frames) if each.filename == str(file)), 0)
    return "".join(traceback.format_list(frames[first:])).rstrip()


def _make_reachable(file: Path) -> None:
    """Let a module import what belongs to it, now and later."""
    roots = [file.parent, Path.cwd()]
    for directory in file.parents:
        if (directory / _FRAMEWORK).is_dir():
            roots += [directory, directory / _FRAMEWORK]
            break
    for root in map(str, roots):
        if root not in sys.path:
            # At the end: nothing of the user may stand before what is installed.
            sys.path.append(root)


def _check(module: ModuleType, file: Path) -> None:
    """Raise BadTarget if a module lacks what makes it one."""
    parameters: Any = getattr(module, "parameters", None)
    if not isinstance(parameters, Mapping):
        raise BadTarget(
            f"{file} has no dictionary of suites called `parameters`; is it a sweep module?"
        )
    if not callable(getattr(module, "run", None)):
        raise BadTarget(f"{file} has no function `run`; is it a sweep module?")

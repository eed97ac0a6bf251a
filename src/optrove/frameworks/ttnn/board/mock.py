"""Run the real ttnn on a mock board in this process, without hardware."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.errors import FrameworkTooEarly
from optrove.frameworks.installed import import_ttnn
from optrove.frameworks.ttnn.board.mock_calls import replace_calls
from optrove.frameworks.ttnn.board.runtime import (
    ROOT_VARIABLE,
    Runtime,
    installed_package,
    prepare,
)
from optrove.frameworks.ttnn.board.table import Board, find_board
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE
from optrove.model.records import DeviceKind
from optrove.settings import (
    PASSIVE_THREADS,
    SHADOW,
    cache_directory,
    conceal,
    environment,
    find_numerics,
    unset,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# ttnn chooses its devices once per process; the loaded module carries the mock's runtime.
MOCK_ATTRIBUTE = "__optrove_runtime__"
# The runtime of the board that ttnn was imported for, before it is asked for devices.
_PRELOADED = "__optrove_preloaded__"


@contextmanager
def mock_board(name: str, *, shadow: bool = False, numerics: str | None = None) -> Iterator[Board]:
    """Run the real ttnn on a mock board inside the block.

    ttnn validates arguments, infers output specs and allocates memory as on the real board, but
    kernels never run, so values that are read back are meaningless. With ``shadow`` (or
    OPTROVE_SHADOW=1), torch computes them: in float32 with ``numerics="ideal"``, the default; as
    ttnn's kernels do, where optrove knows how, with ``"hardware"`` (or OPTROVE_NUMERICS=hardware).
    The environment is restored afterwards. ttnn stays on this board until the process ends: one
    process, one board.

    >>> import optrove
    >>> with optrove.mock_board("n300"):  # doctest: +SKIP
    ...     import ttnn
    ...     device = ttnn.open_device(device_id=0)
    """
    board = find_board(name)
    installed_package()
    runtime = runtime_for(
        board, "mock_board", lambda: prepare(board, cache_directory()), simulated=False
    )
    if not (shadow or SHADOW.is_on):
        with entered(runtime):
            yield board
        return
    with ExitStack() as stack:
        with environment(unset(PASSIVE_THREADS)):  # ttnn imports torch
            ttnn = stack.enter_context(entered(runtime))
        from optrove.frameworks.ttnn.shadow.shadow import shadow_numerics

        stack.enter_context(shadow_numerics(ttnn, find_numerics(numerics)))
        yield board


def preload_board(name: str) -> None:
    """Import ttnn for ``mock_board(name)``, without asking it for devices.

    After that, processes can still be forked, which may enter the board.
    """
    runtime = prepare(find_board(name), cache_directory())
    with environment(runtime.variables()):
        setattr(import_ttnn(), _PRELOADED, runtime)


@contextmanager
def entered(runtime: Runtime) -> Iterator[Any]:
    """Give ttnn on the board of a runtime; the environment has its variables inside the block."""
    with ExitStack() as stack:
        is_nested = runtime.is_entered
        if not is_nested:
            before = stack.enter_context(environment(runtime.variables()))
            stack.enter_context(runtime.entered())
        ttnn = _import_on(runtime)
        if not is_nested:
            # Programs look for files of their own below this root.
            conceal(ROOT_VARIABLE, _not_ours(before[ROOT_VARIABLE]))
        yield ttnn


def device_in_use() -> tuple[DeviceKind, str | None] | None:
    """Return the kind of device and the board that the loaded ttnn runs on.

    None if ttnn is not loaded. The name of a real board is unknown.
    """
    loaded = sys.modules.get("ttnn")
    if loaded is None:
        return None
    runtime: Runtime | None = getattr(loaded, MOCK_ATTRIBUTE, None)
    if runtime is None:
        return DeviceKind.HARDWARE, None
    if runtime.simulator is not None:
        return DeviceKind.SIMULATOR, runtime.board
    shadow = hasattr(loaded, SHADOW_ATTRIBUTE)
    return DeviceKind.SHADOW if shadow else DeviceKind.MOCK, runtime.board


def ran_on() -> str:
    """Return the device that ttnn uses: ``mock n150``, ``shadow n150``, ``hw``; else empty."""
    found = device_in_use()
    return "" if found is None else " ".join(filter(None, (found[0].value, found[1])))


def runtime_for(
    board: Board, function: str, make: Callable[[], Runtime], *, simulated: bool
) -> Runtime:
    """Return the runtime of the loaded ttnn if it is on this board, or what ``make`` makes.

    FrameworkTooEarly if ttnn runs on something else; ``function`` is the name of the caller.
    """
    loaded = sys.modules.get("ttnn")
    if loaded is None:
        return make()
    runtime: Runtime | None = getattr(loaded, MOCK_ATTRIBUTE, getattr(loaded, _PRELOADED, None))
    if runtime is None:
        option = "--optrove-sim" if simulated else "--optrove-board"
        raise FrameworkTooEarly(
            f"ttnn was imported before {function}({board.name!r}), and it decides only once per "
            f"process which devices there are. Enter {function} before the first 'import ttnn'; "
            f"for tests, start a new pytest with {option} {board.name}. If a plugin that is loaded "
            f"with -p imports ttnn, let it do so inside its hooks and fixtures, or name the plugin "
            f"in pytest_plugins of a conftest.py, which is loaded after the board"
        )
    if runtime.board != board.name or (runtime.simulator is not None) != simulated:
        kind = "mock" if runtime.simulator is None else "simulated"
        raise FrameworkTooEarly(
            f"this process already runs ttnn on the {kind} board {runtime.board!r}, and ttnn "
            f"cannot change boards; use {function}({board.name!r}) in a process of its own"
        )
    return runtime


def _not_ours(root: str | None) -> str | None:
    """Return a runtime root that the user has chosen; None for that of a parent process."""
    is_ours = root is not None and Path(root).is_relative_to(cache_directory())
    return None if is_ours else root


def _import_on(runtime: Runtime) -> Any:
    """Import ttnn and make it choose the board while the environment says so."""
    ttnn: Any = import_ttnn()
    if not hasattr(ttnn, MOCK_ATTRIBUTE):
        setattr(ttnn, MOCK_ATTRIBUTE, runtime)
        # The C++ side reads the environment at the first query of devices, not before.
        ttnn.get_num_devices()
        if runtime.simulator is None:
            replace_calls(ttnn, runtime)
    return ttnn

"""Run the real ttnn on a mock board in this process, without hardware."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from optrove.errors import FrameworkTooEarly
from optrove.frameworks.ttnn.board.runtime import Runtime, installed_package, prepare
from optrove.frameworks.ttnn.board.table import Board, find_board
from optrove.settings import cache_directory, environment, read_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# ttnn chooses its devices once per process; the loaded module carries the mock's runtime.
MOCK_ATTRIBUTE = "__optrove_runtime__"


@contextmanager
def mock_board(name: str, *, shadow: bool = False) -> Iterator[Board]:
    """Run the real ttnn on a mock board inside the block.

    Arguments are validated, output specs inferred and memory allocated as on the real board;
    kernels never run, so values read back mean nothing, unless ``shadow`` (or OPTROVE_SHADOW=1)
    computes them with torch beside each op. The environment is restored afterwards. ttnn stays on
    this board until the process ends: one process, one board.

    >>> import optrove
    >>> with optrove.mock_board("n300"):  # doctest: +SKIP
    ...     import ttnn
    ...     device = ttnn.open_device(device_id=0)
    """
    board = find_board(name)
    installed_package()
    runtime = _runtime_for(board)
    with environment(runtime.variables()):
        ttnn = _import_on(runtime)
        if not (shadow or read_settings().shadow):
            yield board
            return
        from optrove.frameworks.ttnn.shadow.shadow import shadow_numerics

        with shadow_numerics(ttnn):
            yield board


def board_in_use() -> str | None:
    """Return the mock board that ttnn runs on in this process; None without one."""
    runtime: Runtime | None = getattr(sys.modules.get("ttnn"), MOCK_ATTRIBUTE, None)
    return None if runtime is None else runtime.board


def _runtime_for(board: Board) -> Runtime:
    loaded = sys.modules.get("ttnn")
    if loaded is None:
        return prepare(board, cache_directory())
    runtime: Runtime | None = getattr(loaded, MOCK_ATTRIBUTE, None)
    if runtime is None:
        raise FrameworkTooEarly(
            f"ttnn was imported before mock_board({board.name!r}), and it decides only once per "
            f"process which devices there are. Enter mock_board before the first 'import ttnn'; "
            f"for tests, start a new pytest with --optrove-board {board.name}"
        )
    if runtime.board != board.name:
        raise FrameworkTooEarly(
            f"this process already runs ttnn on the mock board {runtime.board!r}, and ttnn cannot "
            f"change boards; use mock_board({board.name!r}) in a process of its own"
        )
    return runtime


def _import_on(runtime: Runtime) -> Any:
    """Import ttnn and make it choose the mock board while the environment says so."""
    from optrove.frameworks.installed import import_ttnn

    ttnn: Any = import_ttnn()
    setattr(ttnn, MOCK_ATTRIBUTE, runtime)
    # The C++ side reads the environment at the first query of devices, not before.
    ttnn.get_num_devices()
    return ttnn

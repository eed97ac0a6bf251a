"""Let any existing test run on a mock board: ``pytest --optrove-board t3k``.

All options are off by default; without one, nothing is imported and nothing patched.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from optrove.errors import OptroveError
from optrove.settings import BOARD, SHADOW, read_settings

if TYPE_CHECKING:
    from argparse import Namespace

    from optrove.backends.ttnn.boards import Board

_BOARD: pytest.StashKey[Board] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options, in a group of their own."""
    group = parser.getgroup("optrove", "optrove: ops of real models, with or without a board")
    group.addoption(
        "--optrove-board",
        metavar="NAME",
        help=f"run ttnn on this mock board, for example t3k (env {BOARD.name}; optrove boards)",
    )
    group.addoption(
        "--optrove-shadow",
        action="store_true",
        help=f"numbers on the mock board, computed by torch beside each op (env {SHADOW.name})",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set up the mock board before any conftest or test module can import ttnn."""
    try:
        name, shadow = _asked(early_config.known_args_namespace)
        if name is not None:
            _enter(early_config, name, shadow=shadow)
    except OptroveError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say on which board the tests run, and what their numbers are worth."""
    board = config.stash.get(_BOARD, None)
    if board is None:
        return []
    shadow = _asked(config.option)[1]
    numbers = "numbers by torch" if shadow else "kernels do not run: numbers mean nothing"
    return [f"optrove: mock board {board.name}, {board.title}; {numbers}"]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which op calls have no numbers, so that a skipped comparison has its reason."""
    if _BOARD not in config.stash or not _asked(config.option)[1]:
        return
    from optrove.backends.ttnn.shadow import active_report

    report = active_report()
    if report is not None:
        terminalreporter.section("optrove: numbers on the mock board")
        for line in report.lines():
            terminalreporter.line(line)


def _asked(options: Namespace) -> tuple[str | None, bool]:
    settings = read_settings()
    shadow = options.optrove_shadow or settings.shadow
    name = options.optrove_board or settings.board
    if options.optrove_shadow and name is None:
        raise pytest.UsageError("--optrove-shadow needs a mock board: add --optrove-board NAME")
    return name, shadow


def _enter(config: pytest.Config, name: str, *, shadow: bool) -> None:
    from optrove.backends.ttnn.mock import mock_board

    stack = ExitStack()
    config.stash[_BOARD] = stack.enter_context(mock_board(name, shadow=shadow))
    config.add_cleanup(stack.close)

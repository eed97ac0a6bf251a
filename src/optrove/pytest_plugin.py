"""Let any existing test run on a mock board: ``pytest --optrove-board t3k``.

All options are off by default; without one, nothing is imported and nothing patched.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from optrove.errors import OptroveError
from optrove.settings import BOARD, SHADOW, read_settings

if TYPE_CHECKING:
    from argparse import Namespace

    from optrove.backends.ttnn.boards import Board

_BOARD: pytest.StashKey[Board] = pytest.StashKey()
_WORKERS: pytest.StashKey[list[dict[str, Any] | None]] = pytest.StashKey()
_REPORT = "optrove_shadow"


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


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the numbers' report of a worker of pytest-xdist to the process that shows it."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None and _BOARD in session.config.stash:
        output[_REPORT] = _shadow_report(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the report of a worker of pytest-xdist; a worker that crashed has none."""
    output: dict[str, Any] = getattr(node, "workeroutput", {})
    node.config.stash.setdefault(_WORKERS, []).append(output.get(_REPORT))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how many op calls have numbers and why others have none, over all processes."""
    own = None if _WORKERS in config.stash else _shadow_report(config)
    reports = [report for report in config.stash.get(_WORKERS, [own]) if report is not None]
    if not reports:
        return
    computed = sum(report["computed"] for report in reports)
    missing: Counter[str] = Counter()
    for report in reports:
        missing.update(report["missing"])
    terminalreporter.section("optrove: numbers on the mock board")
    terminalreporter.line(f"{computed} op calls computed, {missing.total()} without numbers")
    for reason, count in missing.most_common():
        terminalreporter.line(f"{count} x {reason}")


def _shadow_report(config: pytest.Config) -> dict[str, Any] | None:
    """Return how many op calls of this process have numbers, or None without the shadow."""
    if _BOARD not in config.stash:
        return None
    from optrove.backends.ttnn.shadow import active_report

    report = active_report()
    if report is None:
        return None
    missing = {str(reason): count for reason, count in report.missing.items()}
    return {"computed": report.computed.total(), "missing": missing}


def _asked(options: Namespace) -> tuple[str | None, bool]:
    settings = read_settings()
    shadow = options.optrove_shadow or settings.shadow
    # An empty name is one that a script forgot to fill in: not the same as no option at all.
    name = settings.board if options.optrove_board is None else options.optrove_board
    if options.optrove_shadow and name is None:
        raise pytest.UsageError("--optrove-shadow needs a mock board: add --optrove-board NAME")
    return name, shadow


def _enter(config: pytest.Config, name: str, *, shadow: bool) -> None:
    from optrove.backends.ttnn.mock import mock_board

    stack = ExitStack()
    config.stash[_BOARD] = stack.enter_context(mock_board(name, shadow=shadow))
    config.add_cleanup(stack.close)

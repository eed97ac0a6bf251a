"""Run the tests of a session on a mock board, and say what their numbers are worth."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from optrove.backends.ttnn.mock import mock_board

if TYPE_CHECKING:
    from optrove.backends.ttnn.boards import Board

_REPORT = "optrove_shadow"


def start_board(config: pytest.Config, name: str, *, shadow: bool) -> None:
    """Put ttnn on the mock board until the session ends."""
    stack = ExitStack()
    board = stack.enter_context(mock_board(name, shadow=shadow))
    config.add_cleanup(stack.close)
    config.pluginmanager.register(MockBoard(board, shadow=shadow), "optrove-board")


class MockBoard:
    """A session's mock board, and its workers' reports on their numbers."""

    def __init__(self, board: Board, *, shadow: bool) -> None:
        self._board = board
        self._shadow = shadow
        self._workers: list[dict[str, Any] | None] = []

    def pytest_report_header(self) -> list[str]:
        """Say on which board the tests run, and what their numbers are worth."""
        numbers = "numbers by torch" if self._shadow else "kernels do not run: numbers mean nothing"
        return [f"optrove: mock board {self._board.name}, {self._board.title}; {numbers}"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the numbers' report of a worker of pytest-xdist to the process that shows it."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_REPORT] = _shadow_report()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the report of a worker of pytest-xdist; a worker that crashed has none."""
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        self._workers.append(output.get(_REPORT))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many op calls have numbers and why others have none, over all processes."""
        found = self._workers or [_shadow_report()]
        reports = [report for report in found if report is not None]
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


def _shadow_report() -> dict[str, Any] | None:
    """Return how many op calls of this process have numbers, or None without the shadow."""
    from optrove.backends.ttnn.shadow import active_report

    report = active_report()
    if report is None:
        return None
    missing = {str(reason): count for reason, count in report.missing.items()}
    return {"computed": report.computed.total(), "missing": missing}

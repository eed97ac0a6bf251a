"""Run the tests of a session on a mock board, and say what their numbers are worth."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from optrove.backends.ttnn.mock import mock_board
from optrove.flows.hints import PLUGIN, numbers_hint
from optrove.plugin.progress import failure_text
from optrove.plugin.session import BOARD
from optrove.report.summary import is_assertion

if TYPE_CHECKING:
    from optrove.backends.ttnn.boards import Board

_REPORT = "optrove_shadow"


def start_board(config: pytest.Config, name: str, *, shadow: bool) -> None:
    """Put ttnn on the mock board until the session ends."""
    stack = ExitStack()
    board = stack.enter_context(mock_board(name, shadow=shadow))
    config.add_cleanup(stack.close)
    # Whoever told where to keep journals gives the hints, with the names of its own options.
    hinting = not shadow and getattr(config.known_args_namespace, "optrove_journal", None) is None
    config.pluginmanager.register(MockBoard(board, shadow=shadow, hinting=hinting), BOARD)


class MockBoard:
    """A session's mock board, and its workers' reports on their numbers.

    One that is ``hinting`` says at the end how failed comparisons come to have numbers.
    """

    def __init__(self, board: Board, *, shadow: bool, hinting: bool) -> None:
        self._board = board
        self._shadow = shadow
        self._hinting = hinting
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
        if self._hinting:
            self._hint(terminalreporter)
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

    def _hint(self, terminalreporter: pytest.TerminalReporter) -> None:
        failed = terminalreporter.getreports("failed")
        asserted = sum(is_assertion(failure_text(report)) for report in failed)
        if asserted:
            hint = numbers_hint(asserted, PLUGIN)
            terminalreporter.line(f"optrove: hint: {hint}", yellow=True)


def _shadow_report() -> dict[str, Any] | None:
    """Return how many op calls of this process have numbers, or None without the shadow."""
    from optrove.backends.ttnn.shadow import active_report

    report = active_report()
    if report is None:
        return None
    missing = {str(reason): count for reason, count in report.missing.items()}
    return {"computed": report.computed.total(), "missing": missing}

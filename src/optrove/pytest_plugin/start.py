"""Start the parts of the plugin that options or the environment ask for."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from optrove.errors import OptroveError
from optrove.frameworks.probe_protocol import ATEN
from optrove.frameworks.ttnn.board.mock import mock_board, ran_on
from optrove.frameworks.ttnn.board.simulator import sim_board
from optrove.model.exit_codes import INTERRUPTED
from optrove.pytest_plugin.session import BOARD_PLUGIN, Session, failure_text
from optrove.report.summary import is_assertion
from optrove.settings import BOARD, OPS_JSONL, RESULTS_CSV, SHADOW
from optrove.tracing.results import PLUGIN, numbers_hint
from optrove.tracing.trace import TraceOptions
from optrove.trove.opening import journals_beside, located

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Sequence

    from optrove.frameworks.ttnn.board.table import Board
    from optrove.trove.place import Place


_WITH_VALUES = ("trace_params_with_values", "optrove_params_values")
# Options that change a trace, but do not start one.
_TUNING = ("backend", "level", "include", "exclude", "model", "capsule", "flow")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The trace that the options of a session ask for, and the place of its journals."""

    options: TraceOptions
    params: bool
    params_keep: bool
    journal: Path | None
    store: str | None

    @property
    def traces(self) -> bool:
        """Whether the options switch tracing on."""
        places = (self.options.jsonl, self.options.params_dir, self.journal, self.store)
        return self.params or any(place is not None for place in places)


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """The directory of the journals; temporary ones are removed if nothing went wrong.

    ``store`` is the trove that they are added to when the session ends.
    """

    directory: Path
    temporary: bool
    store: Place | None = None


def trace_request(config: pytest.Config) -> TraceRequest | None:
    """Return the requested trace, or None; UsageError for options that conflict."""
    options = config.known_args_namespace
    base = config.invocation_params.dir
    jsonl = OPS_JSONL.value if _given(options, "ops_jsonl") is None else options.ops_jsonl
    asked = TraceRequest(
        TraceOptions(
            backend=_given(options, "optrove_backend") or "auto",
            level=_given(options, "optrove_level") or ATEN,
            include=_split(_given(options, "optrove_include")),
            exclude=_split(_given(options, "optrove_exclude")),
            model=_given(options, "optrove_model"),
            jsonl=_path(base, "--ops-jsonl", jsonl),
            params_dir=_path(base, "--optrove-params-dir", _given(options, "optrove_params_dir")),
            params_values=any(_given(options, name) for name in _WITH_VALUES),
            sketch=bool(_given(options, "optrove_sketch")),
            capsule=tuple(_given(options, "optrove_capsule") or ()),
            capsule_limit=_given(options, "optrove_capsule_limit"),
            flow=bool(_given(options, "optrove_flow")),
        ),
        params=bool(_given(options, "trace_params")),
        params_keep=bool(_given(options, "trace_params_keep")),
        journal=_path(base, "--optrove-journal", _given(options, "optrove_journal")),
        store=_given(options, "optrove_store"),
    )
    _check(asked, options)
    return asked if asked.traces else None


def journal_place(asked: TraceRequest, run_id: str) -> JournalPlace:
    """Return the place of a session's journals; the same in all of its processes."""
    if asked.journal is not None:
        return JournalPlace(asked.journal, temporary=False)
    if asked.store is not None:
        store = located(asked.store)
        return JournalPlace(journals_beside(store) / run_id, temporary=False, store=store)
    jsonl = asked.options.jsonl
    if jsonl is not None:
        beside = jsonl.with_name(jsonl.name + ".journal")
        return JournalPlace(beside / run_id, temporary=True)
    return JournalPlace(Path(tempfile.gettempdir()) / f"optrove-{run_id}", temporary=True)


def _check(asked: TraceRequest, options: Namespace) -> None:
    for name in ("with_values", "keep"):
        if _given(options, f"trace_params_{name}") and not asked.params:
            flag = f"--trace-params-{name.replace('_', '-')}"
            raise pytest.UsageError(f"{flag} does nothing alone: add --trace-params")
    if asked.store is not None and not asked.store:
        raise pytest.UsageError("--optrove-store needs a path or a URL, and got an empty one")
    tuned = [f"--optrove-{name}" for name in _TUNING if _given(options, f"optrove_{name}")]
    if tuned and not asked.traces:
        raise pytest.UsageError(
            f"{' and '.join(tuned)} without anything to trace into: "
            f"add --ops-jsonl PATH, --trace-params or --optrove-store PATH"
        )


def _given(options: Namespace, name: str) -> Any:
    """Return the value of an option; None if another plugin owns the flag."""
    return getattr(options, name, None)


def _path(base: Path, flag: str, given: str | None) -> Path | None:
    if given is None:
        return None
    if not given:
        raise pytest.UsageError(f"{flag} needs a path, and got an empty one")
    return base / Path(given).expanduser()


def _split(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names in comma-separated lists."""
    names = [name.strip() for listed in given or () for name in listed.split(",")]
    return tuple(name for name in names if name)


_REPORT = "optrove_shadow"

RAN_ON = "ran_on"
"""The property of a test on a mock board: ``mock n150`` or ``shadow n150``."""


def _start_board(config: pytest.Config, options: Namespace) -> None:
    """Put ttnn on the mock or simulated board until the session ends."""
    if options.optrove_sim is not None:
        if options.optrove_board is not None or options.optrove_shadow:
            raise pytest.UsageError(
                "--optrove-sim names a simulated board, --optrove-board a mock one: give one"
            )
        _start_simulator(config, options.optrove_sim)
        return
    # An empty name is an error in a script, not the same as no option at all.
    name = BOARD.value if options.optrove_board is None else options.optrove_board
    if name is None:
        if options.optrove_shadow:
            raise pytest.UsageError("--optrove-shadow needs a mock board: add --optrove-board NAME")
        return
    shadow = options.optrove_shadow or SHADOW.is_on
    if _given(options, "optrove_capsule") and not shadow:
        raise pytest.UsageError(
            "--optrove-capsule keeps values, and a mock board computes none: "
            "add --optrove-shadow, or use hardware"
        )
    stack = ExitStack()
    board = stack.enter_context(mock_board(name, shadow=shadow, numerics=options.optrove_numerics))
    config.add_cleanup(stack.close)
    # `optrove trace`, which sets the directory, prints hints with the names of its own options.
    hinting = not shadow and _given(options, "optrove_journal") is None
    config.pluginmanager.register(MockBoard(board, shadow=shadow, hinting=hinting), BOARD_PLUGIN)


def _start_simulator(config: pytest.Config, name: str) -> None:
    """Put ttnn on the simulated board until the session ends.

    The simulator ends the process at once when a kernel needs something that it lacks, and its
    last line says why. Captured at the level of file descriptors, that line would be lost.
    """
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is not None and capture._method == "fd":  # noqa: SLF001 - pytest has no public name for it
        capture.stop_global_capturing()
        capture._method = "sys"  # noqa: SLF001 - likewise
        capture.start_global_capturing()
    stack = ExitStack()
    board = stack.enter_context(sim_board(name))
    config.add_cleanup(stack.close)
    config.pluginmanager.register(SimulatedBoard(board), BOARD_PLUGIN)


class SimulatedBoard:
    """The simulated board of a session."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def pytest_report_header(self) -> list[str]:
        """Show the board that the tests run on."""
        return [f"optrove: simulated board {self._board.name}, {self._board.title}; real kernels"]


class MockBoard:
    """The mock board of a session, and the reports of its workers on numerics.

    With ``hinting``, it prints a hint at the end if comparisons failed for lack of numbers.
    """

    def __init__(self, board: Board, *, shadow: bool, hinting: bool) -> None:
        self._board = board
        self._shadow = shadow
        self._hinting = hinting
        self._workers: list[dict[str, Any] | None] = []

    def pytest_report_header(self) -> list[str]:
        """Show the board that the tests run on, and whether numbers are computed."""
        numbers = "no kernel runs, so its numbers mean nothing"
        if self._shadow:
            numbers = "torch computes its numbers"
        return [f"optrove: mock board {self._board.name}, {self._board.title}; {numbers}"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Add the device of the test to its properties, and so to JUnit reports."""
        item.user_properties.append((RAN_ON, ran_on()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the report of a pytest-xdist worker to the controller."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_REPORT] = _shadow_report()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Receive the report of a pytest-xdist worker; a worker that crashed has none."""
        output: dict[str, Any] = getattr(node, "workeroutput", {})
        self._workers.append(output.get(_REPORT))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show how many op calls were computed, and why others were not, over all processes."""
        if self._hinting:
            self._hint(terminalreporter)
        found = self._workers or [_shadow_report()]
        reports = [report for report in found if report is not None]
        if not reports:
            return
        from optrove.frameworks.ttnn.shadow.shadow import report_lines

        causes: dict[str, tuple[int, int]] = {}
        not_modeled: Counter[str] = Counter()
        not_compared: Counter[str] = Counter()
        for report in reports:
            not_modeled.update(report["not_modeled"])
            not_compared.update(report["not_compared"])
            for cause, (own, later) in report["causes"].items():
                before = causes.get(cause, (0, 0))
                causes[cause] = (before[0] + own, before[1] + later)
        terminalreporter.section("optrove: numbers on the mock board")
        computed = sum(report["computed"] for report in reports)
        for line in report_lines(computed, causes, not_modeled, not_compared):
            terminalreporter.line(line)

    def _hint(self, terminalreporter: pytest.TerminalReporter) -> None:
        failed = terminalreporter.getreports("failed")
        asserted = sum(is_assertion(failure_text(report)) for report in failed)
        if asserted:
            hint = numbers_hint(asserted, PLUGIN)
            terminalreporter.line(f"optrove: hint: {hint}", yellow=True)


def _shadow_report() -> dict[str, Any] | None:
    """Return how many op calls of this process were computed; None without --shadow."""
    from optrove.frameworks.ttnn.shadow.shadow import active_report

    report = active_report()
    if report is None:
        return None
    causes = {cause: list(counts) for cause, counts in report.by_cause().items()}
    return {
        "computed": report.computed.total(),
        "causes": causes,
        "not_modeled": dict(report.not_modeled),
        "not_compared": dict(report.not_compared),
    }


def start(config: pytest.Config) -> None:
    """Start the requested parts, before any conftest or test module is imported."""
    options = config.known_args_namespace
    try:
        config.pluginmanager.register(Session(), "optrove-session")
        _start_results(config, options)
        _start_board(config, options)
        _start_tracing(config)
    except OptroveError as error:
        raise pytest.UsageError(str(error)) from error
    except KeyboardInterrupt:
        # So early, pytest would show where in ttnn or torch that was.
        sys.stderr.write("optrove: interrupted while the board was prepared\n")
        raise SystemExit(INTERRUPTED) from None


def _start_results(config: pytest.Config, options: Namespace) -> None:
    given = _given(options, "results_csv")
    base = config.invocation_params.dir
    path = _path(base, "--results-csv", RESULTS_CSV.value if given is None else given)
    if path is not None:
        from optrove.pytest_plugin.results import start_results

        start_results(config, path)


def _start_tracing(config: pytest.Config) -> None:
    asked = trace_request(config)
    if asked is not None:
        from optrove.pytest_plugin.tracing import start_tracing

        start_tracing(config, asked)

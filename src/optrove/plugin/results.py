"""Write one line per test to the file of ``--results-csv``, as soon as the test has ended.

In a session of pytest-xdist the controller writes, from what its workers put on their reports.
"""

from __future__ import annotations

import json
import socket
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from optrove.errors import OptroveError
from optrove.flows.runs import git, version_of
from optrove.model.records import TestOutcome
from optrove.plugin.items import mode_of_id, module_of_file
from optrove.plugin.observer import SEEN, Observer
from optrove.plugin.progress import Progress, failure_text
from optrove.plugin.resultsfile import ResultsFile
from optrove.plugin.session import is_worker, run_id

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    *("test_nodeid", "module", "mode", "seq_len", "batch_size", "hf_max_seq_len"),
    *("mesh_shape", "mesh_num_devices", "weights_type", "module_path", "metrics_json"),
    *("outcome", "duration_sec", "error", "run_id", "session_timestamp", "hostname"),
    *("git_commit", "ttnn_version", "start_timestamp", "end_timestamp"),
    *("setup_sec", "call_sec", "teardown_sec", "worker", "parameters_json", "properties_json"),
)


def start_results(config: pytest.Config, path: Path) -> None:
    """Observe tests in this process and, unless it is a worker, write their results."""
    observer = Observer()
    config.add_cleanup(observer.stop)
    config.pluginmanager.register(observer, "optrove-observer")
    results = Results(ResultsFile(path, COLUMNS), observer)
    config.pluginmanager.register(results, "optrove-results")


class Results:
    """The part of the plugin that turns reports into rows."""

    def __init__(self, file: ResultsFile, observer: Observer) -> None:
        self._file = file
        self._observer = observer
        self._writes = False
        self._session_columns: dict[str, str] = {}
        self._begun: dict[str, list[float]] = {}
        self._running: dict[tuple[str, str], Progress] = {}
        self._end = "the session ended before the test did"
        self._written = 0
        self._faults: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Make the file, or refuse to run tests whose results would have no place."""
        config = session.config
        if is_worker(config) or config.option.collectonly:
            return
        try:
            self._file.prepare()
        except OptroveError as error:
            raise pytest.UsageError(str(error)) from error
        self._writes = True
        self._session_columns = {
            "run_id": run_id(config),
            "session_timestamp": _timestamp(time.time()),
            "hostname": socket.gethostname(),
            "git_commit": git("rev-parse", "HEAD", directory=config.rootpath),
            "ttnn_version": version_of("ttnn") or "",
        }

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Remember that a test has begun, for the case that nothing else is heard of it."""
        self._begun.setdefault(nodeid, []).append(time.time())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report; write the row with the last one of its test."""
        if not self._writes:
            return
        worker = _worker(report)
        key = (worker, report.nodeid)
        # A setup after another one is a test that is run again: only its last run counts.
        if report.when == "setup" or key not in self._running:
            self._running[key] = Progress(report.nodeid, worker, self._begin_of(report.nodeid))
        progress = self._running[key]
        progress.add(report, getattr(report, SEEN, None))
        # A worker that crashed is reported outside of any phase.
        if report.when not in ("setup", "call"):
            del self._running[key]
            self._write(progress, progress.outcome())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a row for a file whose tests cannot be collected."""
        if self._writes and report.failed:
            progress = Progress(report.nodeid, "", None)
            progress.errors.append(failure_text(report))
            self._write(progress, TestOutcome.ERROR)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the session ends early."""
        self._end = f"the session was interrupted: {excinfo.exconly()}"

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the session ends early."""
        self._end = f"pytest failed: {excinfo.exconly()}"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the rows of tests that have begun and not ended; fail if rows were lost."""
        if not self._writes:
            return
        for nodeid, times in self._begun.items():
            for begin in times:
                progress = Progress(nodeid, "", begin)
                self._running[f"begun at {begin}", nodeid] = progress
        for progress in self._running.values():
            progress.see(self._observer.seen_of(progress.nodeid))
            progress.errors.append(self._end)
            self._write(progress, TestOutcome.UNFINISHED)
        self._running.clear()
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where the rows are, and what is missing in them."""
        if not self._writes:
            return
        text = f"optrove: {self._written} results appended to {self._file.path}"
        terminalreporter.write_sep("-", text)
        for fault in self._faults:
            terminalreporter.line(f"optrove: {fault}", red=True)

    def _begin_of(self, nodeid: str) -> float | None:
        times = self._begun.get(nodeid)
        return times.pop(0) if times else None

    def _write(self, progress: Progress, outcome: TestOutcome) -> None:
        try:
            self._file.append(_row(progress, outcome) | self._session_columns)
        except OSError as error:
            self._faults.append(f"no row for {progress.nodeid}: {error}")
            return
        self._written += 1
        self._faults.extend(f"{progress.nodeid}: {fault}" for fault in progress.seen["faults"])


def _row(progress: Progress, outcome: TestOutcome) -> dict[str, str]:
    seen = progress.seen
    begin, end = progress.begin_and_end()
    phases = {
        f"{phase}_sec": f"{progress.durations[phase]:.6f}" if phase in progress.durations else ""
        for phase in ("setup", "call", "teardown")
    }
    return {
        "test_nodeid": progress.nodeid,
        "module": module_of_file(progress.nodeid),
        "mode": mode_of_id(progress.nodeid),
        **seen["facts"],
        "metrics_json": json.dumps(seen["metrics"]),
        "outcome": outcome.value,
        "duration_sec": f"{sum(progress.durations.values()):.6f}" if progress.durations else "",
        "error": "\n".join(progress.errors),
        "start_timestamp": _timestamp(begin),
        "end_timestamp": _timestamp(end),
        **phases,
        "worker": progress.worker,
        "parameters_json": json.dumps(seen["parameters"]),
        "properties_json": json.dumps(seen["properties"]),
    }


def _worker(report: Any) -> str:
    """Return the name of the worker of pytest-xdist that a report comes from, or is about."""
    gateway = getattr(getattr(report, "node", None), "gateway", None)
    return str(getattr(report, "worker_id", None) or getattr(gateway, "id", ""))


def _timestamp(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")

"""Write ``--results-csv``: one row per test, safe for several processes.

Each row is one line of the file: line breaks and other control characters are written as escapes.
In a session of pytest-xdist the controller writes them, from the reports of its workers.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import re
import socket
import time
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from optrove.capture.runs import git
from optrove.errors import OptroveError, UnusableResults
from optrove.frameworks.installed import version_of
from optrove.model.records import TestOutcome
from optrove.pytest_plugin.items import mode_of_id, module_of_file
from optrove.pytest_plugin.observer import SEEN, Observer
from optrove.pytest_plugin.session import (
    EarlyEnd,
    TestReports,
    failure_text,
    is_worker,
    run_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_CHUNK = 65536


class ResultsFile:
    """A CSV file with these columns."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = tuple(columns)
        self._header = _line(self._columns)

    def prepare(self) -> None:
        """Create the file if it does not exist; UnusableResults if no row can be appended."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as file:
                found = os.pread(file, len(self._header), 0)
                if found == self._header:
                    return
                # A file of an earlier version lacks the last column.
                earlier = _line(self._columns[:-1])
                if os.pread(file, len(earlier), 0) == earlier:
                    self._columns, self._header = self._columns[:-1], earlier
                    return
                # Complete a header that its writer could not.
                partial = self._header.startswith(found) and os.fstat(file).st_size == len(found)
                if partial:
                    _write(file, self._header[len(found) :])
                    return
        except OSError as error:
            raise UnusableResults(
                f"cannot write results to {self.path}: {error.strerror}; choose another file"
            ) from error
        first = found.partition(b"\n")[0].decode(errors="replace")
        raise UnusableResults(
            f"{self.path} does not have the columns of test results: it begins with "
            f"{first[:100]!r}; choose another file or move this one away"
        )

    def append(self, row: Mapping[str, str]) -> None:
        """Append one row; columns that it lacks stay empty. OSError if it cannot be written."""
        line = _line([row.get(column, "") for column in self._columns])
        with _locked(self.path) as file:
            _write(file, self._missing_before(file) + line)

    def _missing_before(self, file: int) -> bytes:
        """Return the bytes before a row: a header, or the end of an incomplete line."""
        size = os.fstat(file).st_size
        if size == 0:
            return self._header
        incomplete = _last_line(file, size)
        if not incomplete:
            return b""
        # Inside quotes a line break would be part of the field, and swallow the next row.
        return b'"\n' if incomplete.count(b'"') % 2 else b"\n"


def _last_line(file: int, size: int) -> bytes:
    """Return the bytes after the last line break."""
    found = b""
    while size > 0:
        start = max(0, size - (_CHUNK if found else 1))
        before, line_break, after = os.pread(file, size - start, start).rpartition(b"\n")
        found = (after if line_break else before + after) + found
        if line_break:
            break
        size = start
    return found


def _line(fields: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_CONTROL.sub(_escape, one) for one in fields])
    return text.getvalue().encode(errors="backslashreplace")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _write(file: int, data: bytes) -> None:
    # One call, unless the system writes only a part.
    while data:
        data = data[os.write(file, data) :]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file for appending, locked against other processes of optrove."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


COLUMNS = (
    *("test_nodeid", "module", "mode", "seq_len", "batch_size", "hf_max_seq_len"),
    *("mesh_shape", "mesh_num_devices", "weights_type", "module_path", "metrics_json"),
    *("outcome", "duration_sec", "error", "run_id", "session_timestamp", "hostname"),
    *("git_commit", "ttnn_version", "start_timestamp", "end_timestamp"),
    *("setup_sec", "call_sec", "teardown_sec", "worker", "parameters_json", "properties_json"),
    "ran_on",
)


def start_results(config: pytest.Config, path: Path) -> None:
    """Observe tests in this process and, unless it is a worker, write their results."""
    observer = Observer()
    config.add_cleanup(observer.stop)
    config.pluginmanager.register(observer, "optrove-observer")
    results = Results(ResultsFile(path, COLUMNS), observer)
    config.pluginmanager.register(results, "optrove-results")


class Results(EarlyEnd):
    """The part of the plugin that turns reports into rows."""

    def __init__(self, file: ResultsFile, observer: Observer) -> None:
        self._file = file
        self._observer = observer
        self._writes = False
        self._session_columns: dict[str, str] = {}
        self._begun: dict[str, list[float]] = {}
        self._running: dict[tuple[str, str], TestReports] = {}
        self._written = 0
        self._void = 0
        self._faults: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Create the file, or refuse to run tests whose results cannot be written."""
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
        """Remember that a test has begun, in case there is no report of it."""
        self._begun.setdefault(nodeid, []).append(time.time())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a report; write the row after the last one of its test."""
        if not self._writes:
            return
        worker = _worker(report)
        key = (worker, report.nodeid)
        # A second setup belongs to a test that is run again: only its last run counts.
        if report.when == "setup" or key not in self._running:
            self._running[key] = TestReports(report.nodeid, worker, self._begin_of(report.nodeid))
        reports = self._running[key]
        reports.add(report, getattr(report, SEEN, None))
        # A worker that crashed is reported outside of any phase.
        if report.when not in ("setup", "call"):
            del self._running[key]
            self._write(reports, reports.outcome())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a row for a file whose tests cannot be collected."""
        if self._writes and report.failed:
            reports = TestReports(report.nodeid, "", None)
            reports.errors.append(failure_text(report))
            self._write(reports, TestOutcome.ERROR)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the rows of tests that have begun and not ended; fail if rows were lost."""
        if not self._writes:
            return
        for nodeid, times in self._begun.items():
            for begin in times:
                self._running[f"begun at {begin}", nodeid] = TestReports(nodeid, "", begin)
        for reports in self._running.values():
            reports.see(self._observer.seen_of(reports.nodeid))
            reports.errors.append(self.reason)
            self._write(reports, TestOutcome.UNFINISHED)
        self._running.clear()
        if self._faults and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the path of the rows, and the faults."""
        if not self._writes:
            return
        text = f"optrove: {self._written} results appended to {self._file.path}"
        terminalreporter.write_sep("-", text)
        if self._void:
            terminalreporter.line(
                f"optrove: {self._void} comparisons are void, for a plain mock board computes no "
                f"numbers: add --optrove-shadow",
                yellow=True,
            )
        for fault in self._faults:
            terminalreporter.line(f"optrove: {fault}", red=True)

    def _begin_of(self, nodeid: str) -> float | None:
        times = self._begun.get(nodeid)
        return times.pop(0) if times else None

    def _write(self, reports: TestReports, outcome: TestOutcome) -> None:
        try:
            self._file.append(_row(reports, outcome) | self._session_columns)
        except OSError as error:
            self._faults.append(f"no row for {reports.nodeid}: {error}")
            return
        self._written += 1
        self._void += sum(metric.get("void", False) for metric in reports.seen["metrics"])
        self._faults.extend(f"{reports.nodeid}: {fault}" for fault in reports.seen["faults"])


def _row(reports: TestReports, outcome: TestOutcome) -> dict[str, str]:
    seen, durations = reports.seen, reports.durations
    begin, end = reports.begin_and_end()
    phases = {
        f"{phase}_sec": f"{durations[phase]:.6f}" if phase in durations else ""
        for phase in ("setup", "call", "teardown")
    }
    return {
        "test_nodeid": reports.nodeid,
        "module": module_of_file(reports.nodeid),
        "mode": mode_of_id(reports.nodeid),
        **seen["facts"],
        "metrics_json": json.dumps(seen["metrics"]),
        "outcome": outcome.value,
        "duration_sec": f"{sum(durations.values()):.6f}" if durations else "",
        "error": "\n".join(reports.errors),
        "start_timestamp": _timestamp(begin),
        "end_timestamp": _timestamp(end),
        **phases,
        "worker": reports.worker,
        "parameters_json": json.dumps(seen["parameters"]),
        "properties_json": json.dumps(seen["properties"]),
        "ran_on": seen["ran_on"],
    }


def _worker(report: Any) -> str:
    """Return the name of the pytest-xdist worker that sent a report, or that crashed."""
    gateway = getattr(getattr(report, "node", None), "gateway", None)
    return str(getattr(report, "worker_id", None) or getattr(gateway, "id", ""))


def _timestamp(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")

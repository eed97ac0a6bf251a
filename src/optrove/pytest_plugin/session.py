"""A pytest session: its id, its processes, its end, and the reports of each test."""

from __future__ import annotations

import inspect
import json
import os
import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from optrove.model.records import TestOutcome

if TYPE_CHECKING:
    from types import FrameType


BOARD_PLUGIN = "optrove-board"
"""The name under which the mock board of a session is registered."""

_RUN_ID: pytest.StashKey[str] = pytest.StashKey()
_WORKER_INPUT = "optrove_run_id"


def run_id(config: pytest.Config) -> str:
    """Return the id of this session; its workers have the same."""
    given = _worker_input(config) or {}
    if _WORKER_INPUT in given:
        return str(given[_WORKER_INPUT])
    asked = getattr(config.known_args_namespace, "optrove_run_id", None)
    return config.stash.setdefault(_RUN_ID, asked or uuid.uuid4().hex)


def is_worker(config: pytest.Config) -> bool:
    """Return whether this process is a worker of pytest-xdist."""
    return _worker_input(config) is not None


def process_number(config: pytest.Config) -> int:
    """Return the number of this process in its session: 0, or for the worker gw0: 1."""
    given = _worker_input(config)
    if given is None:
        return 0
    digits = re.search(r"\d+$", str(given.get("workerid", "")))
    # A worker can have any name (--tx popen//id=NAME).
    return int(digits[0]) + 1 if digits else os.getpid()


def has_workers(config: pytest.Config) -> bool:
    """Return whether this is the controller of pytest-xdist, by its command line."""
    options = config.known_args_namespace
    asked = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    return bool(asked) and not is_worker(config)


def _worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """Return the input of this worker of pytest-xdist; None in other processes.

    pytest-xdist sets it on the config after conftests have been imported. Until then it is in the
    module that execnet runs and that started this pytest. The environment cannot be used: the
    child processes of a worker inherit it.
    """
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:
        return given
    frame = inspect.currentframe()
    while frame is not None and _package(frame) in ("optrove", "_pytest", "pytest", "pluggy"):
        frame = frame.f_back
    if frame is not None and _package(frame) == "__channelexec__":
        return frame.f_globals.get("workerinput")
    return None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class Session:
    """The part of the plugin that all others need."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the id of the session to a worker of pytest-xdist."""
        node.workerinput[_WORKER_INPUT] = run_id(node.config)


class EarlyEnd:
    """A part of the plugin that needs to know why tests did not end."""

    reason = "the session ended before the test did"
    interrupted = False

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the session ends early."""
        self.reason = f"the session was interrupted: {excinfo.exconly()}"
        # pytest ends the session so for errors of collection, too.
        self.interrupted = not isinstance(excinfo.value, pytest.Session.Interrupted)

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Remember why the session ends early."""
        self.reason = f"pytest failed: {excinfo.exconly()}"


_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_MAX_CHARS = 10_000


class TestReports:
    """The reports of one test so far."""

    __test__ = False  # not a test, despite its name

    def __init__(self, nodeid: str, worker: str, begin: float | None) -> None:
        self.nodeid = nodeid
        self.worker = worker
        self.durations: dict[str, float] = {}
        self.errors: list[str] = []
        self.seen: dict[str, Any] = {
            "ran_on": "",
            "facts": {},
            "metrics": [],
            "parameters": {},
            "properties": [],
            "times": {},
            "faults": [],
        }
        self._begin = begin
        self._results: dict[str, TestOutcome] = {}

    def add(self, report: pytest.TestReport, seen: str | None) -> None:
        """Add a report, with the observations of the test until then."""
        # A worker that crashed is reported as the phase "???".
        phase = str(report.when)
        self.see(seen)
        result = _result(report)
        # Subtests also report as calls of their test; only failures count.
        if hasattr(report, "context") and result is not TestOutcome.FAILED:
            return
        if self._results.get(phase) is not TestOutcome.FAILED:
            self._results[phase] = result
        if phase in ("setup", "call", "teardown") and not hasattr(report, "context"):
            self.durations[phase] = report.duration
        if result is not TestOutcome.PASSED:
            where = f"{phase}: " if phase in ("setup", "teardown") else ""
            self.errors.append(where + failure_text(report))

    def see(self, seen: str | None) -> None:
        """Replace the observations of the test with newer ones, which include the older."""
        if seen is not None:
            self.seen = json.loads(seen)

    def outcome(self) -> TestOutcome:
        """Return the outcome of the test, from its reports."""
        results = dict(self._results)
        call = results.pop("call", None)
        if call is TestOutcome.FAILED:
            return call
        # A failure outside of the test function is an error; so is a worker that crashed.
        if TestOutcome.FAILED in results.values():
            return TestOutcome.ERROR
        return call or results.get("setup", TestOutcome.ERROR)

    def begin_and_end(self) -> tuple[float | None, float | None]:
        """Return the times when the test began and ended; None if unknown."""
        times = list(self.seen["times"].values())
        begin = min((one[0] for one in times), default=self._begin)
        return begin, max((one[1] for one in times), default=None)


def failure_text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the text of a failed or skipped test, in a short form if there is one."""
    longrepr = report.longrepr
    crash = getattr(longrepr, "reprcrash", None)
    if hasattr(report, "wasxfail") and not report.failed:
        text = f"xfail: {report.wasxfail}"
    elif isinstance(longrepr, tuple):
        text = str(longrepr[2])
    elif crash is not None:
        text = f"{crash.path}:{crash.lineno}: {crash.message}"
    else:
        text = report.longreprtext
    return _COLORS.sub("", text)[:_MAX_CHARS]


def _result(report: pytest.TestReport) -> TestOutcome:
    expected = hasattr(report, "wasxfail")
    if report.skipped:
        return TestOutcome.XFAILED if expected else TestOutcome.SKIPPED
    if report.passed:
        return TestOutcome.XPASSED if expected else TestOutcome.PASSED
    return TestOutcome.FAILED

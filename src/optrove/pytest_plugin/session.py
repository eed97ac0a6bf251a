"""Facts about a pytest session, and the reports of each test until it ends."""

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


BOARD = "optrove-board"
"""By which name the mock board of a session is registered."""

_RUN_ID: pytest.StashKey[str] = pytest.StashKey()
_WORKER_INPUT = "optrove_run_id"


def run_id(config: pytest.Config) -> str:
    """Return the id of this session, which its workers share."""
    given = _worker_input(config) or {}
    if _WORKER_INPUT in given:
        return str(given[_WORKER_INPUT])
    asked = getattr(config.known_args_namespace, "optrove_run_id", None)
    return config.stash.setdefault(_RUN_ID, asked or uuid.uuid4().hex)


def is_worker(config: pytest.Config) -> bool:
    """Tell whether this is a worker of pytest-xdist."""
    return _worker_input(config) is not None


def process_number(config: pytest.Config) -> int:
    """Return the number of this process in its session: 0, or for the worker gw0: 1."""
    given = _worker_input(config)
    if given is None:
        return 0
    digits = re.search(r"\d+$", str(given.get("workerid", "")))
    # A worker may have been given a name of any kind (--tx popen//id=NAME).
    return int(digits[0]) + 1 if digits else os.getpid()


def has_workers(config: pytest.Config) -> bool:
    """Tell whether this is the controller of pytest-xdist, as far as the command line tells."""
    options = config.known_args_namespace
    asked = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    return bool(asked) and not is_worker(config)


def _worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """Return what the controller of pytest-xdist has given to this worker; None elsewhere.

    pytest-xdist puts it on the config when conftests have been imported. Before that it is found
    in the module that execnet runs and that has started this pytest. The environment does not
    tell: whatever a worker starts inherits it.
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
    """The part of the plugin that is there whenever another one is."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give the session's id to a worker of pytest-xdist."""
        node.workerinput[_WORKER_INPUT] = run_id(node.config)


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 10_000


class Progress:
    """What the reports of one test have told so far."""

    def __init__(self, nodeid: str, worker: str, begin: float | None) -> None:
        self.nodeid = nodeid
        self.worker = worker
        self.durations: dict[str, float] = {}
        self.errors: list[str] = []
        self.seen: dict[str, Any] = {
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
        """Take one more report, with what was seen of the test until then."""
        # A worker that crashed is reported as the phase "???".
        phase = str(report.when)
        self.see(seen)
        result = _result(report)
        # Parts of a test (pytest's subtests) report as its call too; only what fails counts.
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
        """Take what was seen of the test; it includes what was seen before."""
        if seen is not None:
            self.seen = json.loads(seen)

    def outcome(self) -> TestOutcome:
        """Return how the test ended, from its reports."""
        results = dict(self._results)
        call = results.pop("call", None)
        if call is TestOutcome.FAILED:
            return call
        # What fails outside of the test function is an error; so is a worker that crashed.
        if TestOutcome.FAILED in results.values():
            return TestOutcome.ERROR
        return call or results.get("setup", TestOutcome.ERROR)

    def begin_and_end(self) -> tuple[float | None, float | None]:
        """Return when the test began and ended, as far as is known."""
        times = list(self.seen["times"].values())
        begin = min((one[0] for one in times), default=self._begin)
        return begin, max((one[1] for one in times), default=None)


def failure_text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the words about a test that failed or was skipped, in short where there is a form."""
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
    return _COLOURS.sub("", text)[:_LONGEST]


def _result(report: pytest.TestReport) -> TestOutcome:
    expected = hasattr(report, "wasxfail")
    if report.skipped:
        return TestOutcome.XFAILED if expected else TestOutcome.SKIPPED
    if report.passed:
        return TestOutcome.XPASSED if expected else TestOutcome.PASSED
    return TestOutcome.FAILED

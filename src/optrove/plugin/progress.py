"""Gather the reports of one test until it has ended."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from optrove.model.records import TestOutcome

if TYPE_CHECKING:
    import pytest

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

"""Make the record of each test in a trace from the reports that pytest gives on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from optrove.backends.describe import Describer
from optrove.backends.frameworks import loaded_tables
from optrove.backends.watching import muted
from optrove.flows.runs import now
from optrove.model.records import Measurement, TestOutcome, TestResult
from optrove.plugin.items import parameters
from optrove.plugin.observer import SEEN
from optrove.plugin.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pytest

    from optrove.model.case import NamedValues

_NO_NUMBER_OF_JSON = ("nan", "inf", "-inf")


class TestResults:
    """The test that runs in this process, until its record is handed to ``record``."""

    __test__ = False  # not a test, in spite of its name

    def __init__(self, run_id: str, record: Callable[[TestResult], None]) -> None:
        self._run_id = run_id
        self._record = record
        self._item: pytest.Item | None = None
        self._begin_anew()
        self.end = "the session ended before the test did"
        self.subject: tuple[str | None, str | None] = (None, None)

    def begin(self, item: pytest.Item) -> None:
        """Expect the reports of a test."""
        self._item = item
        self.subject = (None, None)
        self._begin_anew()

    def add(self, report: pytest.TestReport) -> None:
        """Take a report; make the record with the last one of its test."""
        if self._item is None or report.nodeid != self._item.nodeid:
            return
        # A test that is run again has a setup again: its runs are told apart.
        if report.when == "setup":
            self._begin_anew()
        self._progress.add(report, getattr(report, SEEN, None))
        if report.when == "teardown":
            self._hand_over(self._item, self._progress.outcome())

    def cut_short(self) -> None:
        """Make the record of a test that has begun and will not end."""
        if self._item is not None and self._handed_over is not self._progress:
            self._progress.errors.append(self.end)
            self._hand_over(self._item, TestOutcome.UNFINISHED)

    def leave(self) -> None:
        """Expect no more reports of the test; one that was cut short may still be recorded."""
        if self._handed_over is self._progress:
            self._item = None

    def _begin_anew(self) -> None:
        nodeid = "" if self._item is None else self._item.nodeid
        self._progress = Progress(nodeid, "", time.time())
        self._started_at = now()
        self._handed_over: Progress | None = None

    def _hand_over(self, item: pytest.Item, outcome: TestOutcome) -> None:
        progress, (module, mode) = self._progress, self.subject
        durations = {phase: round(took * 1e9) for phase, took in progress.durations.items()}
        self._handed_over = progress
        self._record(
            TestResult(
                run_id=self._run_id,
                test_id=item.nodeid,
                outcome=outcome,
                module=module,
                mode=mode,
                started_at=self._started_at,
                setup_ns=durations.get("setup"),
                call_ns=durations.get("call"),
                teardown_ns=durations.get("teardown"),
                parameters=_described(parameters(item)),
                metrics=tuple(_measurements(progress.seen["metrics"])),
                properties=_described(dict(item.user_properties)),
                error="\n".join(progress.errors) or None,
            )
        )


def _described(values: Mapping[str, Any]) -> NamedValues:
    with muted():
        session = Describer(loaded_tables())
        return tuple([(str(name), session.describe(value)) for name, value in values.items()])


def _measurements(metrics: Iterable[Mapping[str, Any]]) -> Iterable[Measurement]:
    """Yield the metrics that are numbers; of others only the line of the results has the words."""
    for metric in metrics:
        value = metric["value"]
        if value in _NO_NUMBER_OF_JSON:
            value = float(value)
        if isinstance(value, int | float):
            threshold = metric["threshold"]
            bound = float(threshold) if threshold in _NO_NUMBER_OF_JSON else threshold
            yield Measurement(metric["type"], value, bound, metric["passed"])

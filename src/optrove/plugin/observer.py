"""Observe each test in the process that runs it; what was seen travels on the test's reports."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from optrove.metrics import Comparison, observing
from optrove.plugin.comparisons import Metric, Watching
from optrove.plugin.items import facts, parameters, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

# The attribute of a report that holds what was seen, as JSON: pytest-xdist sends texts as they are.
SEEN = "optrove_seen"
_METRIC_NAMES = ("pcc", "allclose", "ulp")


@dataclass(slots=True)
class _Test:
    """What has been seen of one run of one test."""

    item: pytest.Item
    facts: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    recorded: list[tuple[str, object]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)


class Observer:
    """The part of the plugin that sees tests run."""

    def __init__(self) -> None:
        self._test: _Test | None = None
        self._watching = Watching(self._add, self._add_fault)

    def stop(self) -> None:
        """Put back what is watched."""
        self._watching.stop()

    def record(
        self,
        item: pytest.Item,
        entry: tuple[str, object],
        threshold: float | None,
        passed: bool | None,  # noqa: FBT001 - always given, by the fixture
    ) -> None:
        """Take a metric from the fixture ``record_metric``, which made a property of it too."""
        test = self._of(item)
        test.recorded.append(entry)
        name, value = entry
        shown = value if isinstance(value, int | float | None) else str(value)
        test.metrics.append(Metric(name, shown, threshold, passed))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Attribute to the test the comparisons that are made until it ends."""
        self._test = _Test(item)
        with observing(self._add_own):
            yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin anew: a test that is run again has not seen anything yet."""
        self._test = _Test(item)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Put on the report what has been seen so far."""
        outcome: Any = yield
        test = self._of(item)
        test.times[call.when] = (call.start, call.stop)
        # Not at teardown: a closed mesh that is asked for its shape may end the process.
        if call.when != "teardown":
            test.facts = facts(item, self._add_fault)
        setattr(outcome.get_result(), SEEN, json.dumps(_seen(test)))

    def seen_of(self, node_id: str) -> str | None:
        """Return what has been seen of a test that was cut short."""
        if self._test is None or self._test.item.nodeid != node_id:
            return None
        return json.dumps(_seen(self._test))

    def _of(self, item: pytest.Item) -> _Test:
        if self._test is None or self._test.item is not item:
            self._test = _Test(item)
        return self._test

    def _add(self, metric: Metric) -> None:
        # What is compared while files are collected belongs to no test.
        if self._test is not None:
            self._test.metrics.append(metric)

    def _add_own(self, comparison: Comparison) -> None:
        self._add(
            Metric(comparison.name, comparison.value, comparison.threshold, comparison.passed)
        )

    def _add_fault(self, error: Exception) -> None:
        if self._test is not None:
            self._test.faults.append(f"{type(error).__name__}: {error}")


def _seen(test: _Test) -> dict[str, Any]:
    properties = test.item.user_properties
    own = [entry for entry in properties if not any(entry is one for one in test.recorded)]
    metrics = [*test.metrics, *filter(None, (_metric_of(*entry) for entry in own))]
    return {
        "facts": test.facts,
        "metrics": [_strict(asdict(metric)) for metric in metrics],
        "parameters": _strict(plain(parameters(test.item))),
        "properties": _strict(plain(list(properties))),
        "times": test.times,
        "faults": test.faults,
    }


def _metric_of(name: str, value: object) -> Metric | None:
    """Return the metric that a property is by its name, if it is a number."""
    if not any(word in name.lower() for word in _METRIC_NAMES):
        return None
    number = value.item() if hasattr(value, "item") else value
    return Metric(name, number) if isinstance(number, int | float) else None


def _strict(value: Any) -> Any:
    """Return a value of JSON without the numbers that JSON has not: they become texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {key: _strict(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_strict(part) for part in value]
    return value

"""Observe tests and their comparisons in the process that runs them.

The comparison functions of tt-metal are replaced when their modules are imported, and restored at
the end. If one calls another, the number and threshold of the innermost count for the whole call.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from optrove.capture.parameters import json_numbers
from optrove.frameworks.import_hooks import when_imported
from optrove.frameworks.ttnn.board.mock import ran_on
from optrove.metrics import Comparison, observing
from optrove.model.records import DeviceKind
from optrove.pytest_plugin.items import facts, parameters, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType


MODULES = (
    "models.common.utility_functions",
    "models.utility_functions",
    "tests.ttnn.utils_for_testing",
    "tests.tt_eager.python_api_testing.sweep_tests.comparison_funcs",
)


@dataclass(frozen=True, slots=True)
class RecordedMetric:
    """One number that a test measured, or the message if it has no number.

    It is ``void``, neither passed nor failed, if a plain mock board had computed no numbers.
    """

    type: str
    value: float | str | None
    threshold: float | None = None
    passed: bool | None = None
    void: bool = False

    def entry(self) -> dict[str, Any]:
        """Return the metric as data; ``void`` only if it is."""
        fields = asdict(self)
        return fields if self.void else {key: fields[key] for key in fields if key != "void"}


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf|nan)"
_PCC = re.compile(rf"\bpcc\b[\s:=]{{0,3}}({_NUMBER})\b", re.IGNORECASE)
_ERROR = re.compile(rf"\bmax atol delta[\s:=]{{0,3}}({_NUMBER})", re.IGNORECASE)
_ULP = re.compile(rf"\bmax ulp delta[\s:=]{{0,3}}({_NUMBER})", re.IGNORECASE)
_NUMBER_ONLY = re.compile(rf"\s*({_NUMBER})\s*", re.IGNORECASE)
_MAX_CHARS = 500


@dataclass(frozen=True, slots=True)
class _Kind:
    """The metric of a function, its pattern in messages, and the argument with the threshold."""

    type: str
    pattern: re.Pattern[str]
    threshold: str | None = None


_BY_PCC = _Kind("pcc", _PCC, "pcc")
_BY_ERROR = _Kind("allclose", _ERROR)
_BY_ULP = _Kind("ulp", _ULP, "ulp_threshold")
_EQUAL = _Kind("equal", _ERROR)

FUNCTIONS: dict[str, tuple[_Kind, ...]] = {
    "comp_pcc": (_BY_PCC,),
    "comp_allclose": (_BY_ERROR,),
    "comp_allclose_and_pcc": (_BY_ERROR, _BY_PCC),
    "comp_ulp": (_BY_ULP,),
    "comp_equal": (_EQUAL,),
    "assert_with_pcc": (_BY_PCC,),
    "check_with_pcc": (_BY_PCC,),
    "check_with_pcc_without_tensor_printout": (_BY_PCC,),
    "assert_with_ulp": (_BY_ULP,),
    "assert_allclose": (_BY_ERROR,),
    "assert_equal": (_EQUAL,),
}

# The metrics of calls inside the current one; None outside of any call.
_inner: ContextVar[list[RecordedMetric] | None] = ContextVar("inner", default=None)


class ComparisonPatches:
    """Makes comparison functions report to ``on_metric`` until ``stop``."""

    def __init__(
        self, on_metric: Callable[[RecordedMetric], object], on_fault: Callable[[Exception], object]
    ) -> None:
        self._on_metric = on_metric
        self._on_fault = on_fault
        self._active = True
        self._originals: dict[Any, Any] = {}
        self._replaced: list[tuple[ModuleType, str, Any]] = []
        self._undo = [when_imported(name, self._replace_in, on_fault=on_fault) for name in MODULES]

    def stop(self) -> None:
        """Restore every function; those that were imported by name stop reporting."""
        self._active = False
        for undo in self._undo:
            undo()
        for module, name, replacement in self._replaced:
            if getattr(module, name, None) is replacement:
                setattr(module, name, self._originals[replacement])

    def _replace_in(self, module: ModuleType) -> None:
        for name, kinds in FUNCTIONS.items():
            function = getattr(module, name, None)
            if not inspect.isfunction(function):
                continue
            # A function that this module imported from another one is replaced already.
            if function not in self._originals:
                replacement = self._reporting(function, kinds)
                self._originals[replacement] = function
                setattr(module, name, replacement)
                function = replacement
            self._replaced.append((module, name, function))

    def _reporting(self, original: Any, kinds: tuple[_Kind, ...]) -> Any:
        @functools.wraps(original)
        def reporting(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest hides this frame
            if not self._active:
                return original(*args, **kwargs)
            outer, inner = _inner.get(), list[RecordedMetric]()
            token = _inner.set(inner)
            try:
                answer = original(*args, **kwargs)
            except AssertionError as error:
                own = self._metrics(kinds, (False, str(error)), _Call(original, args, kwargs))
                self._pass_on(inner or own, outer)
                raise
            finally:
                _inner.reset(token)
            own = self._metrics(kinds, answer, _Call(original, args, kwargs))
            self._pass_on(inner or own, outer)
            return answer

        return reporting

    def _metrics(self, kinds: tuple[_Kind, ...], answer: Any, call: _Call) -> list[RecordedMetric]:
        # An assertion function that returns None has passed.
        passed, about = answer if isinstance(answer, tuple) else (answer is None or answer, None)
        try:
            return [
                RecordedMetric(
                    kind.type,
                    _value(about, kind.pattern),
                    call.number(kind.threshold),
                    bool(passed),
                )
                for kind in kinds
            ]
        except (TypeError, ValueError, RuntimeError) as error:
            self._on_fault(error)
            return []

    def _pass_on(self, metrics: list[RecordedMetric], outer: list[RecordedMetric] | None) -> None:
        if outer is not None:
            outer.extend(metrics)
            return
        for metric in metrics:
            self._on_metric(metric)


@dataclass(frozen=True, slots=True)
class _Call:
    """A function and its arguments."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def number(self, parameter: str | None) -> float | None:
        """Return the number that was passed for a parameter, or its default."""
        bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        value = bound.arguments.get(parameter or "")
        return float(value) if isinstance(value, int | float) else None


def _value(about: Any, pattern: re.Pattern[str]) -> float | str | None:
    """Return the number that a function returned, or the one in its message, or the message."""
    if about is None:
        return None
    if not isinstance(about, str):
        return float(about)
    found = pattern.search(about) or _NUMBER_ONLY.fullmatch(about)
    return float(found[1]) if found else about[:_MAX_CHARS]


# The attribute of a report with the observations as JSON: pytest-xdist sends texts unchanged.
SEEN = "optrove_seen"
_METRIC_NAMES = ("pcc", "allclose", "ulp")


@dataclass(slots=True)
class _Test:
    """The observations of one run of one test."""

    item: pytest.Item
    facts: dict[str, str] = field(default_factory=dict)
    metrics: list[RecordedMetric] = field(default_factory=list)
    recorded: list[tuple[str, object]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    times: dict[str, tuple[float, float]] = field(default_factory=dict)


class Observer:
    """The part of the plugin that observes tests."""

    def __init__(self) -> None:
        self._test: _Test | None = None
        self._patches = ComparisonPatches(self._add, self._add_fault)

    def stop(self) -> None:
        """Restore the comparison functions."""
        self._patches.stop()

    def record(
        self,
        item: pytest.Item,
        entry: tuple[str, object],
        threshold: float | None,
        passed: bool | None,  # noqa: FBT001 - always given, by the fixture
    ) -> None:
        """Add a metric from the fixture ``record_metric``, which made it a property too."""
        test = self._of(item)
        test.recorded.append(entry)
        name, value = entry
        shown = value if isinstance(value, int | float | None) else str(value)
        self._add(RecordedMetric(name, shown, threshold, passed))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Attribute the comparisons until the end of the test to it."""
        self._test = _Test(item)
        with observing(self._add_own):
            yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Start from nothing: a test may be run again."""
        self._test = _Test(item)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        """Add the observations so far to the report."""
        outcome: Any = yield
        test = self._of(item)
        test.times[call.when] = (call.start, call.stop)
        # Not at teardown: reading the shape of a closed mesh may end the process.
        if call.when != "teardown":
            test.facts = facts(item, self._add_fault)
        setattr(outcome.get_result(), SEEN, json.dumps(_seen(test)))

    def seen_of(self, node_id: str) -> str | None:
        """Return the observations of a test that did not end, as JSON."""
        if self._test is None or self._test.item.nodeid != node_id:
            return None
        return json.dumps(_seen(self._test))

    def _of(self, item: pytest.Item) -> _Test:
        if self._test is None or self._test.item is not item:
            self._test = _Test(item)
        return self._test

    def _add(self, metric: RecordedMetric) -> None:
        # Comparisons while files are collected belong to no test.
        if self._test is not None:
            if ran_on().startswith(DeviceKind.MOCK.value):
                metric = replace(metric, passed=None, void=True)
            self._test.metrics.append(metric)

    def _add_own(self, comparison: Comparison) -> None:
        self._add(
            RecordedMetric(
                comparison.name, comparison.value, comparison.threshold, comparison.passed
            )
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
        "ran_on": ran_on(),
        "metrics": json_numbers([metric.entry() for metric in metrics]),
        "parameters": json_numbers(plain(parameters(test.item))),
        "properties": json_numbers(plain(list(properties))),
        "times": test.times,
        "faults": test.faults,
    }


def _metric_of(name: str, value: object) -> RecordedMetric | None:
    """Return a property as a metric, if its name is that of one and it is a number."""
    if not any(word in name.lower() for word in _METRIC_NAMES):
        return None
    number = value.item() if hasattr(value, "item") else value
    return RecordedMetric(name, number) if isinstance(number, int | float) else None

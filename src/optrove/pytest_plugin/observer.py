"""Observe tests and comparisons in the process that runs them.

They are replaced when their modules get imported, and put back at the end. Where one calls
another, the innermost tells the most: its number and its threshold stand for the whole call.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from optrove.frameworks.import_hooks import when_imported
from optrove.metrics import Comparison, observing
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
class Metric:
    """One number that a test measured, or in its place the words about it."""

    type: str
    value: float | str | None
    threshold: float | None = None
    passed: bool | None = None


_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?|inf|nan)"
_PCC = re.compile(rf"\bpcc\b[\s:=]{{0,3}}({_NUMBER})\b", re.IGNORECASE)
_ERROR = re.compile(rf"\bmax atol delta[\s:=]{{0,3}}({_NUMBER})", re.IGNORECASE)
_ULP = re.compile(rf"\bmax ulp delta[\s:=]{{0,3}}({_NUMBER})", re.IGNORECASE)
_NUMBER_ONLY = re.compile(rf"\s*({_NUMBER})\s*", re.IGNORECASE)
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a function measures, how its message says it, and which argument is the threshold."""

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

# What calls from inside the current one have reported; None outside of any.
_inner: ContextVar[list[Metric] | None] = ContextVar("inner", default=None)


class Watching:
    """Comparison functions that report to ``on_metric`` until ``stop``."""

    def __init__(
        self,
        on_metric: Callable[[Metric], object],
        on_fault: Callable[[Exception], object],
    ) -> None:
        self._on_metric = on_metric
        self._on_fault = on_fault
        self._active = True
        self._originals: dict[Any, Any] = {}
        self._replaced: list[tuple[ModuleType, str, Any]] = []
        self._undo = [when_imported(name, self._replace_in, on_fault=on_fault) for name in MODULES]

    def stop(self) -> None:
        """Put every function back; those that were imported by name report nothing any more."""
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
            # One that this module imported from another is replaced already.
            if function not in self._originals:
                replacement = self._reporting(function, kinds)
                self._originals[replacement] = function
                setattr(module, name, replacement)
                function = replacement
            self._replaced.append((module, name, function))

    def _reporting(self, original: Any, kinds: tuple[_Kind, ...]) -> Any:
        @functools.wraps(original)
        def reporting(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest shows the user's frames, not this one
            if not self._active:
                return original(*args, **kwargs)
            outer, inner = _inner.get(), list[Metric]()
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

    def _metrics(self, kinds: tuple[_Kind, ...], answer: Any, call: _Call) -> list[Metric]:
        # An assertion that returns nothing has held.
        passed, about = answer if isinstance(answer, tuple) else (answer is None or answer, None)
        try:
            return [
                Metric(
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

    def _pass_on(self, metrics: list[Metric], outer: list[Metric] | None) -> None:
        if outer is not None:
            outer.extend(metrics)
            return
        for metric in metrics:
            self._on_metric(metric)


@dataclass(frozen=True, slots=True)
class _Call:
    """A function with what it was called with."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def number(self, parameter: str | None) -> float | None:
        """Return the number that was given for a parameter, or is its default."""
        bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        bound.apply_defaults()
        value = bound.arguments.get(parameter or "")
        return float(value) if isinstance(value, int | float) else None


def _value(about: Any, pattern: re.Pattern[str]) -> float | str | None:
    """Return the number that a function returned, or that its message names, or the message."""
    if about is None:
        return None
    if not isinstance(about, str):
        return float(about)
    found = pattern.search(about) or _NUMBER_ONLY.fullmatch(about)
    return float(found[1]) if found else about[:_LONGEST]


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

"""Watch the comparison functions of tt-metal's tests, which return or assert what they found.

They are replaced when their modules get imported, and put back at the end. Where one calls
another, the innermost tells the most: its number and its threshold stand for the whole call.
"""

from __future__ import annotations

import functools
import inspect
import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optrove.backends.imports import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable
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

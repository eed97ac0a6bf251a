"""Judge what a sweep module's ``run`` returned or raised: the Outcome, and what was measured.

``run`` returns ``(passed, message)`` or ``[(passed, message), nanoseconds]``. A PCC that the
message tells is a measurement. On a mock board without numerics every number that is read back
means nothing, so that a verdict about numbers does not count there.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

from optrove.backends.executing import Raised
from optrove.model.records import DeviceKind, Measurement, Outcome
from optrove.run.judge import classify
from optrove.run.module_loading import told

PCC: Final = "pcc"
END_TO_END: Final = "e2e_ns"

MEANINGLESS: Final = (
    "numbers of a mock board mean nothing, so the module's verdict on them does not count; "
    "with --device shadow it does"
)

_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_PCC: Final = re.compile(rf"pcc\b[^-+.\d\n]{{0,16}}({_NUMBER})\b", re.IGNORECASE)
_ALONE: Final = re.compile(rf"\s*({_NUMBER})\s*")
_NUMERIC: Final = re.compile(r"\b(pcc|allclose|atol|rtol|ulp|tolerance)\b", re.IGNORECASE)
_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The Outcome of a vector, in the module's own words, and what there is to note about it."""

    outcome: Outcome
    detail: str | None = None
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()


def judge_returned(returned: Any, device_kind: DeviceKind) -> Verdict:
    """Return the verdict on what ``run`` returned."""
    pair, nanoseconds = _parts(returned)
    if pair is None:
        words = (
            f"run returned {type(returned).__name__} {str(returned)[:200]!r}; "
            f"it has to return (passed, message) or [(passed, message), nanoseconds]"
        )
        return Verdict(Outcome.RAISED, words)
    passed, message = bool(pair[0]), str(pair[1]).strip()
    timed = () if nanoseconds is None else (Measurement(END_TO_END, nanoseconds),)
    if device_kind is DeviceKind.MOCK and (not message or is_numeric(message)):
        note = f"{MEANINGLESS}: it says {passed}, {message!r}"
        return Verdict(Outcome.PASSED, None, timed, (note,))
    measured = (*_pcc(message, passed=passed), *timed)
    if passed:
        return Verdict(Outcome.PASSED, None, measured)
    return Verdict(Outcome.NUMERICS, message or "run returned False, without a message", measured)


def judge_raised(error: BaseException, device_kind: DeviceKind) -> Verdict:
    """Return the verdict on what ``run`` raised."""
    text = str(error)
    skipped = getattr(getattr(sys.modules.get("pytest"), "skip", None), "Exception", None)
    if skipped is not None and isinstance(error, skipped):
        return Verdict(Outcome.NOT_RUN, f"the module skips it: {text}")
    if isinstance(error, SystemExit):
        return Verdict(Outcome.RAISED, told(error))
    outcome, words = classify(Raised(type(error).__name__, text))
    if isinstance(error, AssertionError) and is_numeric(text):
        if device_kind is DeviceKind.MOCK:
            return Verdict(Outcome.PASSED, notes=(f"{MEANINGLESS}: it raises {told(error)}",))
        return Verdict(Outcome.NUMERICS, words, _pcc(text, passed=False))
    return Verdict(outcome, words)


def is_numeric(message: str) -> bool:
    """Tell whether a message speaks of numbers that were compared."""
    return bool(_ALONE.fullmatch(message) or _NUMERIC.search(message))


def _parts(returned: Any) -> tuple[tuple[Any, Any] | None, float | None]:
    """Return the pair of verdict and message, and the time; no pair if it has another form."""
    if isinstance(returned, list) and returned and _is_pair(returned[0]):
        first, *rest = returned
        return (first[0], first[1]), float(rest[0]) if rest and _is_number(rest[0]) else None
    if _is_pair(returned):
        return (returned[0], returned[1]), None
    return None, None


def _is_pair(value: Any) -> bool:
    """Tell whether it is a truth value with something that can be a message."""
    if not isinstance(value, (tuple, list)) or len(value) != _PAIR:
        return False
    truth = value[0]
    # The truth values of numpy and torch are no bools, and say what they are.
    return isinstance(truth, bool) or str(getattr(truth, "dtype", "")).endswith("bool")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _pcc(message: str, *, passed: bool) -> tuple[Measurement, ...]:
    found = _PCC.search(message) or _ALONE.fullmatch(message)
    if found is None:
        return ()
    value = float(found[1])
    # A lone number beyond these bounds is something else that the module has measured.
    if not -1.0 <= value <= 1.0 and not math.isnan(value):
        return ()
    return (Measurement(PCC, value, None, passed),)

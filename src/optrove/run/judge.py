"""Judge what came of an execution: the Outcome, the words for it, and the measurements.

What an exception means is told by ttnn's own message. The rules are tried in their order; a
message that none of them knows is RAISED.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove import metrics
from optrove.errors import NotComparable
from optrove.model.records import Measurement, Outcome
from optrove.run.differences import case_differences, output_differences
from optrove.run.machine import in_words, machine_fault
from optrove.run.measuring import EXTRAS

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.backends.executing import Compared, Executed, Raised
    from optrove.model.records import Job

PCC: Final = 0.99
"""What a result's PCC must reach against the golden function; rounding normally distributed numbers
to bfloat4_b alone leaves 0.993."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a text in the words of an exception means."""

    text: re.Pattern[str]
    outcome: Outcome


def _rule(text: str, outcome: Outcome) -> Rule:
    return Rule(re.compile(text, re.IGNORECASE), outcome)


RULES: Final = (
    _rule(r"timeout (in|waiting for) .*(fetch queue|device|physical cores)", Outcome.HUNG),
    _rule(r"out of memory|not enough space to allocate|bad_alloc", Outcome.OUT_OF_MEMORY),
    _rule(r"beyond max L1 size|clash with L1 buffers", Outcome.OUT_OF_MEMORY),
    _rule(r"TT_FATAL|TT_THROW|TT_ASSERT", Outcome.REJECTED),
    _rule(r"incompatible function arguments", Outcome.REJECTED),
)
"""What ttnn's messages mean, the most telling first."""

L1_SMALL: Final = re.compile(r"L1_SMALL", re.IGNORECASE)
"""What an operation says that needs a part of L1 which is there only when asked for."""

MEASURES: Final[dict[str, Callable[[Compared], float]]] = {
    "pcc": lambda compared: metrics.pcc(compared.expected, compared.actual),
    "max_abs_error": lambda compared: metrics.max_abs_error(compared.expected, compared.actual),
    "ulp": lambda compared: metrics.ulp(compared.rounded, compared.actual),
}
"""What is measured of each result that has numbers."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The Outcome of an execution, why it is none better, what was measured and what to note."""

    outcome: Outcome
    detail: str | None = None
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()


def judge(job: Job, executed: Executed, notes: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict on an execution; ``notes`` say what was supplied besides."""
    supplied = [*notes, *executed.notes]
    if executed.replayed is not None:
        differing = case_differences(job.case, executed.replayed, executed.named)
        supplied += [f"not as recorded: {line}" for line in differing]
    if executed.raised is not None:
        outcome, words = classify(executed.raised)
        return Verdict(outcome, words, notes=tuple(supplied))
    if executed.replayed is None:
        words = "the call returned, and no operation was seen: it cannot be told what was replayed"
        return Verdict(Outcome.NOT_RUN, words, notes=tuple(supplied))
    wrong = [] if job.outputs is None else output_differences(job.outputs, executed.outputs)
    measured, failing, lacking = measure(executed.compared, job.metrics or tuple(MEASURES))
    outcome = Outcome.NUMERICS if failing else Outcome.PASSED
    return Verdict(
        Outcome.WRONG_SPEC if wrong else outcome,
        "\n".join((*wrong, *failing)) or None,
        measured,
        (*lacking, *supplied),
    )


def classify(raised: Raised) -> tuple[Outcome, str]:
    """Return what an exception means, and its words: what is wrong first, then all of it."""
    text = f"{raised.type}: {raised.text}"
    fault = machine_fault(text)
    if fault is not None:
        return Outcome.NOT_RUN, f"{in_words(fault)}\n{text}"
    outcome = next((rule.outcome for rule in RULES if rule.text.search(text)), Outcome.RAISED)
    return outcome, f"{headline(raised)}\n{text}"


_INFORMATION: Final = re.compile(r"^info:\s*$", re.MULTILINE)


def headline(raised: Raised) -> str:
    """Return the one line of an exception that says what is wrong."""
    told = _INFORMATION.split(raised.text, maxsplit=1)
    lines = [line.strip() for line in told[-1].splitlines() if line.strip()]
    return lines[0] if lines else raised.type


def _moved_wrongly(compared: Compared) -> list[str]:
    """Return that numbers were changed which were only to be moved."""
    if not compared.exact:
        return []
    error = metrics.max_abs_error(compared.expected, compared.actual)
    changed = (
        f"output {compared.output}: its numbers were only to be moved, and differ by {error!r}"
    )
    return [] if error == 0 else [changed]


def measure(
    compared: tuple[Compared, ...], names: tuple[str, ...]
) -> tuple[tuple[Measurement, ...], list[str], list[str]]:
    """Return what was measured, what fails by it, and what could not be measured."""
    measured: list[Measurement] = []
    failing: list[str] = []
    unknown = [name for name in names if name not in (*MEASURES, *EXTRAS)]
    lacking = [f"no metric is called {name}; known: {', '.join(MEASURES)}" for name in unknown]
    for each in compared:
        if each.lacking is not None:
            lacking.append(f"output {each.output} was not compared: {each.lacking}")
            continue
        try:
            found = _measured(each, names)
        except NotComparable as error:
            failing.append(f"output {each.output}: {error}")
            continue
        measured += found
        failing += [
            f"output {each.output}: PCC {one.value!r} is below {one.threshold!r}"
            for one in found
            if one.passed is False
        ]
        failing += _moved_wrongly(each)
    return tuple(measured), failing, lacking


def _measured(compared: Compared, names: tuple[str, ...]) -> list[Measurement]:
    found = []
    without = {"ulp"} if compared.rounded is None else set()
    for name in (each for each in MEASURES if each in names and each not in without):
        value = MEASURES[name](compared)
        threshold = PCC if name == "pcc" else None
        passed = None if threshold is None else not math.isnan(value) and value >= threshold
        found.append(Measurement(name, value, threshold, passed, compared.output))
    return found

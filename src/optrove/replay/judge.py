"""Judge an execution: compare, measure, and decide the Outcome.

A host without memory, a driver whose windows are held elsewhere or a board that has fallen off its
bus say nothing about an operation: what they stop is NOT_RUN, with the reason.

What an exception means is told by ttnn's own message. The rules are tried in their order; a
message that none of them knows is RAISED.
"""

from __future__ import annotations

import math
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove import metrics
from optrove.errors import NotComparable, NotReplayable
from optrove.frameworks.executor import Asked
from optrove.model.case import Case, renamed
from optrove.model.records import Measurement, Outcome
from optrove.model.values import Null, key_step
from optrove.serializer.text import Json, write
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.frameworks.executor import Compared, Executed, Executor, Raised
    from optrove.model.records import Job
    from optrove.model.values import Value


LISTED: Final = 20
"""How many differences are told; the rest is counted."""

_LONGEST: Final = 120
_PLACE: Final = re.compile(r"arg\d+")

UNTOLD: Final = (".placement.mesh", ".placement.mesh_shape")
"""What recordings may leave out about a tensor that lies on a device."""

GRADIENT: Final = re.compile(r"\$\.outputs\b.*\.placement\.requires_grad")
"""What is false of a result where nothing was to be differentiated, whatever was called."""

SPREAD: Final = frozenset({"coordinates", "distribution_shape", "placements"})
"""The parts of how a tensor is spread over a mesh."""


def case_differences(
    recorded: Case, replayed: Case, named: tuple[tuple[str, str], ...]
) -> list[str]:
    """Return how a replayed call differs from the recorded one; empty if it does not.

    An argument that was recorded by its place only is compared with the one that it became; that
    it has got a name is no difference, nor that it is absent by now where it was None.
    """
    if recorded == replayed:
        return []
    if recorded.op != replayed.op:
        return [f"recorded as a call of {recorded.op}, traced as one of {replayed.op}"]
    own = {name for name, _ in recorded.arguments}
    names = {old: new for old, new in named if old in own and new not in own}
    kept = tuple(
        (name, value)
        for name, value in recorded.arguments
        if not (value == Null() and name not in names and _PLACE.fullmatch(name))
    )
    alike = renamed(Case(recorded.op, kept), names)
    if alike == replayed:
        return []
    olds = {name: encode(value) for name, value in alike.arguments}
    news = {name: encode(value) for name, value in replayed.arguments}
    return _listed(_differences("$.arguments", olds, news))


def output_differences(recorded: tuple[Value, ...], replayed: tuple[Value, ...]) -> list[str]:
    """Return how the outputs of a replay differ from the recorded ones; empty if they do not.

    On one chip there is one way to spread a tensor, in as many dimensions as ttnn likes: whether
    it has moved a tensor meanwhile, as a fuller L1 makes it do, changes their number.
    """
    if recorded == replayed:
        return []
    olds = [_on_one_chip(encode(value)) for value in recorded]
    news = [_on_one_chip(encode(value)) for value in replayed]
    return _listed(_differences("$.outputs", olds, news))


def _on_one_chip(data: Json) -> Json:
    """Return a value without the dimensions in which a tensor is spread over a single chip."""
    if isinstance(data, list):
        return [_on_one_chip(item) for item in data]
    if not isinstance(data, dict):
        return data
    if set(data) == SPREAD and data["coordinates"] == [[0, 0]]:
        return {"coordinates": data["coordinates"]}
    return {key: _on_one_chip(item) for key, item in data.items()}


def _listed(found: Iterator[str]) -> list[str]:
    lines = list(found)
    more = len(lines) - LISTED
    return [*lines[:LISTED], f"and {more} more"] if more > 0 else lines


def _differences(path: str, old: Json, new: Json) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            here = path + key_step(key)
            if key not in new:
                yield f"{here}: recorded {_shown(old[key])}, replayed without"
            elif key not in old:
                yield f"{here}: recorded without, replayed {_shown(new[key])}"
            else:
                yield from _differences(here, old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{path}[{index}]", one, other)
    elif (type(old) is not type(new) or old != new) and not _is_untold(path, old):
        yield f"{path}: recorded {_shown(old)}, replayed {_shown(new)}"


def _is_untold(path: str, old: Json) -> bool:
    if old is False:
        return GRADIENT.fullmatch(path) is not None
    return old is None and path.endswith(UNTOLD)


def _shown(data: Json) -> str:
    text = write(data)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


@dataclass(frozen=True, slots=True)
class Fault:
    """What a text in the words of an exception or of a dying process means."""

    text: re.Pattern[str]
    reason: str


def _fault(text: str, reason: str) -> Fault:
    return Fault(re.compile(text, re.IGNORECASE), reason)


FAULTS: Final = (
    _fault(r"no chips detected", "ttnn has found no board"),
    _fault(
        r"failed to allocate (the )?tlb|tt_tlb_alloc",
        "the driver's windows to the board are held by another process, or by one that was killed",
    ),
    _fault(r"sysmem mapped at unexpected", "another process holds the host memory of the board"),
    _fault(
        r"eth(ernet)? heartbeat|eth(ernet)? (core )?training",
        "the links between the chips did not come up; no kernel ran",
    ),
    _fault(
        r"read 0xffffffff (from|over)|you should reset the board|board should be reset",
        "the board does not answer any more",
    ),
    _fault(
        r"arc (core|message|msg)[^\n]*(time|fail)", "the board's own controller does not answer"
    ),
    _fault(r"no space left on device", "a disk of the host is full"),
    _fault(r"too many open files", "the host has no more file descriptors for this process"),
)
"""What ttnn, its driver and the host say when they are the ones that failed."""

_FROM_OUTSIDE: Final = {
    -signal.SIGKILL: (
        "it was killed from outside, most often because the host has no memory left "
        "(numbers of large tensors take it; fewer --jobs help)"
    ),
    -signal.SIGTERM: "it was ended from outside",
}


def machine_fault(text: str) -> str | None:
    """Return what is wrong with the machine, if these words are about it."""
    return next((fault.reason for fault in FAULTS if fault.text.search(text)), None)


def fatal_fault(exit_code: int, last_words: str) -> str | None:
    """Return what is wrong with the machine, if that has ended a process."""
    return _FROM_OUTSIDE.get(exit_code) or machine_fault(last_words)


def in_words(reason: str) -> str:
    """Return the first line of what is said about a Job that the machine has stopped."""
    return f"the machine failed, not the operation: {reason}"


WARM: Final = "e2e_ns"
"""How long a call takes once all that it needs is compiled and cached, in nanoseconds."""

PEAK_L1: Final = "peak_l1_bytes"
"""How many bytes of the L1 of one core are taken at most: by tensors, and by the op's buffers."""

EXTRAS: Final = (WARM, PEAK_L1)
_REPEATS: Final = 3
_RAN: Final = (Outcome.PASSED, Outcome.NUMERICS, Outcome.WRONG_SPEC)


def measure_extras(
    job: Job, outcome: Outcome, executor: Executor, again: Callable[[], Executed]
) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Return what was measured of a Job that ran, and why something could not be.

    ``again`` executes it once more.
    """
    wanted = [name for name in job.metrics if name in EXTRAS]
    if not wanted or outcome not in _RAN:
        return (), ()
    ways = {
        WARM: lambda: _warm(again),
        PEAK_L1: lambda: executor.peak_l1(Asked(job.case, job.seed, job.outputs)),
    }
    found = [_measured(name, ways[name]) for name in wanted]
    measured = tuple(each for each in found if isinstance(each, Measurement))
    return measured, tuple(each for each in found if isinstance(each, str))


def _measured(name: str, way: Callable[[], int]) -> Measurement | str:
    try:
        return Measurement(name, way())
    except NotReplayable as error:
        return f"{name} was not measured: {error}"


def _warm(again: Callable[[], Executed]) -> int:
    """Return how long the shortest of a few calls took."""
    times = []
    for _ in range(_REPEATS):
        executed = again()
        if executed.raised is not None or executed.duration_ns is None:
            words = "" if executed.raised is None else executed.raised.text.partition("\n")[0]
            raise NotReplayable(f"a repeated call said {words or 'nothing'}")
        times.append(executed.duration_ns)
    return min(times)


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
            found = _with_measurements(each, names)
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


def _with_measurements(compared: Compared, names: tuple[str, ...]) -> list[Measurement]:
    found = []
    without = {"ulp"} if compared.rounded is None else set()
    for name in (each for each in MEASURES if each in names and each not in without):
        value = MEASURES[name](compared)
        threshold = PCC if name == "pcc" else None
        passed = None if threshold is None else not math.isnan(value) and value >= threshold
        found.append(Measurement(name, value, threshold, passed, compared.output))
    return found

"""Decide the Outcome of a replay.

Four things can end a replay, and each has its function here: the executed call returns or raises
(``judge``), the ``run`` of a sweep module returns or raises (``judge_module_result``,
``judge_module_error``), or the worker process is lost (``judge_loss``).

A fault of the machine is never an Outcome of the operation: a host without memory, a driver whose
windows another process holds, or a board that fell off its bus make a Job NOT_RUN. So does a
simulator that does not support what a kernel does: it prints one line and ends the process.
"""

from __future__ import annotations

import math
import re
import signal
import sys
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Final
from unittest import SkipTest

from optrove import metrics
from optrove.errors import NoNumbers, NotComparable, UnsupportedOnMock
from optrove.frameworks.executor import Raised, Stage
from optrove.model.case import Case, renamed
from optrove.model.causes import LOST_OBJECT, ttnn_problem
from optrove.model.differences import ABSENT, Parts, differences, is_same_json, json_parts
from optrove.model.records import E2E_NS, HARMLESS, SKIPPED, DeviceKind, Measurement, Outcome
from optrove.model.values import Null
from optrove.replay.workers import WorkerDied, WorkerTimeout, WorkerUnusable
from optrove.serializer.text import Json, write
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.frameworks.executor import Compared, Executed
    from optrove.model.records import Attempt, Job
    from optrove.model.values import Value
    from optrove.replay.workers import Loss


def _patterns(*rows: tuple[str, Any]) -> tuple[tuple[re.Pattern[str], Any], ...]:
    return tuple((re.compile(text, re.IGNORECASE), meaning) for text, meaning in rows)


MACHINE_FAULTS: Final[tuple[tuple[re.Pattern[str], str], ...]] = _patterns(
    (r"no chips detected", "ttnn has found no board"),
    (
        r"failed to allocate (the )?tlb|tt_tlb_alloc",
        "the driver's windows to the board are held by another process, or by one that was killed",
    ),
    (r"sysmem mapped at unexpected", "another process holds the host memory of the board"),
    (
        r"eth(ernet)? heartbeat|eth(ernet)? (core )?training",
        "the links between the chips did not come up; no kernel ran",
    ),
    (
        r"read 0xffffffff (from|over)|you should reset the board|board should be reset",
        "the board no longer answers",
    ),
    (r"arc (core|message|msg)[^\n]*(time|fail)", "the board's own controller does not answer"),
    (r"no space left on device", "a disk of the host is full"),
    (r"too many open files", "the host has no more file descriptors for this process"),
)
"""Messages of ttnn, its driver and the host when they fail themselves, and what each means."""

_KILLED: Final = {
    -signal.SIGKILL: (
        "it was killed from outside, most often because the host has no memory left "
        "(numbers of large tensors take it; fewer --jobs help)"
    ),
    -signal.SIGTERM: "it was ended from outside",
}

OUTCOMES: Final[tuple[tuple[re.Pattern[str], Outcome], ...]] = _patterns(
    (r"failed to generate binaries", Outcome.COMPILE_FAILED),
    (r"timeout (in|waiting for) .*(fetch queue|device|physical cores)", Outcome.HUNG),
    (r"out of memory|not enough space to allocate|bad_alloc", Outcome.OUT_OF_MEMORY),
    (r"beyond max L1 size|clash with L1 buffers", Outcome.OUT_OF_MEMORY),
    (r"TT_FATAL|TT_THROW|TT_ASSERT", Outcome.REJECTED),
    (r"incompatible function arguments", Outcome.REJECTED),
)
"""Messages of an operation's exception; the first that matches decides, otherwise it is RAISED."""

RAN: Final = frozenset({Outcome.PASSED, Outcome.NUMERICS, Outcome.WRONG_SPEC})
"""The Outcomes of calls that returned."""

PCC: Final = 0.99
"""The least PCC of a result against the golden function; rounding normally distributed numbers
to bfloat4_b alone leaves 0.993."""

MEASURES: Final[dict[str, Callable[[Compared], float]]] = {
    "pcc": lambda compared: metrics.pcc(compared.expected, compared.actual),
    "max_abs_error": lambda compared: metrics.max_abs_error(compared.expected, compared.actual),
    "ulp": lambda compared: metrics.ulp(compared.rounded, compared.actual),
}
"""The metrics of each result that has numbers."""

PEAK_L1: Final = "peak_l1_bytes"
"""The most bytes of L1 that tensors and the op's buffers take on one core."""

EXTRAS: Final = (E2E_NS, PEAK_L1)
"""Metrics that are measured only on request, since they execute the case again."""


def judge(begun: Attempt, job: Job, executed: Executed, notes: tuple[str, ...] = ()) -> Attempt:
    """Return the Attempt with the Outcome of an executed call; ``notes`` go before its own."""
    supplied = [*notes, *executed.notes]
    job = executed.job or job
    if executed.replayed is not None:
        differing = case_differences(job.case, executed.replayed, executed.named)
        supplied += [f"not as recorded: {line}" for line in differing]
    if executed.raised is not None:
        if job.raises is not None and job.raises.partition(":")[0] == executed.raised.type:
            note = f"{HARMLESS}it raises {executed.raised.type}, as it did when it was recorded"
            return replace(begun, outcome=Outcome.PASSED, notes=(note, *supplied))
        outcome, detail = classify(executed.raised)
        if executed.excuse is not None:
            outcome, detail = Outcome.NOT_RUN, f"{executed.excuse}\n{detail}"
        return replace(begun, outcome=outcome, detail=detail, notes=tuple(supplied))
    if executed.replayed is None:
        detail = "the call returned, but no operation was observed: it is unknown what ran"
        return replace(begun, outcome=Outcome.NOT_RUN, detail=detail, notes=tuple(supplied))
    known = job.outputs is not None and not executed.data_dependent
    wrong = output_differences(job.outputs or (), executed.outputs) if known else []
    if wrong and is_own_placement(wrong, job.recorded_on, begun.board):
        supplied += [f"{HARMLESS}ttnn places the output otherwise on this board: {wrong[0]}"]
        wrong = []
    measured, failing, lacking = measure(executed.compared, job.metrics or tuple(MEASURES))
    failing += executed.faults
    if job.raises is not None:
        wrong = [*wrong, f"it returned; when it was recorded, it raised {job.raises}"]
    outcome = Outcome.NUMERICS if failing else Outcome.PASSED
    return replace(
        begun,
        outcome=Outcome.WRONG_SPEC if wrong else outcome,
        detail="\n".join((*wrong, *failing)) or None,
        measurements=measured,
        notes=(*lacking, *supplied),
    )


def classify(raised: Raised) -> tuple[Outcome, str]:
    """Return the Outcome of an exception, and its text with the line that matters first."""
    text = f"{raised.type}: {raised.text}"
    fault = machine_fault(text)
    if fault is not None:
        return Outcome.NOT_RUN, f"{_machine_failed(fault)}\n{text}"
    meanings = (outcome for pattern, outcome in OUTCOMES if pattern.search(text))
    outcome = next(meanings, Outcome.RAISED)
    compiled = _COMPILER_ERROR.search(text) if outcome is Outcome.COMPILE_FAILED else None
    first = headline(raised) if compiled is None else compiled[0]
    return outcome, f"{first}\n{text}"


_COMPILER_ERROR: Final = re.compile(r"[^/\s:]+:\d+:\d+: (?:fatal )?error: [^\n]*")
"""The first error of a kernel's compiler, without the directory of the file."""


def machine_fault(text: str) -> str | None:
    """Return the fault of the machine that a message reports, None for other messages."""
    return next((fault for pattern, fault in MACHINE_FAULTS if pattern.search(text)), None)


def _machine_failed(fault: str) -> str:
    return f"the machine failed, not the operation: {fault}"


def headline(raised: Raised) -> str:
    """Return the line of an exception that states the problem."""
    lines = (line.strip() for line in raised.text.splitlines())
    return ttnn_problem(raised.text) or next(filter(None, lines), raised.type)


def judge_loss(loss: Loss, device_kind: DeviceKind) -> tuple[Outcome, str]:
    """Return the Outcome and detail of a Job whose worker was lost.

    The operation is blamed only if it had been called, and neither the machine nor a simulator
    ended the process. A simulator that is late does not blame it either: most cases are too large.
    """
    if device_kind is DeviceKind.SIMULATOR:
        refusal = _simulator_refusal(loss)
        if refusal is not None:
            return Outcome.NOT_RUN, refusal
    is_called = getattr(loss, "stage", None) in (Stage.CALLING, Stage.READING)
    if not isinstance(loss, WorkerDied):
        hung = isinstance(loss, WorkerTimeout) and is_called
        return Outcome.HUNG if hung else Outcome.NOT_RUN, str(loss)
    fault = fatal_fault(loss.exit_code, loss.last_words)
    first = "" if fault is None else f"{_machine_failed(fault)}\n"
    crashed = is_called and fault is None
    detail = f"{first}{loss}\n{loss.last_words}"
    return Outcome.CRASHED if crashed else Outcome.NOT_RUN, detail


_REFUSAL: Final = re.compile(r"^\[\d+\] ERROR: (\w+): (.*)$", re.MULTILINE)
"""The line that the simulator prints before it ends the process: [clock] ERROR: category: ..."""

_WRONG_CHIP: Final = re.compile(r"^\[0\] .*(?:pci_mem_wr_cur: bar0|dma_reg_ptr: offset)")
"""The first access to a chip of another architecture: Blackhole as Wormhole, Wormhole as Blackhole.

Seen with ttsim 1.10.0 and ttnn 0.78.0, when ttnn looks for devices.
"""


def _simulator_refusal(loss: Loss) -> str | None:
    """Return why a simulator did not run a case; None if it is not to blame."""
    if isinstance(loss, WorkerTimeout) and loss.stage in (Stage.CALLING, Stage.READING):
        return (
            f"simulator: too slow: no end within {loss.seconds:g} s; the case is too large for it, "
            f"or its kernel hangs: try --scale small, or a longer --timeout"
        )
    found = None
    if isinstance(loss, WorkerDied):
        found = _REFUSAL.search(loss.last_words)
    elif isinstance(loss, WorkerUnusable):
        found = _REFUSAL.search(loss.reason)
    if found is None:
        return None
    category, words = found.groups()
    if _WRONG_CHIP.match(found[0]):
        return f"simulator: wrong chip: the library is of another architecture\n{found[0]}"
    return f"simulator: {category}: {words}\n{loss}"


def fatal_fault(exit_code: int, last_words: str) -> str | None:
    """Return the fault of the machine that ended a process, None if it was not the machine."""
    return _KILLED.get(exit_code) or machine_fault(last_words)


MAX_DIFFERENCES: Final = 20
"""The most differences that are listed; the rest is counted."""

_MAX_CHARS: Final = 120
_PLACE: Final = re.compile(r"arg\d+")

_UNRECORDED: Final = (".placement.mesh", ".placement.mesh_shape")
"""Properties of a tensor on a device that recordings may leave out."""

_GRADIENT: Final = re.compile(r"\$\.outputs\b.*\.placement\.requires_grad")
"""A property of outputs that is false wherever nothing was differentiated."""

_TOKEN: Final = re.compile(r"\$\.outputs(\[\d+\]|\.\$tuple)*\.token")
"""The token of an object of an unknown type; two are never equal."""

_SPREAD: Final = frozenset({"coordinates", "distribution_shape", "placements"})
"""The parts of a tensor's distribution over a mesh."""


def case_differences(
    recorded: Case, replayed: Case, named: tuple[tuple[str, str], ...]
) -> list[str]:
    """Return the differences between the recorded call and the replayed one, as text.

    An argument that was recorded by position is compared under the name that it has now. Neither
    the name is a difference, nor that a positional None is absent.
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
    return _difference_lines("$.arguments", olds, news)


def output_differences(recorded: tuple[Value, ...], replayed: tuple[Value, ...]) -> list[str]:
    """Return the differences between the recorded outputs and the replayed ones, as text.

    On one chip a tensor has only one distribution, in any number of dimensions: ttnn changes
    the number when it moves a tensor, as a fuller L1 makes it do. The stride of a dimension of
    size 1 means nothing, and torch chooses it differently on other devices.
    """
    if recorded == replayed:
        return []
    olds = [_comparable(encode(value)) for value in recorded]
    news = [_comparable(encode(value)) for value in replayed]
    return _difference_lines("$.outputs", olds, news)


def is_own_placement(wrong: list[str], recorded_on: str | None, board: str | None) -> bool:
    """Return whether outputs differ only in the shards that ttnn chooses for another board."""
    another = recorded_on is not None and board is not None and recorded_on != board
    return another and all(_PLACEMENT.match(line) for line in wrong)


def _comparable(data: Json) -> Json:
    """Return a value without distributions over a single chip and strides that mean nothing."""
    if isinstance(data, list):
        return [_comparable(item) for item in data]
    if not isinstance(data, dict):
        return data
    if set(data) == _SPREAD and data["coordinates"] == [[0, 0]]:
        return {"coordinates": data["coordinates"]}
    placement = data.get("placement")
    if isinstance(placement, dict) and "strides" in placement and 1 in data["shape"]:
        pairs = zip(data["shape"], placement["strides"], strict=False)
        strides = [None if size == 1 else stride for size, stride in pairs]
        data = {**data, "placement": {**placement, "strides": strides}}
    return {key: _comparable(item) for key, item in data.items()}


_PLACEMENT: Final = re.compile(r"output \S+ (memory|padded_shape)\b")
"""The beginning of a line about a property that ttnn chooses by the grid of a board."""
_TENSOR: Final = re.compile(r"\.\$tensor\.(placement\.)?")
_KIND: Final = re.compile(r"\.\$\w+")


def _difference_lines(start: str, old: Json, new: Json) -> list[str]:
    lines = []
    for path, one, other in differences(old, new, _parts, path=start, is_equal=_is_same):
        unrecorded = one is None and path.endswith(_UNRECORDED)
        unrecorded = unrecorded or _TOKEN.fullmatch(path) is not None
        # A class of ttnn that has gained a field since.
        unrecorded = unrecorded or (one is ABSENT and ".fields." in path)
        if not unrecorded and not (one is False and _GRADIENT.fullmatch(path)):
            lines.append(f"{_place(path)}: recorded {_shown(one)}, replayed {_shown(other)}")
    more = len(lines) - MAX_DIFFERENCES
    return [*lines[:MAX_DIFFERENCES], f"and {more} more"] if more > 0 else lines


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two JSON values are the same; C++ prints switches as 0 and 1."""
    return is_same_json(old, new) or ({type(old), type(new)} == {bool, int} and bool(old == new))


def _place(path: str) -> str:
    """Return a path as people read it: ``output 0 memory.shard_spec.grid``, ``argument dtype``."""
    words = re.sub(r"^\$\.outputs\[(\d+)\]", r"output \1", path)
    words = words.replace("$.outputs", "outputs", 1).replace("$.arguments.", "argument ", 1)
    return _KIND.sub("", _TENSOR.sub(" ", words, count=1))


def _parts(data: Any) -> Parts | None:
    """Return the parts of JSON; values of different kinds are compared as a whole."""
    parts = json_parts(data)
    if parts is None or not isinstance(data, dict):
        return parts
    return tuple(key for key in data if key.startswith("$")), data


def _shown(data: Any) -> str:
    match data:
        case {"$tensor": {"dtype": dtype, "shape": shape}}:
            text = f"a tensor of {dtype} with shape {shape}"
        case {"$opaque": name}:
            text = f"{LOST_OBJECT}{name}"
        case _:
            text = "without" if data is ABSENT else write(data)
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."


def measure(
    compared: tuple[Compared, ...], names: tuple[str, ...]
) -> tuple[tuple[Measurement, ...], list[str], list[str]]:
    """Return the measurements of results, the failures among them, and why others are missing."""
    measured: list[Measurement] = []
    failing: list[str] = []
    unknown = [name for name in names if name not in (*MEASURES, *EXTRAS)]
    lacking = [f"no metric is called {name}; known: {', '.join(MEASURES)}" for name in unknown]
    for each in compared:
        if each.lacking is not None:
            lacking.append(f"output {each.output} was not compared: {each.lacking}")
            continue
        if each.judged is not None:
            judged = [item for item in each.judged.measured if item[0] in names]
            measured += [Measurement(name, value, output=each.output) for name, value in judged]
            failing += [f"output {each.output}: {fault}" for fault in each.judged.faults]
            lacking += [f"output {each.output}: {note}" for note in each.judged.notes]
        if each.expected is None:
            continue
        try:
            found = [
                _measured(each, name)
                for name in MEASURES
                if name in names and (name != "ulp" or each.rounded is not None)
            ]
        except NotComparable as error:
            failing.append(f"output {each.output}: {error}")
            continue
        measured += found
        failing += [
            f"output {each.output}: PCC {one.value!r} is below {one.threshold!r}"
            for one in found
            if one.passed is False
        ]
        largest = metrics.max_abs_error(each.expected, each.actual) if each.exact else 0
        if largest != 0:
            failing.append(
                f"output {each.output}: its numbers must only move, but differ by {largest!r}"
            )
    return tuple(measured), failing, lacking


def _measured(compared: Compared, name: str) -> Measurement:
    value = MEASURES[name](compared)
    if name != "pcc" or compared.exact:
        return Measurement(name, value, output=compared.output)
    passed = not math.isnan(value) and value >= PCC
    return Measurement(name, value, PCC, passed, compared.output)


_UNJUDGED: Final = "the mock board has no numbers for the module to judge"
_MEANINGLESS: Final = (
    "numbers of a mock board mean nothing, so the module's verdict on them does not count; "
    "with --device shadow it does"
)

_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_PCC: Final = re.compile(rf"pcc\b[^-+.\d\n]{{0,16}}({_NUMBER})\b", re.IGNORECASE)
_ALONE: Final = re.compile(rf"\s*({_NUMBER})\s*")
_NUMERIC: Final = re.compile(r"\b(pcc|allclose|atol|rtol|ulp|tolerance)\b", re.IGNORECASE)
_SKIP: Final = re.compile(
    r"\s*(?:(?:test|vector|case)\s+(?:is\s+|was\s+)?)?skip(?:s|ped|ping)?\b"
    r"|[^\n]*\bskipp(?:ed|ing)[\s.!)]*\Z",
    re.IGNORECASE,
)


def judge_module_result(begun: Attempt, returned: Any) -> Attempt:
    """Return the Attempt with the Outcome of a sweep module's ``run`` that returned.

    It has to return ``(passed, message)`` or ``[(passed, message), nanoseconds]``. A PCC in the
    message becomes a measurement. A message that begins with "skip" or ends with "skipping" means
    that the module declines the vector. On a mock board without numerics all numbers are
    meaningless, and so is a verdict on them.
    """
    pair, timed = returned, tuple[Measurement, ...]()
    if isinstance(returned, list) and returned and _is_verdict(returned[0]):
        pair, *rest = returned
        if rest and isinstance(rest[0], Real) and not isinstance(rest[0], bool):
            timed = (Measurement(E2E_NS, float(rest[0])),)
    if not _is_verdict(pair):
        detail = (
            f"run returned {type(returned).__name__} {str(returned)[:200]!r}; "
            f"it has to return (passed, message) or [(passed, message), nanoseconds]"
        )
        return replace(begun, outcome=Outcome.RAISED, detail=detail)
    passed, message = bool(pair[0]), str(pair[1]).strip()
    if _SKIP.match(message):
        return replace(begun, outcome=Outcome.NOT_RUN, detail=f"{SKIPPED}: {message}")
    if begun.device_kind is DeviceKind.MOCK and (not message or _is_numeric(message)):
        note = f"{_MEANINGLESS}: it says {passed}, {message!r}"
        return replace(begun, outcome=Outcome.PASSED, measurements=timed, notes=(note,))
    measured = _message_pcc(message, passed=passed)
    if not passed and measured and _ALONE.fullmatch(message):
        message = f"PCC {message} is below the threshold of the module"
    return replace(
        begun,
        outcome=Outcome.PASSED if passed else Outcome.NUMERICS,
        detail=None if passed else message or "run returned False, without a message",
        measurements=(*measured, *timed),
    )


def judge_module_error(begun: Attempt, error: BaseException) -> Attempt:
    """Return the Attempt with the Outcome of a sweep module's ``run`` that raised."""
    text = str(error)
    skip = getattr(getattr(sys.modules.get("pytest"), "skip", None), "Exception", SkipTest)
    if isinstance(error, (skip, SkipTest)) or _SKIP.match(text):
        return replace(begun, outcome=Outcome.NOT_RUN, detail=f"{SKIPPED}: {text}")
    if isinstance(error, NoNumbers) and error.cause != text:
        # The board lacks them; those of a deallocated tensor, of which no cause is known apart
        # from the message, would be lacking on every board.
        return replace(begun, outcome=Outcome.NOT_RUN, detail=f"{_UNJUDGED}: {error.cause}")
    if isinstance(error, UnsupportedOnMock):
        return replace(begun, outcome=Outcome.NOT_RUN, detail=text)
    if isinstance(error, SystemExit):
        return replace(begun, outcome=Outcome.RAISED, detail=error_line(error))
    outcome, detail = classify(Raised(type(error).__name__, text))
    if not isinstance(error, AssertionError) or not _is_numeric(text):
        return replace(begun, outcome=outcome, detail=detail)
    if begun.device_kind is DeviceKind.MOCK:
        note = f"{_MEANINGLESS}: it raises {error_line(error)}"
        return replace(begun, outcome=Outcome.PASSED, notes=(note,))
    measured = _message_pcc(text, passed=False)
    return replace(begun, outcome=Outcome.NUMERICS, detail=detail, measurements=measured)


def error_line(error: BaseException) -> str:
    """Return the type and the first line of an exception."""
    if isinstance(error, SystemExit):
        return f"it ends the process with sys.exit({error.code!r})"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _is_verdict(value: Any) -> bool:
    """Return whether a value is a pair of a truth value and a message."""
    match value:
        case (truth, _):
            # Truth values of numpy and torch are not bools; their dtype is.
            return isinstance(truth, bool) or str(getattr(truth, "dtype", "")).endswith("bool")
    return False


def _is_numeric(message: str) -> bool:
    """Return whether a message is about numbers that were compared."""
    return bool(_ALONE.fullmatch(message) or _NUMERIC.search(message))


def _message_pcc(message: str, *, passed: bool) -> tuple[Measurement, ...]:
    found = _PCC.search(message) or _ALONE.fullmatch(message)
    if found is None:
        return ()
    value = float(found[1])
    # A number alone that is out of these bounds is another metric.
    if not -1.0 <= value <= 1.0 and not math.isnan(value):
        return ()
    return (Measurement("pcc", value, None, passed),)

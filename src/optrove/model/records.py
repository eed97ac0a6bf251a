"""The records: observed runs and calls, jobs to execute, and their results.

Names follow one pattern: ``*_id`` refers to another record, ``*_ns`` is a duration in
nanoseconds, ``*_at`` a moment as ISO 8601 text in UTC. ``case_id`` is the placement hash.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.model.capsules import Capsule  # noqa: TC001 - serializer.records reads the hint
from optrove.model.case import Case, NamedValues, by_name
from optrove.model.causes import cause_in
from optrove.model.flow import Step  # noqa: TC001 - as above
from optrove.model.values import Float, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Counts: TypeAlias = tuple[tuple[str, int], ...]
"""The number of occurrences by name."""

Facts: TypeAlias = tuple[tuple[str, str], ...]
"""Facts by name, sorted, as JSON texts."""

HARMLESS: Final = "harmless: "
"""The beginning of a note about an execution that needs no action."""

OTHERWISE: Final = "computes otherwise than its kernels: "
"""The beginning of a note about numbers within their bounds that are not those of the kernels."""

VALUES_OF: Final = "values of call "
"""The beginning of a note about an execution with the values of a capsule."""

BESIDE: Final = "beside "
"""The beginning of a note about an execution beside the other tensors of a run."""

REFUSED: Final = "refused while the tensor for "
"""The beginning of a note about a rejection before the op was called."""

CHECK_BOARD: Final = "check-board"
"""The beginning of the source of a Run of ``optrove check-board``, which is stored as a replay."""


class Outcome(Enum):
    """The outcome of executing a Job. All but the last are answers of the operation."""

    PASSED = "passed"
    NUMERICS = "numerics"
    WRONG_SPEC = "wrong_spec"
    REJECTED = "rejected"
    COMPILE_FAILED = "compile_failed"
    OUT_OF_MEMORY = "out_of_memory"
    RAISED = "raised"
    HUNG = "hung"
    CRASHED = "crashed"
    NOT_RUN = "not_run"
    """The machine or the simulator failed; this says nothing about the operation."""


SKIPPED: Final = "the module skips it"
UNCHECKED: Final = "unchecked: "
OUT_OF_BUDGET: Final = "budget: "
UNATTEMPTED: Final = "interrupted before it was tried"
LOST: Final = "the recording "
"""The beginnings of the details of Jobs that are NOT_RUN for another reason than the machine: the
module declined the vector, an audit found no check, the time of the sweep was over before the Job
ended, the run was interrupted before, or the recording lacks what the Job needs."""

NOT_ATTEMPTED: Final = "not_attempted"
"""The count of planned cases that a run has not reached."""


class CallOutcome(Enum):
    """How an observed call ended; UNFINISHED is the one in flight when the process died."""

    RETURNED = "returned"
    RAISED = "raised"
    UNFINISHED = "unfinished"


class TestOutcome(Enum):
    """How a pytest item ended; ERROR is a failure outside of the test function."""

    __test__ = False  # not a test, in spite of its name

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    ERROR = "error"
    UNFINISHED = "unfinished"


class Phase(Enum):
    """The part of a pytest item in which a call was made."""

    SETUP = "setup"
    CALL = "call"
    TEARDOWN = "teardown"


class RunKind(Enum):
    """The purpose of a Run."""

    TRACE = "trace"
    REPLAY = "replay"
    SWEEP = "sweep"
    IMPORT = "import"


class DeviceKind(Enum):
    """Where operations are executed: a real, mock or simulated board, or the host."""

    HARDWARE = "hw"
    MOCK = "mock"
    SHADOW = "shadow"
    SIMULATOR = "sim"
    HOST = "host"


RUNS_KERNELS: Final = (DeviceKind.HARDWARE, DeviceKind.SIMULATOR)
"""The devices on which the kernels of ttnn run."""


@dataclass(frozen=True, slots=True)
class DeviceParameters:
    """The parameters that a device was opened with; None if not given or not observed.

    ``device_ids`` are the numbers of its chips on the machine; a replay does not ask for them.
    """

    mesh_shape: tuple[int, ...] | None = None
    fabric_config: str | None = None
    dispatch_axis: str | None = None
    l1_small_size: int | None = None
    trace_region_size: int | None = None
    worker_l1_size: int | None = None
    command_queues: int | None = None
    device_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where a Run took place: software, board, and how its process was started."""

    optrove_version: str
    python_version: str
    platform: str
    command_line: tuple[str, ...] = ()
    host: str | None = None
    git_sha: str | None = None
    git_dirty: bool | None = None
    ttnn_version: str | None = None
    torch_version: str | None = None
    device_kind: DeviceKind = DeviceKind.HOST
    board: str | None = None
    arch: str | None = None
    device_series: str | None = None
    card_count: int | None = None
    device_count: int | None = None
    device: DeviceParameters | None = None


@dataclass(frozen=True, slots=True)
class Accounting:
    """What happened to every observed call; see ``adds_up``."""

    observed: int = 0
    stored: int = 0
    deduplicated: int = 0
    filtered: Counts = ()
    untraceable: Counts = ()

    def adds_up(self) -> bool:
        """Return whether every observed call is accounted for exactly once."""
        filtered = sum(count for _, count in self.filtered)
        untraceable = sum(count for _, count in self.untraceable)
        return self.observed == self.stored + self.deduplicated + filtered + untraceable


TORCH_LIBRARIES: Final = "torch_libraries"
NOT_MODELED: Final = "not_modeled_by_hardware_numerics"
NOT_COMPARED: Final = "modeled_but_not_compared_with_kernels"


def hardware_texts(not_modeled: Mapping[str, int], not_compared: Mapping[str, int]) -> list[str]:
    """Return lines about calls that hardware numerics do not model, and that nobody compared."""
    outside = sum(not_compared.values())
    titles = {
        "not modeled by hardware numerics, computed in float32 and rounded once": not_modeled,
        f"{outside} modeled calls lie outside of the forms that agreed with the kernels": (
            not_compared
        ),
    }
    return [
        f"{title}: {_by_op(counts)}" for title, counts in titles.items() if any(counts.values())
    ]


def _by_op(counts: Mapping[str, int]) -> str:
    ops = sorted((-count, op) for op, count in counts.items() if count)
    return ", ".join(f"{-count} x {op}" for count, op in ops)


@dataclass(frozen=True, slots=True)
class Run:
    """One traced, replayed, swept or imported session.

    ``source`` is the program, with the model where it is known: ``path [HF_MODEL:name]``.
    A Run without ``finished_at`` was interrupted, or is still running. ``provenance`` are the
    facts that an imported file has about the execution: ``trace_uid``, ``pytest_args`` and others;
    of a traced session TORCH_LIBRARIES, the modules that registered operations of torch, and
    NOT_MODELED and NOT_COMPARED, calls by op that hardware numerics do not model, or that lie
    outside of what was compared with kernels, all as JSON.
    """

    id: str
    kind: RunKind
    source: str
    environment: Environment
    started_at: str
    finished_at: str | None = None
    model: str | None = None
    exit_code: int | None = None
    accounting: Accounting = field(default_factory=Accounting)
    provenance: Facts = ()


def kind_of(run: Run) -> str:
    """Return the kind of a Run; one of ``optrove check-board`` is stored as a replay."""
    checks = run.kind is RunKind.REPLAY and run.source.startswith(f"{CHECK_BOARD} ")
    return CHECK_BOARD if checks else run.kind.value


@dataclass(frozen=True, slots=True)
class CallSite:
    """The line of user code that made a call."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Scope:
    """The test, phase, module, mode and opened device that calls belong to.

    ``device`` is set when it differs from the device of the Run.
    """

    test_id: str | None = None
    phase: Phase | None = None
    module: str | None = None
    mode: str | None = None
    device: DeviceParameters | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One observed invocation of a Case.

    ``op_index`` counts the calls of a process from zero; ``process`` numbers the processes of a
    Run, such as the workers of pytest-xdist. ``parent`` is the op_index of the call that made this
    one, ``depth`` the number of calls above it. Tensors in ``outputs`` that were arguments keep
    the numbers of these. ``device`` is set when it differs from the Run's. ``numbers`` are those
    in the arguments, if they are not the numbers of the Case but the call counts as one of it.
    """

    run_id: str
    case_id: str
    op_index: int
    process: int = 0
    parent: int | None = None
    depth: int = 0
    test_id: str | None = None
    phase: Phase | None = None
    module: str | None = None
    mode: str | None = None
    call_site: CallSite | None = None
    started_at: str | None = None
    duration_ns: int | None = None
    outputs: tuple[Value, ...] = ()
    outcome: CallOutcome = CallOutcome.UNFINISHED
    error: str | None = None
    device: DeviceParameters | None = None
    numbers: tuple[Value, ...] = ()


E2E_NS: Final = "e2e_ns"
"""The measurement of a call's time, when everything that it needs is compiled and cached."""


def time_of(timed: Sequence[float], duration_ns: int | None) -> int | None:
    """Return the first measured duration, or else that of the whole Attempt."""
    return round(timed[0]) if timed and math.isfinite(timed[0]) else duration_ns


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """One measured number, and the threshold that it was compared with, if any.

    ``output`` is the index of the result that it belongs to, where an operation has several.
    Numbers are doubles and are compared by their bits; all NaNs are equal.
    """

    name: str
    value: float
    threshold: float | None = None
    passed: bool | None = None
    output: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", _double(self.value, self.name))
        if self.threshold is not None:
            object.__setattr__(self, "threshold", _double(self.threshold, self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurement) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def _facts(self) -> tuple[object, ...]:
        threshold = None if self.threshold is None else Float(self.threshold)
        return self.name, Float(self.value), threshold, self.passed, self.output


def _double(number: float, name: str) -> float:
    if isinstance(number, str):
        raise TypeError(f"{name} was measured as the text {number!a}; give a number")
    return float(number)


@dataclass(frozen=True, slots=True)
class TestResult:
    """One pytest item of a Run."""

    __test__ = False  # not a test, in spite of its name

    run_id: str
    test_id: str
    outcome: TestOutcome
    module: str | None = None
    mode: str | None = None
    started_at: str | None = None
    setup_ns: int | None = None
    call_ns: int | None = None
    teardown_ns: int | None = None
    parameters: NamedValues = ()
    metrics: tuple[Measurement, ...] = ()
    properties: NamedValues = ()
    device: DeviceParameters | None = None
    error: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", by_name(self.parameters, self.test_id))
        object.__setattr__(self, "properties", by_name(self.properties, self.test_id))


class Inputs(Enum):
    """The inputs that a case of torch is called with: random ones, edge inputs, or both."""

    RANDOM = "random"
    EDGES = "edges"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Job:
    """A Case to execute, with device kind, seed, metrics and time limit.

    ``outputs`` are the recorded outputs; None where they are unknown or must not be compared.
    ``module`` is the file of the sweep module whose vector the case is, ``recorded_on`` the board
    of most of its recorded calls. ``capsules`` hold the inputs; without one, the inputs are made
    from the seed. With a ``flow``, the Job is a step of a sequence and gets the tensors of earlier
    ones. ``raises`` is the recorded error of a case of torch that never returned.
    """

    case: Case
    device_kind: DeviceKind
    seed: int = 0
    metrics: tuple[str, ...] = ()
    device: DeviceParameters | None = None
    timeout_ns: int | None = None
    outputs: tuple[Value, ...] | None = None
    module: str | None = None
    recorded_on: str | None = None
    capsules: tuple[Capsule, ...] = ()
    flow: Step | None = None
    inputs: Inputs = Inputs.ALL
    raises: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """The facts that two Jobs must share to be executed on one opened device."""

    device_kind: DeviceKind
    board: str | None
    arch: str | None
    device: DeviceParameters


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a Job.

    ``detail`` is the message of the operation or the machine, ``notes`` are those of the replay
    itself, such as supplied arguments; ``replayed_case_id`` is the hash of the call as it was
    traced while it ran, which equals ``case_id`` when the replay was exact.
    """

    run_id: str
    case_id: str
    outcome: Outcome
    device_kind: DeviceKind
    seed: int = 0
    board: str | None = None
    detail: str | None = None
    measurements: tuple[Measurement, ...] = ()
    outputs: tuple[Value, ...] = ()
    replayed_case_id: str | None = None
    started_at: str | None = None
    duration_ns: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def cause(self) -> str | None:
        """The line of the detail that states why it failed; None if it passed."""
        return None if self.outcome is Outcome.PASSED else cause_in(self.detail)

    @property
    def is_whole(self) -> bool:
        """Whether neither the end of the budget nor an interrupt of the run prevented it."""
        ended_early = (self.detail or "").startswith((OUT_OF_BUDGET, UNATTEMPTED))
        return self.outcome is not Outcome.NOT_RUN or not ended_early

    @property
    def counted_as(self) -> str:
        """The name of the count that it adds to: its outcome, or ``not_attempted``."""
        return self.outcome.value if self.is_whole else NOT_ATTEMPTED


@dataclass(frozen=True, slots=True)
class AttemptedCase:
    """An Attempt, with the facts about its Case that the trove or the plan has.

    ``content`` is the Case as canonical JSON, where a trove was read. ``calls`` is the number of
    recorded calls, None where they were not counted, ``recorded_on`` the board of most of them, and
    ``raised`` the recorded error of a Case that never returned. ``suite`` is set for the vectors
    of a sweep module, ``scaled_from`` for a Case that was scaled down from recorded ones.
    """

    op: str
    attempt: Attempt
    calls: int | None = None
    content: str = ""
    suite: str | None = None
    recorded_on: str | None = None
    raised: str | None = None
    scaled_from: tuple[str, ...] = ()

    @property
    def xfail(self) -> bool:
        """Whether its suite expects failures."""
        return expects_failure(self.suite)

    @property
    def view(self) -> str:
        """Its count, or ``xfailed`` and ``xpassed`` where a failure was expected."""
        if not self.xfail or not self.ran:
            return self.attempt.counted_as
        if self.attempt.outcome is Outcome.PASSED:
            return TestOutcome.XPASSED.value
        return TestOutcome.XFAILED.value

    @property
    def passed(self) -> bool:
        """Whether it passed, or ran in a suite that expects failures."""
        return self.attempt.outcome is Outcome.PASSED or (self.xfail and self.ran)

    @property
    def ran(self) -> bool:
        """Whether the operation ran, with any outcome."""
        return self.attempt.outcome is not Outcome.NOT_RUN


def expects_failure(suite: str | None) -> bool:
    """Return whether a suite expects failures: its name begins with ``xfail``, in any case."""
    return suite is not None and suite.lower().startswith("xfail")


@dataclass(frozen=True, slots=True)
class SweepModule:
    """A module whose vectors are swept: its name in the names of their ops, its file and hash."""

    name: str
    path: str
    digest: str
    timeout_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """The request of a sweep, as it is stored with its Run; None was not given.

    ``targets`` and ``filters`` are as the user typed them, ``source`` and ``file`` are the origin
    of the cases, ``measured`` the additional measurements, ``left_out`` counts the cases that were
    not planned, by reason. ``torch`` is the text of the TorchTarget of cases of torch, ``values``
    the source of inputs, ``inputs`` their kind for torch.
    """

    targets: tuple[str, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()
    suite: str | None = None
    source: str | None = None
    file: str | None = None
    modules: tuple[SweepModule, ...] = ()
    engine: str = "local"
    device_kind: DeviceKind | None = None
    board: str | None = None
    seed: int = 0
    order_seed: int | None = None
    timeout_ns: int | None = None
    budget_ns: int | None = None
    measured: tuple[str, ...] = ()
    left_out: Counts = ()
    torch: str | None = None
    values: str = "seed"
    inputs: Inputs = Inputs.ALL


@dataclass(frozen=True, slots=True)
class Query:
    """A selection of Cases; a field that is None does not restrict it.

    ``op`` may be a pattern with ``*``; ``matches_filter`` compares the texts. The fields about
    tensors (``dtype`` to ``argument``, the name of the parameter) have to match one and the same
    tensor; -1 in a shape is any size. Ops that only move data, and the vectors of sweep modules,
    which no model calls, match only with ``data_movement`` and ``vectors``. With ``raised``, only
    calls that raised count.
    """

    op: str | None = None
    case_id: str | None = None
    run_id: str | None = None
    model: str | None = None
    board: str | None = None
    test_id: str | None = None
    dtype: str | None = None
    layout: str | None = None
    memory: str | None = None
    shape: tuple[int, ...] | None = None
    mesh: tuple[int, ...] | None = None
    argument: str | None = None
    replayable: bool | None = None
    raised: bool = False
    outermost_only: bool = True
    data_movement: bool = False
    vectors: bool = False
    limit: int | None = None


def matches_filter(field: str, wanted: str | None, found: str | None) -> bool:
    """Return whether a text matches that field of a Query.

    Case does not matter, and ``memory`` matches its whole parts: ``sharded`` is in
    ``L1_HEIGHT_SHARDED``.
    """
    if wanted is None:
        return True
    pair = wanted.lower(), (found or "").lower()
    return f"_{pair[0]}_" in f"_{pair[1]}_" if field == "memory" else pair[0] == pair[1]


def now() -> str:
    """Return the current time as records store it."""
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"

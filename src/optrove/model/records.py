"""The records: observed runs and calls, jobs to execute, and their results.

Names follow one pattern: ``*_id`` refers to another record, ``*_ns`` is a duration in
nanoseconds, ``*_at`` a moment as ISO 8601 text in UTC. ``case_id`` is the placement hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Final, TypeAlias

from optrove.model.case import Case, NamedValues, by_name
from optrove.model.values import Float, Value

Counts: TypeAlias = tuple[tuple[str, int], ...]
"""The number of occurrences by name."""

HARMLESS: Final = "and nothing has to be done"
"""The end of a note about an execution that needs no action."""


class Outcome(Enum):
    """The outcome of executing a Job. All but the last are answers of the operation."""

    PASSED = "passed"
    NUMERICS = "numerics"
    WRONG_SPEC = "wrong_spec"
    REJECTED = "rejected"
    OUT_OF_MEMORY = "out_of_memory"
    RAISED = "raised"
    HUNG = "hung"
    CRASHED = "crashed"
    NOT_RUN = "not_run"
    """The machine failed; this says nothing about the operation."""


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
    """Where operations are executed: a board, a mock board, one with numerics, the host."""

    HARDWARE = "hw"
    MOCK = "mock"
    SHADOW = "shadow"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class DeviceParameters:
    """The parameters that a device was opened with; None if not given or not observed."""

    mesh_shape: tuple[int, ...] | None = None
    fabric_config: str | None = None
    dispatch_axis: str | None = None
    l1_small_size: int | None = None
    trace_region_size: int | None = None
    worker_l1_size: int | None = None
    command_queues: int | None = None


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
        """Tell whether every observed call is accounted for exactly once."""
        filtered = sum(count for _, count in self.filtered)
        untraceable = sum(count for _, count in self.untraceable)
        return self.observed == self.stored + self.deduplicated + filtered + untraceable


@dataclass(frozen=True, slots=True)
class Run:
    """One traced, replayed, swept or imported session.

    ``source`` is the program, with the model where it is known: ``path [HF_MODEL:name]``.
    A Run without ``finished_at`` was interrupted, or is still running.
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
    the numbers of these. ``device`` is set when it differs from the Run's.
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


@dataclass(frozen=True, slots=True)
class Job:
    """A Case to execute, with device kind, seed, metrics and time limit.

    ``outputs`` are the recorded outputs; None where they are unknown or must not be compared.
    ``module`` is the file of the sweep module whose vector the case is.
    """

    case: Case
    device_kind: DeviceKind
    seed: int = 0
    metrics: tuple[str, ...] = ()
    device: DeviceParameters | None = None
    timeout_ns: int | None = None
    outputs: tuple[Value, ...] | None = None
    module: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """The facts that two Jobs must share to be executed on one opened device."""

    device_kind: DeviceKind
    board: str | None
    arch: str | None
    device: DeviceParameters


@dataclass(frozen=True, slots=True)
class JobGroup:
    """Jobs that run on one opened device, in this order."""

    key: DeviceKey
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The Jobs of a sweep, in this order; ``left_out`` counts skipped cases by reason."""

    id: str
    groups: tuple[JobGroup, ...]
    left_out: Counts = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a Job.

    ``detail`` is the message of the operation or the machine, ``notes`` are those of the replay
    itself, such as what it supplied; ``replayed_case_id`` is the hash of the call as it was
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
    not planned, by reason.
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


@dataclass(frozen=True, slots=True)
class Query:
    """A selection of Cases; a field that is None does not restrict it.

    ``op`` may be a pattern with ``*``. The fields about tensors (``dtype`` to ``argument``, the
    name of the parameter) have to match one and the same tensor; -1 in a shape is any size.
    ``vectors`` are those of sweep modules, which no model calls.
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
    mesh_shape: tuple[int, ...] | None = None
    argument: str | None = None
    replayable: bool | None = None
    outermost_only: bool = True
    hidden_ops: bool = False
    vectors: bool = False
    limit: int | None = None


def now() -> str:
    """Return the current time as records store it."""
    return f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"

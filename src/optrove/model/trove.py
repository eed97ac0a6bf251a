"""Rows and answers of a trove, beyond the records.

A **Recording** is one part of a Run that arrives as a whole: the journal of one process, or the
content of one imported file about one source on one machine. It is added, replaced and removed as
a whole, which makes adding idempotent and merging independent of order.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass, field
from enum import Enum
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from optrove.model.ops import LeftOut
from optrove.model.pass_rates import PassRate

if TYPE_CHECKING:
    from optrove.model.case import Case
    from optrove.model.records import CallOutcome, Counts, DeviceKind, Facts, Phase, Run


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of an execution, in the words of tt-metal's master files.

    ``more`` are facts without a field of their own, as JSON texts: versions of the driver, the
    firmware and tt-smi, and facts that are not of the type of their field.
    """

    board_type: str | None = None
    device_series: str | None = None
    card_count: int | None = None
    device_count: int | None = None
    mesh_device_shape: tuple[int, ...] | None = None
    device_ids: tuple[int, ...] | None = None
    more: Facts = ()

    @classmethod
    def of(cls, data: dict[str, Any]) -> Machine:
        """Return the machine that ``machine_info`` or a trove describes; ``more`` is the rest."""
        known: dict[str, Any] = {}
        more = []
        for name, item in sorted(data.items()):
            is_known, value = _machine_fact(name, item)
            if is_known:
                known[name] = value
            if not is_known or (name in _NAMES and value != item):
                more.append((name, json.dumps(item, sort_keys=True)))
        return cls(**known, more=tuple(more))

    def data(self) -> dict[str, Any]:
        """Return the known facts as ``machine_info`` has them."""
        facts = {name: getattr(self, name) for name in (*_NAMES, *_COUNTS, *_ROWS)}
        known = {
            name: list(item) if isinstance(item, tuple) else item
            for name, item in facts.items()
            if item is not None
        }
        return known | {name: json.loads(text) for name, text in self.more}


_NAMES = ("board_type", "device_series")
_COUNTS = ("card_count", "device_count")
_ROWS = ("mesh_device_shape", "device_ids")
_SIZE_LIMIT = 2**31


def _machine_fact(name: str, data: Any) -> tuple[bool, Any]:
    """Return whether a fact fits a field of Machine, and its value there."""
    if data is None and name in (*_NAMES, *_COUNTS, *_ROWS):
        return True, None
    if name in _NAMES:
        # One name per card becomes one text.
        if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
            data = ", ".join(dict.fromkeys(data))
        return isinstance(data, str) and data.isprintable(), data
    if name in _COUNTS:
        return _is_count(data), data
    if name in _ROWS:
        if isinstance(data, str):
            try:
                data = json.loads(data.replace("(", "[").replace(")", "]"))
            except ValueError:
                return False, None
        fits = isinstance(data, list) and all(map(_is_count, data))
        return fits, tuple(data) if fits else None
    return False, None


def _is_count(data: Any) -> bool:
    return type(data) is int and 0 <= data < _SIZE_LIMIT


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """The searchable facts about a tensor of a Case; ``place`` numbers them in order of arguments.

    ``argument`` is the name of the parameter that holds it, at whatever depth. ``shape`` and
    ``mesh`` have the form ``1x1x32x64``; ``dtype`` has no framework (``bfloat8_b``); ``memory`` is
    ``L1_HEIGHT_SHARDED``, ``HOST`` on a host, a device name for torch.
    """

    place: int
    argument: str
    shape: str
    dtype: str
    layout: str
    memory: str
    mesh: str | None


@dataclass(frozen=True, slots=True)
class DescribedCase:
    """A Case with its identities and all that it can be searched by.

    ``family_id`` is equal for Cases that differ in scalar arguments only; ``content`` is the
    canonical JSON from which ``case_id`` is made.
    """

    case_id: str
    semantic_id: str
    family_id: str
    op: str
    replayable: bool
    content: str
    tensors: tuple[TensorFacts, ...]


@dataclass(frozen=True, slots=True)
class VariedNumber:
    """A number among the arguments of Cases: how many values it had, and their range as JSON."""

    path: str
    values: int
    lowest: Any
    highest: Any

    def __or__(self, other: VariedNumber) -> VariedNumber:
        return VariedNumber(
            self.path,
            max(self.values, other.values),
            min(self.lowest, other.lowest, key=_size),
            max(self.highest, other.highest, key=_size),
        )


def _size(number: Any) -> float:
    """Return a number that can be compared; others, such as NaN, are in the middle."""
    return number if isinstance(number, (int, float)) else 0.0


@dataclass(frozen=True, slots=True)
class CaseFamily:
    """Cases that count as another Case, which differs in numbers only, in one process.

    ``cases`` and ``calls`` are without that Case; ``varied`` covers all of them.
    """

    cases: int
    calls: int
    varied: tuple[VariedNumber, ...]

    def __or__(self, other: CaseFamily) -> CaseFamily:
        known = {each.path: each for each in self.varied}
        for each in other.varied:
            known[each.path] = known[each.path] | each if each.path in known else each
        cases, calls = max(self.cases, other.cases), self.calls + other.calls
        return CaseFamily(cases, calls, tuple(known.values()))


class CallGroup(NamedTuple):
    """The calls of one Recording that agree in all but their time and place in the order.

    Scopes and endings are known by their ids in a trove; ``outcome`` is the value of a CallOutcome.
    """

    case_id: str
    scope_id: str | None
    ending_id: str | None
    outcome: str
    outermost: bool
    calls: int
    total_ns: int | None = None
    shortest_ns: int | None = None
    longest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CallBlock:
    """A stretch of calls of one Recording, in order, packed; ``first`` is an op_index."""

    first: int
    count: int
    content: bytes


@dataclass(frozen=True, slots=True)
class ImportedCase:
    """A Case in a file, how often it was executed, and the path in the file.

    ``configuration`` is the JSON text of the configuration as the file has it, without its
    executions, from which an export writes the same configuration again.
    """

    case: Case
    count: int
    path: str
    configuration: str | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """The content of a file about one source on one machine; ``run.id`` is made from all of it."""

    run: Run
    machine: Machine
    cases: tuple[ImportedCase, ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A kind of text in a file that was kept as it is: how often, and one example."""

    kind: str
    count: int
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How well a file was understood: ``configurations == understood + partly + refused``.

    ``partly`` are those with parts kept verbatim. ``refused`` could not be made a Case at all.
    ``cases`` is the number of different Cases. ``notes`` counts repairs, by kind.
    ``refusals`` are path and problem of refused configurations.
    """

    file: str
    format: str
    configurations: int
    cases: int
    understood: int
    partly: int
    refused: int = 0
    verbatim: tuple[Verbatim, ...] = ()
    notes: Counts = ()
    refusals: tuple[tuple[str, str], ...] = ()

    def adds_up(self) -> bool:
        """Return whether every configuration is accounted for exactly once."""
        return self.configurations == self.understood + self.partly + self.refused


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A Case in the plan of a Run: the device to execute it on, and its suite.

    ``op`` and the number of recorded ``calls`` are known where the plan was read from a trove.
    """

    case_id: str
    device_kind: DeviceKind
    board: str | None = None
    suite: str | None = None
    op: str = field(default="", compare=False)
    calls: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Added:
    """How much was added to a trove; ``cases_known`` were there before."""

    runs: int = 0
    recordings: int = 0
    calls: int = 0
    cases_new: int = 0
    cases_known: int = 0
    attempts: int = 0

    def __add__(self, other: Added) -> Added:
        return Added(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class Removed:
    """How much was removed from a trove."""

    runs: int
    recordings: int
    calls: int
    cases: int


@dataclass(frozen=True, slots=True)
class OpRow:
    """One op of a trove; ``replayable`` is the share of its cases, from 0 to 1."""

    op: str
    cases: int
    calls: int
    models: tuple[str, ...]
    replayable: float


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One Case of a trove; ``content`` is its canonical JSON, ``calls`` as the query counts."""

    case_id: str
    semantic_id: str
    family_id: str
    op: str
    replayable: bool
    calls: int
    content: str
    outermost_calls: int = field(default=0, compare=False)
    """Calls of all Runs that no other call made, where a Case was read by its id."""


@dataclass(frozen=True, slots=True)
class ConfigCalls:
    """How often a Run called a Case with arguments from one entry of a run configuration."""

    run_id: str
    path: str
    calls: int


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """How often a Case was executed by one source on one machine within one test."""

    case_id: str
    run_id: str
    source: str
    model: str | None
    machine: Machine
    board: str | None
    test_id: str | None
    phase: Phase | None
    module: str | None
    mode: str | None
    outermost: bool
    outcome: CallOutcome
    count: int
    total_ns: int | None
    outputs: str | None
    """Canonical JSON of the list of outputs."""
    error: str | None
    device: str | None = None
    """JSON of the device's parameters where they differ from those of the Run."""
    provenance: Facts = ()
    configuration: str | None = None
    """JSON of the imported configuration."""
    places: tuple[str, ...] = ()
    """The arguments that were passed by place. Exports alone set these three."""
    started_at: str | None = None
    """When the Run began."""
    shortest_ns: int | None = None
    longest_ns: int | None = None


class RunState(Enum):
    """Whether all of a Run was done, and if not, why; ``trove.sessions.state_of`` decides it."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    OUT_OF_BUDGET = "out_of_budget"
    DISK_FULL = "disk_full"
    FAILED = "failed"
    """An error of the machine or of optrove ended it."""
    KILLED = "killed"
    """Its process is gone, and did not tell why."""
    INCOMPLETE = "incomplete"
    """It ended, but one of its processes or calls did not, or a part of it is elsewhere."""
    UNKNOWN = "unknown"
    """Its process cannot be seen from here."""


@dataclass(frozen=True, slots=True)
class Session:
    """A process that executes the cases of a Run; ``ending`` is None until it ends in order.

    ``process`` is empty where the system does not tell it.
    """

    begun_at: str
    process: str
    alive_at: str
    ending: RunState | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Tells it from the other Sessions of its Run."""
        return self.begun_at, self.process

    @property
    def rank(self) -> tuple[bool, str, str]:
        """Decides between two accounts of the same Session: the greater one is kept."""
        ending = "" if self.ending is None else self.ending.value
        return self.ending is not None, self.alive_at, ending


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The state of a Run, and how much of its plan was done.

    ``planned`` is None for a Run without a plan, ``alive_at`` the last sign of life of its process.
    """

    state: RunState
    done: int = 0
    planned: int | None = None
    alive_at: str | None = None

    @property
    def complete(self) -> bool:
        """Whether all of the Run was done."""
        return self.state is RunState.COMPLETE


ALL_DONE: Final = RunProgress(RunState.COMPLETE)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One Run of a trove with its totals; ``left`` are the calls and cases that these leave out."""

    run: Run
    machine: Machine
    calls: int
    cases: int
    tests: Counts = ()
    attempts: Counts = ()
    """The number of its Attempts by Outcome; those that the budget ended are ``not_attempted``."""
    xfailed: int = 0
    """The number of its Attempts that failed as expected."""
    left: LeftOut = field(default_factory=LeftOut)
    ops: int = 0
    progress: RunProgress = ALL_DONE
    key: int = field(default=0, compare=False)
    """Its number within the trove."""

    @property
    def planned(self) -> int | None:
        """The number of Cases in its plan; None without a plan."""
        return self.progress.planned

    @property
    def complete(self) -> bool:
        """Whether all of it was done."""
        return self.progress.complete

    @property
    def pass_rate(self) -> PassRate:
        """The pass rate of its Attempts, or else of its tests."""
        return PassRate.of(dict(self.attempts or self.tests), self.xfailed)


class OpRunRow(NamedTuple):
    """The calls of an op and the Attempts at it in one Run, added up."""

    run_id: str
    kind: str
    started_at: str
    board: str | None
    """The board of the Attempts, or else of the Run."""
    device: str
    """The kind of device of the Run."""
    timed_calls: int | None
    """Calls with a known duration that no other call made; None: no calls."""
    calls_ns: int
    attempts: int
    ran: int
    passed: int
    timed_attempts: int
    attempts_ns: int
    outputs: int
    total_pcc: float
    least_pcc: float | None
    most_pcc: float | None


class ModelRuns(NamedTuple):
    """The traced and imported Runs of a model: their number, the last, and their boards."""

    runs: int
    last_run_at: str
    boards: tuple[str, ...]


class Verdict(NamedTuple):
    """Everything that two Runs are compared by, except numbers."""

    outcome: str
    device_kind: str
    cause: str | None
    """The cause of a failure, without its numbers."""
    suite: str | None
    outputs: str | None
    """The outputs of a passed Attempt, as canonical JSON."""


class VerdictChange(NamedTuple):
    """The verdicts on a Case in two Runs by their keys, and the changes of its numbers."""

    before: int
    after: int
    moved: bool
    """Whether the PCC of an output changed noticeably."""
    slower: bool
    """Whether it took noticeably longer."""

    @classmethod
    def of(cls, code: int) -> VerdictChange:
        """Return the change that a number stands for."""
        verdicts, numbers = divmod(int(code), 4)
        return cls(*divmod(verdicts, _VERDICTS), bool(numbers & 2), bool(numbers & 1))

    @property
    def code(self) -> int:
        """The number that stands for it in queries."""
        return (self.before * _VERDICTS + self.after) * 4 + 2 * self.moved + self.slower


_VERDICTS: Final = 2**29
"""More than a trove has verdicts."""


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model (or source, where no model is known) of a trove with its totals.

    ``left`` are the calls and cases that these leave out.
    """

    model: str
    runs: int
    ops: int
    cases: int
    calls: int
    boards: tuple[str, ...] = ()
    last_run_at: str | None = None
    left: LeftOut = field(default_factory=LeftOut)


def board_text(board: str | None, machine: Machine) -> str:
    """Return the name of the board, or else the name that a file has for it."""
    if board is not None:
        return board
    return " ".join(filter(None, (machine.board_type, machine.device_series)))


class ColumnKind(Enum):
    """The kind of values in a column, on every database."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    """0 or 1."""
    TIME = "time"


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view: its name, and the kind and meaning of its values."""

    name: str
    kind: ColumnKind
    meaning: str


@dataclass(frozen=True, slots=True)
class SqlView:
    """A view: its name, the meaning of a row, and its columns."""

    name: str
    row: str
    columns: tuple[ViewColumn, ...]

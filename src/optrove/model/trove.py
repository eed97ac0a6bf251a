"""Rows and answers of a trove, beyond the records.

A **Recording** is one part of a Run that arrives as a whole: the journal of one process, or what
one imported file says about one source on one machine. It is added, replaced and removed as a
whole, which is what makes adding idempotent and merging independent of order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from optrove.model.ops import LeftOut

if TYPE_CHECKING:
    from optrove.model.case import Case
    from optrove.model.records import CallOutcome, Counts, DeviceKind, Phase, Run


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of an execution, in the words of tt-metal's master files."""

    board_type: str | None = None
    device_series: str | None = None
    card_count: int | None = None
    device_count: int | None = None
    mesh_device_shape: tuple[int, ...] | None = None
    device_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What one tensor of a Case can be searched by; ``place`` numbers them in order of arguments.

    ``argument`` is the name of the parameter that holds it, at whatever depth. ``shape`` and
    ``mesh`` are spelled ``1x1x32x64``; ``dtype`` has no framework (``bfloat8_b``); ``memory`` is
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
class CallGroup:
    """The calls of one Recording that agree in all but their time and place in the order.

    ``case``, ``scope`` and ``ending`` are numbers of the journal; zero means none.
    """

    case: int
    scope: int
    ending: int
    outcome: CallOutcome
    outermost: bool
    count: int
    total_ns: int
    shortest_ns: int | None
    longest_ns: int | None


@dataclass(frozen=True, slots=True)
class CallBlock:
    """A stretch of calls of one Recording, in order, packed; ``first`` is an op_index."""

    first: int
    count: int
    content: bytes


@dataclass(frozen=True, slots=True)
class ImportedCase:
    """A Case that a file tells of, how often it was executed, and where in the file it is."""

    case: Case
    count: int
    path: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What one file says about one source on one machine; ``run.id`` is made from all of it."""

    run: Run
    machine: Machine
    cases: tuple[ImportedCase, ...]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A kind of thing in a file that was kept as it is spelled: how often, and one example."""

    kind: str
    count: int
    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How well a file was understood: ``configurations == understood + partly + refused``.

    ``partly`` are those with parts kept verbatim. ``refused`` could not be made a Case at all.
    ``cases`` is how many different Cases they are. ``notes`` tells of repairs, by kind.
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

    def adds_up(self) -> bool:
        """Tell whether every configuration is accounted for exactly once."""
        return self.configurations == self.understood + self.partly + self.refused


@dataclass(frozen=True, slots=True)
class PlannedCase:
    """A Case in the plan of a sweep: on what it is executed, and of which suite it is."""

    case_id: str
    device_kind: DeviceKind
    board: str | None = None
    suite: str | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """What adding something to a trove has changed."""

    runs: int = 0
    recordings: int = 0
    calls: int = 0
    cases_new: int = 0
    cases_known: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """What removing a Run has taken out of a trove."""

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
    hidden: bool


@dataclass(frozen=True, slots=True)
class CaseRow:
    """One Case of a trove; ``content`` is its canonical JSON, ``calls`` what the query counts."""

    case_id: str
    semantic_id: str
    family_id: str
    op: str
    replayable: bool
    calls: int
    content: str


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


@dataclass(frozen=True, slots=True)
class RunRow:
    """One Run of a trove with its totals; ``left`` is what ``calls`` and ``cases`` leave out."""

    run: Run
    machine: Machine
    calls: int
    cases: int
    tests: Counts = ()
    complete: bool = True
    """Whether every process of it has ended in order, every call, and all that was planned."""
    attempts: Counts = ()
    """How many of its Attempts have which Outcome."""
    planned: int | None = None
    """How many Cases a sweep is to execute."""
    left: LeftOut = field(default_factory=LeftOut)


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model (or source, where no model is known) of a trove with its totals.

    ``left`` is what these leave out.
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
    """Return the board by our name for it, or else by what a file called it."""
    if board is not None:
        return board
    return " ".join(filter(None, (machine.board_type, machine.device_series)))


class ColumnKind(Enum):
    """What the values of a column are, on every database."""

    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    """0 or 1."""
    TIME = "time"


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column that is promised: its name, what its values are, and what they mean."""

    name: str
    kind: ColumnKind
    meaning: str


@dataclass(frozen=True, slots=True)
class View:
    """A view that is promised: its name, its columns, and what a row is."""

    name: str
    row: str
    columns: tuple[ViewColumn, ...]

"""The interface of executors, which execute cases of one framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from optrove.errors import NotReplayable
from optrove.model.case import Case, obstacles
from optrove.model.records import LOST
from optrove.model.values import Struct, Symbol, key_step, walk
from optrove.serializer.plain import USER_KINDS
from optrove.serializer.tables import framework_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.model.records import DeviceParameters, Job
    from optrove.model.values import Value
    from optrove.serializer.tables import Tables


class Stage(Enum):
    """A stage of an execution; reported before it begins, so that a crash can be attributed."""

    OPENING = "the device was opened"
    MAKING = "its arguments were made"
    CALLING = "it was called"
    READING = "its results were read"


OnStage: TypeAlias = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception that a call raised: its class and its whole text."""

    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found out about the numbers of one tensor, as plain text and numbers.

    ``measured`` are metrics by name; every one of the ``faults`` makes the numbers wrong.
    """

    measured: tuple[tuple[str, float], ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """One tensor of the result with the golden function's answer, both as torch tensors.

    ``rounded`` is the answer in the dtype of the result, None if that dtype has no steps to count
    in. Values that were only moved have to be ``exact``; of others, the PCC decides, and what was
    ``judged`` where the call was made. Without values to compare, ``lacking`` says why. Torch
    tensors that another process has judged are not here.
    """

    output: int
    expected: Any = None
    actual: Any = None
    rounded: Any = None
    lacking: str | None = None
    exact: bool = False
    judged: Judged | None = None


@dataclass(frozen=True, slots=True)
class Executed:
    """The result of calling a case.

    ``replayed`` is the traced call, None if the operation was never reached; ``named`` maps
    recorded argument names to the names there. ``notes`` list everything that the recording lacks
    and that was supplied. ``excuse`` says why an exception is the fault of the recording. ``job``
    is the Job as it was executed, if that differs, as on another device. The outputs of a
    ``data_dependent`` call need not be as recorded. ``faults`` are what it did wrong besides the
    numbers that were compared.
    """

    replayed: Case | None = None
    named: tuple[tuple[str, str], ...] = ()
    outputs: tuple[Value, ...] = ()
    raised: Raised | None = None
    compared: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = ()
    duration_ns: int | None = None
    excuse: str | None = None
    job: Job | None = None
    data_dependent: bool = False
    faults: tuple[str, ...] = ()


def refuse_inert(arguments: Mapping[str, Value], tables: Tables) -> None:
    """Raise NotReplayable if a part of the arguments cannot be built as a live object."""
    case = Case("", tuple(arguments.items()))
    found = [f"{LOST}lost {each.path}: {each.type}: {each.reason}" for each in obstacles(case)]
    for name, value in arguments.items():
        for path, part in walk(value, f"$.arguments{key_step(name)}"):
            if isinstance(part, (Struct, Symbol)) and _stays(part.type, tables):
                found.append(
                    f"{path}: {part.type} belongs to a program or framework that is not here"
                )
    if found:
        raise NotReplayable("\n".join(found))


def _stays(kind: str, tables: Tables) -> bool:
    is_of_user = kind.startswith(USER_KINDS) and kind not in tables.by_name
    return is_of_user or framework_of(kind) in tables.absent


class Executor(Protocol):
    """Executes cases in this process, on one device at a time."""

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Open a device with these parameters; raise NotReplayable if that is not possible.

        Return notes about parameters that were supplied.
        """

    def reset(self) -> None:
        """Free everything that earlier cases have left on the device, if there is one."""

    def execute(self, job: Job, on_stage: OnStage) -> Executed:
        """Rebuild the case of a Job and call it; raise NotReplayable if it cannot be rebuilt.

        The recorded outputs of the Job describe the file that a call reads.
        """

    def peak_l1(self, job: Job) -> int:
        """Return the peak L1 bytes per core of a case; raise NotReplayable if unknown."""

    def warm(self, job: Job) -> Mapping[str, float] | None:
        """Return measurements of a warm call; None if repeated calls of ``execute`` are timed."""

    def close(self) -> None:
        """Close the open device."""

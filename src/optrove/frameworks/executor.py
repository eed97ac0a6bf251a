"""What an executor of cases takes and gives, whichever framework it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from optrove.errors import NotReplayable
from optrove.model.case import Case, obstacles
from optrove.model.values import (
    DeviceRef,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    key_step,
    walk,
)
from optrove.serializer.plain import USER_KINDS
from optrove.serializer.tables import framework_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.model.records import DeviceParameters
    from optrove.model.values import Value
    from optrove.serializer.tables import Tables


class Stage(Enum):
    """What an execution is at; told before it begins, so that a crash can be attributed."""

    OPENING = "the device was opened"
    MAKING = "its arguments were made"
    CALLING = "it was called"
    READING = "its results were read"


Telling: TypeAlias = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """A case to be called, and the seed of its numbers.

    ``outputs`` are what was recorded to come out of it, None if nothing was: a call that reads a
    file tells by them only what it has read.
    """

    case: Case
    seed: int
    outputs: tuple[Value, ...] | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """What the call raised: the class of the exception, and all that it says."""

    type: str
    text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One tensor of the result beside what the golden function expects there.

    Both are torch tensors; ``rounded`` is what is expected in the dtype of the result, None
    where that has no steps to count in. Numbers that were only moved have to be ``exact``. Without
    numbers to compare, ``lacking`` says why.
    """

    output: int
    expected: Any = None
    actual: Any = None
    rounded: Any = None
    lacking: str | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    """What came of calling a case.

    ``replayed`` is the call as it was traced, None if it never came to the operation; ``named``
    says which recorded names of arguments go by which names there. ``notes`` tell of everything
    that the recording did not tell and that was supplied.
    """

    replayed: Case | None = None
    named: tuple[tuple[str, str], ...] = ()
    outputs: tuple[Value, ...] = ()
    raised: Raised | None = None
    compared: tuple[Compared, ...] = ()
    notes: tuple[str, ...] = ()
    duration_ns: int | None = None


def refuse_inert(arguments: Mapping[str, Value], tables: Tables) -> None:
    """Raise NotReplayable if anything in the arguments would stay a Value when it is built."""
    case = Case("", tuple(arguments.items()))
    found = [f"{each.path}: {each.type}: {each.reason}" for each in obstacles(case)]
    for name, value in arguments.items():
        for path, part in walk(value, f"$.arguments{key_step(name)}"):
            if isinstance(part, (Struct, Symbol)) and _stays(part.type, tables):
                found.append(
                    f"{path}: {part.type} belongs to a program or framework that is not here"
                )
    if found:
        raise NotReplayable("\n".join(found))


def refuse_several_devices(case: Case) -> None:
    """Raise NotReplayable if a case was recorded on several devices, such as parts of a mesh."""
    numbers = set()
    for _, argument in case.arguments:
        for _, part in walk(argument):
            match part:
                case TensorSpec(placement=TtnnPlacement(device=int(number))):
                    numbers.add(number)
                case DeviceRef(identity=number):
                    numbers.add(number)
    if len(numbers) > 1:
        raise NotReplayable(f"it was called on {len(numbers)} devices; a replay opens one of them")


def _stays(kind: str, tables: Tables) -> bool:
    return kind.startswith(USER_KINDS) or framework_of(kind) in tables.absent


class Executor(Protocol):
    """Executes cases in this process, on one device at a time."""

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Have a device open with these parameters; NotReplayable where that cannot be.

        Return what was supplied where they do not tell.
        """

    def execute(self, asked: Asked, tell: Telling) -> Executed:
        """Rebuild a case and call it; NotReplayable when it cannot be rebuilt."""

    def peak_l1(self, asked: Asked) -> int:
        """Return how many bytes of L1 a case takes on a core at most; NotReplayable if unknown."""

    def close(self) -> None:
        """Close what is open."""

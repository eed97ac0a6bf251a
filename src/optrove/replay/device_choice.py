"""Choose on what cases are executed: a board that is here, or a mock one, and say why."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable
from optrove.frameworks.ttnn.board.runtime import installed_package
from optrove.frameworks.ttnn.board.table import BOARDS, DEVICE_DIRECTORY, find_board
from optrove.model.records import DeviceKind
from optrove.replay.jobs import device_of
from optrove.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.replay.planning import Planned

_MOCK: Final = (DeviceKind.MOCK, DeviceKind.SHADOW)


@dataclass(frozen=True, slots=True)
class Where:
    """On what cases are executed; ``why`` is there when nobody has asked for just that."""

    device_kind: DeviceKind
    board: str | None = None
    why: str | None = None

    def __str__(self) -> str:
        if self.device_kind is DeviceKind.HOST:
            return "this host"
        if self.device_kind is DeviceKind.HARDWARE:
            return "the board of this machine"
        numbers = " with numbers by torch" if self.device_kind is DeviceKind.SHADOW else ""
        return f"a mock {self.board}{numbers}"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a person has chosen: a kind of device, a mock board, both or neither."""

    device_kind: DeviceKind | None = None
    board: str | None = None


def settled(device: str | None, board: str | None) -> Choice:
    """Return the choice of ``--device`` and ``--board``, or else that of the environment.

    UnknownBoard for a name that is none; NotReplayable for what cannot be had here.
    """
    settings = read_settings()
    kind = None if device is None else DeviceKind(device)
    if kind is DeviceKind.HARDWARE:
        if board is not None:
            raise NotReplayable(
                f"--board {board} is a mock board and --device hw a real one; give one of them"
            )
        if not has_board():
            raise NotReplayable(
                f"there is no board in this machine ({DEVICE_DIRECTORY} has no device); "
                f"replay on a mock one: --device mock"
            )
        return Choice(kind)
    named = board or settings.board
    if kind is None and settings.shadow:
        kind = DeviceKind.SHADOW
    if kind is None and named:
        kind = DeviceKind.MOCK
    return Choice(kind, find_board(named).name if named else None)


def has_board() -> bool:
    """Tell whether there is a board in this machine."""
    return DEVICE_DIRECTORY.is_dir() and any(DEVICE_DIRECTORY.glob("[0-9]*"))


def grouped(cases: Iterable[Planned], choice: Choice) -> dict[Where, list[Planned]]:
    """Return the cases by what they are executed on; FrameworkMissing if that needs ttnn."""
    groups: dict[Where, list[Planned]] = {}
    for planned in cases:
        groups.setdefault(_where(planned, choice), []).append(planned)
    if any(where.device_kind is not DeviceKind.HOST for where in groups):
        installed_package()
    return groups


def _where(planned: Planned, choice: Choice) -> Where:
    if planned.op.partition(".")[0] != "ttnn":
        return Where(DeviceKind.HOST)
    if choice.device_kind is DeviceKind.HARDWARE:
        return Where(DeviceKind.HARDWARE)
    if choice.board is not None:
        return Where(choice.device_kind or DeviceKind.MOCK, choice.board)
    if choice.device_kind is None and has_board():
        return Where(DeviceKind.HARDWARE, why="a board is here, and no other was asked for")
    return _recorded(planned, choice.device_kind or DeviceKind.MOCK)


def _recorded(planned: Planned, kind: DeviceKind) -> Where:
    if planned.board in BOARDS:
        return Where(kind, planned.board, "the board on which they were recorded")
    chips = prod(device_of(planned.job).mesh_shape or (1,))
    fitting = (name for name, board in BOARDS.items() if board.chips >= chips)
    board = next(fitting, None)
    if board is None:
        raise NotReplayable(
            f"{planned.op} was recorded on {chips} chips, more than any known board has"
        )
    return Where(kind, board, "the smallest that has their chips; no known board was recorded")


def is_mock(where: Where) -> bool:
    """Tell whether it is a mock board."""
    return where.device_kind in _MOCK

"""Choose the device on which cases run: a board, a mock or simulated board, or the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable
from optrove.frameworks.torch.target_check import unknown_in
from optrove.frameworks.ttnn.board.devices import ALONE
from optrove.frameworks.ttnn.board.runtime import installed_package
from optrove.frameworks.ttnn.board.simulator import find_simulator, simulated_board
from optrove.frameworks.ttnn.board.table import BOARDS, DEVICE_DIRECTORY, find_board
from optrove.model.records import DeviceKey, DeviceKind, DeviceParameters
from optrove.model.torch_target import TorchTarget
from optrove.model.values import DeviceRef, TensorSpec, TtnnPlacement, walk
from optrove.settings import BOARD, SHADOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.case import Case
    from optrove.model.records import Job
    from optrove.replay.planning import PlannedJob


_SIMULATED: Final = {"wormhole_b0": "n150", "blackhole": "p150"}
"""The board that is simulated where only its architecture is known."""


@dataclass(frozen=True, slots=True)
class TargetDevice:
    """The device on which cases run; ``reason`` is set when the user did not name it."""

    device_kind: DeviceKind
    board: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        if self.device_kind is DeviceKind.HOST:
            target = TorchTarget.parse(self.board)
            return target.words if target.device else f"the {target.words}"
        if self.device_kind is DeviceKind.HARDWARE:
            return "the board of this machine"
        if self.device_kind is DeviceKind.SIMULATOR:
            return f"a simulated {self.board}"
        numerics = " with torch numerics" if self.device_kind is DeviceKind.SHADOW else ""
        return f"a mock {self.board}{numerics}"


def resolve_device(
    device: DeviceKind | str | None, board: str | None
) -> tuple[DeviceKind | None, str | None]:
    """Return the device kind and the board that the options or the environment name.

    Either is None if nothing names it. UnknownBoard for a board that is not in the table,
    NotReplayable for a device that this machine does not have, SimulatorMissing without the
    simulator or for a board that it does not simulate.
    """
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
        return kind, None
    board = board or BOARD.value
    if kind is DeviceKind.SIMULATOR:
        if board is None:
            return kind, None
        simulated = simulated_board(board)
        find_simulator(simulated)
        return kind, simulated.name
    if kind is None and SHADOW.is_on:
        kind = DeviceKind.SHADOW
    if kind is None and board:
        kind = DeviceKind.MOCK
    return kind, find_board(board).name if board else None


def has_board() -> bool:
    """Return whether this machine has a board."""
    return DEVICE_DIRECTORY.is_dir() and any(DEVICE_DIRECTORY.glob("[0-9]*"))


def group_by_device(
    cases: Iterable[PlannedJob],
    kind: DeviceKind | None,
    board: str | None,
    torch: str | None = None,
) -> dict[TargetDevice, list[PlannedJob]]:
    """Return the cases by the device on which they run, given what ``resolve_device`` returned.

    ``torch`` is the text of the TorchTarget on which cases of torch run.
    FrameworkMissing if a device needs ttnn, which is not installed.
    """
    groups: dict[TargetDevice, list[PlannedJob]] = {}
    cases = tuple(cases)
    for planned in cases:
        if planned.op.startswith("torch."):
            target = TargetDevice(DeviceKind.HOST, torch)
        else:
            target = _target(planned, kind, board)
        groups.setdefault(target, []).append(planned)
    if torch is not None and not any(each.op.startswith("torch.") for each in cases):
        options = [each for each in TorchTarget.parse(torch).options() if each.startswith("--")]
        if "--device" not in options:
            raise NotReplayable(
                f"{', '.join(options)}: only for cases of torch, and all selected ones are of "
                f"ttnn; leave it out (ttnn's results are compared with ttnn's golden functions)"
            )
        near = get_close_matches(torch, ("hw", "mock", "shadow", "sim"), n=1)
        meant = f"did you mean {near[0]}?" if near else "no case of torch is selected."
        raise NotReplayable(
            f"{torch!r} is not a device for cases of ttnn: {meant} For these, --device is "
            f"hw, mock, shadow or sim"
        )
    if any(target.device_kind is not DeviceKind.HOST for target in groups):
        installed_package()
    return groups


def check_device(
    cases: Iterable[PlannedJob],
    kind: DeviceKind | None,
    board: str | None,
    torch: str | None = None,
) -> None:
    """Raise NotReplayable for a device that the cases cannot run on, before any does.

    This is a device of ttnn if all cases are of torch, which ignore it, and a device or compiler
    that torch does not know. ``torch`` is the text of the TorchTarget.
    """
    ops = {each.op for each in cases}
    if torch is not None and any(op.startswith("torch.") for op in ops):
        unknown = unknown_in(torch)
        if unknown:
            raise NotReplayable(unknown)
    # A variable is set for all commands, so it need not mean this one.
    if (kind is None and board is None) or BOARD.value or SHADOW.is_on:
        return
    if ops and all(op.startswith("torch.") for op in ops):
        by_board = kind is DeviceKind.MOCK and board is not None
        named = f"--board {board}" if by_board or kind is None else f"--device {kind.value}"
        raise NotReplayable(
            f"{named} is for cases of ttnn, and all selected cases are of "
            f"torch: leave it out, or name a device of torch, such as --device cpu"
        )


def _target(planned: PlannedJob, kind: DeviceKind | None, board: str | None) -> TargetDevice:
    if planned.op.partition(".")[0] != "ttnn":
        return TargetDevice(DeviceKind.HOST)
    if kind is DeviceKind.HARDWARE:
        return TargetDevice(DeviceKind.HARDWARE)
    if board is not None:
        return TargetDevice(kind or DeviceKind.MOCK, board)
    if kind is None and has_board():
        return TargetDevice(DeviceKind.HARDWARE, reason="this machine has a board")
    if kind is DeviceKind.SIMULATOR:
        return _simulated_target(planned)
    kind = kind or DeviceKind.MOCK
    if planned.board in BOARDS:
        return TargetDevice(kind, planned.board, "the board on which they were recorded")
    chips = prod(device_parameters(planned.job).mesh_shape or (1,))
    smallest = next((name for name, each in BOARDS.items() if each.chips >= chips), None)
    if smallest is None:
        raise NotReplayable(
            f"{planned.op} was recorded on {chips} chips, more than any known board has"
        )
    return TargetDevice(
        kind, smallest, "the smallest board with enough chips; no known board was recorded"
    )


def _simulated_target(planned: PlannedJob) -> TargetDevice:
    """Return the simulated board with the chip on which a case was recorded."""
    recorded = BOARDS.get(planned.board or "")
    if recorded is None:
        name = _SIMULATED["wormhole_b0"]
        reason = "no known board was recorded"
    elif recorded.chips == 1:
        name, reason = recorded.name, "the board on which they were recorded"
    else:
        name, reason = _SIMULATED[recorded.arch], f"one chip of the recorded {recorded.name}"
    find_simulator(BOARDS[name])
    return TargetDevice(DeviceKind.SIMULATOR, name, reason)


def device_key(job: Job, board: str | None) -> DeviceKey:
    """Return the key that two Jobs have in common if they can share an open device."""
    known = None if board is None else BOARDS.get(board)
    arch = None if known is None else known.arch
    return DeviceKey(job.device_kind, board, arch, device_parameters(job))


def device_parameters(job: Job) -> DeviceParameters:
    """Return the parameters to open a Job's device with; without a mesh shape it needs no device.

    The mesh is that of the case's own tensors and devices: where a model works on submeshes, the
    device that was opened last need not be theirs.
    """
    recorded = job.device or DeviceParameters()
    shapes = sorted(set(_mesh_shapes(job.case)), key=lambda shape: (prod(shape), shape))
    return replace(recorded, mesh_shape=shapes[-1]) if shapes else recorded


def _mesh_shapes(case: Case) -> Iterator[tuple[int, ...]]:
    for _, argument in case.arguments:
        for _, part in walk(argument):
            match part:
                case TensorSpec(placement=TtnnPlacement(storage="device", mesh_shape=shape)):
                    yield shape or ALONE
                case DeviceRef(mesh_shape=shape):
                    yield shape or ALONE

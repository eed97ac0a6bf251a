"""The machine of an execution: read from ``machine_info``, written back, and which board it is."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from optrove.codec.reading import found
from optrove.errors import Fault
from optrove.model.records import DeviceKind, DeviceParameters, Environment
from optrove.model.trove import Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.codec.text import Json
    from optrove.interop.understanding import Understanding

BOARDS: Final = {
    "n150": "n150",
    "n300": "n300",
    "t3k": "t3k",
    "tt-galaxy-wh": "galaxy",
    "galaxy": "galaxy",
    "p100": "p100",
    "p100a": "p100",
    "p150": "p150",
    "p150a": "p150",
    "p150b": "p150",
    "p300": "p300",
    "p300a": "p300",
    "p300c": "p300",
    "tt-galaxy-bh": "bh-galaxy",
    "bh-galaxy": "bh-galaxy",
}
"""Our names of boards by the ``device_series`` of master files, in lower case."""

ARCHITECTURES: Final = {"wormhole": "wormhole_b0", "blackhole": "blackhole"}
"""Names of architectures by the ``board_type`` of master files, in lower case."""

_T3K_CARDS: Final = 4
_NAMES: Final = tuple(field.name for field in fields(Machine))


def board_of(machine: Machine) -> str | None:
    """Return our name of the board; None if it is not known. Four N300 cards are a T3K."""
    board = BOARDS.get((machine.device_series or "").lower())
    if board == "n300" and machine.card_count == _T3K_CARDS:
        return "t3k"
    return board


def environment_of(machine: Machine) -> Environment:
    """Return the Environment of an import, which knows the machine and no software.

    What no file tells is "unknown", so that the same file gives the same Run everywhere.
    """
    mesh_shape = machine.mesh_device_shape
    return Environment(
        optrove_version="unknown",
        python_version="unknown",
        platform="unknown",
        device_kind=DeviceKind.HARDWARE,
        board=board_of(machine),
        arch=ARCHITECTURES.get((machine.board_type or "").lower()),
        device_series=machine.device_series,
        card_count=machine.card_count,
        device_count=machine.device_count,
        device=None if mesh_shape is None else DeviceParameters(mesh_shape=mesh_shape),
    )


def machine_data(machine: Machine) -> dict[str, Json]:
    """Return a machine as a master file has it: without what is not known."""
    told = {name: getattr(machine, name) for name in _NAMES}
    return {
        name: list(item) if isinstance(item, tuple) else item
        for name, item in told.items()
        if item is not None
    }


def read_machine(
    data: Json, path: str, faults: list[Fault], understanding: Understanding | None = None
) -> Machine:
    """Read ``machine_info``; notes keys that are not kept, and every fault with its path."""
    if data is None:
        return Machine()
    if not isinstance(data, dict):
        faults.append(Fault(path, f"expected an object, found {found(data)}"))
        return Machine()
    for key in data.keys() - set(_NAMES):
        if understanding is None:
            faults.append(Fault(path, f"unknown key {found(key)}; known: {', '.join(_NAMES)}"))
        else:
            understanding.note(f"not kept: {key} of machine_info")
    return Machine(**dict(_facts(data, path, faults)))


def _facts(data: dict[str, Any], path: str, faults: list[Fault]) -> Iterator[tuple[str, Any]]:
    for name in ("board_type", "device_series"):
        yield name, _text(data.get(name), f"{path}.{name}", faults)
    for name in ("card_count", "device_count"):
        yield name, _count(data.get(name), f"{path}.{name}", faults)
    for name in ("mesh_device_shape", "device_ids"):
        yield name, _row(data.get(name), f"{path}.{name}", faults)


def _text(data: Json, path: str, faults: list[Fault]) -> str | None:
    """Read a name; a list of them, one per card, is written as one text."""
    if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
        data = ", ".join(dict.fromkeys(data))
    if data is None or (isinstance(data, str) and data.isprintable()):
        return data
    faults.append(Fault(path, f"expected a name, found {found(data)}"))
    return None


def _count(data: Json, path: str, faults: list[Fault]) -> int | None:
    if data is None or _is_count(data):
        return data  # type: ignore[no-any-return]  # checked just now
    faults.append(Fault(path, f"expected a number from 0 on, found {found(data)}"))
    return None


def _row(data: Json, path: str, faults: list[Fault]) -> tuple[int, ...] | None:
    if data is None:
        return None
    if isinstance(data, list) and all(_is_count(item) for item in data):
        return tuple(data)
    faults.append(Fault(path, f"expected a list of numbers from 0 on, found {found(data)}"))
    return None


_MOST: Final = 2**31


def _is_count(data: Json) -> bool:
    return type(data) is int and 0 <= data < _MOST

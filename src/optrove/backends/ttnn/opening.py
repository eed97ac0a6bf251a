"""Watch with what the devices of ttnn are opened, which no device tells."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from optrove.backends.ttnn.patching import Note, Signature
from optrove.model.records import DeviceParameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# By the signatures of CreateDevice and open_mesh_device and by what open_device says of itself.
ONE_QUEUE = 1


@dataclass(frozen=True, slots=True)
class _Opened:
    """A device that is open; ``root`` is the number of the one that it is a part of, or its own."""

    parameters: DeviceParameters
    root: int


class Openings:
    """The devices that were opened and not closed since, by ttnn's own numbers for them.

    Numbers, not the devices, so that none is kept open. The fabric is asked of ttnn after each
    opening, since closing a device may disable what was set.
    """

    def __init__(self, ttnn: Any, opened: Callable[[DeviceParameters | None], None]) -> None:
        self._ttnn = ttnn
        self._opened = opened
        self._open: dict[int, _Opened] = {}
        self._capturing: set[int] = set()

    @property
    def trace_capture_active(self) -> bool:
        """Whether some device captures a trace now."""
        return bool(self._capturing)

    def parameters(self, device: Any) -> DeviceParameters | None:
        """Return with what a device was opened, None when that was not seen."""
        found = self._open.get(device.id())
        return None if found is None else found.parameters

    def notes(self) -> Iterator[tuple[Any, Note]]:
        """Yield the functions to watch, and what to do after each of their calls."""
        extension = self._ttnn._ttnn  # noqa: SLF001 - what all public ways to a device go through
        device, mesh = extension.device, extension.multi_device
        rows = (
            (device, ("open_device", "CreateDevice", "CreateDevices"), self._opening),
            (mesh, ("open_mesh_device",), self._opening),
            (device, ("close_device", "CloseDevice", "CloseDevices"), self._closing),
            (mesh, ("close_mesh_device",), self._closing),
            (mesh.MeshDevice, ("create_submesh", "create_submeshes"), self._parting),
            (mesh.MeshDevice, ("reshape",), self._reshaping),
            (self._ttnn, ("begin_trace_capture",), self._beginning),
            (self._ttnn, ("end_trace_capture",), self._ending),
        )
        for owner, names, noting in rows:
            for name in names:
                function = getattr(owner, name, None)  # no release has to have all of them
                if function is not None:
                    yield function, noting(function)

    def _opening(self, function: Any) -> Note:
        signature = Signature(function)

        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            bound = signature.bind(arguments, keywords)
            # open_device writes its signature by hand, incompletely; it takes keywords only.
            given = self._defaults() | (keywords if bound is None else bound)
            for device in _devices(result):
                number = device.id()
                parameters = self._parameters(device, given)
                self._open[number] = _Opened(parameters, number)
                self._opened(parameters)

        return note

    def _parting(self, _: Any) -> Note:
        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:  # noqa: ARG001 - the signature of a Note
            whole = arguments[0]
            if whole.id() not in self._open:  # it was opened before anyone watched
                self._open[whole.id()] = _Opened(self._parameters(whole, {}), whole.id())
            parent = self._open[whole.id()]
            for device in _devices(result):
                parameters = replace(parent.parameters, mesh_shape=tuple(device.shape))
                self._open[device.id()] = _Opened(parameters, parent.root)
                self._opened(parameters)

        return note

    def _reshaping(self, _: Any) -> Note:
        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:  # noqa: ARG001 - the signature of a Note
            device = arguments[0]
            found = self._open.get(device.id())
            if found is not None:
                parameters = replace(found.parameters, mesh_shape=tuple(device.shape))
                self._open[device.id()] = replace(found, parameters=parameters)
                self._opened(parameters)

        return note

    def _closing(self, _: Any) -> Note:
        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:  # noqa: ARG001 - the signature of a Note
            closed = {device.id() for device in _devices(_first(arguments, keywords))}
            # With a mesh its parts are closed; of a part nothing else is a part.
            ended = {n for n, device in self._open.items() if n in closed or device.root in closed}
            for number in ended:
                del self._open[number]
            self._capturing -= closed | ended
            if ended and not self._open:
                self._opened(None)

        return note

    def _beginning(self, _: Any) -> Note:
        return lambda _result, arguments, keywords: self._capturing.add(
            _first(arguments, keywords).id()
        )

    def _ending(self, _: Any) -> Note:
        return lambda _result, arguments, keywords: self._capturing.discard(
            _first(arguments, keywords).id()
        )

    def _defaults(self) -> dict[str, Any]:
        extension = self._ttnn._ttnn.device  # noqa: SLF001 - the only place that holds them all
        names = ("l1_small_size", "trace_region_size", "worker_l1_size")
        sizes = {name: getattr(extension, f"DEFAULT_{name.upper()}", None) for name in names}
        return {**sizes, "num_command_queues": ONE_QUEUE}

    def _parameters(self, device: Any, given: dict[str, Any]) -> DeviceParameters:
        return DeviceParameters(
            mesh_shape=tuple(device.shape),
            fabric_config=self._fabric(),
            dispatch_axis=self._axis(device, given),
            l1_small_size=_integer(given.get("l1_small_size")),
            trace_region_size=_integer(given.get("trace_region_size")),
            worker_l1_size=_integer(given.get("worker_l1_size")),
            command_queues=_integer(given.get("num_command_queues")),
        )

    def _fabric(self) -> str | None:
        ask = getattr(self._ttnn, "get_fabric_config", None)
        return None if ask is None else str(ask().name)

    def _axis(self, device: Any, given: dict[str, Any]) -> str | None:
        # CreateDevice spells it like the class.
        config = given.get("dispatch_core_config") or given.get("DispatchCoreConfig")
        if config is not None:
            return str(config.axis.name)
        ask = getattr(self._ttnn.device, "get_dispatch_core_axis", None)
        return None if ask is None else str(ask(device).name)


def _integer(given: Any) -> int | None:
    return None if given is None else operator.index(given)


def _first(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the device that a function was called for, which is its first argument."""
    if arguments:
        return arguments[0]
    return keywords["mesh_device"] if "mesh_device" in keywords else keywords["device"]


def _devices(given: Any) -> list[Any]:
    """Return the devices of a mapping, of a list, or the one that was given."""
    if isinstance(given, dict):
        return list(given.values())
    return given if isinstance(given, list) else [given]

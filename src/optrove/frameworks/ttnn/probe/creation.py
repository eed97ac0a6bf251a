"""Observe how runtime objects are created and devices are opened.

``Creations`` lists the functions to patch, and then knows the recipe of each handle that was
created while the patches were in place. It holds no handle: nanobind's objects take no weak
references, so they are identified by id and class. The id of a dead object may go to a new one,
but the creation of the new one is observed as well: every function that ttnn declares to return
such an object is patched, also those whose results have no recipe.

Limits. A handle has no recipe if it was created before the patches, or by a reference to the
unpatched function that is not a global of a module; if such a handle has the id of a dead one that
was observed, it is mistaken for that one. ``ttnn.SubDevice`` cannot be observed, because nanobind
does not call its constructor through the attributes of the class, so a sub-device manager has no
recipe either. Nor has a mapper for a mesh shape without a device, since a recipe needs a device.
The configurations of mappers and composers have no readers: they are parsed from their printed
text, and accepted if a configuration that is built from it prints the same.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from importlib import import_module
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.frameworks.ttnn.probe.patching import OnFault, OnReturn, members, patches
from optrove.frameworks.ttnn.signatures import bind_with_defaults, stubs
from optrove.model.records import DeviceParameters

if TYPE_CHECKING:
    from optrove.serializer.tables import Fields


# The default in the signatures of CreateDevice and open_mesh_device and in open_device's docstring.
ONE_QUEUE = 1


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open device; ``root`` is the number of the device that it is a part of, or its own."""

    parameters: DeviceParameters
    root: int


class Openings:
    """The open devices, by ttnn's numbers for them.

    Numbers, not devices, so that no device is kept open. The fabric is read from ttnn after each
    opening, since closing a device may reset it.
    """

    def __init__(self, ttnn: Any, opened: Callable[[DeviceParameters | None], None]) -> None:
        self._ttnn = ttnn
        self._opened = opened
        self._open: dict[int, _Opened] = {}
        self._capturing: set[int] = set()

    @property
    def trace_capture_active(self) -> bool:
        """Whether a device is capturing a trace."""
        return bool(self._capturing)

    def parameters(self, device: Any) -> DeviceParameters | None:
        """Return the parameters that a device was opened with; None if that was not observed."""
        found = self._open.get(device.id())
        return None if found is None else found.parameters

    def notes(self) -> Iterator[tuple[Any, OnReturn]]:
        """Yield the functions to patch, each with the function to run after its calls."""
        extension = self._ttnn._ttnn  # noqa: SLF001 - all public functions for devices call these
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
                function = getattr(owner, name, None)  # not every release has all of them
                if function is not None:
                    yield function, noting(function)

    def _opening(self, function: Any) -> OnReturn:
        overloads = stubs(function)

        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            bound = bind_with_defaults(overloads, arguments, keywords)
            # The signature in open_device's docstring is incomplete; it takes keywords only.
            given = self._defaults() | (keywords if bound is None else bound)
            for device in _devices(result):
                number = device.id()
                parameters = self._parameters(device, given)
                self._open[number] = _Opened(parameters, number)
                self._opened(parameters)

        return note

    def _parting(self, _: Any) -> OnReturn:
        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:  # noqa: ARG001 - the signature of OnReturn
            whole = arguments[0]
            if whole.id() not in self._open:  # it was opened before the patches
                self._open[whole.id()] = _Opened(self._parameters(whole, {}), whole.id())
            parent = self._open[whole.id()]
            for device in _devices(result):
                parameters = replace(
                    parent.parameters,
                    mesh_shape=tuple(device.shape),
                    device_ids=_device_ids(device),
                )
                self._open[device.id()] = _Opened(parameters, parent.root)
                self._opened(parameters)

        return note

    def _reshaping(self, _: Any) -> OnReturn:
        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:  # noqa: ARG001 - the signature of OnReturn
            device = arguments[0]
            found = self._open.get(device.id())
            if found is not None:
                parameters = replace(
                    found.parameters,
                    mesh_shape=tuple(device.shape),
                    device_ids=_device_ids(device),
                )
                self._open[device.id()] = replace(found, parameters=parameters)
                self._opened(parameters)

        return note

    def _closing(self, _: Any) -> OnReturn:
        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:  # noqa: ARG001 - the signature of OnReturn
            closed = {device.id() for device in _devices(_first(arguments, keywords))}
            # Closing a mesh closes its parts; a part has no parts.
            ended = {n for n, device in self._open.items() if n in closed or device.root in closed}
            for number in ended:
                del self._open[number]
            self._capturing -= closed | ended
            if ended and not self._open:
                self._opened(None)

        return note

    def _beginning(self, _: Any) -> OnReturn:
        return lambda _result, arguments, keywords: self._capturing.add(
            _first(arguments, keywords).id()
        )

    def _ending(self, _: Any) -> OnReturn:
        return lambda _result, arguments, keywords: self._capturing.discard(
            _first(arguments, keywords).id()
        )

    def _defaults(self) -> dict[str, Any]:
        extension = self._ttnn._ttnn.device  # noqa: SLF001 - they have no public name
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
            device_ids=_device_ids(device),
        )

    def _fabric(self) -> str | None:
        ask = getattr(self._ttnn, "get_fabric_config", None)
        return None if ask is None else str(ask().name)

    def _axis(self, device: Any, given: dict[str, Any]) -> str | None:
        # CreateDevice names the argument like the class.
        config = given.get("dispatch_core_config") or given.get("DispatchCoreConfig")
        if config is not None:
            return str(config.axis.name)
        ask = getattr(self._ttnn.device, "get_dispatch_core_axis", None)
        return None if ask is None else str(ask(device).name)


def _device_ids(device: Any) -> tuple[int, ...] | None:
    ask = getattr(device, "get_device_ids", None)
    return None if ask is None else tuple(map(operator.index, ask()))


def _integer(given: Any) -> int | None:
    return None if given is None else operator.index(given)


def _first(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the device argument of a function, which is the first one."""
    if arguments:
        return arguments[0]
    return keywords["mesh_device"] if "mesh_device" in keywords else keywords["device"]


def _devices(given: Any) -> list[Any]:
    """Return the devices of a mapping or a list, or a single device as a list."""
    if isinstance(given, dict):
        return list(given.values())
    return given if isinstance(given, list) else [given]


LIMIT = 4096
"""How many handles are remembered; the oldest are forgotten first."""

RecipeReader: TypeAlias = Callable[[Any, dict[str, Any]], "Fields | None"]
"""Return the recipe of a new handle from the handle and its named arguments, or None."""


@dataclass(frozen=True, slots=True)
class _Creation:
    """The creation of one handle; ``replicates`` for the mapper of ReplicateTensorToMesh."""

    kind: type
    recipe: Fields
    number: int
    replicates: bool = False


class Creations:
    """The observed creations of handles and devices.

    ``opened`` is called with the parameters of each device after it was opened, created as a part
    of another or reshaped, and with None after the last one was closed. ``on_fault`` is called
    with a text if a creation was not understood; the program never notices.
    """

    def __init__(
        self, ttnn: Any, opened: Callable[[DeviceParameters | None], None], on_fault: OnFault
    ) -> None:
        self._ttnn = ttnn
        self._on_fault = on_fault
        self._openings = Openings(ttnn, opened)
        self._readers = _recipe_readers(ttnn)
        self._plain = _plain_forms(ttnn)
        self._wrapper = import_module("ttnn.distributed.distributed").ReplicateTensorToMeshWrapper
        self._creations: dict[int, _Creation] = {}
        self._numbers: dict[Hashable, int] = {}
        self._next_number = count()
        self._lock = Lock()

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the patches: owner, name and replacement."""
        notes = [*self._notes(), *self._openings.notes()]
        yield from patches(notes, self._on_fault)

    def recipe(self, live: Any) -> Fields | None:
        """Return the arguments that a handle was created with, defaults included, or None."""
        creation = self._find(live)
        return None if creation is None else dict(creation.recipe)

    def number(self, live: Any) -> int | None:
        """Return a number that only handles of this recipe have; None without a recipe."""
        creation = self._find(live)
        return None if creation is None else creation.number

    def device_parameters(self, device: Any) -> DeviceParameters | None:
        """Return the parameters that a device was opened with; None if that was not observed."""
        return self._openings.parameters(device)

    @property
    def trace_capture_active(self) -> bool:
        """Whether a device is capturing a trace, as far as was observed."""
        return self._openings.trace_capture_active

    def _find(self, live: Any) -> _Creation | None:
        if type(live) is self._wrapper:
            within = self._find(live.unwrap())
            if within is None or not within.replicates:
                return None
            return _Creation(self._wrapper, {}, self._number(self._wrapper, {}))
        creation = self._creations.get(id(live))
        return creation if creation is not None and creation.kind is type(live) else None

    def _notes(self) -> Iterator[tuple[Any, OnReturn]]:
        """Yield every function that returns a handle, with the function to run after its calls."""
        returns = _returning(self._ttnn)
        found = {id(member): member for _, _, member in members()}
        for function in found.values():
            if any(returns.search(stub) for stub, _ in stubs(function)):
                yield function, self._creating(function)

    def _creating(self, function: Any) -> OnReturn:
        overloads = stubs(function)
        read = self._readers.get(function.__name__)
        replicates = function.__name__ == "replicate_tensor_to_mesh_mapper"

        def note(result: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            for live in result if isinstance(result, (list, tuple)) else (result,):
                # First, since the rest may raise, and the old recipe must not be found then.
                self._forget(live)
                bound = bind_with_defaults(overloads, arguments, keywords)
                recipe = None if bound is None or read is None else read(live, bound)
                if recipe is not None:
                    number = self._number(type(live), recipe)
                    self._keep(live, _Creation(type(live), recipe, number, replicates))

        return note

    def _forget(self, live: Any) -> None:
        with self._lock:
            self._creations.pop(id(live), None)

    def _keep(self, live: Any, creation: _Creation) -> None:
        with self._lock:
            while len(self._creations) >= LIMIT:
                del self._creations[next(iter(self._creations))]
            self._creations[id(live)] = creation

    def _number(self, kind: type, recipe: Fields) -> int:
        try:
            key = (kind, tuple((name, self._key(value)) for name, value in recipe.items()))
        except LookupError:  # a value that cannot be compared; nothing equals it
            return next(self._next_number)
        with self._lock:
            if len(self._numbers) >= LIMIT:
                self._numbers.clear()
            if key not in self._numbers:
                self._numbers[key] = next(self._next_number)
            return self._numbers[key]

    def _key(self, value: Any) -> Hashable:
        """Return a key that only equal values share; LookupError for an unknown class."""
        kind = type(value)
        if isinstance(value, (list, tuple)):
            return kind, tuple(map(self._key, value))
        if value is None or isinstance(value, Enum) or kind in (int, str):
            return kind, value
        return kind, self._plain[kind](value)


def _returning(ttnn: Any) -> re.Pattern[str]:
    """Return a pattern for the stubs of functions whose handles may have a recipe."""
    extension = ttnn._ttnn  # noqa: SLF001 - these classes have no public name
    classes = (
        extension.global_semaphore.global_semaphore,
        extension.global_circular_buffer.global_circular_buffer,
        ttnn.MeshEvent,
        ttnn.CppTensorToMesh,
        ttnn.CppMeshToTensor,
    )
    names = "|".join(re.escape(f"{cls.__module__}.{cls.__qualname__}") for cls in classes)
    return re.compile(rf"->[^>]*\b({names})\b")


def _recipe_readers(ttnn: Any) -> dict[str, RecipeReader]:
    """Return the readers of recipes, by the name of the creating function."""
    mapper, composer = partial(_mapper, ttnn), partial(_composer, ttnn)
    return {
        "create_global_semaphore": partial(
            _as_given, {"cores": _copy, "initial_value": operator.index, "buffer_type": _copy}
        ),
        "create_global_circular_buffer": partial(
            _as_given,
            {"sender_receiver_core_mapping": _copy, "size": operator.index, "buffer_type": _copy},
        ),
        "record_event": partial(
            _as_given,
            {"cq_id": partial(_queue, ttnn), "sub_device_ids": _copy, "device_range": _copy},
        ),
        "create_mesh_mapper": mapper,
        "shard_tensor_to_mesh_mapper": mapper,
        "replicate_tensor_to_mesh_mapper": mapper,
        "create_mesh_composer": composer,
        "concat_mesh_to_tensor_composer": partial(_concatenation, ttnn),
    }


def _as_given(
    fields: dict[str, Callable[[Any], Any]], _live: Any, bound: dict[str, Any]
) -> Fields | None:
    return {name: form(bound[name]) for name, form in fields.items()}


def _copy(value: Any) -> Any:
    """Return the value with copies of its lists, since the caller may change them."""
    if isinstance(value, tuple):
        return tuple(map(_copy, value))
    return list(map(_copy, value)) if isinstance(value, list) else value


def _queue(ttnn: Any, given: Any) -> Any:
    """Return the queue that a number stands for."""
    return ttnn.QueueId(given) if isinstance(given, int) else given


def _mapper(ttnn: Any, live: Any, bound: dict[str, Any]) -> Fields | None:
    # There is an overload that takes a mesh shape in the place of the device.
    if not isinstance(bound.get("mesh_device"), ttnn.MeshDevice):
        return None
    config = live.config()
    fields = {"placements": list(config.placements), **_overrides(ttnn, config)}
    return _proven(ttnn.MeshMapperConfig, fields, config)


def _composer(ttnn: Any, _live: Any, bound: dict[str, Any]) -> Fields | None:
    config = bound["config"]
    dims = [int(dim) for dim in _printed(config)["parts"].split(",") if dim]
    return _proven(ttnn.MeshComposerConfig, {"dims": dims, **_overrides(ttnn, config)}, config)


def _concatenation(ttnn: Any, _live: Any, bound: dict[str, Any]) -> Fields | None:
    # As in ttnn: all devices in one row, as shard_tensor_to_mesh_mapper shows.
    return {
        "dims": [operator.index(bound["dim"])],
        "mesh_shape_override": ttnn.MeshShape([bound["mesh_device"].get_num_devices()]),
        "mesh_offset_override": ttnn.MeshCoordinate([]),
    }


# ttnn does not print an override that is not set.
_PRINTED = re.compile(
    r"\w+\((placements|dims): \[(?P<parts>[^\]]*)\]"
    r"(, mesh_shape_override=MeshShape\(\[(?P<shape>[\d, ]*)\]\))?"
    r"(, mesh_offset_override=MeshCoordinate\(\[(?P<offset>[\d, ]*)\]\))?\)"
)


def _printed(config: Any) -> dict[str, Any]:
    found = _PRINTED.fullmatch(repr(config))
    if found is None:
        raise ValueError(f"ttnn prints it in an unknown form: {config!r}")
    return found.groupdict()


def _overrides(ttnn: Any, config: Any) -> Fields:
    printed = _printed(config)
    shape, offset = printed["shape"], printed["offset"] or ""
    sizes = None if shape is None else [int(size) for size in shape.split(",")]
    return {
        "mesh_shape_override": None if sizes is None else ttnn.MeshShape(sizes),
        "mesh_offset_override": ttnn.MeshCoordinate([int(at) for at in offset.split(",") if at]),
    }


def _proven(cls: type, fields: Fields, config: Any) -> Fields:
    """Return the fields if they build the same configuration; ValueError otherwise."""
    again = cls(**fields)
    if repr(again) != repr(config):
        raise ValueError(f"{config!r} was read as {again!r}")
    return fields


def _plain_forms(ttnn: Any) -> dict[type, Callable[[Any], Hashable]]:
    """Return functions that make values without a hash comparable, by class."""
    return {
        ttnn.CoreCoord: lambda core: (core.x, core.y),
        ttnn.CoreRangeSet: lambda cores: tuple(
            (part.start.x, part.start.y, part.end.x, part.end.y) for part in cores.ranges()
        ),
        ttnn.MeshShape: tuple,
        ttnn.MeshCoordinate: lambda at: tuple(at[axis] for axis in range(at.dims())),
        ttnn.PlacementShard: lambda placement: placement.dim,
        ttnn.PlacementReplicate: lambda _: None,
        ttnn.QueueId: int,
    }

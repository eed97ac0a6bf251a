"""Replace the calls of ttnn that a mock board cannot serve.

ttnn ends the process when it captures a metal trace, loads a sub-device manager or waits for an
event on a mock cluster, and with fast dispatch when an op runs on a part of a mesh. No kernel ever
runs there, so that there is nothing to record, to divide or to wait for: captured calls run as they
are made, executing a trace repeats what was noted for it (``MetalTraces``), sub-devices are the
whole chip, and an op for some chips of a mesh runs on all of them. An op on a tensor that is on
some chips only is an error.

With fast dispatch, ttnn queues each read of a shard on a device and waits for ever when 8,192 are
queued, because nothing on a mock board answers them: reads of whole tensors return zeros that are
made on the host.

The replacements stay until the process ends, as the mock board does. They are installed before any
other patch, so that probes and the shadow see the arguments of the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import UnsupportedOnMock
from optrove.frameworks.probe_protocol import muted
from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.probe.patching import members
from optrove.frameworks.ttnn.signatures import SIGNATURE

if TYPE_CHECKING:
    from optrove.frameworks.ttnn.board.runtime import CoreDescriptors, Runtime

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

OPENING: Final = ("open_device", "CreateDevice", "CreateDevices")

SUB_DEVICE_CALLS: Final = (
    "load_sub_device_manager",
    "clear_loaded_sub_device_manager",
    "remove_sub_device_manager",
    "set_sub_device_stall_group",
    "reset_sub_device_stall_group",
)

# The parameter of ops that run on some chips of a mesh.
CHIPS: Final = "mesh_coords"

# The methods of a tensor, and the ops, that read it from its device.
READING_METHODS: Final = ("cpu", "to_list", "to_numpy", "to_torch", "item", "__repr__", "__str__")
READING_OPS: Final = ("ttnn.from_device",)

# How many tensors ``copy_device_to_host_tensor`` takes, and which options.
_COPIED: Final = 2
_COPYING: Final = frozenset({"blocking", "cq_id"})

TRACES_ATTRIBUTE: Final = "__optrove_metal_traces__"

Replacement = Callable[..., Any]
Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Trace:
    """A metal trace: its device and command queue, what it does, and the tensors it writes."""

    device: int
    queue: int
    steps: list[Step] = field(default_factory=list)
    written: set[int] = field(default_factory=set)


class MetalTraces:
    """The metal traces of a process on a mock board: what to do when one of them is executed."""

    def __init__(self, trace_id: Callable[[int], Any], current_queue: Callable[[], Any]) -> None:
        self._trace_id = trace_id
        self._current_queue = current_queue
        self._numbers = count()
        self._traces: dict[int, _Trace] = {}
        self._capturing: dict[int, _Trace] = {}
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered while the steps of a trace are done."""

    @property
    def capturing(self) -> bool:
        """Whether some device captures a trace."""
        return bool(self._capturing)

    def captures(self, device: int, queue: Any = None) -> bool:
        """Return whether a call for a device, in the current queue by default, is captured."""
        trace = self._capturing.get(device)
        return trace is not None and self._queue(queue) == trace.queue

    def note(self, device: int, step: Step) -> None:
        """Add a step to the trace that a device captures, to be done when that is executed."""
        self._capturing[device].steps.append(step)

    def written(self, device: int) -> set[int]:
        """Return the ids of the tensors that calls of the trace in capture have written so far."""
        return self._capturing[device].written

    def begin(self, mesh_device: Any, *, cq_id: Any = None) -> Any:
        """Begin to capture a trace of the calls that follow."""
        device = mesh_device.id()
        if device in self._capturing:
            raise RuntimeError("a trace is being captured on this device already")
        number = next(self._numbers)
        self._capturing[device] = self._traces[number] = _Trace(device, self._queue(cq_id))
        return self._trace_id(number)

    def end(self, mesh_device: Any, trace_id: Any, *, cq_id: Any = None) -> None:  # noqa: ARG002 - ttnn's signature
        """End the capture of a trace."""
        trace = self._capturing.get(mesh_device.id())
        if trace is None or not any(trace is self._traces[each] for each in self._same(trace_id)):
            raise RuntimeError(f"{trace_id} is not being captured on this device")
        del self._capturing[mesh_device.id()]

    def execute(
        self,
        mesh_device: Any,
        trace_id: Any,
        *,
        cq_id: Any = None,  # noqa: ARG002 - ttnn's signature
        blocking: bool = True,  # noqa: ARG002 - ttnn's signature
    ) -> None:
        """Do what was noted while the trace was captured."""
        trace = self._traces[self._number(mesh_device, trace_id)]
        with self.around():
            for step in trace.steps:
                step()

    def release(self, mesh_device: Any, trace_id: Any) -> None:
        """Forget a trace."""
        del self._traces[self._number(mesh_device, trace_id)]

    def forget_device(self, device: int) -> None:
        """Forget the traces of a device that was closed."""
        self._capturing.pop(device, None)
        self._traces = {key: trace for key, trace in self._traces.items() if trace.device != device}

    def is_capturing(self, mesh_device: Any) -> bool:
        """Return whether a device captures a trace."""
        return mesh_device.id() in self._capturing

    def _queue(self, queue: Any) -> int:
        return int(self._current_queue() if queue is None else queue)

    def _same(self, trace_id: Any) -> list[int]:
        return [number for number in self._traces if self._trace_id(number) == trace_id]

    def _number(self, mesh_device: Any, trace_id: Any) -> int:
        for number in self._same(trace_id):
            trace = self._traces[number]
            if trace.device == mesh_device.id() and trace is not self._capturing.get(trace.device):
                return number
        raise RuntimeError(f"there is no captured trace {trace_id} on this device")


def replace_calls(ttnn: Any, runtime: Runtime) -> None:
    """Replace the calls of a loaded ttnn that a mock board cannot serve, under all their names."""
    # No release has to have several queues.
    queue = getattr(ttnn, "get_current_command_queue_id_for_thread", lambda: 0)
    traces = MetalTraces(ttnn.MeshTraceId, queue)
    setattr(ttnn, TRACES_ATTRIBUTE, traces)
    replacements = {
        id(original): _as_if(original, replacement)
        for original, replacement in _replacements(ttnn, runtime, traces)
    }
    if not runtime.slow_dispatch:
        reads = _Reads(ttnn)
        replacements |= {
            id(original): _as_if(original, replacement)
            for original, replacement in reads.replacements()
        }
    if runtime.is_fast_mesh:
        parts = _MeshParts(ttnn)
        replacements[id(ttnn.get_device_tensors)] = _as_if(ttnn.get_device_tensors, parts.split)
        operations = ttnn.decorators.FastOperation
        operations.__call__ = parts.refusing(operations.__call__)
        for operation in ttnn.query_registered_operations(include_experimental=True):
            _run_on_whole_mesh(ttnn, operation)
    for owner, name, member in members():
        if id(member) in replacements:
            setattr(owner, name, replacements[id(member)])


def _replacements(
    ttnn: Any, runtime: Runtime, traces: MetalTraces
) -> Iterable[tuple[Any, Replacement]]:
    extension = ttnn._ttnn  # noqa: SLF001 - what all public ways to a device go through
    device, mesh, trace = extension.device, extension.multi_device, extension.operations.trace
    rows: list[tuple[Any, str, Replacement]] = [
        (trace, "begin_trace_capture", traces.begin),
        (trace, "end_trace_capture", traces.end),
        (trace, "execute_trace", traces.execute),
        (trace, "release_trace", traces.release),
        (device, "is_trace_capture_active", traces.is_capturing),
        (extension.events, "wait_for_event", _nothing),
        (device, "synchronize_device", _nothing),
        *((mesh.MeshDevice, name, _nothing) for name in SUB_DEVICE_CALLS),
    ]
    for owner, name, replacement in rows:
        if hasattr(owner, name):  # no release has to have all of them
            yield getattr(owner, name), replacement
    if runtime.core_descriptors is not None:
        for owner, names in ((device, OPENING), (mesh, ("open_mesh_device",))):
            for name in names:
                yield (
                    getattr(owner, name),
                    _opening(getattr(owner, name), runtime.core_descriptors),
                )


def _as_if(original: Any, replacement: Replacement) -> Any:
    """Return a function that calls the replacement and describes itself as the original does."""

    @wraps(original, assigned=("__doc__", "__name__", SIGNATURE))
    def call(*arguments: Any, **keywords: Any) -> Any:
        return replacement(*arguments, **keywords)

    return call


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing: there is nothing to wait for, and a sub-device is the whole chip."""


def _opening(original: Any, descriptors: CoreDescriptors) -> Replacement:
    def open_with_own_grid(*arguments: Any, **keywords: Any) -> Any:
        with descriptors.opening():
            return original(*arguments, **keywords)

    return open_with_own_grid


class _Reads:
    """Reads of tensors on a device, which get zeros without asking the device.

    Tensors on some chips of a mesh are read by ttnn, which alone can make such a tensor on the
    host; and so are those that an op reads by itself, as ``conv2d`` does with unprepared weights.
    """

    def __init__(self, ttnn: Any) -> None:
        self._ttnn = ttnn
        self._split = ttnn.get_device_tensors
        # Not as operations and methods, which a probe would record.
        self._allocate = ttnn.allocate_tensor_on_host.function
        self._set_topology = ttnn.Tensor.update_tensor_topology
        self._on_device = ttnn.StorageType.DEVICE

    def replacements(self) -> Iterable[tuple[Any, Replacement]]:
        """Yield the methods of tensors that read, and replace the functions of such ops."""
        tensor = self._ttnn.Tensor
        for name in READING_METHODS:
            if name in vars(tensor):
                yield getattr(tensor, name), self._reading(getattr(tensor, name))
        copy = self._ttnn.copy_device_to_host_tensor
        yield copy, self._copying(copy)
        for operation in self._ttnn.query_registered_operations(include_experimental=True):
            original, name = operation.function, operation.python_fully_qualified_name
            if name in READING_OPS:
                operation.function = _as_if(original, self._reading(original))

    def _is_readable(self, thing: Any) -> bool:
        """Return whether a thing is a tensor on all chips of its device."""
        if not isinstance(thing, self._ttnn.Tensor) or thing.storage_type() != self._on_device:
            return False
        if not thing.is_allocated():
            return False
        chips: int = thing.device().get_num_devices()
        return chips == 1 or len(self._split(thing)) == chips

    def _on_host(self, tensor: Any) -> Any:
        """Return zeros with the spec and the topology of a tensor."""
        with muted():
            host = self._allocate(tensor.spec, tensor.device())
            self._set_topology(host, tensor.tensor_topology())
        return host

    def _reading(self, original: Any) -> Replacement:
        def read(*arguments: Any, **keywords: Any) -> Any:
            moved = map(self._readable, arguments)
            return original(*moved, **{key: self._readable(each) for key, each in keywords.items()})

        return read

    def _readable(self, thing: Any) -> Any:
        return self._on_host(thing) if self._is_readable(thing) else thing

    def _copying(self, original: Any) -> Replacement:
        def copy(*arguments: Any, **keywords: Any) -> Any:
            if len(arguments) == _COPIED and not keywords.keys() - _COPYING:
                source, target = arguments
                if self._is_readable(source) and source.spec == target.spec:
                    return None
            return original(*arguments, **keywords)

        return copy


class _MeshParts:
    """The tensors that are on one chip of a mesh, which no op of a mock board may get."""

    def __init__(self, ttnn: Any) -> None:
        self._tensor = ttnn.Tensor
        self._split = ttnn.get_device_tensors
        self._on_device = ttnn.StorageType.DEVICE
        self._parts: set[int] = set()

    def split(self, tensor: Any) -> Any:
        """Return the tensors of the single chips, and note them."""
        parts = self._split(tensor)
        if len(parts) > 1 and tensor.storage_type() == self._on_device:
            self._parts.update([part.tensor_id for part in parts])
        return parts

    def refusing(self, original: Any) -> Any:
        """Return the call of an operation that refuses parts, except to move and free them."""
        tensor, parts = self._tensor, self._parts

        @wraps(original)
        def call(operation: Any, *arguments: Any, **keywords: Any) -> Any:
            for argument in (*arguments, *keywords.values()) if keywords else arguments:
                if type(argument) is tensor and argument.tensor_id in parts:
                    _refuse(operation.python_fully_qualified_name)
                    break
            return original(operation, *arguments, **keywords)

        return call


def _refuse(name: str) -> None:
    if not op_of(name).takes_parts:
        raise UnsupportedOnMock(
            f"{name} was called with a tensor on one chip of a mesh, and that ends ttnn's process "
            f"on this mock board. Open the chip by itself (mesh.create_submesh), or run on t3k"
        )


def _run_on_whole_mesh(ttnn: Any, operation: Any) -> None:
    """Make an op that takes the chips to run on, or that moves one shard, run on all chips."""
    original = operation.function
    if operation.python_fully_qualified_name == "ttnn.point_to_point":

        def point_to_point(input_tensor: Any, *_: Any, output_tensor: Any = None, **__: Any) -> Any:
            if output_tensor is not None:
                return output_tensor
            return ttnn.allocate_tensor_on_device(input_tensor.spec, input_tensor.device())

        operation.function = _as_if(original, point_to_point)
    elif CHIPS in str(getattr(type(original).__call__, SIGNATURE, "")):

        def on_all_chips(*arguments: Any, **keywords: Any) -> Any:
            keywords.pop(CHIPS, None)
            return original(*arguments, **keywords)

        operation.function = _as_if(original, on_all_chips)

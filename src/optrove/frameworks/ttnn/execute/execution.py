"""Execute a recorded case: rebuild its arguments, call it, trace the call.

There is no code for single operations here. The operation is found by its name, its arguments
are built by the converters that described them, its tensors are made from their specs, and the
call is traced as in a recording, which proves that the replay was true.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from optrove.errors import AlreadyTracing, BadData, NotReplayable
from optrove.frameworks.executor import (
    Asked,
    Executed,
    Raised,
    Stage,
    refuse_inert,
    refuse_several_devices,
)
from optrove.frameworks.probe_protocol import SingleCallRecorder, muted
from optrove.frameworks.ttnn.board.devices import ALONE, Devices
from optrove.frameworks.ttnn.execute.comparing import Comparing
from optrove.frameworks.ttnn.execute.files import (
    READING,
    StandIn,
    held_by_file,
    remove_old_files,
    standing_in,
    write_file,
)
from optrove.frameworks.ttnn.execute.input_values import Contents
from optrove.frameworks.ttnn.execute.inputs import Inputs, Memories
from optrove.frameworks.ttnn.execute.invoking import Target, Targets, spread
from optrove.frameworks.ttnn.execute.missing_arguments import Supplies
from optrove.frameworks.ttnn.execute.positional_arguments import passing
from optrove.frameworks.ttnn.probe.patching import PROBE_ATTRIBUTE
from optrove.frameworks.ttnn.probe.prepared_weights import laid_out
from optrove.frameworks.ttnn.probe.probe import attach
from optrove.frameworks.ttnn.shadow.host_mirrors import Missing, Twin
from optrove.frameworks.ttnn.shadow.shadow import tell_shadow
from optrove.model.records import DeviceKind
from optrove.model.values import List, TensorSpec, Value, key_step
from optrove.serializer.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from optrove.frameworks.executor import Telling
    from optrove.model.case import Case
    from optrove.model.records import DeviceParameters
    from optrove.serializer.tables import Tables


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """A call that is ready to be made; ``named`` as in Executed."""

    target: Target
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    named: dict[str, str]
    notes: tuple[str, ...]


class _Refused(Exception):
    """A tensor that this board or this ttnn does not allow, which is an answer to the case."""

    def __init__(self, argument: str, raised: Raised) -> None:
        super().__init__(f"refused while the tensor for {argument} was made; the op was not called")
        self.raised = raised


class TtnnExecutor:
    """Executes cases on the ttnn that is loaded in this process; one device at a time.

    On a mock board without numerics device memory is only allocated. Else tensors are filled
    from the seed, and results are compared with what the golden functions expect.
    """

    def __init__(
        self, ttnn: ModuleType, tables: Callable[[], Tables], device_kind: DeviceKind
    ) -> None:
        remove_old_files()
        self._ttnn: Any = ttnn
        self._device_kind = device_kind
        self._numbers = device_kind is not DeviceKind.MOCK
        self._devices = Devices(ttnn)
        self._targets = Targets(ttnn)
        self._witness = SingleCallRecorder(tables)
        self._memories = Memories(self._witness.tables)
        self._attachment = attach(ttnn, self._witness, self._witness, lambda _: None)

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Have a device open with these parameters; NotReplayable where that cannot be."""
        return self._devices.open(wanted)

    def close(self) -> None:
        """Close the device, and watch ttnn no more."""
        self._devices.close()
        self._attachment.remove()

    def execute(self, asked: Asked, tell: Telling) -> Executed:
        """Rebuild a case and call it; NotReplayable when it cannot be rebuilt."""
        target = self._targets.find(asked.case.op)
        tell(Stage.MAKING)
        self._devices.tidy()
        refuse_several_devices(asked.case)
        with standing_in(target.name(asked.case.op), asked.case) as file:
            executed = self._execute(asked, file, target, tell)
        return executed if file is None else _as_recorded(executed, file)

    def _execute(
        self, asked: Asked, file: StandIn | None, target: Target, tell: Telling
    ) -> Executed:
        comparing = self._comparing(asked.case)
        with muted():
            try:
                rebuilt = self._rebuild(asked, file, target, comparing)
            except _Refused as refusal:
                return Executed(raised=refusal.raised, notes=(str(refusal),))
            if comparing is not None:
                comparing.prepare(target.operation, rebuilt.arguments, rebuilt.keywords)
        tell(Stage.CALLING)
        self._witness.expect(asked.case.op)
        executed, result = self._call(rebuilt)
        if comparing is None or executed.raised is not None:
            return executed
        tell(Stage.READING)
        with muted():
            return replace(executed, compared=comparing.compare(target.operation, result))

    def peak_l1(self, asked: Asked) -> int:
        """Return how many bytes of L1 a case takes on a core at most, by ttnn's own account.

        It is called once more without anything being sent to the device. NotReplayable when ttnn
        cannot tell.
        """
        target = self._targets.find(asked.case.op)
        self._devices.tidy()
        graph = self._ttnn.graph
        with muted(), standing_in(target.name(asked.case.op), asked.case) as file:
            graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
            try:
                rebuilt = self._rebuild(asked, file, target, None)
                rebuilt.target.function(*rebuilt.arguments, **rebuilt.keywords)
            except (_Refused, RuntimeError, TypeError, ValueError) as error:
                raise NotReplayable(f"without dispatch, the call said: {error}") from error
            finally:
                captured = graph.end_graph_capture()
            return int(graph.extract_resource_usage_per_core(captured).peak_total)

    def _comparing(self, case: Case) -> Comparing | None:
        if not self._numbers:
            return None
        try:
            torch = import_module("torch")
        except ImportError as error:
            raise NotReplayable(
                "numbers are drawn and compared by torch, which is not installed; "
                "pip install 'optrove[torch]', or replay on a mock board"
            ) from error
        return Comparing(self._ttnn, torch, self._targets.signatures, case)

    def _rebuild(
        self, asked: Asked, file: StandIn | None, target: Target, comparing: Comparing | None
    ) -> _Rebuilt:
        given = dict(asked.case.arguments)
        if file is not None:
            given = file.instead(given)
        way = passing(target, given)
        supplies = Supplies()
        values = supplies.arguments(target, way.values, way.named)
        if way.named:
            values = supplies.truths(target, values)
        twins = None if comparing is None else comparing.twins
        contents = Contents(self._ttnn, values, way.roles, seed=asked.seed, twins=twins)
        inputs = Inputs(
            self._ttnn, self._memories, self._devices.live, contents, filled=self._numbers
        )
        if file is not None and file.op == READING:
            held = {file.argument: held_by_file(asked.outputs)}
            (tensor,) = self._build(held, inputs, supplies).values()
            write_file(self._ttnn, tensor, file.path)
            if comparing is not None:
                comparing.expect(tensor)
        live = self._build(values, inputs, supplies)
        if comparing is not None:
            self._note_plain_weights(asked.case.op, contents, live, comparing)
        arguments, keywords = spread(target, live, way.places)
        notes = (*way.notes, *supplies.notes, *inputs.notes, *(file.notes if file else ()))
        return _Rebuilt(target, arguments, keywords, way.named, notes)

    def _note_plain_weights(
        self, op: str, contents: Contents, live: dict[str, Any], comparing: Comparing
    ) -> None:
        """Say which plain weights stand behind those that were laid out for the device.

        The device holds none of their numbers, which is all the same to a mock board only.
        """
        for name, weights in contents.plain(op).items():
            numbers = laid_out(op, Twin((weights,)))
            if self._device_kind is DeviceKind.HARDWARE:
                numbers = Missing(op, "a replay cannot lay weights out for the device")
            comparing.twins.view(live[name], numbers)
            tell_shadow(self._ttnn, live[name], numbers)

    def _build(
        self, values: Mapping[str, Value], inputs: Inputs, supplies: Supplies
    ) -> dict[str, Any]:
        tables, device = self._witness.tables(), self._devices.live
        complete = [
            supplies.recipes(value, name, self._ttnn, tables, device)
            for name, value in values.items()
        ]
        refuse_inert(dict(zip(values, complete, strict=True)), tables)
        names = list(values)
        refusals: list[_Refused] = []

        def tensor(spec: TensorSpec, path: str) -> Any:
            name = names[_place(path)]
            try:
                return inputs.make(spec, name)
            except RuntimeError as error:  # what ttnn itself refuses
                refusals.append(_Refused(name, Raised(type(error).__name__, str(error))))
                raise

        try:
            live = build(List(tuple(complete)), tables, device, tensor=tensor)
        except BadData as error:
            if refusals:
                raise refusals[0] from error
            raise NotReplayable(_with_names(error, names)) from error
        return dict(zip(values, live, strict=True))

    def _call(self, rebuilt: _Rebuilt) -> tuple[Executed, Any]:
        raised: Raised | None = None
        result: Any = None
        started = time.perf_counter_ns()
        try:
            result = rebuilt.target.function(*rebuilt.arguments, **rebuilt.keywords)
            if self._device_kind is DeviceKind.HARDWARE and self._devices.live is not None:
                # Else the call has only been put into a queue.
                self._ttnn.synchronize_device(self._devices.live)
        except Exception as error:  # noqa: BLE001 - the operation's own answer, whatever it is; judged by the caller
            raised = Raised(type(error).__name__, str(error))
        duration = time.perf_counter_ns() - started
        seen = self._witness.take()
        if seen is None:
            return Executed(raised=raised, notes=rebuilt.notes, duration_ns=duration), result
        executed = Executed(
            replayed=seen.case,
            named=tuple((rebuilt.named or _by_place(seen.order)).items()),
            outputs=seen.outputs,
            raised=raised,
            notes=rebuilt.notes,
            duration_ns=duration,
        )
        return executed, result


def _as_recorded(executed: Executed, file: StandIn) -> Executed:
    """Return what came of a call with a file of our own as of one with the recorded file."""
    replayed, raised = executed.replayed, executed.raised
    return replace(
        executed,
        replayed=None if replayed is None else file.as_recorded(replayed),
        raised=None if raised is None else Raised(raised.type, file.text_as_recorded(raised.text)),
    )


def _place(path: str) -> int:
    """Return which argument a path leads into: 2 of ``$[2].fields.x``."""
    return int(path.removeprefix("$[").partition("]")[0])


def _by_place(order: tuple[str, ...]) -> dict[str, str]:
    """Return what arguments are called that a recording knows by their places only."""
    return {f"arg{place}": name for place, name in enumerate(order)}


def _with_names(error: BadData, names: list[str]) -> str:
    """Return the faults with the paths that they have in the case."""
    lines = []
    for fault in error.faults:
        place, bracket, rest = fault.path.removeprefix("$[").partition("]")
        known = bracket and place.isdigit() and int(place) < len(names)
        path = f"$.arguments{key_step(names[int(place)])}{rest}" if known else fault.path
        lines.append(f"{path}: {fault.problem}")
    return "\n".join(lines)


class GivenDevice(Devices):
    """The device of the caller, who closes it."""

    def __init__(self, ttnn: ModuleType, device: Any) -> None:
        super().__init__(ttnn)
        self._live = device

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Say whether this device will do; NotReplayable if not, with what it takes."""
        shape, found = wanted.mesh_shape or ALONE, tuple(self._live.shape)
        if shape != found:
            raise NotReplayable(
                f"the call was recorded on a mesh of {_sizes(shape)} chips, and the given device "
                f"has {_sizes(found)}; open one of that shape"
            )
        if wanted.l1_small_size is not None:
            raise NotReplayable(
                f"the call needs a part of L1 that the given device was opened without; open it "
                f"with l1_small_size={wanted.l1_small_size}"
            )
        return ()

    def close(self) -> None:
        """Let go of the device, and leave it open."""
        self._live = None


class GivenExecutor(TtnnExecutor):
    """Executes cases on one given device; ``result`` is what the last one has returned."""

    def __init__(
        self,
        ttnn: ModuleType,
        tables: Callable[[], Tables],
        device_kind: DeviceKind,
        device: Any,
    ) -> None:
        if hasattr(ttnn, PROBE_ATTRIBUTE):
            raise AlreadyTracing(
                "a replay traces its own call, and this process is being traced; replay outside "
                "of optrove.trace and enable_tracing"
            )
        super().__init__(ttnn, tables, device_kind)
        self._devices = GivenDevice(ttnn, device)
        self.result: Any = None

    def _call(self, rebuilt: Any) -> tuple[Executed, Any]:
        executed, self.result = super()._call(rebuilt)
        return executed, self.result


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))

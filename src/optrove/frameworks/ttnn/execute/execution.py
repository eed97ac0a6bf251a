"""Execute a recorded case: rebuild its arguments, call it, trace the call.

There is no code for single operations here. The operation is found by name, its arguments are built
by the converters that described them, its tensors are made from their specs, and the call is traced
as in a recording, which proves that the replay made the recorded call.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from optrove.errors import AlreadyTracing, BadData, NotReplayable
from optrove.frameworks.chain import Chain
from optrove.frameworks.executor import Executed, Raised, Stage, refuse_inert
from optrove.frameworks.kept_tensors import KeptValues
from optrove.frameworks.probe_protocol import SingleCallRecorder, muted
from optrove.frameworks.ttnn.board.devices import ALONE, Devices
from optrove.frameworks.ttnn.execute.files import (
    LOAD_OP,
    ReplayFile,
    held_by_file,
    remove_old_files,
    replay_file,
    write_file,
)
from optrove.frameworks.ttnn.execute.inputs import Inputs, InputValues, MemoryConfigs
from optrove.frameworks.ttnn.execute.invoking import Target, Targets, spread
from optrove.frameworks.ttnn.execute.missing_arguments import MissingArguments, lost_shards
from optrove.frameworks.ttnn.execute.positional_arguments import argument_passing
from optrove.frameworks.ttnn.probe.fingerprints import tensors_of
from optrove.frameworks.ttnn.probe.patching import PROBE_ATTRIBUTE
from optrove.frameworks.ttnn.probe.probe import attach
from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror, Missing
from optrove.frameworks.ttnn.shadow.prepared_weights import prepared
from optrove.frameworks.ttnn.shadow.shadow import (
    active_report,
    hardware_notes,
    hardware_totals,
    kept_answers,
    set_shadow_mirror,
)
from optrove.model.records import LOST, REFUSED, RUNS_KERNELS, DeviceKind
from optrove.model.values import (
    DeviceRef,
    List,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    Value,
    key_step,
    walk,
)
from optrove.serializer.build import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from optrove.frameworks.executor import OnStage
    from optrove.frameworks.ttnn.execute.comparing import OutputComparison
    from optrove.model.case import Case
    from optrove.model.records import DeviceParameters, Job
    from optrove.serializer.tables import Tables


@dataclass(frozen=True, slots=True)
class _Rebuilt:
    """A call that is ready to be made; ``named`` as in Executed, ``made`` are its tensors."""

    target: Target
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    named: dict[str, str]
    notes: tuple[str, ...]
    missing: MissingArguments
    made: dict[int, Any]


class _Refused(Exception):
    """A tensor that this board or this ttnn refuses, which is the result of the case."""

    def __init__(self, argument: str, raised: Raised, excuse: str | None) -> None:
        super().__init__(f"{REFUSED}{argument} was made; the op was not called")
        self.raised = raised
        self.excuse = excuse


class TtnnExecutor:
    """Executes cases on the ttnn that is loaded in this process; one device at a time.

    On a mock board without numerics, device memory is only allocated. Otherwise tensors are filled
    from the seed, and results are compared with the golden functions.
    """

    def __init__(
        self, ttnn: ModuleType, tables: Callable[[], Tables], device_kind: DeviceKind
    ) -> None:
        remove_old_files()
        self._ttnn: Any = ttnn
        self._device_kind = device_kind
        self._has_values = device_kind is not DeviceKind.MOCK
        self._devices = Devices(ttnn)
        self._targets = Targets(ttnn)
        self._tables = tables
        self._recorder = SingleCallRecorder(tables)
        self._memory_configs = MemoryConfigs(self._recorder.tables)
        self._attachment = attach(ttnn, self._recorder, self._recorder, lambda _: None)
        self._chain = Chain()

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Open a device with these parameters; raise NotReplayable if that is not possible."""
        return self._devices.open(wanted)

    def reset(self) -> None:
        """Close the device, so that the next case finds it as after opening."""
        self._chain.clear()
        self._devices.reset()

    def close(self) -> None:
        """Close the device, and remove the patches."""
        self._chain.clear()
        self._devices.close()
        self._attachment.remove()

    def execute(self, job: Job, on_stage: OnStage) -> Executed:
        """Rebuild a case and call it; raise NotReplayable if it cannot be rebuilt."""
        if job.flow is None:
            self._chain.clear()
        else:
            self._chain.begin(job.flow)
        target = self._targets.find(job.case.op)
        self._import(job)
        on_stage(Stage.MAKING)
        if job.flow is None:
            self._devices.tidy()
        _refuse_several_devices(job.case)
        with replay_file(target.name(job.case.op), job.case) as file:
            executed = self._execute(job, file, target, on_stage)
        return executed if file is None else _as_recorded(executed, file)

    def _execute(
        self, job: Job, file: ReplayFile | None, target: Target, on_stage: OnStage
    ) -> Executed:
        comparison = self._comparison(job)
        with muted():
            try:
                self._make_outside(job, comparison)
                rebuilt = self._rebuild(job, file, target, comparison)
            except _Refused as refusal:
                return Executed(raised=refusal.raised, notes=(str(refusal),), excuse=refusal.excuse)
            if comparison is not None:
                comparison.prepare(target.operation, rebuilt.arguments, rebuilt.keywords)
        on_stage(Stage.CALLING)
        self._recorder.expect(job.case.op)
        with kept_answers(self._ttnn) as kept:
            executed, result = self._call(rebuilt)
        if executed.raised is not None:
            executed = replace(executed, excuse=rebuilt.missing.excuse(executed.raised))
        if comparison is not None and executed.raised is None:
            on_stage(Stage.READING)
            with muted():
                compared = comparison.compare(target.operation, result, kept)
                executed = replace(executed, compared=compared)
                if job.flow is not None:
                    call = (rebuilt.arguments, rebuilt.keywords)
                    comparison.follow(target.operation, *call, result)
        if job.flow is not None:
            self._chain.end(job.flow, rebuilt.made, tensors_of(self._ttnn.Tensor, result))
        return executed

    def warm(self, job: Job) -> None:
        """Measure nothing: repeated calls are timed."""

    def peak_l1(self, job: Job) -> int:
        """Return the peak L1 bytes per core of a case, as ttnn computes them.

        The case is called once more without dispatch. Raise NotReplayable if ttnn reports no peak.
        """
        target = self._targets.find(job.case.op)
        self._devices.tidy()
        graph = self._ttnn.graph
        with muted(), replay_file(target.name(job.case.op), job.case) as file:
            graph.begin_graph_capture(graph.RunMode.NO_DISPATCH)
            try:
                rebuilt = self._rebuild(job, file, target, None)
                rebuilt.target.function(*rebuilt.arguments, **rebuilt.keywords)
            except (_Refused, RuntimeError, TypeError, ValueError) as error:
                raise NotReplayable(f"without dispatch, the call said: {error}") from error
            finally:
                captured = graph.end_graph_capture()
            return int(graph.extract_resource_usage_per_core(captured).peak_total)

    def _import(self, job: Job) -> None:
        """Import what a case needs, before its time begins."""
        if self._has_values:
            try:
                import_module("torch")
            except ImportError as error:
                raise NotReplayable(
                    "numbers are drawn and compared by torch, which is not installed; "
                    "pip install 'optrove[torch]', or replay on a mock board"
                ) from error
        _import_mentioned_torch([*dict(job.case.arguments).values(), *(job.outputs or ())])
        self._tables()

    def _comparison(self, job: Job) -> OutputComparison | None:
        if not self._has_values:
            return None
        torch = import_module("torch")
        # It imports torch.
        from optrove.frameworks.ttnn.execute.comparing import OutputComparison

        runs_kernels, chain = self._device_kind in RUNS_KERNELS, self._chain
        found = OutputComparison(
            self._ttnn,
            torch,
            self._targets.signatures,
            job.case,
            None if job.flow is None else chain.reference,
            runs_kernels=runs_kernels,
        )
        if job.flow is not None:
            chain.reference = found.outputs
        return found

    def _rebuild(
        self,
        job: Job,
        file: ReplayFile | None,
        target: Target,
        comparison: OutputComparison | None,
    ) -> _Rebuilt:
        given = dict(job.case.arguments)
        if file is not None:
            given = file.substituted(given)
        passing = argument_passing(target, given)
        missing = MissingArguments()
        values = missing.fill(target, passing)
        mirrors = None if comparison is None else comparison.mirrors
        kept = KeptValues(job.capsules)
        contents = InputValues(
            self._ttnn, values, passing.roles, seed=job.seed, mirrors=mirrors, kept=kept
        )
        step = job.flow
        inputs = self._inputs(
            contents,
            {} if step is None else self._chain.known(step),
            {} if step is None else self._chain.owners(step),
        )
        if file is not None and file.op == LOAD_OP:
            held = {file.argument: held_by_file(job.outputs)}
            (tensor,) = self._build(held, inputs, missing).values()
            write_file(self._ttnn, tensor, file.path)
            if comparison is not None:
                comparison.expect(tensor)
        live = self._build(values, inputs, missing)
        if comparison is not None:
            self._note_plain_weights(job.case.op, contents, live, comparison)
        arguments, keywords = spread(target, live, passing.places)
        notes = (*passing.notes, *missing.notes, *inputs.notes, *(file.notes if file else ()))
        return _Rebuilt(target, arguments, keywords, passing.named, notes, missing, inputs.made)

    def _make_outside(self, job: Job, comparison: OutputComparison | None) -> None:
        """Make the tensors that a sequence gets from outside before this step."""
        if job.flow is None:
            return
        for place, each in enumerate(self._chain.missing(job.flow)):
            values = InputValues(
                self._ttnn,
                {each.argument: each.spec},
                {},
                seed=job.seed + place,
                mirrors=None if comparison is None else comparison.mirrors,
                kept=KeptValues(each.capsules),
            )
            owner = self._chain.owner(job.flow, each.number)
            owners = {}
            if owner is not None and isinstance(each.spec, TensorSpec):
                owners[each.spec.identity] = owner
            inputs = self._inputs(values, {}, owners)
            made = self._build({each.argument: each.spec}, inputs, MissingArguments())
            self._chain.put(each.number, made[each.argument])

    def _inputs(self, values: InputValues, known: dict[int, Any], owners: dict[int, Any]) -> Inputs:
        return Inputs(
            self._ttnn,
            self._memory_configs,
            self._devices.live,
            values,
            filled=self._has_values,
            mirrored=self._device_kind is DeviceKind.SHADOW,
            known=known,
            owners=owners,
        )

    def _note_plain_weights(
        self, op: str, values: InputValues, live: dict[str, Any], comparison: OutputComparison
    ) -> None:
        """Set the plain weights behind those that were prepared for the device.

        The device has none of their values, which makes no difference to a mock board only.
        """
        runs_kernels = self._device_kind in RUNS_KERNELS
        for name, weights in values.plain_weights(op).items():
            mirror = prepared(op, HostMirror((weights,)))
            if runs_kernels:
                mirror = Missing(op, "a replay cannot lay weights out for the device")
            comparison.mirrors.set(live[name], mirror)
            set_shadow_mirror(self._ttnn, live[name], mirror)

    def _build(
        self, values: Mapping[str, Value], inputs: Inputs, missing: MissingArguments
    ) -> dict[str, Any]:
        tables, device = self._recorder.tables(), self._devices.live
        complete = [
            missing.buildable(value, name, self._ttnn, tables, device)
            for name, value in values.items()
        ]
        refuse_inert(dict(zip(values, complete, strict=True)), tables)
        names = list(values)
        refusals: list[_Refused] = []

        def tensor(spec: TensorSpec, path: str) -> Any:
            name = names[_place(path)]
            try:
                return inputs.make(spec, name)
            except RuntimeError as error:  # ttnn itself refuses it
                raised = Raised(type(error).__name__, str(error))
                refusals.append(_Refused(name, raised, _lost_memory(spec, name)))
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
        report = active_report()
        before = hardware_totals(report)
        started = time.perf_counter_ns()
        try:
            result = rebuilt.target.function(*rebuilt.arguments, **rebuilt.keywords)
            if self._device_kind in RUNS_KERNELS and self._devices.live is not None:
                # Otherwise the call is only in a queue.
                self._ttnn.synchronize_device(self._devices.live)
        except Exception as error:  # noqa: BLE001 - any exception is the operation's result; the caller judges it
            raised = Raised(type(error).__name__, str(error))
        duration = time.perf_counter_ns() - started
        notes = (*rebuilt.notes, *hardware_notes(before, hardware_totals(report)))
        seen = self._recorder.take()
        if seen is None:
            return Executed(raised=raised, notes=notes, duration_ns=duration), result
        executed = Executed(
            replayed=seen.case,
            named=tuple((rebuilt.named or _by_place(seen.order)).items()),
            outputs=seen.outputs,
            raised=raised,
            notes=notes,
            duration_ns=duration,
        )
        return executed, result


def _lost_memory(spec: TensorSpec, name: str) -> str | None:
    """Return why a tensor that cannot be made is the fault of the recording; None if it is not."""
    placement = spec.placement
    if isinstance(placement, TtnnPlacement) and lost_shards(placement.memory, of_tensor=True):
        return f"{LOST}lost the shards of the memory of {name}"
    return None


def _import_mentioned_torch(values: Iterable[Value]) -> None:
    """Import torch if an argument or output is of it: workers on mock boards begin without it."""
    if "torch" in sys.modules:
        return
    parts = (part for value in values for _, part in walk(value))
    if any(_type_name(part).startswith("torch.") for part in parts) and find_spec("torch"):
        import_module("torch")


def _type_name(value: Value) -> str:
    match value:
        case TensorSpec():
            return value.dtype
        case Symbol() | Struct():
            return value.type
        case _:
            return ""


def _refuse_several_devices(case: Case) -> None:
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


def _as_recorded(executed: Executed, file: ReplayFile) -> Executed:
    """Return the result of a call with a replay's file as that with the recorded file."""
    replayed, raised = executed.replayed, executed.raised
    return replace(
        executed,
        replayed=None if replayed is None else file.as_recorded(replayed),
        raised=None if raised is None else Raised(raised.type, file.text_as_recorded(raised.text)),
    )


def _place(path: str) -> int:
    """Return the index of the argument in a path: 2 of ``$[2].fields.x``."""
    return int(path.removeprefix("$[").partition("]")[0])


def _by_place(order: tuple[str, ...]) -> dict[str, str]:
    """Return the names of arguments that a recording has by place."""
    return {f"arg{place}": name for place, name in enumerate(order)}


def _with_names(error: BadData, names: list[str]) -> str:
    """Return the faults with their paths in the case."""
    lines = []
    for fault in error.faults:
        place, bracket, rest = fault.path.removeprefix("$[").partition("]")
        known = bracket and place.isdigit() and int(place) < len(names)
        path = f"$.arguments{key_step(names[int(place)])}{rest}" if known else fault.path
        lines.append(f"{path}: {fault.problem}")
    return "\n".join(lines)


class CallerDevice(Devices):
    """The device of the caller, who closes it."""

    def __init__(self, ttnn: ModuleType, device: Any) -> None:
        super().__init__(ttnn)
        self._live = device

    def open(self, wanted: DeviceParameters) -> tuple[str, ...]:
        """Check that the device fits; raise NotReplayable with the needed parameters if not."""
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

    def reset(self) -> None:
        """Drop compiled programs, which may hold memory."""
        self._live.clear_program_cache()

    def close(self) -> None:
        """Release the device, and leave it open."""
        self._live = None


class CallerDeviceExecutor(TtnnExecutor):
    """Executes cases on the caller's device; ``result`` is what the last one returned."""

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
        self._devices = CallerDevice(ttnn, device)
        self.result: Any = None

    def _call(self, rebuilt: Any) -> tuple[Executed, Any]:
        executed, self.result = super()._call(rebuilt)
        return executed, self.result


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))

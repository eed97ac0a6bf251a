"""Give tensors on a mock board their values: torch computes beside each op of ttnn.

Inside ``shadow_numerics`` every op still runs on the mock board, which validates it and infers the
output's spec. Beside it the op's golden function runs in torch, its result is rounded to the
output's dtype by ttnn's own host packing, and a call that reads the tensor back gets that.

Limits. The output of an op without a golden function has no values, and neither has anything that
is computed from it: the report counts them, and reading one raises NoNumbers. Random ops draw from
torch, not from the device's generator. Ops that ``hardware`` knows are computed as ttnn's kernels
do, all others in float32. On meshes each chip is computed by itself; of the ops that communicate
between chips only all_gather, all_reduce, reduce_scatter and mesh_partition are supported.
Arguments that an op is known to write to without returning them (batch_norm's running statistics)
have no values afterwards. Weights that a convolution has prepared have values for convolutions
only. ``ttnn.Tensor(..., device=...)`` cannot be observed. ttnn's comparison mode compares inside
the op call, before the output has values, and so compares nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import signature
from threading import Lock
from typing import TYPE_CHECKING, Any

from optrove.errors import FrameworkMissing, NoNumbers
from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE, unpatched
from optrove.frameworks.ttnn.shadow.expected_outputs import ExpectedOutputs
from optrove.frameworks.ttnn.shadow.host_mirrors import (
    DEALLOCATED,
    HostMirror,
    HostMirrors,
    MirrorOrMissing,
    Missing,
    PreparedMirror,
)
from optrove.frameworks.ttnn.shadow.prepared_weights import PREPARE_FUNCTIONS
from optrove.frameworks.ttnn.shadow.traced_calls import TracedCalls
from optrove.frameworks.ttnn.shadow.transfers import (
    Transfers,
    is_shadow_call,
    settle_early,
    settled_call,
    shadow_calls,
)
from optrove.model.records import hardware_texts
from optrove.settings import Numerics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

__all__ = [
    "Report",
    "active_report",
    "hardware_notes",
    "hardware_totals",
    "is_shadow_call",
    "kept_answers",
    "report_lines",
    "set_shadow_mirror",
    "shadow_mirror",
    "shadow_numerics",
]

READING_METHODS = (
    "to_torch",
    "to_numpy",
    "to_list",
    "item",
    "host_buffer",
    "extract_shard",
)
FORMING_METHODS = ("reshape", "pad", "unpad", "pad_to_tile", "unpad_from_tile")

# The function of ttnn's own tracer that reads the values of a call's result inside the call.
SERIALIZE = "serialize_operation_parameters"

_SWITCHING = Lock()

# The op that was entered last: a fast op may delegate its call to a slow one of its name.
_ENTERED: ContextVar[Any] = ContextVar("shadow_entered", default=None)


@dataclass(frozen=True, slots=True)
class Report:
    """Op calls with and without values, by op; grows while the shadow is on."""

    computed: Counter[str] = field(default_factory=Counter)
    missing: Counter[Missing] = field(default_factory=Counter)
    not_modeled: Counter[str] = field(default_factory=Counter)
    """Of hardware numerics: calls that were computed in float32 and rounded once."""
    not_compared: Counter[str] = field(default_factory=Counter)
    """Of hardware numerics: calls in forms that were not compared, or did not agree."""

    def by_cause(self) -> dict[str, tuple[int, int]]:
        """Return by cause how many calls are without values, and how many calls after them."""
        found: dict[str, tuple[int, int]] = {}
        for missing, count in self.missing.items():
            own, later = found.get(str(missing.root or missing), (0, 0))
            if missing.root is None:
                found[str(missing)] = (own + count, later)
            else:
                found[str(missing.root)] = (own, later + count)
        return found

    def lines(self) -> list[str]:
        """Return the report as text: the totals, then each cause with its counts."""
        return report_lines(
            self.computed.total(), self.by_cause(), self.not_modeled, self.not_compared
        )


def report_lines(
    computed: int,
    causes: Mapping[str, tuple[int, int]],
    not_modeled: Mapping[str, int],
    not_compared: Mapping[str, int],
) -> list[str]:
    """Return how many op calls were computed, and why others were not, as text.

    Then the calls of which hardware numerics may be wrong, if that is what computed them.
    """
    total = sum(own + later for own, later in causes.values())
    lines = [f"{computed} op calls computed, {total} without numbers"]
    for cause, (own, later) in sorted(causes.items(), key=lambda item: -sum(item[1])):
        after = f"; {later} calls after it have none either" if later else ""
        lines.append(f"{own} x {cause}{after}" if own else f"{cause}{after}")
    return [*lines, *hardware_texts(not_modeled, not_compared)]


def hardware_totals(report: Report | None) -> tuple[int, int]:
    """Return how many calls hardware numerics did not model, and how many nobody compared."""
    return (0, 0) if report is None else (report.not_modeled.total(), report.not_compared.total())


def hardware_notes(before: tuple[int, int], after: tuple[int, int]) -> tuple[str, ...]:
    """Return what to know about the numbers of a call, by the totals before and after it."""
    notes = (
        "hardware numerics do not model this call: computed in float32 and rounded once",
        "hardware numerics model this call, but its form was not compared, or did not agree",
    )
    return tuple(note for note, old, new in zip(notes, before, after, strict=True) if new > old)


def active_report() -> Report | None:
    """Return the report of the shadow that is on in this process, or None."""
    installed = getattr(sys.modules.get("ttnn"), SHADOW_ATTRIBUTE, None)
    return installed.report if installed else None


@contextmanager
def kept_answers(ttnn: Any) -> Iterator[list[tuple[str, Any]]]:
    """Keep what hardware numerics answer for calls inside the block: the op, and its answer.

    The answer is None where no kernel is modeled. Without hardware numerics there are none.
    """
    installed = getattr(ttnn, SHADOW_ATTRIBUTE, None)
    kept: list[tuple[str, Any]] = []
    if installed is None or installed.hardware is None:
        yield kept
        return
    installed.hardware.kept = kept
    try:
        yield kept
    finally:
        installed.hardware.kept = None


def set_shadow_mirror(ttnn: Any, tensor: Any, mirror: MirrorOrMissing) -> None:
    """Set the mirror of a tensor in the shadow, if one is on, where no call of ttnn does so."""
    installed = getattr(ttnn, SHADOW_ATTRIBUTE, None)
    if installed is not None:
        installed.mirrors.set(tensor, mirror)


def shadow_mirror(ttnn: Any, tensor: Any) -> MirrorOrMissing | None:
    """Return the mirror of a tensor in the shadow; None if no shadow is on."""
    installed = getattr(ttnn, SHADOW_ATTRIBUTE, None)
    return None if installed is None else installed.mirrors.of(tensor)


@contextmanager
def shadow_numerics(ttnn: Any, numerics: Numerics = Numerics.HARDWARE) -> Iterator[Report]:
    """Compute the values of every op call on the mock board inside the block.

    Entered again inside itself, or in another thread, it changes nothing and returns the report of
    the first block. All patches are gone after the last block, also after an exception.
    """
    with _SWITCHING:
        installed = getattr(ttnn, SHADOW_ATTRIBUTE, None)
        if installed is None:
            with unpatched(ttnn):
                installed = _install(ttnn, numerics)
        installed.blocks += 1
    try:
        yield installed.report
    finally:
        with _SWITCHING:
            installed.blocks -= 1
            if not installed.blocks:
                with unpatched(ttnn):
                    installed.undo.close()


@dataclass(slots=True)
class _Installed:
    """The shadow that is on, and how many blocks use it; changed under the lock only."""

    report: Report
    mirrors: HostMirrors
    undo: ExitStack
    hardware: Any = None
    blocks: int = 0


def _install(ttnn: Any, numerics: Numerics) -> _Installed:
    """Install all patches, or none."""
    shadow = _Shadow(ttnn, _import_torch(), numerics)
    with ExitStack() as undo:
        for owner, name, replacement in shadow.patches():
            original = getattr(owner, name)
            # Patches above the shadow read the signature of the original.
            replacement.__wrapped__ = original
            undo.callback(setattr, owner, name, original)
            setattr(owner, name, replacement)
        undo.callback(delattr, ttnn, SHADOW_ATTRIBUTE)
        undo.enter_context(shadow.traced.installed())
        installed = _Installed(shadow.report, shadow.mirrors, undo.pop_all(), shadow.hardware)
        setattr(ttnn, SHADOW_ATTRIBUTE, installed)
    return installed


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise FrameworkMissing(
            "numbers on a mock board are computed by torch, which is not installed; "
            "pip install 'optrove[torch]', or leave the shadow off"
        ) from error


def _hardware(ttnn: Any, numerics: Numerics, report: Report) -> Any:
    """Return the arithmetic of the hardware; None for ideal numerics."""
    if numerics is Numerics.IDEAL:
        return None
    # It imports torch, which is needed only here.
    from optrove.frameworks.ttnn.shadow.hardware import HardwareNumerics
    from optrove.frameworks.ttnn.shadow.matrix_kernels import KERNEL_FUNCTIONS

    return HardwareNumerics(ttnn, KERNEL_FUNCTIONS, report.not_modeled, report.not_compared)


class _Shadow:
    """The mirrors of one loaded ttnn, and the patches that maintain them."""

    def __init__(self, ttnn: Any, torch: Any, numerics: Numerics) -> None:
        self.report = Report()
        self._ttnn = ttnn
        self.hardware = _hardware(ttnn, numerics, self.report)
        self._expected = ExpectedOutputs(ttnn, torch, hardware=self.hardware)
        self.mirrors = self._expected.mirrors
        self._golden = self._expected.golden
        self.traced = TracedCalls(ttnn, self.mirrors)
        self._transfers = Transfers(ttnn, self.mirrors, self._golden, self.traced)

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the patches: the owner, the name, and the replacement."""
        decorators, tensor = self._ttnn.decorators, self._ttnn.Tensor
        for operation in (decorators.FastOperation, decorators.Operation):
            yield operation, "__call__", self._observed_call(operation.__call__)
        yield tensor, "to", self._moving(tensor.to, keeps=True)
        yield tensor, "cpu", self._to_host(tensor.cpu)
        yield tensor, "deallocate", self._deallocating(tensor.deallocate)
        yield tensor, "__repr__", self._showing(tensor.__repr__)
        yield tensor, "__str__", self._showing(tensor.__str__)
        yield self._ttnn, "get_device_tensors", self._parting(self._ttnn.get_device_tensors)
        for owner, name, patch in self._optional_patches():
            if hasattr(owner, name):  # no release has to have all of them
                yield owner, name, patch(getattr(owner, name))

    def _optional_patches(self) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
        tensor = self._ttnn.Tensor
        for name in READING_METHODS:
            yield tensor, name, self._reading
        yield tensor, "to_torch_with_padded_shape", self._reading_padding
        for name in FORMING_METHODS:
            yield tensor, name, partial(self._moving, keeps=False)
        combined = partial(self._ruled, rule=self._transfers.combined)
        yield self._ttnn, "combine_device_tensors", combined
        yield self._ttnn, "aggregate_tensor", partial(self._ruled, rule=self._transfers.read)
        # What all loaders of ttnn call: as_tensor reads numbers from its cache, not its argument.
        extension = self._ttnn._ttnn.tensor  # noqa: SLF001 - it has no public name
        loaded = partial(self._ruled, rule=self._transfers.loaded)
        yield extension, "load_tensor_flatbuffer", loaded
        for name in ("close_device", "close_mesh_device"):
            yield self._ttnn, name, self._closing
        for name in PREPARE_FUNCTIONS:
            yield self._ttnn, name, partial(self._preparing, name)
        tracer = getattr(self._ttnn, "operation_tracer", None)
        yield tracer, SERIALIZE, self._serializing

    def _observed_call(self, original: Any) -> Any:
        @wraps(original)
        def call(operation: Any, *arguments: Any, **keywords: Any) -> Any:
            if _is_delegated(operation):
                return original(operation, *arguments, **keywords)
            run = partial(_run, original, operation)
            operation = self._golden.plain(operation)
            rule = self._transfers.ops.get(operation.python_fully_qualified_name)
            if rule is not None:
                return rule(run, arguments, keywords)
            if is_shadow_call():
                return run(*arguments, **keywords)
            return self._observe(run, operation, arguments, keywords)

        return call

    def _reading(self, original: Any) -> Any:
        def read(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            return original(self._transfers.readable(tensor), *arguments, **keywords)

        return read

    def _reading_padding(self, original: Any) -> Any:
        read = self._reading(original)

        def read_padded(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            if self.mirrors.on_device(tensor) and tensor.shape != tensor.padded_shape:
                raise NoNumbers(
                    f"a tensor of shape {tuple(tensor.shape)} was read with its padding, whose "
                    f"numbers are not computed on a mock board; read it with ttnn.to_torch"
                )
            return read(tensor, *arguments, **keywords)

        return read_padded

    def _moving(self, original: Any, *, keeps: bool) -> Any:
        def move(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            return self._transfers.moved(original, tensor, arguments, keywords, keeps=keeps)

        return move

    def _to_host(self, original: Any) -> Any:
        def cpu(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            return self._transfers.cpu(original, tensor, arguments, keywords)

        return cpu

    def _deallocating(self, original: Any) -> Any:
        def deallocate(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            return self._transfers.deallocate(original, (tensor, *arguments), keywords)

        return deallocate

    def _showing(self, original: Any) -> Any:
        def show(tensor: Any) -> str:
            if self.mirrors.of(tensor) is DEALLOCATED:
                return str(original(tensor))  # ttnn says so itself
            try:
                return str(original(self._transfers.readable(tensor)))
            except NoNumbers as lack:
                return f"ttnn.Tensor(<{lack}>)"

        return show

    def _parting(self, original: Any) -> Any:
        def get_device_tensors(*arguments: Any, **keywords: Any) -> list[Any]:
            parts = list(original(*arguments, **keywords))
            (tensor,) = self._golden.tensors((arguments, keywords))
            if is_shadow_call() and len(parts) == 1:
                return [tensor]  # ttnn's preprocessing asks for every input of every golden
            return self._transfers.parted(tensor, parts)

        return wraps(original, assigned=("__doc__",))(get_device_tensors)

    def _ruled(self, original: Any, rule: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            return rule(original, arguments, keywords)

        return wraps(original, assigned=("__doc__",))(call)

    def _closing(self, original: Any) -> Any:
        def close(*arguments: Any, **keywords: Any) -> Any:
            devices = [
                each.id() for each in (*arguments, *keywords.values()) if hasattr(each, "id")
            ]
            result = original(*arguments, **keywords)
            for device in devices:
                self.traced.forget_device(device)
                self.mirrors.forget_device(device)
            return result

        return wraps(original, assigned=("__doc__",))(close)

    def _serializing(self, original: Any) -> Any:
        @wraps(original)
        def serialize(*arguments: Any, **keywords: Any) -> Any:
            bound = signature(original).bind(*arguments, **keywords)
            settle_early(bound.arguments.get("return_value"))
            return original(*arguments, **keywords)

        return serialize

    def _preparing(self, name: str, original: Any) -> Any:
        def prepare(*arguments: Any, **keywords: Any) -> Any:
            result = original(*arguments, **keywords)
            with shadow_calls():
                self._expected.weights.note_prepared(name, keywords, result)
            return result

        return wraps(original, assigned=("__doc__",))(prepare)

    def _observe(
        self, call: Any, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Run an op on the board and set the mirrors of its outputs."""
        self.traced.free_dropped()
        device = self.traced.capturing_device(arguments, keywords)
        if device is not None and not op_of(operation.python_fully_qualified_name).writes_nothing:
            return self._capture(device, call, operation, arguments, keywords)
        inputs = list(self._golden.tensors((arguments, keywords)))
        early = any(self.mirrors.replaces(tensor) for tensor in inputs)
        before: Any = None
        if early:  # before the call, which may overwrite or free its inputs
            with shadow_calls():
                before = self._expected.prepare(operation, arguments, keywords)

        def settle(result: Any) -> None:
            with shadow_calls():
                expected = before
                if not early:
                    if not any(map(self.mirrors.on_device, self._golden.tensors(result))):
                        return  # ttnn itself has computed on the host
                    expected = self._expected.prepare(operation, arguments, keywords)
                self._settle(operation, arguments, keywords, expected, result)

        return settled_call(call, arguments, keywords, settle)

    def _capture(
        self,
        device: int,
        call: Any,
        operation: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> Any:
        """Run an op on the board, and compute it whenever its metal trace is executed."""
        held = self.traced.hold(device, (operation, arguments, keywords))

        def settle(result: Any) -> None:
            with shadow_calls():
                if not self._is_made_of_others(operation, result):
                    self.traced.note(device, self._compute, held, result)

        return settled_call(call, arguments, keywords, settle)

    def _compute(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> None:
        """Compute the values of an op call when the metal trace is executed."""
        expected = self._expected.prepare(operation, arguments, keywords)
        self._settle(operation, arguments, keywords, expected, result)

    def _is_made_of_others(self, operation: Any, result: Any) -> bool:
        """Return whether an op is written in Python, of other ops that have set its outputs."""
        if operation.is_cpp_operation:
            return False
        return all(self.mirrors.knows(tensor) for tensor in self._golden.tensors(result))

    def _settle(
        self,
        operation: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        expected: Any,
        result: Any,
    ) -> None:
        """Set the mirrors of all tensors that an op call has written."""
        self._invalidate_written(operation, arguments, keywords)
        if result is not None and self._is_made_of_others(operation, result):
            return
        inputs = list(self._golden.tensors((arguments, keywords)))
        self._note(operation, expected, result, inputs)

    def _invalidate_written(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        """Drop the values of arguments that the op wrote to, until it returns them."""
        name = operation.python_fully_qualified_name
        lost = Missing(name, "it wrote to this argument and did not return what it wrote")
        for tensor in self._golden.tensors(self._expected.written(operation, arguments, keywords)):
            if self.mirrors.on_device(tensor):
                self.mirrors.write(tensor, lost, name)

    def _note(self, operation: Any, expected: Any, result: Any, inputs: list[Any]) -> None:
        name = operation.python_fully_qualified_name
        found = self._expected.output_mirrors(operation, expected, result)
        if result is None and not op_of(name).writes_nothing:
            silent = Missing(name, "it returned nothing, so it may have written to its arguments")
            found = [(tensor, silent) for tensor in inputs if self.mirrors.on_device(tensor)]
        if not operation.is_cpp_operation:
            # Written in Python out of other ops, which have set their mirrors.
            found = [(tensor, mirror) for tensor, mirror in found if not self.mirrors.knows(tensor)]
            if not found:
                return
        for tensor, mirror in found:
            self._keep(name, tensor, mirror)
        self._count(name, [mirror for _, mirror in found])

    def _keep(self, name: str, tensor: Any, mirror: MirrorOrMissing) -> None:
        if not self.mirrors.on_device(tensor) and isinstance(mirror, HostMirror):
            mirror = Missing(name, "it reads the device in a way that is not watched")
        if op_of(name).moves_only:
            self.mirrors.set(tensor, mirror)
        else:
            self.mirrors.write(tensor, mirror, name)

    def _count(self, name: str, found: list[MirrorOrMissing]) -> None:
        missing = (mirror for mirror in found if isinstance(mirror, Missing))
        lack = next((mirror for mirror in missing if not isinstance(mirror, PreparedMirror)), None)
        if lack is None:
            self.report.computed[name] += 1
        elif lack.op != name or not op_of(name).writes_nothing:
            self.report.missing[lack] += 1


def _is_delegated(operation: Any) -> bool:
    """Return whether a fast op, which is observed already, has called its slow version."""
    entered = _ENTERED.get()
    return (
        entered is not None
        and type(entered) is not type(operation)
        and entered.python_fully_qualified_name == operation.python_fully_qualified_name
    )


def _run(original: Any, operation: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call an op as ttnn would; the shadow's own calls appear in no log or hook."""
    if is_shadow_call():
        return operation.function(*arguments, **keywords)
    token = _ENTERED.set(operation)
    try:
        return original(operation, *arguments, **keywords)
    finally:
        _ENTERED.reset(token)

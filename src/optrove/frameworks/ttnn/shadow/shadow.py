"""Give tensors on a mock board their numbers: torch computes beside each op of ttnn.

Inside ``shadow_numerics`` every op still runs on the mock board, which validates it and infers
the output's spec. Beside it the op's golden function runs in torch, its result is rounded to the
output's dtype by ttnn's own host packing, and whatever reads the tensor back gets that.

Limits. An op without a golden function leaves its output without numbers, and so does everything
computed from it: the report counts them, and reading one raises NoNumbers. Random ops draw from
torch, not from the device's generator. Accumulation order, math fidelity and approximation modes
of the hardware are not modelled. On meshes each chip is computed by itself; of the ops that talk
between chips only all_gather, all_reduce, reduce_scatter and mesh_partition are known. Arguments
that an op is known to write to without returning them (batch_norm's running statistics) have no
numbers afterwards. Weights that a convolution has laid out have numbers for convolutions only.
``ttnn.Tensor(..., device=...)`` cannot be watched. ttnn's comparison mode compares inside the op
call, before the output has numbers, and so compares nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, wraps
from threading import Lock
from typing import TYPE_CHECKING, Any

from optrove.errors import FrameworkMissing, NoNumbers
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE, unpatched
from optrove.frameworks.ttnn.probe.prepared_weights import PREPARING, Arrangements
from optrove.frameworks.ttnn.shadow.expecting import MOVES, UNWRITTEN, Expecting
from optrove.frameworks.ttnn.shadow.golden import Golden
from optrove.frameworks.ttnn.shadow.host_mirrors import (
    DEALLOCATED,
    LaidOut,
    Missing,
    Numbers,
    Twin,
    Twins,
)
from optrove.frameworks.ttnn.shadow.transfers import Transfers, at_work, working
from optrove.frameworks.ttnn.signatures import Signatures

if TYPE_CHECKING:
    from collections.abc import Iterator

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

__all__ = ["Report", "active_report", "at_work", "shadow_numerics", "tell_shadow"]

READING_METHODS = (
    "to_torch",
    "to_torch_with_padded_shape",
    "to_numpy",
    "to_list",
    "item",
    "host_buffer",
    "extract_shard",
)
FORMING_METHODS = ("reshape", "pad", "unpad", "pad_to_tile", "unpad_from_tile")

# Keywords that choose a command queue; no golden function takes them.
QUEUES = frozenset({"queue_id", "cq_id"})

_SWITCHING = Lock()

# The op that was entered last: a fast op may hand its call over to a slow one of its name.
_ENTERED: ContextVar[Any] = ContextVar("shadow_entered", default=None)


@dataclass(frozen=True, slots=True)
class Report:
    """What was computed and what was not, counted by op call; grows while the shadow is on."""

    computed: Counter[str] = field(default_factory=Counter)
    missing: Counter[Missing] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """Return the report as text: the totals, then each reason with its count."""
        reasons = [f"{count} x {missing}" for missing, count in self.missing.most_common()]
        totals = f"{self.computed.total()} op calls computed, {self.missing.total()} without"
        return [f"{totals} numbers", *reasons]


def active_report() -> Report | None:
    """Return the report of the shadow that is on in this process, or None."""
    installed = getattr(sys.modules.get("ttnn"), SHADOW_ATTRIBUTE, None)
    return installed.report if installed else None


def tell_shadow(ttnn: Any, tensor: Any, numbers: Numbers) -> None:
    """Give a tensor its numbers in the shadow, if one is on: what no call of ttnn could tell."""
    installed = getattr(ttnn, SHADOW_ATTRIBUTE, None)
    if installed is not None:
        installed.twins.view(tensor, numbers)


@contextmanager
def shadow_numerics(ttnn: Any) -> Iterator[Report]:
    """Compute numbers for every op call on the mock board inside the block.

    Entered again inside itself, or in another thread, it changes nothing and gives the report
    that is already on. All patches are gone after the last block, also after an exception.
    """
    with _SWITCHING:
        installed = getattr(ttnn, SHADOW_ATTRIBUTE, None)
        if installed is None:
            with unpatched(ttnn):
                installed = _install(ttnn)
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
    """The shadow that is on, and how many blocks keep it on; changed under the lock only."""

    report: Report
    twins: Twins
    undo: ExitStack
    blocks: int = 0


def _install(ttnn: Any) -> _Installed:
    """Put all patches in place, or none."""
    shadow = _Shadow(ttnn, _import_torch())
    with ExitStack() as undo:
        for owner, name, replacement in shadow.patches():
            original = getattr(owner, name)
            # What stands above the shadow asks the original for its signature.
            replacement.__wrapped__ = original
            undo.callback(setattr, owner, name, original)
            setattr(owner, name, replacement)
        undo.callback(delattr, ttnn, SHADOW_ATTRIBUTE)
        installed = _Installed(shadow.report, shadow.twins, undo.pop_all())
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


class _Shadow:
    """The numbers of one loaded ttnn, and the patches that keep them."""

    def __init__(self, ttnn: Any, torch: Any) -> None:
        self.report = Report()
        self._ttnn = ttnn
        self._signatures = Signatures()
        self.twins = Twins(ttnn)
        self._golden = Golden(ttnn, torch, self.twins, self._signatures)
        self._transfers = Transfers(ttnn, self.twins, self._golden)
        self._arrangements = Arrangements(ttnn, torch, self.twins, self._golden)
        self._expecting = Expecting(
            torch, self.twins, self._golden, self._signatures, self._arrangements
        )

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what to replace: the owner, the name, and the replacement."""
        decorators, tensor = self._ttnn.decorators, self._ttnn.Tensor
        for operation in (decorators.FastOperation, decorators.Operation):
            yield operation, "__call__", self._watched_call(operation.__call__)
        for name in READING_METHODS:
            if hasattr(tensor, name):
                yield tensor, name, self._reading(getattr(tensor, name))
        for name in FORMING_METHODS:
            if hasattr(tensor, name):
                yield tensor, name, self._moving(getattr(tensor, name), keeps=False)
        yield tensor, "to", self._moving(tensor.to, keeps=True)
        yield tensor, "cpu", self._to_host(tensor.cpu)
        yield tensor, "deallocate", self._deallocating(tensor.deallocate)
        yield tensor, "__repr__", self._showing(tensor.__repr__)
        yield tensor, "__str__", self._showing(tensor.__str__)
        yield self._ttnn, "get_device_tensors", self._parting(self._ttnn.get_device_tensors)
        for name, rule in (
            ("combine_device_tensors", self._transfers.combined),
            ("aggregate_tensor", self._transfers.read),
        ):
            if hasattr(self._ttnn, name):
                yield self._ttnn, name, self._ruled(getattr(self._ttnn, name), rule)
        for name in PREPARING:
            if hasattr(self._ttnn, name):
                yield self._ttnn, name, self._preparing(name, getattr(self._ttnn, name))

    def _watched_call(self, original: Any) -> Any:
        @wraps(original)
        def call(operation: Any, *arguments: Any, **keywords: Any) -> Any:
            if _is_handed_over(operation):
                return original(operation, *arguments, **keywords)
            rule = self._transfers.ops.get(operation.python_fully_qualified_name)
            run = partial(_run, original, operation)
            if rule is not None:
                return rule(run, arguments, keywords)
            if at_work():
                return run(*arguments, **keywords)
            return self._observe(run, operation, arguments, keywords)

        return call

    def _reading(self, original: Any) -> Any:
        def read(tensor: Any, *arguments: Any, **keywords: Any) -> Any:
            return original(self._transfers.readable(tensor), *arguments, **keywords)

        return read

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
            if self.twins.numbers(tensor) is DEALLOCATED:
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
            if at_work() and len(parts) == 1:
                return [tensor]  # ttnn's preprocessing asks for every input of every golden
            return self._transfers.parted(tensor, parts)

        return wraps(original, assigned=("__doc__",))(get_device_tensors)

    def _ruled(self, original: Any, rule: Any) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            return rule(original, arguments, keywords)

        return wraps(original, assigned=("__doc__",))(call)

    def _preparing(self, name: str, original: Any) -> Any:
        def prepare(*arguments: Any, **keywords: Any) -> Any:
            result = original(*arguments, **keywords)
            with working():
                self._arrangements.prepared(name, keywords, result)
            return result

        return wraps(original, assigned=("__doc__",))(prepare)

    def _observe(
        self, call: Any, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Any:
        """Run an op on the board and note the numbers of its outputs."""
        inputs = list(self._golden.tensors((arguments, keywords)))
        plain = {key: value for key, value in keywords.items() if key not in QUEUES}
        early = any(self.twins.stands_in(tensor) for tensor in inputs)
        prepared: Any = None
        if early:  # before the call, for it may overwrite or free its inputs
            with working():
                prepared = self._expecting.prepare(operation, arguments, plain)
        result = call(*arguments, **keywords)
        with working():
            outputs = list(self._golden.tensors(result))
            if not early:
                if not any(self.twins.on_device(tensor) for tensor in outputs):
                    return result  # ttnn itself has computed on the host
                prepared = self._expecting.prepare(operation, arguments, plain)
            self._spoil(operation, arguments, plain)
            self._note(operation, prepared, result, inputs)
        return result

    def _spoil(self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Note that arguments which the op wrote to have no numbers, until it returns them."""
        name = operation.python_fully_qualified_name
        lost = Missing(name, "it wrote to this argument and did not return what it wrote")
        for tensor in self._golden.tensors(self._expecting.written(operation, arguments, keywords)):
            if self.twins.on_device(tensor):
                self.twins.write(tensor, lost, name)

    def _note(self, operation: Any, prepared: Any, result: Any, inputs: list[Any]) -> None:
        name = operation.python_fully_qualified_name
        noted = self._expecting.numbers(operation, prepared, result)
        if result is None:
            silent = Missing(name, "it returned nothing, so it may have written to its arguments")
            noted = [(tensor, silent) for tensor in inputs if self.twins.on_device(tensor)]
        if not operation.is_cpp_operation:
            # Written in Python out of other ops, which have noted what they gave.
            noted = [(tensor, numbers) for tensor, numbers in noted if not self.twins.knows(tensor)]
            if not noted:
                return
        for tensor, numbers in noted:
            self._keep(name, tensor, numbers)
        self._count(name, [numbers for _, numbers in noted])

    def _keep(self, name: str, tensor: Any, numbers: Numbers) -> None:
        if not self.twins.on_device(tensor) and isinstance(numbers, Twin):
            numbers = Missing(name, "it reads the device in a way that is not watched")
        if name in MOVES:
            self.twins.view(tensor, numbers)
        else:
            self.twins.write(tensor, numbers, name)

    def _count(self, name: str, noted: list[Numbers]) -> None:
        lacking = (numbers for numbers in noted if isinstance(numbers, Missing))
        lack = next((numbers for numbers in lacking if not isinstance(numbers, LaidOut)), None)
        if lack is None:
            self.report.computed[name] += 1
        elif lack.op != name or name not in UNWRITTEN:
            self.report.missing[lack] += 1


def _is_handed_over(operation: Any) -> bool:
    """Tell whether a fast op, which is watched already, has called its slow twin."""
    entered = _ENTERED.get()
    return (
        entered is not None
        and type(entered) is not type(operation)
        and entered.python_fully_qualified_name == operation.python_fully_qualified_name
    )


def _run(original: Any, operation: Any, *arguments: Any, **keywords: Any) -> Any:
    """Call an op as ttnn would; what the shadow itself calls shows up in no log or hook."""
    if at_work():
        return operation.function(*arguments, **keywords)
    token = _ENTERED.set(operation)
    try:
        return original(operation, *arguments, **keywords)
    finally:
        _ENTERED.reset(token)

"""The tensors that are in memory while the calls of a process run."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.model.values import Symbol, TensorSpec, TorchPlacement, TtnnPlacement, tensors_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from optrove.model.case import Case
    from optrove.model.flow import Flow
    from optrove.model.records import Call

_BLOCK_BYTES: Final = {"bfloat8_b": 1088 / 1024, "bfloat4_b": 576 / 1024}
"""The bytes of an element in a tile whose elements share exponents."""
_BITS: Final = re.compile(r"(\d+)")
DEALLOCATING: Final = ("ttnn.deallocate", "ttnn.Tensor.deallocate")
"""Calls that free the memory of their tensor."""


@dataclass(frozen=True, slots=True)
class AliveTensor:
    """A tensor in memory: its bytes on one chip, and the call that returned or first used it."""

    number: int
    argument: str
    spec: TensorSpec
    memory: str
    size: int
    call: Call
    op: str


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The memory when an outermost call has returned: bytes on one chip, and the tensors in it."""

    call: Call
    op: str
    sizes: Mapping[str, int]
    tensors: int

    def size(self, memory: str) -> int:
        """Return the bytes of a memory that tensors take on one chip."""
        return self.sizes.get(memory, 0)


def memory_points(
    flow: Flow, calls: Iterable[Call], cases: Mapping[str, Case]
) -> Iterator[tuple[MemoryPoint, tuple[AliveTensor, ...]]]:
    """Yield the memory after each outermost call, and the tensors in it, in their order.

    A buffer counts once, from the call that returned or first used one of its tensors, until the
    program has dropped all of them or deallocated one.
    """
    state = _State(flow)
    outermost = [call for call in calls if call.depth == 0]
    freed = sorted(flow.freed.items())
    for place, call in enumerate(outermost):
        end = outermost[place + 1].op_index if place + 1 < len(outermost) else None
        case = cases[call.case_id]
        state.note(call, case)
        if case.op in DEALLOCATING:
            for number in flow.call(call.op_index).inputs.values():
                state.deallocate(number)
        while freed and (end is None or freed[0][0] < end):
            for number in freed.pop(0)[1]:
                state.free(number)
        alive = state.alive
        yield MemoryPoint(call, case.op, dict(state.sizes), len(alive)), alive


class _State:
    """The buffers in memory, each with its tensors."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._tensors: dict[int, set[int]] = {}
        self._gone: set[int] = set()
        self._alive: dict[int, AliveTensor] = {}
        self.sizes: Counter[str] = Counter()

    @property
    def alive(self) -> tuple[AliveTensor, ...]:
        """One tensor of each buffer."""
        return tuple(self._alive.values())

    def note(self, call: Call, case: Case) -> None:
        """Note the tensors of a call."""
        tensors = self._flow.call(call.op_index)
        for name, value in case.arguments:
            for spec in tensors_in(value):
                number = tensors.inputs.get(spec.identity)
                if number is not None:
                    self._add(number, name, spec, (call, case.op))
        results = [spec for value in call.outputs for spec in tensors_in(value)]
        for place, number in tensors.outputs.items():
            if place < len(results):
                self._add(number, "", results[place], (call, case.op))

    def _add(self, number: int, argument: str, spec: TensorSpec, source: tuple[Call, str]) -> None:
        buffer = self._flow.buffers.get(number)
        memory = memory_of(spec)
        if buffer is None or memory is None or buffer in self._gone:
            return
        self._tensors.setdefault(buffer, set()).add(number)
        if buffer not in self._alive:
            found = AliveTensor(number, argument, spec, memory, tensor_bytes(spec), *source)
            self._alive[buffer] = found
            self.sizes[memory] += found.size

    def free(self, number: int) -> None:
        """Drop a tensor, and with the last one its buffer."""
        buffer = self._flow.buffers.get(number)
        if buffer is None:
            return
        tensors = self._tensors.get(buffer, set())
        tensors.discard(number)
        if not tensors:
            self._drop(buffer)

    def deallocate(self, number: int) -> None:
        """Drop the buffer of a tensor."""
        buffer = self._flow.buffers.get(number)
        if buffer is not None:
            self._drop(buffer)
            self._gone.add(buffer)

    def _drop(self, buffer: int) -> None:
        gone = self._alive.pop(buffer, None)
        self._tensors.pop(buffer, None)
        if gone is not None:
            self.sizes[gone.memory] -= gone.size


def memory_of(spec: TensorSpec) -> str | None:
    """Return the memory of a tensor: ``L1``, ``DRAM`` or a device of torch; None on ttnn's host."""
    placement = spec.placement
    if isinstance(placement, TorchPlacement):
        return placement.device
    if not isinstance(placement, TtnnPlacement) or placement.storage != "device":
        return None
    kind = None if placement.memory is None else dict(placement.memory.fields).get("buffer_type")
    return kind.name if isinstance(kind, Symbol) else None


def tensor_bytes(spec: TensorSpec) -> int:
    """Return the bytes of a tensor, with its padding, on each chip that holds a part."""
    placement = spec.placement
    shape = placement.padded_shape if isinstance(placement, TtnnPlacement) else spec.shape
    return round(prod(shape) * element_bytes(spec.dtype))


def element_bytes(dtype: str) -> float:
    """Return the bytes of an element: 2 for ``ttnn.bfloat16``."""
    name = dtype.rpartition(".")[2]
    if name in _BLOCK_BYTES:
        return _BLOCK_BYTES[name]
    if name == "bool":
        return 1
    bits = _BITS.search(name)
    return int(bits[1]) / 8 if bits else 4

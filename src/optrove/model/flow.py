"""The flow of a process: which tensors its calls got and returned, and when they were freed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from optrove.model.capsules import Capsule  # noqa: TC001 - serializer.records reads the hint
from optrove.model.values import Value  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

INPUT: Final = 1
OUTPUT: Final = 2
BUFFER: Final = 3
FREED: Final = 4
"""The kinds of entries; ``journal/flow.py`` describes them."""


class FlowEntry(NamedTuple):
    """One entry of the flow file of a journal."""

    kind: int
    place: int
    op_index: int
    number: int


@dataclass(frozen=True, slots=True)
class FlowCall:
    """The tensors of a call: its inputs by their identity in the case, and its outputs in order."""

    inputs: Mapping[int, int] = field(default_factory=dict)
    outputs: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """The flow of one process.

    ``calls`` are the calls by op_index. ``buffers`` has the number of each tensor's memory, which
    tensors that share their memory have in common; tensors of a host have none. ``freed`` are the
    tensors that the program dropped after a call had begun and before the next one.
    """

    calls: Mapping[int, FlowCall]
    buffers: Mapping[int, int]
    freed: Mapping[int, tuple[int, ...]]

    def call(self, op_index: int) -> FlowCall:
        """Return the tensors of a call."""
        return self.calls.get(op_index, FlowCall())


class _Buffers:
    """Numbers of buffers that are never reused, although those in the entries may be."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self._live: dict[int, tuple[int, set[int]]] = {}
        self._recorded: dict[int, int] = {}
        self._next = 0

    def add(self, tensor: int, recorded: int) -> None:
        """Note that a tensor is in a buffer."""
        if recorded not in self._live:
            self._next += 1
            self._live[recorded] = self._next, set()
        number, tensors = self._live[recorded]
        tensors.add(tensor)
        self.of[tensor] = number
        self._recorded[tensor] = recorded

    def free(self, tensor: int) -> None:
        """Note that a tensor is gone."""
        recorded = self._recorded.pop(tensor, None)
        if recorded is not None:
            _, tensors = self._live[recorded]
            tensors.discard(tensor)
            if not tensors:
                del self._live[recorded]


def flow_of(entries: Iterable[FlowEntry]) -> Flow:
    """Return the flow that entries state, which may end anywhere."""
    calls: dict[int, FlowCall] = {}
    freed: dict[int, list[int]] = {}
    buffers = _Buffers()
    tensor = 0
    for kind, place, op_index, number in entries:
        if kind in (INPUT, OUTPUT):
            call = calls.setdefault(op_index, FlowCall({}, {}))
            tensors = call.inputs if kind == INPUT else call.outputs
            assert isinstance(tensors, dict)  # noqa: S101 - made above; narrows the type
            tensors[place] = number
        elif kind == FREED:
            freed.setdefault(op_index, []).append(number)
            buffers.free(number)
        elif place == 0:
            tensor = number
        elif tensor:
            buffers.add(tensor, number)
            tensor = 0
    return Flow(calls, buffers.of, {each: tuple(numbers) for each, numbers in freed.items()})


@dataclass(frozen=True, slots=True)
class Outside:
    """A tensor that no earlier step of a sequence returns, which exists before a step.

    ``spec`` is the TensorSpec that it has in the case of the call which takes it first, as
    ``argument``; ``capsules`` may have its values.
    """

    number: int
    argument: str
    spec: Value
    capsules: tuple[Capsule, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A call as the step number ``place`` of a sequence.

    ``inputs`` are identities in its case, ``outputs`` places among its results, each with the
    number of the tensor. ``buffers`` has the memory of every tensor that shares it with another
    one of the sequence. ``freed`` are the tensors to drop afterwards. ``outside`` are tensors that
    have to be in memory before the call, in their order, for it or for later ones.
    """

    place: int
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()
    buffers: tuple[tuple[int, int], ...] = ()
    freed: tuple[int, ...] = ()
    outside: tuple[Outside, ...] = ()

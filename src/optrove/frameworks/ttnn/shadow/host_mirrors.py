"""Keep the numbers of tensors on a mock board: a twin on the host for each of them.

Host tensors of ttnn hold real numbers even without a board. So a twin is one host tensor per
chip, packed by ttnn itself in the dtype of its device tensor. What cannot be known is ``Missing``
with its reason, never a guess.

A ttnn tensor takes neither weak references nor attributes. Its ``tensor_id`` is never used twice
and shared by all aliases, so it is the key. Several ids may share one buffer (views, some in-place
ops), which is why the buffer is kept too. The numbers of a buffer are dropped when it is
deallocated, or when another buffer gets its address, which is how a dead tensor shows.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Twin:
    """The numbers of a tensor: a host tensor per chip, the same object where chips agree."""

    shards: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a tensor has no numbers, and the op that left it without."""

    op: str
    reason: str

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}"


@dataclass(frozen=True, slots=True)
class LaidOut(Missing):
    """Numbers in a form that only the op can read, with the plain ones that they were."""

    plain: Twin = field(compare=False)  # comparing tensors would be an op call


Numbers: TypeAlias = Twin | Missing

UNSEEN = Missing(
    "a call that is not watched",
    "the tensor came to the device by another way than an op or a watched method of ttnn.Tensor; "
    "build it on the host and move it with ttnn.to_device, or use ttnn.from_torch",
)

DEALLOCATED = Missing(
    "ttnn.deallocate",
    "it was deallocated, by ttnn.deallocate or by an op that frees its input; read it before that",
)

WRITTEN_THROUGH = "it wrote through a view of another shape or dtype of the same memory"


@dataclass(frozen=True, slots=True)
class _Form:
    """What two tensors on one buffer must share for the numbers of one to fit the other."""

    shape: Any
    dtype: Any
    chips: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a live buffer starts; two buffers at one place cannot both be alive."""

    device: int
    memory: str
    address: int


class Twins:
    """The numbers of every tensor that was seen, by tensor."""

    def __init__(self, ttnn: Any) -> None:
        self._ttnn = ttnn
        # Held from before any patch, for this module asks about tensors while patches are in.
        self._device_tensors = ttnn.get_device_tensors
        self._numbers: dict[int, Numbers] = {}
        self._form_of: dict[int, _Form] = {}
        self._buffer_of: dict[int, int] = {}
        self._tensors_of: defaultdict[int, set[int]] = defaultdict(set)
        self._buffer_at: dict[_Place, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def on_device(self, tensor: Any) -> bool:
        """Tell whether the tensor lies on the mock board, where numbers mean nothing."""
        return bool(tensor.storage_type() == self._ttnn.StorageType.DEVICE)

    def numbers(self, tensor: Any) -> Numbers:
        """Return the twin of a tensor, or why there is none."""
        on_device = self.on_device(tensor)
        if on_device and not tensor.is_allocated():
            return DEALLOCATED
        known = self._numbers.get(tensor.tensor_id)
        if known is not None:
            return known
        return UNSEEN if on_device else Twin(tuple(self._device_tensors(tensor)))

    def knows(self, tensor: Any) -> bool:
        """Tell whether numbers, or the lack of them, were noted for this tensor."""
        return tensor.tensor_id in self._numbers

    def stands_in(self, tensor: Any) -> bool:
        """Tell whether what the tensor itself holds means nothing."""
        return self.knows(tensor) or self.on_device(tensor)

    def chips(self, tensor: Any) -> int:
        """Return how many chips hold a part of the tensor."""
        return len(self._device_tensors(tensor))

    def view(self, tensor: Any, numbers: Numbers) -> None:
        """Set the numbers of a tensor without touching others that share its buffer."""
        self._numbers[tensor.tensor_id] = numbers
        if self.on_device(tensor) and tensor.is_allocated():
            self._settle(tensor)

    def write(self, tensor: Any, numbers: Numbers, op: str) -> None:
        """Set the numbers of a tensor and of all others that share its buffer."""
        self.view(tensor, numbers)
        buffer = self._buffer_of.get(tensor.tensor_id)
        if buffer is None:
            return
        for other in self._tensors_of[buffer] - {tensor.tensor_id}:
            same = self._form_of[other] == self._form_of[tensor.tensor_id]
            self._numbers[other] = numbers if same else Missing(op, WRITTEN_THROUGH)

    def forget(self, tensor: Any) -> None:
        """Drop the numbers of a tensor whose memory was given back."""
        self._numbers.pop(tensor.tensor_id, None)
        buffer = self._buffer_of.get(tensor.tensor_id)
        if buffer is not None:
            self._drop(buffer)

    def _settle(self, tensor: Any) -> None:
        """Note which buffer the tensor has, and that earlier ones at its place are gone."""
        buffer = tensor.buffer_unique_id()
        place = _Place(
            tensor.device().id(), str(tensor.memory_config().buffer_type), tensor.buffer_address()
        )
        earlier = self._buffer_at.get(place)
        if earlier is not None and earlier != buffer:
            self._drop(earlier)
        self._buffer_at[place] = buffer
        self._form_of[tensor.tensor_id] = _Form(tensor.shape, tensor.dtype, self.chips(tensor))
        self._buffer_of[tensor.tensor_id] = buffer
        self._tensors_of[buffer].add(tensor.tensor_id)

    def _drop(self, buffer: int) -> None:
        for identity in self._tensors_of.pop(buffer, ()):
            self._numbers.pop(identity, None)
            self._form_of.pop(identity, None)
            self._buffer_of.pop(identity, None)

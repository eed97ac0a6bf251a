"""Keep the values of tensors on a mock board: a mirror on the host for each of them.

Host tensors of ttnn hold real values even without a board. So a mirror is one host tensor per chip,
packed by ttnn itself in the dtype of its device tensor. A tensor whose values cannot be known is
``Missing`` with a reason, never a guess.

A ttnn tensor takes neither weak references nor attributes. Its ``tensor_id`` is never reused and
all aliases share it, so it is the key. Several ids may share one buffer (views, some in-place ops),
which is why the buffer is kept too. A mirror is dropped when its tensor is deallocated, or when its
buffer is gone: another one gets the address, or ttnn does not list it any more.
"""

from __future__ import annotations

import ctypes
import math
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class HostMirror:
    """The values of a tensor: a host tensor per chip, the same object where chips agree."""

    shards: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Why a tensor has no values, and the op that caused it."""

    op: str
    reason: str
    root: Missing | None = field(default=None, compare=False)
    """The first lack of values that led to this one; None if it is itself the first."""

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}"


@dataclass(frozen=True, slots=True)
class PreparedMirror(Missing):
    """Weights in a form that only their op can read, with the mirror of the plain weights."""

    # Comparing tensors would be an op call.
    plain: HostMirror = field(default=HostMirror(()), compare=False)


MirrorOrMissing: TypeAlias = HostMirror | Missing

UNSEEN = Missing(
    "a call that is not watched",
    "the tensor came to the device by another way than an op or a watched method of ttnn.Tensor; "
    "build it on the host and move it with ttnn.to_device, or use ttnn.from_torch",
)

OVERWRITTEN = Missing(
    "ttnn",
    "another tensor was put at its address, so that this one is not alive any more; read it before",
)

REPLACED = Missing(
    "ttnn",
    "an op has given this tensor object other memory, which no tensor with numbers shares; "
    "read the tensor that the op returned",
)

CLOSED = Missing("ttnn", "its device was closed; read it before that")

DEALLOCATED = Missing(
    "ttnn.deallocate",
    "it was deallocated, by ttnn.deallocate or by an op that frees its input; read it before that",
)

# How much of tensors is kept whose buffer was deallocated by way of another tensor.
ORPHAN_BYTES = 512 * 2**20
MOST_ORPHANS = 1024

# How much may be put into mirrors before those of tensors that are gone are looked for.
SWEEP_BYTES = 128 * 2**20

# How often memory that is free again is given back to the system: glibc keeps what it got for
# host tensors of many sizes, and a model would take three times its memory.
SWEEPS_PER_TRIM = 4

WRITTEN_THROUGH = "it wrote through a view of another shape or dtype of the same memory"


@dataclass(frozen=True, slots=True)
class _Format:
    """Two tensors on one buffer can share a mirror if they agree in all of this."""

    shape: Any
    dtype: Any
    chips: int

    @property
    def bytes(self) -> int:
        """Return about how much memory a mirror takes, if all chips agree."""
        return 4 * int(math.prod(self.shape))


@dataclass(frozen=True, slots=True)
class _Address:
    """Where a live buffer starts; two buffers at one address cannot both be alive."""

    device: int
    memory: str
    address: int


class HostMirrors:
    """The mirrors of all tensors that were seen."""

    def __init__(self, ttnn: Any) -> None:
        self._ttnn = ttnn
        # The unpatched function: this class asks about tensors while patches are installed.
        self._device_tensors = ttnn.get_device_tensors
        self._mirrors: dict[int, MirrorOrMissing] = {}
        self._format_of: dict[int, _Format] = {}
        self._buffer_of: dict[int, int] = {}
        self._tensors_of: defaultdict[int, set[int]] = defaultdict(set)
        self._buffer_at: dict[_Address, int] = {}
        self._gone: dict[int, Missing] = {}
        # Tensors whose buffer was deallocated by way of another one, with their bytes.
        self._orphans: dict[int, int] = {}
        self._buffers: Any = getattr(getattr(ttnn._ttnn, "reports", None), "get_buffers", None)  # noqa: SLF001 - it has no public name
        self._bytes_since_sweep = 0
        self._sweeps = 0
        self._trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        # While a metal trace is executed: the mirrors of tensors that are deallocated inside it.
        self._inside_trace: dict[int, MirrorOrMissing] | None = None

    @contextmanager
    def executing_trace(self) -> Iterator[None]:
        """Give deallocated tensors mirrors inside the block, as a metal trace gives them memory."""
        self._inside_trace = {}
        try:
            yield
        finally:
            self._inside_trace = None

    def __len__(self) -> int:
        return len(self._mirrors)

    def on_device(self, tensor: Any) -> bool:
        """Return whether the tensor is on the mock board, where values mean nothing."""
        return bool(tensor.storage_type() == self._ttnn.StorageType.DEVICE)

    def of(self, tensor: Any) -> MirrorOrMissing:
        """Return the mirror of a tensor, or why it has none."""
        on_device = self.on_device(tensor)
        if on_device and not tensor.is_allocated():
            return (self._inside_trace or {}).get(tensor.tensor_id, DEALLOCATED)
        known = self._mirrors.get(tensor.tensor_id)
        if known is not None:
            return self._with_new_buffer(tensor) or known if on_device else known
        if not on_device:
            return HostMirror(tuple(self._device_tensors(tensor)))
        return self._gone.get(tensor.tensor_id, UNSEEN)

    def knows(self, tensor: Any) -> bool:
        """Return whether a mirror, or the lack of one, was set for this tensor."""
        return tensor.tensor_id in self._mirrors

    def replaces(self, tensor: Any) -> bool:
        """Return whether the values of the tensor itself mean nothing."""
        return self.knows(tensor) or self.on_device(tensor)

    def chips(self, tensor: Any) -> int:
        """Return how many chips hold a part of the tensor."""
        return len(self._device_tensors(tensor))

    def set(self, tensor: Any, mirror: MirrorOrMissing) -> None:
        """Set the mirror of a tensor, and leave others that share its buffer alone."""
        on_device = self.on_device(tensor)
        if on_device and not tensor.is_allocated():
            if self._inside_trace is not None:
                self._inside_trace[tensor.tensor_id] = mirror
            return
        self._mirrors[tensor.tensor_id] = mirror
        if on_device:
            self._note_buffer(tensor)

    def write(self, tensor: Any, mirror: MirrorOrMissing, op: str) -> None:
        """Set the mirror of a tensor and of all others that share its buffer."""
        self.set(tensor, mirror)
        buffer = self._buffer_of.get(tensor.tensor_id)
        if buffer is None:
            return
        for other in self._tensors_of[buffer] - {tensor.tensor_id}:
            same = self._format_of[other] == self._format_of[tensor.tensor_id]
            self._mirrors[other] = mirror if same else Missing(op, WRITTEN_THROUGH)

    def forget(self, tensor: Any) -> None:
        """Drop the mirror of a tensor that was deallocated.

        Others on its buffer may still count as allocated, as views do, and programs go on to read
        them. Which of them are alive is unknown, so the latest keep their mirrors.
        """
        buffer = self._buffer_of.get(tensor.tensor_id)
        self._forget(tensor.tensor_id)
        for identity in self._tensors_of.pop(buffer, ()) if buffer is not None else ():
            del self._buffer_of[identity]
            self._orphans[identity] = self._format_of[identity].bytes
        while sum(self._orphans.values()) > ORPHAN_BYTES or len(self._orphans) > MOST_ORPHANS:
            self._overwrite(next(iter(self._orphans)))

    def forget_device(self, device: int) -> None:
        """Drop the mirrors of all tensors on a device that was closed."""
        for address, buffer in list(self._buffer_at.items()):
            if address.device == device:
                self._drop(buffer, CLOSED)
                del self._buffer_at[address]
        self._give_back()

    def _give_back(self) -> None:
        """Give memory that is free again back to the system."""
        if self._trim is not None:
            self._trim(0)

    def _with_new_buffer(self, tensor: Any) -> MirrorOrMissing | None:
        """Return the mirror of a tensor that got another buffer; None if it has the noted one.

        Some ops assign their result to the object that they were given as the output.
        """
        identity, buffer = tensor.tensor_id, tensor.buffer_unique_id()
        if buffer is None or self._buffer_of.get(identity, buffer) == buffer:
            return None
        wanted = _Format(tensor.shape, tensor.dtype, self.chips(tensor))
        sharing = self._tensors_of.get(buffer, set())
        same = (self._mirrors[other] for other in sharing if self._format_of[other] == wanted)
        mirror = next(same, REPLACED)
        self._forget(identity)
        self.set(tensor, mirror)
        return mirror

    def _note_buffer(self, tensor: Any) -> None:
        """Note the buffer of a tensor; an earlier buffer at its address is gone."""
        buffer = tensor.buffer_unique_id()
        if buffer is None or 0 in tensor.shape:  # a view of a deallocated buffer, or no memory
            return
        address = _Address(
            tensor.device().id(), str(tensor.memory_config().buffer_type), tensor.buffer_address()
        )
        earlier = self._buffer_at.get(address)
        if earlier is not None and earlier != buffer:
            self._drop(earlier)
        self._buffer_at[address] = buffer
        self._format_of[tensor.tensor_id] = _Format(tensor.shape, tensor.dtype, self.chips(tensor))
        self._buffer_of[tensor.tensor_id] = buffer
        self._tensors_of[buffer].add(tensor.tensor_id)
        self._bytes_since_sweep += self._format_of[tensor.tensor_id].bytes
        if self._bytes_since_sweep > SWEEP_BYTES:
            self._bytes_since_sweep = 0
            self._sweep(tensor.device(), address)
            self._sweeps += 1
            if self._sweeps % SWEEPS_PER_TRIM == 0:
                self._give_back()

    def _sweep(self, device: Any, known: _Address) -> None:
        """Drop the mirrors of tensors on a device that the program has dropped.

        ttnn lists the buffers that are allocated. ``known`` is the address of one that is.
        """
        if self._buffers is None:
            return
        live = {(str(each.buffer_type), each.address) for each in self._buffers(device)}
        if (known.memory, known.address) not in live:
            return  # the list is not about this device
        for address, buffer in list(self._buffer_at.items()):
            if address.device == known.device and (address.memory, address.address) not in live:
                self._drop(buffer)
                del self._buffer_at[address]

    def _drop(self, buffer: int, reason: Missing = OVERWRITTEN) -> None:
        for identity in list(self._tensors_of.get(buffer, ())):
            self._overwrite(identity, reason)

    def _overwrite(self, identity: int, reason: Missing = OVERWRITTEN) -> None:
        self._forget(identity)
        self._gone[identity] = reason

    def _forget(self, identity: int) -> None:
        self._mirrors.pop(identity, None)
        self._orphans.pop(identity, None)
        self._format_of.pop(identity, None)
        buffer = self._buffer_of.pop(identity, None)
        if buffer is not None:
            self._tensors_of[buffer].discard(identity)
            if not self._tensors_of[buffer]:
                del self._tensors_of[buffer]

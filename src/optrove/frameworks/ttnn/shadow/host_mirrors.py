"""Keep the values of tensors on a mock board: a mirror on the host for each of them.

Host tensors of ttnn hold real values even without a board. So a mirror is one host tensor per chip,
packed by ttnn itself in the dtype of its device tensor. A tensor whose values cannot be known is
``Missing`` with a reason, never a guess.

A ttnn tensor takes neither weak references nor attributes. Its ``tensor_id`` is never reused and
all aliases share it, so it is the key. Several ids may share one buffer (views, some in-place ops),
which is why the buffer is kept too. A mirror is dropped when its tensor is deallocated, or when its
buffer is gone: another one gets the address, or ttnn does not list it any more.

A metal trace reads and writes addresses, also those of tensors that were freed since, or of other
tensors that are there now. So the mirrors know, for tensors that traces hold (``HeldTensor``), what
is at their addresses.
"""

from __future__ import annotations

import ctypes
import math
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

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


@dataclass(frozen=True, slots=True)
class Unwritten(Missing):
    """Memory that nothing has been written to since it was allocated."""


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

NOT_EXECUTED = Unwritten(
    "ttnn.execute_trace",
    "it is written by a metal trace, which was captured and not executed since: capturing computes "
    "nothing; execute the trace first",
)

TRACED_OVER = Missing(
    "ttnn.execute_trace",
    "a metal trace wrote over it: its memory is the trace's own, which was free after the capture; "
    "allocate before the capture what has to outlive executions",
)

REUSED = Missing(
    "ttnn.execute_trace",
    "the metal trace read memory that was freed, and that has held something else since",
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


@dataclass(frozen=True, eq=False)
class HeldTensor:
    """A tensor on the device that a metal trace reads or writes, and what it was when captured."""

    tensor: Any
    device: Any
    address: _Address
    format: _Format


class HostMirrors:
    """The mirrors of all tensors that were seen."""

    def __init__(self, ttnn: Any) -> None:
        self._ttnn = ttnn
        # The unpatched function: this class asks about tensors while patches are installed.
        self._device_tensors = ttnn.get_device_tensors
        self._mirrors: dict[int, MirrorOrMissing] = {}
        self._format_of: dict[int, _Format] = {}
        self._buffer_of: dict[int, int] = {}
        self._address_of: dict[int, _Address] = {}
        self._tensors_of: defaultdict[int, set[int]] = defaultdict(set)
        self._buffer_at: dict[_Address, int] = {}
        self._gone: dict[int, Missing] = {}
        # Tensors whose buffer was deallocated by way of another one, with their bytes.
        self._orphans: dict[int, int] = {}
        self._buffers: Any = getattr(getattr(ttnn._ttnn, "reports", None), "get_buffers", None)  # noqa: SLF001 - it has no public name
        self._bytes_since_sweep = 0
        self._sweeps = 0
        self._trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        # The tensors of metal traces, for as long as these exist.
        self._held: WeakValueDictionary[int, HeldTensor] = WeakValueDictionary()
        self._is_executing = False
        # What is at the addresses of held tensors, where no tensor that is alive says so; and those
        # of them that some trace reads before it writes them.
        self._memory: dict[_Address, tuple[_Format, MirrorOrMissing]] = {}
        self._read_first: set[_Address] = set()

    @contextmanager
    def executing_trace(self) -> Iterator[None]:
        """Let tensors of metal traces that were freed have mirrors inside the block."""
        self._is_executing = True
        try:
            yield
        finally:
            self._is_executing = False
            read = self._read_first
            self._memory = {key: value for key, value in self._memory.items() if key in read}

    def hold(self, tensor: Any, *, is_read_first: bool) -> HeldTensor | None:
        """Return what a metal trace needs to know of a tensor; None if it has no memory."""
        held = self._held.get(tensor.tensor_id)
        if held is None:
            if not tensor.is_allocated() or tensor.buffer_unique_id() is None:
                return None
            if not self._held:
                self._memory.clear()
                self._read_first.clear()
            held = HeldTensor(tensor, tensor.device(), _address(tensor), self._format(tensor))
            self._held[tensor.tensor_id] = held
        if is_read_first:
            self._read_first.add(held.address)
        return held

    def held(self, identity: int) -> HeldTensor | None:
        """Return what a metal trace holds of a tensor, given its id; None if none holds it."""
        return self._held.get(identity)

    def __len__(self) -> int:
        return len(self._mirrors)

    def on_device(self, tensor: Any) -> bool:
        """Return whether the tensor is on the mock board, where values mean nothing."""
        return bool(tensor.storage_type() == self._ttnn.StorageType.DEVICE)

    def of(self, tensor: Any) -> MirrorOrMissing:
        """Return the mirror of a tensor, or why it has none."""
        on_device = self.on_device(tensor)
        if on_device and not tensor.is_allocated():
            held = self._held.get(tensor.tensor_id) if self._is_executing else None
            return DEALLOCATED if held is None else self._remembered(held)
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
        held = self._held.get(tensor.tensor_id)
        return len(self._device_tensors(tensor)) if held is None else held.format.chips

    def device(self, tensor: Any) -> Any:
        """Return the device of a tensor, also if a metal trace holds it and it was freed."""
        held = self._held.get(tensor.tensor_id)
        return tensor.device() if held is None else held.device

    def set(self, tensor: Any, mirror: MirrorOrMissing) -> None:
        """Set the mirror of a tensor, and leave others that share its buffer alone."""
        on_device = self.on_device(tensor)
        if on_device and not tensor.is_allocated():
            held = self._held.get(tensor.tensor_id)
            if self._is_executing and held is not None:
                self._write_freed(held, mirror)
            return
        self._mirrors[tensor.tensor_id] = mirror
        if on_device:
            self._note_buffer(tensor)

    def postpone(self, tensor: Any) -> None:
        """Set the mirror of a tensor that a metal trace will write: what its memory has now."""
        if self.on_device(tensor) and tensor.is_allocated() and not self.knows(tensor):
            self.set(tensor, self._sharing(tensor) or NOT_EXECUTED)

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
        self._memory = {key: each for key, each in self._memory.items() if key.device != device}
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
        mirror = self._sharing(tensor) or REPLACED
        self._forget(identity)
        self.set(tensor, mirror)
        return mirror

    def _sharing(self, tensor: Any) -> MirrorOrMissing | None:
        """Return the mirror of another tensor of the same format on the buffer of a tensor."""
        return self._at(tensor.buffer_unique_id(), self._format(tensor))

    def _at(self, buffer: int | None, wanted: _Format) -> MirrorOrMissing | None:
        others = self._tensors_of.get(buffer, set()) if buffer is not None else ()
        same = (self._mirrors[other] for other in others if self._format_of[other] == wanted)
        return next(same, None)

    def _format(self, tensor: Any) -> _Format:
        return _Format(tensor.shape, tensor.dtype, self.chips(tensor))

    def _remembered(self, held: HeldTensor) -> MirrorOrMissing:
        """Return what is at the address of a tensor that was freed."""
        known = self._at(self._buffer_at.get(held.address), held.format)
        if known is not None and not isinstance(known, Unwritten):
            return known
        form, mirror = self._memory.get(held.address, (None, None))
        return mirror if mirror is not None and form == held.format else REUSED

    def _write_freed(self, held: HeldTensor, mirror: MirrorOrMissing) -> None:
        """Write to the address of a tensor that was freed, whatever is there now."""
        self._memory[held.address] = (held.format, mirror)
        for other in self._tensors_of.get(self._buffer_at.get(held.address, -1), ()):
            same = self._format_of[other] == held.format
            self._mirrors[other] = mirror if same else TRACED_OVER

    def _note_buffer(self, tensor: Any) -> None:
        """Note the buffer of a tensor; an earlier buffer at its address is gone."""
        buffer = tensor.buffer_unique_id()
        if buffer is None or 0 in tensor.shape:  # a view of a deallocated buffer, or no memory
            return
        address = _address(tensor)
        earlier = self._buffer_at.get(address)
        if earlier is not None and earlier != buffer:
            self._drop(earlier)
        self._buffer_at[address] = buffer
        self._format_of[tensor.tensor_id] = self._format(tensor)
        self._address_of[tensor.tensor_id] = address
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
        mirror, form = self._mirrors.pop(identity, None), self._format_of.pop(identity, None)
        self._orphans.pop(identity, None)
        address = self._address_of.pop(identity, None)
        buffer = self._buffer_of.pop(identity, None)
        if mirror is None or form is None or isinstance(mirror, Unwritten):
            pass
        elif address in self._read_first and self._buffer_at.get(address) == buffer:
            # What was written last stays in the memory of a tensor that was freed.
            self._memory[address] = (form, mirror)
        if buffer is not None:
            self._tensors_of[buffer].discard(identity)
            if not self._tensors_of[buffer]:
                del self._tensors_of[buffer]


def _address(tensor: Any) -> _Address:
    memory = str(tensor.memory_config().buffer_type)
    return _Address(tensor.device().id(), memory, tensor.buffer_address())

"""Carry tensors between processes without calling any operation of torch.

A process whose kernels are under test reads and makes tensors here, so that no replaced kernel,
not even one of ``copy_`` or ``as_strided``, changes what goes in or what comes out.
"""

from __future__ import annotations

import ctypes
import io
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class _DlTensor(ctypes.Structure):
    """The beginning of a DLManagedTensor, by dlpack.h."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("dimensions", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


@dataclass(frozen=True, slots=True)
class RawView:
    """A dense tensor as a view of one of the buffers that were carried along."""

    buffer: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    conjugate: bool
    negative: bool
    requires_grad: bool


@dataclass(frozen=True, slots=True)
class RawTensors:
    """Tensors as bytes: views of buffers, or saved by torch if they are of another kind."""

    buffers: tuple[bytes, ...]
    parts: tuple[RawView | bytes, ...]


def packed(torch: Any, tensors: Sequence[Any]) -> RawTensors:
    """Return the bytes of tensors; those that share memory share a buffer."""
    buffers: list[bytes] = []
    numbers: dict[int, int] = {}
    parts: list[RawView | bytes] = []
    for tensor in tensors:
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        if not plain or tensor.layout is not torch.strided or tensor.is_quantized:
            parts.append(_saved(torch, tensor))
            continue
        if tensor.device.type == "meta":
            parts.append(_saved(torch, tensor))
            continue
        live = tensor if tensor.device.type == "cpu" else tensor.detach().cpu()
        storage = live.untyped_storage()
        key = storage.data_ptr() if storage.nbytes() else -len(parts)
        if key not in numbers:
            numbers[key] = len(buffers)
            buffers.append(ctypes.string_at(storage.data_ptr(), storage.nbytes()))
        parts.append(
            RawView(
                numbers[key],
                live.dtype,
                tuple(live.shape),
                live.stride(),
                live.storage_offset(),
                live.is_conj(),
                live.is_neg(),
                live.requires_grad,
            )
        )
    return RawTensors(tuple(buffers), tuple(parts))


def unpacked(torch: Any, raw: RawTensors) -> list[Any]:
    """Return new tensors from bytes; those that shared memory share it again."""
    views = Counter(part.buffer for part in raw.parts if isinstance(part, RawView))
    rows: dict[tuple[int, Any], Any] = {}
    found = []
    for part in raw.parts:
        if isinstance(part, bytes):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that checking a sparse tensor takes time
                found.append(torch.load(io.BytesIO(part), weights_only=True))
            continue
        key = part.buffer, part.dtype
        if key not in rows and raw.buffers[part.buffer]:
            rows[key] = torch.frombuffer(bytearray(raw.buffers[part.buffer]), dtype=part.dtype)
        found.append(_view(torch, rows.get(key), part, is_shared=views[part.buffer] > 1))
    return found


def _saved(torch: Any, tensor: Any) -> bytes:
    file = io.BytesIO()
    torch.save(tensor.detach(), file)
    return file.getvalue()


def _view(torch: Any, row: Any, part: RawView, *, is_shared: bool) -> Any:
    if row is None:
        live = torch.empty_strided(part.shape, part.strides, dtype=part.dtype)
        return live.requires_grad_(part.requires_grad)
    pairs = zip(part.shape, part.strides, strict=True)
    last = part.offset + sum((size - 1) * step for size, step in pairs) + 1
    if is_shared or last < row.numel() or 0 in part.shape:
        # Only an operation makes views of one storage, or one that does not reach its end.
        if part.requires_grad and not is_shared:
            # A clone of the view would be without the gaps.
            row, part = row.requires_grad_().clone(), replace(part, requires_grad=False)
        live = row.as_strided(part.shape, part.strides, part.offset)
    else:
        live = _placed(torch, row, part)
    if part.conjugate:
        live = live.conj()
    if part.negative:
        live = torch._neg_view(live)  # noqa: SLF001 - torch has no public function for this
    return live.requires_grad_().clone() if part.requires_grad else live


def _placed(torch: Any, row: Any, part: RawView) -> Any:
    """Return the view of a row, made by way of DLPack, which calls no operation."""
    capsule = torch.utils.dlpack.to_dlpack(row)
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    header = _DlTensor.from_address(address(capsule, b"dltensor"))
    sizes = ctypes.c_int64 * len(part.shape)
    header.dimensions = len(part.shape)
    header.shape, header.strides = sizes(*part.shape), sizes(*part.strides)
    header.byte_offset = part.offset * row.itemsize
    return torch.utils.dlpack.from_dlpack(capsule)

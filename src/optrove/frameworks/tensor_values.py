"""Read the numbers of a live tensor: all, a sketch, or as bytes.

Only this module reads the numbers of a tensor for a recording. It raises NoNumbers if they mean
nothing or must not be read: a deallocated tensor (ttnn would end the process), a device that is
capturing a trace (reading is fatal then), a tensor on a mock board without shadow (its kernels
never ran), a torch tensor without data. It imports only numpy; ttnn tensors are read with ``cpu``
and ``to_list``, without torch.
"""

from __future__ import annotations

import sys
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NoNumbers
from optrove.frameworks.ttnn.board.mock import device_in_use
from optrove.model.records import DeviceKind

if TYPE_CHECKING:
    from types import ModuleType


_WIDENED: Final = ("bfloat", "float8", "float4", "fp8")
_READING_FAULTS: Final = (RuntimeError, TypeError, ValueError, NotImplementedError)


def numbers(live: Any) -> Any:
    """Return the numbers of a tensor as nested lists; NoNumbers says why if it has no numbers.

    For a ttnn tensor in several parts, such as one on a mesh of chips, return the list of its
    parts; for a tensor without dimensions, a bare number.
    """
    parts = numbers_in_parts(live)
    return parts[0] if len(parts) == 1 else parts


def numbers_in_parts(live: Any) -> list[Any]:
    """Return the numbers of each part of a tensor; only ttnn tensors on meshes have several."""
    return [_reading(live, _nested, part) for part in parts_on_host(live)]


def numbers_dtype(dtype: str) -> str:
    """Return the dtype in which numbers of ``dtype`` are written; both without a framework.

    ``bfloat16``, block formats and eight-bit floats are written as float32, which can represent
    each of their numbers.
    """
    return "float32" if dtype.startswith(_WIDENED) else dtype


def sketch(live: Any) -> dict[str, int | float | None]:
    """Return statistics of a tensor's numbers; NoNumbers as for ``numbers``.

    ``count`` and ``nan_count`` count numbers, ``zero_share`` is the share of zeros among all.
    ``min`` and ``max`` are over all but NaN, and exact for whole numbers; ``mean`` and ``std`` (of
    the population, not of a sample) are over the finite ones. A value is None if there are no
    numbers for it.
    """
    numpy = _numpy()
    arrays = [_reading(live, _array, part).reshape(-1) for part in parts_on_host(live)]
    row = numpy.concatenate(arrays)
    if row.dtype.kind not in "biuf":
        raise NoNumbers(f"an array of {row.dtype} has no order; a sketch needs real numbers")
    return _spread(numpy, row)


def _spread(numpy: ModuleType, row: Any) -> dict[str, int | float | None]:
    floats = row.dtype.kind == "f"
    numeric = row[~numpy.isnan(row)] if floats else row
    finite = numeric[numpy.isfinite(numeric)] if floats else numeric
    wide = finite.astype(numpy.float64)
    number = float if floats else int
    with numpy.errstate(over="ignore", invalid="ignore"):
        return {
            "count": int(row.size),
            "min": number(numeric.min()) if numeric.size else None,
            "max": number(numeric.max()) if numeric.size else None,
            "mean": float(wide.mean()) if wide.size else None,
            "std": float(wide.std()) if wide.size else None,
            "zero_share": float((row == 0).sum() / row.size) if row.size else None,
            "nan_count": int(row.size - numeric.size),
        }


def parts_on_host(live: Any) -> list[Any]:
    """Return the parts of a tensor on the host."""
    if _is(live, "ttnn", "Tensor"):
        return _ttnn_parts(sys.modules["ttnn"], live)
    if _is(live, "torch", "Tensor"):
        return [_torch_part(sys.modules["torch"], live)]
    if _is(live, "numpy", "ndarray"):
        return [live]
    kind = f"{type(live).__module__}.{type(live).__qualname__}"
    raise NoNumbers(
        f"an object of {kind} cannot be read, only tensors of ttnn and torch and numpy arrays"
    )


def _ttnn_parts(ttnn: Any, live: Any) -> list[Any]:
    if live.storage_type() == ttnn.StorageType.HOST:
        return list(ttnn.get_device_tensors(live))
    if not live.is_allocated():
        raise NoNumbers("the tensor was deallocated")
    captures = getattr(ttnn, "is_trace_capture_active", None)
    if captures is not None and captures(live.device()):
        raise NoNumbers("its device is capturing a trace; nothing may be read meanwhile")
    found = device_in_use()
    if found is not None and found[0] is DeviceKind.MOCK:
        raise NoNumbers(
            "a mock board computes no numbers; add --optrove-shadow, or run on another device"
        )
    host = _reading(live, type(live).cpu, live)
    return list(ttnn.get_device_tensors(host))


def _torch_part(torch: Any, live: Any) -> Any:
    # Subclasses and modes of the user must not notice the reading.
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001 - has no public name
        if live.is_meta:
            raise NoNumbers("a tensor on the meta device has no numbers")
        return _reading(live, partial(_on_host, torch), live)


def _on_host(torch: Any, live: Any) -> Any:
    plain = live.detach().cpu()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    dtype = str(plain.dtype).removeprefix("torch.")
    widened = plain.float() if numbers_dtype(dtype) != dtype else plain
    return widened.resolve_conj().resolve_neg()


def _nested(part: Any) -> Any:
    return part.to_list() if _is(part, "ttnn", "Tensor") else part.tolist()


def _array(part: Any) -> Any:
    numpy = _numpy()
    if not _is(part, "ttnn", "Tensor"):
        return numpy.asarray(part)
    # numpy has no bfloat16, so ttnn does not return an array.
    if part.dtype.name == "BFLOAT16":
        return numpy.array(part.to_list(), dtype=numpy.float32)
    return numpy.asarray(part.to_numpy())


def _reading(live: Any, read: Any, part: Any) -> Any:
    try:
        return read(part)
    except _READING_FAULTS as error:
        text = str(error).strip().splitlines() or [""]
        kind = type(live).__name__
        raise NoNumbers(f"a {kind} could not be read: {type(error).__name__}: {text[0]}") from error


def _is(thing: Any, framework: str, name: str) -> bool:
    """Return whether an object has a class of a framework; without importing the framework."""
    kind = getattr(sys.modules.get(framework), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise NoNumbers("a sketch is computed by numpy, which is not installed") from error
    return numpy


def is_array(live: Any) -> bool:
    """Return whether an object is an array of torch or numpy."""
    return _is(live, "torch", "Tensor") or _is(live, "numpy", "ndarray")


def content_digest(live: Any) -> str:
    """Return a hash of an array of torch or numpy: its shape, dtype and numbers."""
    if _is(live, "torch", "Tensor"):
        torch: Any = sys.modules["torch"]
        row = live.detach().cpu().contiguous().reshape(-1)
        content = row.view(torch.uint8).numpy()
    else:
        numpy: Any = sys.modules["numpy"]
        content = numpy.ascontiguousarray(live).reshape(-1).view(numpy.uint8)
    digest = sha256(f"{tuple(live.shape)} {live.dtype}".encode())
    digest.update(content.data)
    return digest.hexdigest()

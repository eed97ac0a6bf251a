"""Read the numbers of a live tensor: all, a sketch, or as bytes.

The one place that fetches a tensor's numbers for a recording. It raises NoNumbers rather than
read what means nothing or must not be read: a deallocated tensor (ttnn would end the process), a
device that is capturing a trace (reading is fatal then), a tensor on a mock board without shadow
(its kernels never ran), a torch tensor that has no data. Nothing is imported but numpy, and the
frameworks' own objects are asked: ttnn's numbers come by ``cpu`` and ``to_list``, without torch.
"""

from __future__ import annotations

import sys
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NoNumbers
from optrove.frameworks.ttnn.board.mock import MOCK_ATTRIBUTE
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE

if TYPE_CHECKING:
    from types import ModuleType


_WIDENED: Final = ("bfloat", "float8", "float4", "fp8")
_READING_FAULTS: Final = (RuntimeError, TypeError, ValueError, NotImplementedError)


def numbers(live: Any) -> Any:
    """Return the numbers of a tensor as nested lists; NoNumbers says why that cannot be.

    A ttnn tensor in several parts, such as one on a mesh of chips, gives the list of its parts; a
    tensor without dimensions gives a bare number.
    """
    parts = numbers_in_parts(live)
    return parts[0] if len(parts) == 1 else parts


def numbers_in_parts(live: Any) -> list[Any]:
    """Return the numbers of each part of a tensor; all but ttnn tensors on meshes have one part."""
    return [_reading(live, _nested, part) for part in _parts(live)]


def numbers_dtype(dtype: str) -> str:
    """Return the dtype that numbers of ``dtype`` are written in, both without a framework.

    ``bfloat16``, block formats and eight-bit floats are written as float32, which holds each of
    their numbers exactly.
    """
    return "float32" if dtype.startswith(_WIDENED) else dtype


def sketch(live: Any) -> dict[str, int | float | None]:
    """Return how a tensor's numbers are spread, without keeping them; NoNumbers as ``numbers``.

    ``count`` and ``nan_count`` count numbers, ``zero_share`` is the share of zeros among all.
    ``min`` and ``max`` are over all but NaN, and exact whole numbers where the tensor holds such;
    ``mean`` and ``std`` (of the whole, not of a sample) are over the finite ones. None where there
    is nothing to tell.
    """
    numpy = _numpy()
    arrays = [_reading(live, _array, part).reshape(-1) for part in _parts(live)]
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


def _parts(live: Any) -> list[Any]:
    """Return what holds the numbers, on the host: one object for each part."""
    if _is(live, "ttnn", "Tensor"):
        return _ttnn_parts(sys.modules["ttnn"], live)
    if _is(live, "torch", "Tensor"):
        return [_torch_part(sys.modules["torch"], live)]
    if _is(live, "numpy", "ndarray"):
        return [live]
    kind = f"{type(live).__module__}.{type(live).__qualname__}"
    raise NoNumbers(
        f"an object of {kind} was to be read; only tensors of ttnn and torch and numpy "
        f"arrays can be"
    )


def _ttnn_parts(ttnn: Any, live: Any) -> list[Any]:
    if live.storage_type() == ttnn.StorageType.HOST:
        return list(ttnn.get_device_tensors(live))
    if not live.is_allocated():
        raise NoNumbers("the tensor was deallocated")
    captures = getattr(ttnn, "is_trace_capture_active", None)
    if captures is not None and captures(live.device()):
        raise NoNumbers("its device is capturing a trace, during which nothing may be read")
    if hasattr(ttnn, MOCK_ATTRIBUTE) and not hasattr(ttnn, SHADOW_ATTRIBUTE):
        raise NoNumbers(
            "a mock board computes no numbers; add --optrove-shadow, or run on hardware"
        )
    host = _reading(live, type(live).cpu, live)
    return list(ttnn.get_device_tensors(host))


def _torch_part(torch: Any, live: Any) -> Any:
    # Unnoticed by the functions that subclasses and modes of the user put around each call.
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
    # numpy has no bfloat16, so that ttnn gives something else than an array.
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
    kind = getattr(sys.modules.get(framework), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise NoNumbers("a sketch is computed by numpy, which is not installed") from error
    return numpy


def is_array(live: Any) -> bool:
    """Tell whether something is an array of torch or numpy."""
    return _is_of(live, "torch", "Tensor") or _is_of(live, "numpy", "ndarray")


def content_digest(live: Any) -> str:
    """Return a hash of an array of torch or numpy: its shape, dtype and numbers."""
    if _is_of(live, "torch", "Tensor"):
        torch: Any = sys.modules["torch"]
        row = live.detach().cpu().contiguous().reshape(-1)
        content = row.view(torch.uint8).numpy()
    else:
        numpy: Any = sys.modules["numpy"]
        content = numpy.ascontiguousarray(live).reshape(-1).view(numpy.uint8)
    digest = sha256(f"{tuple(live.shape)} {live.dtype}".encode())
    digest.update(content.data)
    return digest.hexdigest()


def _is_of(live: Any, framework: str, name: str) -> bool:
    """Tell whether something is an object of a framework; one that is not loaded made none."""
    kind = getattr(sys.modules.get(framework), name, None)
    return isinstance(kind, type) and isinstance(live, kind)

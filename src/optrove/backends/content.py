"""Read the numbers of an array as bytes, so that two arrays can be told apart."""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any


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
    told = sha256(f"{tuple(live.shape)} {live.dtype}".encode())
    told.update(content.data)
    return told.hexdigest()


def _is_of(live: Any, framework: str, name: str) -> bool:
    """Tell whether something is an object of a framework; one that is not loaded made none."""
    kind = getattr(sys.modules.get(framework), name, None)
    return isinstance(kind, type) and isinstance(live, kind)

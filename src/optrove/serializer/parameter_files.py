"""The form of parameter files: arguments, tensors and file names.

The form is that of tt-metal's guide to operation parameter tracing; ``capture.parameters`` lists
our choices where the guide leaves something open.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.model.values import (
    List,
    Mapping,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
    walk,
)
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from optrove.serializer.text import Json

STAMP: Final = "%Y%m%d_%H%M%S_%f"
"""The time of a call in names and files."""


def file_stem(number: int, op: str) -> str:
    """Return the beginning of a file's name: its number and its op."""
    return f"{number}_{re.sub(r'[^A-Za-z0-9_]+', '_', op)}"


def argument_form(value: Value) -> Json:
    """Return an argument: tensors and containers in readable form, the rest as in ``wire``."""
    match value:
        case List(items) | Tuple(items):
            return [argument_form(item) for item in items]
        case Mapping(entries):
            named = {key.value: item for key, item in entries if isinstance(key, Text)}
            if len(named) == len(entries) and not any(name.startswith("$") for name in named):
                return {name: argument_form(named[name]) for name in sorted(named)}
        case TensorSpec(placement=TtnnPlacement() | TorchPlacement()):
            return tensor_form(value)
        case _:
            pass
    return encode(value)


def tensor_form(spec: TensorSpec, values: dict[str, Json] | None = None) -> dict[str, Json]:
    """Return a ttnn or torch tensor; ``values`` come before the keys of ttnn tensors."""
    dtype = spec.dtype.rpartition(".")[2]
    form: dict[str, Json] = {"type": "torch.Tensor", "shape": list(spec.shape), "dtype": dtype}
    form |= values or {}
    placement = spec.placement
    if isinstance(placement, TtnnPlacement):
        form["type"] = "ttnn.Tensor"
        form["original_shape"] = list(spec.shape)
        form["original_dtype"] = dtype
        form["layout"] = placement.layout
        form["storage_type"] = f"{placement.storage.upper()}_STORAGE"
        form["memory_config"] = None if placement.memory is None else encode(placement.memory)
    return form


def tensor_count(value: Value) -> int:
    """Return the number of places in ``value`` that hold a ttnn or torch tensor."""
    return sum(
        isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement | TorchPlacement)
        for _, part in walk(value)
    )
